"""The limit: what the bare road costs when it is fused by hand for one tool.

Not a design anyone should keep: one closure per tool, no rings, no kinds, no errors worth reading.
It does what the bare road does (look-up, arguments and output checked by jsonschema-rs, a deadline,
a result) and nothing else, so it says how fast that can be in CPython. The stamped form gives the
result an id and a duration as well, as toolpost does.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import jsonschema_rs
import msgspec
from pydantic import TypeAdapter

AsyncFunction = Callable[..., Coroutine[Any, Any, Any]]


class Result(msgspec.Struct, frozen=True, gc=False):
    """What came back."""

    success: bool
    output: Any = None
    error: str | None = None
    call_id: str = ""
    duration_ms: float = 0.0


Fused = Callable[[dict[str, Any]], Awaitable[Result]]


class Limit:
    """Tools by name, each behind its own fused call; stamped ones carry an id and a duration."""

    def __init__(self, *, stamped: bool = False, seconds: float = 5.0) -> None:
        self._stamped, self._seconds = stamped, seconds
        self._tools: dict[str, Fused] = {}

    def add(self, name: str, function: AsyncFunction) -> None:
        fuse = _fuse_stamped if self._stamped else _fuse
        self._tools[name] = fuse(function, self._seconds)

    def execute(self, name: str, arguments: dict[str, Any]) -> Awaitable[Result]:
        return self._tools[name](arguments)


def _fuse(function: AsyncFunction, seconds: float) -> Fused:
    fits, output_fits = _checks(function)

    async def call(arguments: dict[str, Any]) -> Result:
        if not fits(arguments):
            return Result(False, None, "arguments")
        try:
            output = await _within(seconds, function(**arguments))
        except Exception as exc:  # whatever a tool raises is a result
            return Result(False, None, repr(exc))
        return Result(True, output) if output_fits(output) else Result(False, None, "output")

    return call


def _fuse_stamped(function: AsyncFunction, seconds: float) -> Fused:
    fits, output_fits = _checks(function)
    clock, serial = time.perf_counter, itertools.count(1).__next__

    async def call(arguments: dict[str, Any]) -> Result:
        began = clock()
        call_id = f"limit-{serial():06x}"
        if not fits(arguments):
            return Result(False, None, "arguments", call_id, (clock() - began) * 1e3)
        try:
            output = await _within(seconds, function(**arguments))
        except Exception as exc:  # whatever a tool raises is a result
            return Result(False, None, repr(exc), call_id, (clock() - began) * 1e3)
        if not output_fits(output):
            return Result(False, None, "output", call_id, (clock() - began) * 1e3)
        return Result(True, output, None, call_id, (clock() - began) * 1e3)

    return call


def _checks(function: AsyncFunction) -> tuple[Callable[[Any], bool], Callable[[Any], bool]]:
    whole: Any = function
    arguments = {**TypeAdapter(whole).json_schema(), "additionalProperties": False}
    output = TypeAdapter(whole.__annotations__["return"]).json_schema()
    return _check(arguments), _check(output)


def _check(schema: dict[str, Any]) -> Callable[[Any], bool]:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid


@types.coroutine
def _within(seconds: float, coro: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run it; a timer is armed only when it suspends for the first time."""
    try:
        waiting_for = coro.send(None)
    except StopIteration as done:
        return done.value
    task = asyncio.current_task()
    assert task is not None
    fired: list[bool] = []
    timer = asyncio.get_running_loop().call_later(seconds, _fire, task, fired)
    try:
        return (yield from _resume(coro, waiting_for))
    except asyncio.CancelledError:
        if fired and task.uncancel() <= 0:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _fire(task: asyncio.Task[Any], fired: list[bool]) -> None:
    fired.append(True)
    task.cancel()


def _resume(coro: Coroutine[Any, Any, Any], waiting_for: Any) -> Generator[Any, Any, Any]:
    while True:
        thrown, sent = None, None
        try:
            sent = yield waiting_for
        except BaseException as exc:  # a cancel is the tool's to see, as in ``yield from``
            thrown = exc
        try:
            waiting_for = coro.send(sent) if thrown is None else coro.throw(thrown)
        except StopIteration as done:
            return done.value
