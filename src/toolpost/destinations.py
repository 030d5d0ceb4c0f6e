"""What ``egress`` may say: an exact ``host:port``, or ``*`` for any public address.

Above: specs and sandboxes, which refuse all else. Below: nothing. Where a name leads, and whether
that is public, ``net/destination.py`` knows.
"""

from __future__ import annotations

import re
from typing import Final

from toolpost.wording import short

_DESTINATION: Final = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([1-9]\d{0,4})|\*", re.ASCII)


def is_destination(text: str) -> bool:
    found = _DESTINATION.fullmatch(text)
    return found is not None and int(found[1] or 1) < 65536


def not_a_destination(text: str) -> str:
    return f"egress {short(text)!r} is not a host:port, nor * for any public address"
