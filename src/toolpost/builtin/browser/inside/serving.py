"""One socket, one browser: orders come in as lines of JSON, each is answered with a line.

Above: ``running.py``, at the other end of the socket. Below: ``sessions.py`` and ``actions.py``. It
ends when the socket does, when the browser does, and when nobody has used it for a while; all that
it started ends with it, for the sandbox does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any, Final

from playwright.async_api import Error, async_playwright

from .actions import ACTIONS, open_page, responds
from .faults import Fault, fault_of
from .sessions import Session, Sessions, end

_MOST_LINE: Final = 1024 * 1024
_PROBING: Final = 2.0
"""Seconds that a page has to show that it is alive, once it has let something take too long."""
_HALVES: Final = re.compile("[\ud800-\udfff]")
_UNWANTED: Final = (
    "--disable-popup-blocking",
    "--disable-ipc-flooding-protection",
    "--enable-unsafe-swiftshader",
)
"""What Playwright would have Chromium do, for tests of pages that mean well."""


def main() -> None:
    asyncio.run(_serve(int(sys.argv[3]), json.loads(sys.argv[4])))


async def _serve(wire: int, options: Mapping[str, Any]) -> None:
    reader, writer = await asyncio.open_connection(
        sock=socket.socket(fileno=wire), limit=_MOST_LINE
    )
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(
                executable_path=options["program"],
                args=options["switches"],
                ignore_default_args=_UNWANTED,
                timeout=options["patience"] * 1000,
                handle_sigint=False,
            )
        except Error as error:
            _say(writer, {"failed": error.message[-2000:]})
            await writer.drain()
            return
        browser.on("disconnected", lambda _: end("Chromium ended"))
        sessions = Sessions(browser, most=options["sessions"], idle=options["idle"])
        _say(writer, {"ready": browser.version})
        await _Desk(writer, sessions).attend(reader, options["idle"])
        os._exit(0)  # the sandbox takes everything else along, and waits for nothing


class _Desk:
    """The orders under way."""

    def __init__(self, writer: asyncio.StreamWriter, sessions: Sessions) -> None:
        self._writer, self._sessions = writer, sessions
        self._under_way: dict[int, asyncio.Task[None]] = {}

    async def attend(self, reader: asyncio.StreamReader, idle: float) -> None:
        listening = asyncio.ensure_future(self._listen(reader))
        while not listening.done():
            await asyncio.wait((listening,), timeout=min(idle / 4, 10.0))
            if await self._sessions.tidy() and not self._under_way:
                _say(self._writer, {"left": True})
                await self._writer.drain()
                return

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            if "cancel" in order:
                if (task := self._under_way.get(order["cancel"])) is not None:
                    task.cancel()
            else:
                task = asyncio.ensure_future(self._answered(order))
                self._under_way[order["id"]] = task
                task.add_done_callback(partial(self._over, order["id"]))

    async def _answered(self, order: Mapping[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            answer = {"done": await self._done(order)}
        except Fault as fault:
            answer = {"fault": [fault.kind, fault.message]}
        except Exception as error:  # noqa: BLE001 - ours, whatever a page has done for it
            sys.stderr.write(f"{order['do']}: {type(error).__name__}\n")
            answer = {"fault": ["failed", "The page would not have it."]}
        _say(self._writer, {"id": order["id"], **answer})
        await self._writer.drain()

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        """One that was stopped, perhaps before it had begun, is answered too."""
        del self._under_way[number]
        if task.cancelled():
            _say(self._writer, {"id": number, "fault": ["slow", "It was stopped."]})

    async def _done(self, order: Mapping[str, Any]) -> dict[str, Any]:
        ends = monotonic() + order["seconds"]
        async with self._sessions.one(order["session"]) as session:
            _say(self._writer, {"id": order["id"], "begun": True})
            try:
                return await self._tried(session, order, ends)
            except asyncio.CancelledError:
                await session.close()
                raise

    async def _tried(
        self, session: Session, order: Mapping[str, Any], ends: float
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(max(ends - monotonic(), 0)):
                return await self._on_page(session, order, ends)
        except TimeoutError:
            fault = Fault("late", "It was not done")
        except Fault as found:
            fault = found
        except Error as error:
            fault = fault_of(error)
        raise await self._judged(session, fault)

    async def _on_page(
        self, session: Session, order: Mapping[str, Any], ends: float
    ) -> dict[str, Any]:
        given, status = order["given"], None
        if given.get("url"):
            page = await self._sessions.fresh(session)
            status = await open_page(page, given["url"], max(ends - monotonic() - 1, 0.1))
        session.wait_at_most(ends - monotonic() - _PROBING)
        return {**await ACTIONS[order["do"]](session, given), "status": status}

    async def _judged(self, session: Session, fault: Fault) -> Fault:
        """A page that does not respond is closed; that is then what is told."""
        if fault.kind == "missing":
            try:
                async with asyncio.timeout(_PROBING):
                    await responds(session)
            except (TimeoutError, Error, Fault):
                fault = Fault("slow", "The page does not respond: it was closed.")
        if fault.kind == "crashed":
            await self._sessions.verify_alive()
        if fault.kind in ("crashed", "late", "slow"):
            await session.close()
        elif fault.kind in ("unloadable", "unreachable"):
            await session.drop()
        return fault


def _say(writer: asyncio.StreamWriter, what: Mapping[str, Any]) -> None:
    """Pages may have half characters, which are no text: whole ones take their places."""
    text = json.dumps(what, ensure_ascii=False)
    try:
        line = text.encode()
    except UnicodeEncodeError:
        line = _HALVES.sub("\ufffd", text).encode()
    writer.write(line + b"\n")
