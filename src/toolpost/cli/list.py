"""``toolpost list``: the tools, grouped by category.

Above: ``main.py``. Below: ``opening.py``. Only what the caller may know of is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click

from toolpost.cli.opening import left_out, loaded, run, uncalled, warnings
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.terminal import (
    console,
    counted,
    err,
    one_line,
    out,
    plain,
    print_json,
    row,
    safe,
    table,
)
from toolpost.config import Settings, find
from toolpost.lock import QUARANTINED
from toolpost.parts import store_of
from toolpost.spec import TIERS, ToolSpec
from toolpost.wording import first_sentence, shortened

if TYPE_CHECKING:
    from rich.table import Table

_MANY: Final = 2000
"""More tools than this are printed line by line: to fit a table takes half a millisecond each."""
_OTHER_COLUMNS: Final = 54
"""Columns that the table needs beside the name, 20 of them for the description."""


@click.command("list")
@click.option("--kind", help="Only tools of this kind: python, http, …")
@click.option("--category", help="Only tools of this category.")
@click.option("--tag", help="Only tools with this tag.")
@click.option("--tier", type=click.IntRange(0, 4), help="Only tools of this tier or a lower one.")
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    kind: str | None,
    category: str | None,
    tag: str | None,
    tier: int | None,
    as_json: bool,
) -> None:
    """List the tools.

    They are grouped by category. The tier goes from 0 (safe) to 4 (dangerous).
    """

    async def listed() -> tuple[list[ToolSpec], Mapping[str, str]]:
        if asked.url is not None:
            async with connected(asked) as client:
                return [*await client.list(kind=kind, category=category, tag=tag, tier=tier)], {}
        config = find(asked.config)
        if config.settings.store != Settings().store:
            store_of(config)  # not opened; but what calls would be refused for is refused here
        async with loaded(uncalled(config), asked) as runtime:
            fit = runtime.registry.list(kind=kind, category=category, tag=tag, tier=tier)
            seen = {spec.name for spec in runtime.executor.list()}  # the quarantined ones as well
            told = {**left_out(runtime), **warnings(runtime)}
            return [spec for spec in fit if spec.name in seen], told

    specs, problems = run(asked, listed())
    for part, problem in problems.items():
        err(safe(f"warning: {part}: {problem}"))
    if as_json:
        print_json([_data(spec) for spec in specs])
    elif specs:
        _print(asked, specs)
    elif any(given is not None for given in (kind, category, tag, tier)):
        err("No tool fits. `toolpost list` without options shows all of them.")
    else:
        err("No tools. `toolpost config` shows the sources, `toolpost init` makes a first project.")


def _data(spec: ToolSpec) -> dict[str, Any]:
    """The public spec; of a quarantined tool also that it is one, and why."""
    if spec.kind != QUARANTINED:
        return spec.public()
    return {**spec.public(), "quarantined": spec.binding.get("reason")}


def _print(asked: Asked, specs: list[ToolSpec]) -> None:
    ordered = sorted(specs, key=lambda s: (s.category, s.name))
    screen = console(asked)
    if len(specs) > _MANY:
        _print_plainly(ordered)
    elif max(len(spec.name) for spec in specs) > screen.width - _OTHER_COLUMNS:
        _print_stacked(ordered, screen.width)
    else:
        screen.print(_listing(ordered))
    screen.print(plain(counted(len(specs), "tool"), "dim"))


def _listing(ordered: list[ToolSpec]) -> Table:
    listing = table(
        "name", "kind", "tier", "effects", "description", wide=["description"], whole=["name"]
    )
    for category, group in groupby(ordered, key=lambda s: s.category):
        listing.add_row(plain(category, "bold cyan"))
        for spec in group:
            name, *cells = _cells(spec)
            row(
                listing,
                f"  {name}",
                *cells,
                style="red" if spec.kind == QUARANTINED else None,
            )
    return listing


def _print_stacked(ordered: list[ToolSpec], width: int) -> None:
    """Names too long for a table: each on a line of its own, so that it can be copied whole."""
    for category, group in groupby(ordered, key=lambda s: s.category):
        out(shortened(one_line(category), width))
        for spec in group:
            name, *cells = _cells(spec)
            out(f"  {name}\n{shortened('    ' + '  '.join(cells), width)}")


def _print_plainly(ordered: list[ToolSpec]) -> None:
    for category, group in groupby(ordered, key=lambda s: s.category):
        out(one_line(category))
        for spec in group:
            out("  " + "  ".join(_cells(spec)))


def _cells(spec: ToolSpec) -> tuple[str, ...]:
    tier, what = f"{spec.tier} {TIERS[spec.tier].lower()}", first_sentence(spec.description)
    return (
        spec.name,
        one_line(spec.kind),
        tier,
        spec.effects,
        safe(what),
    )
