"""Sessions: each has a context of its own, with its cookies and its one page.

Above: ``serving.py``. Below: contexts of Playwright's. What one session has another never sees.
Windows that open by themselves are closed; one that a click opened takes the place of its page.
It refuses to know what is done with a page.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final, NoReturn

from playwright.async_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Error,
    Page,
    ViewportSize,
)

from .faults import Fault

_ELEMENT: Final = 5.0
"""Seconds that an element may take to be there, if there are so many."""
_CLOSING: Final = 8.0
"""Seconds that anything may take to close; what will not takes the browser with it."""
_MAKING: Final = 15.0
"""Seconds that a page may take to be made; Chromium that makes none any more is ended."""
_ALIVE: Final = 5.0
"""Seconds that Chromium has to show that it is there."""
_OPENING: Final = 5.0
"""Seconds that a window may take to begin to load."""
_VIEW: Final[ViewportSize] = {"width": 1280, "height": 800}
HUNG: Final = 70
"""The exit code for it."""


class Session:
    """One page, and who is using it."""

    def __init__(self) -> None:
        self.one_at_a_time = asyncio.Lock()
        self.used = monotonic()
        self.users = 0
        self.patience = 0.0
        """Milliseconds that are left for what is asked of it."""
        self.kept: set[str] = set()
        """Passwords that were filled in without being shown."""
        self._clicking = False
        self._opened: list[Page] = []
        """The window that the click under way has opened, if any."""
        self._appearing = asyncio.Event()
        self._making = False
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._protocol: CDPSession | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def page(self) -> Page:
        if self._page is None or self._page.is_closed() or self._page.url == "about:blank":
            raise Fault(
                "empty", "No page is open in this session: give a url, or use browser_navigate."
            )
        return self._page

    async def fresh(self, browser: Browser) -> Page:
        """The page, made if there is none."""
        try:
            async with asyncio.timeout(_MAKING):
                return await self._made(browser)
        except TimeoutError:
            end("no page could be made")

    async def _made(self, browser: Browser) -> Page:
        if self._context is None:
            self._context = await browser.new_context(
                accept_downloads=False, service_workers="block", viewport=_VIEW
            )
            self._context.on("page", self._appeared)
        if self._page is None or self._page.is_closed():
            self._making = True
            try:
                self._page, self._protocol = await self._context.new_page(), None
            finally:
                self._making = False
        return self._page

    @asynccontextmanager
    async def clicking(self) -> AsyncIterator[None]:
        """A window that opens meanwhile is the page from then on; the one before goes."""
        self._clicking, self._opened = True, []
        self._appearing.clear()
        try:
            yield
            with suppress(Fault):  # the page has closed itself: there is nobody to ask
                await self._window()
        finally:
            self._clicking = False
        for opened in self._opened:
            if not opened.is_closed():
                before, self._page, self._protocol = self._page, opened, None
                if before is not None:
                    await before.close()

    def wait_at_most(self, seconds: float) -> None:
        """For a page that is looked at as a whole; for an element to be there, less."""
        self.patience = max(seconds, 0.1) * 1000
        if self._context is not None:
            self._context.set_default_timeout(min(self.patience, _ELEMENT * 1000))

    async def protocol(self) -> CDPSession:
        page = self.page
        if self._protocol is None:
            self._protocol = await page.context.new_cdp_session(page)
        return self._protocol

    async def drop(self) -> None:
        """Close the page, and keep the rest: cookies, and what it has stored."""
        page, self._page, self._protocol = self._page, None, None
        if page is not None:
            await _closed(page)

    async def close(self) -> None:
        context, self._context, self._page, self._protocol = self._context, None, None, None
        if context is not None:
            await _closed(context)

    async def _window(self) -> None:
        """Wait for a window that is opening: it is told of only when it has begun to load."""
        protocol = await self.protocol()
        mine = (await protocol.send("Target.getTargetInfo"))["targetInfo"].get("browserContextId")
        there = (await protocol.send("Target.getTargets"))["targetInfos"]
        pages = [one for one in there if one["type"] == "page"]
        if sum(one.get("browserContextId") == mine for one in pages) > 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPENING):
                    await self._appearing.wait()

    def _appeared(self, page: Page) -> None:
        if self._making:
            return
        if self._clicking and not self._opened:
            self._opened.append(page)
            self._appearing.set()
        else:
            self._soon(page.close())

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        async def quietly() -> None:
            with suppress(Error):
                await work

        task = asyncio.ensure_future(quietly())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _closed(what: Page | BrowserContext) -> None:
    try:
        async with asyncio.timeout(_CLOSING):
            await what.close()
    except (TimeoutError, Error) as fault:
        end(f"what was to be closed was not: {fault!r}")


def end(why: str) -> NoReturn:
    """At once, and with all that was started: the sandbox sees to it."""
    os.write(sys.stderr.fileno(), f"\n{why}\n".encode())
    os._exit(HUNG)


class Sessions:
    """By name; of those that nobody uses the one that waited longest makes room."""

    def __init__(self, browser: Browser, *, most: int, idle: float) -> None:
        self._browser, self._most, self._idle = browser, most, idle
        self._open: dict[str, Session] = {}
        self._used = monotonic()

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[Session]:
        """The session, for one at a time."""
        while name not in self._open and len(self._open) >= self._most:
            await self._make_room()
        session = self._open.setdefault(name, Session())
        session.users += 1
        try:
            async with session.one_at_a_time:
                yield session
        finally:
            session.users -= 1
            session.used = self._used = monotonic()

    async def fresh(self, session: Session) -> Page:
        return await session.fresh(self._browser)

    async def verify_alive(self) -> None:
        """Neither Chromium nor what drives it has ended, or this does."""
        try:
            async with asyncio.timeout(_ALIVE):
                await (await self._browser.new_browser_cdp_session()).detach()
        except (TimeoutError, Error) as fault:
            end(f"Chromium is not there any more: {fault!r}")

    async def tidy(self) -> bool:
        """Close what has been idle for too long; is there nothing left to wait for?"""
        now = monotonic()
        for name, session in tuple(self._open.items()):
            if not session.users and now - session.used >= self._idle:
                del self._open[name]
                await session.close()
        return not self._open and now - self._used >= self._idle

    async def _make_room(self) -> None:
        free = [name for name, session in self._open.items() if not session.users]
        if not free:
            raise Fault("busy", f"{self._most} sessions use the browser already.")
        oldest = min(free, key=lambda name: self._open[name].used)
        await self._open.pop(oldest).close()
