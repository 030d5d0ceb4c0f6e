"""The last step of the road: one run of a tool, under its time limit, its output checked.

Above: the chain. Below: the handle that a backend made. Who asked, and what was decided before,
is not known here.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import msgspec

from toolpost.call import Call
from toolpost.chain import Admit, failed, metadata
from toolpost.contracts import Handle, Walk
from toolpost.deadline import limited, timed_out
from toolpost.errors import ApprovalRequired
from toolpost.output import finisher
from toolpost.result import Result
from toolpost.spec import ToolSpec


def invoking(spec: ToolSpec, handle: Handle, strays: set[asyncio.Task[Any]], admit: Admit) -> Walk:
    """``strays`` collects runs that would not end when they were stopped."""
    limit, finish = spec.time_limit, finisher(spec)

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
                    raise timed_out(0, effects="none")
            if call.dry_run:
                return Result(metadata=metadata(call, _plan(call, handle, seconds)))
            if call.ask is not None:  # nobody was asked; a grant is a word until a ring has read it
                raise ApprovalRequired(call.ask)
            output, parts = finish(await limited(handle(call), seconds, strays))
            return Result(output, parts, None, metadata(call))
        except Exception as exc:  # noqa: BLE001 - the border: what a tool raises is data from here on
            return failed(call, exc, "road")

    return invoke


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
