"""What the doctor found: one thing that was tried, how it went, and what to do if it went badly.

Above: ``doctor.py`` and what it examines with. Below: the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from toolpost.cli.options import Asked
from toolpost.cli.terminal import console, plain, safe, table

Verdict = Literal["ok", "info", "warn", "fail"]
_STYLES: Final = {"ok": "green", "info": "dim", "warn": "yellow", "fail": "bold red"}
_BLOCKED: Final = {True: ("blocked", "green"), False: ("got out", "bold red"), None: ("", "dim")}


class Finding(NamedTuple):
    """``attacks`` are those that were tried, each with whether it was blocked."""

    check: str
    verdict: Verdict
    found: str
    todo: str = ""
    attacks: Mapping[str, bool] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in self._asdict().items() if value is not None}


def show(asked: Asked, findings: Sequence[Finding]) -> None:
    listing = table("check", "", "found", wide=["found"])
    for one in findings:
        verdict = plain(one.verdict, _STYLES[one.verdict])
        listing.add_row(plain(one.check), verdict, plain(safe(one.found)))
        if one.todo:
            listing.add_row("", "", plain(safe(f"→ {one.todo}"), "bold"))
    console(asked).print(listing)


def show_attacks(asked: Asked, findings: Sequence[Finding]) -> None:
    """Every attack, and what each level made of it."""
    tried = {one.check.removeprefix("attacks "): one.attacks for one in findings if one.attacks}
    names = dict.fromkeys(name for attacks in tried.values() for name in attacks)
    listing = table("attack", *tried, wide=["attack"])
    for name in names:
        words = [_BLOCKED[attacks.get(name)] for attacks in tried.values()]
        listing.add_row(plain(name.replace("_", " ")), *(plain(*word) for word in words))
    console(asked).print(listing)
