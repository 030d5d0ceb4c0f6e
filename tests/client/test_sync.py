"""The tools of a gateway in a program without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import pytest

from tests.gateway.gateway_tools import ALL, until
from tests.gateway.running import Running, serving
from toolpost import Progress
from toolpost.client import sync
from toolpost.client.client import Client
from toolpost.client.parts import Approvals, Artifacts, Audit, Jobs
from toolpost.client.sync import ClientTools
from toolpost.errors import ToolNotFound
from toolpost.jobs import Job

pytestmark = pytest.mark.anyio
T = TypeVar("T")


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("sync"), *ALL, jobs=True) as running:
        yield running


async def in_thread(served: Running, work: Callable[[ClientTools], T]) -> T:
    """A program of its own; the loop of the test serves it meanwhile."""

    def run() -> T:
        with sync.open(served.url) as tools:
            return work(tools)

    async with asyncio.timeout(30):
        return await asyncio.to_thread(run)


async def test_calls_lists_and_progress_are_those_of_the_client(served: Running) -> None:
    heard: list[Progress] = []

    def work(tools: ClientTools) -> None:
        assert {spec.name for spec in tools.list()} == {one.spec.name for one in ALL}
        assert tools.show("add").name == "add"
        with pytest.raises(ToolNotFound):
            tools.show("nothing")
        assert tools.execute("add", {"a": 1, "b": 2}).output == 3
        assert tools.execute("count", {"to": 2}, on_progress=heard.append).output == "done"
        with ThreadPoolExecutor(4) as threads:
            results = threads.map(lambda n: tools.execute("echo", {"value": n}).output, range(20))
            assert list(results) == list(range(20)), "threads share it"

    await in_thread(served, work)
    assert [one.done for one in heard if one.done is not None][-1] == 1


async def test_a_job_is_followed_to_its_end_or_left_in_the_middle(served: Running) -> None:
    def work(tools: ClientTools) -> list[Job | Progress]:
        job = tools.jobs.submit("add", {"a": 2, "b": 2})
        news = list(tools.jobs.follow(job.id))
        long = tools.jobs.submit("wait", {"mark": "followed"})
        for _ in tools.jobs.follow(long.id):
            break
        assert tools.jobs.cancel(long.id).state == "cancelled"
        with pytest.raises(ToolNotFound):
            list(tools.jobs.follow("jb-00000000000000000000"))
        return news

    last = (await in_thread(served, work))[-1]
    assert isinstance(last, Job) and last.result is not None
    assert (last.state, last.result.output) == ("succeeded", 4)


async def test_the_end_of_the_block_stops_what_still_runs(served: Running) -> None:
    ended = threading.Event()

    def late(tools: ClientTools) -> None:
        with suppress(Exception):  # it is cancelled, or its connection is closed
            tools.execute("wait", {"mark": "blocked"})
        ended.set()

    def work(tools: ClientTools) -> None:
        threading.Thread(target=late, args=(tools,), daemon=True).start()
        asyncio.run(until("blocked began"))

    await in_thread(served, work)
    await until("blocked was cancelled")
    assert ended.wait(20)


async def test_where_a_loop_runs_it_is_refused(served: Running) -> None:
    with pytest.raises(RuntimeError, match="await the async API"), sync.open(served.url):
        pass


def test_whatever_the_client_can_the_blocking_one_can() -> None:
    def public(thing: object) -> set[str]:
        return {name for name in dir(thing) if not name.startswith("_")}

    async def compared() -> None:
        client = Client("http://127.0.0.1:9")
        tools = ClientTools(client, asyncio.get_running_loop())
        assert public(tools) == public(client) - {"close"}
        for part, kind in zip(
            (tools.jobs, tools.approvals, tools.artifacts, tools.audit),
            (Jobs, Approvals, Artifacts, Audit),
            strict=True,
        ):
            assert public(part) == public(kind)

    asyncio.run(compared())
