"""One worker process as its pool sees it: send a call, hear events, get the answer.

Above: ``pool.py``, which decides who gets which worker. Below: ``process.py`` and, at the far
end of the wire, ``child.py``, which describes the frames. It refuses to know how many
workers there are. Whatever arrives is checked as a stranger's word: the tool's code runs where
the frames are made.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import math
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from toolpost.backends.python.line import Line
from toolpost.backends.python.starting import Starter
from toolpost.errors import (
    BY_CODE,
    CallError,
    Conflict,
    InternalError,
    InvalidArguments,
    InvalidOutput,
    Outcome,
    OutputTooLarge,
    Remedy,
    ResourceLimit,
    Unavailable,
)
from toolpost.failure import foreign_error, unfit
from toolpost.plain import measure
from toolpost.process import Child, Drain, Exit, unhurried
from toolpost.result import Output

OnEvent = Callable[[dict[str, Any]], None]
"""Hears ``log``, ``progress``, ``partial`` and ``warning`` events of one call, on the loop."""

log: Final = logging.getLogger("toolpost.tools")

_MAIN: Final = str(Path(__file__).with_name("child.py"))
_FORK: Final = -1
"""In the place of a target's key: what a template is asked for."""
_MAX_DEPTH: Final = 200
_ENVELOPE: Final = 128 * 1024
"""What a frame may hold beside the output itself: an error's traceback, above all."""
_LOG_EVENTS: Final = 1000
_LOG_BYTES: Final = 64 * 1024
_START_LIMIT: Final = 30.0
_LEAVE_LIMIT: Final = 0.5
_FORK_LIMIT: Final = 2.0
_LAST_WORDS: Final = 0.1
_KILL_LIMIT: Final = 0.9
_EVENTS: Final = frozenset(("log", "progress", "partial", "warning"))


class Target(msgspec.Struct, frozen=True):
    """Where a worker finds a function.

    ``path`` are folders that are searched before all others, for this target alone.
    ``main_path`` is the script a function of ``__main__`` stands in (a ``python -m`` program is
    better named by its module). ``described``: the function's own signature says how arguments and
    output are converted and what is injected; ``mapping``: it takes its arguments as one mapping.
    ``spec`` is the tool's, as JSON, for a function that asks for its call. ``code`` is the digest
    that the module's file must have when it is loaded; ``None``: any.
    """

    module: str
    qualname: str
    path: tuple[str, ...] = ()
    main_path: str | None = None
    described: bool = False
    mapping: bool = False
    spec: str | None = None
    code: str | None = None


class StaleWorker(Conflict):
    """The worker has loaded the module before, from a file that nobody verified or that was another
    one: a fresh worker can load it. Never leaves the pool.
    """


def code_changed() -> Conflict:
    return Conflict(
        "The code of this tool has changed since the call was approved, and was not run. Ask "
        "again, without a grant.",
        remedy="ask_approval",
        effects="none",
    )


class Plan(msgspec.Struct, frozen=True):
    """How the workers of one pool are started."""

    starter: Starter
    python_path: tuple[str, ...]
    memory: int | None
    disk: int | None
    files: int | None
    growth: int
    max_output: int
    template: bool = False
    """Whether its workers are templates, whose forks run the calls."""


