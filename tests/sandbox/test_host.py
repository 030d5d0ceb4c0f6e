"""What of the machine a sandbox may share: to be seen, and not to be touched."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import as_ordinary_user, need_a_sandbox
from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox, landlock

pytestmark = pytest.mark.anyio

# Runs inside: tries everything that one process can do to another of its user, and tells.
TOUCHES = """
import json, os, resource, socket, sys
pid, port, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
done = {"seen": os.path.exists(f"/proc/{pid}")}
def tried(what, do):
    try:
        do()
    except OSError:
        return
    done[what] = True
for path in ("environ", "mem", "maps", "root/etc/passwd", "cwd/."):
    tried(path, lambda: os.stat(f"/proc/{pid}/{path}") if "/" in path
          else open(f"/proc/{pid}/{path}", "rb").read(1))
tried("signal", lambda: os.kill(pid, 0))
tried("pidfd", lambda: __import__("signal").pidfd_send_signal(os.pidfd_open(pid), 0))
tried("nice", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
tried("cores", lambda: os.sched_setaffinity(pid, {0}))
tried("limits", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100)))
tried("sysctl", lambda: open("/proc/sys/kernel/hostname", "w").write("x"))
tried("tcp", lambda: socket.create_connection(("127.0.0.1", port), 5))
tried("unix", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + name))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tried("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
print(json.dumps(done))
"""

TRIES = """
import asyncio, json, os, socket, sys
from toolpost.sandbox import Confinement, Sandbox

async def main(host, touches):
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind("\\0of-this-test-%d" % os.getpid())
    unix.listen()
    victim = await asyncio.create_subprocess_exec("sleep", "60")
    words = [str(victim.pid), str(tcp.getsockname()[1]), "of-this-test-%d" % os.getpid()]
    try:
        async with await Sandbox.open() as sandbox, asyncio.timeout(60):
            confinement = Confinement(host=tuple(filter(None, host.split(","))))
            child = await sandbox.spawn(["python3", "-c", touches, *words], confinement)
            ending = await child.wait()
            print(child.stdout.tail.decode() or child.stderr.tail.decode())
    finally:
        victim.kill()
        await victim.wait()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.fixture(autouse=True, scope="module")
def sandbox() -> None:
    need_a_sandbox()
    if landlock.version() < landlock.NEEDED:
        pytest.skip("processes are shown only where Landlock keeps them apart")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python that is seen inside")


@pytest.mark.req("NA-7")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", {"seen": False}),
        ("processes", {"seen": True}),
        ("network", {"seen": False, "tcp": True, "netlink": True}),
        ("network,processes", {"seen": True, "tcp": True, "netlink": True}),
    ],
)
def test_what_is_shared_is_seen_and_can_be_neither_touched_nor_read(
    host: str, expected: dict[str, bool], tmp_path: Path
) -> None:
    told = as_ordinary_user(TRIES, host, TOUCHES, home=tmp_path)
    assert json.loads(told) == expected


async def test_all_that_was_started_among_the_processes_of_the_host_ends_with_it() -> None:
    async with await Sandbox.open() as sandbox, asyncio.timeout(60):
        confinement = Confinement(host=("processes",))
        ours, theirs = os.pipe()
        script = "(setsid sleep 617 &) ; (setsid sleep 617 &) ; echo up; sleep 617"
        child = await sandbox.spawn(["sh", "-c", script], confinement, stdout=theirs)
        os.close(theirs)
        assert await asyncio.to_thread(os.read, ours, 10) == b"up\n"
        await child.kill()
        assert await asyncio.to_thread(os.read, ours, 10) == b"", "nobody holds the other end"
        os.close(ours)


async def test_what_is_shared_needs_the_layers_that_fence_it() -> None:
    async with await Sandbox.open() as sandbox:
        with pytest.raises(SetupError, match="with the one there is no other"):
            sandbox.check(Confinement(host=("network",), egress=("a:1",)))
        if (lesser := await sandbox.lesser("I1")) is not None:
            with pytest.raises(SetupError, match="needs namespaces and a system call filter"):
                lesser.check(Confinement(host=("processes",)))


async def test_an_older_kernel_shows_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: landlock.NEEDED - 1)
    async with await Sandbox.open() as sandbox:
        sandbox.check(Confinement(host=("network",)))
        with pytest.raises(SetupError, match="needs Landlock 6"):
            sandbox.check(Confinement(host=("processes",)))
