"""Whether a text holds secrets or personal data: how many of which kind, and where the first is.

Above: ``tool.py``. Below: the one rule set, ``toolpost.redact``. What is found is never told, only
that it is there. A text that came through the pipeline may have its secrets taken out already;
they count.
"""

from __future__ import annotations

import re
from typing import Final, TypedDict

from toolpost.redact import Rules

_RULES: Final = Rules()
_TAKEN_OUT: Final = re.compile(r"\[redacted:([a-z0-9_]{1,40})\]")
_MOST: Final = 20


class Holding(TypedDict):
    kind: str
    count: int
    first_line: int


class Sensitive(TypedDict):
    """What a text holds that not everybody should see."""

    secrets: list[Holding]
    personal_data: list[Holding]


def held(text: str) -> Sensitive:
    places: dict[str, list[int]] = {}
    for finding in _RULES.find(text):
        places.setdefault(finding.kind, []).append(finding.start)
    for match in _TAKEN_OUT.finditer(text):
        places.setdefault(match[1], []).append(match.start())
    secrets: list[Holding] = []
    personal: list[Holding] = []
    for kind, starts in sorted(places.items(), key=lambda one: -len(one[1]))[:_MOST]:
        line = text.count("\n", 0, min(starts)) + 1
        found: Holding = {"kind": kind, "count": len(starts), "first_line": line}
        (secrets if _RULES.kinds.get(kind, True) else personal).append(found)
    return {"secrets": secrets, "personal_data": personal}
