"""What a request presents: the header ``Authorization``, read strictly.

Above: ``callers.py``. Below: nothing. Whether it is any good is not known here.
"""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "tpk_"
"""What an API key begins with; ``redact`` knows it as a secret."""
LONGEST: Final = 8192
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] {1,8}([A-Za-z0-9._~+/=-]+) {0,8}")


class Rejected(Exception):
    """Not accepted. Why is for the log: whoever presented it is told no more than that."""


def presented(authorization: bytes) -> str:
    """The credential itself."""
    if len(authorization) > LONGEST:
        raise Rejected("it is too long")
    found = _BEARER.fullmatch(authorization)
    if found is None:
        raise Rejected("it is not of the form: Bearer CREDENTIAL")
    return found[1].decode("ascii")
