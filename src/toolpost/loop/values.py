"""What passes through the loop, as data: what a model said, the calls in it, what came of them.

Above: the loop and its dialects. Below: results. All of it can be written as JSON and read again,
so that a turn that waits for a person can be taken up tomorrow, by another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from toolpost.result import Result


class Asked(msgspec.Struct, frozen=True):
    """A call as the model wrote it: its arguments may be text, and anything else too."""

    id: str
    name: str
    arguments: Any
    cut: bool = False
    """The message ended in it: what is there of the arguments may not be all of them."""


class Said(msgspec.Struct, frozen=True):
    """A message of the model, as it goes into the conversation, and the calls in it."""

    messages: list[dict[str, Any]]
    asked: tuple[Asked, ...] = ()
    paused: bool = False
    """There is more to come of it: whoever has heard this much asks again."""


class Called(msgspec.Struct, frozen=True):
    """A call that was made: the tool under its own name, and what came of it."""

    id: str
    tool: str
    arguments: dict[str, Any]
    result: Result

    @property
    def handle(self) -> str | None:
        """Of a call that waits for a person: what their answer is given under."""
        error = self.result.error
        if error is None or error.code != "APPROVAL_REQUIRED":
            return None
        found = (error.details or {}).get("approval")
        return found if isinstance(found, str) else None


class Turn(msgspec.Struct, frozen=True):
    """One message of the model, and the answer to it."""

    said: list[dict[str, Any]]
    """What the model said, as the vendor wants it back."""
    results: list[dict[str, Any]]
    """What it is told, as the vendor wants it."""
    calls: tuple[Called, ...] = ()
    paused: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Both, to be put at the end of the conversation."""
        return [*self.said, *self.results]

    @property
    def pending(self) -> tuple[Called, ...]:
        """The calls that wait for a person's answer."""
        return tuple(call for call in self.calls if call.handle is not None)

    @property
    def over(self) -> bool:
        """Whether the model has nothing left to be told."""
        return not self.calls and not self.paused


class Dialect(msgspec.Struct, frozen=True):
    """How a vendor's model speaks of calls, and how it is told what came of them."""

    read: Callable[[Any], Said]
    results: Callable[[Sequence[Called]], list[dict[str, Any]]]


def plain(said: Any) -> Any:
    """What an SDK gave, as the JSON that came over the wire."""
    if hasattr(said, "model_dump"):
        return said.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    if isinstance(said, dict):
        return {key: plain(value) for key, value in said.items()}
    return [plain(one) for one in said] if isinstance(said, list | tuple) else said


def stranger(said: Any, form: str, wanted: str) -> TypeError:
    return TypeError(f"this is no message of {form}: {wanted} is wanted, not {str(said)[:80]!r}")
