"""Calls of the audit on the screen: one line each, whatever its width.

Above: ``audit.py``. Below: the terminal. On a narrow screen the day and the duration go first, then
the time and the middle of long names; ids are cut to what finds the call again. ``wide`` cuts
nothing at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from toolpost.cli.callids import shortened
from toolpost.cli.options import Asked
from toolpost.cli.terminal import console, counted, err, json_text, out, plain, print_json, safe
from toolpost.ledger.reading import AuditedCall
from toolpost.ledger.record import Who

if TYPE_CHECKING:
    from rich.table import Table

_CALM: Final = ("OK", "OPEN")
_NEEDS: Final = {"ms": 70, "time": 50}
"""How wide a screen has to be for these; the day goes with the duration."""
_ENDLESS: Final = 10_000
"""Columns of a screen on which nothing is cut."""
_ELASTIC: Final = ("tool", "caller")


def show(asked: Asked, found: Sequence[AuditedCall], *, as_json: bool, wide: bool = False) -> None:
    """All of them, in a table."""
    if as_json:
        print_json([call.to_dict() for call in found])
    elif not found:
        err("No calls.")
    else:
        screen = console(asked, width=_ENDLESS if wide else None)
        screen.print(_table(found, screen.width, wide=wide))
        screen.print(plain(counted(len(found), "call"), "dim"))


def say(call: AuditedCall, *, as_json: bool, wide: bool = False) -> None:
    """One, as soon as it is known."""
    if as_json:
        out(json_text(call.to_dict(), indent=None))
    else:
        cells = _cells(call, *_said([call], _ENDLESS, wide=wide))
        out(safe("  ".join(cells.values())))
    sys.stdout.flush()


def moment(time: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(time, UTC).strftime(form)


def _table(found: Sequence[AuditedCall], width: int, *, wide: bool) -> Table:
    from rich.table import Table

    from toolpost.cli.folding import Elided  # brief starts: only what prints with it pays for it

    ids, form = _said(found, width, wide=wide)
    rows = [_cells(call, ids, form) for call in found]
    left_out = [name for name, least in _NEEDS.items() if width < least]
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in (column for column in rows[0] if column not in left_out):
        elastic, number = name in _ELASTIC, name == "ms"
        made.add_column(name, no_wrap=not elastic, justify="right" if number else "left")
    for call, cells in zip(found, rows, strict=True):
        texts = (safe(cell) for name, cell in cells.items() if name not in left_out)
        made.add_row(
            *map(Elided, texts),
            style=None if call.code in _CALM else "red",
        )
    return made


def _said(found: Iterable[AuditedCall], width: int, *, wide: bool) -> tuple[dict[str, str], str]:
    """How ids and times are written: as short as the screen wants it."""
    ids = [call.asked.call_id for call in found]
    if wide:
        return {call_id: call_id for call_id in ids}, "%Y-%m-%d %H:%M:%S"
    return shortened(ids), "%H:%M:%S" if width < _NEEDS["ms"] else "%m-%d %H:%M:%S"


def _cells(call: AuditedCall, ids: dict[str, str], form: str) -> dict[str, str]:
    asked, ended = call.asked, call.ended
    took = None if ended is None else ended.duration_ms
    return {
        "time": moment(asked.time, form),
        "call": ids[asked.call_id],
        "tool": asked.tool,
        "caller": _caller(asked.caller),
        "code": call.code,
        "ms": "" if took is None else f"{took:.1f}",
    }


def _caller(caller: Who | None) -> str:
    """The name a person knows the caller by: the agent's, else the key's, else the user's."""
    return "" if caller is None else caller.agent or caller.key or caller.user or caller.id
