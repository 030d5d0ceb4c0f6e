"""What came back: ``Result`` and its parts. ``Result.error`` is data for a model to act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from toolpost.errors import (
    BY_CODE,
    Code,
    Outcome,
    Remedy,
)


class _Content(msgspec.Struct, frozen=True, tag_field="type"):
    __toolpost_output__: ClassVar[bool] = True


class Text(_Content, frozen=True, tag="text"):
    text: str


class Image(_Content, frozen=True, tag="image"):
    data: bytes
    mime: str = "image/png"


class Audio(_Content, frozen=True, tag="audio"):
    data: bytes
    mime: str = "audio/wav"


class Resource(_Content, frozen=True, tag="resource", omit_defaults=True):
    """Something with an address; with neither text nor data it is a link."""

    uri: str
    mime: str | None = None
    text: str | None = None
    data: bytes | None = None
    name: str | None = None
    description: str | None = None


class Notice(_Content, frozen=True, tag="notice"):
    """What toolpost itself says about the output, for whoever reads it. The output stays as it is
    shaped, so that it still fits its schema.
    """

    text: str


Part = Text | Image | Audio | Resource | Notice
PARTS: tuple[type, ...] = (Text, Image, Audio, Resource, Notice)


class Output(msgspec.Struct, frozen=True):
    """What a tool returns when it has more to give than JSON: data and parts."""

    __toolpost_output__: ClassVar[bool] = True

    value: Any = None
    parts: tuple[Part, ...] = ()


# Results hold JSON data and text, which never lead back to them: the garbage collector need not
# look at them, and a thousand of them at once cost no more each than one.


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a call failed and what to do next."""

    code: Code
    message: str
    remedy: Remedy
    retryable: bool
    effects: Outcome
    retry_after: float | None = None
    details: Mapping[str, Any] | None = None


class Approved(msgspec.Struct, frozen=True, gc=False):
    """A yes that a call ran under: its handle, and who gave it."""

    handle: str
    by: tuple[str, ...]


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is kept of a result because it was too large to be handed over whole."""

    handle: str
    size: int
    """Its bytes."""
    mime: str
    expires: float
    """When it will be gone."""


Way = tuple[Sequence[str] | None, Sequence[str]]
NOWHERE: Final[Way] = None, ()


class Metadata(msgspec.Struct, omit_defaults=True, gc=False):
    """About the call. It is made with the call; rings and the executor fill it in."""

    call_id: str = ""
    duration_ms: float = 0.0
    attempts: int = 1
    cached: bool = False
    warnings: Sequence[str] = ()
    trail: Sequence[str] = ()
    """Which rings ran, in order, and what each said."""
    plan: dict[str, Any] | None = None
    """For a dry run: what would have been done."""
    approved: Approved | None = None
    waited_ms: float = 0.0
    """Of the duration: how long it waited for a person, for a slot, for a worker or for its next
    attempt.
    """
    size: int = 0
    """Of an output that is large: about how many bytes it has."""
    artifacts: tuple[Artifact, ...] = ()
    """What is kept of it, and can be read piece by piece."""

    # Most calls have nothing to say, and go where those before them went: their trails are tuples
    # that are there already. A list is made when there is something else to put into it.

    def open_trail(self) -> list[str]:
        """The trail, to be added to."""
        trail = self.trail
        if not isinstance(trail, list):
            trail = self.trail = [*trail]
        return trail

    def passed(self, *names: str) -> Way:
        """Rings on the trail: what it was and what it is now, for who comes this way often."""
        before = self.trail
        if isinstance(before, list):
            before.extend(names)
            return NOWHERE
        self.trail = after = (*before, *names)
        return before, after

    def open_warnings(self) -> list[str]:
        """The warnings, to be added to."""
        warnings = self.warnings
        if not isinstance(warnings, list):
            warnings = self.warnings = [*warnings]
        return warnings


class Result(msgspec.Struct, frozen=True, gc=False):
    """Output or error, never both."""

    output: Any = None
    parts: tuple[Part, ...] = ()
    error: Failure | None = None
    metadata: Metadata = msgspec.field(default_factory=Metadata)

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def notices(self) -> tuple[str, ...]:
        """What toolpost says about the output, for example that something in it was redacted."""
        return tuple(part.text for part in self.parts if type(part) is Notice)

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """The parts that the tool gave, without the notices."""
        return tuple(part for part in self.parts if type(part) is not Notice)

    def raise_for_error(self) -> Result:
        """The result itself if the call succeeded; else its error is raised, as the class that
        its code belongs to.
        """
        if self.error is None:
            return self
        said = self.error
        error = BY_CODE[said.code](
            said.message,
            retryable=said.retryable,
            retry_after=said.retry_after,
            remedy=said.remedy,
            details=said.details,
        )
        error.effects = said.effects  # of that call: a tool that made it may have had its own
        raise error

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; binary parts as base64."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return {"success": self.success, **body, "parts": list(body["parts"])}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        return msgspec.convert({k: v for k, v in data.items() if k != "success"}, cls)
