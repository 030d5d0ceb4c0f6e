"""What the spec of a worker's tool says about where it is."""

from __future__ import annotations

import msgspec

from toolpost.errors import InvalidSpec
from toolpost.spec import ToolSpec


class NatsBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tool of the workers it is, and in which version."""

    tool: str
    digest: str


def verify(spec: ToolSpec) -> None:
    binding_of(spec)


def binding_of(spec: ToolSpec) -> NatsBinding:
    try:
        return msgspec.convert(spec.binding, NatsBinding)
    except msgspec.ValidationError as fault:
        raise InvalidSpec(
            f"binding of {spec.name!r}: {fault}; tools of workers come from a source of kind nats",
            at=("binding",),
        ) from None
