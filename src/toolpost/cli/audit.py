"""``toolpost audit``: the last calls, those that fit, one of them, the proof, a copy of it all.

Above: ``main.py``. Below: ``ledger`` of the package, which reads and proves, over the store that
the config names. Nothing here writes to the audit.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec

from toolpost.cli.completing import tool_names
from toolpost.cli.opening import once, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import (
    console,
    err,
    json_text,
    lines,
    out,
    plain,
    print_json,
    row,
    safe,
    table,
)
from toolpost.config import find
from toolpost.contracts import Line, Store
from toolpost.errors import ConfigError
from toolpost.ledger.anchor import anchors
from toolpost.ledger.block import decode
from toolpost.ledger.opening import FOLDER, KEY, lines_of
from toolpost.ledger.reading import AuditedCall, Wanted, calls, csv_rows, last_calls, last_position
from toolpost.ledger.verify import Head, Proof, Verified, verify
from toolpost.runtime import Runtime
from toolpost.seal import verifiers

F = TypeVar("F", bound=Callable[..., Any])
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POLL: Final = 0.5
_CALM: Final = ("OK", "OPEN")


class _Moment(click.ParamType):  # type: ignore[type-arg]
    """``2h`` ago, or a date and time as ISO 8601 writes it."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, float):
            return value
        if ago := _AGO.fullmatch(value):
            return time.time() - float(ago[1]) * _UNITS[ago[2]]
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail("say 30m, 2h, 7d, or a date like 2026-11-15 or 2026-11-15T10:00+01:00")
        return moment.timestamp()


def _filters(function: F) -> F:
    for option in reversed(
        (
            click.option("--tool", shell_complete=tool_names, help="Only calls of this tool."),
            click.option("--caller", metavar="ID", help="Only by this caller, user or agent."),
            click.option("--session", metavar="ID", help="Only calls of this session."),
            click.option("--code", help="Only with this code: OK, TIMEOUT, UNKNOWN, OPEN, …"),
            click.option("--since", type=_Moment(), help="Only from then on: 2h, 2026-11-15."),
            click.option("--until", type=_Moment(), help="Only from before then."),
            click.option("--text", help="Only where this stands somewhere in the record."),
        )
    ):
        function = option(function)
    return function


@click.group("audit")
def command() -> None:
    """Read, search, verify and export the audit."""


@command.command("tail")
@click.option("-n", "--number", type=click.IntRange(1), default=20, help="How many calls.")
@click.option("--follow", is_flag=True, help="Go on with new calls as they come; Ctrl-C ends it.")
@json_option
@pass_asked
def tail(asked: Asked, *, number: int, follow: bool, as_json: bool) -> None:
    """Show the last calls.

    With --json and --follow, one line of JSON per call.
    """

    async def work() -> None:
        async with _kept(asked) as kept:
            after = await last_position(kept.store)
            _show(asked, await last_calls(kept.store, number), as_json=as_json, as_lines=follow)
            while follow:
                await asyncio.sleep(_POLL)
                end = await last_position(kept.store)
                fresh = [c async for c in calls(lines_of(kept.store, after=after))]
                for call in fresh:
                    if call.ended is not None:
                        _say(call, as_json=as_json)
                after = end

    _run(asked, work())


@command.command("search")
@_filters
@click.option("--limit", type=click.IntRange(1), default=100, help="At most so many, the latest.")
@json_option
@pass_asked
def search(
    asked: Asked,
    *,
    limit: int,
    as_json: bool,
    tool: str | None,
    caller: str | None,
    session: str | None,
    code: str | None,
    since: float | None,
    until: float | None,
    text: str | None,
) -> None:
    """Show the calls that fit."""
    wanted = Wanted(
        tool=tool,
        caller=caller,
        session=session,
        code=code,
        since=since,
        until=until,
        text=text,
    )

    async def work() -> list[AuditedCall]:
        async with _kept(asked) as kept:
            found = [c async for c in calls(lines_of(kept.store)) if wanted.fits(c)]
            return found[-limit:]

    _show(asked, run(asked, work()), as_json=as_json)


