"""What workers in every language are held against: tickets, envelopes, manifests.

``python -m tests.bus.vectors`` writes the files anew; Ed25519 signs the same with the same.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent


def read(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
