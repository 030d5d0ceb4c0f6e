"""``/v1/tools?format=…``: the tools of a caller as a vendor wants them.

Above: ``tools.py``. Below: the exporters that come with toolpost; what else is installed is loaded
for whoever runs a program here, not for who asks it something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolpost.exporters import FORMATS, export
from toolpost.gateway.problems import Refused
from toolpost.spec import ToolSpec
from toolpost.wording import short

_KEPT: Final = 16
_STRICT: Final = {"true": True, "false": False}


def form_of(query: Mapping[str, str]) -> tuple[str | None, bool]:
    """Which form is asked for, if any, and whether it is to be strict."""
    form, strict = query.get("format"), query.get("strict", "false")
    if form is not None and form not in FORMATS:
        raise Refused(400, f"There is no format {short(form)!r}; there are: {', '.join(FORMATS)}.")
    if strict not in _STRICT:
        raise Refused(400, "strict: must be true or false.")
    return form, _STRICT[strict]


class Exports:
    """The last ones: agents ask for the same again with every conversation."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Sequence[ToolSpec], bytes]] = {}

    async def of(self, specs: Sequence[ToolSpec], form: str, *, strict: bool) -> bytes:
        alike = (form, strict, *map(id, specs))
        made = self._made.get(alike)
        if made is None:
            body = await asyncio.to_thread(_body, specs, form, strict=strict)
            if len(self._made) >= _KEPT:
                self._made.clear()
            made = self._made[alike] = (specs, body)  # with the specs: their ids stay theirs
        return made[1]


def _body(specs: Sequence[ToolSpec], form: str, *, strict: bool) -> bytes:
    return msgspec.json.encode(export(specs, form, strict=strict).data())
