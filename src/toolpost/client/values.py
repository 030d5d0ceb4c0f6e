"""What a gateway shows, as the values that it has itself.

Above: the parts of the client. Below: ``jobs``, ``approvals``, ``ledger``, whose values these are.
What a door leaves out, because only those need it who run things, is empty here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolpost.approvals.values import Request, State
from toolpost.call import Progress
from toolpost.client.events import Event
from toolpost.digest import canonical
from toolpost.extensions.artifacts import About
from toolpost.jobs.values import Job
from toolpost.ledger.reading import OPEN, AuditedCall
from toolpost.ledger.record import AuditRecord
from toolpost.search import Found
from toolpost.spec import FIELDS, ToolSpec


class Approval(Request, frozen=True, kw_only=True, omit_defaults=True):
    """A request for a yes, as a gateway shows it: secrets in its arguments are left out."""

    said: Mapping[str, Any] = {}

    @property
    def seen(self) -> str:
        """What the gateway pins: the arguments as they are."""
        pinned: str = self.said["seen"]
        return pinned

    def state(self, now: float) -> State:
        """As it was when the gateway was asked."""
        found: State = self.said["status"]
        return found

    def to_dict(self, now: float) -> dict[str, Any]:
        return dict(self.said)


def approval(data: Any) -> Approval:
    status = data["status"]
    told = {
        **data,
        "arguments": canonical(data["arguments"]).decode(),
        "edited": None,
        "status": "waiting" if status == "expired" else status,
    }
    made = msgspec.convert(told, Approval)
    kept: Approval = msgspec.structs.replace(made, said=data)
    msgspec.convert([kept.seen, kept.said["status"]], tuple[str, State])
    return kept


def job(data: Any) -> Job:
    return msgspec.convert({**data, "given": ""}, Job)


def spec(data: Any) -> ToolSpec:
    """A tool without its binding; what a newer gateway says besides is left out."""
    return ToolSpec.from_dict({name: data[name] for name in FIELDS if name in data})


def found(data: Any) -> tuple[Found, ...]:
    """Tools with their scores."""
    return tuple(map(Found, map(spec, data["tools"]), msgspec.convert(data["scores"], list[float])))


def artifact(data: Any) -> About:
    return msgspec.convert({**data, "caller": {"id": data["caller"]}}, About)


def audited(data: Any) -> AuditedCall:
    """One call, which a gateway tells as one."""
    asked = msgspec.convert(data, AuditRecord)
    if data["code"] == OPEN:
        return AuditedCall(asked, None)
    number: int = data.get("ended", asked.number)
    ended = asked if number == asked.number else msgspec.structs.replace(asked, number=number)
    return AuditedCall(asked, ended)


def reported(event: Event) -> Progress | None:
    """What a running tool reports; ``None`` for other events."""
    if event.name == "progress":
        return msgspec.convert(event.data, Progress)
    if event.name == "partial" and "output" in event.data:
        return Progress(partial=event.data["output"])
    return None
