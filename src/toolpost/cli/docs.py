"""``toolpost docs``: a page about each tool, on standard output or in a folder.

Above: ``main.py``. Below: ``kit/pages.py`` writes a page; the audit tells how long calls took.
It writes over what it has written itself, and over nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from time import monotonic
from typing import Final

import click
import msgspec

from toolpost.cli.completing import tool_names
from toolpost.cli.opening import loaded, opened, run, stored, uncalled
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import counted, err, out, print_json, safe
from toolpost.config import Config, find
from toolpost.errors import CallError
from toolpost.kit.pages import Latency, Page, latencies, markdown, measured, page
from toolpost.ledger.reading import last_calls
from toolpost.parts import store_of
from toolpost.registry import Entry, no_such_tool
from toolpost.runtime import Runtime
from toolpost.spec import ToolSpec

_MADE: Final = "<!-- Made by `toolpost docs`: it writes over this file. -->"
_INDEX: Final = "README.md"
_CALLS: Final = 10_000
"""So many of the last calls are looked at."""
_RUNS: Final = 20
_PATIENCE: Final = 5.0
"""Seconds that one tool is measured; a run that has begun ends."""


@click.command("docs")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=tool_names)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a file for each tool, and a list of them, into this folder.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Run the examples of tools that only read, and say how long they took.",
)
@json_option
@pass_asked
def command(
    asked: Asked, *, names: tuple[str, ...], output: Path | None, measure: bool, as_json: bool
) -> None:
    """Write a page about each tool, as Markdown.

    Each page has seven points: purpose, when it is used, parameters, returns, configuration,
    limitations, performance. How long calls took is taken from the audit.
    """
    pages = run(asked, _pages(asked, names, measure=measure))
    if output is not None:
        _write(output, pages)
        err(safe(f"{counted(len(pages), 'page')} written to {output}"))
    elif as_json:
        print_json([msgspec.to_builtins(one) for one in pages])
    elif pages:
        out(safe("\n".join(map(markdown, pages))))
    else:
        err("No tools. `toolpost config` shows the sources, `toolpost init` makes a first project.")


async def _pages(asked: Asked, names: Sequence[str], *, measure: bool) -> list[Page]:
    config = find(asked.config)
    known = await _on_record(config)
    async with opened(asked) if measure else loaded(uncalled(config), asked) as runtime:
        entries = list(_chosen(runtime, names))
        if measure:
            known = {**known, **await _measured(asked, runtime, [one.spec for one in entries])}
        return [page(s, target=target, latency=known.get(s.name)) for s, target in entries]


def _chosen(runtime: Runtime, names: Sequence[str]) -> Iterator[Entry]:
    seen = {spec.name: spec for spec in runtime.list()}
    for name in dict.fromkeys(names) or seen:
        entry = runtime.registry.entry(name) if name in seen else None
        if entry is None:
            raise no_such_tool(name, seen)
        yield entry


async def _on_record(config: Config) -> Mapping[str, Latency]:
    """How long the last calls took; where there is no audit, nothing is known."""
    if config.settings.store.get("kind") == "memory" or not store_of(config).there:
        return {}
    try:
        async with stored(config) as store:
            return latencies(await last_calls(store, _CALLS))
    except CallError as fault:
        err(safe(f"warning: the audit cannot be read now: {fault}"))
        return {}


async def _measured(
    asked: Asked, runtime: Runtime, specs: Sequence[ToolSpec]
) -> dict[str, Latency]:
    found = {}
    safe_ones = [spec for spec in specs if spec.effects == "read" and spec.examples]
    with Bar("measuring", asked=asked) as bar:
        for done, spec in enumerate(safe_ones):
            bar.tell(done, len(safe_ones), spec.name)
            if durations := await _durations(runtime, spec):
                found[spec.name] = measured(durations)
            else:
                err(safe(f"warning: {spec.name}: none of its examples succeeded"))
    return found


async def _durations(runtime: Runtime, spec: ToolSpec) -> list[float]:
    """Of each example once, and again as long as there is time; the first run, which has to start
    what the tool runs in, is not counted.
    """
    await runtime.open_sandbox(spec.name)
    await runtime.execute(spec.name, spec.examples[0])
    until, took = monotonic() + _PATIENCE, []
    for number, arguments in enumerate(islice(cycle(spec.examples), _RUNS)):
        if number >= len(spec.examples) and monotonic() >= until:
            break
        result = await runtime.execute(spec.name, arguments)
        if result.success and not result.metadata.cached:
            took.append(result.metadata.duration_ms)
    return took


def _write(folder: Path, pages: Sequence[Page]) -> None:
    files = {_file(one): f"{_MADE}\n\n{markdown(one)}" for one in pages}
    listed = [f"- [`{one.name}`]({_file(one)}){_title(one)}" for one in pages]
    files[_INDEX] = "\n".join((_MADE, "", "# Tools", "", *listed, ""))
    for name in files:
        if not _may_be_written(folder / name):
            raise click.ClickException(
                f"{safe(str(folder / name))} was not made by `toolpost docs`, so nothing was "
                "written. Choose another folder."
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(safe(text), encoding="utf-8")


def _file(made: Page) -> str:
    name = f"{made.name}.md"
    return f"tool-{name}" if name.casefold() == _INDEX.casefold() else name


def _title(made: Page) -> str:
    first = made.purpose.splitlines()[0] if made.purpose else ""
    return f": {first}" if first else ""


def _may_be_written(path: Path) -> bool:
    if path.is_symlink():
        return False
    return not path.exists() or path.read_text(encoding="utf-8").startswith(_MADE)
