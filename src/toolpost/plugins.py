"""(socket, name) → the part that goes there, imported when it is first wanted.

Our own parts stand in the package's metadata as entry points, like anybody's; the table here saves
a scan of everything that is installed. Installed is not active: nothing is loaded unless a spec or
the config names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from toolpost.contracts import Backend, Confines, Gauged, Gauges, Mode, Services
from toolpost.errors import ConfigError, MissingPart, SetupError
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from toolpost.sandbox.grounds import Grounds

SOCKETS: Final = ("backends", "sources", "extensions", "stores", "exporters")
BUILT_IN: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("backends", "http"): "toolpost.backends.http.backend:HttpBackend",
        ("backends", "mcp"): "toolpost.backends.mcp.backend:McpBackend",
        ("backends", "nats"): "toolpost.backends.nats.backend:NatsBackend",
        ("backends", "python"): "toolpost.backends.python.backend:PythonBackend",
        ("backends", "shell"): "toolpost.backends.shell.backend:ShellBackend",
        ("sources", "builtin"): "toolpost.sources.builtin:BuiltinSource",
        ("sources", "files"): "toolpost.sources.files:FilesSource",
        ("sources", "modules"): "toolpost.sources.modules:ModulesSource",
        ("sources", "entrypoints"): "toolpost.sources.entrypoints:EntryPointsSource",
        ("sources", "http"): "toolpost.sources.http:HttpSource",
        ("sources", "database"): "toolpost.sources.database:DatabaseSource",
        ("sources", "mcp"): "toolpost.backends.mcp.source:McpSource",
        ("sources", "nats"): "toolpost.backends.nats.source:NatsSource",
        ("sources", "openapi"): "toolpost.sources.openapi.source:OpenApiSource",
        ("extensions", "audit"): "toolpost.extensions.audit:Audit",
        ("extensions", "access"): "toolpost.extensions.access:Access",
        ("extensions", "approval"): "toolpost.extensions.approval:Approval",
        ("extensions", "artifacts"): "toolpost.extensions.artifacts:Artifacts",
        ("extensions", "cache"): "toolpost.extensions.cache:Cache",
        ("extensions", "once"): "toolpost.extensions.once:Once",
        ("extensions", "policy"): "toolpost.extensions.policy:Policy",
        ("extensions", "metrics"): "toolpost.extensions.metrics:Metrics",
        ("extensions", "rate"): "toolpost.extensions.rate:Rate",
        ("extensions", "retry"): "toolpost.extensions.retry:Retry",
        ("extensions", "log"): "toolpost.extensions.log:Log",
        ("extensions", "sanitize"): "toolpost.extensions.sanitize:Sanitize",
        ("extensions", "slots"): "toolpost.extensions.slots:Slots",
        ("extensions", "trace"): "toolpost.extensions.trace:Trace",
        ("stores", "memory"): "toolpost.stores.memory:MemoryStore",
        ("stores", "sqlite"): "toolpost.stores.sqlite:SqliteStore",
        ("stores", "postgres"): "toolpost.stores.postgres:PostgresStore",
        ("exporters", "openai"): "toolpost.exporters.openai:COMPLETIONS",
        ("exporters", "openai-responses"): "toolpost.exporters.openai:RESPONSES",
        ("exporters", "anthropic"): "toolpost.exporters.anthropic:ANTHROPIC",
        ("exporters", "mcp"): "toolpost.exporters.mcp:MCP",
        ("exporters", "gemini"): "toolpost.exporters.gemini:GEMINI",
        ("exporters", "langchain"): "toolpost.exporters.langchain:LANGCHAIN",
    }
)
_BINDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "http": "toolpost.backends.http.binding",
        "mcp": "toolpost.backends.mcp.binding",
        "nats": "toolpost.backends.nats.binding",
        "python": "toolpost.backends.python.binding",
        "shell": "toolpost.backends.shell.binding",
    }
)
"""Kind → what verifies its bindings, where the backend itself takes a while to import."""
_EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "asyncpg": "postgres",
        "cryptography": "seal",
        "httpcore2": "http",
        "nats": "nats",
        "opentelemetry": "otel",
        "turbohtml": "web",
    }
)
"""Module of a missing import → the extra that brings it."""


def load(socket: str, name: str) -> Any:
    """The part, or ``MissingPart`` with what to install or which names there are."""
    where = BUILT_IN.get((socket, name))
    if where is None:
        where = _found(socket, name).value
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        extra = _EXTRAS.get(missing)
        install = f'pip install "toolpost[{extra}]"' if extra else f"pip install {missing}"
        raise MissingPart(
            f"{socket[:-1]} {name!r} needs {missing!r}. Install it with: {install}"
        ) from exc
    except Exception as exc:  # foreign code may raise anything while it is imported
        raise MissingPart(
            f"{socket[:-1]} {name!r} is installed but cannot be loaded from {where!r}: "
            f"{type(exc).__name__}: {exc}"
        ) from exc


def verify_name(socket: str, name: str) -> None:
    """``MissingPart``, with the nearest name, unless such a part is installed; it is not loaded."""
    if (socket, name) not in BUILT_IN:
        _found(socket, name)


def verify_binding(spec: ToolSpec) -> None:
    """What the spec's kind has to say of its binding before anything is bound: ``InvalidSpec``."""
    verify: Callable[[ToolSpec], None] | None = getattr(_judge(spec.kind), "verify", None)
    if verify is not None:
        verify(spec)


