"""What runs first inside a sandbox that was started ahead: it waits for a program and starts it.

Above: ``warm.py`` holds the other end of the socket. Below: the kernel, seen from inside; nothing
here is trusted any more. It imports only what is quick to import.

Where the tool may reach a host, a fork of it stays behind as the relay: it listens on loopback, the
only network there is, and carries every connection to the proxy outside through a unix socket.
"""

from __future__ import annotations

import _thread
import array
import contextlib
import errno
import fcntl
import marshal
import os
import resource
import signal
import socket
import sys

HIGH = 200
CHUNK = 65536
OWN = 3
"""Processes inside that are not the tool's: pid 1, this one and the relay."""


def main(arguments: list[str]) -> None:
    talk = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(talk.fileno(), False)
    if arguments[2]:
        start_relay(arguments[2], int(arguments[3]), talk)
    talk.send(b"+")
    (argv, env, folder, targets), received = hear(talk)
    try:
        place(received, targets)
        os.chdir(folder)
        processes = int(arguments[1]) + OWN
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        tool = start(argv, env)
    except OSError as error:
        talk.send(b"failed %d" % (error.errno or errno.EINVAL))
        os._exit(126)
    talk.send(b"started")
    let_go(targets)
    watch(talk, tool)


def start(argv: list[str], env: dict[str, str]) -> int:
    """As ``execvpe`` looks for it, but without a copy of this process: that costs less."""
    folders = [""] if "/" in argv[0] else env.get("PATH", os.defpath).split(":")
    fault: OSError = FileNotFoundError(errno.ENOENT, argv[0])
    for folder in folders:
        try:
            return os.posix_spawn(
                f"{folder}/{argv[0]}" if folder else argv[0],
                argv,
                env,
                setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, tools do not
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            fault = error
    raise fault


def let_go(targets: list[int]) -> None:
    """Drop what is the tool's alone, or its end would never be seen as closed."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for number in {null, *targets} - {0, 1, 2}:
        os.close(number)


def watch(talk: socket.socket, tool: int) -> None:
    """Say how it ended, and end the same way; pid 1 reaps the others."""
    _, status, usage = os.wait4(tool, 0)
    with contextlib.suppress(OSError):
        talk.send(b"exit %d %d" % (status, usage.ru_maxrss))
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def hear(talk: socket.socket) -> tuple[tuple[list[str], dict[str, str], str, list[int]], list[int]]:
    numbers = array.array("i")
    head, control, _, _ = talk.recvmsg(4, socket.CMSG_SPACE(64 * numbers.itemsize))
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    missing = int.from_bytes(head, "little")
    content = b""
    while len(content) < missing:
        part = talk.recv(missing - len(content))
        if not part:
            break
        content += part
    if not content or len(content) < missing:
        os._exit(0)
    return marshal.loads(content), list(numbers)


def place(received: list[int], targets: list[int]) -> None:
    above = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, HIGH) for number in received]
    for number in received:
        os.close(number)
    for number, target in zip(above, targets, strict=True):
        os.dup2(number, target)
        os.close(number)


def start_relay(path: str, port: int, talk: socket.socket) -> None:
    """Listen before anybody could want to connect."""
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        talk.close()
        null = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        relay(listener, path)
    listener.close()


def relay(listener: socket.socket, path: str) -> None:
    """Carry bytes both ways, for every connection, until the sandbox ends."""
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError, RuntimeError):  # no proxy, or no more threads: hang up
            far.connect(path)
            _thread.start_new_thread(carry, (near, far))
            _thread.start_new_thread(carry, (far, near))


def carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1:])
