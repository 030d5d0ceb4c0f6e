"""Tools for the worker's tests: the good, the bad and the stubborn."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolpost import Call

served = 0
kept: list[bytes] = []


def add(a: int, b: int) -> int:
    return a + b


async def add_slowly(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def echo(value: Any) -> Any:
    return value


def serve() -> int:
    """How many calls this very process has served."""
    global served
    served += 1
    return served


def modules() -> list[str]:
    return sorted(sys.modules)


def environment() -> dict[str, str]:
    return dict(os.environ)


def not_json() -> object:
    return {1, 2}


def not_a_number() -> float:
    return float("nan")


def large(size: int) -> str:
    return "x" * size


def fail() -> None:
    raise RuntimeError("the secret is in the cellar")


def leave() -> None:
    sys.exit(3)


def refuse() -> None:
    from toolpost.errors import RateLimited

    raise RateLimited("Come back later.", retry_after=3.5, details={"left": 0})


def hog() -> int:
    kept.append(bytes(1 << 31))
    return len(kept)


def grow(size: int) -> int:
    kept.append(os.urandom(size))
    return serve()


def die(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


def answer_from_fifo(path: str) -> str:
    """Blocks this whole process until somebody writes."""
    return Path(path).read_text()


def talk() -> str:
    print("by print")
    print("to stderr", file=sys.stderr)
    os.write(1, b"by descriptor\n")
    subprocess.run(["sh", "-c", "echo by child"], check=True)
    logging.getLogger("my.tool").warning("by %s", "logging")
    print("no newline", end="")
    return "done"


def flood() -> str:
    for _ in range(2000):
        logging.getLogger("my.tool").warning("x" * 100)
        print("y" * 10_000)
    return "done"


def report(call: Call) -> dict[str, Any]:
    call.progress(1, 2, "half")
    call.partial("first piece")
    call.warn("mind the gap")
    call.progress(2, 2)
    return {
        "call_id": call.call_id,
        "session_id": call.session_id,
        "caller": call.caller.id,
        "admin": call.caller.roles == {"admin"},
        "spec": call.spec.name,
        "dry_run": call.dry_run,
        "phase": call.phase,
        "working_dir": call.working_dir,
        "metadata": dict(call.metadata),
        "cancelled": call.cancelled,
    }


def drown_in_parts(call: Call) -> None:
    while True:
        call.partial("x" * 100_000)


class Wrapped:
    """As a tool object of ours is: the plain function is its ``function``."""

    def __init__(self, function: Any) -> None:
        self.function = function


wrapped = Wrapped(add)
nothing = 3


# The stubborn ones: each says when it is under way, then would write a file much later.


def sleep_then_write(call: Call, path: str, seconds: float) -> None:
    call.progress(0)
    time.sleep(seconds)
    Path(path).write_text("written")


async def await_then_write(call: Call, path: str, seconds: float) -> None:
    call.progress(0)
    await asyncio.sleep(seconds)
    Path(path).write_text("written")


def blocked_in_c(call: Call, path: str, seconds: float) -> None:
    call.progress(0)
    ctypes.PyDLL(None).sleep(int(seconds))  # holds the interpreter lock
    Path(path).write_text("written")


def blocked_in_regex(call: Call, path: str, seconds: float) -> None:
    call.progress(0)
    re.match(r"(a+)+$", "a" * 60 + "b")
    Path(path).write_text("written")


def swallows_everything(call: Call, path: str, seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    call.progress(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:  # noqa: SIM105 - as people write it
            time.sleep(0.1)
        except BaseException:
            pass
    Path(path).write_text("written")


@contextmanager
def detached() -> Iterator[bool]:
    """Double fork and setsid: True in the grandchild; back here when it is on its own."""
    ready, tell = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, b"+")
            yield True
        os._exit(0)
    os.waitpid(first, 0)
    os.read(ready, 1)
    yield False


def daemonises(call: Call, path: str, seconds: float) -> None:
    with detached() as grandchild:
        if grandchild:
            time.sleep(seconds)
            Path(path).write_text("written")
    call.progress(0)
    time.sleep(seconds)


def multiprocesses(call: Call, path: str, seconds: float) -> None:
    started = multiprocessing.Event()
    child = multiprocessing.Process(target=_write_later, args=(started, path, seconds))
    child.start()
    started.wait()
    call.progress(0)
    child.join()


def _write_later(started: Any, path: str, seconds: float) -> None:
    started.set()
    time.sleep(seconds)
    Path(path).write_text("written")


def leaves_a_daemon(mark: str) -> str:
    script = f"echo; exec sleep 1000 # {mark}"
    child = subprocess.Popen(
        ["setsid", "sh", "-c", f"(sh -c 'echo; sleep 1000; : {mark}') & {script}"],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.readline()
    return "left"


def forks_and_comes_back(value: str) -> str:
    """A careless fork: the child returns from the tool as well."""
    child = os.fork()
    if child == 0:
        return "from the child"
    os.waitpid(child, 0)
    return value


def leaves_a_thread(path: str, call: Call) -> str:
    """The thread goes on reporting about a call that is over."""

    def go_on() -> None:
        Path(path).read_text()
        call.progress(99, 99)

    threading.Thread(target=go_on, daemon=True).start()
    return "left"


def _wire() -> socket.socket:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
    raise LookupError("no socket")


def speaks_garbage(how: str) -> None:
    bodies = {
        "text": b"hello",
        "wrong shape": b'{"a":1}',
        "wrong kind": b'[1,"hullo",null]',
        "wrong number": b'[77,"ok",null]',
        "two values": b'[2,"ok",1][2,"ok",2]',
        "not a number": b'[2,"ok",NaN]',
        "not utf-8": b'[2,"ok","\xff"]',
        "strange event": b'[2,"event",{"type":"x"}]',
        "deep": b'[2,"ok",' + b"[" * 5000 + b"]" * 5000 + b"]",
    }
    _wire().sendall(len(bodies[how]).to_bytes(4, "big") + bodies[how])
    time.sleep(1000)


def claims_a_gigabyte() -> None:
    _wire().sendall((1 << 30).to_bytes(4, "big") + b"x" * 1000)
    time.sleep(1000)


def hangs_up() -> None:
    _wire().shutdown(socket.SHUT_RDWR)
    time.sleep(1000)


def split_frame() -> None:
    """Answers in person, byte by byte, and then dies."""
    body = json.dumps([2, "ok", "in pieces"]).encode()
    wire = _wire()
    for byte in len(body).to_bytes(4, "big") + body:
        wire.send(bytes([byte]))
    os._exit(0)


def answers_after_events(count: int) -> None:
    """Events and the answer by hand, many at once, and death right behind them."""
    event = json.dumps([2, "event", {"type": "partial", "output": "x" * 8000}]).encode()
    answer = json.dumps([2, "ok", "after the events"]).encode()
    frames = b"".join(len(body).to_bytes(4, "big") + body for body in [*[event] * count, answer])
    wire = _wire()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    wire.sendall(frames)
    os._exit(0)


def logs_by_hand(count: int) -> None:
    """Log more than the worker's own side would pass on."""
    event = json.dumps([2, "event", {"type": "log", "level": "info", "text": "x"}]).encode()
    _wire().sendall((len(event).to_bytes(4, "big") + event) * count)


