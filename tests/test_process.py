"""Children that are bounded, heard, and killed with everything below them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Watch, descendants, running
from toolpost import process
from toolpost.process import Child, Exit, spawn, spawn_script

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            if number not in (9, 19, 32, 33):
                import signal; signal.signal(number, signal.SIG_IGN)
        print("escaped", flush=True)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


@pytest.fixture(params=["namespace", "subreaper"])
async def namespace(request: pytest.FixtureRequest) -> bool:
    """Both ways of keeping; the first only where this machine allows it."""
    wanted = request.param == "namespace"
    child = await spawn(["true"], env=PATH, namespace=wanted)
    await child.wait()
    if child.keeping != request.param:
        pytest.skip("no pid namespace can be had here")
    return wanted


async def heard(child: Child, word: bytes) -> None:
    """Wait until the child has printed a word."""
    said = asyncio.Event()
    assert child.stdout is not None

    def listen(data: bytes) -> None:
        if child.stdout and word in child.stdout.tail:
            said.set()

    child.stdout.on_data = listen
    listen(b"")
    async with asyncio.timeout(20):
        await said.wait()


def output(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.tail.decode()


def errors(child: Child) -> str:
    assert child.stderr is not None
    return child.stderr.tail.decode()


async def test_a_child_that_ends_by_itself_tells_its_code_and_its_output(namespace: bool) -> None:
    child = await spawn(
        ["sh", "-c", "echo out; echo err >&2; exit 3"], env=PATH, namespace=namespace
    )
    ending = await child.wait()
    assert (ending.code, ending.signal, ending.killed) == (3, None, False)
    assert (output(child), errors(child)) == ("out\n", "err\n")
    assert ending.max_rss > 0


async def test_a_child_that_dies_of_a_signal_tells_which(namespace: bool) -> None:
    child = await spawn(["sh", "-c", "kill -SEGV $$"], env=PATH, namespace=namespace)
    ending = await child.wait()
    assert (ending.code, ending.signal, ending.killed) == (None, signal.SIGSEGV, False)


@pytest.mark.req("NA-7")
async def test_kill_returns_when_no_descendant_lives_not_even_an_escaped_one(
    namespace: bool,
) -> None:
    child = await spawn([sys.executable, "-c", ESCAPE], env=PATH, namespace=namespace)
    await heard(child, b"escaped")
    with Watch({child.pid, *descendants(child.pid)}) as watch:
        assert len(watch.fds) >= 3
        ending = await child.kill()
        assert watch.living() == set()
    assert (ending.signal, ending.killed) == (signal.SIGKILL, True)


async def test_what_a_child_leaves_behind_ends_with_it(namespace: bool) -> None:
    mark = uuid.uuid4().hex
    leaving = f"setsid sh -c 'echo left; sleep 1000; : {mark}' & read word; exit 5"
    reading, writing = os.pipe()
    child = await spawn(["sh", "-c", leaving], env=PATH, stdin=reading, namespace=namespace)
    os.close(reading)
    await heard(child, b"left")
    assert len(running(f": {mark}")) >= 2
    os.close(writing)
    async with asyncio.timeout(20):
        assert (await child.wait()).code == 5
    assert running(mark) == []


async def test_what_is_killed_behind_a_program_that_has_ended_is_not_how_it_ended() -> None:
    child = await spawn(["sleep", "615"], env=PATH)
    told: list[Child] = []
    child.on_leaving = told.append
    child.has_ended(3 << 8, max_rss=1)
    ending = await asyncio.wait_for(child.kill(), 30)
    assert (ending.code, ending.signal, ending.killed) == (3, None, False)
    assert told == [child]


async def test_a_crowd_of_detached_processes_is_killed(namespace: bool) -> None:
    one = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000'"
    crowd = f"for i in $(seq 60); do {one} & done; echo all; wait"
    child = await spawn(["sh", "-c", crowd], env=PATH, namespace=namespace)
    await heard(child, b"all")
    with Watch(descendants(child.pid)) as watch:
        assert len(watch.fds) > 60
        await child.kill()
        assert watch.living() == set()


LOAD = """
import asyncio, importlib.util, os, sys
spec = importlib.util.spec_from_file_location("process", {process!r})
process = sys.modules["process"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(process)
process._interpreter = lambda: [sys.executable, *{flags!r}]
"""
PARENT = """
async def main():
    children = []
    for namespace in {namespaces}:
        argv = [sys.executable, "-c", {escape!r}]
        child = await process.spawn(argv, env={{}}, namespace=namespace)
        said = asyncio.Event()
        child.stdout.on_data = lambda data, said=said: said.set()
        if not child.stdout.total:
            await said.wait()
        children.append(child)
    print(*(child.keeping for child in children), flush=True)
    {then}

asyncio.run(main())
"""


def program(text: str) -> str:
    """A program of its own that has ``process``, and whose children are measured as ours are."""
    return LOAD.format(process=process.__file__, flags=process._interpreter()[1:]) + text


def parent(*, namespaces: list[bool], then: str) -> str:
    return program(PARENT.format(namespaces=namespaces, escape=ESCAPE, then=then))


async def test_nothing_is_left_when_the_parent_is_killed_the_hard_way() -> None:
    script = parent(namespaces=[True, False, True, False], then="await asyncio.Event().wait()")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().split()[1] == b"subreaper"
        with Watch(descendants(starter.pid)) as watch:
            assert len(watch.fds) >= 12
            starter.kill()
            assert watch.living(within=20) == set()


async def test_nothing_is_left_when_the_parent_ends_without_a_word() -> None:
    script = parent(namespaces=[True, False], then="sys.stdin.read(); os._exit(0)")
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdin is not None
        assert starter.stdout.readline() != b""
        with Watch(descendants(starter.pid)) as watch:
            assert len(watch.fds) >= 6
            starter.stdin.close()
            assert watch.living(within=20) == set()


async def test_a_killed_keeper_takes_a_namespace_with_it() -> None:
    child = await spawn([sys.executable, "-c", ESCAPE], env=PATH)
    if child.keeping != "namespace":
        await child.kill()
        pytest.skip("no pid namespace can be had here")
    await heard(child, b"escaped")
    with Watch(descendants(child.pid)) as watch:
        os.kill(child.pid, signal.SIGKILL)
        assert await watch.gone()
    assert (await child.wait()).signal == signal.SIGKILL


def ordinary(script: str) -> list[str]:
    """A command that runs a Python script as somebody who is not root."""
    if os.geteuid() != 0:
        return [sys.executable, "-c", script]
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    probe = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        trial = [*drop, python, "-c", f"{probe}; assert sys.version_info >= (3, 11)"]
        if subprocess.run(trial, capture_output=True, cwd="/").returncode == 0:
            return [*drop, python, "-c", script]
    pytest.skip("no interpreter that an ordinary user could reach")


async def test_an_ordinary_user_gets_the_same_keeping_and_stays_who_he_is(tmp_path: Path) -> None:
    then = """
    child = await process.spawn(
        ["sh", "-c", "id -u; id -g; grep CapEff /proc/self/status; touch made; stat -c %u made"],
        env={"PATH": "/usr/bin:/bin"}, cwd=sys.argv[1])
    await child.wait()
    print(child.stdout.tail.decode().split(), child.stderr.tail.decode())
    for child in children:
        print(await child.kill())
    """
    script = parent(namespaces=[True, False], then=then.strip())
    place = tmp_path / "open"
    place.mkdir()
    for folder in (place, *list(place.parents)[:4]):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(0o777)
    run = await asyncio.to_thread(
        subprocess.run,
        [*ordinary(script), str(place)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert run.stderr == ""
    keeping, seen, *endings = run.stdout.splitlines()
    who = str(65534 if os.geteuid() == 0 else os.geteuid())
    group = str(65534 if os.geteuid() == 0 else os.getegid())
    assert seen.strip() == str([who, group, "CapEff:", "0000000000000000", who])
    assert all("signal=9" in ending for ending in endings)
    assert len(endings) == 2
    assert keeping.split()[1] == "subreaper"


@pytest.mark.req("NA-7")
@pytest.mark.req("FM-9")
async def test_a_child_cannot_take_more_memory_than_it_was_given(namespace: bool) -> None:
    child = await spawn(
        [sys.executable, "-c", "bytearray(1 << 30)"],
        env=PATH,
        memory=256 << 20,
        namespace=namespace,
    )
    assert (await child.wait()).code == 1
    assert "MemoryError" in errors(child)


@pytest.mark.parametrize("start", [spawn, spawn_script])
async def test_a_memory_limit_that_the_kernel_cannot_hold_is_refused_at_once(start: Any) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        async with asyncio.timeout(20):
            await start(["/usr/bin/env"], env=PATH, memory=2**70)


async def test_a_child_sees_the_environment_it_is_given_and_no_other() -> None:
    child = await spawn(["/usr/bin/env"], env={"ONLY": "this"})
    await child.wait()
    assert output(child) == "ONLY=this\n"


async def test_a_child_gets_the_descriptors_it_is_given_and_no_other(namespace: bool) -> None:
    show = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
    reading, writing = os.pipe()
    spare = os.dup(writing)
    os.set_inheritable(spare, True)
    child = await spawn(
        [sys.executable, "-c", show], env=PATH, pass_fds=[writing], namespace=namespace
    )
    await child.wait()
    listing = next(fd for fd in range(3, 10) if fd != writing)
    assert output(child) == f"{sorted([0, 1, 2, writing, listing])}\n"
    for fd in (reading, writing, spare):
        os.close(fd)


async def test_a_child_leaves_no_core_and_is_in_a_session_of_its_own(namespace: bool) -> None:
    show = (
        "import os, resource; "
        "print(resource.getrlimit(resource.RLIMIT_CORE), os.getsid(0) == os.getpid())"
    )
    child = await spawn([sys.executable, "-c", show], env=PATH, namespace=namespace)
    await child.wait()
    assert output(child) == "(0, 0) True\n"


async def test_in_a_namespace_proc_shows_the_child_and_not_the_rest_of_the_machine() -> None:
    show = "import os; print(os.getpid(), os.readlink('/proc/self'), os.path.exists('/proc/3'))"
    child = await spawn([sys.executable, "-c", show], env=PATH)
    await child.wait()
    if child.keeping != "namespace":
        pytest.skip("no pid namespace can be had here")
    assert output(child) == "2 2 False\n"


async def test_a_flood_of_output_is_read_to_the_end_and_only_its_tail_kept() -> None:
    flood = "import sys; sys.stderr.write('x' * 30_000_000); sys.stderr.write('the end')"
    child = await spawn([sys.executable, "-c", flood], env=PATH)
    async with asyncio.timeout(60):
        assert (await child.wait()).code == 0
    assert child.stderr is not None
    assert child.stderr.total == 30_000_007
    assert len(child.stderr.tail) == 64 * 1024
    assert child.stderr.tail.endswith(b"the end")


async def test_who_hears_a_child_hears_it_from_the_first_byte_to_the_end() -> None:
    said: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    ends: list[str] = []

    def hearer(name: str) -> Callable[[bytes], None]:
        def hear(data: bytes) -> None:
            said[name] += data
            if not data:
                ends.append(name)

        return hear

    script = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"
    argv = ["sh", "-c", script]
    child = await spawn(argv, env=PATH, on_stdout=hearer("stdout"), on_stderr=hearer("stderr"))
    assert (await child.wait()).code == 0
    assert said == {"stdout": bytes(300_000), "stderr": bytes(200_000)}
    assert sorted(ends) == ["stderr", "stdout"]


async def test_streams_of_the_callers_own_are_used_as_they_are() -> None:
    reading, far_writing = os.pipe()
    far_reading, writing = os.pipe()
    child = await spawn(["cat"], env=PATH, stdin=far_reading, stdout=far_writing)
    os.close(far_reading)
    os.close(far_writing)
    os.write(writing, b"to and fro")
    os.close(writing)
    assert (await child.wait()).code == 0
    assert child.stdout is None
    assert os.read(reading, 100) == b"to and fro"
    os.close(reading)


async def test_a_signal_is_passed_on_to_the_child(namespace: bool) -> None:
    waiting = "trap 'echo asked; exit 7' TERM; echo ready; sleep 1000 & wait"
    child = await spawn(["sh", "-c", waiting], env=PATH, namespace=namespace)
    await heard(child, b"ready")
    child.signal(signal.SIGTERM)
    assert (await child.wait()).code == 7
    assert output(child) == "ready\nasked\n"
    with pytest.raises(ValueError, match="use kill"):
        child.signal(signal.SIGKILL)


async def test_no_handler_stands_between_a_signal_and_the_child(namespace: bool) -> None:
    """What came just before ``init`` waits would not run one until the child's end."""
    child = await spawn(["sleep", "1000"], env=PATH, namespace=namespace)
    assert not [pid for pid in descendants(os.getpid()) if signal.SIGUSR1 in caught(pid)]
    await child.kill()


def caught(pid: int) -> set[int]:
    """The signals that a process has handlers for."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
    return {number for number in range(1, 65) if mask & 1 << (number - 1)}


async def test_a_program_that_cannot_be_started_is_an_os_error(
    namespace: bool, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        await spawn([str(tmp_path / "absent")], env=PATH, namespace=namespace)
    with pytest.raises(PermissionError):
        await spawn([str(tmp_path)], env=PATH, namespace=namespace)
    with pytest.raises(FileNotFoundError):
        await spawn(["true"], env=PATH, cwd=str(tmp_path / "absent"), namespace=namespace)
    assert descendants(os.getpid()) == set()


async def test_a_spawn_that_is_cancelled_leaves_nothing(namespace: bool) -> None:
    task = asyncio.create_task(spawn(["sleep", "1000"], env=PATH, namespace=namespace))
    await asyncio.sleep(0)
    with Watch(descendants(os.getpid())) as watch:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert watch.living() == set()
    assert descendants(os.getpid()) == set()


async def test_no_descriptor_stays_open_in_the_parent(namespace: bool, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for argv in (["true"], ["sleep", "1000"], [str(tmp_path / "absent")]):
        try:
            child = await spawn(argv, env=PATH, namespace=namespace)
        except FileNotFoundError:
            continue
        await child.kill()
    assert set(os.listdir("/proc/self/fd")) == before


async def test_killing_twice_and_waiting_afterwards_give_the_same_ending() -> None:
    child = await spawn(["sleep", "1000"], env=PATH)
    endings = await asyncio.gather(child.kill(), child.wait(), child.kill())
    assert endings == [Exit(code=None, signal=9, max_rss=endings[0].max_rss, killed=True)] * 3
    assert await child.kill() == endings[0]


async def test_a_cancelled_wait_leaves_the_child_running() -> None:
    child = await spawn(["sleep", "1000"], env=PATH)
    waiting = asyncio.create_task(child.wait())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not child.exited.done()
    assert (await child.kill()).killed


async def test_a_script_runs_in_a_fork_of_its_keeper(namespace: bool, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        main = sys.modules["__main__"].__dict__
        print(__name__, sys.argv[1:], sys.flags.isolated, main is globals())
        sys.exit(4)
        """)
    )
    child = await spawn_script([str(script), "one", "two"], env=PATH, namespace=namespace)
    assert (await child.wait()).code == 4
    assert output(child) == "__main__ ['one', 'two'] 1 True\n"
    with pytest.raises(FileNotFoundError):
        await spawn_script([str(tmp_path / "absent.py")], env=PATH, namespace=namespace)


