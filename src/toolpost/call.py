"""One request travelling the road: ``Call``, and the ``Caller`` who made it.

Both are frozen values. What grows while a call travels — its trail, its warnings — is in the
metadata of its result, which every copy of the call shares.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from toolpost.digest import digest
from toolpost.result import Metadata
from toolpost.spec import ToolSpec
from toolpost.wording import redacted_and_shortened


class Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks. ``user`` is the person, ``agent`` the program that acts for them, ``key`` the name
    of the API key that was presented. ``issuer`` names who vouches for the user, where several do.

    ``owner`` is true for whoever runs the process itself, where no identity is configured.
    ``tools`` are patterns of the only tools that there are for this caller; without it, all are.
    ``key`` is the name of the API key that was presented.
    """

    id: str
    user: str | None = None
    agent: str | None = None
    roles: frozenset[str] = frozenset()
    owner: bool = False
    tools: tuple[str, ...] | None = None
    key: str | None = None
    issuer: str | None = None

    @property
    def principal(self) -> str:
        """On whose behalf a call runs: ``user:NAME``, else ``key:NAME``, else ``owner``; a caller
        that is none of these, such as a program with a token of its own, is ``caller:ID``.

        Keys of one user or of one name are one principal, so rotating a key keeps it.
        """
        if self.user is not None:
            return f"user:{self.user}" if self.issuer is None else f"user:{self.issuer}/{self.user}"
        if self.key is not None:
            return f"key:{self.key}"
        return "owner" if self.owner else f"caller:{self.id}"


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
OWNER: Final = Caller("owner", owner=True)
_MOST_WARNINGS: Final = 100
_MOST_STEPS: Final = 1000
_MOST_SAID: Final = 1000
"""Characters of one warning or of one step of the trail."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a running tool reports: how far it is, a message, or a piece of its output."""

    done: float | None = None
    total: float | None = None
    message: str | None = None
    partial: Any = None


# What a call leads to never leads back to it for longer than it runs, so the garbage collector need
# not look at it: a thousand calls at once cost no more each than one.


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool that has a parameter of this type gets the call it serves; models never see it."""

    __toolpost_injected__: ClassVar[bool] = True

    tool: str
    spec: ToolSpec
    arguments: dict[str, Any]
    caller: Caller
    call_id: str
    about: Metadata
    """What its result will say of it."""
    session_id: str | None = None
    deadline: float | None = None
    """A moment of ``time.monotonic()`` that no ring and no retry goes beyond."""
    working_dir: str | None = None
    dry_run: bool = False
    phase: str | None = None
    """The phase of the caller's work; only tools that are ``context_aware`` see it."""
    metadata: Mapping[str, Any] = {}
    key: str | None = None
    """The idempotency key."""
    grant: str | None = None
    """The handle of an approval that was given for this very call."""
    on_progress: Callable[[Progress], None] | None = None
    started: float = 0.0
    """The moment of ``time.monotonic()`` at which it set out."""
    stopped: Callable[[], bool] | None = None
    admitted: dict[str, Any] | None = None
    """The arguments that passed the check; another object in ``arguments`` is checked again."""
    ask: str | None = None
    """Why a person must be asked first. Who has asked hands the call on without it: with it, the
    tool does not run.
    """
    given: str | None = None
    """Of a call with a key, once a guard has put other arguments in the place of what was given: a
    digest of that.
    """
    code: str | None = None
    """Of a call that was approved: the digest of the code that it was approved for. A backend runs
    no other.
    """

    @property
    def trail(self) -> Sequence[str]:
        return self.about.trail

    @property
    def warnings(self) -> Sequence[str]:
        return self.about.warnings

    def progress(
        self, done: float | None = None, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far the work is."""
        if self.on_progress is not None:
            self.on_progress(Progress(done, total, message))

    def partial(self, output: Any) -> None:
        """Hand the caller a piece of the output before the rest is there."""
        if self.on_progress is not None:
            self.on_progress(Progress(partial=output))

    def with_arguments(self, arguments: dict[str, Any]) -> Call:
        """The same call with other arguments, which a guard hands on; they are checked again."""
        given = None if self.key is None else self.pinned()
        changed: Call = msgspec.structs.replace(self, arguments=arguments, given=given)
        return changed

    def pinned(self) -> str | None:
        """What was given, as a digest that nobody can guess without the key; ``None`` if it, or the
        key, is not plain JSON.
        """
        try:
            return self.given or digest([self.key, self.arguments])
        except (TypeError, ValueError):
            return None

    def warn(self, text: str) -> None:
        """Put a warning into the result's metadata: a hundred at most, for a model reads them."""
        warnings = self.about.open_warnings()
        if len(warnings) < _MOST_WARNINGS:
            warnings.append(redacted_and_shortened(str(text), _MOST_SAID))
        elif len(warnings) == _MOST_WARNINGS:
            warnings.append("There were more warnings; they are left out.")

    def note(self, ring: str, said: str) -> None:
        """Put what a ring decided into the trail."""
        trail = self.about.open_trail()
        if len(trail) < _MOST_STEPS:  # a tool that has its call can reach this too
            trail.append(redacted_and_shortened(f"{ring}: {said}", _MOST_SAID))

    @property
    def cancelled(self) -> bool:
        """True once the caller is gone or the limit has passed; a thread should look at times."""
        return self.stopped is not None and self.stopped()


def _fresh_prefix() -> str:
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(5).hex()}-"


def _block(number: int) -> list[str]:
    head = f"{_prefix}{number:04x}"
    return [head + tail for tail in _TAILS]


def _after_fork() -> None:
    """A child has a prefix of its own, from the next block on; what is left of this one goes."""
    global _prefix
    _prefix = _fresh_prefix()
    while not new_call_id().endswith(_TAILS[-1]):
        pass


_TAILS: Final = tuple(f"{number:02x}" for number in range(256))
_prefix = _fresh_prefix()
new_call_id: Final = itertools.chain.from_iterable(map(_block, itertools.count())).__next__
"""Unique across processes, sortable inside one; made 256 at a time, for a fortieth of what a UUID
costs.
"""
os.register_at_fork(after_in_child=_after_fork)
