"""Running the documentation: every fenced block of a page, in order, in a folder of its own.

    ```python             is a program and must end well
    ```console            `$ ` lines are typed; the lines below must appear in what comes back,
                          with `…` for anything
    ```yaml, toml, json   are files

An HTML comment above a block says more: `<!-- file: tools.yaml -->` saves it under that name,
`<!-- exit: 3 -->` expects that exit status, `<!-- needs: chromium -->` skips the rest of the page
where there is no such program, `<!-- not run: reason -->` is for what cannot be run
inside a test and must give its reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import warm
from toolpost.document import parse

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^>]*) -->\n+)?^```(?P<lang>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)
LIMIT = 60


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int
    notes: dict[str, str]


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        notes = dict(
            note.strip().split(": ", 1) for note in (match["note"] or "").split(";") if ": " in note
        )
        line = text.count("\n", 0, match.start("lang")) + 1
        found.append(Block(match["lang"], match["body"], line, notes))
    return found


def run(block: Block, folder: Path) -> None:
    if block.notes.get("not run"):
        return
    if (program := block.notes.get("needs")) and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed; as root, .ci/system-packages installs it")
    if name := block.notes.get("file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(block.body, encoding="utf-8")
    if block.language == "python" and not block.notes.get("file"):
        _run(block.body, folder, int(block.notes.get("exit", 0)))
    elif block.language in ("yaml", "json", "toml"):
        parse(block.body, format=block.language, name="block")
    elif block.language == "console":
        _console(block, folder)
    elif block.language not in ("python", "text", "mermaid", ""):
        raise AssertionError(f"a block of {block.language!r} cannot be run: see tests/pages.py")


def _console(block: Block, folder: Path) -> None:
    commands = re.split(r"^\$ ", block.body, flags=re.M)
    assert not commands[0].strip(), "a console block begins with a command"
    for number, part in enumerate(commands[1:], start=1):
        command, _, expected = part.partition("\n")
        status = int(block.notes.get("exit", 0)) if number == len(commands) - 1 else 0
        output = _typed(command, folder, status)
        for line in filter(None, map(str.strip, expected.splitlines())):
            pattern = ".*".join(map(re.escape, re.split("…", line)))
            assert re.search(pattern, output), f"{command}\n\nno line {line!r} in:\n{output}"


def _run(program: str, folder: Path, status: int) -> None:
    env = _environment(folder)
    done = warm.run(program=program, cwd=folder, env=env, timeout=LIMIT, together=True)
    assert done.returncode == status, f"exit {done.returncode}:\n{done.stdout}"


def _typed(command: str, folder: Path, status: int) -> str:
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        input="",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
        env=_environment(folder),
    )
    assert done.returncode == status, f"{command}\nexit {done.returncode}:\n{done.stdout}"
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONWARNINGS": "error",
    }
