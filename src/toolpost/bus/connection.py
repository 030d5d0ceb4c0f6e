"""A connection to the bus that is kept: made when it is first wanted, made again when it breaks.

Above: the backend, the worker, the door. Below: nats-py. While there is none nothing is put in a
queue for later: a call that cannot be sent now is told so at once. It refuses to know what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolpost.bus.permissions import Role, inbox
from toolpost.bus.settings import BusOptions, connect_options
from toolpost.bus.wire import Subjects
from toolpost.environ import secret
from toolpost.errors import MissingPart, Unavailable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_log = logging.getLogger("toolpost.bus")
_WITHIN: Final = 4.0
"""Seconds that the first connection may take."""
_AGAIN: Final = 1.0
"""Seconds after a failure in which it is not tried again."""
_LOOK: Final = 0.2
"""Seconds between two looks at who has been waiting for too long."""
_MOST_WAITING: Final = 65_536
"""Messages for one subscription that nobody has looked at yet."""
Heard = Callable[["Msg"], Awaitable[None]]


class Bus:
    """``problem`` says why nothing can be sent right now."""

    def __init__(
        self,
        options: BusOptions,
        *,
        name: str,
        role: Role,
        folder: Path | None = None,
        secret: Callable[[str], str | None] = secret,
    ) -> None:
        self.subjects, self.name, self._role = Subjects(options.prefix), name, role
        self.problem: str | None = "not connected yet"
        self.reconnects = 0
        self._options, self._folder, self._secret = options, folder or Path(), secret
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._failed = 0.0
        self._faults: list[Exception] = []
        """What servers said to the first connection that was not kind."""
        self._refused = asyncio.Event()
        self._replies: Replies | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def client(self) -> Client:
        """Connected, or ``Unavailable`` at once."""
        client = self._client
        if client is not None and client.is_connected:
            return client
        if client is not None or self._closed or monotonic() - self._failed < _AGAIN:
            raise self.away()  # it is being reconnected, or was just tried
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def away(self) -> Unavailable:
        return Unavailable(
            "The bus to this tool's workers is down. Try again later.",
            retry_after=_AGAIN,
            effects="none",
        )

    @property
    def connected(self) -> Client | None:
        """The client, if it can be had without waiting for it."""
        client = self._client
        return client if client is not None and client.is_connected else None

    @property
    def ready(self) -> tuple[Client, Replies] | None:
        """What it takes to ask something, if all of it is there."""
        client, replies = self._client, self._replies
        if client is None or replies is None or not client.is_connected:
            return None
        return client, replies

    async def replies(self) -> Replies:
        """Where answers to this connection come in."""
        client = await self.client()
        if self._replies is None:
            replies = self._replies = Replies(client.new_inbox())
            await client.subscribe(
                f"{replies.inbox}.*", cb=replies.heard, pending_msgs_limit=_MOST_WAITING
            )
        return self._replies

    async def listen(self, subject: str, heard: Heard, *, queue: str = "") -> Subscription:
        client = await self.client()
        return await client.subscribe(
            subject, queue=queue, cb=heard, pending_msgs_limit=_MOST_WAITING
        )

    def send_soon(self, subject: str, body: bytes = b"") -> None:
        """For who cannot wait, because it is being cancelled."""
        if self._client is not None:
            task = asyncio.ensure_future(self._client.publish(subject, body))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.warning("the bus: %r", fault)

    async def close(self) -> None:
        """What was handed over before is still sent."""
        self._closed = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=_AGAIN)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._client is not None:
            with suppress(Exception):  # whatever a connection says that is on its way out
                if self._client.is_connected:
                    await self._client.flush(timeout=1)
            with suppress(Exception):
                async with asyncio.timeout(_WITHIN):
                    await self._client.close()

    async def _connect(self) -> Client:
        try:
            from toolpost.bus.client import Ordered
        except ModuleNotFoundError as exc:
            raise MissingPart(
                f'the bus needs {exc.name!r}. Install it with: pip install "toolpost[nats]"'
            ) from exc
        told = connect_options(self._options, folder=self._folder, secret=self._secret)
        client = Ordered()
        connecting = asyncio.ensure_future(
            client.connect(
                **told,
                name=self.name,
                inbox_prefix=inbox(self.subjects, self._role),
                error_cb=self._erred,
                disconnected_cb=self._lost,
                reconnected_cb=self._found,
            )
        )
        self._faults = []
        refused = asyncio.ensure_future(self._refused.wait())
        try:
            await asyncio.wait(
                (connecting, refused), timeout=_WITHIN, return_when=asyncio.FIRST_COMPLETED
            )
            if not connecting.done():  # nats-py knocks at a closed door for ever
                raise TimeoutError("no answer")
            connecting.result()
        except Exception as fault:  # whatever nats-py has
            self._failed = monotonic()
            self.problem = self._problem_of(self._faults[-1] if self._faults else fault)
            _log.warning("the bus cannot be reached: %s", self.problem)
            connecting.cancel()
            with suppress(Exception):
                await client.close()
            raise self.away() from fault
        finally:
            refused.cancel()
            self._refused.clear()
        self._client, self.problem = client, None
        return client

    def _problem_of(self, fault: Exception) -> str:
        servers = ", ".join(without_password(one) for one in self._options.servers)
        return f"{servers}: {str(fault) or type(fault).__name__}"

    def _connected(self, task: asyncio.Task[Any]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

    async def _erred(self, fault: Exception) -> None:
        if self._client is None:
            self._faults.append(fault)
            if len(self._faults) >= len(self._options.servers):
                self._refused.set()
        if self.problem is None:
            _log.warning("the bus: %s", str(fault) or type(fault).__name__)

    async def _lost(self) -> None:
        if not self._closed and self.problem is None:
            self.problem = "the connection was lost; it is being made again"
            _log.warning("the bus: %s", self.problem)

    async def _found(self) -> None:
        self.problem, self.reconnects = None, self.reconnects + 1
        _log.warning("the bus is back")


class Waiting:
    """What has been heard of one call, in order."""

    __slots__ = ("_ends", "_future", "_heard", "_replies", "subject")

    def __init__(self, subject: str, replies: Replies) -> None:
        self.subject, self._replies = subject, replies
        self._heard: deque[Msg] = deque()
        self._future: asyncio.Future[None] | None = None
        self._ends = 0.0

    def put(self, message: Msg) -> None:
        self._heard.append(message)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def next(self, seconds: float) -> Msg | None:
        """The next message; ``None`` if there was silence for so long."""
        if not self._heard:
            loop = asyncio.get_running_loop()
            self._future, self._ends = loop.create_future(), loop.time() + seconds
            self._replies.look_around(loop)
            try:
                await self._future
            finally:
                self._future = None
        return self._heard.popleft() if self._heard else None

    def look(self, now: float, deaf: float) -> None:
        """Whoever has waited for long enough is told that there was silence; the seconds in which
        nobody could have been heard do not count.
        """
        self._ends += deaf
        if self._future is not None and now >= self._ends and not self._future.done():
            self._future.set_result(None)


class Replies:
    """One subscription for the answers to everything."""

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self._number = count(1)
        self._waiting: dict[str, Waiting] = {}
        self._looking: asyncio.TimerHandle | None = None

    def expect(self) -> Waiting:
        subject = f"{self.inbox}.{next(self._number)}"
        waiting = self._waiting[subject] = Waiting(subject, self)
        return waiting

    def look_around(self, loop: asyncio.AbstractEventLoop) -> None:
        """Every now and then as long as somebody waits: a timer for each would cost each of them
        more than the rest of waiting.
        """
        if self._looking is None:
            due = loop.time() + _LOOK
            self._looking = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._looking, now = None, loop.time()
        late = now - due  # this process was stopped, or busy: what came meanwhile is still unread
        for one in tuple(self._waiting.values()):
            one.look(now, late if late > _LOOK else 0.0)
        if self._waiting:
            self.look_around(loop)

    def forget(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting.subject, None)

    async def heard(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject)
        if waiting is not None:  # else it comes too late
            waiting.put(message)


async def drained(subscription: Any, seconds: float) -> bool:
    """Take no more of it. Whether all that was delivered has been heard; else the bus did not say
    so in time, and it is let go of as it is.
    """
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            await subscription.drain()
        return True
    with suppress(Exception):
        # A drain that was given up has closed it, but nats-py would ask for it again on the next
        # connection.
        subscription._closed = False
        await subscription.unsubscribe()
    return False


def without_password(address: str) -> str:
    scheme, found, rest = address.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"
