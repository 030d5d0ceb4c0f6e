"""A browser that runs: Chromium and what drives it, together in a sandbox, at the end of a socket.

Above: ``browser.py``. Below: the sandbox, which bounds it, gives it a way out, and ends it with all
that it started, even if we are killed. What comes over the socket is read in bounded lines. It
refuses to know what is asked for.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.builtin.browser.program import SWITCHES, chromium
from toolpost.builtin.browser.settings import Settings
from toolpost.contracts import Confines
from toolpost.errors import MissingPart, Unavailable
from toolpost.process import Child
from toolpost.sandbox import Confinement
from toolpost.sandbox.confinement import within
from toolpost.sandbox.view import interpreter, system

_log = logging.getLogger("toolpost.tools")
_WIRE: Final = 3
_MOST_LINE: Final = 32 * 1024 * 1024
_STARTING: Final = 25.0
_STOPPING: Final = 11.0
"""Seconds to stop what was cancelled; then the browser is killed."""
_PROCESSES: Final = 1000
"""Threads count."""
_OPEN_FILES: Final = 8192
"""As many as Chromium would have: short of them, it ends."""
_BEGIN: Final = "import sys; sys.path[:0] = sys.argv[1:3]; from inside.serving import main; main()"
_PACKAGES: Final = ("playwright", "greenlet")
_FONTS: Final = "/etc/fonts"
_WHOSE: Final = re.compile(rb'\{"id": (\d{1,18}),')
_SAYING_WHY: Final = {"DEBUG": "pw:browser"}
"""Has Playwright repeat what Chromium says."""
_NO_MATTER: Final = "dbus/"
"""In lines of Chromium's that say nothing: there is no such bus in a sandbox."""
_LEAVING: Final = 2.0
"""Seconds until nothing more is heard of it."""
_MOST_WORDS: Final = 2000


class Left(Exception):
    """It ended before it had begun with an order."""


class Ended(Exception):
    """It ended in the middle of one."""


def confinement(settings: Settings) -> Confinement:
    """What the browser may see and use: programs, fonts, Playwright, and nothing of anybody's."""
    seen = [_here(), *_packages(), str(Path(chromium(settings.program)).parent)]
    seen += [_FONTS] if Path(_FONTS).is_dir() else []
    there = (*system(), *interpreter()[1])
    wanted = [one for one in seen if not any(within(one, tree) for tree in there)]
    return Confinement(
        read=tuple(dict.fromkeys(wanted)),
        egress=settings.egress,
        memory=settings.memory,
        processes=_PROCESSES,
        open_files=_OPEN_FILES,
        environment=_SAYING_WHY,
        tier=2,
    )


def verify_installed() -> None:
    """``MissingPart`` without Playwright."""
    _packages()


def _packages() -> list[str]:
    found = [find_spec(name) for name in _PACKAGES]
    places = [str(Path(one.origin).parents[1]) for one in found if one and one.origin]
    if len(places) < len(_PACKAGES):
        raise MissingPart(
            "the built-in tools 'browser' need Playwright. "
            'Install it with: pip install "toolpost[browser]"'
        )
    return places


def _here() -> str:
    return str(Path(__file__).parent)