class Worker:
    """A process that runs one call at a time, or a template and the process that it forked."""

    def __init__(self, sock: socket.socket, child: Child, plan: Plan) -> None:
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._most = plan.max_output + _ENVELOPE
        self._control = self._asked = Line(sock, self, self._most)
        self._line: Line | None = None if plan.template else self._control
        """What calls are sent to; a template has none until it has forked."""
        self._streams: tuple[Drain, ...] = ()
        """What the process that was forked last prints: nobody else has these pipes."""
        self._dropped: tuple[Line | Drain, ...] = ()
        """The line and the pipes of a process that the template is about to end."""
        self.known: set[int] = set()
        """The targets that can be called now."""
        self._loaded = set() if plan.template else self.known
        self._number = 0
        self._answer: asyncio.Future[Any] | None = None
        self._target: Target | None = None
        self._on_event: OnEvent | None = None
        self._renewing = False
        self._doom: CallError | None = None
        self._event_bytes = self._log_events = self._log_bytes = 0
        self.child = child
        self.calls = self.loads = 0
        self.owner = ""
        """The principal whose calls have run in it; none yet, or nobody keeps count."""
        self.serving = ""
        """The principal whose call it was handed out for."""
        self.used = 0.0
        """When it was last given back."""
        self.busy = False
        """True from the sending of a call to its answer."""
        self.worn = False
        """True once it must not serve another call."""
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._poller = select.poll()
        for name, drain in (("stdout", child.stdout), ("stderr", child.stderr)):
            if drain is not None:
                self._listen_to(name, drain)
        child.exited.add_done_callback(self._ended)

    def begin(
        self,
        key: int,
        target: Target,
        arguments: Mapping[str, Any],
        context: dict[str, Any] | None,
        on_event: OnEvent | None,
    ) -> asyncio.Future[Any] | None:
        """Send a call; the future gets the output or one of the call errors.

        The target must be ``known``. None if it cannot be sent any more: then the tool has
        certainly not run.
        """
        if not target.described:
            context = None
        number = self._number + 1
        try:
            body = _encode((number, key, arguments, context, None))
        except (TypeError, ValueError, RecursionError) as error:
            text = "The arguments are not plain JSON data."
            raise InvalidArguments(text, effects="none") from error
        line = self._line
        if line is None or self.worn or not line.send(body):
            self.worn = True
            return None
        self._target = target
        self._on_event = on_event
        self.calls += 1
        return self._await_answer(line)

    async def prepare(self, key: int, target: Target, principal: str) -> bool:
        """Have the target loaded, and nothing of another principal left. False if this worker
        cannot: it is to be replaced. Raises ``InternalError`` if the target cannot be loaded.
        """
        another = self.owner not in ("", principal)
        is_used = another or (target.code is not None and self.calls > 0)
        if is_used and self._line is self._control:
            return False
        if self.owner and not another and self._line is not None:  # what it has is kept
            return await self._load(key, target, self._line, self.known)
        if key not in self._loaded:
            if another and not await self.renew():  # one that was stopped is found out in seconds
                return False
            if self._line is not self._control:
                self._drop_line()
            if not await self._load(key, target, self._control, self._loaded):
                return False
        return (key in self.known and not another) or await self.renew()

    async def renew(self) -> bool:
        """Have a new fork of the template serve the calls to come; the old one ends with all that
        it has changed. False if that cannot be had: the worker is to be replaced.
        """
        if self._line is self._control:
            return False
        self._drop_line()
        near, far = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        handed = (far.detach(), out_end, err_end)
        answer = self._ask(self._control, _FORK, None, handed)
        for fd in handed:
            os.close(fd)
        forked = None if answer is None else await self._forked(answer)
        if forked is True:
            self._line = Line(near, self, self._most)
            self._streams = (Drain(out, self._loop), Drain(err, self._loop))
            for name, drain in zip(("stdout", "stderr"), self._streams, strict=True):
                self._listen_to(name, drain)
        else:
            near.close()
            os.close(out)
            os.close(err)
            self._line = self._control if forked is False else None
        if self._line is not None:
            self.known.update(self._loaded)
            if self._line is self._control:
                self._loaded = self.known
        return self._line is not None

    async def _forked(self, answer: asyncio.Future[Any]) -> Any:
        """Whether the template has forked; None if it does not answer soon, or has ended because
        something of a call was left that no fork may find.
        """
        self._renewing = True
        try:
            await asyncio.wait((answer,), timeout=_FORK_LIMIT)
            if answer.done():
                return answer.result()
            answer.cancel()
            self.worn = True  # a call may have stopped it
            self.child.kill_soon()
        except CallError:
            pass
        finally:
            self._renewing = False
        return None

    async def _load(self, key: int, target: Target, line: Line, into: set[int]) -> bool:
        self._target = target
        self.loads += 1
        answer = self._ask(line, key, msgspec.structs.asdict(target))
        if answer is None:
            return False
        await answer
        into.add(key)
        return True

    def _drop_line(self) -> None:
        """Hear no more of the process that was forked last: the template ends it at the next
        request. Its line is closed only then. Were it closed now, the process would end by itself,
        and the template with it.
        """
        if self._line is not None and self._line is not self._control:
            self._line.mute()
            self._dropped = (self._line, *self._streams)
            self._line, self._streams = None, ()
            self.known.clear()
            self.owner = ""

    def _ask(
        self, line: Line, key: int, target: Any, fds: Sequence[int] = ()
    ) -> asyncio.Future[Any] | None:
        """Send what is no call; None if nobody is there."""
        body = _encode((self._number + 1, key, None, None, target))
        if self.worn or not line.send(body, fds):
            self.worn = True
            return None
        answer = self._await_answer(line)
        if dropped := self._dropped:
            self._dropped = ()
            answer.add_done_callback(lambda _: [one.close() for one in dropped])
        return answer

    def _await_answer(self, line: Line) -> asyncio.Future[Any]:
        self._number += 1
        self._event_bytes = self._log_events = self._log_bytes = 0
        self._asked = line
        self.busy = True
        if self.child.quota is not None:
            self.child.quota.begin()
        self._answer = answer = self._loop.create_future()
        return answer

    async def stop(self) -> None:
        """Kill the process and everything below it; wait until they are gone, within a second."""
        self.worn = True
        self.child.kill_soon()
        gone: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(_KILL_LIMIT, _settle, gone)
        self.child.exited.add_done_callback(lambda _: _settle(gone))
        try:
            await unhurried(gone)
        finally:
            timer.cancel()
            if not self.child.exited.done():
                log.error("worker %d could not be killed yet; it is no longer used", self.child.pid)

    def leave(self) -> None:
        """Let an idle process end in order, a busy or worn one at once."""
        if self.child.exited.done():
            return
        if self.busy or self.worn:
            self.child.kill_soon()
        else:
            self._loop.call_later(_LEAVE_LIMIT, self.child.kill_soon)
        self._hang_up()

    def heard(self, line: Line, body: bytes) -> None:
        """One frame; only the line from which an answer is awaited may bring one."""
        try:
            number, kind, content = _decode(body)
        except (TypeError, ValueError, RecursionError):
            self._garbled()
            return
        if line is not self._asked:
            self._garbled()
        elif kind == "event":
            self._event(number, content, len(body))
        elif kind in ("ok", "output", "error") and self.busy and number == self._number:
            self._answered(content, kind)
        elif kind == "retire":
            self._retire()
        elif kind == "ready" and not self.ready.done():
            self.ready.set_result(None)
        else:
            self._garbled()

    def heard_too_much(self, line: Line) -> None:
        self._condemn(_too_large(self._plan.max_output))

    def cut_off(self, line: Line) -> None:
        """It closed the wire: dead, and about to be told how; or as good as dead."""
        line.close()
        self._loop.call_later(_LAST_WORDS, self.child.kill_soon)

    def _answered(self, content: Any, kind: str) -> None:
        if self._poller.poll(0):  # what it printed before it answered belongs to this call
            for drain in (self.child.stdout, self.child.stderr, *self._streams):
                if drain is not None:
                    drain.read_now()
        answer = self._answer
        self.busy = False
        if self.child.quota is not None:
            self.child.quota.end()
        self._answer = self._on_event = None
        if answer is None or answer.done():
            return
        if (over := self._over_quota()) is not None:
            answer.set_exception(over)
            return
        if kind == "ok":
            answer.set_result(content)
            return
        assert self._target is not None
        try:
            if kind == "error":
                raise self._failed(content, self._target)
            answer.set_result(msgspec.convert(content, Output))
        except msgspec.ValidationError:
            answer.set_exception(InvalidOutput("The tool returned parts that are not in order."))
        except CallError as error:
            answer.set_exception(error)

    def _failed(self, described: Any, target: Target) -> CallError:
        """What the far side says that it could not start may be a process too many."""
        if type(described) is dict and described.get("kind") == "code":
            if described.get("stale") is True and self.loads > 1:
                self.worn = True  # it has loaded other code before: another one can load this
                return StaleWorker("The worker has loaded other code.")
            return code_changed()
        suspected = type(described) is dict and described.get("bound") == "processes"
        if suspected and self._plan.starter.ran_into("processes", self.child) is not False:
            return ResourceLimit(
                "The tool wanted to start more processes or threads than it may.",
                details={"limit": "processes"},
            )
        if type(described) is dict and described.get("bound") == "disk":
            return _over_quota("disk", self._plan)
        return _failure(described, target, self._plan)

    def _over_quota(self) -> CallError | None:
        """Its call wrote too much: it is being killed, or has been."""
        quota = self.child.quota
        if quota is None or quota.exceeded is None:
            return None
        return _over_quota(quota.exceeded, self._plan)

    def _retire(self) -> None:
        """It is no longer fit: the call it is at, if any, is its last."""
        self.worn = True
        if not self.busy:
            self._hang_up()
            self.child.kill_soon()

    def _event(self, number: object, event: Any, size: int) -> None:
        if type(event) is not dict or event.get("type") not in _EVENTS:
            self._garbled()
        elif number == self._number and self.busy:  # else a thread outlived its call
            self._event_bytes += size
            if event["type"] == "log":
                self._log_events += 1
            if self._event_bytes > self._plan.max_output:
                self._condemn(_too_large(self._plan.max_output, effects="unknown"))
            elif self._log_events <= _LOG_EVENTS:
                self._tell(event)

    def _listen_to(self, name: str, drain: Drain) -> None:
        """Make events of what the process writes to one of its streams."""
        fd = drain.fd
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._poller.register(fd, select.POLLIN)

        def hear(data: bytes) -> None:
            if not data:
                self._poller.unregister(fd)
            elif self.busy and self._log_bytes < _LOG_BYTES:
                kept = data[: _LOG_BYTES - self._log_bytes]
                self._log_bytes += len(kept)
                event: dict[str, Any] = {"type": "log", "stream": name, "text": decode(kept)}
                if len(kept) < len(data):
                    event["truncated"] = True
                self._tell(event)

        drain.on_data = hear

    def _tell(self, event: dict[str, Any]) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # a listener's fault must not break the wire
            log.exception("a listener failed on an event of a tool")

    def _garbled(self) -> None:
        self._condemn(
            Unavailable("The tool's process answered with something unreadable.", effects="unknown")
        )

    def _condemn(self, error: CallError) -> None:
        """End a worker that broke the rules; its call, if any, gets ``error``."""
        if self._doom is None:
            log.error("worker %d is killed: %s", self.child.pid, error)
            self._doom = error
            self.worn = True
            self._hang_up()
            self.child.kill_soon()

    def _hang_up(self) -> None:
        self._control.close()
        if self._line is not None:
            self._line.close()
        for one in (*self._streams, *self._dropped):
            one.close()

    def _ended(self, exited: asyncio.Future[Exit]) -> None:
        self._read_last_frames()
        for drain in self._streams:
            drain.read_now()
        self._hang_up()
        self.worn = True
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            ended = Unavailable("The worker process is replaced.") if self._renewing else None
            answer.set_exception(self._doom or ended or self._death(exited.result()))
        if not self.ready.done():
            tail = self.child.stderr.tail.decode("utf-8", "replace") if self.child.stderr else ""
            log.error("a worker ended before it was ready: %s\n%s", exited.result(), tail)
            self.ready.set_exception(Unavailable("The worker process did not start."))
        self.busy = False

    def _read_last_frames(self) -> None:
        """It may have answered and ended at once: what it said before still counts."""
        while self.busy and self._asked.is_open and self._asked.read():
            pass

    def _last_words(self) -> str:
        """The end of what it wrote to standard error, and of what its last fork did."""
        drains = [self.child.stderr, *self._streams[1:]]
        return "".join(one.tail.decode("utf-8", "replace") for one in drains if one is not None)

    def _death(self, ending: Exit) -> CallError:
        memory = self._plan.memory
        tail = self._last_words()
        log.error("worker %d died during a call: %s\n%s", self.child.pid, ending, tail[-4096:])
        if (error := self._over_quota()) is not None:
            return error
        if ending.signal == signal.SIGXFSZ:
            return _over_quota("disk", self._plan)
        met = self._plan.starter.ran_into("memory", self.child)
        if met is None and memory is not None and ending.signal is not None:
            met = ending.max_rss > memory // 2
        if met:
            return _out_of_memory(memory)
        return Unavailable(
            "The tool's process died before it answered.",
            retryable=True,
            effects="unknown",
        )


