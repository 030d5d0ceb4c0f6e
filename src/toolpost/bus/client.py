"""nats-py's client, whose ``flush`` keeps its promise.

Above: ``connection.py``, which imports this when the first connection is made. Below: nats-py.
"""

from __future__ import annotations

from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client


class Ordered(Client):
    """A ping of nats-py is written before what was handed over earlier and still waits to be.

    So its answer says nothing of that: of a subscription, that the server knows it; of one that is
    drained, that nothing more comes. When the first answer is there, what waited has been written,
    and a second ping comes after it.
    """

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:
        await super().flush(timeout)
        await super().flush(timeout)
