"""What runs in child processes is measured, however they end; what is not to be measured is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import coverage
import pytest

from tests import measured

PROGRAM = """\
def choose(number):
    if number:
        return "some"
    return "none"
def count():
    yield 1
    yield 2
print(choose(0), *count(), __name__, flush=True)
import os, signal, sys
print(sys.argv, os.environ.get("ALSO"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_each_step_of_a_process_is_written_down_before_it_is_killed(tmp_path: Path) -> None:
    program, record = tmp_path / "program.py", tmp_path / "record"
    program.write_text(PROGRAM)
    record.touch()
    command = [measured.__file__, str(record), f"{tmp_path}/", str(program), "one"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", *command], capture_output=True, text=True, timeout=60, env={}
    )
    assert (done.returncode, done.stderr) == (-9, "")
    assert done.stdout == f"none 1 2 __main__\n{[str(program), 'one']} None\n"
    module = {(-1, 1), (1, 5), (5, 8), (8, 9), (9, 10), (10, 11)}
    choose = {(-1, 2), (2, 4), (4, -1)}
    count = {(-5, 6), (6, 7), (7, -5)}
    assert measured.steps(str(record)) == {str(program): module | choose | count}


def test_a_process_that_can_write_nowhere_runs_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [measured.__file__, str(tmp_path / "absent"), f"{tmp_path}/", str(program)]
    done = subprocess.run([sys.executable, "-I", "-S", *command], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (-9, b"")


def test_only_the_files_of_the_package_and_of_its_rooms_are_measured() -> None:
    files_measured = measured.Measured("/a/package/:schema/:backends/python/")
    files = ("/a/package/one.py", "/a/package/schema/check.py", "/a/package/backends/python/x/y.py")
    others = ("/a/package/backends/http/x.py", "/a/package/cli/list.py", "/a/other.py", "<string>")
    assert [files_measured[file] for file in (*files, *others)] == [True] * 3 + [False] * 4


@pytest.mark.no_cover
def test_what_is_not_to_be_measured_is_not() -> None:
    assert coverage.Coverage.current() is None