def answers_by_hand(content: Any, kind: str) -> None:
    """An answer to this very call that the worker's own side would never give."""
    body = json.dumps([2, kind, content]).encode()
    _wire().sendall(len(body).to_bytes(4, "big") + body)
    time.sleep(1000)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def fails_without_words() -> None:
    raise Unspeakable


def refuses_with_odd_details() -> None:
    from toolpost.errors import RateLimited

    raise RateLimited("Come back later.", details={"left": object()})


def closes_its_output() -> int:
    sys.stdout.close()
    return serve()


def logs_what_cannot_be_formatted() -> int:
    logging.getLogger("my.tool").warning("%d", "not a number")
    logging.getLogger("my.tool").warning("and on it goes")
    return serve()


def logs_in_a_fork() -> str:
    child = os.fork()
    if child == 0:
        logging.getLogger("my.tool").warning("from the child")
        os._exit(0)
    os.waitpid(child, 0)
    logging.getLogger("my.tool").warning("from the parent")
    return "done"


def loses_its_folder(path: str) -> int:
    os.mkdir(path)
    os.chdir(path)
    os.rmdir(path)
    return serve()


cancelled: list[str] = []


async def leaves_a_task() -> list[str]:
    """What the tasks of earlier calls have come to."""

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("cancelled")

    begun = list(cancelled)
    task = asyncio.create_task(forever())
    await asyncio.sleep(0)
    assert not task.done()
    return begun


def grow_and_die(size: int) -> None:
    kept.append(b"x" * size)
    die("kill")


def squares(method: str) -> list[int]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(_square, [1, 2, 3])


def _square(number: int) -> int:
    return number * number


def where_am_i() -> list[str]:
    """The folder and the environment; and changes both."""
    seen = [os.getcwd(), os.environ.get("LEFT", "")]
    os.chdir("/")
    os.environ["LEFT"] = "behind"
    return seen