def confines(spec: ToolSpec) -> bool:
    """Whether the spec's kind says that it runs such a tool, if it is all data, in a sandbox."""
    confined = getattr(_judge(spec.kind), "confined", None)
    return confined is not None and bool(confined(spec))


@cache
def _judge(kind: str) -> object | None:
    """What knows the bindings of a kind; looked up once, for thousands of specs may be loaded."""
    try:
        home = _BINDINGS.get(kind)
        return load("backends", kind) if home is None else import_module(home)
    except SetupError:
        return None  # its tools are refused when they are bound, with the reason


def installed(socket: str) -> list[EntryPoint]:
    """Everything that is installed for a socket, ours and others', by name."""
    from importlib.metadata import entry_points  # 20 ms, and most programs never ask

    return sorted(entry_points(group=f"toolpost.{socket}"), key=lambda e: e.name)


def _found(socket: str, name: str) -> EntryPoint:
    points = [point for point in installed(socket) if point.name == name]
    if not points:
        names = {p.name for p in installed(socket)} | {n for s, n in BUILT_IN if s == socket}
        raise MissingPart(_not_there(socket, name, sorted(names)))
    if len(points) > 1:
        owners = " and ".join(sorted(p.dist.name if p.dist else p.value for p in points))
        raise ConfigError(f"the {socket[:-1]} {name!r} is offered by {owners}: uninstall one")
    return points[0]


def _not_there(socket: str, name: str, names: list[str]) -> str:
    what = "kind of tool" if socket == "backends" else socket[:-1]
    return (
        f"no {what} {short(name)!r} is installed{nearest(name, names)} "
        f"(installed: {', '.join(names) or 'none'}). A package adds one through an entry point in "
        f"the group toolpost.{socket}."
    )


class SharedSandbox:
    """The sandbox of all backends: loaded and opened when the first of them wants it."""

    def __init__(
        self,
        *,
        mode: Mode = "standard",
        state: str | None = None,
        lower: bool = False,
        grounds: Grounds | None = None,
    ) -> None:
        """``lower`` accepts one level less than a tool needs, in permissive mode; ``grounds`` knows
        where tools may write, and where none may.
        """
        self._mode, self._state, self._lower, self._grounds = mode, state, lower, grounds
        self._opening: asyncio.Task[Any] | None = None
        self._sandbox: Any = None

    async def __call__(self) -> Confines:
        if self._sandbox is None:
            opening = self._opening = self._opening or asyncio.ensure_future(self._open())
            try:
                await asyncio.shield(opening)  # who goes does not end it for the others
            finally:
                if opening.done():
                    self._opening = None
        confines: Confines = self._sandbox
        return confines

    async def _open(self) -> None:
        kind = import_module("toolpost.sandbox").Sandbox
        self._sandbox = await kind.open(
            mode=self._mode, state=self._state, lower=self._lower, grounds=self._grounds
        )

    @property
    def opened(self) -> Confines | None:
        """The sandbox, if somebody has wanted it already."""
        confines: Confines | None = self._sandbox
        return confines

    @property
    def about(self) -> Mapping[str, Any]:
        """What confines a tool here, for dry runs and the audit; nothing before it is open."""
        if self._sandbox is None:
            return {}
        told = self._sandbox.about
        lowered = {"lowered": True} if told["lowered"] else {}
        return {"level": told["level"], "layers": told["layers"], **lowered}

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()


class Backends:
    """kind → backend: those given, else made from what is installed."""

    def __init__(self, given: Mapping[str, Backend], services: Services) -> None:
        self._made = dict(given)
        self._services = services

    def __getitem__(self, kind: str) -> Backend:
        backend = self._made.get(kind)
        if backend is None:
            backend = self._made[kind] = load("backends", kind)(self._services)
        return backend

    def gauges(self) -> Gauges:
        """What those that were made tell of themselves."""
        told = [made.gauges() for made in self._made.values() if isinstance(made, Gauged)]
        return {metric: values for gauges in told for metric, values in gauges.items()}

    async def close(self) -> None:
        async with AsyncExitStack() as stack:  # one that fails does not keep the others open
            for backend in self._made.values():
                stack.push_async_callback(backend.close)
