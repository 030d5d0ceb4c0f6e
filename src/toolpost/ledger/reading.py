"""The audit read as people ask for it: one call at a time, the last ones, those that fit.

Above: the command line, and later the gateway. Below: the lines of a journal. A call that was
written as intent and outcome comes back as one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, Final

import msgspec

from toolpost.characters import visible
from toolpost.contracts import Journal, Line
from toolpost.ledger.block import decode
from toolpost.ledger.opening import lines_of
from toolpost.ledger.record import AuditRecord

OPEN: Final = "OPEN"
"""The code of a call that has not ended."""
_WINDOW: Final = 16
"""Lines at the end that are looked at first: some hold a thousand calls."""
_OF_CALLS: Final = frozenset(("call", "intent", "outcome", "decision"))


class AuditedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call, as the audit knows it; or what a person has decided."""

    asked: AuditRecord
    """What was asked: an intent, or a record that tells of the whole call."""
    ended: AuditRecord | None
    """What came of it; ``None`` while it is open."""

    def to_dict(self) -> dict[str, Any]:
        """Flat: what was asked, then what came of it."""
        said: dict[str, Any] = msgspec.to_builtins(self.asked)
        if self.ended is not None and self.ended is not self.asked:
            end: dict[str, Any] = msgspec.to_builtins(self.ended)
            said |= {k: v for k, v in end.items() if k not in _PLACE}
            said["ended"] = self.ended.number
        said["code"] = self.code
        return said | {"kind": "decision" if self.asked.kind == "decision" else "call"}

    @property
    def code(self) -> str:
        return OPEN if self.ended is None else self.ended.code


_PLACE: Final = ("writer", "number", "kind", "time", "call_id", "tool")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls; what is not said fits all."""

    tool: str | None = None
    caller: str | None = None
    """The id, the user, the agent or the name of the key."""
    session: str | None = None
    code: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
    """Somewhere in the record, whatever the case."""

    def fits(self, call: AuditedCall) -> bool:
        asked, who = call.asked, call.asked.caller
        names = () if who is None else (who.id, who.user, who.agent, who.key)
        return (
            (self.tool is None or asked.tool == self.tool)
            and (self.caller is None or self.caller in names)
            and (self.session is None or asked.session == self.session)
            and (self.code is None or call.code == self.code.upper())
            and (self.since is None or asked.time >= self.since)
            and (self.until is None or asked.time < self.until)
            and (self.text is None or self.text.lower() in _flat(call))
        )


def _flat(call: AuditedCall) -> str:
    return msgspec.json.encode(call.to_dict()).decode().lower()


async def records_of(lines: AsyncIterable[Line]) -> AsyncIterator[AuditRecord]:
    """Every record, each in its place; a line that is no block any more has none."""
    async for line in lines:
        if (block := decode(line.body)) is not None:
            for record in block.records():
                yield record


async def calls(lines: AsyncIterable[Line]) -> AsyncIterator[AuditedCall]:
    """The calls in the order in which they ended, then those that are open."""
    opened: dict[str, AuditRecord] = {}
    async for record in records_of(lines):
        if record.kind not in _OF_CALLS:
            continue
        if record.kind == "intent":
            opened[record.call_id] = record
        else:
            yield AuditedCall(opened.pop(record.call_id, record), record)
    for record in opened.values():
        yield AuditedCall(record, None)


async def last_calls(journal: Journal, number: int) -> list[AuditedCall]:
    """The last calls, oldest first, without reading what is long past."""
    end, window = await last_position(journal), _WINDOW
    while True:
        start = max(0, end - window)
        found = [call async for call in calls(lines_of(journal, after=start))]
        # an outcome whose intent is before the window is read again with a larger one
        whole = [call for call in found if call.asked.kind != "outcome"]
        if len(whole) >= number or start == 0:
            return (whole if start else found)[-number:]
        window *= 4


async def last_position(journal: Journal) -> int:
    """Where the journal ends, found by halving: a journal can only be read forwards."""
    low, high = 0, 1
    while page := await journal.read(after=high, limit=1):
        low, high = page[0].position, page[0].position * 2
    while low < high:
        middle = (low + high) // 2
        page = await journal.read(after=middle, limit=1)
        if page:
            low = page[0].position
        else:
            high = middle
    return low


COLUMNS: Final = (
    "time", "call_id", "tool", "code", "outcome", "caller", "user", "agent", "key", "session",
    "tier", "effects", "isolation", "duration_ms", "attempts", "cached", "dry_run", "grant",
    "approver", "arguments", "raw", "arguments_digest", "spec", "message", "trail", "writer",
    "number",
)  # fmt: skip


def csv_rows(found: Iterable[AuditedCall], *, header: bool = True) -> str:
    """Calls as CSV. No cell is a formula to a spreadsheet, or has what a terminal obeys in it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    for call in found:
        said = call.to_dict()
        said |= {"caller": "", **_who(said.get("caller"))}
        writer.writerow([_cell(said.get(column, "")) for column in COLUMNS])
    return text.getvalue()


def _who(caller: dict[str, str] | None) -> dict[str, str]:
    caller = caller or {}
    return {
        "caller": caller.get("id", ""),
        "user": caller.get("user", ""),
        "agent": caller.get("agent", ""),
        "key": caller.get("key", ""),
    }


def _cell(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        value = msgspec.json.encode(value).decode()
    elif isinstance(value, str) and value[:1] in tuple("=+-@\t\r"):
        value = f"'{value}"
    return visible(value) if isinstance(value, str) else value
