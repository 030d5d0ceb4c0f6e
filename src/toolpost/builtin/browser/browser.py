"""The browser behind all of its tools: started by the first call, shared, started again if it died.

Above: ``tool.py``. Below: ``running.py`` for the process, ``net`` for where a URL may lead. Whether
Chromium gets through is decided by the sandbox's proxy; the look at a URL here is for the words. It
refuses to know what is on a page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlsplit

from toolpost.builtin.browser.running import Ended, Left, Running, confinement, verify_installed
from toolpost.builtin.browser.settings import Settings
from toolpost.builtin.web_answers import url_given
from toolpost.call import Call
from toolpost.contracts import Health, Secrets
from toolpost.errors import (
    CallError,
    Denied,
    InvalidArguments,
    MissingPart,
    Outcome,
    OutputTooLarge,
    SetupError,
    TimedOut,
    ToolFailed,
    Unavailable,
)
from toolpost.net.destination import Granted, Refused, Unresolved
from toolpost.plugins import SharedSandbox
from toolpost.wording import short

_MARGIN: Final = 1.0
"""Seconds before the limit at which the browser gives up, so that it can still say why."""
_ASCII: Final = "".join(map(chr, range(33, 127)))
_ACTS: Final = ("click", "fill")
_WITHOUT_PAGE: Final = ("crashed", "ended", "slow")
"""What went wrong, if there is no page any more."""
_PORTS: Final = {"http": 80, "https": 443}


class Browser:
    """One for all tools of a source. ``join`` and ``leave``: the last who leaves closes it."""

    def __init__(self, settings: Settings) -> None:
        verify_installed()
        self._settings = settings
        self._granted = Granted(settings.egress)
        self._own = SharedSandbox()
        self._running: Running | None = None
        self._starting = asyncio.Lock()
        self._users = 0

    def join(self) -> None:
        self._users += 1

    async def leave(self) -> None:
        self._users -= 1
        if not self._users:
            running, self._running = self._running, None
            if running is not None:
                await running.close()
            await self._own.close()

    @property
    def pid(self) -> int | None:
        """Of the process above the browser, while there is one."""
        return None if self._running is None or self._running.over else self._running.pid

    async def health(self, sandbox: SharedSandbox | None) -> Health:
        """Whether it could be started; that is not tried, for it takes a second."""
        try:
            (await (sandbox or self._own)()).check(confinement(self._settings))
        except (CallError, SetupError) as fault:
            return Health(False, fault.message)
        return Health(True)

    def secret(self, name: str, secrets: Secrets) -> dict[str, str]:
        """What is to be filled in, and where alone."""
        if name not in self._settings.secrets:
            raise InvalidArguments(f"/kept: nothing is kept as {short(name)!r}", effects="none")
        value = secrets(name)
        if not value:
            raise MissingPart(_unset(name))
        return {"value": value, "only_at": self._settings.site_of(name)}

    def missing(self, secrets: Secrets) -> str | None:
        """What is to be kept here, and is not."""
        return next((_unset(name) for name in self._settings.secrets if not secrets(name)), None)

    async def do(
        self, what: str, call: Call, given: Mapping[str, Any], sandbox: SharedSandbox | None
    ) -> dict[str, Any]:
        """Have it done in the caller's session; the answer, or a ``CallError``."""
        arguments, began = dict(given), monotonic()
        if arguments.get("url") is not None:
            arguments["url"] = await self._reachable(arguments["url"])
        order = {"do": what, "session": _session(call), "given": arguments}
        answer = await self._asked(order, _end(call, began), sandbox or self._own)
        if "fault" in answer:
            kind, said = answer["fault"]
            if kind == "late":
                said = f"{said} within {monotonic() - began:.1f} s: the page was closed."
            raise _failure(what, kind, said, arguments.get("url"))
        done: dict[str, Any] = answer["done"]
        try:
            await self._verify(done["url"], done["status"])
        except Refused as fault:
            raise _led_astray(what, fault) from None
        return done

    async def _asked(
        self, order: Mapping[str, Any], ends: float, sandbox: SharedSandbox
    ) -> dict[str, Any]:
        while True:
            running = await self._started(sandbox)
            try:
                return await running.ask({**order, "seconds": max(ends - monotonic(), 0.5)})
            except Left:
                continue  # it was idle for long enough: a new one is asked
            except Ended:
                return {"fault": ("ended", "The browser ended in the middle of it.")}

    async def _started(self, sandbox: SharedSandbox) -> Running:
        async with self._starting:
            if self._running is not None and self._running.over:
                await self._running.close()
                self._running = None
            if self._running is None:
                self._running = await Running.start(self._settings, await sandbox())
            return self._running

    async def _reachable(self, text: str) -> str:
        """The URL in its one spelling, if a connection may lead there."""
        url = url_given(text)
        try:
            await self._granted.addresses(url.host, url.port)
        except Refused as fault:
            raise _refusal(fault) from None
        mark, fragment = text.partition("#")[1:]
        return f"{url}{mark}{quote(fragment.strip(), safe=_ASCII)}"

    async def _verify(self, where: str, status: int | None) -> None:
        """A page that led elsewhere: nothing was loaded from where it must not be, and ``Refused``
        says so. Where the proxy refuses it answers 403.
        """
        try:
            about = urlsplit(where)
            port = about.port or _PORTS.get(about.scheme)
        except ValueError:
            return
        if port is None or not about.hostname:
            return
        self._granted.verify(about.hostname, port)
        if status == 403:
            await self._granted.addresses(about.hostname, port)


