"""Supervised children: start one, bound it, hear it, and kill it with every descendant.

Above: whatever runs something outside this process (the worker pool, shell, sandboxes, stdio
servers). Below: ``_keeper.py``, the process that stands between us and the child and does what
only a parent on the spot can do. It refuses to know what a tool, a spec or a call is.

::

    child = await spawn(["sort", "-u"], env={"PATH": "/usr/bin"}, stdin=reading_end)
    ending = await child.wait()          # Exit(code=0, signal=None, …)
    await child.kill()                   # returns when no descendant lives

What holds for every child:

- It dies with us, however we die, and so does all it forked, double forks and ``setsid``
  included. Where a pid namespace can be had the kernel sees to it; elsewhere the keeper collects
  what detaches itself (child subreaper). ``child.keeping`` says which. Two limits of the second
  way: a fork bomb may outrun the killing for a while, and a tool that kills its own keeper
  leaves its detached grandchildren behind.
- It has the environment it is given and no other, the descriptors it is given and no other, and
  no core dumps. In a pid namespace it has a private ``/proc`` and private mounts.
- ``file_size`` bounds each file that it writes (``RLIMIT_FSIZE``), not all of them together.
- ``memory`` bounds the *address space* (``RLIMIT_AS``) of each single process: mapped files and
  reserved stacks count, so leave room above what the program really uses.
- Output goes to a pipe that is always read: the last 64 KiB are kept, the child never blocks.

``spawn`` belongs on the event loop's own thread: the parent-death signal follows the thread.
Linux only; it runs on asyncio's loop and on uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

__all__ = ["Child", "Drain", "Exit", "Keeping", "Quota", "spawn", "spawn_script", "unhurried"]

_T = TypeVar("_T")

Keeping = Literal["namespace", "subreaper"]

_KEEPER = str(Path(__file__).with_name("_keeper.py"))
_TAIL = 64 * 1024
_CHUNK = 64 * 1024
_CHUNKS_AT_ONCE = 16
_FORWARDED = frozenset(
    (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    )
)


Hearer = Callable[[bytes], None]
"""Hearer every chunk, on the event loop, and ``b""`` at the end of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a child ended: by itself with ``code``, or by ``signal``; ``killed``: on our order."""

    code: int | None
    signal: int | None
    max_rss: int
    killed: bool


class Drain:
    """One output pipe of a child: read as it comes, kept as a tail, never a brake on the child."""

    __slots__ = ("_fd", "_loop", "_tail", "on_data", "total")

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._tail = b""
        self.total = 0
        self.on_data: Hearer | None = None
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    @property
    def tail(self) -> bytes:
        """The last 64 KiB."""
        return self._tail

    @property
    def fd(self) -> int:
        """The reading end, or -1 once it is closed; for polling, not for reading."""
        return self._fd

    def read_now(self) -> None:
        """Take in what the child has written so far, without waiting for the loop's next turn."""
        for _ in range(_CHUNKS_AT_ONCE):
            if not self._read():
                return

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self.on_data is not None:
                self.on_data(b"")

    def _read(self) -> bool:
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.total += len(data)
        self._tail = data[-_TAIL:] if len(data) >= _TAIL else (self._tail + data)[-_TAIL:]
        if self.on_data is not None:
            self.on_data(data)
        return True


class Quota(Protocol):
    """What bounds the bytes and files that a child adds to folders it may write.

    ``begin`` and ``end`` stand around each of its calls; ``exceeded`` is the bound it was killed
    for; ``settle`` looks once more, after its end. ``sandbox/quota.py`` is the one there is.
    """

    exceeded: Literal["disk", "files"] | None

    def begin(self) -> None: ...

    def end(self) -> None: ...

    async def settle(self) -> Literal["disk", "files"] | None: ...


