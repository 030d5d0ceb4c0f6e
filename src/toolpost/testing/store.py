"""What a store promises, held against whatever keeps records and lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

from toolpost.contracts import Line, Prunes, Record, Store
from toolpost.errors import CallError, Conflict
from toolpost.testing.report import NotApplicable, Report, must, reported

_VALUES: Final[tuple[Any, ...]] = (
    0,
    False,
    "",
    [],
    {},
    2**70,
    -0.5,
    "\0 and \U0010ffff",
    {"a": [None, {"": 1}]},
)
_KEYS: Final = ("a", "a/1", "a/10", "a/2", "a/\ue000", "a/\U0010ffff", "a/\U0010ffffz", "b", "é")
"""In the order of a scan: that of the characters' numbers."""


async def check_store(make: Callable[[], Store]) -> Report:
    """Hold a store against its socket. ``make`` gives another handle on the same store each time.

    A store that lives in one process gives itself again. What is there already is left alone, and
    what is tried stays there, in spaces and under writers with names of their own.
    """
    bench = _Store(make)
    checks = {
        "versions": bench.versions,
        "deletion": bench.deletion,
        "values": bench.values,
        "time to live": bench.ttl,
        "scan": bench.scan,
        "keys": bench.keys,
        "journal": bench.journal,
        "repeated lines": bench.repeated_lines,
        "pruning": bench.pruning,
        "one winner": bench.one_winner,
        "concurrency": bench.concurrency,
        "second handle": bench.second_handle,
        "reopening": bench.reopening,
    }
    return await reported(type(make()).__name__, checks)


