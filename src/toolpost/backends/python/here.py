"""Running a function in this process: in the event loop, or in a thread so that the loop goes on.

Above: ``backend.py``, for ``isolation: inline`` and ``thread``. Below: ``calling`` and ``threads``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from toolpost.backends.python.calling import Function
from toolpost.backends.python.threads import Threads
from toolpost.call import Call, Progress

Run = Callable[[Call], Coroutine[Any, Any, Any]]


def inline(function: Function) -> Run:
    call_it, finish = function.call, function.finish
    if not function.is_async:

        async def run_sync(call: Call) -> Any:
            value = call_it(call)
            return finish(await value if inspect.iscoroutine(value) else value)

        return run_sync
    if function.gives_data:
        return call_it

    async def run(call: Call) -> Any:
        return finish(await call_it(call))

    return run


def threaded(function: Function, threads: Threads) -> Run:
    call_it, finish = function.call, function.finish

    async def run(call: Call) -> Any:
        stopped = False

        def work() -> Any:
            value = call_it(heard)
            if function.is_async:
                value = asyncio.run(value)
            return value if inspect.iscoroutine(value) else finish(value)

        heard = _from_thread(call, lambda: stopped)
        try:
            value = await threads.run(work)
        except asyncio.CancelledError:
            stopped = True
            raise
        # a plain function around an async one: what it left to be awaited belongs to the loop
        return finish(await value) if inspect.iscoroutine(value) else value

    return run


def _from_thread(call: Call, stopped: Callable[[], bool]) -> Call:
    """The call as a thread sees it: what it reports is heard in the loop, until it is stopped."""
    loop, hear = asyncio.get_running_loop(), call.on_progress

    def report(progress: Progress) -> None:
        if hear is not None and not stopped():
            loop.call_soon_threadsafe(hear, progress)

    return msgspec.structs.replace(call, on_progress=report, stopped=stopped)
