"""A session that is kept: made when it is wanted, once for all who want it, and made again.

Above: ``server.py``. Below: ``session.py``, through the function that opens one. After a failure
the next attempt waits, longer each time; who calls meanwhile is told at once how long.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from toolpost.backends.mcp.tools import Listing
from toolpost.backends.mcp.wire import IDLE, Forgotten
from toolpost.errors import CallError, OutputTooLarge, SetupError, Unauthorized, Unavailable
from toolpost.wording import short

if TYPE_CHECKING:
    from toolpost.backends.mcp.session import Session

T = TypeVar("T")
_log = logging.getLogger("toolpost.mcp")
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 60.0
PROBE_WITHIN: Final = 3.0
"""Seconds that a server has to answer a ping after a call to it timed out."""
BUSY_WITHIN: Final = 30.0
"""Seconds that it has if an older call still waits for it: it may do one thing at a time."""


class Kept:
    """``listing`` is what the server offered when it was last asked; ``problem`` why there is no
    session, in words for who looks after it.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[bool], Awaitable[Session]],
        *,
        within: float,
        changed: Callable[[], None],
    ) -> None:
        """``connect`` opens one; it is told to begin with the handshake of the earlier era."""
        self._name, self._connect, self._within, self._changed = name, connect, within, changed
        self._session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._failures = 0
        """In a row: it could not be met, or ended without having answered anything."""
        self._unmet = 0
        self._not_before = 0.0
        self._legacy = False
        self._refusal: Exception | None = None
        """What is to be mended before another attempt can go better."""
        self._probing: asyncio.Task[None] | None = None
        self._hangs = 0
        """In a row: it answered no call in between."""
        self._restarts = 0
        self._restarted_at = ""
        self._news: str | None = None
        self._unanswered = 0
        """Calls in a row that were given up although the server answers a ping."""
        self.listing: Listing | None = None
        self.problem: str | None = None

    @property
    def live(self) -> Session | None:
        """The session, if there is one."""
        return self._session if self._session is not None and self._session.alive else None

    @property
    def idle(self) -> bool:
        """There is none, and nobody waits for one."""
        return self.live is None and self._opening is None

    @property
    def wait(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self._not_before - monotonic())

    @property
    def notice(self) -> str | None:
        """What is worth knowing of a server that can be used."""
        found = []
        if self._restarts:
            times = "once" if self._restarts == 1 else f"{self._restarts} times"
            found.append(f"it hung and was restarted {times}, last at {self._restarted_at}")
        if self._unanswered:
            found.append(f"it answers a ping, and not its calls: {self._unanswered} were given up")
        return "; ".join(found) or None

    def take_news(self) -> str | None:
        """What the next caller is told, once."""
        news, self._news = self._news, None
        return news

    def call_answered(self) -> None:
        self._hangs = self._unanswered = 0

    def suspect(self, session: Session) -> None:
        """A call was given up: find out whether the server hangs. One that does is replaced; one
        that answers may be busy with the call, and is left alone.
        """
        if session.is_child and session.alive and self._probing is None:
            self._probing = asyncio.create_task(self._probe(session))
            self._probing.add_done_callback(self._probed)

    async def _probe(self, session: Session) -> None:
        within = BUSY_WITHIN if session.behind else PROBE_WITHIN
        if await session.answers(within):
            self._unanswered += 1
            _log.warning(
                "a call to the MCP server %s was given up; it answers a ping and is not restarted",
                self._name,
            )
            return
        if not session.alive:
            return
        why = f"a call timed out, and it did not answer a ping within {within:g} s"
        session.give_up(why)
        self._restarts += 1
        self._restarted_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._news = "The server behind this tool had stopped answering and was restarted."
        self._unanswered = 0
        self.problem = f"it hung and was killed: {why}"
        _log.warning("the MCP server %s hangs and is restarted: %s", self._name, why)
        with suppress(CallError, SetupError):  # then the next call, or the source, tries again
            await self.session()

    def _probed(self, probing: asyncio.Task[None]) -> None:
        self._probing = None
        if not probing.cancelled() and (fault := probing.exception()) is not None:
            _log.error("the MCP server %s could not be probed", self._name, exc_info=fault)

    async def session(self) -> Session:
        """The session there is, or a new one; ``CallError`` if none can be had now."""
        if (live := self.live) is not None:
            return live
        if self._opening is None:
            self._opening = asyncio.create_task(self._opened())
            self._opening.add_done_callback(self._settled)
        return await asyncio.shield(self._opening)  # who goes does not end it for the others

    async def list(self) -> Listing:
        """What the server offers now."""
        listing = await self._told(self._listed)
        if self.problem is not None:  # there is a session: it was its list that was late
            self.problem, self._failures, self._not_before = None, 0, 0.0
        self._take(listing)
        return listing

    async def _listed(self, session: Session) -> Listing:
        """One that hangs holds up nobody: it keeps its session, for it may be busy with a call."""
        try:
            async with asyncio.timeout(self._within):
                return await session.tools()
        except TimeoutError:
            self._failures += 1
            self._rest(f"it did not list its tools within {self._within:g} s")
            raise Unavailable(
                "The server behind this tool does not answer. Try again later.", effects="none"
            ) from None

    async def ping(self) -> None:
        """Raises unless the server answers."""
        await self._told(lambda session: session.ping())

    async def _told(self, ask: Callable[[Session], Awaitable[T]]) -> T:
        """What has no effects is asked again, if the server has just ended."""
        try:
            return await ask(await self.session())
        except Forgotten:
            pass
        except Unavailable:
            if self.live is not None or self.wait:
                raise
        return await ask(await self.session())

    async def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _settled(self, opening: asyncio.Task[Session]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # looked at, even where nobody waits any more

    async def _opened(self) -> Session:
        if self._session is not None:
            await self._over(self._session)
        if (wait := self.wait) > 0:
            raise self._refusal or self._down(wait)
        try:
            session = await self._introduced()
        except (SetupError, Unauthorized) as fault:
            self._refusal = fault
            self._fail(fault.message)
            raise
        except Exception as exc:
            self._refusal = None
            self._fail(_words(exc, self._within))
            raise self._down(self.wait) from exc
        self._session, self._legacy, self.problem = session, not session.modern, None
        self._unmet = 0
        return session

    async def _introduced(self) -> Session:
        session: Session | None = None
        try:
            async with asyncio.timeout(self._within):
                # what did not work in one way may in the other
                session = await self._connect(self._legacy ^ bool(self._unmet % 2))
                self._take(await session.tools())
        except BaseException as exc:
            if session is None:
                raise
            await session.close()
            if isinstance(exc, Unavailable | OutputTooLarge) and session.why:
                raise ConnectionError(session.why) from exc  # its last words say more
            raise
        return session

    def _take(self, listing: Listing) -> None:
        before, self.listing = self.listing, listing
        if before is not None and before.pins != listing.pins:
            self._changed()

    async def _over(self, session: Session) -> None:
        self._session = None
        await session.close()
        _log.info("the session with the MCP server %s is over: %s", self._name, session.why)
        if session.hung:
            self._hangs += 1
            self._failures = self._hangs
            if self._hangs > 1:  # the first may have been an accident
                self._rest(f"it hangs again and again: {session.why}")
            return
        if session.answered:
            self._failures = 0
        if session.answered or session.why == IDLE:  # which says nothing against it
            return
        self._failures += 1
        if self._failures > 1:  # the first may have been an accident
            self._rest(f"it ended before it had answered anything: {session.why}")

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._unmet += 1
        self._rest(why)

    def _rest(self, why: str) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self._failures - 1))
        self._not_before = monotonic() + wait * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        self.problem = why
        _log.warning("the MCP server %s cannot be used: %s", self._name, why)

    def _down(self, wait: float) -> CallError:
        return Unavailable(
            "The server behind this tool cannot be reached. Try again later.",
            retry_after=round(wait, 3),
            effects="none",
        )


def _words(exc: Exception, within: float) -> str:
    if isinstance(exc, TimeoutError):
        return f"it did not introduce itself and list its tools within {within:g} s"
    return short(str(exc) or type(exc).__name__, 500)