@command.command("show")
@click.argument("call_id")
@json_option
@pass_asked
def show(asked: Asked, *, call_id: str, as_json: bool) -> int:
    """Show everything about one call. The beginning of its id is enough if it is the only one."""

    async def work() -> list[AuditedCall]:
        async with _kept(asked) as kept:
            everything = calls(lines_of(kept.store))
            return [c async for c in everything if c.asked.call_id.startswith(call_id)]

    found = run(asked, work())
    exact = [c for c in found if c.asked.call_id == call_id] or found
    if len(exact) != 1:
        err(f"{len(exact)} calls have an id that begins so. `toolpost audit search` lists calls.")
        return 1
    said = exact[0].to_dict()
    if as_json:
        print_json(said)
        return 0
    shown = {**said, "time": _time(exact[0].asked.time)}
    texts = [(k, v if isinstance(v, str) else json_text(v, indent=None)) for k, v in shown.items()]
    console(asked).print(lines(texts))
    return 0


@command.command("verify")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What an earlier `verify --json` printed: none of it may have changed.",
)
@json_option
@pass_asked
def verify_(asked: Asked, *, file: Path | None, against: Path | None, as_json: bool) -> int:
    """Prove that the audit is as it was written; name the first record that is not.

    With FILE, an export or an archive is proved instead of the store. Ends with 1 if anything is
    wrong.
    """
    earlier = [] if against is None else _heads(against)
    found = run(asked, _verified(asked, file, earlier))
    if as_json:
        print_json({"ok": found.ok, **msgspec.to_builtins(found)})
    else:
        _print(found)
    return 0 if found.ok else 1


@command.command("export")
@_filters
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "journal"]),
    default="jsonl",
    help="jsonl: a line per call. csv: a row per call. journal: everything as it was written, "
    "which `audit verify FILE` can prove.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file to write."
)
@click.option("--json", "form", flag_value="jsonl", help="The same as --format jsonl.")
@pass_asked
def export(
    asked: Asked,
    *,
    form: str,
    output: Path | None,
    tool: str | None,
    caller: str | None,
    session: str | None,
    code: str | None,
    since: float | None,
    until: float | None,
    text: str | None,
) -> None:
    """Copy the audit: everything, or the calls that fit.

    With filters there is no journal: what is left of one is nothing to prove.
    """
    wanted = Wanted(
        tool=tool,
        caller=caller,
        session=session,
        code=code,
        since=since,
        until=until,
        text=text,
    )

    if form == "journal" and wanted != Wanted():
        raise click.UsageError("a journal is everything: leave out the filters, or use jsonl")

    async def work() -> int:
        async with _kept(asked) as kept:
            written = 0
            with click.open_file(str(output or "-"), "w", encoding="utf-8") as stream:
                async for piece in _exported(kept.store, form, wanted):
                    stream.write(piece)
                    written += 1
            return written

    count = _run(asked, work())
    if output is not None:
        err(f"{count} {'lines' if form == 'journal' else 'calls'} written to {output}")


async def _exported(store: Store, form: str, wanted: Wanted) -> AsyncIterator[str]:
    if form == "journal":
        async for line in lines_of(store):
            yield line.body.decode() + "\n"
        return
    header = True
    async for call in calls(lines_of(store)):
        if wanted.fits(call):
            if form == "csv":
                yield csv_rows([call], header=header)
                header = False
            else:
                yield msgspec.json.encode(call.to_dict()).decode() + "\n"


class _Kept(NamedTuple):
    """Where the audit is."""

    store: Store
    folder: Path
    kind: str