class Child:
    """A running child. Made by ``spawn``; every one of them is to be killed or waited for."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        control: socket.socket,
        *,
        stdout: Drain | None,
        stderr: Drain | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._popen = popen
        self._control = control
        self._killed = False
        self._status: int | None = None
        self._max_rss = 0
        self._started: asyncio.Future[None] = self._loop.create_future()
        self.keeping: Keeping = "subreaper"
        self.pid = popen.pid
        """The keeper's pid: the child and all its descendants are below it."""
        self.stdout = stdout
        self.stderr = stderr
        self._written = select.poll()
        for drain in (stdout, stderr):
            if drain is not None:
                self._written.register(drain.fd, select.POLLIN)
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        """Done when nothing of the child is left; for callbacks. Await ``wait()`` instead."""
        self._end: Exit | None = None
        self._waiting: list[asyncio.Future[Exit]] = []
        self.attended = False
        """Somebody sees to it that nothing of it is left, so that who started it need not."""
        self.on_leaving: Callable[[Child], None] | None = None
        """Is told, once its program has ended, that the rest has to go."""
        self.quota: Quota | None = None
        """None if it is not in a sandbox, or can write nowhere."""
        self.begun = True
        """False once it is known that the program itself never began."""
        self.before_gone: Callable[[], None] | None = None
        """Finds that out, as long as it is not known: when nothing of it is left it can."""
        self.reading: Callable[[int], int] | None = None
        """Reads its wait status, where what is waited for tells in its own way of another's end."""
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._keeper_ended)
        self._loop.add_reader(control.fileno(), self._heard)

    def hear(self, on_stdout: Hearer | None, on_stderr: Hearer | None) -> None:
        """Who hears what it writes, from now on."""
        for drain, hearer in ((self.stdout, on_stdout), (self.stderr, on_stderr)):
            if drain is not None:
                drain.on_data = hearer

    async def wait(self) -> Exit:
        """Wait until the child has ended and none of its descendants lives."""
        return await asyncio.shield(self.exited)

    async def ended(self) -> Exit:
        """Wait until the program itself has ended; whatever it left behind is being killed."""
        if self._end is not None:
            return self._end
        waiting: asyncio.Future[Exit] = self._loop.create_future()
        self._waiting.append(waiting)  # to shield one for all would be another turn of the loop
        return await waiting

    @property
    def over(self) -> bool:
        """The program itself has ended."""
        return self._end is not None

    def has_ended(self, status: int, *, max_rss: int) -> None:
        """How the program ended, from whoever knows first; the first word counts."""
        if self._status is None:
            self._status = status if self.reading is None else self.reading(status)
            self._max_rss = max_rss
            if self._written.poll(0):  # one question, for most of the time there is nothing
                for drain in (self.stdout, self.stderr):
                    if drain is not None:
                        drain.read_now()
            self._tell(self._exit(os.waitstatus_to_exitcode(self._status)))
            if self.on_leaving is not None:
                self._loop.call_soon(self.on_leaving, self)  # behind those who wait

    async def kill(self) -> Exit:
        """Kill the child and every descendant; return when none of them lives."""
        self.kill_soon()
        return await self.wait()

    def kill_soon(self) -> None:
        """Order the kill without waiting for it."""
        if not self._killed and not self.exited.done():
            self._killed = True
            self._send(b"kill")

    def signal(self, number: int) -> None:
        """Pass a signal on to the child alone (TERM, INT, HUP, QUIT, USR1 or USR2)."""
        if number not in _FORWARDED:
            raise ValueError(f"signal {number} cannot be passed on; use kill() to end the child")
        if not self.exited.done():
            self._send(b"%d" % number)

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # it is ending already, and that is waited for
            self._control.send(message)

    def _heard(self) -> bool:
        """Take one word of the keeper's; False if there is none."""
        try:
            word, *rest = self._control.recv(256).split() or [b""]
        except OSError:
            return False
        if word == b"started":
            self.keeping = "namespace" if rest == [b"namespace"] else "subreaper"
            self._settle(None)
        elif word == b"failed":
            number = int(rest[0])
            self._settle(OSError(number, os.strerror(number)))
        elif word == b"exit":  # the first is the child's, not init's
            self.has_ended(int(rest[0]), max_rss=int(rest[1]) * 1024)
        elif not word:
            self._loop.remove_reader(self._control.fileno())
        return bool(word)

    def _settle(self, error: OSError | None) -> None:
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    def _keeper_ended(self) -> None:
        while self._heard():
            pass
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._control.fileno())
        os.close(self._pidfd)
        self._control.close()
        keeper = self._popen.wait()
        for drain in (self.stdout, self.stderr):
            if drain is not None:
                drain.read_now()
                drain.close()
        self._settle(ChildProcessError("the keeper ended before its child began"))
        told = self._status is not None  # if not, somebody killed the keeper
        if self.before_gone is not None:
            self.before_gone()
        ending = self._end  # that the rest was killed after it is not how it ended
        if ending is None:
            ending = self._exit(os.waitstatus_to_exitcode(self._status or 0) if told else keeper)
        self._tell(ending)
        self.exited.set_result(ending)

    def _tell(self, ending: Exit) -> None:
        if self._end is None:
            self._end = ending
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(ending)

    def _exit(self, code: int) -> Exit:
        return Exit(
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            max_rss=self._max_rss,
            killed=self._killed,
        )


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    memory: int | None = None,
    file_size: int | None = None,
    pass_fds: Sequence[int] = (),
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    on_stdout: Hearer | None = None,
    on_stderr: Hearer | None = None,
    namespace: bool = True,
) -> Child:
    """Start a program under a keeper; raises ``OSError`` as ``exec`` does if it cannot be started.

    ``stdin``, ``stdout`` and ``stderr`` are descriptors for the child (the caller closes its own
    copies); without them it reads nothing, and writes into ``child.stdout`` and ``child.stderr``,
    which ``on_stdout`` and ``on_stderr`` hear from the first byte.
    ``memory`` is in bytes of address space, ``file_size`` in bytes of each file.
    ``namespace=False`` keeps it by subreaper only.
    """
    bounds = memory, file_size
    order = _order("exec", argv, bounds, namespace=namespace, pass_fds=pass_fds)
    streams = (stdin, stdout, stderr)
    child = _launch(order, env=env, cwd=cwd, pass_fds=pass_fds, streams=streams)
    child.hear(on_stdout, on_stderr)
    return await _started(child)


