"""The same, blocking: for programs that have no event loop.

``with toolpost.sync.open("toolpost.toml") as tools: tools.execute("add", {"a": 1, "b": 2})``

One event loop in a thread of its own serves all callers; it ends with the ``with`` block. Inside a
running event loop use the async API: blocking there would stop everything else, so it is refused;
so is a forked child, which has no such thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from toolpost.contracts import Backend, Extension, Ring
from toolpost.executor import Executor
from toolpost.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")


class Tools:
    """What an executor or a runtime can do, blocking."""

    def __init__(self, opened: Executor | Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = opened.registry
        self.list = opened.list
        self.execute = _blocking(opened.execute, loop)


@contextmanager
def open(  # noqa: A001 - as Runtime.open
    path: str | Path | None = None,
    *,
    observers: Iterable[Extension | Ring] = (),
    guards: Iterable[Extension | Ring] = (),
    backends: Mapping[str, Backend] | None = None,
    provide: Mapping[type, object] | None = None,
) -> Iterator[Tools]:
    """The tools of a config, blocking."""

    def make() -> Runtime:
        return Runtime.open(
            path, observers=observers, guards=guards, backends=backends, provide=provide
        )

    with _serving(make) as tools:
        yield tools


@contextmanager
def over(make: Callable[[], Executor]) -> Iterator[Tools]:
    """The tools of an executor of your own, which is made on the loop: ``over(lambda: …)``."""
    with _serving(make) as tools:
        yield tools


@contextmanager
def _serving(make: Callable[[], Executor | Runtime]) -> Iterator[Tools]:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        ended = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    # asyncio.run also cancels what is left at the end, and waits for it
    thread = threading.Thread(
        target=lambda: asyncio.run(serve()), name="toolpost-sync", daemon=True
    )
    thread.start()
    loop, ended = started.result()

    home = os.getpid()

    async def enter() -> Executor | Runtime:
        return await make().__aenter__()

    try:
        opened = _blocking(enter, loop)()
        try:
            yield Tools(opened, loop)
        finally:
            if os.getpid() == home:
                _blocking(opened.close, loop)()
    finally:
        if os.getpid() == home:
            loop.call_soon_threadsafe(ended.set)
            thread.join()


def _blocking(
    function: Callable[P, Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop
) -> Callable[P, T]:
    home = os.getpid()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("an event loop runs here: await the async API instead")
        if os.getpid() != home:
            raise RuntimeError("these tools stayed with the parent: open them after the fork")
        if loop.is_closed():
            raise RuntimeError("these tools are closed: use them inside the with block")
        waiting = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop)
        try:
            return waiting.result()
        except BaseException:  # Ctrl-C as well: nobody waits any more, so the tool must stop
            waiting.cancel()
            raise

    return call
