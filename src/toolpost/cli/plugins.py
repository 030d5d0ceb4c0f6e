"""``toolpost plugins``: what is installed for each socket.

Above: ``main.py``. Below: ``plugins.py`` of the package and the metadata of installed packages.
Nothing is imported: installed is not active.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from itertools import groupby
from typing import Any, Final, NamedTuple

import click

from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import console, plain, print_json, row, table
from toolpost.plugins import BUILT_IN, SOCKETS, installed

TOOLS: Final = "tools"
"""Not a socket, but packages announce tools in the same way."""


class Plugin(NamedTuple):
    socket: str
    name: str
    package: str
    version: str
    where: str


@click.command("plugins")
@json_option
@pass_asked
def command(asked: Asked, *, as_json: bool) -> None:
    """List the installed parts: backends, sources, extensions.

    A package adds one through an entry point in the group toolpost.backends, toolpost.sources,
    toolpost.extensions or toolpost.tools.
    """
    found = everything()
    if as_json:
        listed: list[dict[str, Any]] = [one._asdict() for one in found]
        print_json(listed)
        return
    listing = table("name", "package", "where", wide=["where"])
    for socket, group in groupby(found, key=lambda one: one.socket):
        listing.add_row(plain(socket, "bold cyan"))
        for one in group:
            ours = one.package == "toolpost"
            package = one.package if ours else f"{one.package} {one.version}"
            row(listing, f"  {one.name}", package, one.where)
    console(asked).print(listing)


def everything() -> list[Plugin]:
    """Ours and others', by socket and name."""
    ours = {key: Plugin(*key, "toolpost", _version(), where) for key, where in BUILT_IN.items()}
    theirs = [
        *((socket, point) for socket in SOCKETS for point in installed(socket)),
        *((TOOLS, point) for point in entry_points(group=f"toolpost.{TOOLS}")),
    ]
    others = {(socket, point.name, point.value): _plugin(socket, point) for socket, point in theirs}
    known = {(one.socket, one.name, one.where): one for one in ours.values()}
    order = (*SOCKETS, TOOLS)
    return sorted({**others, **known}.values(), key=lambda p: (order.index(p.socket), p.name))


def _plugin(socket: str, point: EntryPoint) -> Plugin:
    package = point.dist.name if point.dist else "?"
    number = point.dist.version if point.dist else "?"
    return Plugin(socket, point.name, package, number, point.value)


def _version() -> str:
    try:
        return version("toolpost")
    except PackageNotFoundError:  # it runs from its source
        return "source"
