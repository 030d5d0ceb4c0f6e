"""A runner on the bus: what is published on its subject, ``nachos.tool.<id>.request``, is answered.

Several runners of one tool are one queue group, and each request goes to one of them. Who may
publish is for the permissions of the NATS server to say; what may be called is decided on the
runner's own road, before the tool sees it. Tickets and signs of life are not in the document: who
wants them serves the same tools with ``toolpost worker --prefix nachos``, on the same subjects.

Above: whoever starts a runner. Below: ``runner.py``, which knows the messages, and the bus.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from toolpost import Caller
from toolpost.bridges.nachos.contract import ToolError, ToolResult
from toolpost.bridges.nachos.runner import ANYBODY, Envelope, ToolRunner
from toolpost.bus.connection import Bus
from toolpost.bus.settings import BusOptions

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_log = logging.getLogger("toolpost.nachos")
GROUP: Final = "workers"
"""The group of ``toolpost worker``, too: a request is run by one of them all."""


class BusRunner:
    """``async with``: serves while it is open; what runs when it closes has ``grace`` seconds."""

    def __init__(
        self,
        runner: ToolRunner,
        options: BusOptions | None = None,
        *,
        caller: Caller = ANYBODY,
        grace: float = 30.0,
    ) -> None:
        self._runner, self._caller, self._grace = runner, caller, grace
        self._bus = Bus(options or BusOptions(), name=f"nachos-{runner.tool_id}", role="worker")
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Any = None

    async def __aenter__(self) -> Self:
        """Raises ``Unavailable`` if the bus cannot be reached."""
        try:
            self._subscription = await self._bus.listen(
                self._runner.subject, self._heard, queue=GROUP
            )
            await (await self._bus.client()).flush()
        except BaseException:
            await self._bus.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._subscription is not None:
            with suppress(Exception):  # a bus that is down: then nothing is delivered any more
                await self._subscription.drain()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._grace)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bus.close()

    async def _heard(self, message: Msg) -> None:
        task = asyncio.create_task(self._serve(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: Msg) -> None:
        if not message.reply:
            _log.warning("a request on %s says not where the answer is to go", message.subject)
            return
        answer = await self._runner.handle(message.data, self._caller)
        try:
            client = await self._bus.client()
            body = msgspec.json.encode(answer)
            if len(body) > client.max_payload:
                body = msgspec.json.encode(_too_large(answer, len(body), client.max_payload))
            await client.publish(message.reply, body)
        except Exception as fault:  # noqa: BLE001 - the call is over, whoever can be told of it
            _log.warning("an answer on %s could not be sent: %r", message.subject, fault)


def _too_large(answer: Envelope, size: int, most: int) -> Envelope:
    said = f"The answer has {size:,} bytes, and the bus takes {most:,}. Ask for less at a time."
    result = ToolResult(success=False, error=ToolError("EXECUTION_ERROR", said))
    return {**answer, "payload": result.to_dict()}
