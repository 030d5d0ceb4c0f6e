"""Sandboxes that wait: what is told from inside is believed no further than it can be checked, and
who finds one dead takes another.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import Watch, descendants, halt, innermost, running
from tests.sandbox.elsewhere import IS_ROOT, SOURCE, need_a_sandbox
from toolpost.builtin.commands.running import ran
from toolpost.errors import MissingPart
from toolpost.process import Child, Exit
from toolpost.sandbox import Confinement, Sandbox, landlock, plan
from toolpost.sandbox.cold import unbegun
from toolpost.sandbox.confinement import Level
from toolpost.sandbox.groups import Group
from toolpost.sandbox.stem import Lost, Stem
from toolpost.sandbox.view import INNER, interpreter

pytestmark = pytest.mark.anyio
FENCE = 30
ENDS = b"os.kill(-1, signal.SIGKILL)"
SAYS = b'b"exit %d %d\\n" % (status, usage.ru_maxrss)'
BEGINS = b'talk.send(b"started\\n")'
STAYS = b"talk.fileno() != 199 or signal.pause()"  # 199: not where it only practises
DIES = b"talk.fileno() != 199 or os.kill(os.getpid(), signal.SIGKILL)"

Lie = Callable[[bytes, bytes], None]


@pytest.fixture(autouse=True, scope="module")
def needed() -> None:
    need_a_sandbox()


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with await Sandbox.open(state=str(tmp_path / "state")) as opened:
        yield opened


@pytest.fixture
def lie(monkeypatch: pytest.MonkeyPatch) -> Lie:
    """Has what waits inside do something else, as a tool might make it do that got hold of it."""

    def told(truth: bytes, lies: bytes) -> None:
        make = plan.inner

        def made(*arguments: Any, **named: Any) -> plan.Plan:
            done = make(*arguments, **named)
            pieces = done.data["data"]
            assert sum(truth in piece for piece in pieces) == 1
            pieces[:] = [piece.replace(truth, lies) for piece in pieces]
            return done

        monkeypatch.setattr(plan, "inner", made)

    return told


async def ended(child: Child) -> Exit:
    async with asyncio.timeout(FENCE):
        return await child.ended()


async def gone(child: Child) -> Exit:
    async with asyncio.timeout(FENCE):
        return await child.wait()


async def warmed(sandbox: Sandbox, argv: list[str], confinement: Confinement) -> Child:
    await sandbox.warm_up(confinement)
    async with asyncio.timeout(FENCE):
        return await sandbox.spawn(argv, confinement)


def waiting() -> set[int]:
    return innermost(os.getpid()) & set(running(INNER))


async def test_what_tells_of_an_end_does_not_end_before_that_is_heard(sandbox: Sandbox) -> None:
    """To end takes it a millisecond, and may be done on the processor of who waits for it."""
    await sandbox.warm_up(Confinement())
    there = waiting()
    child = await sandbox.spawn(["/usr/bin/true"], Confinement())
    (pid,) = there & descendants(child.pid)
    inner = psutil.Process(pid)
    with pytest.raises(psutil.TimeoutExpired):
        inner.wait(0.3)  # nothing is heard meanwhile
    async with asyncio.timeout(FENCE):
        assert (await child.ended()).code == 0
        await child.wait()
    assert not inner.is_running()


@pytest.mark.req("NA-7")
async def test_a_sandbox_that_says_it_ended_and_stays_is_killed(sandbox: Sandbox, lie: Lie) -> None:
    confinement = Confinement()
    lie(ENDS, STAYS)
    child = await warmed(sandbox, ["sh", "-c", "(sleep 613 &); exit 3"], confinement)
    told = await ended(child)
    assert (told.code, told.killed) == (3, False)
    assert await gone(child) == told, "that the rest was killed is not how the program ended"


async def test_closing_waits_for_no_sandbox_that_says_it_ended_and_stays(
    lie: Lie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.sandbox.ready._GRACE", 3600.0)
    async with await Sandbox.open() as sandbox:
        lie(ENDS, STAYS)
        child = await warmed(sandbox, ["true"], Confinement())
        assert (await ended(child)).code == 0
        try:
            async with asyncio.timeout(FENCE):
                await sandbox.close()
            assert child.exited.done()
        finally:
            await child.kill()


@pytest.mark.parametrize("word", [b"exit 127 7\n", b"ended\n", b"exit 1 2 3\n", b"\xff"])
async def test_a_word_that_cannot_be_true_ends_the_sandbox(
    sandbox: Sandbox, lie: Lie, word: bytes
) -> None:
    lie(SAYS, repr(word).encode())
    lie(ENDS, STAYS)
    child = await warmed(sandbox, ["true"], Confinement())
    assert (await gone(child)).killed


async def test_what_dies_behind_its_order_may_have_begun(sandbox: Sandbox, lie: Lie) -> None:
    lie(BEGINS, DIES)
    child = await warmed(sandbox, ["true"], Confinement())
    assert (await gone(child)).signal == 9, "it is not said that it could not be started"


async def test_one_that_died_while_it_waited_is_not_used(sandbox: Sandbox) -> None:
    confinement = Confinement()
    await sandbox.warm_up(confinement)
    (place,) = sandbox._ready._places.values()
    for how in ("hung up", "died unheard"):
        await sandbox.settled()
        await sandbox.warm_up(confinement)
        assert place.waiting
        if how == "hung up":
            for waits in place.waiting:
                waits._hang_up()
        else:
            with Watch(waiting()) as watch:
                for inner in watch.fds:
                    os.kill(inner, 9)
                assert watch.living(within=FENCE) == set()  # no turn of the loop meanwhile
        child = await sandbox.spawn(["sh", "-c", "exit 3"], confinement)
        assert (await gone(child)).code == 3


async def test_a_long_order_that_is_cut_off_goes_to_another(sandbox: Sandbox) -> None:
    confinement = Confinement()
    await sandbox.warm_up(confinement)
    (inner,) = waiting()
    halt(inner)
    words = ["x" * 100_000] * 15
    start = asyncio.create_task(sandbox.spawn(["sh", "-c", "exit $#", "sh", *words], confinement))
    await asyncio.sleep(0)  # the order is on its way, and fills the socket
    os.kill(inner, 9)
    async with asyncio.timeout(FENCE):
        assert (await gone(await start)).code == 15


@pytest.mark.parametrize("who", ["what waits", "its keeper"])
async def test_an_order_that_was_never_read_goes_to_another(sandbox: Sandbox, who: str) -> None:
    confinement = Confinement()
    await sandbox.warm_up(confinement)
    ((waits,),) = [place.waiting for place in sandbox._ready._places.values()]
    (inner,) = waiting()
    halt(inner)  # as if it had not had its turn yet
    start = asyncio.create_task(sandbox.spawn(["sh", "-c", "exit 3"], confinement))
    await asyncio.sleep(0)
    assert waits._ordered
    os.kill(inner if who == "what waits" else waits.child.pid, signal.SIGKILL)
    async with asyncio.timeout(FENCE):
        assert (await gone(await start)).code == 3


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_a_dead_stem_is_not_used(sandbox: Sandbox, warm: bool, heard: bool) -> None:
    confinement = Confinement(egress=("example.com:443",) if warm else ())
    await sandbox.settled()
    stems = innermost(os.getpid()) & set(running("_entry.py"))
    assert len(stems) == len(sandbox._ready._stems) > 0
    with Watch(stems) as watch:
        for stem in stems:
            halt(stem) if heard else os.kill(stem, signal.SIGKILL)
        assert heard or watch.living(within=FENCE) == set()  # no turn of the loop meanwhile
        start = asyncio.create_task(sandbox.spawn(["sh", "-c", "exit 3"], confinement))
        await asyncio.sleep(0)
        for stem in stems if heard else ():
            os.kill(stem, signal.SIGKILL)  # the plan is on its way, and nobody has read it
        async with asyncio.timeout(FENCE):
            assert (await gone(await start)).code == 3


async def test_what_dies_again_and_again_is_told(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dead(stem: Stem, *_: Any) -> None:
        raise Lost("it has ended")

    monkeypatch.setattr(Stem, "follow", dead)
    with pytest.raises(Lost, match="whatever is started here"):
        await sandbox.spawn(["true"], Confinement())


async def test_what_a_dead_one_said_last_is_not_heard_from_the_program(sandbox: Sandbox) -> None:
    confinement = Confinement()
    await sandbox.warm_up(confinement)
    (inner,) = waiting()
    with Watch([inner]) as watch:
        os.kill(inner, signal.SIGINT)  # Python says so
        assert not watch.living(FENCE), "and the loop has not heard of it"
    argv = ["sh", "-c", "echo mine; echo also mine >&2"]
    async with asyncio.timeout(FENCE):
        done = await ran(sandbox, argv, confinement, most=10_000, begun=lambda: None)
    assert (done.stdout, done.stderr) == ("mine\n", "also mine\n")


@pytest.mark.parametrize("warm", [False, True])
async def test_processes_beyond_the_bound_are_told(sandbox: Sandbox, warm: bool) -> None:
    if "cgroup" not in sandbox.about["layers"]:
        pytest.skip("without a cgroup nobody counts them")
    confinement = Confinement(processes=8)
    program = "import os\nwhile os.fork() >= 0: pass"
    if warm:
        await sandbox.warm_up(confinement)
    argv = [interpreter()[0], "-I", "-S", "-c", program]
    child = await sandbox.spawn(argv, confinement)
    assert (await ended(child)).code != 0
    assert "processes" in sandbox.exceeded(child)


FORKS = """
import os, signal
there = 1
try:
    while there < 50:
        if os.fork() == 0:
            signal.pause()
        there += 1
