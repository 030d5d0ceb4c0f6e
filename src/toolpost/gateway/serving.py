"""Serving: bind, open, answer, and on a signal finish what was begun.

Above: the command line. Below: uvicorn, whose server is told here when to look around and how to
stop: nothing new is accepted, calls in flight end or are cancelled at the drain's deadline, and
only then is what they need closed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, cast

import uvicorn

from toolpost.clock import SystemClock
from toolpost.config import Config
from toolpost.contracts import Elicits
from toolpost.errors import ConfigError
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.app import Gateway, application
from toolpost.gateway.connection import Connection, protocol
from toolpost.gateway.identity.callers import Identity
from toolpost.gateway.identity.keys import Keys
from toolpost.gateway.identity.origins import refused_binding
from toolpost.gateway.identity.unmatched import unmatched
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.mcp.app import mounted
from toolpost.gateway.mcp.asking import ask
from toolpost.gateway.nats import NatsDoor
from toolpost.gateway.settings import GatewaySettings
from toolpost.gateway.siblings import Siblings
from toolpost.jobs import Jobs
from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.gateway")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BACKLOG: Final = 2048
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is compared, not bound
"""What stands for every address, and the one of them that is this machine's own."""
_STREAMS_END: Final = 1.0
"""Seconds that an answer to a GET may take to end: there is no call behind it."""
_CANCELS_END: Final = 10.0
"""Seconds that cancelled calls may take to be gone, with every process they had."""
Ready = Callable[[Gateway], None]


def bind(settings: GatewaySettings) -> list[socket.socket]:
    """Where it listens; refused where others could reach it and nobody is asked who they are."""
    if (why := refused_binding(settings.auth, settings.host)) is not None:
        raise ConfigError(why)
    host, port = settings.host.strip("[]"), settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        for family, _, _, _, address in found:
            if sockets and port == 0:
                break  # another family would get another port
            sockets.append(_listening(family, address))
    except OSError as fault:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {fault.strerror or fault}. Choose another with "
            "--port, or in [gateway]"
        ) from fault
    return sockets


def _listening(family: int, address: object) -> socket.socket:
    # asyncio sends at once only on what is said to be TCP, and else waits for more to send
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)  # type: ignore[arg-type]
        made.listen(_BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def address_of(sockets: Sequence[socket.socket]) -> str:
    """The address that a client on this machine can use."""
    host, port = sockets[0].getsockname()[:2]
    host = _ANY.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def everywhere(sockets: Sequence[socket.socket]) -> str:
    """Where else it can be reached, to be said behind its address; mostly nowhere."""
    host, port = sockets[0].getsockname()[:2]
    return f", and at every address of this machine, port {port}" if host in _ANY else ""


@asynccontextmanager
async def opened(config: Config, settings: GatewaySettings) -> AsyncIterator[Gateway]:
    """The application with everything behind it, open; all of it is closed afterwards."""
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime(config, provide={Elicits: ask}))
        identity = Identity.of(settings.auth, records=runtime.store, clock=SystemClock())
        stack.push_async_callback(identity.close)
        await identity.open()
        log = AccessLog(sys.stderr) if settings.access_log else None
        if log is not None:
            stack.push_async_callback(log.close)
        siblings = None
        if settings.processes > 1:
            siblings = Siblings(config.base / config.settings.state)
            await stack.enter_async_context(siblings)
        jobs = await stack.enter_async_context(Jobs(runtime))
        inflight = InFlight(settings.calls_each)
        mcp = mounted(
            runtime,
            settings.mcp,
            body=settings.body,
            jobs=jobs,
            siblings=siblings,
            inflight=inflight,
        )
        await stack.enter_async_context(mcp)
        door = None
        if settings.nats is not None:
            door = NatsDoor(runtime, settings.nats, identity=identity, inflight=inflight)
            await stack.enter_async_context(door)
        yield application(
            runtime,
            settings,
            identity=identity,
            jobs=jobs,
            mcp=mcp,
            access_log=log,
            siblings=siblings,
            inflight=inflight,
            door=door,
        )


