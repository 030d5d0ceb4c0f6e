"""Idempotency keys: one run, whatever is repeated, and an honest answer after a crash."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from tests.extensions.around import Yielding, surroundings
from tests.extensions.once_child import call as call_here
from tests.redact_corpus import made
from tests.stores.server import Server, running_server
from toolpost import (
    Call,
    Caller,
    Executor,
    Image,
    Limits,
    Output,
    Registry,
    Result,
    ToolSpec,
    known,
    tool,
)
from toolpost.approvals import Decision
from toolpost.contracts import Record
from toolpost.errors import ConfigError, InvalidArguments, Unavailable
from toolpost.errors import ToolFailed as Failed
from toolpost.extensions import once as once_module
from toolpost.extensions.approval import Approval
from toolpost.extensions.once import Once
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.extensions.retry import Retry
from toolpost.extensions.sanitize import ArgumentActions, Sanitize
from toolpost.extensions.slots import Share, Slots
from toolpost.result import Metadata
from toolpost.stores.memory import MemoryStore
from toolpost.stores.postgres import PostgresStore
from toolpost.stores.sqlite import SqliteStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
REDACTING = Sanitize(arguments=ArgumentActions(secrets="redact", personal="redact"))

ANN, BOB = Caller("a", user="ann"), Caller("b", user="bob")


class Shop:
    """Tools whose effects are counted."""

    def __init__(self, store: Any = None, **options: Any) -> None:
        self.charged: list[int] = []
        self.error: Exception | None = None
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.ring = Once(store or Yielding(), **options)
        self.executor = Executor(Registry(self._tools()), guards=[self.ring])

    def _tools(self) -> list[Any]:
        @tool(effects="once", timeout=60)
        async def charge(amount: int) -> dict[str, Any]:
            """Charge somebody."""
            self.charged.append(amount)
            self.begun.set()
            await self.go_on.wait()
            if self.error is not None:
                raise self.error
            return {"charged": amount}

        @tool(effects="idempotent")
        async def put(amount: int) -> Output:
            """Put something somewhere."""
            self.charged.append(amount)
            return Output(2**70, (Image(b"\x89PNG"),))

        @tool(effects="read")
        async def look() -> int:
            """Look."""
            return 1

        return [charge, put, look]

    async def charge(self, amount: int = 5, key: str | None = "k", **more: Any) -> Result:
        more.setdefault("caller", ANN)
        return await self.executor.execute("charge", {"amount": amount}, key=key, **more)


def said(result: Result) -> tuple[str, str]:
    return ("ok", "") if result.error is None else (result.error.code, result.error.effects)


async def test_a_repeat_gets_the_first_result_and_runs_nothing() -> None:
    shop = Shop()
    first, second = await shop.charge(), await shop.charge()
    assert first.output == second.output == {"charged": 5}
    assert (first.metadata.cached, second.metadata.cached) == (False, True)
    assert first.metadata.call_id != second.metadata.call_id
    assert second.metadata.trail == ["once", "once: the first result"]
    assert shop.charged == [5]


async def test_a_repeat_is_exact_to_the_last_digit_and_part() -> None:
    shop = Shop()
    results = [await shop.executor.execute("put", {"amount": 1}, key="k") for _ in range(2)]
    assert results[0].output == results[1].output == 2**70
    assert results[0].parts == results[1].parts == (Image(b"\x89PNG"),)
    assert shop.charged == [1]


async def test_without_a_key_every_call_runs() -> None:
    shop = Shop()
    await shop.charge(key=None)
    await shop.charge(key=None)
    assert shop.charged == [5, 5]


def test_a_tool_that_only_reads_pays_nothing_for_keys() -> None:
    shop = Shop()
    assert shop.executor.bound("look").rings == ()
    assert shop.executor.bound("put").rings == ("once",)


async def test_other_arguments_under_the_same_key_are_a_conflict() -> None:
    shop = Shop()
    await shop.charge(5)
    assert said(await shop.charge(6)) == ("CONFLICT", "none")
    assert said(await shop.charge(5, working_dir="/elsewhere")) == ("CONFLICT", "none")
    assert shop.charged == [5]


async def test_another_address_under_the_same_key_is_a_conflict_though_both_are_redacted() -> None:
    told: list[str] = []

    @tool(effects="once")
    async def tell(text: str) -> str:
        """Tell somebody something."""
        told.append(text)
        return "told"

    store = MemoryStore()
    async with Executor(Registry([tell]), guards=[REDACTING, Once(store)]) as tools:
        results = [
            await tools.execute("tell", {"text": f"ask {who}@example.com"}, key="k")
            for who in ("ann", "ann", "bob")
        ]
    assert [said(one) for one in results] == [("ok", ""), ("ok", ""), ("CONFLICT", "none")]
    assert results[1].metadata.cached and told == ["ask [redacted:email]"]
    assert "ann@" not in str(await store.scan("once"))


async def test_what_is_redacted_only_since_is_still_the_same_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "values", set())

    @tool(effects="once")
    async def tell(text: str) -> str:
        """Tell somebody something."""
        return "told"

    async with Executor(Registry([tell]), guards=[REDACTING, Once(MemoryStore())]) as tools:
        await tools.execute("tell", {"text": "it is correcthorse"}, key="k")
        known.remember("correcthorse")
        again = await tools.execute("tell", {"text": "it is correcthorse"}, key="k")
    assert again.metadata.cached
    assert again.metadata.warnings == ["Redacted in the arguments: known_secret at /text."]


async def test_what_is_kept_of_the_arguments_cannot_be_guessed_without_the_key() -> None:
    """Of few possible arguments, each would be tried."""
    store = MemoryStore()
    shop = Shop(store)
    await shop.charge(5, key="order-1")
    await shop.charge(5, key="order-2")
    claims = [record.value["arguments"] for _, record in await store.scan("once")]
    assert len(set(claims)) == 2


async def test_a_key_with_half_a_character_is_refused_before_anything_runs() -> None:
    ran: list[Call] = []

    async def run(call: Call) -> Result:
        ran.append(call)
        return Result("ran")

    spec = ToolSpec(name="t", description="T.")
    ring: Any = Once(MemoryStore()).bind(spec, cast("Any", None))
    for key, arguments in (("\ud800", {}), ("k", {"a": "\ud800"}), ("k", {"a": object()})):
        with pytest.raises(InvalidArguments, match="plain JSON, and the key a text"):
            await ring(Call("t", spec, arguments, ANN, "c1", Metadata(), key=key), run)
    assert ran == []


async def test_a_key_belongs_to_its_caller_and_its_tool() -> None:
    shop = Shop()
    await shop.charge()
    await shop.charge(caller=BOB)
    await shop.executor.execute("put", {"amount": 5}, key="k", caller=ANN)
    assert shop.charged == [5, 5, 5]


async def test_a_dry_run_takes_no_key() -> None:
    shop = Shop()
    assert (await shop.charge(dry_run=True)).metadata.plan is not None
    assert (await shop.charge()).metadata.cached is False
    assert (await shop.charge(dry_run=True)).metadata.plan is not None


async def test_a_call_that_is_running_is_joined() -> None:
    shop = Shop()
    shop.go_on.clear()
    calls = [asyncio.ensure_future(shop.charge()) for _ in range(20)]
    await asyncio.wait_for(shop.begun.wait(), 20)
    other = await shop.charge(6)
    assert said(other) == ("CONFLICT", "none")
    shop.go_on.set()
    results = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert [result.output for result in results] == [{"charged": 5}] * 20
    assert sum(result.metadata.cached for result in results) == 19
    assert len({id(result.output) for result in results}) == 20, "nobody shares what may change"
    assert len({result.metadata.call_id for result in results}) == 20
    assert shop.charged == [5]


async def test_a_joiner_that_goes_does_not_stop_the_first_callers_run() -> None:
    shop = Shop()
    shop.go_on.clear()
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(shop.begun.wait(), 20)
    joiner = asyncio.ensure_future(shop.charge())
    await asyncio.sleep(0)
    joiner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joiner
    late = await asyncio.wait_for(shop.charge(timeout=0.01), 20)
    assert said(late) == ("TIMEOUT", "unknown")
    shop.go_on.set()
    assert (await asyncio.wait_for(first, 20)).output == {"charged": 5}
    assert shop.charged == [5]


async def test_a_first_caller_that_goes_leaves_an_outcome_that_nobody_knows() -> None:
    shop = Shop()
    shop.go_on.clear()
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(shop.begun.wait(), 20)
    joiner = asyncio.ensure_future(shop.charge())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert said(await asyncio.wait_for(joiner, 20)) == ("CONFLICT", "unknown")
    await shop.executor.close()
    again = await Shop(shop.ring._records).charge()
    assert said(again) == ("CONFLICT", "unknown")
    assert again.error is not None and again.error.retryable is False
    assert shop.charged == [5]


@pytest.mark.parametrize("groups", [{}, {"*": Share(concurrency=1)}])
async def test_a_call_that_goes_while_it_waits_for_a_slot_frees_its_key(
    groups: dict[str, Share],
) -> None:
    store, slots = Yielding(), Slots(groups=groups)
    begun, go_on, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @tool(effects="once", timeout=60, limits=Limits(concurrency=5 if groups else 1))
    async def charge(amount: int) -> int:
        """Charge somebody."""
        ran.append(amount)
        begun.set()
        await go_on.wait()
        return amount

    async def queued() -> None:
        while not any(
            sum(of.values()) for name, (_, of) in slots.gauges().items() if "wait" in name
        ):
            await asyncio.sleep(0)

    async with (
        asyncio.timeout(60),
        Executor(Registry([charge]), guards=[Once(store), Retry(), slots]) as tools,
    ):
        first = asyncio.ensure_future(tools.execute("charge", {"amount": 1}, key="a"))
        await begun.wait()
        waits = asyncio.ensure_future(tools.execute("charge", {"amount": 2}, key="b"))
        await queued()
        joins = asyncio.ensure_future(tools.execute("charge", {"amount": 2}, key="b"))
        for _ in range(20):
            await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await queued()
        joins.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joins
        go_on.set()
        assert (await first).output == 1
        assert (await tools.execute("charge", {"amount": 2}, key="b")).output == 2
    assert ran == [1, 2]


async def test_a_call_that_goes_while_it_waits_to_run_again_does_not_free_its_key() -> None:
    store, slots, ran = Yielding(), Slots(), list[int]()
    blocking, go_on = asyncio.Event(), asyncio.Event()

    @tool(effects="idempotent", timeout=60, limits=Limits(concurrency=1))
    async def put(amount: int) -> int:
        """Put something somewhere."""
        ran.append(amount)
        if amount == 1:
            raise Unavailable("away", effects="unknown")
        blocking.set()
        await go_on.wait()
        return amount

    async def pause(_: float) -> None:
        asyncio.get_running_loop().create_task(tools.execute("put", {"amount": 2}))
        await blocking.wait()

    retry = Retry()
    retry.sleep = pause  # type: ignore[method-assign]
    async with (
        asyncio.timeout(60),
        Executor(Registry([put]), guards=[Once(store), retry, slots]) as tools,
    ):
        again = asyncio.ensure_future(tools.execute("put", {"amount": 1}, key="k"))
        while not slots.gauges()["slots_waiting"][1].get("put"):
            await asyncio.sleep(0)
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        go_on.set()
        assert said(await tools.execute("put", {"amount": 1}, key="k")) == ("CONFLICT", "unknown")
    assert ran == [1, 2]


@pytest.mark.parametrize("effects", ["unknown", "done"])
async def test_a_failure_after_the_effect_is_not_run_again(effects: Any) -> None:
    shop = Shop()
    shop.error = Unavailable("The line broke.", effects=effects, retry_after=1)
    first = await shop.charge()
    shop.error = None
    second = await shop.charge()
    assert said(first) == said(second) == ("UNAVAILABLE", effects)
    assert first.error is not None and second.error is not None
    assert (first.error.retryable, second.error.retryable) == (True, False)
    assert (second.error.remedy, second.error.retry_after) == ("stop", None)
    assert shop.charged == [5]


async def test_a_failure_without_effects_frees_the_key() -> None:
    shop = Shop()
    shop.error = Failed("Nothing was charged.", effects="none")
    assert said(await shop.charge()) == ("EXECUTION_ERROR", "none")
    shop.error = None
    assert (await shop.charge(6)).output == {"charged": 6}


async def test_a_joiner_of_a_failure_without_effects_gets_it_as_it_was() -> None:
    shop = Shop()
    shop.error = Unavailable("Closed.", effects="none")
    shop.go_on.clear()
    calls = [asyncio.ensure_future(shop.charge()) for _ in range(2)]
    await asyncio.wait_for(shop.begun.wait(), 20)
    shop.go_on.set()
    results = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert [said(result) for result in results] == [("UNAVAILABLE", "none")] * 2
    assert all(result.error and result.error.retryable for result in results)


async def test_a_key_is_forgotten_after_its_time() -> None:
    clock = Clock(1000.0)
    shop = Shop(MemoryStore(clock=clock), clock=clock, ttl=60)
    await shop.charge()
    clock.advance(59)
    assert (await shop.charge()).metadata.cached
    clock.advance(2)
    assert not (await shop.charge()).metadata.cached


async def test_a_call_that_runs_in_another_executor_is_told_to_come_back() -> None:
    store = MemoryStore()
    one, other = Shop(store), Shop(store)
    one.go_on.clear()
    first = asyncio.ensure_future(one.charge())
    await asyncio.wait_for(one.begun.wait(), 20)
    result = await other.charge()
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("CONFLICT", "wait")
    assert (result.error.retryable, result.error.retry_after) == (True, 1.0)
    one.go_on.set()
    await asyncio.wait_for(first, 20)
    assert (await other.charge()).output == {"charged": 5}
    assert other.charged == []


async def test_a_key_is_not_forgotten_while_its_call_runs_and_then_for_all_of_its_time() -> None:
    clock = Clock(1000.0)
    store = MemoryStore(clock=clock)
    shop, other = (Shop(store, ttl=1.0, clock=clock) for _ in range(2))
    shop.go_on.clear()
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(shop.begun.wait(), 20)
    clock.advance(10 * 365 * 86400)
    running = await other.charge()
    assert running.error is not None and running.error.remedy == "wait"
    shop.go_on.set()
    assert (await asyncio.wait_for(first, 20)).success
    clock.advance(0.9)
    assert (await other.charge()).metadata.cached
    assert shop.charged == [5] and other.charged == []


async def test_a_claim_of_a_host_that_cannot_be_seen_is_unknown_after_its_longest_time() -> None:
    clock = Clock(1000.0)
    store = MemoryStore(clock=clock)
    shop = Shop(store, clock=clock)
    await shop.charge()
    ((place, record),) = await store.scan("once")
    elsewhere = {**record.value, "state": "running", "life": "another/host/1-1", "result": None}
    await store.put("once", place, elsewhere)
    assert said(await shop.charge())[0] == "CONFLICT"
    assert (await shop.charge()).error.retryable is True  # type: ignore[union-attr]
    clock.advance(3 * 60 + 61)
    assert (await shop.charge()).error.retryable is False  # type: ignore[union-attr]
    assert shop.charged == [5]


class Broken(MemoryStore):
    """A store whose disk is full when it should write for that time."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.left = fails

    async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
        self.left -= 1
        if self.left == 0:
            raise Unavailable("No space left.")
        return await super().put(space, key, value, **more)


