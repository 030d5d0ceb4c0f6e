"""Where a layer is missing, what needs it is refused, by name; nothing runs with less unsaid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import IS_ROOT, SOURCE, as_ordinary_user
from toolpost.errors import ConfigError, MissingPart
from toolpost.sandbox import Confinement, Missing, Mode, Sandbox
from toolpost.sandbox.confinement import least_level
from toolpost.sandbox.finding import Found
from toolpost.sandbox.plan import Machine

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024

FULL = Machine(
    level="I3",
    bwrap="/usr/bin/bwrap",
    seccomp=True,
    grouped=True,
    user=64001 if IS_ROOT else None,
    maps=None,
    hidden=None,
)
NO_GROUP = replace(FULL, level="I2", grouped=False)
NO_NAMESPACES = replace(NO_GROUP, level="I1", bwrap=None)
NOTHING = replace(NO_NAMESPACES, level="I0")
NO_FILTER = replace(NO_GROUP, level="I1", seccomp=False)
WHY = (Missing("the layer", "the reason", "the cure"),)


def having(machine: Machine, mode: Mode = "standard", *, lowered: bool = False) -> Sandbox:
    return Sandbox(Found(machine, None, WHY), mode=mode, state=None, lowered=lowered)


def refuses(sandbox: Sandbox, confinement: Confinement) -> bool:
    try:
        sandbox.check(confinement)
    except MissingPart as fault:
        assert str(fault)
        return True
    return False


@pytest.mark.req("NA-10")
@pytest.mark.parametrize(
    ("machine", "mode", "highest"),
    [
        (FULL, "strict", 4),
        (FULL, "standard", 4),
        (NO_GROUP, "strict", 2),
        (NO_GROUP, "standard", 3),
        (NO_GROUP, "permissive", 3),
        (NO_NAMESPACES, "strict", 1),
        (NO_NAMESPACES, "standard", 1),
        (NO_FILTER, "strict", -1),
        (NO_FILTER, "standard", 1),
        (NOTHING, "standard", -1),
        (NOTHING, "permissive", -1),
    ],
)
async def test_a_tool_is_refused_above_the_tier_that_the_layers_bear(
    machine: Machine, mode: Mode, highest: int
) -> None:
    sandbox = having(machine, mode)
    tools = [Confinement(tier=tier, memory=16 * MIB, processes=4) for tier in range(5)]
    assert [not refuses(sandbox, tool) for tool in tools] == [t <= highest for t in range(5)]


async def test_a_refusal_names_the_layer_the_reason_and_the_cure() -> None:
    with pytest.raises(MissingPart, match=r"the layer.*the reason.*the cure"):
        having(NO_NAMESPACES).check(Confinement(tier=2))


async def test_permissive_mode_may_go_one_level_lower_if_told_so_and_says_it() -> None:
    sandbox = having(NO_NAMESPACES, "permissive", lowered=True)
    assert not refuses(sandbox, Confinement(tier=2))
    assert refuses(sandbox, Confinement(tier=4))
    assert sandbox.about["lowered"] is True
    assert not refuses(having(NOTHING, "permissive", lowered=True), Confinement(tier=1))


async def test_no_other_mode_goes_lower() -> None:
    with pytest.raises(ConfigError):
        await Sandbox.open(mode="standard", lower=True)


async def test_without_a_group_the_memory_of_all_processes_has_to_fit() -> None:
    sandbox = having(NO_GROUP)
    assert refuses(sandbox, Confinement(tier=3))
    assert refuses(sandbox, Confinement(tier=3, memory=1 << 40))


async def test_egress_is_refused_where_the_network_cannot_be_cut_off() -> None:
    assert refuses(having(NO_NAMESPACES), Confinement(egress=("example.com:443",)))
    assert not refuses(having(NO_GROUP), Confinement(egress=("example.com:443",)))


@pytest.mark.skipif(not IS_ROOT, reason="it is about root")
async def test_root_that_stays_root_gets_no_sandbox() -> None:
    assert refuses(having(replace(FULL, user=None)), Confinement(tier=0))


@pytest.mark.skipif(not IS_ROOT, reason="it is about root")
async def test_without_mounts_a_folder_closed_to_the_sandboxs_user_is_refused(
    tmp_path: Path,
) -> None:
    os.chmod(tmp_path, 0o700)
    assert refuses(having(NO_NAMESPACES), Confinement(write=(str(tmp_path),)))


def test_the_least_level_rises_with_the_tier() -> None:
    assert [least_level(tier, "standard") for tier in range(5)] == ["I1", "I1", "I2", "I2", "I3"]
    assert [least_level(tier, "strict") for tier in range(5)] == ["I1", "I1", "I2", "I3", "I3"]


# Really without: a user namespace in which no other can be made.
WITHOUT_NAMESPACES = """
import ctypes, os, sys
uid, gid, inside = os.getuid(), os.getgid(), int(sys.argv[1])
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"),
                   ("gid_map", f"{inside} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], *sys.argv[3:]])
"""
WHAT_THERE_IS = """
import asyncio, json, sys
from toolpost.sandbox import Confinement, Sandbox
from toolpost.errors import MissingPart
from toolpost.sandbox.probes import probe

async def main():
    async with await Sandbox.open() as sandbox:
        found = {"level": sandbox.level, "missing": [one.layer for one in sandbox.missing]}
        try:
            sandbox.check(Confinement(tier=1))
        except MissingPart as fault:
            found["refusal"] = str(fault)
        else:
            found["escaped"] = [one.name for one in await probe(sandbox) if not one.blocked]
        print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.timeout(240)
def test_without_user_namespaces_landlock_confines_what_it_can(tmp_path: Path) -> None:
    text = as_ordinary_user(WITHOUT_NAMESPACES, "1000", WHAT_THERE_IS, home=tmp_path)
    found = json.loads(text)
    assert found["level"] == "I1"
    assert "user namespaces" in found["missing"]
    assert found["escaped"] == []


def test_a_landlock_that_leaves_signals_and_sockets_open_is_none(tmp_path: Path) -> None:
    older = f"from toolpost.sandbox import landlock; landlock.version = lambda: 5\n{WHAT_THERE_IS}"
    found = json.loads(as_ordinary_user(WITHOUT_NAMESPACES, "1000", older, home=tmp_path))
    assert found["level"] == "I0"
    assert "this kernel has Landlock 5" in found["refusal"]


def test_root_of_a_namespace_with_no_other_user_in_it_is_refused(tmp_path: Path) -> None:
    text = as_ordinary_user(WITHOUT_NAMESPACES, "0", WHAT_THERE_IS, home=tmp_path)
    found = json.loads(text)
    assert found["level"] == "I0"
    assert "user" in found["missing"]
    assert "another user" in found["refusal"]


# As root is in a container: other users are there, and no further namespaces are to be had.
IN_A_CONTAINER = """
import ctypes, os, sys
(ready, unshared), (mapped, go) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(unshared, b"x")
    os.read(mapped, 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
os.read(ready, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as file:
        file.write("0 0 65536")
os.write(go, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.timeout(240)
@pytest.mark.skipif(not IS_ROOT, reason="only root has other users to become")
def test_root_without_user_namespaces_can_become_another_user() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CONTAINER, WHAT_THERE_IS],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE / "src")},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "user namespaces" in found["missing"]
    assert "user" not in found["missing"]
    assert found.get("escaped", []) == []  # where the interpreter is in nobody's closed folder


def test_what_only_a_view_of_its_own_could_keep_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "open" / "kept"
    inner.mkdir(parents=True)
    with pytest.raises(MissingPart, match="is only to be read, and lies in"):
        having(NO_NAMESPACES).check(Confinement(read=(str(inner),), write=(str(inner.parent),)))
