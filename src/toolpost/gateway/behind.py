"""What stands behind the door, for its routes to reach.

Above: the routes. It is a value: nothing happens here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.call import Caller
from toolpost.errors import Denied
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.settings import GatewaySettings
from toolpost.jobs import Jobs
from toolpost.runtime import Runtime

if TYPE_CHECKING:  # rings are loaded by their names
    from toolpost.extensions.artifacts import Artifacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """``jobs``: where detached calls are kept, if they are."""

    runtime: Runtime
    settings: GatewaySettings
    inflight: InFlight = field(default_factory=InFlight)
    jobs: Jobs | None = None

    @property
    def artifacts(self) -> Artifacts:
        return self.runtime.extension("artifacts")

    def is_admin(self, caller: Caller) -> bool:
        return caller.owner or not caller.roles.isdisjoint(self.settings.admins)

    def demand_admin(self, caller: Caller) -> None:
        if not self.is_admin(caller):
            roles = " or ".join(self.settings.admins) or "that the config names"
            raise Denied(f"This takes the role {roles}: ask whoever runs this gateway for it.")


CALLER = "toolpost.caller"
"""Where the scope of a request has who asks."""


def caller_of(scope: Mapping[str, Any]) -> Caller:
    caller: Caller = scope[CALLER]
    return caller
