"""What is awaited, made to block: one event loop in a thread of its own, for who has none.

Above: ``sync.py``, and ``client/sync.py`` for the tools of a gateway. Below: asyncio. The loop ends
with the ``with`` block. Inside a running event loop it is refused, for blocking there would stop
everything else; so it is in a forked child, which has no such thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, Protocol, Self, TypeVar

_AWAKE: Final = 0.5
"""Seconds that a thread sleeps at a time."""
P = ParamSpec("P")
T = TypeVar("T")


class Opens(Protocol):
    """What is open in ``async with``."""

    async def __aenter__(self) -> Self: ...

    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Opens)


@contextmanager
def serving(make: Callable[[], Opened]) -> Iterator[tuple[Opened, asyncio.AbstractEventLoop]]:
    """What is made, open on a loop, which serves all threads that call."""
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
        opened = blocking(enter, loop)()
        try:
            yield opened, loop
        finally:
            if os.getpid() == home:
                blocking(opened.close, loop)()
    finally:
        if os.getpid() == home:
            loop.call_soon_threadsafe(ended.set)
            thread.join()


def blocking(
    function: Callable[P, Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop
) -> Callable[P, T]:
    """The same function, for who does not await."""
    home = os.getpid()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        _verify(home, loop)
        waiting = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), loop)
        try:
            return _heard(waiting)
        except BaseException:  # Ctrl-C as well: nobody waits any more, so the tool must stop
            waiting.cancel()
            raise

    return call


def _heard(waiting: Future[T]) -> T:
    """What comes of it. A signal that arrives just before a thread falls asleep does not wake it:
    so it wakes by itself now and then.
    """
    while True:
        try:
            return waiting.result(_AWAKE)
        except TimeoutError:
            if waiting.done():
                return waiting.result()


def iterating(
    function: Callable[P, AsyncGenerator[T, None]], loop: asyncio.AbstractEventLoop
) -> Callable[P, Iterator[T]]:
    """The same for what comes bit by bit. Who stops in the middle stops it."""
    home = os.getpid()

    def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        _verify(home, loop)
        come: SimpleQueue[tuple[T] | None] = SimpleQueue()

        async def hear() -> None:  # in one task: what it uses may be the task's own
            try:
                async with aclosing(function(*args, **kwargs)) as them:
                    async for one in them:
                        come.put((one,))
            finally:
                come.put(None)

        hearing = asyncio.run_coroutine_threadsafe(hear(), loop)
        try:
            while True:
                try:
                    one = come.get(timeout=_AWAKE)
                except Empty:
                    continue
                if one is None:
                    break
                yield one[0]
            hearing.result()
        finally:
            hearing.cancel()

    return iterate


def _verify(home: int, loop: asyncio.AbstractEventLoop) -> None:
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
