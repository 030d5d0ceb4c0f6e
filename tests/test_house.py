"""The house stays livable: rules about the code itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from toolpost.plugins import BUILT_IN, SOCKETS

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_road_can_be_read_in_one_go() -> None:
    assert (ROOT / "src/toolpost/executor.py").read_text(encoding="utf-8").count("\n") <= 200


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: f.stem)
def test_every_module_says_what_it_is(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body, f"{file} has no docstring"


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: f.stem)
def test_no_room_is_named_for_nothing(file: Path) -> None:
    assert not set(file.stem.split("_")) & {"utils", "helpers", "common", "manager", "service"}


def test_one_file_reads_the_environment() -> None:
    readers = {f.name for f in SOURCES if "os.environ" in f.read_text(encoding="utf-8")}
    # the keeper and the worker's child only tidy the environment they were given
    assert readers == {"environ.py", "_keeper.py", "child.py"}


def test_the_table_of_built_in_parts_is_the_package_metadata() -> None:
    points = PYPROJECT["project"]["entry-points"]
    declared = {
        (socket, name): value
        for socket in SOCKETS
        for name, value in points.get(f"toolpost.{socket}", {}).items()
    }
    assert dict(BUILT_IN) == declared


def test_every_mark_names_a_known_requirement() -> None:
    known = tomllib.loads((ROOT / "docs/requirements.toml").read_text(encoding="utf-8"))
    ids = {one for name, group in known.items() if name != "open" for one in group}
    assert set(known["open"]) <= ids
    for file in (ROOT / "tests").rglob("*.py"):
        for marks in re.findall(r"mark\.req\(([^)]*)\)", file.read_text(encoding="utf-8")):
            for one in re.findall(r'"([^"]+)"', marks):
                assert one in ids, f"{file.name} marks {one}"


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/generate.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "statement", ["from toolpost import Executor, Registry, tool", "import toolpost.cli.main"]
)
def test_importing_the_package_loads_nothing_heavy(statement: str) -> None:
    heavy = {"pydantic", "yaml", "rich", "jsonschema_rs", "docstring_parser", "uvloop"}
    program = f"{statement}\nimport sys\nprint(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_nothing_of_this_machine_or_of_a_registry_is_in_the_repository() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    forbidden = re.compile(
        r"p[y]pi\.o|python[h]ost|n[p]mjs|index[-]url|deb\.deb[i]an|" + re.escape(str(ROOT)) + "/"
    )
    for name in tracked:
        if name != "tests/test_house.py":
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            assert not forbidden.search(text), name
