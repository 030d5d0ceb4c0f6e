"""Python processes of their own that start in a fifth of the time: each is forked from one that has
imported what others wrote (asyncio, click, rich, yaml …), and nothing of ours.

``run`` is ``subprocess.run`` for a module of the package, or for a program given as text. What is
forked has its own folder, environment, descriptors and end; our modules it imports itself, each
time. Whatever Python reads from the environment when it starts (``PYTHON…``, the language) makes
another process to fork from. For what looks at process groups, signals or limits, start Python.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

FOREIGN = (
    "asyncio", "click", "click.shell_completion", "concurrent.futures.thread", "csv", "ctypes",
    "cryptography.hazmat.primitives.asymmetric.ed25519", "fractions", "importlib.metadata",
    "importlib.resources", "ipaddress", "jsonschema_rs", "msgspec", "nacl.bindings",
    "opentelemetry.trace", "opentelemetry.trace.propagation.tracecontext", "pickle",
    "platform", "resource", "rich.console", "rich.table", "secrets", "shutil", "sqlite3",
    "ssl", "subprocess", "tempfile", "tomllib", "typing_extensions", "unicodedata", "uuid",
    "yaml", "zipfile",
)  # fmt: skip
_STARTING = ("PYTHON", "LC_", "LANG", "TZ")
_MOST = 1 << 20
_started: dict[tuple[tuple[str, str], ...], _Parent] = {}
_lock = Lock()


def run(
    words: Sequence[str] = (),
    *,
    module: str | None = None,
    program: str | None = None,
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = "",
    timeout: float = 60,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """``python -m module words``, or ``python - words`` for a program. ``together``: what goes to
    standard error is in ``stdout``.
    """
    with _lock:
        key = tuple(sorted((k, v) for k, v in env.items() if k.startswith(_STARTING)))
        if key not in _started:
            _started[key] = _Parent(dict(key))
        parent = _started[key]
    asked = {"words": list(words), "module": module, "program": program, "cwd": str(cwd)}
    return parent.run({**asked, "env": dict(env)}, stdin, timeout, together=together)


class _Parent:
    """The process that is forked from, seen by who wants a fork."""

    def __init__(self, env: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        self._control = ours
        with (
            theirs,
            subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={"PATH": os.environ["PATH"], **env},
                stdin=subprocess.PIPE,  # what Python makes of it stays with what is forked
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as started,
        ):  # it is nobody's child, for tests count theirs, and ends when we are gone
            for pipe in (started.stdin, started.stdout, started.stderr):
                assert pipe is not None
                pipe.close()
        atexit.register(ours.close)

    def run(
        self, asked: dict[str, Any], stdin: str, timeout: float, *, together: bool
    ) -> subprocess.CompletedProcess[str]:
        pipes = [os.pipe() for _ in range(4)]
        (read_in, write_in), (read_out, write_out), (read_err, write_err), (told, tell) = pipes
        given = [read_in, write_out, write_out if together else write_err, tell]
        try:
            socket.send_fds(self._control, [json.dumps(asked).encode()], given)
        finally:
            for fd in {read_in, write_out, write_err, tell}:
                os.close(fd)
        words = [asked["module"] or "-", *asked["words"]]
        out, err, said = _spoken(write_in, stdin.encode(), (read_out, read_err, told), timeout)
        if said is None:
            raise subprocess.TimeoutExpired(words, timeout, out)
        return subprocess.CompletedProcess(words, int(said), _text(out), _text(err))


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


def _spoken(
    to: int, text: bytes, sources: tuple[int, int, int], timeout: float
) -> tuple[bytes, bytes, bytes | None]:
    """What comes from the three until all have ended, while the text is written."""
    heard = dict.fromkeys(sources, b"")
    ends, left = time.monotonic() + timeout, text
    os.set_blocking(to, False)
    with selectors.DefaultSelector() as selector:
        selector.register(to, selectors.EVENT_WRITE)
        for fd in sources:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, ends - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                fd = key.fd
                if fd == to:
                    try:
                        left = left[os.write(to, left) :] if left else left
                    except BrokenPipeError:
                        left = b""
                    if left:
                        continue
                elif data := os.read(fd, 65536):
                    heard[fd] += data
                    continue
                selector.unregister(fd)
                os.close(fd)
        over = not selector.get_map()
        for fd in [*selector.get_map()]:
            os.close(fd)
    pid, _, said = heard[sources[2]].partition(b" ")
    if not over and pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    return heard[sources[0]], heard[sources[1]], said if over and said else None


# --- the process that is forked from -------------------------------------------------------------


def serve(control: socket.socket) -> dict[str, Any]:
    """Forks for everybody who asks; returns in what was forked, with what was asked."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    pid, tell = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(pid, 0)
                    with contextlib.suppress(BrokenPipeError):
                        os.write(tell, b"%d" % os.waitstatus_to_exitcode(status))
                    os.close(tell)
                    continue
                message, fds, _, _ = socket.recv_fds(control, _MOST, 4)
                if not message:
                    os._exit(0)
                if (pid := os.fork()) == 0:
                    for fd in running:
                        os.close(fd)
                    for _, tell in running.values():
                        os.close(tell)
                    return {**json.loads(message), "fds": fds}
                os.write(fds[3], b"%d " % pid)
                for fd in fds[:3]:
                    with contextlib.suppress(OSError):  # two of them may be one
                        os.close(fd)
                handle = os.pidfd_open(pid)
                running[handle] = pid, fds[3]
                selector.register(handle, selectors.EVENT_READ)


def become(control: socket.socket, asked: dict[str, Any]) -> None:
    """What was asked for, as Python does it that was started for it."""
    control.close()
    for number, fd in enumerate(asked["fds"][:3]):
        os.dup2(fd, number)
    for fd in {*asked["fds"]}:
        os.close(fd)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    if asked["module"] is not None:
        sys.path[0] = asked["cwd"]
        sys.argv = ["-m", *asked["words"]]
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = ""
    sys.argv = ["-", *asked["words"]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(asked["program"], "<stdin>", "exec"), main.__dict__)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    for name in FOREIGN:
        with contextlib.suppress(Exception):  # whoever needs it will see why
            importlib.import_module(name)
    gc.freeze()  # what is collected here would be copied for it
    _control = socket.socket(fileno=int(sys.argv[1]))
    become(_control, serve(_control))
