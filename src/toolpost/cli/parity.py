"""``toolpost parity``: the same calls to old tools and to new ones, and what differs.

Above: ``main.py``. Below: ``kit/parity.py`` compares; a side is opened here: a Python file or a
module, a spec file, a config, a gateway.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.cli.opening import opened, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.remote import connected
from toolpost.cli.terminal import console, counted, err, out, print_json, row, safe, say, table
from toolpost.config import FILE_NAME
from toolpost.document import read
from toolpost.errors import SourceError
from toolpost.executor import Executor
from toolpost.kit.modules import entries_in, imported
from toolpost.kit.parity import (
    TOLERANCE,
    Compared,
    Parity,
    Side,
    calls_in,
    changing,
    compare,
)
from toolpost.registry import Entry, Registry, as_entry
from toolpost.sources.files import FilesSource

_SPECS: Final = (".yaml", ".yml", ".json", ".toml")
_TOLD: Final = 20
"""Calls that differ of which each difference is printed."""


@click.command("parity")
@click.argument("old")
@click.argument("new")
@click.option(
    "--calls",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='What to call, a line each: {"tool": "add", "arguments": {"a": 1}}.',
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=TOLERANCE,
    show_default=True,
    help="By how much numbers may differ, in relation to their size.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="FIELD",
    help="A field that may differ: its name, or a JSON pointer to it.",
)
@click.option("--only", type=click.Choice(["read"]), help="Only tools that change nothing.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, help="Make each call so often, for the latency."
)
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    old: str,
    new: str,
    file: Path,
    tolerance: float,
    ignore: tuple[str, ...],
    only: str | None,
    repeat: int,
    as_json: bool,
) -> int:
    """Compare old tools with new ones, call by call.

    OLD and NEW are each a Python file or module, a spec file, a config, a folder with one, or the
    URL of a gateway. Results, codes of errors and latency are compared; it ends with 1 if results
    or codes differ. Every call is made on each side, as often as --repeat says.
    """
    calls = calls_in(file)

    async def compared() -> Parity:
        async with (
            _side(asked, old, {ask.old for ask in calls}) as before,
            _side(asked, new, {ask.new for ask in calls}) as after,
        ):
            if only is None:
                _warn(changing(before, after, calls), repeat)
            with Bar("comparing", asked=asked) as bar:
                return await compare(
                    before,
                    after,
                    calls,
                    tolerance=tolerance,
                    ignore=ignore,
                    only_read=only == "read",
                    repeat=repeat,
                    tell=bar.tell,
                )

    found = run(asked, compared())
    if as_json:
        print_json(_data(found))
    else:
        _print(asked, found, file)
    return 0 if found.same else 1


def _warn(changing: Sequence[str], repeat: int) -> None:
    if changing:
        names = safe(", ".join(changing))
        often = "twice, once" if repeat == 1 else f"{2 * repeat} times, {repeat}"
        say(
            f"warning: {names}: may change something, and every call is made {often} on each "
            "side; --only read leaves them out"
        )


@asynccontextmanager
async def _side(asked: Asked, place: str, wanted: Collection[str]) -> AsyncIterator[Side]:
    if place.startswith(("http://", "https://")):
        async with connected(replace(asked, url=place)) as client:
            specs = {spec.name: spec for spec in await client.list()}
            yield Side(place, specs, client.execute)
        return
    if (config := _config(Path(place))) is not None:
        async with opened(replace(asked, config=config)) as runtime:
            await runtime.open_sandbox()
            yield Side.of(place, runtime)
        return
    async with Executor(Registry(await _entries(place, wanted))) as executor:
        yield Side.of(place, executor)


def _config(path: Path) -> str | None:
    """The config that is meant, if one is: a TOML file may declare tools, too."""
    file = path / FILE_NAME if path.is_dir() else path
    if file.suffix != ".toml" or not file.is_file():
        return None
    return str(file) if file.name == FILE_NAME or "tools" not in read(file).data else None


async def _entries(place: str, wanted: Collection[str]) -> list[Entry]:
    path = Path(place)
    if path.suffix in _SPECS:
        source = FilesSource([place])
        return [as_entry(one) for one in await source.load(lambda done, total: None)]
    if path.suffix != ".py" and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    entries = entries_in(imported(path if path.suffix == ".py" else place), wanted=wanted)
    if not entries:
        raise SourceError(
            f"{place}: there is no tool in it, of any contract that is known, and no function of "
            "a name that is called"
        )
    return entries


def _data(found: Parity) -> dict[str, Any]:
    return {
        "same": found.same,
        "tools": msgspec.to_builtins(found.tools()),
        "calls": msgspec.to_builtins(found.compared),
    }


def _print(asked: Asked, found: Parity, file: Path) -> None:
    listing = table("tool", "calls", "same", "old p50", "new p50", "ratio", wide=["tool"])
    for name, told in found.tools().items():
        times = [_time(told.old_p50), _time(told.new_p50)]
        ratio = "" if told.ratio is None else f"{told.ratio:g}"
        style = None if told.same == told.calls else "red"
        row(listing, name, str(told.calls), str(told.same), *times, ratio, style=style)
    console(asked).print(listing)
    differing = [one for one in found.compared if one.differences]
    for one in differing[:_TOLD]:
        _tell(one, file)
    if len(differing) > _TOLD:
        out(f"and {counted(len(differing) - _TOLD, 'call')} more; --json tells all of them")
    if skipped := sum(bool(one.skipped) for one in found.compared):
        err(f"{counted(skipped, 'call')} left out: the tool may change something")
    made = len(found.compared) - skipped
    out(f"{counted(made, 'call')}: {len(differing) or 'none'} differ{'s' * (len(differing) == 1)}")


def _tell(one: Compared, file: Path) -> None:
    out(safe(f"{file}:{one.ask.line}: {one.ask.new}"))
    for difference in one.differences:
        out(safe(f"  {difference.at}: {difference.old} → {difference.new}"))


def _time(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.3g} ms"
