"""The files with the code of a shell tool: the program, and the script that an interpreter runs.

``backend.py`` asks: an approval and the lock file are bound to their digest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from toolpost.backends.shell.template import Template, Word
from toolpost.digest import digest, file_digest

_INTERPRETER: Final = re.compile(
    r"(?:python|pypy|ruby|perl|php|lua|node)[0-9.]*|(?:ba|da|k|z|fi)?sh|deno|bun|pwsh|Rscript|tclsh"
)


def script_of(template: Template, working_dir: str | None) -> str | None:
    """The script that an interpreter is given: the first word after it that is a file."""
    first = template[0]
    program = first.literal if isinstance(first, Word) else None
    if program is None or not _INTERPRETER.fullmatch(program.rpartition("/")[2]):
        return None
    for word in template[1:]:
        literal = word.literal if isinstance(word, Word) else None
        if literal is None or literal.startswith("-"):
            continue
        path = Path(working_dir or "/", literal)
        if path.is_file():
            return str(path)
    return None


def is_script(program: str) -> bool:
    """Whether a program that is named by its path is a text that an interpreter runs."""
    try:
        with Path(program).open("rb") as file:
            return "/" in program and file.read(2) == b"#!"
    except OSError:
        return False


def files_digest(*files: str | None) -> str | None:
    """One digest for these files; ``None`` if there are none."""
    named = [file for file in files if file is not None]
    return digest([file_digest(file) for file in named]) if named else None