async def test_without_a_claim_in_the_store_the_tool_does_not_run() -> None:
    shop = Shop(Broken(1))
    assert said(await shop.charge()) == ("UNAVAILABLE", "none")
    assert shop.charged == []
    assert (await shop.charge()).success


class Locked:
    """A store on a disk, which another program keeps from being written for a while."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "store.db", patience=0.05)
        self._other = sqlite3.connect(folder / "store.db", isolation_level=None)

    async def __aenter__(self) -> Locked:
        await self.store.open()
        return self

    def lock(self) -> None:
        self._other.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self._other.execute("ROLLBACK")

    async def __aexit__(self, *exc: object) -> None:
        self._other.close()
        await self.store.close()


async def stored(store: Any, *states: str) -> list[Any]:
    """The claims, when their states are these."""
    async with asyncio.timeout(20):
        while True:
            claims = [record.value for _, record in await store.scan("once")]
            if [claim.get("state", "running") for claim in claims] == [*states]:
                return claims
            await asyncio.sleep(0.01)


async def test_an_outcome_that_cannot_be_stored_is_told_kept_here_and_stored_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with Locked(tmp_path) as disk:
        shop = Shop(disk.store)
        shop.go_on.clear()
        first = asyncio.ensure_future(shop.charge())
        await asyncio.wait_for(shop.begun.wait(), 20)
        disk.lock()
        shop.go_on.set()
        result = await asyncio.wait_for(first, 20)
        assert result.output == {"charged": 5}
        (notice,) = result.notices
        assert notice.startswith("The outcome of this call is not stored under its key yet")
        again = await shop.charge()
        assert (again.output, again.metadata.cached) == ({"charged": 5}, True)
        assert said(await shop.charge(6)) == ("CONFLICT", "none")
        elsewhere = await Shop(disk.store).charge()
        assert elsewhere.error is not None and elsewhere.error.remedy == "wait"
        disk.unlock()
        await stored(disk.store, "done")
        later = await Shop(disk.store).charge()
        assert (later.output, later.metadata.cached) == ({"charged": 5}, True)
        await shop.executor.close()
    assert shop.charged == [5]


async def test_a_call_that_did_nothing_frees_its_key_when_the_store_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with Locked(tmp_path) as disk:
        shop = Shop(disk.store)
        shop.error = Failed("Nothing was charged.", effects="none")
        shop.go_on.clear()
        first = asyncio.ensure_future(shop.charge())
        await asyncio.wait_for(shop.begun.wait(), 20)
        disk.lock()
        shop.go_on.set()
        result = await asyncio.wait_for(first, 20)
        assert said(result) == ("EXECUTION_ERROR", "none")
        assert result.metadata.warnings[0].startswith("The key of this call may not be free yet")
        shop.error = None
        assert said(await shop.charge()) == ("UNAVAILABLE", "none"), "no claim, no run"
        disk.unlock()
        assert (await shop.charge(7)).output == {"charged": 7}, "it need not wait for that"
        await shop.executor.close()
    assert shop.charged == [5, 7]


async def test_a_claim_that_may_be_written_though_the_store_failed_is_taken_back() -> None:
    """Nothing has run: another process may use the key once the store is back."""

    class Unheard(MemoryStore):
        away = 3

        async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
            version = await super().put(space, key, value, **more)
            if value is not None and self.away == 3:
                self.away = 2
                raise Unavailable("The line broke.")  # after it was written
            return version

        async def get(self, space: str, key: str) -> Record | None:
            if 0 < self.away < 3:
                self.away -= 1
                raise Unavailable("The line is broken.")
            return await super().get(space, key)

    store = Unheard()
    shop = Shop(store)
    result = await shop.charge()
    assert said(result) == ("UNAVAILABLE", "none")
    assert result.metadata.warnings[0].startswith("The key of this call may not be free yet")
    await stored(store)
    assert (await Shop(store).charge()).output == {"charged": 5}
    assert shop.charged == []


async def test_what_could_not_be_stored_is_tried_a_last_time_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    shop = Shop(store := Broken(2))
    assert (await shop.charge()).success
    await shop.ring.close()
    assert (await Shop(store).charge()).metadata.cached
    assert not shop.ring._endings and not shop.ring._bytes


async def test_outcomes_that_wait_for_the_store_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once_module, "_MOST_BYTES", 10)
    caplog.set_level(logging.ERROR)
    shop = Shop(Broken(2))
    assert (await shop.charge()).success
    assert said(await shop.charge()) == ("CONFLICT", "unknown")
    assert "is lost: too many wait for the store" in caplog.text
    assert shop.charged == [5]


class Slow(MemoryStore):
    """A store that writes, and then does not come back for a while."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at
        self.writing, self.go_on = asyncio.Event(), asyncio.Event()

    async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
        version = await super().put(space, key, value, **more)
        if (
            not self.writing.is_set()
            and value is not None
            and value.get("state", "running") == self.at
        ):
            self.writing.set()
            await self.go_on.wait()
        return version


