"""``toolpost audit``: the last calls, those that fit, one of them, the proof, a copy of it all.

Above: ``main.py``. Below: ``ledger`` of the package, which reads and proves, over the store that
the config names. Nothing here writes to the audit.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_args

import click
import msgspec

from toolpost.characters import visible_json_text
from toolpost.cli import calls as screen
from toolpost.cli.callids import may_mean, meant
from toolpost.cli.completing import tool_names
from toolpost.cli.opening import run, stored
from toolpost.cli.options import Asked, json_option, only_here, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.remote_parts import RemoteAudit
from toolpost.cli.terminal import console, counted, err, json_text, lines, out, print_json, safe
from toolpost.cli.times import Moment
from toolpost.config import find
from toolpost.contracts import Store
from toolpost.errors import Code, ConfigError
from toolpost.ledger.archives import verify_everything, verify_file
from toolpost.ledger.copying import copied
from toolpost.ledger.opening import FOLDER, KEY, lines_of
from toolpost.ledger.reading import (
    OPEN,
    AuditedCall,
    Wanted,
    calls,
    csv_rows,
    last_calls,
    last_position,
)
from toolpost.ledger.record import DECIDED, OK, UNKNOWN
from toolpost.ledger.verify import Head, Verified
from toolpost.seal import accept_other_keys
from toolpost.wording import nearest, short

F = TypeVar("F", bound=Callable[..., Any])
_POLL: Final = 0.5
_CODES: Final = (OK, *get_args(Code), UNKNOWN, OPEN, *DECIDED)
_LISTED: Final = 5


class _Code(click.ParamType):  # type: ignore[type-arg]
    """A code that calls can end with, in whatever case."""

    name = "code"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        code = str(value).upper()
        if code not in _CODES:
            hint = nearest(code, _CODES) or f"; there are {', '.join(_CODES)}"
            self.fail(f"no call ends with {short(value)!r}{hint}")
        return code


_wide_option = click.option(
    "--wide", is_flag=True, help="Cut nothing: whole ids, times and names, however long the lines."
)


def _filters(function: F) -> F:
    for option in reversed(
        (
            click.option("--tool", shell_complete=tool_names, help="Only calls of this tool."),
            click.option("--caller", metavar="ID", help="Only by this caller, user, agent or key."),
            click.option("--session", metavar="ID", help="Only calls of this session."),
            click.option("--code", type=_Code(), help="Only with this code: OK, OPEN, TIMEOUT, …"),
            click.option(
                "--since", type=Moment(), help="Only from then on: 2h, yesterday, a date."
            ),
            click.option("--until", type=Moment(), help="Only from before then."),
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
@_wide_option
@json_option
@pass_asked
def tail(asked: Asked, *, number: int, follow: bool, wide: bool, as_json: bool) -> None:
    """Show the last calls.

    `toolpost audit show` takes their ids as they stand here. With --json and --follow, one line of
    JSON per call.
    """

    async def work() -> None:
        async with _kept(asked) as kept:
            if not follow:
                screen.show(asked, await kept.last(number), as_json=as_json, wide=wide)
                return
            if not isinstance(kept, _Kept):
                raise only_here("audit tail --follow")
            after = await last_position(kept.store)
            found = await kept.last(number)
            for call in found:
                screen.say(call, as_json=as_json, wide=wide)
            while follow:
                await asyncio.sleep(_POLL)
                end = await last_position(kept.store)
                fresh = [c async for c in calls(lines_of(kept.store, after=after))]
                for call in fresh:
                    if call.ended is not None:
                        screen.say(call, as_json=as_json, wide=wide)
                after = end

    _run(asked, work())


@command.command("search")
@_filters
@click.option("--limit", type=click.IntRange(1), default=100, help="At most so many, the latest.")
@_wide_option
@json_option
@pass_asked
def search(
    asked: Asked,
    *,
    limit: int,
    wide: bool,
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

    async def work() -> Sequence[AuditedCall]:
        async with _kept(asked) as kept:
            return await kept.found(wanted, limit)

    screen.show(asked, run(asked, work()), as_json=as_json, wide=wide)


@command.command("show")
@click.argument("call_id")
@json_option
@pass_asked
def show(asked: Asked, *, call_id: str, as_json: bool) -> int:
    """Show everything about one call.

    CALL_ID is an id as `audit tail` shows it, or the beginning of one.
    """

    async def work() -> Sequence[AuditedCall]:
        async with _kept(asked) as kept:
            return await kept.like(call_id)

    found = run(asked, work())
    chosen = set(meant(call_id, [c.asked.call_id for c in found]))
    exact = [c for c in found if c.asked.call_id in chosen]
    if len(exact) != 1:
        err(_unclear(call_id, [c.asked.call_id for c in exact]))
        return 1
    said = exact[0].to_dict()
    if as_json:
        print_json(said)
        return 0
    shown = {**said, "time": screen.moment(exact[0].asked.time)}
    texts = [(k, v if isinstance(v, str) else json_text(v, indent=None)) for k, v in shown.items()]
    console(asked).print(lines(texts))
    return 0


def _unclear(written: str, ids: list[str]) -> str:
    more = "" if len(ids) <= _LISTED else f"\n  and {len(ids) - _LISTED} more"
    listed = "".join(f"\n  {one}" for one in ids[:_LISTED])
    if not ids:
        return f"No call has the id {short(written)!r}. `toolpost audit search` lists calls."
    return safe(f"{counted(len(ids), 'call')} may be meant by {short(written)!r}:{listed}{more}")


@command.command("verify")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What an earlier `verify --json` printed: none of it may have changed.",
)
@click.option(
    "--accept-key",
    is_flag=True,
    help="Accept that another key signs the audit than before. Until then, verify says so.",
)
@json_option
@pass_asked
def verify_(
    asked: Asked, *, file: Path | None, against: Path | None, accept_key: bool, as_json: bool
) -> int:
    """Prove that the audit is as it was written.

    The first record that is not is named. With FILE, an export or an archive is proved instead of
    the store. Ends with 1 if anything is wrong.
    """
    earlier = [] if against is None else _heads(against)
    if accept_key:
        if asked.url is not None:
            raise only_here("audit verify --accept-key")
        config = find(asked.config)
        accept_other_keys(config.base / config.settings.state / FOLDER, KEY)
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
            if not isinstance(kept, _Kept):
                raise only_here("audit export")
            written = 0
            with click.open_file(str(output or "-"), "w", encoding="utf-8") as stream:
                shown = _for_terminal(form) if stream.isatty() else str
                async for piece in _exported(kept.store, form, wanted):
                    stream.write(shown(piece))
                    written += 1
            return written

    count = _run(asked, work())
    if output is not None:
        err(f"{counted(count, 'line' if form == 'journal' else 'call')} written to {output}")


def _for_terminal(form: str) -> Callable[[str], str]:
    """What makes a piece of an export harmless to print: JSON stays the same JSON."""
    return safe if form == "csv" else visible_json_text


async def _exported(store: Store, form: str, wanted: Wanted) -> AsyncIterator[str]:
    if form == "journal":
        async for line in lines_of(store):
            yield copied(line).decode()
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

    async def last(self, number: int) -> Sequence[AuditedCall]:
        return await last_calls(self.store, number)

    async def found(self, wanted: Wanted, limit: int) -> Sequence[AuditedCall]:
        """The latest that fit, the oldest of them first."""
        found = [c async for c in calls(lines_of(self.store)) if wanted.fits(c)]
        return found[-limit:]

    async def like(self, call_id: str) -> Sequence[AuditedCall]:
        """Those that may be meant."""
        everything = calls(lines_of(self.store))
        return [c async for c in everything if may_mean(call_id, c.asked.call_id)]

    async def verified(self, earlier: Sequence[Head]) -> Verified:
        return await verify_everything(self.store, self.folder, earlier)


@asynccontextmanager
async def _kept(asked: Asked) -> AsyncIterator[_Kept | RemoteAudit]:
    """The store of the config, and nothing else of it; or what a gateway has."""
    if asked.url is not None:
        async with connected(asked) as client:
            yield RemoteAudit(client)
        return
    config = find(asked.config)
    if config.settings.store.get("kind") == "memory":
        raise ConfigError(
            "the store is memory, which keeps nothing when a program ends. Say in the config: "
            'store = { kind = "sqlite" }'
        )
    async with stored(config) as store:
        yield _Kept(store, config.base / config.settings.state / FOLDER)


async def _verified(asked: Asked, file: Path | None, earlier: list[Head]) -> Verified:
    if file is not None:
        if asked.url is not None:
            raise only_here("audit verify FILE")
        config = find(asked.config)
        return await verify_file(file, config.base / config.settings.state / FOLDER, earlier)
    async with _kept(asked) as kept:
        return await kept.verified(earlier)


def _heads(file: Path) -> list[Head]:
    try:
        return msgspec.convert(msgspec.json.decode(file.read_bytes())["heads"], list[Head])
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise ConfigError(f"{file}: this is not what `audit verify --json` prints") from None


def _print(found: Verified) -> None:
    for head in found.heads:
        if not head.first:
            continue  # not one of its records could be read
        still = f", {head.open} open" if head.open else ""
        out(
            f"chain {safe(head.writer)}: records {head.first} to {head.number}, "
            f"proved up to {head.signed}{still}"
        )
    for text in found.unproven:
        out(safe(f"not proved: {text}"))
    for problem in found.problems:
        chain = f"record {problem.number} of chain {problem.writer or '(unknown)'}: "
        of_all = not problem.writer and not problem.number
        out(safe(f"{problem.fault.upper()}: {'' if of_all else chain}{problem.what}"))
    told = "as they were written" if found.ok else "NOT as written"
    out(f"{counted(found.records, 'record')}: {told}")


def _run(asked: Asked, work: Any) -> Any:
    """As ``run``, for work that prints what it finds itself."""
    stdout = sys.stdout

    async def printing() -> Any:
        with redirect_stdout(stdout):
            return await work

    return run(asked, printing())