class Running:
    """Made by ``start``; over when ``child`` is, or when it has said that it leaves."""

    def __init__(
        self, child: Child, sandbox: Confines, reader: asyncio.StreamReader, writer: Any
    ) -> None:
        self._child, self._sandbox, self._reader, self._writer = child, sandbox, reader, writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._begun: set[int] = set()
        self._stopped: dict[int, asyncio.TimerHandle] = {}
        self._hearing: asyncio.Task[None] | None = None
        self.leaving = False

    @classmethod
    async def start(cls, settings: Settings, sandbox: Confines) -> Running:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                child = await sandbox.spawn(
                    _words(settings), confinement(settings), pass_fds={theirs.fileno(): _WIRE}
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MOST_LINE)
        running = cls(child, sandbox, reader, writer)
        try:
            await running._greeted()
        except BaseException:
            await running.close()
            raise
        running._hearing = asyncio.ensure_future(running._hear())
        return running

    @property
    def over(self) -> bool:
        return self.leaving or self._child.over

    @property
    def pid(self) -> int:
        """Of the process above all of it."""
        return self._child.pid

    async def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer. Who stops waiting for it has the order stopped as well."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._say({**order, "id": number})
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():  # else it has been given
                self._say({"cancel": number})
                later = asyncio.get_running_loop().call_later(_STOPPING, self._child.kill_soon)
                self._stopped[number] = later
            raise
        finally:
            del self._waiting[number]
            self._begun.discard(number)

    async def close(self) -> None:
        self.leaving = True
        self._child.kill_soon()
        if self._hearing is not None:
            await self._hearing
        await self._child.wait()
        self._writer.close()

    async def _greeted(self) -> None:
        try:
            async with asyncio.timeout(_STARTING):
                said = msgspec.json.decode(await self._reader.readline() or b"{}")
        except (TimeoutError, ValueError):
            said = {}
        if "ready" not in said:
            why = said.get("failed") or self._last_words
            _log.error("the browser did not start: %s", why[-_MOST_WORDS:] or "it said nothing")
            raise Unavailable("The browser did not start. Use another tool.", effects="none")

    async def _hear(self) -> None:
        """Hand out the answers until there are no more."""
        try:
            while line := await self._reader.readline():
                said = _understood(line)
                if "left" in said:
                    self.leaving = True
                elif "begun" in said:
                    self._begun.add(said["id"])
                else:
                    self._heard(said)
        except (ValueError, KeyError, TypeError, OSError) as fault:
            _log.error("the browser is ended: what it says cannot be understood (%s)", fault)
        unasked, self.leaving = not self.leaving, True
        self._child.kill_soon()
        if unasked:
            await self._tell_why()
        for later in self._stopped.values():
            later.cancel()
        for number, answer in self._waiting.items():
            if not answer.done():
                answer.set_exception(Ended() if number in self._begun else Left())

    async def _tell_why(self) -> None:
        """It has ended, and nobody has asked for that: how, and what it said last."""
        how = "it does not end"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING):
                ending = await self._child.ended()
                how = f"code {ending.code}, signal {ending.signal}"
        met = self._sandbox.exceeded(self._child)
        bounds = f", it met its bounds: {', '.join(met)}" if met else ""
        words = self._last_words[-_MOST_WORDS:]
        _log.warning("the browser has ended (%s%s): %s", how, bounds, words)

    @property
    def _last_words(self) -> str:
        tail = b"" if self._child.stderr is None else self._child.stderr.tail
        lines = tail.decode(errors="replace").splitlines()
        return "\n".join(line for line in lines if _NO_MATTER not in line)

    def _heard(self, said: dict[str, Any]) -> None:
        if (stopped := self._stopped.pop(said["id"], None)) is not None:
            stopped.cancel()
        if (answer := self._waiting.get(said["id"])) is not None and not answer.done():
            answer.set_result(said)

    def _say(self, what: dict[str, Any]) -> None:
        self._writer.write(json.dumps(what).encode() + b"\n")


def _understood(line: bytes) -> dict[str, Any]:
    """One answer that makes no sense is the end of its own order only, if it says which that is."""
    try:
        said: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except ValueError as fault:
        if (whose := _WHOSE.match(line)) is None:
            raise
        _log.error("the browser said something that cannot be understood (%s)", fault)
        return {"id": int(whose[1]), "fault": ["failed", "What the page says is no text."]}
    return said


def _words(settings: Settings) -> list[str]:
    options = {
        "program": chromium(settings.program),
        "switches": SWITCHES,
        "sessions": settings.sessions,
        "idle": settings.idle,
        "patience": _STARTING,
    }
    python = [interpreter()[0], "-I", "-S", "-X", "utf8", "-c", _BEGIN]
    return [*python, _here(), _packages()[0], str(_WIRE), json.dumps(options)]