async def test_a_caller_that_goes_before_the_tool_runs_leaves_the_key_free() -> None:
    store = Slow("running")
    shop = Shop(store)
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(store.writing.wait(), 20)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await shop.ring.close()
    assert await store.scan("once") == []
    assert (await shop.charge()).output == {"charged": 5}
    assert shop.charged == [5]


async def test_a_caller_that_goes_while_the_outcome_is_written_does_not_lose_it() -> None:
    store = Slow("done")
    shop = Shop(store)
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(store.writing.wait(), 20)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    store.go_on.set()
    await shop.ring.close()
    assert (await shop.charge()).output == {"charged": 5}
    assert shop.charged == [5]


async def test_a_key_that_cannot_be_freed_says_that_nobody_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Slow):
        async def get(self, space: str, key: str) -> Record | None:
            if not self.go_on.is_set():
                raise OSError("no disk")
            return await super().get(space, key)

    caplog.set_level(logging.CRITICAL)
    store = Stuck("running")
    shop = Shop(store)
    first = asyncio.ensure_future(shop.charge())
    await asyncio.wait_for(store.writing.wait(), 20)
    first.cancel()
    await asyncio.wait({first}, timeout=20)
    await shop.ring.close()
    store.go_on.set()
    assert said(await shop.charge()) == ("CONFLICT", "unknown")
    assert shop.charged == []


