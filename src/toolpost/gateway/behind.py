"""What stands behind the door, for its routes to reach.

Above: the routes. Below: the runtime. It is a value; what it does is to tell on those who reach for
what is another's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any

from toolpost.call import Caller
from toolpost.errors import Denied, MissingPart
from toolpost.gateway.inflight import InFlight
from toolpost.gateway.settings import GatewaySettings
from toolpost.gateway.siblings import Siblings
from toolpost.jobs import Jobs
from toolpost.ledger.trespass import trespass
from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost.gateway")

if TYPE_CHECKING:  # rings are loaded by their names
    from toolpost.extensions.artifacts import Artifacts
    from toolpost.gateway.nats import NatsDoor


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """``jobs``: where detached calls are kept, if they are. ``siblings``: of several processes.
    ``door``: on the bus, if there is one.
    """

    runtime: Runtime
    settings: GatewaySettings
    inflight: InFlight
    jobs: Jobs | None = None
    siblings: Siblings | None = None
    door: NatsDoor | None = None

    @property
    def artifacts(self) -> Artifacts:
        return self.runtime.extension("artifacts")

    def is_admin(self, caller: Caller) -> bool:
        return caller.owner or not caller.roles.isdisjoint(self.settings.admins)

    def demand_admin(self, caller: Caller) -> None:
        if not self.is_admin(caller):
            roles = " or ".join(self.settings.admins) or "that the config names"
            raise Denied(f"This takes the role {roles}: ask whoever runs this gateway for it.")

    async def note_trespass(self, by: Caller, of: Caller, *, what: str, tool: str) -> None:
        """On record, with both: somebody asked for what is another's."""
        _log.warning("%s asked for %s of %s", by.id, what, of.id)
        try:
            audit = self.runtime.extension("audit")
        except MissingPart:
            return  # nothing is on record here
        await audit.keep(trespass(by, of, what=what, tool=tool, at=time()))


CALLER = "toolpost.caller"
"""Where the scope of a request has who asks."""


def caller_of(scope: Mapping[str, Any]) -> Caller:
    caller: Caller = scope[CALLER]
    return caller
