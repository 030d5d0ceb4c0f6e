"""The extensions that this contract names, each made of a ring of ours.

Above: whoever registers them. Below: ``extensions``, ``stores``. Those that only watch (logging,
metrics, audit) stand outside all that decide, whatever their priority: they hear of calls that were
refused, too. It refuses to know how any of them decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from toolpost.approvals import Approvals
from toolpost.bridges.unified.extending import Extension, ExtensionPriority
from toolpost.clock import SystemClock
from toolpost.contracts import Extension as OwnExtension
from toolpost.contracts import Records, Store, Surroundings
from toolpost.environ import secret
from toolpost.errors import MissingPart
from toolpost.extensions.access import EVERYBODY, Access, Grant
from toolpost.extensions.approval import Approval, ApprovalOptions, Ask
from toolpost.extensions.audit import Audit
from toolpost.extensions.log import Entry, Log
from toolpost.extensions.metrics import Metrics
from toolpost.extensions.rate import Rate, RateOptions
from toolpost.plugins import load
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
        self.guards = (Access(default=default, roles=roles, agents=agents, callers=users),)


class ApprovalExtension(Extension):
    """A person is asked first: by ``ask``, or by whoever looks at ``approvals``. Until the answer
    is there, for ``wait`` seconds at most, the call waits; then it is refused, with a handle that
    a later one may name (``ToolContext(approval=…)``).
    """

    def __init__(
        self,
        approval_mode: ApprovalMode = ApprovalMode.UNSAFE_ONLY,
        *,
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
        self.approval = Approval(records or MemoryStore(), options=options, ask=ask)
        self.guards = (self.approval,)

    @property
    def approvals(self) -> Approvals:
        """What waits for an answer, and where it is answered."""
        return self.approval.approvals


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
    """Counts for Prometheus; and a span for each call, where OpenTelemetry is set up."""

    def __init__(
        self, *, priority: int = ExtensionPriority.NORMAL, name: str | None = None
    ) -> None:
        super().__init__(priority=priority, name=name)
        self._metrics = Metrics()
        self.observers = (*_tracing(), self._metrics)

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