def _unset(name: str) -> str:
    return f"the secret {name} is not set: set the variable {name}"


def _session(call: Call) -> str:
    """Nobody else's: not another caller's of the same session, nor of the same name."""
    who = call.caller
    return json.dumps([who.id, who.user, who.agent, call.session_id])


def _end(call: Call, began: float) -> float:
    """Of the browser's part in a run: what came before a run, such as another, is not its time."""
    ends = began + call.spec.time_limit
    return (ends if call.deadline is None else min(ends, call.deadline)) - _MARGIN


def _refusal(fault: Refused, effects: Outcome = "none") -> CallError:
    if isinstance(fault, Unresolved):
        return Unavailable(f"{fault}. Try again later.", effects=effects)
    return Denied(f"This tool may not connect there: {fault}. Use another tool.", effects=effects)


def _led_astray(what: str, fault: Refused) -> CallError:
    """The refusal of where a page led to: what led there has happened."""
    if what not in _ACTS or isinstance(fault, Unresolved):
        return _refusal(fault, effects="unknown")
    why = f"It may have been done, but the page led where this tool may not connect: {fault}."
    return Denied(f"{why} Find out before anything is tried again.", effects="unknown")


def _failure(what: str, kind: str, message: str, url: str | None) -> CallError:
    if kind == "unreachable" and url is not None:
        message = f"{message.rstrip('.')}: {urlsplit(url).hostname}. Try again later."
    failure = _FAILURES[kind](message)
    # what is only looked at may be tried again, but not if that would tell of something else: that
    # there is no page any more, or no time. (Of an act it has to be said that it may be done.)
    if what not in _ACTS and (kind == "late" or (kind in _WITHOUT_PAGE and url is None)):
        failure.retryable, failure.remedy = False, "other_tool"
    return failure


def _wrong(message: str) -> CallError:
    """Nothing was done: the arguments do not suit the page."""
    return ToolFailed(message, effects="none")


def _amiss(message: str) -> CallError:
    return InvalidArguments(message, effects="none")


_FAILURES: Final[Mapping[str, Callable[[str], CallError]]] = {
    "busy": lambda said: Unavailable(f"{said} Try again later.", effects="none"),
    "crashed": lambda said: Unavailable(f"{said} Open it again, or use another tool."),
    "download": lambda said: ToolFailed(f"{said} Use another tool for it.", remedy="other_tool"),
    "elsewhere": lambda said: Denied(f"{said} This page is another's.", effects="none"),
    "empty": _wrong,
    "ended": lambda said: Unavailable(f"{said} Its pages are gone: open them again."),
    "failed": ToolFailed,
    "form": InvalidArguments,
    "large": OutputTooLarge,
    "late": TimedOut,
    "missing": ToolFailed,
    "selector": _amiss,
    "slow": TimedOut,
    "unloadable": lambda said: ToolFailed(f"{said} Use another tool.", remedy="other_tool"),
    "unreachable": Unavailable,
}
"""What went wrong inside → what is told."""