except BlockingIOError:
    print(there)
"""


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("level", ["I3", "I2"])
@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("more", [{}, {"egress": ("127.0.0.1:1",)}, {"host": ("processes",)}])
async def test_a_tool_has_exactly_the_processes_it_may_have(
    sandbox: Sandbox, more: dict[str, Any], most: int, level: Level, warm: bool
) -> None:
    lesser = await sandbox.lesser(level)
    used = lesser or sandbox
    confinement = Confinement(processes=most, **more)
    try:
        used.check(confinement)
        if warm:
            await used.warm_up(confinement)
        child = await used.spawn([interpreter()[0], "-I", "-S", "-c", FORKS], confinement)
        await gone(child)
    except MissingPart as missing:
        pytest.skip(str(missing))
    finally:
        if lesser is not None:
            await lesser.close()
    assert child.stdout is not None
    assert child.stdout.tail.decode() == f"{most}\n"


@pytest.mark.parametrize("warm", [False, True])
async def test_a_script_without_its_first_line_is_the_shells(
    sandbox: Sandbox, tmp_path: Path, warm: bool
) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "script").write_text('echo "$0 $*"; exit 3\n')
    (folder / "script").chmod(0o755)
    found = Confinement(read=(str(folder),), environment={"PATH": f"{folder}:/usr/bin:/bin"})
    for name in ("script", f"{folder}/script"):
        if warm:
            await sandbox.warm_up(found)
        child = await sandbox.spawn([name, "a", "b c"], found)
        assert (await gone(child)).code == 3
        assert child.stdout is not None
        assert child.stdout.tail.decode() == f"{folder}/script a b c\n"


@pytest.mark.parametrize("warm", [False, True])
async def test_all_that_a_program_writes_is_heard_and_nothing_else(
    sandbox: Sandbox, warm: bool
) -> None:
    if warm:
        await sandbox.warm_up(Confinement())
    said: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def on_stdout(data: bytes) -> None:
        said["stdout"] += data

    def on_stderr(data: bytes) -> None:
        said["stderr"] += data

    argv = ["sh", "-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"]
    child = await sandbox.spawn(argv, Confinement(), on_stdout=on_stdout, on_stderr=on_stderr)
    assert (await ended(child)).code == 0
    assert said == {"stdout": bytes(300_000), "stderr": bytes(200_000)}
    await child.wait()
    assert said == {"stdout": bytes(300_000), "stderr": bytes(200_000)}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("fault", ["no right", "no interpreter", "no folder"])
async def test_what_could_not_be_started_is_told_apart_from_what_failed(
    sandbox: Sandbox, tmp_path: Path, fault: str, warm: bool
) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    program = folder / "program"
    program.write_text("#!/bin/sh\n" if fault == "no right" else "#!/nowhere\n")
    program.chmod(0o644 if fault == "no right" else 0o755)
    place = str(folder / "none") if fault == "no folder" else None
    confinement = Confinement(read=(str(folder),), working_dir=place)
    if warm:
        await sandbox.warm_up(confinement)
    expected = PermissionError if fault == "no right" else FileNotFoundError
    with pytest.raises(expected) as raised:
        child = await sandbox.spawn([str(program)], confinement)
        assert child.stderr is not None
        told = unbegun(child, await gone(child), child.stderr.tail)
        assert told is not None
        raise told
    if fault == "no folder":
        assert raised.value.filename == place
    else:
        assert raised.value.filename in (None, str(program))


async def test_a_program_that_talks_like_the_sandbox_has_begun(sandbox: Sandbox) -> None:
    script = "echo 'bwrap: execvp x: Permission denied' >&2; exit 1"
    child = await sandbox.spawn(["sh", "-c", script], Confinement())
    ending = await gone(child)
    assert child.stderr is not None
    assert unbegun(child, ending, child.stderr.tail) is None


async def test_a_state_folder_that_is_made_later_is_hidden_too(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    confinement = Confinement(read=(str(tmp_path),))
    await sandbox.warm_up(confinement)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "audit").write_text("records")
    child = await sandbox.spawn(["ls", str(tmp_path / "state")], confinement)
    assert (await gone(child)).code == 0
    assert child.stdout is not None
    assert child.stdout.tail == b""


AMONG = """
import asyncio, json
from toolpost.sandbox import Confinement, Sandbox