async def start_worker(plan: Plan) -> Worker:
    """Start a process and wait until it is ready; raises ``OSError``, ``Unavailable``, or
    ``SetupError`` where it cannot be confined as it has to be.
    """
    near, far = socket.socketpair()
    with contextlib.ExitStack() as undo, far:
        undo.callback(near.close)
        limits = [str(plan.max_output), str(plan.growth)]
        words = [*limits, "template" if plan.template else "server", *plan.python_path]
        child = await plan.starter.start(_MAIN, words, wire=far.fileno())
        undo.pop_all()
    worker = Worker(near, child, plan)
    try:
        async with asyncio.timeout(_START_LIMIT):
            await worker.ready
    except TimeoutError:
        await worker.stop()
        raise Unavailable("The worker process did not get ready in time.") from None
    except asyncio.CancelledError:
        await worker.stop()
        raise
    return worker


_encode = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode


def _decode(body: bytes) -> Any:
    """Strict and exact in integers; how deep the parser goes is not the same everywhere."""
    frame = _parse(body)
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
        measure(frame, levels=_MAX_DEPTH)
    return frame


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _too_large(limit: int, effects: Outcome = "done") -> OutputTooLarge:
    return OutputTooLarge(
        f"The output is larger than the limit, {limit:,} bytes. Ask for less at a time.",
        effects=effects,
        details={"limit": limit},
    )


