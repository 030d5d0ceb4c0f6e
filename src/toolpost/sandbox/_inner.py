"""What runs first inside a sandbox that was started ahead: it waits for a program and starts it.

Above: ``warm.py`` holds the other end of the socket. Below: the kernel, seen from inside; nothing
here is trusted any more. It imports only what is quick to import.

What comes after the order is waited for by somebody, what comes before is not: so all that can be
is done before, and once for practice, since whatever runs for the first time is slow.

Where the tool may reach a host, a fork of it stays behind as the relay: it listens on loopback, the
only network there is, and carries every connection to the proxy outside through a unix socket.
"""

from __future__ import annotations

import _ctypes
import array
import contextlib
import errno
import fcntl
import marshal
import os
import resource
import selectors  # which ``socket`` has imported already
import signal
import socket
import sys

HIGH = 200
CHUNK, ORDER = 65536, 4096
SPACE = socket.CMSG_SPACE(64 * array.array("i").itemsize)
SIGNALS = tuple(map(int, signal.valid_signals()))
PRACTICE, NOWHERE = "/usr/bin/true", "/nowhere"
SHELL = "/bin/sh"
PR_SET_DUMPABLE = 4
TURN = 16
"""Pieces that a connection passes on before it is another's turn."""
SPARE = 16
"""Descriptors of the relay that are no connections."""


def main(arguments: list[str]) -> None:
    """The socket, how many processes there may be (0 where others count), whether there are none
    but ours, and the way out.
    """
    close_to_others()
    talk = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(talk.fileno(), False)
    if processes := int(arguments[1]):
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    alone = bool(arguments[2])
    practise(alone=alone)
    if arguments[3]:
        start_relay(arguments[3], int(arguments[4]), talk)
    talk.send(b"+")
    status = serve(talk, alone=alone)
    if alone:  # else it is by its end that the keeper sees what is left
        rest(talk)
    os._exit(status)


def close_to_others() -> None:
    """The tool is of the same user: it shall not write into this memory, nor take a descriptor from
    here, and tell of an end that was none. Without the package around ``_ctypes``, which takes many
    times as long to import.
    """
    here = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # as ctypes does
    prctl = _ctypes.dlsym(here, "prctl")
    if _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0)) != 0:
        raise PermissionError("this process cannot be closed to others")


def practise(*, alone: bool) -> None:
    """The whole way once, and most of it a few times, with nobody waiting at the other end."""
    near, far = socket.socketpair()
    null = os.open("/dev/null", os.O_RDONLY)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null]))]
    for program in (NOWHERE, NOWHERE, NOWHERE, NOWHERE, PRACTICE):
        order = marshal.dumps(([program], {}, "/", [0]), 2)
        near.sendmsg([len(order).to_bytes(4, "little") + order], rights)
        serve(far, alone=alone)
    close([near.detach(), far.detach(), null])


def serve(talk: socket.socket, *, alone: bool) -> int:
    """Hear what to start, start it, and say how it ended; the status to end with."""
    (argv, env, folder, targets), received = hear(talk)
    entered = False
    try:
        os.chdir(folder)
        entered = True
        placing = placed(received, targets) if received else []
        tool = start(argv[0], argv, env, placing) if "/" in argv[0] else find(argv, env, placing)
    except Exception as error:  # whatever it is: who sent the order waits to hear of it
        number = getattr(error, "errno", None) or errno.EINVAL
        talk.send(b"failed %d %d\n" % (number, not entered))
        close(received)
        return 126
    talk.send(b"started\n")
    close(received)  # or the tool's end of one would never be seen as closed
    return watch(talk, tool, alone=alone)


def close(numbers: list[int]) -> None:
    for number in numbers:
        os.close(number)


def start(
    program: str, argv: list[str], env: dict[str, str], placing: list[tuple[int, int, int]]
) -> int:
    """Without a copy of this process: that costs less."""
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=placing,
            setpgroup=0,  # a session of its own would cost more, and nothing has a terminal
            setsigdef=SIGNALS,  # some are ignored by Python; to ask for the others would cost more
        )
    except OSError as error:
        if error.errno != errno.ENOEXEC or program == SHELL:
            raise
    return start(SHELL, [SHELL, program, *argv[1:]], env, placing)  # as ``execvp`` does


def find(argv: list[str], env: dict[str, str], placing: list[tuple[int, int, int]]) -> int:
    """As ``execvpe`` looks for it."""
    fault: OSError = FileNotFoundError(errno.ENOENT, argv[0])
    for folder in env.get("PATH", os.defpath).split(":"):
        program = f"{folder or '.'}/{argv[0]}"
        if not os.access(program, os.F_OK):  # to see that costs less than to try
            continue
        try:
            return start(program, argv, env, placing)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            fault = error
    raise fault