async def main():
    confinement, said = Confinement(host=("processes",)), []
    async with await Sandbox.open() as sandbox, asyncio.timeout(60):
        for _ in range(2):
            await sandbox.warm_up(confinement)
            (place,) = sandbox._ready._places.values()
            usable = place.waiting[0].usable
            child = await sandbox.spawn(["sh", "-c", "(sleep 614 &); echo hi; exit 3"], confinement)
            ending = await child.ended()
            await child.wait()
            said.append([usable, ending.code, child.stdout.tail.decode()])
        print(json.dumps(said))

asyncio.run(main())
"""


@pytest.mark.skipif(not IS_ROOT, reason="needs processes of its own, lest it signal others")
def test_a_sandbox_among_the_processes_of_the_host_can_wait() -> None:
    if landlock.version() < landlock.NEEDED:
        pytest.skip("processes are shown only where Landlock keeps them apart")
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*apart, sys.executable, "-c", AMONG],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE / "src")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == [[True, 3, "hi\n"]] * 2
    assert running("sleep 614") == []


async def test_a_command_that_could_not_be_started_is_no_command_that_failed(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere\n")
    program.chmod(0o755)
    confinement = Confinement(read=(str(program),))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            await ran(sandbox, [str(program)], confinement, most=1000, begun=lambda: None)
        await sandbox.warm_up(confinement)


@pytest.mark.parametrize("argv", [["echo", "a\0b"], ["echo", "a\ud800b"], [""], []])
async def test_what_waits_inside_answers_whatever_it_is_told(
    sandbox: Sandbox, argv: list[str]
) -> None:
    warm = await sandbox._ready.new(Confinement())
    async with asyncio.timeout(FENCE):
        with pytest.raises(OSError, match="Invalid argument"):
            await warm.become(argv, env={}, folder="/", fds=[])
        await warm.child.wait()


async def test_what_cannot_be_bounded_leaves_nothing_behind(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "cgroup" not in sandbox.about["layers"]:
        pytest.skip("there is no cgroup here")
    await sandbox.settled()
    before = {*sandbox._ready._children}
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EBUSY, "it is in use")

        patched.setattr(Group, "limit", refuse)
        with pytest.raises(OSError, match="in use"):
            await sandbox.spawn(["true"], Confinement(memory=2**27))
    await sandbox.settled()
    assert not any(child.exited.done() for child in sandbox._ready._children)
    assert len(sandbox._ready._children) == len(before)
