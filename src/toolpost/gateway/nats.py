"""NATS as a door: clients on the bus call tools through the whole pipeline.

Above: ``serving.py``. Below: the runtime, the same identity as for HTTP, the bus. A call comes in
on ``<prefix>.call`` with an ``Authorization`` header; the answer goes to its reply subject. Nobody
is anonymous here: a bus is not this machine alone. It refuses to know workers, which have a door of
their own behind the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.bus.connection import Bus, drained
from toolpost.bus.large import Large, unsent
from toolpost.bus.wire import Envelope, said
from toolpost.call import Caller, Progress, new_call_id
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import CallError, InternalError, InvalidArguments, Unauthorized
from toolpost.failure import failure
from toolpost.gateway.identity import Identity
from toolpost.gateway.inflight import InFlight, cut_off, this_task
from toolpost.gateway.nats_settings import NatsSettings
from toolpost.jobs.gravity import gravest
from toolpost.result import Metadata, Result
from toolpost.runtime import Runtime

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_log = logging.getLogger("toolpost.gateway")
REQUEST: Final = "call.request"
RESPONSE: Final = "call.response"
PROGRESS: Final = "call.progress"
_MOST_REPORTS: Final = 1000
_DRAINED: Final = 4.0
_LOOK: Final = 0.25


class Wanted(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a client asks for."""

    tool: str
    arguments: dict[str, Any] = {}
    session_id: str | None = None
    timeout: float | None = None
    dry_run: bool = False
    key: str | None = None
    grant: str | None = None
    progress: bool = False


_wanted: Final = StrictDecoder[Envelope[Wanted]](Envelope[Wanted])


class NatsDoor:
    """``async with``: open while the gateway is."""

    def __init__(
        self, runtime: Runtime, settings: NatsSettings, *, identity: Identity, inflight: InFlight
    ) -> None:
        self.bus = Bus(settings, name="gateway-door", role="gateway", folder=runtime.config.base)
        self._runtime, self._identity, self._inflight = runtime, identity, inflight
        self._group = settings.group
        self._large = Large(settings.prefix)
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> NatsDoor:
        self._opening = asyncio.create_task(self._open())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, *, grace: float = 0.0, hurry: Callable[[], bool] = lambda: False) -> None:
        """Take no more: other gateways of the group do. What was taken may take so many seconds to
        end, unless ``hurry`` says that this is too long; the rest is stopped, and told so.
        """
        if self._opening is None:
            return
        self._opening.cancel()
        await asyncio.gather(self._opening, return_exceptions=True)
        self._opening = None
        if self._subscription is not None:  # what has been delivered already is served
            await drained(self._subscription, _DRAINED)
        loop = asyncio.get_running_loop()
        ends = loop.time() + grace
        while self._tasks and not hurry() and (left := ends - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=min(left, _LOOK))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()

    async def _open(self) -> None:
        """The gateway serves others meanwhile, whether the bus is there or not."""
        while True:
            try:
                subject = self.bus.subjects.call
                self._subscription = await self.bus.listen(subject, self._heard, queue=self._group)
                return
            except CallError:
                await asyncio.sleep(1.0)

    async def _heard(self, message: Msg) -> None:
        task = asyncio.create_task(self._serve(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: Msg) -> None:
        if not message.reply:
            _log.warning("a call on %s says not where the answer is to go", message.subject)
            return
        call_id, asked, tool, task = new_call_id(), "", "", this_task()
        try:
            caller = await self._caller(message, task)
            body = await self._large.unpacked(await self.bus.client(), message)
            told = _read(body)
            asked, tool = told.id, told.payload.tool
            result = await self._run(call_id, told, caller, message.reply)
        except CallError as refused:
            error = failure(refused, tool="", call_id=call_id, effects="once")
            result = Result(error=error, metadata=Metadata(call_id))
        except asyncio.CancelledError:
            effects = gravest(self._runtime.registry, tool)
            fault: CallError = cut_off(effects)
            if self._identity.watch.has_ended(task):
                task.uncancel()  # it was meant for the call; the answer is still sent
                fault = self._identity.ended(effects=effects)
            error = failure(fault, tool=tool, call_id=call_id, effects=effects)
            result = Result(error=error, metadata=Metadata(call_id))
        except Exception:  # noqa: BLE001 - the border: whatever it is, the client has an answer
            _log.exception("a call over the bus could not be served (call %s)", call_id)
            error = failure(InternalError("The gateway failed."), tool="", call_id=call_id,
                            effects="once")  # fmt: skip
            result = Result(error=error, metadata=Metadata(call_id))
        finally:
            self._identity.watch.leave(task)
        unable = await self._send(message.reply, RESPONSE, result.to_dict(), asked)
        if unable is not None and not unable.retryable:  # too large, but that much can be said
            await self._send(message.reply, RESPONSE, unsent(unable, result).to_dict(), asked)

    async def _caller(self, message: Msg, task: asyncio.Task[Any]) -> Caller:
        """Who calls; from here on the call is watched, and ended with its credential."""
        given = (message.headers or {}).get("Authorization")
        if not given or not given.isascii():
            raise Unauthorized(
                "Say who you are: send the header Authorization: Bearer with a key or a token."
            )
        header = given.encode()
        known = self._identity.known(header)
        caller = known or await self._identity.caller(header, peer="the bus")
        self._identity.watch.enter(task, header)
        return caller

    async def _run(
        self, call_id: str, told: Envelope[Wanted], caller: Caller, reply: str
    ) -> Result:
        wanted, task = told.payload, asyncio.current_task()
        assert task is not None, "a call is served in a task of its own"
        reports: asyncio.Queue[Progress] = asyncio.Queue(_MOST_REPORTS)
        telling = None
        if wanted.progress:
            telling = asyncio.create_task(self._tell(reports, reply, told.id))

        def report(progress: Progress) -> None:
            with suppress(asyncio.QueueFull):  # a flood: the result will tell
                reports.put_nowait(progress)

        try:
            result = await self._inflight.carried(
                call_id,
                wanted.tool,
                caller,
                task,
                lambda: self._runtime.execute(
                    wanted.tool,
                    wanted.arguments,
                    caller=caller,
                    session_id=wanted.session_id,
                    timeout=wanted.timeout,
                    dry_run=wanted.dry_run,
                    key=wanted.key,
                    grant=wanted.grant,
                    on_progress=report if wanted.progress else None,
                    call_id=call_id,
                ),
            )
            await reports.join()
            return result
        finally:
            if telling is not None:
                telling.cancel()

    async def _tell(self, reports: asyncio.Queue[Progress], reply: str, asked: str) -> None:
        while True:
            await self._send(reply, PROGRESS, await reports.get(), asked)
            reports.task_done()

    async def _send(self, reply: str, kind: str, payload: Any, asked: str) -> CallError | None:
        """Why it could not be, if that is known."""
        body = said(kind, payload, source=self.bus.name, number=new_call_id(), answers=asked)
        try:
            client = await self.bus.client()
            sent, headers = await self._large.packed(client, body)
            await client.publish(reply, sent, headers=headers or None)
        except CallError as fault:
            _log.warning("an answer over the bus could not be sent: %s", fault.message)
            return fault
        except Exception as fault:  # noqa: BLE001 - whatever nats-py has against it
            _log.warning("an answer over the bus could not be sent: %r", fault)
        return None


def _read(body: bytes) -> Envelope[Wanted]:
    try:
        told = _wanted.decode(body)
    except NotStrictJson as fault:
        raise InvalidArguments(f"This is no call. {fault}") from None
    if told.type != REQUEST:
        raise InvalidArguments(f"A call is of the type {REQUEST}.")
    return told