async def test_a_claim_that_vanishes_between_two_looks_is_made_again() -> None:
    class Vanishing(MemoryStore):
        refused = False

        async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
            if not self.refused:
                self.refused = True
                return None
            return await super().put(space, key, value, **more)

    shop = Shop(Vanishing())
    assert (await shop.charge()).output == {"charged": 5}


async def test_arguments_without_a_canonical_form_take_no_key() -> None:
    @tool
    async def free(data: float) -> None:
        """Take a number."""

    async with Executor(Registry([free]), guards=[Once(MemoryStore())]) as executor:
        result = await executor.execute("free", {"data": Decimal("1.5")}, key="k")
    assert said(result) == ("VALIDATION_ERROR", "none")


async def test_a_result_that_is_not_json_is_not_promised_again() -> None:
    async def inner(call: Call, call_next: Any) -> Result:
        return Result(output=float("nan"))

    @tool
    async def any_tool() -> None:
        """Do something."""

    async with Executor(Registry([any_tool]), guards=[Once(MemoryStore()), inner]) as executor:
        assert (await executor.execute("any_tool", key="k")).success
        assert said(await executor.execute("any_tool", key="k")) == ("CONFLICT", "unknown")


def test_the_table_of_the_config_is_understood(tmp_path: Path) -> None:
    assert Once.from_config({"ttl": 5}, surroundings(tmp_path))._ttl == 5
    with pytest.raises(ConfigError, match="ttl"):
        Once.from_config({"ttl": 0}, surroundings(tmp_path))


