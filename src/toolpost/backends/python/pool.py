"""Warm Python workers: a function by reference, run in a process that can be killed.

``backend.py`` uses it for ``isolation: process`` and ``sandbox``; ``worker.py`` speaks with one
process, ``child.py`` is what runs in it. The pool knows no specs and no schemas: it gets JSON data
as arguments and gives back JSON data, or raises one of ``errors.py``.

::

    async with WorkerPool(python_path=sys.path, memory=512 << 20) as pool:
        total = await pool.run(Target("tools", "add"), {"a": 1, "b": 2})

- A cancelled ``run`` (the caller went, or the limit passed) has killed the worker and every
  process below it before it raises; another worker is started in its place meanwhile. If the
  function had not begun, nothing is killed.
- One call at a time in a worker. ``state`` says who meets whom in one: with ``shared``, everybody;
  with ``caller``, calls of one principal; with ``call``, nobody. A worker goes from one principal
  to another only as a new fork of a template in which no call ever ran (``child.py``), or is
  replaced.
- Calls beyond ``size`` wait, and their number and their waiting are bounded. The principal that
  holds the fewest workers is served first; its own calls are first come, first served. While
  others hold all workers, a principal that has none gets one of ``extra``.
- A worker is replaced after ``recycle_after`` calls, when it has grown by ``growth`` bytes, when
  its memory ran out, and when a call leaves a process behind: what a tool starts is killed as
  soon as its call has ended, and no other call runs beside it. Threads that it leaves behind
  live on until the worker goes, or is handed to another principal.
- What comes from a worker is not trusted: bounded, parsed strictly, and a worker that sends
  anything else is killed. Its prints and log records arrive as ``{"type": "log", …}`` events.
- What a tool raises is written to the log ``toolpost.tools`` with its traceback; the caller
  gets the tool's own message only if it raised a ``CallError``.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from toolpost.backends.python.starting import Plain, Starter
from toolpost.backends.python.worker import (
    OnEvent,
    Plan,
    StaleWorker,
    Target,
    Worker,
    log,
    start_worker,
)
from toolpost.call import Call
from toolpost.deadline import not_begun, paused
from toolpost.errors import CallError, MissingPart, QueueFull, SetupError, Unavailable
from toolpost.process import unhurried
from toolpost.spec import State

__all__ = ["DEFAULT_ENVIRONMENT", "OnEvent", "Target", "WorkerPool"]

DEFAULT_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
}
"""What a worker sees if nothing else is said."""
_CLOSE_LIMIT: Final = 10.0
_LOAD_LIMIT: Final = 30.0
_MOMENT: Final = 1.0
"""Seconds: whoever used a worker so lately will soon want one again."""
_COME_AGAIN: Final = 1.0
_STILL_LOADING: Final = (
    "The tool is still being loaded after {:g}s, and did not run. Try again: loading goes on."
)
_CLOSED: Final = "The worker pool is closed."
_NO_WORKER: Final = "No worker process could be started for this tool."


class _Waiter:
    """A call that waits for a worker."""

    __slots__ = ("future", "timer")

    def __init__(self, seconds: float, expire: Callable[[asyncio.Future[Worker]], None]) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Worker] = loop.create_future()
        self.timer = loop.call_later(seconds, expire, self.future)


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
        extra: int = 0,
        state: State = "shared",
        queue: int = 1000,
        patience: float = 30.0,
        recycle_after: int = 1000,
        growth: int = 256 << 20,
        max_output: int = 16 << 20,
        cwd: str | None = None,
        namespace: bool = True,
        starter: Starter | None = None,
    ) -> None:
        """``starter`` starts the processes; else they are plain ones with ``env``, ``memory``,
        ``cwd``, in a pid ``namespace`` if one can be had, and no file of theirs is larger than
        ``disk``. ``queue`` calls may wait for a worker, each for ``patience`` seconds.
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
            template=state != "shared",
        )
        self.size = size
        self._extra = extra
        self._state = state
        self._queue, self._patience = queue, patience
        self._recycle_after = recycle_after
        self._keys: dict[Target, int] = {}
        self._recent: tuple[int, Target] | None = None
        """What was prepared last: a worker that is started ahead gets it too."""
        self._idle: dict[str, list[Worker]] = {}
        """By owner, the one that was used longest ago first; under ``""`` those without one."""
        self._workers: set[Worker] = set()
        self._leaving: set[Worker] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._preparing: set[asyncio.Task[bool]] = set()
        self._renewing: set[asyncio.Task[bool]] = set()
        """Those whose worker is free once they are done."""
        self._waiting: dict[str, deque[_Waiter]] = {}
        """By principal, the one that was served longest ago first."""
        self._queued = self._approved = 0
        self._closed = False

    async def run(
        self,
        target: Target,
        arguments: Mapping[str, Any],
        *,
        principal: str = "",
        call: Call | None = None,
        context: Callable[[], dict[str, Any]] | None = None,
        on_event: OnEvent | None = None,
    ) -> Any:
        """Run one call to its end and return the tool's output as plain JSON data.

        The time until a worker is ready is not the tool's: ``call`` is told of it. ``context`` says
        what a tool is told that asks for its call, when it begins.
        """
        key = self._keys.get(target)
        if key is None:
            key = self._keys[target] = len(self._keys)
        owner = self._owner(target, principal)
        while True:
            worker: Worker | None = None
            if self._waiting or len(self._workers) > self.size:
                pass  # whose turn it is, is said there
            elif (mine := self._idle.get(owner)) is not None:
                worker = mine.pop()
                if not mine:
                    del self._idle[owner]
            elif self._idle:
                worker = self._take(owner)
            if worker is not None:
                worker.serving = principal
            if worker is None or key not in worker.known or worker.owner not in ("", owner):
                with nullcontext() if call is None else paused(call):
                    worker = await self._ready(key, target, principal, owner, worker)
            try:
                told = None if context is None else context()
                answer = worker.begin(key, target, arguments, told, on_event)
                if answer is not None:  # else it died or retired while it was idle: take another
                    worker.owner = owner
                    return await answer
            except asyncio.CancelledError:
                if worker.busy:
                    await worker.stop()
                raise
            finally:
                self._release(worker)

    def _owner(self, target: Target, principal: str) -> str:
        """With whose calls it may share a process. An approved call shares it with none: another
        call, of the same principal too, could have replaced what was approved.
        """
        if target.code is not None:
            self._approved += 1
            return f"approved {self._approved}"
        return "" if self._state == "shared" else principal

    def _take(self, owner: str) -> Worker:
        """The owner's idle worker, else one that nobody has used, else the one of another that was
        used longest ago, which is to be made new.
        """
        whose = next((one for one in (owner, "") if one in self._idle), None)
        if whose is None:
            whose = next(iter(self._idle))
        worker = self._idle[whose][0]
        self._not_idle(worker)
        if whose not in (owner, "") and monotonic() - worker.used < _MOMENT:
            self._start(min(1, self.size - len(self._workers)))  # its owner will want another
        return worker

    async def _ready(
        self, key: int, target: Target, principal: str, owner: str, worker: Worker | None
    ) -> Worker:
        """A worker that has the function, and nothing of other principals. Importing may take
        longer than the call has: it goes on when the call is given up, and the next finds it done.
        """
        ends = monotonic() + self._patience
        try:
            while True:
                worker = worker or await self._next_worker(principal, ends - monotonic())
                task = asyncio.get_running_loop().create_task(worker.prepare(key, target, owner))
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)
                try:
                    await self._prepared(worker, task, max(0.0, ends - monotonic()))
                except StaleWorker:  # it is being replaced
                    worker = None
                    continue
                if task.result():
                    self._recent = key, target
                    return worker
                self._discard(worker)
                worker = None
        except asyncio.CancelledError:
            raise not_begun() from None

    async def _prepared(self, worker: Worker, task: asyncio.Task[bool], seconds: float) -> None:
        try:
            await asyncio.wait((task,), timeout=seconds)
            if not task.done():
                raise Unavailable(_STILL_LOADING.format(self._patience), effects="none")
            if (error := task.exception()) is not None:
                raise error
        except BaseException:
            if task.done():
                self._release(worker)
                raise
            timer = asyncio.get_running_loop().call_later(_LOAD_LIMIT, worker.child.kill_soon)

            def done(_: asyncio.Task[bool]) -> None:
                timer.cancel()
                if not task.cancelled():
                    task.exception()  # logged where it was made; nobody waits for it any more
                self._release(worker)

            task.add_done_callback(done)
            raise

    async def warm(self) -> None:
        """Have one worker ready before the first call; ``Unavailable`` if none will start."""
        if not self._workers:
            self._release(await self._next_worker("", self._patience))

    async def aclose(self) -> None:
        """End every worker with all its descendants; open calls end as ``Unavailable``."""
        self._closed = True
        for start in self._starts:
            start.cancel()
        while self._waiting:
            self._hand(next(iter(self._waiting)), Unavailable(_CLOSED, retryable=False))
        for worker in list(self._workers):
            self._retire(worker)
        ends: list[asyncio.Future[Any]] = [worker.child.exited for worker in self._leaving]
        ends += [*self._starts, *self._preparing, *self._renewing]
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

    async def _next_worker(self, principal: str, seconds: float) -> Worker:
        """Wait for a worker; ``QueueFull`` if too many do, or none was free for too long."""
        if hasattr(sys.modules.get("__mp_main__"), "__toolpost_loading__"):
            raise MissingPart(
                "a worker loads this script to find its tools, and the script calls one while it "
                "is being loaded: put that under if __name__ == '__main__':"
            )
        if self._closed:
            raise Unavailable(_CLOSED, retryable=False, effects="none")
        if self._queued >= self._queue:
            raise self._busy(f"and {self._queued} calls are waiting for one")
        waiter = _Waiter(max(0.0, seconds), self._expire)
        self._waiting.setdefault(principal, deque()).append(waiter)
        self._queued += 1
        self._hand_out_idle()
        self._fill(spare=0)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled() and waiter.future.exception() is None:
                self._release(waiter.future.result())
            raise
        finally:
            waiter.timer.cancel()
            theirs = self._waiting.get(principal)
            if theirs is not None and waiter in theirs:
                self._forget(principal, waiter)

    def _expire(self, waiting: asyncio.Future[Worker]) -> None:
        if not waiting.done():
            waiting.set_exception(self._busy(f"and none was free for {self._patience:g}s"))

    def _busy(self, why: str) -> QueueFull:
        return QueueFull(
            f"All {len(self._workers)} worker processes for this tool are busy, {why}. "
            "The tool did not run. Try again later.",
            retry_after=_COME_AGAIN,
            effects="none",
        )

    def _forget(self, principal: str, waiter: _Waiter) -> None:
        theirs = self._waiting.pop(principal)
        theirs.remove(waiter)
        self._queued -= 1
        if theirs:
            self._waiting[principal] = theirs  # behind the others: they are next

    def _next_in_turn(self) -> str | None:
        """Of the principals that wait, the one that holds the fewest workers. Beyond the size it
        gets one only if it has none.
        """
        held = Counter(worker.serving for worker in self._workers if worker.serving)
        principal = min(self._waiting, key=held.__getitem__, default=None)
        if principal is None or (held[principal] and held.total() >= self.size):
            return None
        return principal

    def _hand_out_idle(self) -> None:
        while self._idle and (principal := self._next_in_turn()) is not None:
            worker = self._take("" if self._state == "shared" else principal)
            if not self._hand(principal, worker):
                self._let_go(worker)

    def _hand(self, principal: str, outcome: Worker | Exception) -> bool:
        """Give it to the principal's first call that waits; False if that has gone meanwhile."""
        waiter = self._waiting[principal][0]
        self._forget(principal, waiter)
        if waiter.future.done():
            return False
        if isinstance(outcome, Exception):
            waiter.future.set_exception(outcome)
        else:
            outcome.serving = principal
            waiter.future.set_result(outcome)
        return True

    def _fill(self, *, spare: int) -> None:
        """Start as many workers as calls wait for one, or ``spare`` if none is idle. Beyond the
        size there is one for each principal that waits and has none.
        """
        alone = len(self._workers) < 2  # with two, one is made new while the other serves
        wanted = self._queued - (0 if alone else len(self._renewing))
        room = self.size - len(self._workers)
        if self._waiting and wanted > 0:
            having = {worker.serving for worker in self._workers}
            without = len(self._waiting.keys() - having)
            room = max(room, min(without, self.size + self._extra - len(self._workers)))
        self._start(min(max(wanted, 0 if self._idle else spare), room))

    def _start(self, most: int) -> None:
        """Have as many being started."""
        while not self._closed and len(self._starts) < most:
            start = asyncio.get_running_loop().create_task(self._start_one())
            self._starts.add(start)

    async def _start_one(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            worker = await start_worker(self._plan)
            if self._plan.template and not self._waiting:
                await self._prepare_ahead(worker)
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

    async def _prepare_ahead(self, worker: Worker) -> None:
        """Load what was used last, so that who takes this worker need not wait for the import. What
        cannot be loaded so is not tried again: the next call does, and says why.
        """
        recent, self._recent = self._recent, None
        if recent is None:
            return
        try:
            async with asyncio.timeout(_LOAD_LIMIT):
                if await worker.prepare(*recent, ""):
                    self._recent = recent
        except CallError:
            pass
        except (TimeoutError, asyncio.CancelledError) as gone:
            await worker.stop()
            if isinstance(gone, TimeoutError):
                raise Unavailable(_NO_WORKER) from gone
            raise

    def _give_up(self, error: Exception) -> None:
        """A worker did not start: one who waits hears it, the others get another try."""
        log.error("a worker could not be started: %s", error)
        while self._waiting and not self._hand(next(iter(self._waiting)), _refusal(error)):
            pass
        self._fill(spare=0)

    def _release(self, worker: Worker) -> None:
        """Give a worker to a call that waits, or let it go."""
        if worker not in self._workers:
            return
        worker.serving = ""
        worn = self._closed or worker.worn or worker.calls >= self._recycle_after
        if worn or (len(self._workers) > self.size and not self._waiting):
            self._retire(worker)
        elif self._state == "call" and worker.owner:
            self._renew(worker)
        else:
            self._let_go(worker)

    def _let_go(self, worker: Worker) -> None:
        """To whoever waits and may have it, else among the idle."""
        while self._waiting and (principal := self._next_in_turn()) is not None:
            if self._hand(principal, worker):
                return
        if worker.owner:
            worker.used = monotonic()
        idle = self._idle.get(worker.owner)
        if idle is None:
            self._idle[worker.owner] = [worker]
        else:
            idle.append(worker)

    def _renew(self, worker: Worker) -> None:
        """Make it new for the next call, behind the answer of this one."""
        task = asyncio.get_running_loop().create_task(worker.renew())
        self._renewing.add(task)

        def done(_: asyncio.Task[bool]) -> None:
            self._renewing.discard(task)
            if not task.cancelled() and task.exception() is None and task.result():
                self._release(worker)
            else:
                self._discard(worker)

        task.add_done_callback(done)

    def _discard(self, worker: Worker) -> None:
        """Replace one that cannot be made new."""
        if worker in self._workers:
            self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._not_idle(worker)
        self._leaving.add(worker)
        worker.leave()
        self._fill(spare=1)

    def _lost(self, worker: Worker) -> None:
        """The process is gone, wanted or not."""
        self._leaving.discard(worker)
        if worker in self._workers:
            self._workers.discard(worker)
            self._not_idle(worker)
            self._fill(spare=1)

    def _not_idle(self, worker: Worker) -> None:
        theirs = self._idle.get(worker.owner)
        if theirs is not None and worker in theirs:
            theirs.remove(worker)
            if not theirs:
                del self._idle[worker.owner]


def _refusal(error: Exception) -> Unavailable:
    """Why there is no worker: who set the tool up may read what a sandbox lacks."""
    if isinstance(error, SetupError):
        refusal = Unavailable(error.message, retryable=False, remedy="other_tool", effects="none")
    else:
        refusal = Unavailable(_NO_WORKER, effects="none")
    refusal.__cause__ = error
    return refusal
