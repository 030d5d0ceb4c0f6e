"""Processes that share a store, run into a full disk or are killed: run by the tests as children.

``python -m tests.stores.children full FOLDER tmpfs|limit`` and so on; each prints what it saw as
JSON. Sharing processes are forked from one that has imported everything: that takes milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from toolpost.contracts import Line, Store
from toolpost.errors import Unavailable
from toolpost.stores.lazy import LazyStore
from toolpost.stores.sqlite import SqliteStore

LIMIT = 60


def forked(body: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """A child that runs ``body`` and nothing else."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            asyncio.run(asyncio.wait_for(body(), LIMIT))
            status = 0
        finally:
            os._exit(status)
    return pid


def full(folder: Path, how: str) -> dict[str, Any]:
    """Write until nothing goes any more, then make room."""
    folder.mkdir(exist_ok=True)
    ballast = folder / "ballast"
    if how == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
        ballast.write_bytes(b"\0" * 1_000_000)

    def squeeze() -> None:
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))

    def relieve() -> None:
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        else:
            ballast.unlink()

    return asyncio.run(_full(folder / "store.db", squeeze, relieve))


async def _full(
    path: Path, squeeze: Callable[[], None], relieve: Callable[[], None]
) -> dict[str, Any]:
    store = LazyStore(SqliteStore(path))
    await store.open()
    squeeze()
    kept: list[int] = []
    errors: set[str] = set()
    number = 0
    while len(errors) == 0 or number % 10:
        number += 1
        try:
            await store.append([Line("w", number, b"%d" % number * 20_000)])
        except Unavailable as error:
            errors.add(error.message)
        else:
            kept.append(number)
    readable = len(await store.read(writer="w", limit=10_000))
    health = [msgspec.to_builtins(await store.health())]
    relieve()
    health.append(msgspec.to_builtins(await store.health()))
    number += 1
    await store.append([Line("w", number, b"%d" % number * 20_000)])
    kept.append(number)
    await store.close()
    with sqlite3.connect(path) as raw:
        sound = raw.execute("PRAGMA integrity_check").fetchone()[0]
        found = raw.execute("SELECT number, body FROM journal ORDER BY position").fetchall()
    raw.close()
    return {
        "kept": kept,
        "readable": readable,
        "health": health,
        "errors": sorted(errors),
        "sound": sound,
        "found": [number for number, _ in found],
        "torn": [number for number, body in found if body != b"%d" % number * 20_000],
    }


def race(folder: Path, processes: str, rounds: str) -> dict[str, Any]:
    """Everybody counts one record up, and writes a line about each time it won."""

    async def count(name: str) -> None:
        store = SqliteStore(folder / "state" / "store.db", patience=30)
        await store.open()
        for number in range(1, int(rounds) + 1):
            while True:
                there = await store.get("race", "k")
                value, version = (there.value, there.version) if there else (0, 0)
                if await store.put("race", "k", value + 1, version=version) is not None:
                    break
            await store.append([Line(name, number, b"%d" % (value + 1))])
        await store.close()

    pids = [forked(lambda name=name: count(f"p{name}")) for name in range(int(processes))]
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]

    async def look() -> dict[str, Any]:
        store = SqliteStore(folder / "state" / "store.db")
        await store.open()
        record = await store.get("race", "k")
        lines = await store.read(limit=100_000)
        await store.close()
        return {
            "failed": len(failed),
            "value": record.value if record else None,
            "won": sorted(int(line.body) for line in lines),
        }

    return asyncio.run(look())


def crash(folder: Path, times: str) -> dict[str, Any]:
    """Kill a process that is always in the middle of writing, again and again."""
    path = folder / "store.db"
    lost, unsound, told, unclean = [], [], 0, 0
    chance = random.Random(1)
    for round_ in range(int(times)):
        receiving, sending = os.pipe()

        async def write(round_: int = round_, sending: int = sending) -> None:
            store = SqliteStore(path)
            await store.open()
            await asyncio.gather(*(_write_on(store, f"{round_}-{i}", sending) for i in range(4)))

        pid = forked(write)
        os.close(sending)
        with os.fdopen(receiving) as pipe:
            heard = [pipe.readline().split() for _ in range(chance.randrange(1, 60))]
            os.kill(pid, signal.SIGKILL)
            heard += [line.split() for line in pipe.read().splitlines()]
        os.waitpid(pid, 0)
        unclean += Path(f"{path}-wal").stat().st_size > 0
        told += len(heard)
        raw = sqlite3.connect(path)
        there = set(raw.execute("SELECT writer, number FROM journal"))
        records = dict(raw.execute("SELECT key, value FROM records WHERE space = 'crash'"))
        torn = raw.execute(
            "SELECT 1 FROM journal WHERE body != CAST(writer || ':' || number AS BLOB)"
        )
        lost += [w for w in heard if (w[0], int(w[1])) not in there or w[0] not in records]
        if raw.execute("PRAGMA integrity_check").fetchone()[0] != "ok" or torn.fetchone():
            unsound.append(round_)
        raw.close()
    return {"told": told, "lost": lost, "unsound": unsound, "unclean": unclean}


async def _write_on(store: Store, writer: str, sending: int) -> None:
    number = 0
    while True:
        number += 1
        body = f"{writer}:{number}".encode()
        await asyncio.gather(
            store.append([Line(writer, number, body)]), store.put("crash", writer, number)
        )
        os.write(sending, b"%s %d\n" % (writer.encode(), number))


def read_only(folder: Path, log: str) -> dict[str, Any]:
    """Two lines, then no more writing."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
    path = folder / "store.db"
    os.waitpid(forked(lambda: _two_lines(path, close=log == "gone")), 0)
    if log == "alone":
        Path(f"{path}-shm").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    return asyncio.run(_read_only(path))


async def _two_lines(path: Path, *, close: bool) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.append([Line("w", 1, b"one"), Line("w", 2, b"two")])
    if close:
        await store.close()
    else:
        os._exit(0)  # with the log still there


async def _read_only(path: Path) -> dict[str, Any]:
    store = LazyStore(SqliteStore(path))
    try:
        closed = await store.open_to_read()
    except Unavailable as refused:
        return {"closed": refused.message, "found": None}
    found = [line.number for line in await store.read()]
    await store.close()
    return {"closed": closed, "found": found}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])))
