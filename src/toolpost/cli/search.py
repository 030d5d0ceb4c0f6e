"""``toolpost search``: the tools that do what a few words say.

Above: ``main.py``. Below: ``Registry.search``. Only what the caller may know of is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from toolpost.cli.opening import loaded, run, uncalled
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.terminal import console, err, one_line, print_json, row, table
from toolpost.config import find
from toolpost.search import Found
from toolpost.spec import TIERS

_MOST: Final = 1000


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, _MOST), default=10, help="At most so many.")
@json_option
@pass_asked
def command(asked: Asked, *, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find a tool by what it does.

    QUERY is words: `toolpost search send a mail`. The tool that fits best comes first. With the
    extra `knowledge`, tools that say the same in other words are found as well.
    """
    found = run(asked, _found(asked, " ".join(words), limit))
    if as_json:
        print_json([{**one.spec.public(), "score": one.score} for one in found])
    elif found:
        _print(asked, found)
    else:
        err(f"No tool fits. `{asked.program} list` shows all of them.")


async def _found(asked: Asked, query: str, limit: int) -> Sequence[Found]:
    if asked.url is not None:
        async with connected(asked) as client:
            return await client.search(query, limit=limit)
    async with loaded(uncalled(find(asked.config)), asked) as runtime:
        return runtime.registry.search(query, limit=limit, among=runtime.list())


def _print(asked: Asked, found: Sequence[Found]) -> None:
    listing = table("name", "what it does", "tier", wide=["what it does"])
    for spec, _ in found:
        tier = f"{spec.tier} {TIERS[spec.tier].lower()}"
        row(listing, spec.name, one_line(spec.description), tier)
    console(asked).print(listing)
