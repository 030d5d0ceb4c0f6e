"""``DataSanitizer``: the sanitizer that a tool of the FaultMaven contract gets by default."""

from __future__ import annotations

from typing import Any

from toolpost import redact


class DataSanitizer:
    """What a tool gets as ``sanitizer`` where nobody provides another: the rules of toolpost."""

    def sanitize(self, data: Any) -> Any:
        """Texts and JSON data with every secret and all personal data taken out."""
        return redact.redact_text(data) if isinstance(data, str) else redact.redact(data)