@asynccontextmanager
async def _kept(asked: Asked) -> AsyncIterator[_Kept]:
    """The store of the config, and nothing else of it."""
    config = once(find(asked.config))
    settings = msgspec.structs.replace(config.settings, sources=(), observers=(), guards=())
    kind = str(settings.store.get("kind"))
    if kind == "memory":
        raise ConfigError(
            "the store is memory, which keeps nothing when a program ends. Say in the config: "
            'store = { kind = "sqlite" }'
        )
    async with Runtime(msgspec.structs.replace(config, settings=settings)) as runtime:
        yield _Kept(runtime.store, config.base / settings.state / FOLDER, kind)


async def _verified(asked: Asked, file: Path | None, earlier: list[Head]) -> Verified:
    if file is not None:
        config = find(asked.config)
        folder = config.base / config.settings.state / FOLDER
        keys = verifiers(folder, KEY)
        proof = Proof(keys=keys, anchors=anchors(folder), earlier=earlier, whole=False)
        return await verify(_lines_in(file), proof)
    async with _kept(asked) as kept:
        # the anchors first: what is written meanwhile is beyond them, and not missing
        known = anchors(kept.folder)
        proof = Proof(keys=verifiers(kept.folder, KEY), anchors=known, earlier=earlier)
        return await verify(lines_of(kept.store), proof)


async def _lines_in(file: Path) -> AsyncIterator[Line]:
    with file.open("rb") as opened:
        for position, text in enumerate(opened, start=1):
            body = text.rstrip(b"\n")
            block = decode(body)
            if block is None:
                yield Line("", 0, body, position)
            else:
                yield Line(block.writer, block.last, body, position)


def _heads(file: Path) -> list[Head]:
    try:
        return msgspec.convert(msgspec.json.decode(file.read_bytes())["heads"], list[Head])
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise ConfigError(f"{file}: this is not what `audit verify --json` prints") from None


def _print(found: Verified) -> None:
    for head in found.heads:
        still = f", {head.open} open" if head.open else ""
        out(
            f"chain {safe(head.writer)}: records {head.first} to {head.number}, "
            f"proved up to {head.signed}{still}"
        )
    for text in found.unproven:
        out(safe(f"not proved: {text}"))
    for problem in found.problems:
        out(
            safe(
                f"{problem.fault.upper()}: record {problem.number} of chain "
                f"{problem.writer or '(unknown)'}: {problem.what}"
            )
        )
    out(f"{found.records} records: {'as they were written' if found.ok else 'NOT as written'}")


def _show(asked: Asked, found: list[AuditedCall], *, as_json: bool, as_lines: bool = False) -> None:
    if as_lines:
        for call in found:
            _say(call, as_json=as_json)
    elif as_json:
        print_json([call.to_dict() for call in found])
    elif not found:
        err("No calls.")
    else:
        listing = table("time", "call", "tool", "caller", "code", "ms", wide=["tool", "call"])
        for call in found:
            calm = call.code in _CALM
            row(listing, *_cells(call), style=None if calm else "red")
        screen = console(asked)
        screen.print(listing)
        screen.print(plain(f"{len(found)} call{'s' if len(found) != 1 else ''}", "dim"))


def _say(call: AuditedCall, *, as_json: bool) -> None:
    out(json_text(call.to_dict(), indent=None) if as_json else safe("  ".join(_cells(call))))
    sys.stdout.flush()


def _cells(call: AuditedCall) -> tuple[str, ...]:
    asked, ended = call.asked, call.ended
    took = None if ended is None else ended.duration_ms
    return (
        _time(asked.time),
        asked.call_id,
        asked.tool,
        asked.caller.id if asked.caller else "",
        call.code,
        "" if took is None else f"{took:.1f}",
    )


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _run(asked: Asked, work: Any) -> Any:
    """As ``run``, for work that prints what it finds itself."""
    stdout = sys.stdout

    async def printing() -> Any:
        with redirect_stdout(stdout):
            return await work

    return run(asked, printing())
