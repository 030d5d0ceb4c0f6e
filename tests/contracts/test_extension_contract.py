"""The socket of extensions: one suite over every occupant, and over what does not belong there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.extensions.around import surroundings
from toolpost import Call, Caller, Denied, Result, ToolSpec, Unavailable
from toolpost.contracts import Ring, Road, Walk
from toolpost.extensions.access import Access, Grant
from toolpost.extensions.approval import Approval, ApprovalOptions
from toolpost.extensions.audit import Audit
from toolpost.extensions.cache import Cache
from toolpost.extensions.log import Log
from toolpost.extensions.metrics import Metrics
from toolpost.extensions.once import Once
from toolpost.extensions.policy import Policy
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.extensions.retry import Retry
from toolpost.extensions.sanitize import Sanitize
from toolpost.extensions.slots import Share, Slots
from toolpost.extensions.trace import Trace
from toolpost.stores.memory import MemoryStore
from toolpost.testing import check_extension

pytestmark = pytest.mark.anyio


async def plain_function(call: Call, call_next: Walk) -> Result:
    return await call_next(call)


def not_even_async(call: Call, call_next: Walk) -> Any:
    return call_next(call)


class Nowhere:
    name = "nowhere"

    def bind(self, spec: ToolSpec, road: Road) -> None:
        return None


class Tiered(msgspec.Struct, frozen=True):
    """A guard with a setting, for some tools only, that also judges who may see them."""

    most: int
    name: str = "tiered"

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        if spec.tier == 0 and self.most > 0:
            return None

        async def ring(call: Call, call_next: Walk) -> Result:
            if call.spec.tier > self.most:
                raise Denied("Above your tier.")
            return await call_next(call)

        return ring

    def sees(self, caller: Caller, spec: ToolSpec) -> bool:
        return caller.owner or spec.tier <= self.most


class Counts:
    """An observer with something to close."""

    name = "counts"

    def __init__(self) -> None:
        self.calls = self.closed = 0

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        async def ring(call: Call, call_next: Walk) -> Result:
            self.calls += 1
            result = await call_next(call)
            result.metadata.attempts = 1
            return result

        return ring

    async def close(self) -> None:
        self.closed += 1


class NoRecordNoRun:
    name = "audit"

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        async def ring(call: Call, call_next: Walk) -> Result:
            raise Unavailable("No record can be written.")

        return ring


async def always_yes(request: object) -> bool:
    return True


OCCUPANTS = [
    Audit(surroundings(Path("no-such-folder"))),
    plain_function,
    not_even_async,
    Nowhere(),
    Tiered(0),
    Tiered(2),
    Tiered(-1),
    Counts(),
    NoRecordNoRun(),
    Access(),
    Access(default=Grant()),
    Policy("strict"),
    Approval(MemoryStore()),
    Approval(MemoryStore(), options=ApprovalOptions(mode="always")),
    Approval(MemoryStore(), options=ApprovalOptions(mode="always"), ask=always_yes),
    Cache(),
    Once(MemoryStore()),
    Sanitize(),
    Sanitize(secrets="block", outputs="all"),
    Log(),
    Log(keep=0),
    Slots(),
    Slots(groups={"*": Share(concurrency=1, queue=0)}),
    Retry(),
    Rate(),
    Rate(RateOptions(tools={"*": "1/h"}, callers={"*": "2/h"})),
    Rate(RateOptions(tools={"*": "20/h"}, shared=True), records=MemoryStore()),
    Metrics(),
    Trace(),
    Trace(TracerProvider(shutdown_on_exit=False)),
]


@pytest.mark.parametrize("extension", OCCUPANTS, ids=lambda e: getattr(e, "name", e))
async def test_every_occupant_keeps_the_contract(extension: Any) -> None:
    report = await check_extension(extension)
    report.raise_if_failed()


async def test_an_extension_is_not_closed_by_being_checked() -> None:
    counts = Counts()
    (await check_extension(counts)).raise_if_failed()
    assert counts.calls > 50
    assert counts.closed == 0


class Nameless(Nowhere):
    name = ""


class Fickle:
    name = "fickle"

    def __init__(self) -> None:
        self.asked = 0

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        self.asked += 1
        return plain_function if self.asked % 2 else None


class NotCallable(Nowhere):
    def bind(self, spec: ToolSpec, road: Road) -> Any:
        return 5


class Writes(Nowhere):
    name = "writes"

    def bind(self, spec: ToolSpec, road: Road) -> Any:
        spec.labels["seen"] = "yes"
        return None


class SeesSomething(Nowhere):
    name = "sees something"

    def sees(self, caller: Caller, spec: ToolSpec) -> Any:
        return "perhaps"


async def repeats(call: Call, call_next: Walk) -> Result:
    await call_next(call)
    return await call_next(call)


async def mixes_up(call: Call, call_next: Walk) -> Result:
    result = await call_next(call)
    return result if result.error else msgspec.structs.replace(result, output="0")


async def swallows(call: Call, call_next: Walk) -> Result:
    with contextlib.suppress(asyncio.CancelledError):
        return await call_next(call)
    return Result(output="as if nothing had happened")


class Broken:
    name = "broken"

    def bind(self, spec: ToolSpec, road: Road) -> Any:
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("extension", "failed"),
    [
        (Nameless(), {"name"}),
        (Fickle(), {"bind", "guard"}),
        (NotCallable(), {"bind"}),
        (Writes(), {"bind"}),
        (SeesSomething(), {"sees"}),
        (repeats, {"guard"}),
        (mixes_up, {"concurrency"}),
        (swallows, {"cancellation"}),
        (Broken(), {"bind", "guard", "observer", "bad calls", "cancellation"}),
    ],
    ids=lambda x: getattr(x, "name", "") or getattr(x, "__name__", ""),
)
async def test_what_does_not_keep_the_contract_is_found_out(
    extension: Any, failed: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    report = await check_extension(extension)
    assert {item.name for item in report.failed} == failed
    with pytest.raises(AssertionError, match="failed"):
        report.raise_if_failed()
