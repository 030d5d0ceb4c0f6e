"""What may happen once on the whole bus: whoever claims it first has it.

Above: workers, before they run what has effects. Below: a key-value bucket of JetStream, shared by
all of them. Where JetStream is off only this process remembers, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolpost.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from nats.aio.client import Client

_log = logging.getLogger("toolpost.bus")
KEPT: Final = 86_400.0
"""Seconds that a claim is remembered: far longer than any ticket is good for."""
_NO_LEADER: Final = 10008
"""What a cluster says of JetStream for a moment, while it agrees on who leads."""


class Claims:
    def __init__(self, prefix: str) -> None:
        self._bucket = f"{prefix.replace('.', '-')}-claims"
        self._store: Any = None
        self._had = False
        """Whether there was a bucket: one that is missing then is no JetStream that is off."""
        self._opening = asyncio.Lock()

    async def claim(self, client: Client, name: str, who: str) -> None:
        """``Conflict`` if somebody has claimed it before."""
        # with nats-py: once it is needed
        from nats.js.errors import KeyWrongLastSequenceError, NoStreamResponseError

        key, mine = sha256(name.encode()).hexdigest(), who.encode()
        store = await self._opened(client)
        if store is None:
            return
        try:
            try:
                await store.create(key, mine)
            except NoStreamResponseError:  # the bus has come back without the bucket
                self._store = None
                await (await self._opened(client)).create(key, mine)
        except KeyWrongLastSequenceError:
            raise Conflict(
                "This very call was taken by another worker before.", effects="unknown"
            ) from None
        except Unavailable:
            raise
        except Exception as fault:
            raise _not_now() from fault

    async def _opened(self, client: Client) -> Any:
        async with self._opening:
            if self._store is None:
                self._store = await self._made(client)
                self._had = self._had or bool(self._store)
            return self._store or None

    async def _made(self, client: Client) -> Any:
        from nats.js.api import KeyValueConfig  # with nats-py: once it is needed
        from nats.js.errors import ServiceUnavailableError

        try:
            return await client.jetstream(timeout=5).create_key_value(
                KeyValueConfig(bucket=self._bucket, ttl=KEPT, history=1)
            )
        except ServiceUnavailableError as fault:
            if self._had or getattr(fault, "err_code", None) == _NO_LEADER:
                raise _not_now() from fault
            _log.warning(
                "JetStream is off: only this worker remembers which calls it has run, not the "
                "others; switch it on with: nats-server -js"
            )
            return False
        except Exception as fault:
            raise _not_now() from fault


def _not_now() -> Unavailable:
    return Unavailable(
        "What has effects is claimed before it runs, and the bus cannot do that now. Try again "
        "later.",
        retry_after=1.0,
        effects="none",
    )
