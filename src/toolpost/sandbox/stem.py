"""Processes started ahead that can become any sandbox: what is the same for all is done already.

Above: ``warm.py`` and ``sandbox.py`` give a stem its plan. Below: ``process.py`` keeps it, and
kills it with all that comes of it; ``_entry.py`` is what it runs. It refuses to know what a plan
says.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import marshal
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from toolpost.process import Child, spawn_script
from toolpost.sandbox.groups import Group
from toolpost.sandbox.plan import Plan

_ENTRY: Final = str(Path(__file__).with_name("_entry.py"))
PATIENCE: Final = 20.0
"""Seconds; a machine on which a process needs longer to start has other worries."""
_BREAKING: Final = frozenset(
    (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGKILL,
        signal.SIGPIPE,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTERM,
        signal.SIGTRAP,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    )
)
"""Signals that are likelier than a program which ends with such a status by itself."""


class Lost(ChildProcessError):
    """What waited has ended before it had its order: nothing was begun, and another can be
    taken.
    """


class Stem:
    """A child that waits for its plan."""

    def __init__(self, child: Child, talk: socket.socket, group: Group | None) -> None:
        self.child = child
        self.group = group
        self._talk = talk

    @classmethod
    async def start(cls, group: Group | None, *, namespace: bool = True) -> Stem:
        """Raises ``OSError`` if it does not come up, or cannot join its group. Without a namespace
        it is among the processes of the host.
        """
        talk, far_end = socket.socketpair()
        talk.setblocking(False)
        try:
            number = far_end.fileno()
            argv = [_ENTRY, str(number), *(group.entrances if group else ())]
            child = await spawn_script(
                argv, env={}, cwd="/", pass_fds=[number], namespace=namespace
            )
        except BaseException:
            talk.close()
            raise
        finally:
            far_end.close()
        child.reading = _as_told
        _open_output(child)
        stem = cls(child, talk, group)
        try:
            await heard(talk, expected=b"+")
        except BaseException:
            await stem.discard()
            raise
        return stem

    async def follow(self, plan: Plan, fds: Sequence[int] = ()) -> None:
        """Become what the plan says; ``OSError`` says what could not be done, ``Lost`` that nobody
        has heard it.
        """
        try:
            await send(self._talk, plan.data, [*fds, *plan.maps])
            await heard(self._talk, expected=b"")
        except ConnectionError as fault:  # also of a plan that was left unread
            raise Lost("a process that waited for its plan has ended") from fault
        finally:
            self._talk.close()

    async def discard(self) -> None:
        self._talk.close()
        self.child.hear(None, None)  # its last words are not the program's
        await self.child.kill()


def _open_output(child: Child) -> None:
    """Whoever it becomes may open /dev/stdout: the pipe is ours, and nobody else reaches it."""
    for drain in (child.stdout, child.stderr):
        if drain is not None and drain.fd >= 0:
            os.fchmod(drain.fd, 0o622)


def _as_told(status: int) -> int:
    """One reading of an end, whoever tells of it. Bubblewrap does it as a shell does: a signal is
    a status of 128 + its number. What that means most of the time, it means always; any other
    signal (git ends by itself with 129) is left as that status.
    """
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - 128
    if number in _BREAKING:
        return number
    return status if code >= 0 else (128 + number) << 8


async def send(talk: socket.socket, message: Any, fds: Sequence[int]) -> None:
    content = marshal.dumps(message, 2)  # a form without references is quicker to read
    content = len(content).to_bytes(4, "little") + content
    if fds:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        sent = talk.sendmsg([content], [rights])
    else:
        sent = talk.send(content)
    if sent < len(content):
        await asyncio.get_running_loop().sock_sendall(talk, content[sent:])


async def heard(talk: socket.socket, *, expected: bytes) -> None:
    """Wait for one word; anything else is the reason why it did not work."""
    async with asyncio.timeout(PATIENCE):
        word = await asyncio.get_running_loop().sock_recv(talk, len(expected) or 1)
    if word == expected:
        return
    with contextlib.suppress(OSError):
        word += talk.recv(4096)
    if word.startswith(b"failed "):
        number = int(word.split()[1])
        raise OSError(number, os.strerror(number))
    raise ChildProcessError(word.decode(errors="replace") or "it ended before it had begun")
