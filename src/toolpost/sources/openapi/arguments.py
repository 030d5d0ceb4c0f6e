"""The arguments of one tool while they are gathered: names that are legal, each once.

Above: ``parameters.py`` and ``bodies.py`` put them in, ``converting.py`` makes the input schema of
them. Below: nothing. What an argument is called on the wire stands in the binding; here it has a
name that every model's vendor takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolpost.sources.openapi.translating import Schema

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST: Final = 64
_SPREAD: Final = ("json", "deepObject")
_DEFAULTS: Final = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}


class Arguments:
    """What the tool takes; ``needed`` says which arguments another one asks for."""

    def __init__(self) -> None:
        self.properties: dict[str, Schema] = {}
        self.required: list[str] = []
        self.needed: dict[str, list[str]] = {}

    def add(self, wire: str, where: str, schema: Schema, *, required: bool = False) -> str:
        """The name of an argument for what is called ``wire`` in a path, a query, a body …"""
        name = self._free(_ILLEGAL.sub("_", wire).strip("_")[:_LONGEST] or where, where)
        self.properties[name] = schema
        if required:
            self.required.append(name)
        return name

    def go_together(self, names: Iterable[str], needed: Iterable[str]) -> None:
        """Whoever gives one of them has to give those that are needed."""
        wanted = list(needed)
        for name in names:
            if others := [one for one in wanted if one != name]:
                self.needed[name] = others

    def schema(self) -> Schema:
        made: Schema = {"type": "object", "properties": self.properties}
        if self.required:
            made["required"] = self.required
        if self.needed:
            made["dependentRequired"] = self.needed
        return {**made, "additionalProperties": False}

    def _free(self, name: str, where: str) -> str:
        """A name nobody has: one that is taken is told apart by where it goes."""
        if name not in self.properties:
            return name
        name = f"{where}_{name}"[:_LONGEST]
        number = 2
        free = name
        while free in self.properties:
            free = f"{name[: _LONGEST - 6]}_{number}"
            number += 1
        return free


def entry(name: str, where: str, **written: Any) -> Any:
    """An argument's place in a binding: its text, and how it is written unless that is usual."""
    style = written.pop("style", None) or _DEFAULTS.get(where, "form")
    explode = written.pop("explode", None)
    more: dict[str, Any] = {key: one for key, one in written.items() if one not in (None, False)}
    if style != _DEFAULTS.get(where, "form"):
        more["style"] = style
    if explode is not None and explode != (style == "form") and style not in _SPREAD:
        more["explode"] = explode
    return {"value": f"{{{name}}}", **more} if more else f"{{{name}}}"


Entries = Mapping[str, Any]