class _Store:
    def __init__(self, make: Callable[[], Store]) -> None:
        self.make = make

    async def versions(self) -> str:
        async with self._open() as store:
            space = _name()
            must(await store.get(space, "k") is None, "what was never put is there")
            must(await store.put(space, "k", 1, version=7) is None, "nothing is replaced")
            first = await store.put(space, "k", 1, version=0)
            must(bool(first), "creating gives no version")
            must(await store.put(space, "k", 2, version=0) is None, "it is created twice")
            second = await store.put(space, "k", 2, version=first)
            must(second not in (None, first), "replacing gives no new version")
            must(await store.put(space, "k", 3, version=first) is None, "an old version wins")
            must(await store.get(space, "k") == Record(2, second or 0), "get gives something else")
            third = await store.put(space, "k", 3)
            must(third not in (None, first, second), "writing in any case gives no new version")
            must(await store.get(space, "k") == Record(3, third or 0), "it was not written")
            must(await store.get(_name(), "k") is None, "spaces are not apart")
        return "only who knows the version replaces"

    async def deletion(self) -> str:
        async with self._open() as store:
            space = _name()
            first = await store.put(space, "k", 1)
            must(await store.put(space, "k", None, version=0) is None, "0 deletes what is there")
            gone = await store.put(space, "k", None, version=first)
            must(bool(gone), "the version does not delete")
            must(await store.get(space, "k") is None, "what was deleted is there")
            must(await store.scan(space) == [], "what was deleted is seen")
            must(await store.put(space, "k", None, version=first) is None, "it is deleted twice")
            second = await store.put(space, "k", 2, version=0)
            must(bool(second), "what was deleted cannot be created again")
            must(second != first, "a successor has the version of what it succeeds")
            must(bool(await store.put(space, "k", None)), "it is not deleted in any case")
            must(bool(await store.put(space, "k", None)), "deleting nothing fails")
            must(bool(await store.put(space, "k", None, version=0)), "nothing is not version 0")
        return "deleted is deleted, and no version comes back"

    async def values(self) -> str:
        async with self._open() as store:
            space = _name()
            for value in _VALUES:
                await store.put(space, "k", value)
                record = await store.get(space, "k")
                must(record is not None and record.value == value, f"{value!r} changes")
                must(record is not None and type(record.value) is type(value), f"{value!r} changes")
            mine = {"list": [1]}
            await store.put(space, "k", mine)
            mine["list"].append(2)
            for _ in range(2):
                record = await store.get(space, "k")
                must(record is not None and record.value == {"list": [1]}, "a value is shared")
                record.value["list"].append(3)  # type: ignore[union-attr]
            await _refused(store.put(space, "k", {"a": object()}), "what is not JSON is stored")
            await _refused(store.put(space, "k", "\ud800"), "half a character is stored")
        return f"{len(_VALUES)} kinds of value come back as they were"

    async def ttl(self) -> str:
        async with self._open() as store:
            space = _name()
            await store.put(space, "gone", 1, ttl=0)
            await store.put(space, "soon", 1, ttl=0.2)
            await store.put(space, "later", 1, ttl=3600)
            await store.put(space, "never", 1, ttl=float("inf"))
            await store.put(space, "kept", 1, ttl=0)
            await store.put(space, "kept", 2)
            must(await store.get(space, "gone") is None, "what has ended is there")
            must(await store.put(space, "gone", 2, version=1) is None, "what has ended is replaced")
            must(bool(await store.put(space, "gone", 2, version=0)), "it cannot be created again")
            end = time.monotonic() + 10
            while await store.get(space, "soon") is not None:
                must(time.monotonic() < end, "it does not end")
                await asyncio.sleep(0.02)
            seen = [key for key, _ in await store.scan(space)]
            must(seen == ["gone", "kept", "later", "never"], f"a scan sees {seen}")
        return "what has outlived its time is not there"

    async def scan(self) -> str:
        async with self._open() as store:
            space = _name()
            for key in reversed(_KEYS):
                await store.put(space, key, key)

            async def seen(prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
                found = await store.scan(space, prefix=prefix, after=after, limit=limit)
                must(all(r.value == k for k, r in found), "a scan mixes up records")
                return [key for key, _ in found]

            must(await seen() == list(_KEYS), f"the order is {await seen()}")
            for prefix in ("a/", "a/1", "a/\U0010ffff", "\U0010ffff", "c"):
                expected = [key for key in _KEYS if key.startswith(prefix)]
                must(
                    await seen(prefix) == expected, f"prefix {prefix!r} gives {await seen(prefix)}"
                )
            must(await seen("a/", "a/10", 2) == ["a/2", "a/\ue000"], "a page is not what it should")
            must(await seen(limit=0) == [], "a limit of 0 gives something")
        return "in order, by prefix, page by page"

    async def keys(self) -> str:
        async with self._open() as store:
            space, long = _name(), "é" * 1000
            must(bool(await store.put(space, long, 1)), "2,000 bytes are refused as a key")
            must(await store.get(space, long) is not None, "a long key is lost")
            for key in ("", "a\0b", "\ud800", "é" * 1001):
                await _refused(store.put(space, key, 1), f"the key {key[:9]!r} is taken")
                await _refused(store.get(space, key), f"the key {key[:9]!r} is looked up")
            await _refused(store.scan(space, prefix="\ud800"), "half a character is looked for")
            must(len(await store.scan(space)) == 1, "a refused key was written")
        return "what not every store can hold is refused"

    async def journal(self) -> str:
        async with self._open() as store:
            one, two = _name(), _name()
            must(await store.head(one) is None, "a new writer has a head")
            lines = [Line(one, 1, b"\0\xff"), Line(two, 1, b""), Line(one, 2, b"x" * 100_000)]
            await store.append(lines[:2])
            await store.append(lines[2:])
            await store.append([])
            mine = [*await store.read(writer=one), *await store.read(writer=two)]
            mine.sort(key=lambda line: line.position)
            must([(x.writer, x.number, x.body) for x in mine] == _bare(lines), "lines change")
            must(len({x.position for x in mine} - {0}) == 3, "two lines have one position")
            must(await store.head(one) == mine[2], "the head is not the last line")
            before = mine[0].position - 1
            must(list(await store.read(after=before, limit=1)) == mine[:1], "read is not in order")
            later = await store.read(after=mine[0].position, writer=one)
            must(list(later) == mine[2:], "read does not go on where it was")
            must(list(await store.read(after=mine[2].position, writer=one)) == [], "lines too many")
            must(list(await store.read(limit=0)) == [], "a limit of 0 gives something")
        return "lines come back as they were, in order"

    async def repeated_lines(self) -> str:
        async with self._open() as store:
            writer = _name()
            await store.append([Line(writer, 1, b"1"), Line(writer, 2, b"2")])
            await store.append([Line(writer, 1, b"1"), Line(writer, 3, b"3")])
            try:
                await store.append([Line(writer, 4, b"4"), Line(writer, 2, b"other")])
            except Conflict:
                pass
            else:
                raise AssertionError("a line is replaced, or lost without a word")
            found = [line.body for line in await store.read(writer=writer)]
            must(found == [b"1", b"2", b"3"], f"it has {found}")
            head = await store.head(writer)
            must(head is not None and head.number == 3, "the head is not the last line")
        return "the same again is no new line; another under its number is refused, with all"

    async def pruning(self) -> str:
        async with self._open() as store:
            if not isinstance(store, Prunes):
                raise NotApplicable("its journal keeps everything")
            one, two = _name(), _name()
            for number in range(1, 6):
                await store.append([Line(w, number, b"x") for w in (one, two)])
            last = await store.head(one)
            await store.prune(one, before=4)
            left = [line.number for line in await store.read(writer=one)]
            must(left == [4, 5], f"of 5 lines, {left} are left before 4")
            must(len(await store.read(writer=two)) == 5, "another writer's lines are gone")
            must(await store.head(one) == last, "the head changes")
            await store.append([Line(one, 6, b"x")])
            head = await store.head(one)
            must(_place(head) > _place(last) > 0, "a position comes back")
            await store.prune(one, before=7)
            must(await store.head(one) is None, "a line that is gone is the head")
            must(list(await store.read(writer=one)) == [], "not all are gone")
        return "lines below a number go, no others"

    async def one_winner(self) -> str:
        async with self._open() as store, self._open() as other:
            space = _name()
            version = 0
            for _ in range(5):
                tries = [s.put(space, "k", 1, version=version) for s in (store, other) * 10]
                won = [new for new in await asyncio.gather(*tries) if new is not None]
                must(len(won) == 1, f"{len(won)} of 20 won")
                version = won[0]
        return "one of 20 at once"

    async def concurrency(self) -> str:
        async with self._open() as store:
            space, writer = _name(), _name()
            await asyncio.gather(
                *(store.put(space, f"{i:03}", i) for i in range(200)),
                *(store.append([Line(writer, i + 1, b"%d" % i)]) for i in range(200)),
            )
            found = [record.value for _, record in await store.scan(space)]
            must(found == list(range(200)), "records are lost or mixed up")
            lines = await store.read(writer=writer)
            must(
                {x.number: x.body for x in lines} == {i + 1: b"%d" % i for i in range(200)}, "lost"
            )
        return "200 records and 200 lines at once"

    async def second_handle(self) -> str:
        async with self._open() as store, self._open() as other:
            space, writer = _name(), _name()
            version = await store.put(space, "k", 1)
            await store.append([Line(writer, 1, b"1")])
            must(await other.get(space, "k") == Record(1, version or 0), "it is not seen")
            must(await other.head(writer) == await store.head(writer), "a line is not seen")
            await other.put(space, "k", None)
            must(await store.get(space, "k") is None, "a deletion is not seen")
        return "sees what the first has written"

    async def reopening(self) -> str:
        space = _name()
        store = self.make()
        await store.open()
        try:
            await store.open()
            await store.put(space, "k", 1)
            await store.close()
            await store.close()
            await store.open()
            must(await store.get(space, "k") is not None, "it is lost")
        finally:
            await store.close()
        return "opens twice, closes twice, opens again"

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Store]:
        store = self.make()
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def _name() -> str:
    return f"check-{uuid4().hex}"


def _place(line: Line | None) -> int:
    return 0 if line is None else line.position


def _bare(lines: list[Line]) -> list[tuple[str, int, bytes]]:
    return [(line.writer, line.number, line.body) for line in lines]


async def _refused(doing: Any, otherwise: str) -> None:
    try:
        await doing
    except CallError:
        return
    raise AssertionError(otherwise)
