"""Tools for the sandbox's tests: each tries one thing and says how it went. Nothing is destroyed,
not even by those that get there, and what takes resources stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Annotated, Any

from toolpost import Call, Secret, tool

served = 0


def add(a: int, b: int) -> int:
    return a + b


async def add_slowly(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def serve() -> int:
    global served
    served += 1
    return served


def read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        return f"{type(error).__name__}"


def listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def write(path: str, text: str) -> str:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        return f"{type(error).__name__}"
    return "written"


def connect(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), 5):
            return "connected"
    except OSError:
        return "not connected"


def fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())
    except OSError as error:
        return f"refused: {error}"


def environment() -> dict[str, str]:
    return dict(os.environ)


def who() -> dict[str, Any]:
    return {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "prefix": sys.prefix,
        "path": [p for p in sys.path if os.path.exists(p)],
    }


def packages() -> str:
    """What another interpreter, started from inside, finds of our packages."""
    program = "import msgspec; print(msgspec.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout.strip()


@tool(isolation="sandbox", timeout=30)
def told_secret(key: Annotated[str, Secret("CONFINED_SECRET")]) -> int:
    """Tell how long it is."""
    return len(key)


def keep_a_file(name: str) -> list[str]:
    """What was there, and then one more."""
    before = sorted(os.listdir(tempfile.gettempdir()))
    Path(tempfile.gettempdir(), name).write_text("kept")
    return before


def lock_out() -> int:
    os.chmod("/tmp", 0)
    return os.getpid()


def report_and_wait(call: Call) -> None:
    call.progress(0)
    threading.Event().wait()


def fork_without_end(most: int) -> int:
    """How many processes could be started, beyond this one."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        while len(children) < most:
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children)


def fork_too_often() -> None:
    for _ in range(50):
        if os.fork() == 0:
            signal.pause()


def start_too_many_programs() -> None:
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(50)]
    raise AssertionError(started)


def start_too_many_threads() -> None:
    never = threading.Event()
    for _ in range(50):
        threading.Thread(target=never.wait, daemon=True).start()


def read_what_is_not_there_yet() -> bytes:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        return near.recv(1)


def be_killed() -> None:
    kept = bytearray(b"x") * (64 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(len(kept))


def map_memory() -> None:
    for piece in [mmap.mmap(-1, 1 << 26, flags=mmap.MAP_PRIVATE) for _ in range(10)]:
        piece.write(bytes(1 << 26))


def take_memory(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


def take_memory_with_children(children: int, megabytes: int) -> int:
    """How many children could hold so much at once."""
    program = (
        f"import sys, signal; kept = bytearray(b'x') * ({megabytes} << 20); "
        "print('held', flush=True); signal.pause()"
    )
    started = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE)
        for _ in range(children)
    ]
    held = 0
    for child in started:
        assert child.stdout is not None
        held += child.stdout.readline() == b"held\n"
    alive = sum(child.poll() is None for child in started)
    for child in started:
        child.kill()
        child.wait()
    return min(held, alive)


def print_without_end(call: Call, gigabytes: int) -> str:
    piece = "x" * (1 << 20)
    for _ in range(gigabytes << 10):
        sys.stdout.write(piece)
    return "printed"


def large(megabytes: int) -> str:
    return "x" * (megabytes << 20)


def fill(folder: str, files: int, size: int) -> str:
    """So many files of so many bytes."""
    data = os.urandom(size)
    for number in range(files):
        Path(folder, str(number)).write_bytes(data)
    return "done"