WAYS_TO_LOSE_NAMESPACES = {
    "a machine we do not know": ["setarch", "linux32"],
    "root without the right": ["setpriv", "--bounding-set", "-sys_admin"],
}


@pytest.mark.parametrize("how", WAYS_TO_LOSE_NAMESPACES)
async def test_where_no_namespace_can_be_had_a_child_is_kept_without(how: str) -> None:
    before = WAYS_TO_LOSE_NAMESPACES[how]
    if os.geteuid() != 0:
        before = ["setarch", "linux32"]  # nobody else has a right to lose
    script = parent(namespaces=[True], then="print(await children[0].kill())")
    run = await asyncio.to_thread(
        subprocess.run,
        [*before, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stderr == ""
    keeping, ending = run.stdout.splitlines()
    assert keeping == "subreaper"
    assert "signal=9" in ending


async def test_nothing_is_left_when_the_parent_ends_before_it_has_heard_of_its_child() -> None:
    script = program("""
async def main():
    order = process._order("exec", ["sleep", "1000"], (None, None), namespace=False, pass_fds=())
    child = process._launch(order, env={"PATH": "/usr/bin:/bin"}, cwd=None, pass_fds=(),
                            streams=(None, None, None))
    import select
    assert select.select([child._control], [], [], 20)[0]
    print("unread", flush=True)
    sys.stdin.read()
    os._exit(0)

asyncio.run(main())
""")
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"unread\n"
        with Watch(descendants(starter.pid)) as watch:
            assert len(watch.fds) >= 2
            starter.stdin.close()
            assert watch.living(within=20) == set()


async def test_a_child_ends_with_the_thread_that_started_it() -> None:
    script = program("""
import threading

async def main():
    global child
    child = await process.spawn(["sleep", "1000"], env={"PATH": "/usr/bin:/bin"})
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

starter = threading.Thread(target=asyncio.run, args=[main()])
starter.start()
starter.join()
sys.stdin.read()
os._exit(0)
""")
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"begun\n"
        with Watch(descendants(starter.pid)) as watch:
            assert len(watch.fds) >= 2
            starter.stdin.write(b"end the thread\n")
            starter.stdin.flush()
            assert watch.living(within=20) == set()
        assert starter.poll() is None
        starter.stdin.close()


ORPHAN = """
import os
reading, writing = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(writing, b"%d" % os.getpid())
    os._exit(0)
os.wait()
orphan = os.read(reading, 20).decode()
while os.path.exists("/proc/" + orphan):
    os.sched_yield()
print("buried")
"""


async def test_an_orphan_is_buried_while_the_child_lives_on(namespace: bool) -> None:
    child = await spawn([sys.executable, "-c", ORPHAN], env=PATH, namespace=namespace)
    async with asyncio.timeout(60):
        assert (await child.wait()).code == 0
    assert output(child) == "buried\n"


async def test_a_locale_that_is_given_reaches_the_child() -> None:
    child = await spawn(["/usr/bin/env"], env={"LC_CTYPE": "C.UTF-8"})
    await child.wait()
    assert output(child) == "LC_CTYPE=C.UTF-8\n"


async def test_without_an_interpreter_or_off_linux_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        with pytest.raises(OSError, match="need Linux"):
            await spawn(["true"], env=PATH)
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match="no Python interpreter"):
        await spawn(["true"], env=PATH)


async def test_signals_and_kills_after_the_end_do_nothing() -> None:
    child = await spawn(["true"], env=PATH)
    ending = await child.wait()
    child.signal(signal.SIGTERM)
    child.kill_soon()
    assert await child.wait() == ending
    assert not ending.killed


async def test_what_fails_meanwhile_is_raised_after_an_unhurried_wait() -> None:
    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(process.unhurried(failing))
    await asyncio.sleep(0)
    failing.set_exception(LookupError("lost"))
    with pytest.raises(LookupError, match="lost"):
        await waiting


def on_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_it_works_on_uvloop_as_well() -> None:
    async def main() -> None:
        for namespace in (True, False):
            child = await spawn([sys.executable, "-c", ESCAPE], env=PATH, namespace=namespace)
            await heard(child, b"escaped")
            with Watch(descendants(child.pid)) as watch:
                assert (await child.kill()).killed
                assert watch.living() == set()

    on_uvloop(main)
