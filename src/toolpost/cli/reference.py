"""The reference of the command line as Markdown, made from the commands themselves.

Above: ``docs/generate.py``. Below: click. Nothing is written here by hand that a command knows.
"""

from __future__ import annotations

from inspect import cleandoc

import click

from toolpost.cli.main import PIPE_CLOSED, PROGRAM, UNEXPECTED, cli
from toolpost.codes import SETUP_EXIT, STATUS

_INTRO = """\
# Command line

Options of `toolpost` itself stand before the command: `toolpost --config other.toml list`.
"""


def reference() -> str:
    """One page: the program, each command, the exit codes."""
    root = click.Context(cli, info_name=PROGRAM)
    parts = [_INTRO, _options(root)]
    for name in cli.list_commands(root):
        found = cli.get_command(root, name)
        assert found is not None, "it is in the list"
        ctx = click.Context(found, info_name=name, parent=root)
        parts.append(_command(ctx))
        if isinstance(found, click.Group):
            for inner in found.list_commands(ctx):
                below = found.get_command(ctx, inner)
                assert below is not None, "it is in the list"
                parts.append(_command(click.Context(below, info_name=inner, parent=ctx)))
    return "\n".join([*parts, _exits()])


def _command(ctx: click.Context) -> str:
    path = ctx.command_path
    usage = " ".join((path, *ctx.command.collect_usage_pieces(ctx)))
    text = _text(ctx.command.help or "")
    return f"## `{path}`\n\n{text}\n\n```text\n{usage}\n```\n\n{_options(ctx)}"


def _text(written: str) -> str:
    """A help text as Markdown; what click must not wrap is code."""
    paragraphs = cleandoc(written).split("\n\n")
    return "\n\n".join(
        f"```text\n{p.removeprefix(chr(8)).strip()}\n```" if p.startswith("\b") else p
        for p in paragraphs
    )


def _options(ctx: click.Context) -> str:
    options = [p for p in ctx.command.get_params(ctx) if isinstance(p, click.Option)]
    records = [option.get_help_record(ctx) for option in options]
    if not any(records):
        return ""
    rows = [f"| `{_cell(how)}` | {_cell(what)} |" for how, what in filter(None, records)]
    return "\n".join(["| option | |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _exits() -> str:
    rows = [(0, "it worked"), (1, "`doctor` found a fault, or a file could not be used")]
    rows += [(2, "the command was not understood")]
    rows += [(status.exit, f"`{code}`") for code, status in STATUS.items()]
    rows += [(code, f"`{kind.__name__}` at start") for kind, code in SETUP_EXIT.items()]
    rows += [(UNEXPECTED, "a fault in toolpost"), (PIPE_CLOSED, "nobody reads the output any more")]
    lines = [f"| {code} | {meaning} |" for code, meaning in sorted(rows)]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *lines, ""])