# restarts

CHILD = (sys.executable, "-m", "tests.extensions.once_child")


async def test_with_a_key_a_repeat_after_a_restart_returns_the_first_result(tmp_path: Path) -> None:
    done = subprocess.run(
        [*CHILD, str(tmp_path), "run"], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    first = json.loads(done.stdout)
    again = await call_here(tmp_path, hangs=False)
    assert first["output"] == again["output"] == "charged 5"
    assert again["metadata"]["cached"] is True
    assert (tmp_path / "marks").read_text(encoding="utf-8") == "5\n"


async def test_with_a_key_a_repeat_after_a_kill_says_unknown_and_the_effect_happened_once(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [*CHILD, str(tmp_path), "hang"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "charged\n"
        running = (await call_here(tmp_path, hangs=False))["error"]
        assert (running["code"], running["remedy"]) == ("CONFLICT", "wait")
        os.kill(child.pid, signal.SIGKILL)
    for _ in range(2):
        error = (await call_here(tmp_path, hangs=False))["error"]
        assert (error["code"], error["effects"], error["retryable"]) == (
            "CONFLICT",
            "unknown",
            False,
        )
    assert (tmp_path / "marks").read_text(encoding="utf-8") == "5\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from running_server()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_clock_that_jumps_leaves_the_key_of_a_running_call_to_its_writer(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("server").database() if kind == "postgres" else ""
    clock = Clock(time.time())

    async def repeat() -> dict[str, Any]:
        return (await call_here(tmp_path, hangs=False, dsn=dsn, clock=clock))["error"]

    with subprocess.Popen(
        [*CHILD, str(tmp_path), "hang", dsn], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "charged\n"
        clock.advance(10 * 365 * 86400)
        await let_end(dsn)
        running = await repeat()
        assert (running["code"], running["remedy"], running["retryable"]) == (
            "CONFLICT",
            "wait",
            True,
        )
        os.kill(child.pid, signal.SIGKILL)
    dead = await repeat()
    assert (dead["code"], dead["effects"], dead["retryable"]) == ("CONFLICT", "unknown", False)
    assert (tmp_path / "marks").read_text(encoding="utf-8") == "5\n"


async def test_outcomes_of_calls_that_end_while_a_server_is_away_are_stored_when_it_is_back(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    dsn = server.database()
    store, other = PostgresStore(dsn, patience=5), PostgresStore(dsn, patience=5)
    await store.open()
    shop = Shop(store)
    shop.go_on.clear()
    calls = [asyncio.ensure_future(shop.charge(n, key=f"k{n}")) for n in range(20)]
    async with asyncio.timeout(60):
        while len(shop.charged) < 20:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.stop)
        shop.go_on.set()
        results = await asyncio.gather(*calls)
        assert all(result.success and result.notices for result in results)
        again = await asyncio.gather(*(shop.charge(n, key=f"k{n}") for n in range(20)))
        assert all(result.metadata.cached for result in again)
        server.start()  # here: a server that a thread has started ends with that thread
        await other.open()
        await stored(other, *["done"] * 20)
    later = await Shop(other).charge(7, key="k7")
    assert (later.output, later.metadata.cached) == ({"charged": 7}, True)
    await shop.executor.close()
    for one in (store, other):
        await one.close()
    assert sorted(shop.charged) == list(range(20))


async def let_end(dsn: str) -> None:
    """What a clock of the server that jumps does: every record that has an end has ended."""
    if dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "UPDATE toolpost.records SET ends = now() - interval '1 s' WHERE ends IS NOT NULL"
        )
        await connection.close()


async def test_the_claim_of_a_dead_process_is_forgotten_after_its_time(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*CHILD, str(tmp_path), "hang"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "charged\n"
        clock = Clock(time.time())
        store = SqliteStore(tmp_path / "store.db", clock=clock)
        await store.open()
        try:
            once = Once(store, ttl=60, clock=clock)
            await once.end_orphans()
            assert (await stored(store, "running"))[0]["life"]
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            await once.end_orphans()
            await stored(store, "unknown")
            clock.advance(61)
            await stored(store)
        finally:
            await store.close()


async def test_a_secret_that_comes_from_outside_is_not_kept_under_a_key() -> None:
    token, runs = "gh" + "p_" + made(36), 0

    def work(external: bool, fails: bool) -> Any:
        @tool(effects="once", labels={"external": "true"} if external else {})
        async def fetch() -> dict[str, Any]:
            """Fetch a token."""
            nonlocal runs
            runs += 1
            if fails:
                raise Failed(f"no {token}", effects="done", details={"tokens": [token]})
            return {token: [f"it is {token}", 7]}

        return fetch

    for external, fails in ((True, False), (False, True), (False, False)):
        store = MemoryStore()
        async with Executor(Registry([work(external, fails)]), guards=[Once(store)]) as first:
            await first.execute("fetch", key="k")
        kept = str(await store.scan("once"))
        async with Executor(Registry([work(external, fails)]), guards=[Once(store)]) as second:
            result = await second.execute("fetch", key="k")
        if external:
            assert result.output == {
                "[redacted:github_token]": ["it is [redacted:github_token]", 7]
            }
        elif fails:
            assert result.error is not None
            assert result.error.message == "no [redacted:github_token]"
        else:
            assert result.output == {token: [f"it is {token}", 7]}, "its own, it gets again"
        assert (token in kept) == (not external and not fails)
    assert runs == 3


@pytest.mark.parametrize("fails", [False, True])
async def test_a_repeat_says_what_was_redacted_as_the_first_answer_did(fails: bool) -> None:
    token, store = "gh" + "p_" + made(36), MemoryStore()

    def guards() -> list[Any]:
        return [Sanitize(), Once(store)]

    @tool(effects="once", labels={"external": "true"})
    async def fetch() -> dict[str, Any]:
        """Fetch a token."""
        if fails:
            raise Failed(f"no {token} for ada@example.org", effects="done")
        return {"token": token, "mail": "ada@example.org"}

    async with Executor(Registry([fetch]), guards=guards()) as tools:
        first = await tools.execute("fetch", key="k")
    async with Executor(Registry([fetch]), guards=guards()) as tools:
        again = await tools.execute("fetch", key="k")
    assert again.metadata.cached and again.output == first.output
    for result in (first, again):
        said = result.error.message if result.error else "\n".join(result.notices)
        assert "Redacted in " in said and "email" in said
        if fails:
            assert "(Redacted in this error: github_token" in said
        else:
            warned = "\n".join(result.metadata.warnings)
            assert "github_token at /token" in warned and "email at /mail" in warned
    assert token not in str(again) and token not in str(await store.scan("once"))


async def test_a_repeat_does_not_hand_over_what_redaction_has_made_unfit() -> None:
    token, store = "gh" + "p_" + made(36), MemoryStore()
    schema = {"type": "object", "properties": {"note": {"pattern": "^ghp_"}}}

    @tool(effects="once", labels={"external": "true"}, output_schema=schema)
    async def fetch() -> dict[str, Any]:
        """Fetch a token."""
        return {"note": token}

    for _ in range(2):
        async with Executor(Registry([fetch]), guards=[Sanitize(), Once(store)]) as tools:
            result = await tools.execute("fetch", key="k")
        assert said(result) == ("POLICY_DENIED", "done") and result.error is not None
        assert "github_token at /note" in result.error.message
    assert result.metadata.cached


# before anybody is asked


class Desk(Shop):
    """Somebody has to say yes before anything is charged."""

    def __init__(self, *between: Any, store: Any = None, **options: Any) -> None:
        super().__init__(store, **options)
        self.approval = Approval(self.ring._records)
        once = self.ring
        guards = [once.parts["lookup"], *between, self.approval, once]
        self.executor = Executor(Registry(self._tools()), guards=guards)

    def _tools(self) -> list[Any]:
        charge, *others = super()._tools()
        spec = msgspec.structs.replace(charge.spec, requires_approval=True)
        return [msgspec.structs.replace(charge, spec=spec), *others]

    async def say_yes(self, result: Result, **more: Any) -> str:
        assert result.error is not None and result.error.code == "APPROVAL_REQUIRED", result
        handle = str((result.error.details or {})["approval"])
        yes = Decision(approve=True, **more)
        await self.approval.approvals.decide(handle, yes, by=ZOE, channel="console")
        return handle


ZOE = Caller("zoe", owner=True)


async def test_a_known_key_answers_before_anybody_is_asked_again() -> None:
    desk = Desk()
    handle = await desk.say_yes(await desk.charge())
    assert (await desk.charge()).output == {"charged": 5}
    for repeat in (await desk.charge(), await desk.charge(grant=handle)):
        assert (repeat.output, repeat.metadata.cached) == ({"charged": 5}, True)
        assert [*repeat.metadata.trail] == ["once.lookup", "once: the first result"]
    assert said(await desk.charge(6)) == ("CONFLICT", "none")
    assert await desk.approval.approvals.waiting() == []
    assert said(await desk.charge(caller=BOB)) == ("APPROVAL_REQUIRED", "none"), "it is his own"
    assert desk.charged == [5]


async def test_a_call_that_runs_is_joined_before_anybody_is_asked_again() -> None:
    desk = Desk()
    await desk.say_yes(await desk.charge())
    desk.go_on.clear()
    first = asyncio.ensure_future(desk.charge())
    await asyncio.wait_for(desk.begun.wait(), 20)
    second = asyncio.ensure_future(desk.charge())
    desk.go_on.set()
    results = await asyncio.wait_for(asyncio.gather(first, second), 20)
    assert [one.output for one in results] == [{"charged": 5}] * 2
    assert desk.charged == [5] and await desk.approval.approvals.waiting() == []


async def test_a_repeat_of_a_call_that_was_approved_with_other_arguments_gets_its_outcome() -> None:
    desk = Desk()
    await desk.say_yes(await desk.charge(), arguments={"amount": 3})
    for _ in range(2):
        assert (await desk.charge()).output == {"charged": 3}
    assert said(await desk.charge(3)) == ("CONFLICT", "none"), "that was not asked for"
    assert desk.charged == [3]


async def test_an_outcome_that_nobody_knows_is_told_before_anybody_is_asked() -> None:
    desk = Desk()
    await desk.say_yes(await desk.charge())
    desk.error = Unavailable("The line broke.", effects="unknown")
    await desk.charge()
    assert said(await desk.charge()) == ("UNAVAILABLE", "unknown")
    assert await desk.approval.approvals.waiting() == []


async def test_a_repeat_is_not_counted_by_a_rate() -> None:
    desk = Desk(Rate(RateOptions(tools={"put": "1/h"})))
    for _ in range(3):
        assert (await desk.executor.execute("put", {"amount": 1}, key="k")).success
    other = await desk.executor.execute("put", {"amount": 1}, key="other")
    assert said(other) == ("RATE_LIMITED", "none")
    assert desk.charged == [1]


async def test_a_plain_call_with_a_new_key_costs_no_read_of_the_store() -> None:
    class Counting(MemoryStore):
        reads = writes = 0

        async def get(self, space: str, key: str) -> Record | None:
            self.reads += 1
            return await super().get(space, key)

        async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
            self.writes += 1
            return await super().put(space, key, value, **more)

    store = Counting()
    desk = Desk(Rate(), store=store)
    assert (await desk.executor.execute("put", {"amount": 1}, key="k")).success
    assert (store.reads, store.writes) == (0, 2)
    assert (await desk.executor.execute("put", {"amount": 1}, key="k")).metadata.cached
    assert "once.lookup" in desk.executor.bound("put").rings
    assert desk.executor.bound("look").rings == ("rate", "approval")
