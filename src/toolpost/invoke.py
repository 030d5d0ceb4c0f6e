"""The last step of the road: one run of a tool, under its time limit, its output checked.

Above: the chain. Below: the handle that a backend made. Who asked, and what was decided before,
is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Generator
from time import monotonic
from typing import Any

import msgspec

from toolpost.bound import running_loop
from toolpost.call import Call
from toolpost.contracts import Handle, Plans, Walk
from toolpost.deadline import armed, gave_up, leave_behind, passes, resting, timed_out
from toolpost.errors import ApprovalRequired, CallError, InternalError, InvalidArguments
from toolpost.given import NEVER
from toolpost.output import WIDE, finisher, scalar_of
from toolpost.result import Part, Result
from toolpost.schema import Schema
from toolpost.spec import ToolSpec
from toolpost.steps import failed, metadata

_log = logging.getLogger("toolpost")


def invoking(  # noqa: C901 - every call goes through here: in one piece, for that is fastest
    spec: ToolSpec, handle: Handle, strays: set[asyncio.Task[Any]], schema: Schema, *, alone: bool
) -> Walk:
    """``strays`` collects runs that would not end when they were stopped; ``alone``: no guard
    stands before it, so that the run begins when the call does.
    """
    run, limit, finish, home = handle.run, spec.time_limit, finisher(spec), running_loop()
    scalar: Any = scalar_of(spec.output_schema)
    admit, fits = schema.admit, schema.native()

    # A generator, and not a coroutine: the tool's own is driven by hand here, so that one that
    # never suspends needs no alarm (``deadline.py``).
    @types.coroutine
    def invoke(call: Call) -> Generator[Any, Any, Result]:  # noqa: C901 - as above
        value: Any
        parts: tuple[Part, ...] = ()
        try:
            arguments = call.arguments
            if arguments is not call.admitted:
                try:
                    fit = fits is not None and fits(arguments)
                except ValueError:  # not JSON: said below, with the place
                    fit = False
                admitted = arguments if fit else admit(arguments)
                if admitted is not arguments:
                    call = msgspec.structs.replace(call, arguments=admitted)
            began, seconds = call.started if alone else monotonic(), limit
            if call.deadline is not None:
                seconds = min(limit, call.deadline - began)
                if seconds <= 0:
                    raise _too_late(call.deadline)
            if call.dry_run:
                return Result(metadata=metadata(call, _plan(call, handle, seconds)))
            if call.ask is not None:  # nobody was asked; a grant is a word until a ring has read it
                raise ApprovalRequired(call.ask)
            try:
                running = run(call)
                try:
                    waiting = running.send(None)
                except StopIteration as stop:
                    value = stop.value
                except BaseException as exc:
                    if passes(exc):
                        raise
                    raise gave_up() from exc
                else:
                    # Here, and not in a generator of its own: of a thousand that wait, each costs.
                    alarm = armed(seconds, began, call)
                    try:
                        while True:
                            try:
                                if waiting is None or type(waiting) is asyncio.Future:
                                    sent, thrown = (yield waiting), None
                                else:
                                    sent, thrown = (yield from resting(waiting, alarm)), None
                            except BaseException as exc:  # a cancellation, or what it waited for
                                sent, thrown = None, exc
                                if alarm.abandoned:
                                    leave_behind(running, exc, strays)
                                    raise
                            waiting = (
                                running.send(sent) if thrown is None else running.throw(thrown)
                            )
                    except StopIteration as stop:
                        if (verdict := alarm.verdict(None)) is not None:
                            raise verdict from None
                        value, began = stop.value, alarm.ends - seconds
                    except BaseException as exc:
                        if (verdict := alarm.verdict(exc)) is not None:
                            raise verdict from exc
                        raise
                    finally:
                        thrown = verdict = None  # they lead back to here: nobody else parts them
            except CallError as error:
                raise error.of_a_run() from error.__cause__
            if type(value) is scalar and (scalar is not int or -WIDE < value < WIDE):
                output = value
            else:
                output, parts = finish(value, call.about)
            now = monotonic()
            if now - began > seconds:
                raise timed_out(seconds, effects="done")
            about = call.about
            about.duration_ms = (now - call.started) * 1000
            return Result(output, parts, None, about)
        except Exception as exc:  # noqa: BLE001 - the border: what a tool raises is data from here on
            return failed(call, _in_another_loop(exc, home) or exc, "road")

    return invoke


def _too_late(deadline: float) -> CallError:
    if deadline == NEVER:
        return InvalidArguments("The timeout of this call is not a number of seconds.")
    return timed_out(0, effects="none")


def _in_another_loop(exc: Exception, home: asyncio.AbstractEventLoop | None) -> CallError | None:
    """Workers, locks and futures belong to the loop they were made in; asyncio says so in words."""
    if type(exc) is not RuntimeError or "loop" not in str(exc):
        return None
    if home is None or home is asyncio.get_running_loop():
        return None
    _log.error("a tool was called from another event loop than its executor's", exc_info=exc)
    return InternalError(
        "This executor is used from two event loops. Make one in each, or use toolpost.sync."
    )


def _plan(call: Call, handle: Handle, seconds: float) -> dict[str, Any]:
    """What would have happened, had it not been a dry run."""
    asks = {} if call.ask is None else {"ask": call.ask}
    return {
        "tool": call.tool,
        "kind": call.spec.kind,
        "arguments": call.arguments,
        "effects": call.spec.effects,
        "tier": call.spec.tier,
        "timeout": seconds,
        **asks,
        **getattr(handle, "about", {}),
        **(handle.plan(call) if isinstance(handle, Plans) else {}),
    }