def placed(received: list[int], targets: list[int]) -> list[tuple[int, int, int]]:
    """What gives the tool its descriptors the numbers it is to have."""
    if not set(received).isdisjoint(targets):  # first all out of each other's way
        for place, number in enumerate(received):
            received[place] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH)
            os.close(number)
    pairs = zip(received, targets, strict=True)
    return [(os.POSIX_SPAWN_DUP2, number, target) for number, target in pairs]


def watch(talk: socket.socket, tool: int, *, alone: bool) -> int:
    """Say how it ended; nobody inside outlives it for long. Among the processes of the host it is
    the keeper that sees to that: here, all would be killed that can be.
    """
    _, status, usage = os.wait4(tool, 0)
    try:  # noqa: SIM105 - this is waited for
        talk.send(b"exit %d %d\n" % (status, usage.ru_maxrss))
    except OSError:
        pass  # nobody hears it
    if alone:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)  # there is nobody left, most of the time
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def rest(talk: socket.socket) -> None:
    """Until who was told has heard it, or is gone. To end takes long, and would be done first where
    both have the same processor.
    """
    with contextlib.suppress(OSError):
        talk.recv(1)


def hear(talk: socket.socket) -> tuple[tuple[list[str], dict[str, str], str, list[int]], list[int]]:
    """The order, behind a length that nobody needs here, and the descriptors that came with it."""
    content, control, _, _ = talk.recvmsg(ORDER, SPACE, socket.MSG_CMSG_CLOEXEC)
    received = array.array("i")
    for _, _, data in control:
        received.frombytes(data)
    while True:
        try:
            return marshal.loads(content[4:]), received.tolist()
        except EOFError:  # a long one
            part = talk.recv(CHUNK)
        if not part:
            os._exit(0)
        content += part


def start_relay(path: str, port: int, talk: socket.socket) -> None:
    """Listen before anybody could want to connect."""
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        talk.close()
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        Relay(listener, path).run()
    listener.close()


class End:
    """One of the two sockets of a connection, and what it has not yet taken of what is for it."""

    __slots__ = ("events", "left", "other", "over", "socket")
    other: End

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.left = b""
        self.over = False  # nothing comes from it any more
        self.events = 0

    def pass_on(self) -> None:
        """Some of what comes from here, as far as the other takes it; an end is passed on too."""
        other = self.other
        try:
            for _ in range(TURN):
                if not other.left:
                    other.left = self.socket.recv(CHUNK)
                    self.over = not other.left
                if self.over:
                    break
                other.left = other.left[other.socket.send(other.left) :]
        except BlockingIOError:
            return
        except (OSError, MemoryError):
            self.over, other.left = True, b""
        if self.over:
            with contextlib.suppress(OSError):
                other.socket.shutdown(socket.SHUT_WR)


class Relay:
    """Carries bytes both ways, for every connection, until the sandbox ends. All in one thread:
    others would count as processes of the tool.
    """

    def __init__(self, listener: socket.socket, path: str) -> None:
        listener.setblocking(False)
        self.path = path
        self.room = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE) // 2
        self.poll = selectors.DefaultSelector()
        self.poll.register(listener, selectors.EVENT_READ, listener)

    def run(self) -> None:
        while True:
            for key, events in self.poll.select():
                if isinstance(key.data, End):
                    self.attend(key.data, events)
                else:
                    with contextlib.suppress(OSError):  # who knocked has left
                        self.admit(key.data)

    def admit(self, listener: socket.socket) -> None:
        """To the proxy; where that cannot be, or there are too many, hang up."""
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        if not self.room or far.connect_ex(self.path):  # where it waits, the proxy does nothing
            close([near.detach(), far.detach()])
            return
        self.room -= 1
        one, other = End(near), End(far)
        one.other, other.other = other, one
        self.heed(one)
        self.heed(other)

    def attend(self, end: End, events: int) -> None:
        events &= end.events  # others of the same moment may have changed it
        if events & selectors.EVENT_READ:
            end.pass_on()
        if events & selectors.EVENT_WRITE:
            end.other.pass_on()
        self.heed(end)
        self.heed(end.other)
        if events and end.over and end.other.over:
            close([end.socket.detach(), end.other.socket.detach()])
            self.room += 1

    def heed(self, end: End) -> None:
        """No more is read than the other has taken; what nobody waits for is not told."""
        reads = selectors.EVENT_READ * (not end.over and not end.other.left)
        events = reads | selectors.EVENT_WRITE * bool(end.left)
        if events == end.events:
            return
        if end.events:
            self.poll.unregister(end.socket)
        if events:
            self.poll.register(end.socket, events, end)
        end.events = events


if __name__ == "__main__":
    main(sys.argv[1:])
