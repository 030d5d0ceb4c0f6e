"""What a sandbox may add to a disk: it is attacked as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.sandbox.elsewhere import IS_ROOT, as_ordinary_user
from tests.sandbox.filling import ATTACKS, HARMLESS, left, program
from tests.sandbox.running import said
from toolpost.process import Child
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.view import interpreter
from toolpost.spec import Limits

pytestmark = pytest.mark.anyio
FENCE = 120
DISK, FILES = 8_000_000, 200
MOST_BYTES, MOST_FILES = 700_000_000, 60_000
"""What may be left behind on a machine that is very busy; the attacks want far more."""


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with await Sandbox.open(state=str(tmp_path / "state")) as opened:
        yield opened


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "workspace"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)  # pytest cannot: it is too deep


async def run(sandbox: Sandbox, attack: str, confinement: Confinement) -> Child:
    argv = [interpreter()[0], "-I", "-S", "-c", program(attack)]
    child = await sandbox.spawn(argv, confinement)
    async with asyncio.timeout(FENCE):
        await child.wait()
        assert child.quota is not None
        await child.quota.settle()
    return child


@pytest.mark.parametrize("name", ATTACKS)
async def test_who_fills_a_disk_is_stopped(sandbox: Sandbox, workspace: Path, name: str) -> None:
    bound, attack = ATTACKS[name]
    confinement = Confinement(write=(str(workspace),), disk=DISK, files=FILES)
    child = await run(sandbox, attack, confinement)
    assert sandbox.exceeded(child) == (bound,)
    assert "done" not in said(child)
    size, files = left(workspace)
    assert size < MOST_BYTES
    assert files < MOST_FILES


async def test_sparse_files_and_links_and_what_is_overwritten_take_no_room(
    sandbox: Sandbox, workspace: Path
) -> None:
    child = await run(
        sandbox, HARMLESS, Confinement(write=(str(workspace),), disk=DISK, files=FILES)
    )
    assert (said(child), sandbox.exceeded(child)) == ("done\n", ())


async def test_a_disk_cannot_be_taken_without_writing(sandbox: Sandbox, workspace: Path) -> None:
    attack = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
fd = create("x")
libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1_000_000))
print(ctypes.get_errno(), os.fstat(fd).st_size)
"""
    child = await run(sandbox, attack, Confinement(write=(str(workspace),)))
    assert said(child) == f"{errno.EOPNOTSUPP} 0\ndone\n"


@pytest.mark.parametrize("level", ["I3", "I2"])
async def test_files_in_its_own_temporary_folders_are_bounded(
    sandbox: Sandbox, level: Literal["I3", "I2"]
) -> None:
    """By its memory, where there is a cgroup; by their number, where there is none."""
    one = await sandbox.lesser(level) if sandbox.level != level else sandbox
    if one is None:
        pytest.skip(f"there is no {level} here")
    attack = """
for i in range(1_000_000): os.close(create(f"/tmp/{i}"))
"""
    async with one:
        argv = [interpreter()[0], "-I", "-S", "-c", program(attack)]
        child = await one.spawn(argv, Confinement(memory=64 << 20))
        async with asyncio.timeout(FENCE):
            await child.wait()
        assert "done" not in said(child)
        assert one.exceeded(child) == (("memory",) if level == "I3" else ("files",))


async def test_what_others_write_is_not_held_against_a_tool(
    sandbox: Sandbox, workspace: Path
) -> None:
    """They write to the same disk, and even to the folder it was given, before it is called."""
    (workspace / "old").write_bytes(os.urandom(2 * DISK))
    aside = workspace.parent / "aside"
    aside.mkdir()
    argv = ["sh", "-c", "echo ready; read line; echo more > own; cat own"]
    reading, writing = os.pipe()
    confinement = Confinement(write=(str(workspace),), disk=DISK, files=FILES)
    child = await sandbox.spawn(argv, confinement, stdin=reading)
    os.close(reading)
    (aside / "theirs").write_bytes(os.urandom(3 * DISK))
    for number in range(3 * FILES):
        (aside / str(number)).touch()
    for _ in range(3):
        assert child.quota is not None
        assert await child.quota.settle() is None
    os.write(writing, b"go\n")
    os.close(writing)
    async with asyncio.timeout(FENCE):
        await child.wait()
    assert (said(child), sandbox.exceeded(child)) == ("ready\nmore\n", ())


async def test_calls_that_share_a_folder_may_each_use_their_limit(
    sandbox: Sandbox, workspace: Path
) -> None:
    attack = """
fd = create(str(os.getpid()) + "-" + sys.argv[1])
for _ in range(6): os.write(fd, PIECE)
print("full", flush=True)
sys.stdin.readline()
"""
    confinement = Confinement(write=(str(workspace),), disk=DISK, files=FILES)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    reading, writing = os.pipe()
    children = [
        await sandbox.spawn(
            [interpreter()[0], "-I", "-S", "-c", program(attack), str(n)],
            confinement,
            stdin=reading,
            on_stdout=heard.put_nowait,
        )
        for n in range(3)
    ]
    async with asyncio.timeout(FENCE):
        for _ in children:
            assert await heard.get() == b"full\n"
        assert [await child.quota.settle() for child in children if child.quota] == [None] * 3
        os.write(writing, b"\n" * 3)
        os.close(reading)
        os.close(writing)
        await asyncio.gather(*(child.wait() for child in children))
    assert all("done" in said(child) for child in children)


_ORDINARY = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {source!r})
from tests.sandbox.filling import ATTACKS, left, program
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.view import interpreter
async def main():
    async with await Sandbox.open() as sandbox:
        for name, (bound, attack) in ATTACKS.items():
            folder = Path({home!r}, name.replace(" ", "-"))
            folder.mkdir()
            confinement = Confinement(write=(str(folder),), disk={disk}, files={files})
            argv = [interpreter()[0], "-I", "-S", "-c", program(attack)]
            child = await sandbox.spawn(argv, confinement)
            async with asyncio.timeout(90):
                await child.wait()
                await child.quota.settle()
            size, files = left(folder)
            bounds = {{bound, "disk"}} if "closed" in name else {{bound}}  # it hides which
            assert set(sandbox.exceeded(child)) <= bounds, (name, sandbox.exceeded(child))
            assert sandbox.exceeded(child), name
            assert size < {most_bytes} and files < {most_files}, (name, size, files)
            print(name)
asyncio.run(main())
"""


@pytest.mark.skipif(not IS_ROOT, reason="who runs the tests is an ordinary user: tested above")
def test_an_ordinary_user_without_cgroups_stops_them_too(workspace: Path) -> None:
    source = str(Path(__file__).parents[2])
    program = _ORDINARY.format(
        source=source,
        home=str(workspace),
        disk=DISK,
        files=FILES,
        most_bytes=MOST_BYTES,
        most_files=MOST_FILES,
    )
    assert as_ordinary_user(program, home=workspace).splitlines() == [*ATTACKS]


def test_the_quota_is_on_unless_a_spec_says_more() -> None:
    assert (Limits().disk, Limits().files) == (512_000_000, 10_000)
    assert (Confinement().disk, Confinement().files) == (Limits().disk, Limits().files)
