"""Ends requests in flight when the credential they came with is no longer good.

A credential is verified when a request arrives. A stream, or a call that runs for minutes, outlives
that: the key may be revoked meanwhile, by any process on the same store, and a key or token may
expire. The gateway and the NATS interface enter every request that presents a credential; while
there are any, each credential is verified again every few seconds, however many requests it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

_log = logging.getLogger("toolpost.gateway")
_EVERY: Final = 0.5
"""Seconds between two looks at the requests in flight."""
_WITHIN: Final = 2.0
"""Seconds that verifying a credential again may take."""
_WARN_EVERY: Final = 30.0
_AT_ONCE: Final = 32
"""Credentials that are verified at the same time."""
End = Callable[[], Coroutine[Any, Any, None]]


class CredentialWatch:
    """The requests in flight, by the task that answers each.

    ``is_fresh`` says whether a credential was verified a moment ago, ``is_good`` verifies it again.
    """

    def __init__(
        self, is_fresh: Callable[[bytes], bool], is_good: Callable[[bytes], Awaitable[bool]]
    ) -> None:
        self._is_fresh, self._is_good = is_fresh, is_good
        self._requests: dict[asyncio.Task[Any], tuple[bytes, End | None]] = {}
        self._ended: dict[asyncio.Task[Any], asyncio.Task[None] | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._warned = -_WARN_EVERY
        self._verifying: set[bytes] = set()
        """Credentials that are being verified: a slow store is not asked again meanwhile."""

    def __len__(self) -> int:
        return len(self._requests)

    def enter(self, task: asyncio.Task[Any], authorization: bytes, end: End | None = None) -> None:
        """Watch a request until ``leave``. When its credential ends, its task is cancelled, and
        ``end`` is awaited, which tells the client.
        """
        self._requests[task] = (authorization, end)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)

    def leave(self, task: asyncio.Task[Any]) -> None:
        self._requests.pop(task, None)
        if self._ended:
            self._ended.pop(task, None)

    def has_ended(self, task: asyncio.Task[Any]) -> bool:
        """Whether the request was ended because its credential is no longer good."""
        return task in self._ended

    async def told(self, task: asyncio.Task[Any]) -> None:
        """Wait until the client of a request that was ended has been told."""
        if (telling := self._ended.get(task)) is not None:
            await asyncio.wait((telling,))

    def end(self, authorization: bytes) -> None:
        """End every request that came with this credential."""
        for task, (presented, end) in list(self._requests.items()):
            if presented == authorization and task not in self._ended:
                self._ended[task] = None if end is None else self._start(end())
                task.cancel()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in tuple(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _tick(self) -> None:
        """Look again later while requests are in flight; the next one to enter starts it anew."""
        self._timer = None
        if not self._requests:
            return
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)
        presented = {authorization for authorization, _ in self._requests.values()}
        presented -= self._verifying
        stale = [one for one in presented if not self._is_fresh(one)]
        self._verifying.update(stale)
        for at in range(0, len(stale), _AT_ONCE):
            self._start(self._verify(stale[at : at + _AT_ONCE]))

    async def _verify(self, credentials: list[bytes]) -> None:
        await asyncio.gather(*map(self._verify_one, credentials))

    async def _verify_one(self, authorization: bytes) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                good = await self._is_good(authorization)
        except Exception as fault:  # noqa: BLE001 - the store is away: running work is not for that
            self._warn(fault)
            return
        finally:
            self._verifying.discard(authorization)
        if not good:
            self.end(authorization)

    def _warn(self, fault: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned > _WARN_EVERY:
            self._warned = now
            _log.warning("credentials in use cannot be verified again right now: %r", fault)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task
