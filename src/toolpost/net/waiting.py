"""How long a service asks to be left alone.

Above: whoever makes an error of an answer. Below: nothing. It refuses to wait.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import Final

_MOST_WAIT: Final = 7 * 24 * 3600.0


def retry_after(said: str | None) -> float | None:
    """The seconds of a ``Retry-After``, which gives them or a date."""
    said = (said or "").strip()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", said):
        return min(float(said), _MOST_WAIT)
    try:
        seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(round(seconds, 3), 0.0), _MOST_WAIT)
