"""The extensions that this contract names, each made of a ring of ours.

Above: whoever registers them. Below: ``extensions``, ``stores``. Those that only watch (logging,
metrics, audit) stand outside all that decide, whatever their priority: they hear of calls that were
refused, too. It refuses to know how any of them decides.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from toolpost.approvals import Approvals, Request
from toolpost.bridges.unified.extending import Extension, ExtensionPriority
from toolpost.clock import SystemClock
from toolpost.contracts import Extension as OwnExtension
from toolpost.contracts import Records, Ring, Road, Store, Surroundings
from toolpost.environ import secret
from toolpost.errors import ConfigError, MissingPart
from toolpost.extensions.access import EVERYBODY, Access, Grant
from toolpost.extensions.approval import Approval, ApprovalOptions, Ask
from toolpost.extensions.audit import Audit
from toolpost.extensions.log import Entry, Log
from toolpost.extensions.metrics import Metrics
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.plugins import load
from toolpost.spec import ToolSpec
from toolpost.stores.lazy import LazyStore
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SqliteStore


class ApprovalMode(StrEnum):
    """When a person is asked: for no call, for tools that ask for it, for these and every tool that
    is dangerous, for every call.
    """

    NEVER = "never"
    POLICY = "policy"
    UNSAFE_ONLY = "unsafe"
    ALWAYS = "always"


class AuthExtension(Extension):
    """Roles. A tool with ``permissions`` is for callers who have one of them; besides, everybody
    may call tools that are not dangerous (tier 0 and 1), and a role what its grant says. Whoever
    runs the process may do everything.
    """

    def __init__(
        self,
        *,
        roles: Mapping[str, Grant] | None = None,
        default: Grant = EVERYBODY,
        agents: Mapping[str, Grant] | None = None,
        users: Mapping[str, Grant] | None = None,
        priority: int = ExtensionPriority.HIGHEST,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        people = {f"user:{name}": grant for name, grant in (users or {}).items()}
        self.guards = (Access(default=default, roles=roles, agents=agents, callers=people),)


ApprovalHandler = Callable[[str, str, dict[str, Any]], Awaitable[bool] | bool]
"""Gets the tool's name, its description and the arguments, and says whether the call may run."""


class ApprovalExtension(Extension):
    """A person is asked first: by ``approval_handler(tool_name, description, args)``, by ``ask``,
    which gets the whole request, or by whoever looks at ``approvals``. Until the answer is there,
    for ``wait`` seconds at most, the call waits; then it is refused, with a handle that a later one
    may name (``ToolContext(approval=…)``).
    """

    def __init__(
        self,
        approval_mode: ApprovalMode = ApprovalMode.UNSAFE_ONLY,
        *,
        approval_handler: ApprovalHandler | None = None,
        ask: Ask | None = None,
        wait: float = 0.0,
        expires: float = 3600.0,
        approvers: Sequence[str] = (),
        records: Records | None = None,
        priority: int = ExtensionPriority.HIGH,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        options = ApprovalOptions(
            mode=ApprovalMode(approval_mode).value,
            wait=wait,
            expires=expires,
            approvers=tuple(approvers),
        )
        if approval_handler is not None and ask is not None:
            raise ConfigError("approval_handler and ask are two ways to ask: give one of them")
        self.approval = _Described(records or MemoryStore(), options=options, ask=ask)
        if approval_handler is not None:
            self.approval.answer_by(approval_handler)
        self.guards = (self.approval,)

    @property
    def approvals(self) -> Approvals:
        """What waits for an answer, and where it is answered."""
        return self.approval.approvals


class _Described(Approval):
    """Knows what the tools are called and do, for a handler that is told so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._descriptions: dict[str, str] = {}

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        self._descriptions[spec.name] = spec.description
        return super().bind(spec, road)

    def answer_by(self, handler: ApprovalHandler) -> None:
        async def ask(request: Request) -> bool:
            arguments = msgspec.json.decode(request.arguments)
            answer = handler(request.tool, self._descriptions.get(request.tool, ""), arguments)
            return bool(await answer if inspect.isawaitable(answer) else answer)

        self._ask = ask


class LoggingExtension(Extension):
    """A record of each call to the logger ``toolpost.calls``; the last ones are kept as well."""

    def __init__(
        self,
        *,
        keep: int = 1000,
        arguments: bool = True,
        priority: int = ExtensionPriority.NORMAL,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        self._log = Log(keep=keep, arguments=arguments)
        self.observers = (self._log,)

    def recent(self) -> list[Entry]:
        """The last calls, the newest at the end."""
        return self._log.recent()


class MetricsExtension(Extension):
    """Counts for Prometheus; where OpenTelemetry is set up, also its metrics and a span for each
    call. ``meter_provider`` is who records them; without one, the provider of the process.
    """

    def __init__(
        self,
        *,
        meter_provider: Any = None,
        priority: int = ExtensionPriority.NORMAL,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        self._metrics = Metrics()
        self.observers = (*_tracing(), *_otel_metrics(meter_provider), self._metrics)

    async def scrape(self) -> str:
        """Everything that is counted, as text for Prometheus."""
        return await self._metrics.scrape()


class RateLimitExtension(Extension):
    """``limit`` is what each caller may do, ``tools`` how often a tool may be called by all, by
    pattern: ``RateLimitExtension("10/s", tools={"deploy": "5/min"})``.
    """

    def __init__(
        self,
        limit: str = "60/min",
        *,
        tools: Mapping[str, str] | None = None,
        priority: int = ExtensionPriority.NORMAL,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        self.guards = (Rate(RateOptions(callers={"*": limit}, tools=tools or {})),)


class AuditExtension(Extension):
    """Who called what, with what, and what came of it, in a folder that ``toolpost audit`` reads;
    without a record, a tool of tier 2 or above does not run.
    """

    def __init__(
        self,
        folder: str | Path = ".toolpost",
        *,
        store: Store | None = None,
        priority: int = ExtensionPriority.NORMAL,
        name: str | None = None,
    ) -> None:
        super().__init__(priority=priority, name=name)
        state = Path(folder).absolute()
        self._store = LazyStore(store or SqliteStore(state / "store.db"))
        around = Surroundings(
            records=self._store,
            journal=self._store,
            clock=SystemClock(),
            base=state.parent,
            state=state,
            mode="standard",
            secret=secret,
        )
        self.audit = Audit(around)
        self.observers = (self.audit,)

    async def close(self) -> None:
        await self._store.close()


def _tracing() -> Sequence[OwnExtension]:
    try:
        return (load("extensions", "trace")(),)
    except MissingPart:
        return ()


def _otel_metrics(provider: Any) -> Sequence[OwnExtension]:
    try:
        module = import_module("toolpost.extensions.otel_metrics")
    except ModuleNotFoundError:  # without the extra there is nobody to record them
        if provider is not None:
            raise
        return ()
    return (module.OtelMetrics(provider),)
