"""One server of the config: the sessions with it, what it offers, and the calls that go to it.

Above: ``backend.py`` for calls, ``source.py`` for what is offered. Below: ``kept.py``, one for
all callers, or one for each where what the server is told belongs to a caller: then nobody's
session, process or credential is another's. The SDK is imported when the first session is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.backends.mcp.binding import McpBinding
from toolpost.backends.mcp.kept import Kept
from toolpost.backends.mcp.launching import Pipes, launch_of
from toolpost.backends.mcp.settings import CALLER, ServerOptions
from toolpost.backends.mcp.tools import Listing
from toolpost.backends.mcp.wire import Forgotten
from toolpost.call import OWNER, Call, Caller
from toolpost.contracts import Elicits, Health
from toolpost.errors import CallError, Denied, MissingPart, SetupError, Unauthorized, Unavailable
from toolpost.plugins import SharedSandbox
from toolpost.process import Child

if TYPE_CHECKING:
    from toolpost.backends.mcp.session import Session

_log = logging.getLogger("toolpost.mcp")
_ALL: Final = ""
_MOST_CALLERS: Final = 100
_PAUSE: Final = 1.0
"""Seconds between two looks at a list that keeps changing."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What a server needs of its surroundings."""

    secret: Callable[[str], str | None]
    sandbox: SharedSandbox
    home: Path | None
    elicits: Elicits | None


