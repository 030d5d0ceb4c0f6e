"""``toolpost init``: a small project that works as it stands.

Above: ``main.py``. Below: the file system. It writes new files only: if one is there already,
nothing is written at all. A ``.gitignore`` that is there is left as it is. What a built-in tool
wants to have in the config it says itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

import click

from toolpost.cli.options import json_option
from toolpost.cli.terminal import out, print_json, safe
from toolpost.cli.writing import write_new
from toolpost.config import GUARDS, OBSERVERS
from toolpost.sources.builtin import by_set, sample


def _listed(name: str, rings: Sequence[str]) -> str:
    return "\n".join(wrap(f"# {name} = {_strings(rings)}", 80, subsequent_indent="#   "))


def _strings(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


_CONFIG: Final = f"""\
# What toolpost runs here. `toolpost config` shows every setting in force.

# The rings around every call, outermost first; these are the defaults. To leave
# one out, remove the # and its name. `toolpost show NAME` tells which of them a
# tool has. They keep approvals, keys and the audit in .toolpost/.
{_listed("observers", OBSERVERS)}
{_listed("guards", GUARDS)}

[[sources]]
kind = "files"
paths = ["tools.yaml"]
"""

_SPECS: Final = """\
# Tools, described as data. `toolpost list` shows them.
# The functions are in my_tools.py, beside this file. They run in a worker
# process that is kept warm between calls, and killed with everything it started
# when a call's time limit is over.

tools:
  - name: add
    description: Add two numbers.
    category: other
    tier: 0        # 0 safe, 1 standard, 2 elevated, 3 restricted, 4 dangerous
    effects: read  # read, idempotent or once: decides what may be repeated
    timeout: 5     # seconds
    input_schema:
      type: object
      properties:
        a: {type: number, description: The first number.}
        b: {type: number, description: The second number.}
      required: [a, b]
      additionalProperties: false
    output_schema: {type: number}
    binding: {module: my_tools, function: add}

  - name: greet
    description: Greet somebody by name.
    category: other
    tags: [text]
    tier: 0
    effects: read
    input_schema:
      type: object
      properties:
        name: {type: string, minLength: 1, description: Whom to greet.}
        greeting: {type: string, default: Hello, description: How to begin.}
      required: [name]
      additionalProperties: false
    output_schema: {type: string}
    binding: {module: my_tools, function: greet}

  - name: count_down
    description: Count down to zero, one number a second. Ctrl-C stops it.
    category: task
    tier: 0
    effects: read
    timeout: 60
    input_schema:
      type: object
      properties:
        start:
          type: integer
          minimum: 1
          maximum: 50
          default: 5
          description: Where to begin.
      additionalProperties: false
    output_schema: {type: string}
    binding: {module: my_tools, function: count_down}
"""

_MODULE: Final = '''\
"""The functions behind tools.yaml. A tool is an ordinary function."""

import time

from toolpost import Call


def add(a: float, b: float) -> float:
    return a + b


def greet(name: str, greeting: str) -> str:
    return f"{greeting}, {name}!"


def count_down(start: int, call: Call) -> str:
    """A parameter of type Call is not in the schema: toolpost passes it in."""
    for done in range(start):
        call.progress(done, start, f"{start - done} left")
        time.sleep(1)
    return "Lift-off."
'''

FILES: Final = {
    "toolpost.toml": _CONFIG,
    "tools.yaml": _SPECS,
    "my_tools.py": _MODULE,
    ".gitignore": ".toolpost/\n",
}
NEXT: Final = ("toolpost list", "toolpost show add", "toolpost call add a=1 b=2", "toolpost doctor")
_MAY_STAY: Final = ".gitignore"


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--with", "tools", metavar="NAME,…", help="Built-in tools to have, such as files,web."
)
@json_option
def command(*, folder: Path, tools: str | None, as_json: bool) -> None:
    """Make a small project that works.

    Writes toolpost.toml, tools.yaml, my_tools.py and .gitignore into DIR, which is this folder
    unless given. Never overwrites a file; a .gitignore that is there stays as it is.
    """
    text = {**FILES, "toolpost.toml": _CONFIG + _built_in(tools)}
    there = [name for name in FILES if (folder / name).is_symlink() or (folder / name).exists()]
    if set(there) - {_MAY_STAY}:
        raise click.ClickException(
            f"{safe(str(folder))} has {', '.join(there)} already, so nothing was written. "
            "Choose another folder: toolpost init DIR"
        )
    folder.mkdir(parents=True, exist_ok=True)
    made = [name for name in FILES if name not in there]
    write_new({folder / name: text[name] for name in made})
    steps = (*(f"echo .toolpost/ >> {name}" for name in there), *NEXT)
    if as_json:
        print_json({"folder": str(folder.resolve()), "files": made, "next": list(steps)})
    else:
        out(_told(folder, made, steps))


def _built_in(tools: str | None) -> str:
    """The source of the built-in tools that are wanted, with what each should be told."""
    if tools is None:
        return ""
    names = list(dict.fromkeys(name.strip() for name in tools.split(",") if name.strip()))
    listed = "\n".join(wrap(f"tools = {_strings(names)}", 80, subsequent_indent="  "))
    source = f'\n[[sources]]\nkind = "builtin"\n{listed}\n'
    return source + "".join(sample(name) for name in by_set(names))


def _told(folder: Path, made: Sequence[str], steps: Sequence[str]) -> str:
    steps = steps if folder == Path() else (f"cd {folder}", *steps)
    files = [f"  {folder / name}" for name in made]
    return safe("\n".join(["Made:", *files, "", "Next:", *(f"  {step}" for step in steps)]))
