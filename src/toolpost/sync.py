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
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from toolpost.config import Config
from toolpost.contracts import Backend, Extension, Ring
from toolpost.environ import secret
from toolpost.executor import Executor
from toolpost.registry import Item
from toolpost.runtime import Runtime

if TYPE_CHECKING:
    from toolpost.extensions.approval import Ask

P = ParamSpec("P")
T = TypeVar("T")
Opened = TypeVar("Opened", Executor, Runtime)


class Tools:
    """What an executor or a runtime can do, blocking."""

    def __init__(self, opened: Executor | Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = opened.registry
        self.list = opened.list
        self.execute = _blocking(opened.execute, loop)


class RuntimeTools(Tools):
    """What a runtime can do besides: load its sources anew, and say how it is."""

    def __init__(self, opened: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(opened, loop)
        self.reload = _blocking(opened.reload, loop)
        self.health = _blocking(opened.health, loop)
        self.extension = opened.extension
        self._opened = opened

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong right now, by the part that has it."""
        return self._opened.problems


@contextmanager
def open(  # noqa: A001 - as Runtime.open
    config: str | Path | Config | None = None,
    *,
    tools: Iterable[Item] = (),
    observers: Iterable[Extension | Ring] = (),
    guards: Iterable[Extension | Ring] = (),
    backends: Mapping[str, Backend] | None = None,
    provide: Mapping[type, object] | None = None,
    secret: Callable[[str], str | None] = secret,
    ask: Ask | None = None,
) -> Iterator[RuntimeTools]:
    """The tools of a config, blocking. ``ask`` is awaited on the loop of the tools."""

    def make() -> Runtime:
        return Runtime.open(
            config,
            tools=tools,
            observers=observers,
            guards=guards,
            backends=backends,
            provide=provide,
            secret=secret,
            ask=ask,
        )

    with _serving(make) as (opened, loop):
        yield RuntimeTools(opened, loop)


@contextmanager
def over(make: Callable[[], Executor]) -> Iterator[Tools]:
    """The tools of an executor of your own, which is made on the loop: ``over(lambda: …)``."""
    with _serving(make) as (opened, loop):
        yield Tools(opened, loop)


@contextmanager
def _serving(make: Callable[[], Opened]) -> Iterator[tuple[Opened, asyncio.AbstractEventLoop]]:
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

    async def enter() -> Opened:
        return await make().__aenter__()

    try:
        opened = _blocking(enter, loop)()
        try:
            yield opened, loop
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
