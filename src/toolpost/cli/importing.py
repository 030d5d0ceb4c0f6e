"""``toolpost import``: specs made from what others describe, each kind in a file of its own.

Above: ``main.py``. Below: ``importing_<kind>.py``, imported when it is named, and ``bringing.py``
for what all of them write.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from toolpost.plugins import load

KINDS: Final = {
    "mcp": "The tools of an MCP server.",
    "openapi": "The operations of an OpenAPI document, as HTTP tools.",
}


class _Kinds(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(KINDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in KINDS:
            return None
        load("sources", cmd_name)  # or it says what to install
        found: click.Command = import_module(f"toolpost.cli.importing_{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(KINDS.items()))


@click.group("import", cls=_Kinds)
def command() -> None:
    """Make a spec file of tools that others describe, and pin them.

    The tools are written into a spec file, which is yours to read and to edit; the config gets what
    it lacks to find them, and tools.lock pins them as they are now.
    """
