"""``toolpost call --detach``, ``toolpost jobs`` and ``toolpost artifacts``, as they are typed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Terminal, json_of, toolpost
from tests.processes import running

pytestmark = pytest.mark.timeout(120)
CONFIG = """
[[sources]]
kind = "files"
paths = ["tools.yaml"]

[extensions.artifacts]
soft = 100000
"""
SPECS = """
- name: pay
  description: Pay somebody, when it may go on.
  timeout: 60
  isolation: inline
  input_schema: {type: object, properties: {to: {type: string}}, required: [to]}
  binding: {module: work_of_the_test, function: pay}
- name: look
  description: Look at somebody, when it may go on.
  effects: read
  timeout: 60
  isolation: inline
  input_schema: {type: object, properties: {to: {type: string}}, required: [to]}
  binding: {module: work_of_the_test, function: pay}
- name: lines
  description: Many lines.
  effects: read
  isolation: inline
  binding: {module: work_of_the_test, function: lines}
"""
MODULE = """
import asyncio
from pathlib import Path
from toolpost import Call

async def pay(to: str, call: Call) -> str:
    with open("done", "a") as file:
        file.write(f"{to}\\n")
    call.progress(1, 4, "waiting for it")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return f"paid {to}"

async def lines() -> str:
    return "".join(f"line {n}\\n" for n in range(20_000))
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "tools.yaml").write_text(SPECS, encoding="utf-8")
    (tmp_path / "work_of_the_test.py").write_text(MODULE, encoding="utf-8")
    yield tmp_path
    (tmp_path / "go").touch()  # whoever runs something comes to an end
    end = time.monotonic() + 30
    while runners(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert runners(tmp_path) == []


def runners(folder: Path) -> list[int]:
    """The processes that run the jobs of this project."""
    return running(f"--config\0{folder / 'toolpost.toml'}\0jobs\0run")


def detached(folder: Path, *words: str) -> str:
    done = toolpost("call", *words, "--detach", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "toolpost jobs watch" in done.stderr
    return done.stdout.strip()


def reached(folder: Path, job_id: str, *states: str) -> Any:
    end = time.monotonic() + 30
    while (job := json_of("jobs", "show", job_id, cwd=folder))["state"] not in states:
        assert time.monotonic() < end, job
    return job


def test_a_detached_call_goes_on_without_who_made_it(project: Path) -> None:
    job_id = detached(project, "pay", "to=bob")
    assert re.fullmatch(r"jb-[0-9a-f]{20}", job_id)
    reached(project, job_id, "running")
    listed = toolpost("jobs", "list", cwd=project)
    assert job_id in listed.stdout and "running" in listed.stdout
    assert '{"to":"bob"}' in listed.stdout
    with Terminal("jobs", "watch", job_id, cwd=project) as terminal:
        terminal.read_until("waiting for it")
        (project / "go").touch()
        terminal.read_until("paid bob")
        assert terminal.ended() == 0
    shown = toolpost("jobs", "show", job_id[:16], cwd=project).stdout
    assert "succeeded" in shown and "paid bob" in shown
    told = toolpost("jobs", "watch", job_id, "--json", cwd=project).stdout.splitlines()
    assert json.loads(told[-1])["result"]["output"] == "paid bob"
    assert json_of("jobs", "list", "--state", "failed", cwd=project) == []
    assert (project / "done").read_text() == "bob\n"


def test_a_job_whose_runner_is_killed_is_taken_up_by_the_next_look(project: Path) -> None:
    look, pay = detached(project, "look", "to=look"), detached(project, "pay", "to=pay")
    for job_id in (look, pay):
        reached(project, job_id, "running")
    end = time.monotonic() + 30
    while (project / "done").read_text().count("\n") < 2 and time.monotonic() < end:
        time.sleep(0.02)
    for runner in runners(project):  # a second one may have been started before the first had both
        with contextlib.suppress(ProcessLookupError):  # and ends when it finds nothing to do
            os.kill(runner, signal.SIGKILL)
    (project / "go").touch()
    assert reached(project, look, "succeeded")["attempts"] == 2
    lost = reached(project, pay, "unknown")
    assert lost["result"]["error"]["effects"] == "unknown"
    watched = toolpost("jobs", "watch", pay, cwd=project)
    assert watched.returncode == 14 and "find out what it did" in watched.stderr
    assert sorted((project / "done").read_text().split()) == ["look", "look", "pay"]


def test_a_job_is_stopped_from_another_terminal(project: Path) -> None:
    job_id = detached(project, "pay", "to=bob")
    reached(project, job_id, "running")
    done = toolpost("jobs", "cancel", job_id, cwd=project)
    assert (done.returncode, done.stdout) == (0, f"{job_id} is cancelled.\n")
    assert toolpost("jobs", "watch", job_id, cwd=project).returncode == 130
    assert json_of("jobs", "cancel", job_id, cwd=project)["state"] == "cancelled"


def test_a_large_output_of_a_job_is_read_by_its_handle(project: Path) -> None:
    job_id = detached(project, "lines")
    watched = toolpost("jobs", "watch", job_id, cwd=project)
    (handle,) = set(re.findall(r"ar-[0-9a-f]{20}", watched.stdout))
    assert len(watched.stdout) < 5000 and "line 19999" in watched.stdout
    whole = "".join(f"line {n}\n" for n in range(20_000))
    assert toolpost("artifacts", "read", handle, cwd=project).stdout == whole
    some = toolpost("artifacts", "read", handle, "--offset", "5", "--length", "9", cwd=project)
    assert some.stdout == whole[5:14]
    assert json_of("artifacts", "show", handle, cwd=project)["size"] == len(whole)
    assert toolpost("call", "lines", cwd=project).stdout == whole, "who waits gets all of it"
    gone = toolpost("artifacts", "read", "ar-" + "0" * 20, cwd=project)
    assert gone.returncode == 4 and "There is no artifact" in gone.stderr


def test_what_cannot_be_detached_says_why(project: Path) -> None:
    bad = toolpost("call", "pay", "amount=5", "--detach", cwd=project)
    assert bad.returncode == 3 and "parameter: to" in bad.stderr
    unknown = toolpost("call", "pya", "--detach", "--json", cwd=project)
    assert unknown.returncode == 4
    assert json.loads(unknown.stdout)["error"]["code"] == "NOT_FOUND"
    memory = toolpost("call", "pay", "to=x", "--detach", cwd=project, TOOLPOST_STORE__KIND="memory")
    assert memory.returncode == 2 and "in memory" in memory.stderr
    dry = toolpost("call", "pay", "to=x", "--detach", "--dry-run", cwd=project)
    assert dry.returncode == 2
    assert toolpost("jobs", "list", cwd=project).stderr == "There are no jobs.\n"
    missing = toolpost("jobs", "show", "jb-123456", cwd=project)
    assert missing.returncode == 4 and "toolpost jobs list" in missing.stderr
