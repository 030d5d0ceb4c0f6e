"""The last step of the road: one run of a tool, under its time limit, its output checked.

Above: the chain. Below: the handle that a backend made. Who asked, and what was decided before,
is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any

import msgspec

from toolpost.bound import running_loop
from toolpost.call import Call
from toolpost.chain import NEVER, Admit, failed, metadata
from toolpost.contracts import Handle, Walk
from toolpost.deadline import limited, timed_out
from toolpost.errors import ApprovalRequired, CallError, InternalError, InvalidArguments
from toolpost.output import finisher
from toolpost.result import Result
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")


def invoking(spec: ToolSpec, handle: Handle, strays: set[asyncio.Task[Any]], admit: Admit) -> Walk:
    """``strays`` collects runs that would not end when they were stopped."""
    limit, finish, home = spec.time_limit, finisher(spec), running_loop()

    async def invoke(call: Call) -> Result:
        try:
            if call.arguments is not call.admitted:
                arguments = admit(call.arguments)
                if arguments is not call.arguments:
                    call = msgspec.structs.replace(call, arguments=arguments)
            seconds = limit
            if call.deadline is not None:
                seconds = min(limit, call.deadline - monotonic())
                if seconds <= 0:
                    raise _too_late(call.deadline)
            if call.dry_run:
                return Result(metadata=metadata(call, _plan(call, handle, seconds)))
            if call.ask is not None:  # nobody was asked; a grant is a word until a ring has read it
                raise ApprovalRequired(call.ask)
            try:
                value = await limited(handle(call), seconds, strays)
            except CallError as error:
                raise error.of_a_run() from error.__cause__
            output, parts = finish(value)
            return Result(output, parts, None, metadata(call))
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
    }
