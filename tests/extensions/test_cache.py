"""Results that are served again: to whom, how long, and how many are kept."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.around import surroundings
from toolpost import Call, Caller, Executor, Image, Output, Registry, Result, ToolFailed, tool
from toolpost.contracts import Walk
from toolpost.errors import ConfigError, Unavailable
from toolpost.extensions.cache import Cache, CacheOptions
from toolpost.extensions.retry import Retry
from toolpost.extensions.sanitize import Sanitize
from toolpost.spec import Cache as Cached
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
ANN = Caller("a", user="ann", roles=frozenset({"x"}))


class Library:
    """A tool that counts how often it runs."""

    def __init__(self, *, ttl: float = 60, inner: tuple[Any, ...] = (), **options: Any) -> None:
        self.runs: list[str] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.fails = False
        self.clock = Clock(1000.0)
        self.cache = Cache(options=CacheOptions(**options), clock=self.clock)

        @tool(effects="read", cache=Cached(ttl=ttl), timeout=60, context_aware=True)
        async def read(book: str, call: Call, page: int = 1) -> Output:
            """Read a page."""
            self.runs.append(book)
            self.begun.set()
            await self.go_on.wait()
            if self.fails:
                raise ToolFailed("The library is closed.")
            call.warn("mind the dust")
            return Output({"text": [book, page]}, (Image(b"x"),))

        @tool(effects="read")
        async def other() -> int:
            """Have no cache."""
            return 1

        self.executor = Executor(Registry([read, other]), guards=[self.cache, *inner])

    async def read(self, book: str = "b", **more: Any) -> Result:
        more.setdefault("caller", ANN)
        return await self.executor.execute("read", {"book": book}, **more)


@pytest.mark.req("NA-5")
async def test_an_equal_call_is_answered_from_the_cache_with_metadata_of_its_own() -> None:
    library = Library()
    first = await library.read()
    second = await library.executor.execute("read", {"page": 1, "book": "b"}, caller=ANN)
    assert first.output == second.output == {"text": ["b", 1]}
    assert first.parts == second.parts == (Image(b"x"),)
    assert (first.metadata.cached, second.metadata.cached) == (False, True)
    assert first.metadata.call_id != second.metadata.call_id
    assert second.metadata.trail == ["cache", "cache: hit"]
    assert first.metadata.warnings == second.metadata.warnings == ["mind the dust"]
    assert library.runs == ["b"]


async def test_nobody_changes_what_the_next_one_gets() -> None:
    library = Library()
    for _ in range(3):
        result = await library.read()
        assert result.output == {"text": ["b", 1]}
        result.output["text"].append("poison")
        result.metadata.warnings.append("poison")
        assert len(result.metadata.warnings) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"caller": Caller("b", user="ann", roles=frozenset({"x"}))},
        {"caller": Caller("a", user="bob", roles=frozenset({"x"}))},
        {"caller": Caller("a", user="ann")},
        {"caller": Caller("a", user="ann", agent="bot", roles=frozenset({"x"}))},
        {"working_dir": "/elsewhere"},
        {"phase": "later"},
        {"book": "c"},
    ],
)
async def test_what_is_not_the_very_same_call_is_not_served(changed: dict[str, Any]) -> None:
    library = Library()
    await library.read()
    assert not (await library.read(**changed)).metadata.cached
    assert len(library.runs) == 2


async def test_a_tool_that_has_changed_is_asked_anew() -> None:
    cache = Cache()
    for version in ("1", "2"):

        @tool(effects="read", cache=Cached(ttl=60), version=version)
        async def read() -> int:
            """Read."""
            return 1

        executor = Executor(Registry([read]), guards=[_kept_open(cache)])
        assert not (await executor.execute("read")).metadata.cached
        assert (await executor.execute("read")).metadata.cached


def _kept_open(cache: Cache) -> Any:
    class Open:
        name, bind = cache.name, cache.bind

    return Open()


async def test_a_result_is_served_for_its_time_and_no_longer() -> None:
    library = Library(ttl=60)
    await library.read()
    library.clock.advance(59.9)
    assert (await library.read()).metadata.cached
    library.clock.advance(0.1)
    assert not (await library.read()).metadata.cached


async def test_a_failure_is_never_kept() -> None:
    library = Library()
    library.fails = True
    assert not (await library.read()).success
    library.fails = False
    assert (await library.read()).success
    assert len(library.cache) == 1


@pytest.mark.req("NA-5")
async def test_what_a_fallback_has_done_is_not_kept() -> None:
    sent: list[str] = []
    down = True

    @tool(effects="read", cache=Cached(ttl=60), fallback="send", context_aware=True)
    async def ask(who: str, call: Call) -> str:
        """Ask a service."""
        for _ in range(1000):
            call.note("ask", "a trail that is full")
        if down:
            raise Unavailable("The service is down.", retryable=False)
        return "asked"

    @tool(effects="once")
    async def send(who: str) -> str:
        """Send a letter instead."""
        sent.append(who)
        return f"sent {len(sent)}"

    executor = Executor(Registry([ask, send]), guards=[Cache(), Retry()])
    for number in (1, 2):
        result = await executor.execute("ask", {"who": "bob"})
        assert (result.output, result.metadata.cached) == (f"sent {number}", False)
    down = False
    for cached in (False, True):
        result = await executor.execute("ask", {"who": "bob"})
        assert (result.output, result.metadata.cached) == ("asked", cached)


async def test_a_dry_run_neither_asks_nor_fills_the_cache() -> None:
    library = Library()
    assert (await library.read(dry_run=True)).metadata.plan is not None
    assert not (await library.read()).metadata.cached
    assert (await library.read(dry_run=True)).metadata.plan is not None


def test_a_tool_without_a_cache_pays_nothing_for_it() -> None:
    library = Library()
    assert library.executor.bound("other").rings == ()
    assert library.executor.bound("read").rings == ("cache",)


async def test_the_least_recently_used_goes_first() -> None:
    library = Library(entries=2)
    for book in ("a", "b", "a", "c"):
        await library.read(book)
    assert len(library.cache) == 2
    assert [(await library.read(book)).metadata.cached for book in ("a", "c", "b")] == [
        True,
        True,
        False,
    ]


async def test_the_bytes_that_are_kept_are_bounded() -> None:
    library = Library(bytes=10_000)
    for number in range(100):
        await library.read(f"{number} " + "x" * 500)
        assert library.cache.size <= 10_000
    assert 2 < len(library.cache) < 20
    await library.read("y" * 20_000)
    assert library.cache.size <= 10_000
    assert not (await library.read("y" * 20_000)).metadata.cached
    await library.executor.close()
    assert (library.cache.size, len(library.cache)) == (0, 0)


async def test_equal_calls_at_the_same_time_run_once() -> None:
    library = Library()
    library.go_on.clear()
    calls = [asyncio.ensure_future(library.read()) for _ in range(20)]
    await asyncio.wait_for(library.begun.wait(), 20)
    library.go_on.set()
    results = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert [result.output for result in results] == [{"text": ["b", 1]}] * 20
    assert sum(result.metadata.cached for result in results) == 19
    assert library.runs == ["b"]


async def test_one_that_waits_may_go_or_run_out_of_time_without_stopping_the_first() -> None:
    library = Library()
    library.go_on.clear()
    first = asyncio.ensure_future(library.read())
    await asyncio.wait_for(library.begun.wait(), 20)
    gone = asyncio.ensure_future(library.read())
    await asyncio.sleep(0)
    gone.cancel()
    late = await asyncio.wait_for(library.read(timeout=0.01), 20)
    assert late.error is not None and late.error.code == "TIMEOUT"
    library.go_on.set()
    assert (await asyncio.wait_for(first, 20)).success
    assert gone.cancelled() and library.runs == ["b"]


@pytest.mark.parametrize("how", ["fails", "goes"])
async def test_if_the_first_gets_nothing_the_others_run_themselves(how: str) -> None:
    library = Library()
    library.go_on.clear()
    library.fails = how == "fails"
    first = asyncio.ensure_future(library.read())
    await asyncio.wait_for(library.begun.wait(), 20)
    second = asyncio.ensure_future(library.read())
    await asyncio.sleep(0)
    if how == "goes":
        first.cancel()
    library.go_on.set()
    await asyncio.wait({first, second}, timeout=20)
    assert library.runs == ["b", "b"]
    assert second.result().success is (how == "goes")


async def test_what_json_cannot_say_exactly_is_not_kept() -> None:
    outputs = [float("nan"), (1, 2), {1: 2}, object()]

    async def odd(call: Call, call_next: Walk) -> Result:
        return Result(output=outputs[0])

    library = Library(inner=(odd,))
    while outputs:
        assert not (await library.read()).metadata.cached
        assert len(library.cache) == 0
        outputs.pop(0)


async def test_arguments_without_a_canonical_form_go_past_the_cache() -> None:
    @tool(effects="read", cache=Cached(ttl=60))
    async def free(data: float) -> int:
        """Take a number."""
        return 1

    async with Executor(Registry([free]), guards=[Cache()]) as executor:
        for _ in range(2):
            assert not (await executor.execute("free", {"data": Decimal("1.5")})).metadata.cached


def test_the_table_of_the_config_is_understood(tmp_path: Path) -> None:
    assert len(Cache.from_config({"entries": 5}, surroundings(tmp_path))) == 0
    with pytest.raises(ConfigError, match="entries"):
        Cache.from_config({"entries": 0}, surroundings(tmp_path))


@pytest.mark.parametrize("outermost", [Sanitize, Cache])
async def test_a_repeat_from_the_cache_says_what_was_redacted_as_the_first_did(
    outermost: type[Any],
) -> None:
    @tool(effects="read", cache=Cached(ttl=60), labels={"external": "true"})
    async def look_up() -> dict[str, str]:
        """Look up somebody elsewhere."""
        return {"mail": "ada@example.org"}

    guards: list[Any] = sorted(
        [Sanitize(), Cache()], key=lambda one: not isinstance(one, outermost)
    )
    async with Executor(Registry([look_up]), guards=guards) as tools:
        first, again = [await tools.execute("look_up") for _ in range(2)]
    assert again.metadata.cached and not first.metadata.cached
    assert (again.output, again.notices) == (first.output, first.notices)
    assert again.notices[0].startswith("Redacted in the output: email at /mail.")
