"""``toolpost new``: a tool to begin with, and its tests.

Above: ``main.py``. Below: ``kit/scaffold.py`` has the texts. It writes new files only: if one is
there already, nothing is written at all.
"""

from __future__ import annotations

from pathlib import Path

import click

from toolpost.cli.options import json_option
from toolpost.cli.terminal import out, print_json, safe
from toolpost.cli.writing import write_new
from toolpost.kit.scaffold import STYLES, Style, configured, scaffold


@click.command("new")
@click.argument("name")
@click.option(
    "--style",
    type=click.Choice(STYLES),
    default="function",
    show_default=True,
    help="A function, a class, a spec file with a function, a program, or a web service.",
)
@click.option(
    "--dir",
    "folder",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to write it; this folder unless given.",
)
@json_option
def command(*, name: str, style: Style, folder: Path, as_json: bool) -> None:
    """Write a tool that works, and tests of it that pass.

    Change it into what you want. Never overwrites a file.
    """
    files = scaffold(name, style)
    there = [one for one in files if (folder / one).is_symlink() or (folder / one).exists()]
    if there:
        raise click.ClickException(
            f"{safe(str(folder))} has {', '.join(there)} already, so nothing was written. "
            "Choose another name, or another folder with --dir."
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_new({folder / one: text for one, text in files.items()})
    config = configured(name, style)
    tests = next(one for one in files if one.startswith("test_"))
    steps = [f"python -m pytest {folder / tests}", f"toolpost check {folder / next(iter(files))}"]
    if as_json:
        print_json({"files": [str(folder / f) for f in files], "next": steps, "config": config})
        return
    made = "\n".join(f"  {folder / one}" for one in files)
    told = "\n".join(f"  {step}" for step in steps)
    said = "\n".join(f"  {line}".rstrip() for line in config.splitlines())
    out(safe(f"Made:\n{made}\n\nNext:\n{told}\n\nTo have it, add to toolpost.toml:\n\n{said}"))
