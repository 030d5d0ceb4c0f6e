"""One life of one process: told apart from every other, and known to be over when it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from toolpost import incarnation

PROGRAM = (
    "import sys; from toolpost import incarnation; print(incarnation.mine(), flush=True); "
    "sys.stdin.read()"
)


def test_a_process_lives_until_it_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        life = child.stdout.readline().strip()
        assert life != incarnation.mine()
        assert not incarnation.ended(life)
        child.kill()
        child.wait(30)
        assert incarnation.ended(life)


def test_this_process_has_not_ended() -> None:
    assert incarnation.mine() == incarnation.mine()
    assert not incarnation.ended(incarnation.mine())


def test_a_number_that_was_given_out_again_is_another_life() -> None:
    place, _, _ = incarnation.mine().rpartition("-")
    assert incarnation.ended(f"{place}-1")


def test_of_another_host_nobody_knows() -> None:
    assert not incarnation.ended("another/host/1-1")
    assert not incarnation.ended("nonsense")


def test_a_fork_is_another_life() -> None:
    program = (
        "import os, sys; from toolpost import incarnation as i; mine = i.mine(); pid = os.fork()\n"
        "if not pid: os._exit(mine == i.mine())\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)


def test_a_process_that_has_ended_and_was_not_buried_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        life = child.stdout.readline().strip()
        child.kill()
        assert child.stdout.read() == "", "its end is seen, and nobody has waited for it"
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert incarnation.ended(life)


def test_where_processes_cannot_be_seen_nobody_is_said_to_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incarnation, "_VISIBLE", False)
    incarnation._place.cache_clear()
    try:
        assert not incarnation.ended(f"{incarnation._place()}/1-1")
    finally:
        incarnation._place.cache_clear()
