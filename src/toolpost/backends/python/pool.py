"""Warm Python workers: a function by reference, run in a process that can be killed.

Above: ``backend.py``, for ``isolation: process`` and ``sandbox``. Below: ``process.py`` keeps the
processes, ``worker.py`` speaks with one of them, ``child.py`` is what runs in it. It refuses to
know specs and schemas: it gets JSON data as arguments and gives back JSON data, or raises one of
``errors.py``.

::

    async with WorkerPool(python_path=sys.path, memory=512 << 20) as pool:
        total = await pool.run(Target("tools", "add"), {"a": 1, "b": 2})

- A cancelled ``run`` (the caller went, or the limit passed) has killed the worker and every
  process below it before it raises; another worker is started in its place meanwhile. If the
  function had not begun, nothing is killed.
- One call at a time in a worker. Calls beyond ``size`` wait, first come first served.
- A worker is replaced after ``recycle_after`` calls, when it has grown by ``growth`` bytes, when
  its memory ran out, and when a call leaves a process behind: what a tool starts is killed as
  soon as its call has ended, and no other call runs beside it. Threads that it leaves behind
  live on until the worker goes.
- What comes from a worker is not trusted: bounded, parsed strictly, and a worker that sends
  anything else is killed. Its prints and log records arrive as ``{"type": "log", …}`` events.
- What a tool raises is written to the log ``toolpost.tools`` with its traceback; the caller
  gets the tool's own message only if it raised a ``CallError``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from toolpost.backends.python.starting import Plain, Starter
from toolpost.backends.python.worker import OnEvent, Plan, Target, Worker, log, start_worker
from toolpost.deadline import not_begun
from toolpost.errors import CallError, MissingPart, SetupError, Unavailable
from toolpost.process import unhurried

__all__ = ["DEFAULT_ENVIRONMENT", "OnEvent", "Target", "WorkerPool"]

DEFAULT_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
}
"""What a worker sees if nothing else is said."""
_CLOSE_LIMIT: Final = 10.0
_LOAD_LIMIT: Final = 30.0
_CLOSED: Final = "The worker pool is closed."
_NO_WORKER: Final = "No worker process could be started for this tool."


class WorkerPool:
    """Up to ``size`` warm workers, started when needed and replaced when lost."""

    def __init__(
        self,
        *,
        python_path: Sequence[str],
        env: Mapping[str, str] | None = None,
        memory: int | None = None,
        disk: int | None = None,
        files: int | None = None,
        size: int = 10,
        recycle_after: int = 1000,
        growth: int = 256 << 20,
        max_output: int = 16 << 20,
        cwd: str | None = None,
        namespace: bool = True,
        starter: Starter | None = None,
    ) -> None:
        """``starter`` starts the processes; else they are plain ones with ``env``, ``memory``,
        ``cwd``, in a pid ``namespace`` if one can be had, and no file of theirs is larger than
        ``disk``.
        """
        here = str(Path.cwd())
        env = DEFAULT_ENVIRONMENT if env is None else env
        self._plan = Plan(
            starter=Plain(env, memory, disk, cwd, namespace) if starter is None else starter,
            python_path=tuple(dict.fromkeys(folder or here for folder in python_path)),
            memory=memory,
            disk=disk,
            files=files,
            growth=growth,
            max_output=max_output,
        )
        self._size = size
        self._recycle_after = recycle_after
        self._keys: dict[Target, int] = {}
        self._idle: list[Worker] = []
        self._workers: set[Worker] = set()
        self._leaving: set[Worker] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._waiters: deque[asyncio.Future[Worker]] = deque()
        self._closed = False

    async def run(
        self,
        target: Target,
        arguments: Mapping[str, Any],
        *,
        context: Callable[[], dict[str, Any]] | None = None,
        on_event: OnEvent | None = None,
    ) -> Any:
        """Run one call to its end and return the tool's output as plain JSON data.

        ``context`` says what a tool is told that asks for its call, when it begins.
        """
        key = self._keys.get(target)
        if key is None:
            key = self._keys[target] = len(self._keys)
        while True:
            worker = self._idle.pop() if self._idle else None
            if worker is None or key not in worker.known:
                worker = await self._loaded(key, target, worker)
            try:
                told = None if context is None else context()
                answer = worker.begin(key, target, arguments, told, on_event)
                if answer is not None:  # else it died or retired while it was idle: take another
                    return await answer
            except asyncio.CancelledError:
                if worker.busy:
                    await worker.stop()
                raise
            finally:
                self._release(worker)

    async def _loaded(self, key: int, target: Target, worker: Worker | None) -> Worker:
        """A worker that has the function. Importing may take longer than the call has: the import
        goes on when the call is given up, and the next one finds it done.
        """
        try:
            while True:
                worker = worker or await self._next_worker()
                if key in worker.known:
                    return worker
                loading = worker.begin(key, target, None, None, None)
                if loading is not None:
                    await self._load(worker, loading)
                    return worker
                self._release(worker)
                worker = None
        except asyncio.CancelledError:
            raise not_begun() from None

    async def _load(self, worker: Worker, loading: asyncio.Future[Any]) -> None:
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            timer = asyncio.get_running_loop().call_later(_LOAD_LIMIT, worker.child.kill_soon)

            def done(_: asyncio.Future[Any]) -> None:
                timer.cancel()
                loading.exception()  # logged where it was made; nobody waits for it any more
                self._release(worker)

            loading.add_done_callback(done)
            raise
        except BaseException:
            self._release(worker)
            raise

    async def warm(self) -> None:
        """Have one worker ready before the first call; ``Unavailable`` if none will start."""
        if not self._workers:
            self._release(await self._next_worker())

    async def aclose(self) -> None:
        """End every worker with all its descendants; open calls end as ``Unavailable``."""
        self._closed = True
        for start in self._starts:
            start.cancel()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(Unavailable(_CLOSED, retryable=False))
        for worker in list(self._workers):
            self._retire(worker)
        ends: list[asyncio.Future[Any]] = [worker.child.exited for worker in self._leaving]
        ends += self._starts
        if ends:
            waiting = asyncio.wait(ends, timeout=_CLOSE_LIMIT)
            _, left = await unhurried(asyncio.ensure_future(waiting))
            if left:
                log.error("%d workers could not be ended in %g s", len(left), _CLOSE_LIMIT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _next_worker(self) -> Worker:
        """Wait for a worker, in the order of asking."""
        if hasattr(sys.modules.get("__mp_main__"), "__toolpost_loading__"):
            raise MissingPart(
                "a worker loads this script to find its tools, and the script calls one while it "
                "is being loaded: put that under if __name__ == '__main__':"
            )
        if self._closed:
            raise Unavailable(_CLOSED, retryable=False, effects="none")
        waiter: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._fill(spare=0)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            elif waiter.exception() is None:
                self._release(waiter.result())
            raise

    def _fill(self, *, spare: int) -> None:
        """Start as many workers as calls wait for one, or ``spare`` if none is idle."""
        wanted = max(len(self._waiters), 0 if self._idle else spare)
        room = self._size - len(self._workers)
        while not self._closed and len(self._starts) < min(wanted, room):
            start = asyncio.get_running_loop().create_task(self._start_one())
            self._starts.add(start)

    async def _start_one(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            worker = await start_worker(self._plan)
        except (OSError, CallError, SetupError) as error:
            self._starts.discard(this)
            self._give_up(error)
        except asyncio.CancelledError:
            self._starts.discard(this)
            raise
        else:
            self._starts.discard(this)
            worker.child.exited.add_done_callback(lambda _: self._lost(worker))
            self._workers.add(worker)
            self._release(worker)

    def _give_up(self, error: Exception) -> None:
        """A worker did not start: whoever waited longest hears it, the others get another try."""
        log.error("a worker could not be started: %s", error)
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(_refusal(error))
                break
        self._fill(spare=0)

    def _release(self, worker: Worker) -> None:
        """Give a worker to the call that waited longest, or let it go."""
        if worker not in self._workers:
            return
        if self._closed or worker.worn or worker.calls >= self._recycle_after:
            self._retire(worker)
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(worker)
                return
        self._idle.append(worker)

    def _retire(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self._leaving.add(worker)
        worker.leave()
        self._fill(spare=1)

    def _lost(self, worker: Worker) -> None:
        """The process is gone, wanted or not."""
        self._leaving.discard(worker)
        if worker in self._workers:
            self._workers.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            self._fill(spare=1)


def _refusal(error: Exception) -> Unavailable:
    """Why there is no worker: who set the tool up may read what a sandbox lacks."""
    if isinstance(error, SetupError):
        refusal = Unavailable(error.message, retryable=False, remedy="other_tool", effects="none")
    else:
        refusal = Unavailable(_NO_WORKER, effects="none")
    refusal.__cause__ = error
    return refusal
