"""``toolpost export``: the tools in the form of a vendor.

Above: ``main.py``. Below: the exporters. Standard output has what the vendor reads and nothing
else, so that it can be piped; what people should know of it goes to standard error. Only what the
caller may know of is exported, and nothing that is quarantined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from toolpost.cli.opening import left_out, loaded, run, uncalled
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.terminal import console, counted, err, json_text, out, plain, row, safe, table
from toolpost.config import find
from toolpost.errors import ToolNotFound
from toolpost.exporters import FORMATS, Export, export
from toolpost.plugins import verify_name
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_MOST: Final = 30
"""Notes that are printed; ``--json`` has all of them."""


@click.command("export")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    default=FORMATS[0],
    show_default=True,
    help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}; or one that is installed.",
)
@click.option("--strict", is_flag=True, help="Schemas that the vendor holds a model to.")
@click.option("--kind", help="Only tools of this kind: python, http, …")
@click.option("--category", help="Only tools of this category.")
@click.option("--tag", help="Only tools with this tag.")
@click.option("--tier", type=click.IntRange(0, 4), help="Only tools of this tier or a lower one.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file to write."
)
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    names: tuple[str, ...],
    form: str,
    strict: bool,
    kind: str | None,
    category: str | None,
    tag: str | None,
    tier: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Write the tools in the form of a vendor.

    Standard output is the list of tools that goes into a request. What had to be rewritten, what
    was left out and how many tokens each tool takes is told on standard error; --json prints
    all of that as one document, with the names that a model will call the tools by.
    """
    verify_name("exporters", form)
    specs, problems = run(asked, _specs(asked, kind=kind, category=category, tag=tag, tier=tier))
    made = export(_named(specs, names), form, strict=strict)
    for part, problem in problems.items():
        err(safe(f"warning: {part}: {problem}"))
    text = json_text(made.data() if as_json else list(made.tools))
    if output is None:
        out(text)
    else:
        output.write_text(f"{text}\n", encoding="utf-8")
    if not as_json:
        _tell(asked, made, output)


async def _specs(
    asked: Asked, *, kind: str | None, category: str | None, tag: str | None, tier: int | None
) -> tuple[Sequence[ToolSpec], Mapping[str, str]]:
    if asked.url is not None:
        async with connected(asked) as client:
            return await client.list(kind=kind, category=category, tag=tag, tier=tier), {}
    async with loaded(uncalled(find(asked.config)), asked) as runtime:
        seen = {spec.name for spec in runtime.list()}
        fit = runtime.registry.list(kind=kind, category=category, tag=tag, tier=tier)
        problems = {**left_out(runtime), **runtime.problems}
        return [spec for spec in fit if spec.name in seen], problems


def _named(specs: Sequence[ToolSpec], names: Sequence[str]) -> list[ToolSpec]:
    """Those of these names, in their order; all where there are none."""
    if not names:
        return list(specs)
    known = {spec.name: spec for spec in specs}
    for name in names:
        if name not in known:
            raise ToolNotFound(f"There is no tool {short(name)!r}{nearest(name, known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _tell(asked: Asked, made: Export, output: Path | None) -> None:
    screen = console(asked, stderr=True)
    listing = table("tool", "name there", "tokens", wide=["tool", "name there"])
    for vendor_name, name in made.names.items():
        row(listing, name, vendor_name, f"{made.tokens[name]:,}")
    if made.names:
        screen.print(listing)
    total = f"{counted(len(made.tools), 'tool')}, about {made.tokens_in_all:,} tokens"
    screen.print(plain(total if output is None else f"{total}, written to {output}", "dim"))
    for note in made.left_out:
        err(safe(f"warning: left out: {note}"))
    told = [note for note in made.notes if note.where != "name"]  # that stands in the table
    for note in told[:_MOST]:
        err(safe(f"note: {note}"))
    if len(told) > _MOST:
        err(f"… and {counted(len(told) - _MOST, 'note')} more: --json has all of them.")