async def spawn_script(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    memory: int | None = None,
    file_size: int | None = None,
    pass_fds: Sequence[int] = (),
    namespace: bool = True,
) -> Child:
    """Start a Python file, ``argv[0]``, in a fork of its keeper: one interpreter start, not two.

    It runs isolated (``-I -S``): its ``sys.path`` is the standard library's. The rest is as
    with ``spawn``.
    """
    bounds = memory, file_size
    order = _order("script", argv, bounds, namespace=namespace, pass_fds=pass_fds)
    streams = (None, None, None)
    return await _started(_launch(order, env=env, cwd=cwd, pass_fds=pass_fds, streams=streams))


def _order(
    kind: Literal["exec", "script"],
    argv: Sequence[str],
    bounds: tuple[int | None, int | None],
    *,
    namespace: bool,
    pass_fds: Sequence[int],
) -> list[str]:
    """The keeper's command line behind its control descriptor; ``_keeper.Order`` reads it.
    ``bounds`` are the memory and the size of a file.
    """
    keeping: Keeping = "namespace" if namespace else "subreaper"
    numbers = [str(bound or 0) for bound in bounds]
    return [*numbers, keeping, kind, ",".join(map(str, pass_fds)), *argv]


async def _started(child: Child) -> Child:
    try:
        await child._started
    except asyncio.CancelledError:
        child.kill_soon()
        await unhurried(child.exited)
        raise
    except OSError:
        await unhurried(child.exited)
        raise
    return child


def _launch(
    order: list[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    pass_fds: Sequence[int],
    streams: tuple[int | None, int | None, int | None],
) -> Child:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        control, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.callback(control.close)
        theirs.callback(far_end.close)
        reading: list[int] = []
        ends = [subprocess.DEVNULL if streams[0] is None else streams[0]]
        for given in streams[1:]:
            read_end, end = (-1, given) if given is not None else os.pipe()
            if given is None:
                ours.callback(os.close, read_end)
                theirs.callback(os.close, end)
            reading.append(read_end)
            ends.append(end)
        popen = subprocess.Popen(  # noqa: S603 - running programs is what this file is for
            [*_interpreter(), _KEEPER, str(far_end.fileno()), *order],
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[2],
            pass_fds=[far_end.fileno(), *pass_fds],
            env=dict(env),
            cwd=cwd,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone
        )
        ours.pop_all()
    control.setblocking(False)
    drains = [Drain(fd, loop) if fd >= 0 else None for fd in reading]
    return Child(popen, control, stdout=drains[0], stderr=drains[1])


def _interpreter() -> list[str]:
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "supervised processes need Linux")
    if not sys.executable:
        raise OSError(errno.ENOENT, "there is no Python interpreter to keep a child with")
    return [sys.executable, "-I", "-S", "-X", "utf8"]


async def unhurried(future: asyncio.Future[_T]) -> _T:
    """Await to the end, come what may: a cancel that arrives meanwhile waits, and is then heard."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.cancelled():
                cancelled = True
        except Exception:  # noqa: BLE001 - it is raised by result() below
            break
    if cancelled:
        raise asyncio.CancelledError
    return future.result()