class Server:
    """``listeners`` are told that it may offer something else now."""

    def __init__(self, name: str, options: ServerOptions, around: Around) -> None:
        self.name, self.options = name, options
        self._around = around
        self._kept: dict[str, Kept] = {}
        self._looking: asyncio.Task[None] | None = None
        self._unseen: dict[str, Caller] = {}
        """Whose list is said to have changed and was not looked at since."""
        self.listeners: list[Callable[[], None]] = []

    @property
    def about(self) -> Mapping[str, Any]:
        """For dry runs and the audit."""
        if self.options.url is not None:
            return {"server": self.name, "isolation": "remote"}
        confined = self.options.isolation == "sandbox"
        layers = self._around.sandbox.about if confined else {}
        return {"server": self.name, "isolation": self.options.isolation, **layers}

    @property
    def problem(self) -> str | None:
        """Why there is no session with it, if there ought to be one."""
        return next((kept.problem for kept in self._kept.values() if kept.problem), None)

    @property
    def notice(self) -> str | None:
        """What is worth knowing of it although it can be used."""
        return next((kept.notice for kept in self._kept.values() if kept.notice), None)

    @property
    def wait(self) -> float:
        """Seconds until it is worth trying again."""
        return max((kept.wait for kept in self._kept.values()), default=0.0)

    async def list(self) -> Listing:
        """What it offers now, as seen by the owner."""
        return await self._for(OWNER).list()

    async def call(self, binding: McpBinding, call: Call) -> Any:
        """One call. A server that has forgotten the session has done nothing: it is asked again."""
        kept = self._for(call.caller)
        for _ in range(2):
            session = await self._session(kept)
            self._verify(binding, kept.listing)
            if (news := kept.take_news()) is not None:
                call.warn(news)
            try:
                output = await session.call(binding.tool, call)
            except Forgotten:
                continue
            except asyncio.CancelledError:
                kept.suspect(session)
                raise
            kept.call_answered()
            return output
        raise Unavailable(
            "The server behind this tool forgets who speaks to it. Try again later.",
            effects="none",
        )

    async def health(self) -> Health:
        """It is asked; one that is idle, or has just ended, is started for it."""
        try:
            await self._for(OWNER).ping()
        except (CallError, SetupError, TimeoutError, Forgotten) as exc:
            return Health(False, self.problem or str(exc) or "it does not answer")
        return Health(True, self.notice)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*(kept.close() for kept in self._kept.values()))

    async def _session(self, kept: Kept) -> Session:
        try:
            return await kept.session()
        except SetupError as missing:
            raise Unavailable(
                missing.message, retryable=False, remedy="other_tool", effects="none"
            ) from missing

    def _verify(self, binding: McpBinding, listing: Listing | None) -> None:
        """The tool is there, and as it was when it was taken in."""
        pin = None if listing is None else listing.pins.get(binding.tool)
        if pin is None:
            raise Unavailable(
                "The server behind this tool does not offer it any more. Use another tool.",
                retryable=False,
                remedy="other_tool",
                effects="none",
            )
        if binding.pin not in (None, pin):
            raise Denied(
                "The tool is not called: what its server says of it is not what was taken in. A "
                "person has to look at it first.",
                effects="none",
                details={"quarantined": "changed"},
            )

    def _for(self, caller: Caller) -> Kept:
        identity = caller.principal if self.options.by_caller else _ALL
        kept = self._kept.get(identity)
        if kept is None:
            self._make_room()
            kept = self._kept[identity] = Kept(
                self.name,
                partial(self._connect, caller),
                within=self.options.start,
                changed=self._changed,
            )
        return kept

    def _make_room(self) -> None:
        if len(self._kept) < _MOST_CALLERS:
            return
        for identity in [one for one, kept in self._kept.items() if kept.idle]:
            del self._kept[identity]
        if len(self._kept) >= _MOST_CALLERS:
            raise Unavailable(
                "Too many callers use the server behind this tool. Try again later.",
                effects="none",
            )

    async def _connect(self, caller: Caller, legacy: bool) -> Session:
        sdk = await asyncio.to_thread(_sdk)
        session: Session = sdk.Session(
            self._wire(sdk, caller, lambda child: session.started(child)),
            idle=self.options.idle,
            changed=partial(self._look_again, caller),
            elicits=self._around.elicits,
        )
        await session.open(legacy=legacy)
        return session

    def _wire(self, sdk: Any, caller: Caller, started: Callable[[Child], None]) -> Any:
        options = self.options
        if options.url is not None:
            secrets = {
                header: self._secret(n, caller) for header, n in options.secret_headers.items()
            }
            if options.bearer is not None:
                secrets["Authorization"] = f"Bearer {self._secret(options.bearer, caller)}"
            return partial(sdk.remote_streams, options.url, {**options.headers, **secrets})
        launch = launch_of(self.name, options, self._around.home)
        secrets = self._secrets(options.secrets, caller)

        async def start(pipes: Pipes) -> Child:
            child = await launch.start(self._around.sandbox, secrets, pipes)
            started(child)
            return child

        return partial(sdk.child_streams, start)

    def _secrets(self, names: Mapping[str, str], caller: Caller) -> dict[str, str]:
        return {key: self._secret(name, caller) for key, name in names.items()}

    def _secret(self, name: str, caller: Caller) -> str:
        whose = caller.id if caller.owner else caller.principal.partition(":")[2]
        value = self._around.secret(name.replace(CALLER, whose))
        if value is not None:
            return value
        if CALLER in name:
            raise Unauthorized(
                "There is no credential of this caller for the server behind the tool.",
                effects="none",
            )
        raise MissingPart(f"the secret {name} is not set: set the variable {name}")

    def _look_again(self, caller: Caller) -> None:
        """The server says that its list has changed; it may say so as often as it likes."""
        self._unseen[caller.principal if self.options.by_caller else _ALL] = caller
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._looked_again())

    async def _looked_again(self) -> None:
        while self._unseen:
            caller = self._unseen.pop(next(iter(self._unseen)))  # what is told from now on is new
            try:
                await self._for(caller).list()  # tells of it by itself
            except (CallError, SetupError, Forgotten) as exc:
                _log.debug("the changed list of %s was not to be had: %s", self.name, exc)
            await asyncio.sleep(_PAUSE)

    def _changed(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def _sdk() -> Any:
    """What needs the SDK; it takes a second to import."""
    try:
        return import_module("toolpost.backends.mcp.session")
    except ModuleNotFoundError as exc:
        raise MissingPart(
            f'MCP servers need {exc.name!r}. Install it with: pip install "toolpost[mcp]"'
        ) from exc
