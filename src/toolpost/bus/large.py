"""Bodies that are too large for a message: kept in JetStream's object store until they were read.

Above: whoever sends and reads requests and answers. Below: nats-py. The digest of a ticket is over
the body itself, wherever it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from toolpost.bus.wire import OBJECT
from toolpost.errors import CallError, Outcome, OutputTooLarge, Unavailable
from toolpost.failure import failure
from toolpost.result import Metadata, Result

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_ROOM: Final = 16_384
"""Bytes of a message that are not its body."""
_TTL: Final = 3600.0
MOST: Final = 64 * 1024 * 1024


class Large:
    """``bucket`` is made when it is first needed."""

    def __init__(self, prefix: str, *, name: str = "bodies", ttl: float = _TTL) -> None:
        self._bucket, self._ttl = f"{prefix.replace('.', '-')}-{name}", ttl
        self._store: Any = None
        self._opening = asyncio.Lock()

    @staticmethod
    def fits(client: Client, body: bytes) -> bool:
        """Whether it goes as it is: nearly all do."""
        return len(body) + _ROOM <= client.max_payload

    async def packed(self, client: Client, body: bytes) -> tuple[bytes, dict[str, str]]:
        """The body as it is sent, and the headers that belong to it; whatever it raises, nothing
        was sent.
        """
        if self.fits(client, body):
            return body, {}
        if len(body) > MOST:
            raise OutputTooLarge(f"{len(body):,} bytes are too many for the bus.", effects="none")
        name = token_hex(16)
        for last in (False, True):
            try:
                await (await self._opened(client)).put(name, body)
                break
            except Exception as fault:
                self._store = None  # the bus may have come back without the bucket
                if last:
                    raise _no_store(fault, effects="none") from fault
        return b"", {OBJECT: name}

    async def unpacked(self, client: Client, message: Msg) -> bytes:
        """The body that was sent. It is gone afterwards."""
        name = (message.headers or {}).get(OBJECT)
        if name is None:
            return message.data
        data = await self.kept(client, name)
        with suppress(CallError):  # what stays there does not for long
            await self.drop(client, name)
        return data

    async def kept(self, client: Client, name: str) -> bytes:
        """A body by its name. It stays where it is."""
        try:
            store = await self._opened(client)
            about = await store.get_info(name)
            found = None if (about.size or 0) > MOST else await store.get(name)
        except Exception as fault:
            raise _no_store(fault) from fault
        if found is None:
            raise OutputTooLarge(f"{about.size:,} bytes are too many for the bus.")
        return found.data or b""

    async def drop(self, client: Client, name: str) -> None:
        try:
            await (await self._opened(client)).delete(name)
        except Exception as fault:
            raise _no_store(fault) from fault

    async def _opened(self, client: Client) -> Any:
        async with self._opening:
            if self._store is None:
                from nats.js.api import ObjectStoreConfig  # with nats-py: once it is needed

                self._store = await client.jetstream(timeout=5).create_object_store(
                    self._bucket, ObjectStoreConfig(ttl=self._ttl)
                )
            return self._store


def unsent(fault: CallError, result: Result) -> Result:
    """What is answered in place of a result that is too large to be sent."""
    error = type(fault)(
        fault.message,
        retryable=False,
        remedy=fault.remedy,
        effects="done" if result.error is None else result.error.effects,
    )
    call_id = result.metadata.call_id
    told = failure(error, tool="", call_id=call_id, effects="once")
    return Result(error=told, metadata=Metadata(call_id))


def _no_store(fault: Exception, *, effects: Outcome | None = None) -> Unavailable:
    return Unavailable(
        "This is too large for a message of the bus, and its object store cannot be used "
        f"({type(fault).__name__}). Send or ask for less at a time.",
        retryable=False,
        remedy="fix_args",
        effects=effects,
    )
