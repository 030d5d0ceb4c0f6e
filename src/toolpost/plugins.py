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
from toolpost.spec import ToolSpec, nearest, short

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SOCKETS: Final = ("backends", "sources", "extensions", "stores")
BUILT_IN: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("backends", "python"): "toolpost.backends.python.backend:PythonBackend",
        ("backends", "shell"): "toolpost.backends.shell.backend:ShellBackend",
        ("sources", "files"): "toolpost.sources.files:FilesSource",
        ("sources", "modules"): "toolpost.sources.modules:ModulesSource",
        ("sources", "entrypoints"): "toolpost.sources.entrypoints:EntryPointsSource",
        ("extensions", "audit"): "toolpost.extensions.audit:Audit",
        ("extensions", "access"): "toolpost.extensions.access:Access",
        ("extensions", "approval"): "toolpost.extensions.approval:Approval",
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
    }
)
_BINDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "python": "toolpost.backends.python.binding",
        "shell": "toolpost.backends.shell.binding",
    }
)
"""Kind → what verifies its bindings, where the backend itself takes a while to import."""
_EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {"asyncpg": "postgres", "opentelemetry": "otel", "cryptography": "seal"}
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


def verify_binding(spec: ToolSpec) -> None:
    """What the spec's kind has to say of its binding before anything is bound: ``InvalidSpec``."""
    if (verify := _verifier(spec.kind)) is not None:
        verify(spec)


@cache
def _verifier(kind: str) -> Callable[[ToolSpec], None] | None:
    """Looked up once: thousands of specs of a kind may be loaded."""
    try:
        home = _BINDINGS.get(kind)
        part = load("backends", kind) if home is None else import_module(home)
    except SetupError:
        return None  # its tools are refused when they are bound, with the reason
    return getattr(part, "verify", None)


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

    def __init__(self, *, mode: Mode = "standard", state: str | None = None) -> None:
        self._mode, self._state = mode, state
        self._sandbox: Any = None
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> Confines:
        if self._sandbox is None:
            async with self._one_at_a_time:
                if self._sandbox is None:
                    kind = import_module("toolpost.sandbox").Sandbox
                    self._sandbox = await kind.open(mode=self._mode, state=self._state)
        confines: Confines = self._sandbox
        return confines

    async def close(self) -> None:
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