def _out_of_memory(memory: int | None) -> ResourceLimit:
    limit = f" of {memory >> 20} MiB" if memory else ""
    return ResourceLimit(f"The tool ran out of memory{limit}. Ask for less at once.")


def _over_quota(bound: Literal["disk", "files"], plan: Plan) -> ResourceLimit:
    if bound == "disk":
        done = f"wrote more than its limit of {plan.disk:,} bytes (limits.disk)"
    else:
        done = f"made more files than its limit of {plan.files:,} (limits.files)"
    return ResourceLimit(
        f"The tool {done} and was stopped. What it wrote until then is still there. Ask for less "
        "at a time.",
        details={"limit": bound},
    )


def _failure(described: Any, target: Target, plan: Plan) -> CallError:
    """The one table: what the far side says went wrong → the error the caller gets."""
    if type(described) is not dict:
        described = {}
    kind = described.get("kind")
    if kind == "memory":
        return _out_of_memory(plan.memory)
    if kind == "size":
        return _too_large(plan.max_output)
    name = f"{target.module}.{target.qualname}"
    if kind == "output":
        log.error("%s returned what is not plain JSON data: %s", name, described.get("message"))
        return InvalidOutput("The tool returned something that is not plain JSON data.")
    if type(described.get("setup")) is str:
        log.error("%s cannot run: %s", name, described["setup"])
        return unfit()
    told = _call_error(described.get("call_error"))
    if told is not None and kind != "import":
        return told
    log.error("%s failed (%s)\n%s", name, described.get("type"), described.get("traceback"))
    if kind == "import":
        return InternalError("The tool could not be loaded. See logs for details.", effects="none")
    return foreign_error(described.get("bases") or ())


def _call_error(told: Any) -> CallError | None:
    """A call error the tool raised, made anew here; fields of the wrong type are left out."""
    if type(told) is not dict or type(told.get("message")) is not str:
        return None
    made = BY_CODE.get(str(told.get("code")))
    if made is None:
        return None
    after: Any = told.get("retry_after")
    details = told.get("details")
    retryable, remedy, effects = told.get("retryable"), told.get("remedy"), told.get("effects")
    return made(
        told["message"],
        retryable=retryable if type(retryable) is bool else None,
        retry_after=after if type(after) in (int, float) and 0 <= after < math.inf else None,
        remedy=remedy if remedy in get_args(Remedy) else None,
        effects=effects if effects in get_args(Outcome) else None,
        details=details if type(details) is dict else None,
    )