async def warn_of_callers(gateway: Gateway) -> None:
    """Say in the log which names of callers in the config belong to nobody."""
    behind = gateway.behind
    keys = Keys(behind.runtime.store, clock=SystemClock())
    for told in await unmatched(behind.runtime.config, behind.settings.auth, keys):
        _log.warning("%s", told)


async def serve(
    gateway: Gateway, sockets: list[socket.socket], *, ready: Ready | None = None
) -> None:
    """Answer until a signal, or ``Server.should_exit``."""
    await server_of(gateway, ready=ready).serve(sockets)


def server_of(gateway: Gateway, *, ready: Ready | None = None) -> Server:
    settings = gateway.behind.settings
    config = uvicorn.Config(
        gateway,
        http=protocol(settings),
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=cast("int", settings.idle_time),
    )
    return Server(config, gateway, ready=ready)


class Server(uvicorn.Server):
    """uvicorn's, with an end of our own."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, *, ready: Ready | None = None
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._ready = ready
        self._drain = gateway.behind.settings.drain_time

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends it in good order, and is not raised again: there is more to close."""
        loop = asyncio.get_running_loop()
        try:
            for one in _SIGNALS:
                loop.add_signal_handler(one, self.handle_exit, one, None)
        except (ValueError, RuntimeError, NotImplementedError):
            yield  # not the main thread: whoever started it ends it
            return
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    def stop(self) -> None:
        """As a signal does."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if (siblings := self._gateway.behind.siblings) is not None:
            self.servers.append(await siblings.listen(self._protocol))
        if self._ready is not None:
            self._ready(self._gateway)

    def _protocol(self) -> asyncio.Protocol:
        """One for each connection, as uvicorn makes them for the sockets that it is given."""
        kind = cast("type[Connection]", self.config.http_protocol_class)
        return kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def on_tick(self, counter: int) -> bool:
        if counter % 2 == 0:
            now = asyncio.get_running_loop().time()
            for one in self._connections():
                one.look(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, let calls end until the deadline, cancel the rest, and wait."""
        self._gateway.leave()
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        for connection in self._connections():
            connection.shutdown()
        others = asyncio.gather(self._jobs_ended(), self._door_closed())
        await asyncio.sleep(0)
        if self._streams():
            await asyncio.wait(self._streams(), timeout=min(self._drain, _STREAMS_END))
            for stream in self._streams():
                stream.cancel()
        if count := len(self.server_state.tasks):
            _log.warning(
                "calls in flight: %d; they have %g s to end, and Ctrl-C again cancels them",
                count,
                self._drain,
            )
        await self._ended(self._drain)
        left = set(self.server_state.tasks)
        if left:
            why = "at a second signal" if self.force_exit else f"after {self._drain:g} s"
            _log.warning("calls cancelled %s: %d", why, len(left))
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_CANCELS_END)
        await asyncio.sleep(0)
        for connection in self._connections():
            connection.transport.close()
        await others

    async def _jobs_ended(self) -> None:
        """Jobs that run may end, too, until the same deadline; the others stay in the store."""
        if (jobs := self._gateway.behind.jobs) is not None:
            await jobs.close(grace=self._drain, hurry=lambda: self.force_exit)

    async def _door_closed(self) -> None:
        """Calls that came over the bus, too."""
        if (door := self._gateway.behind.door) is not None:
            await door.close(grace=self._drain, hurry=lambda: self.force_exit)

    async def _ended(self, seconds: float) -> None:
        """Wait for the requests, unless a second signal says that this is too long."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        tasks = self.server_state.tasks
        while tasks and not self.force_exit and (left := ends - loop.time()) > 0:
            done, _ = await asyncio.wait(set(tasks), timeout=min(left, 0.2))
            tasks -= done  # one that was cancelled before it began has not said so

    def _connections(self) -> list[Connection]:
        return cast("list[Connection]", list(self.server_state.connections))

    def _streams(self) -> list[asyncio.Task[None]]:
        """What is being answered and is no call: those are asked for with POST."""
        return [
            one.work
            for one in self._connections()
            if one.work is not None and not one.work.done() and one.scope["method"] == "GET"
        ]
