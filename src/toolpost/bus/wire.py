"""Subjects and messages: what stands where on the bus, and nothing about how it gets there.

A message is an envelope — id, timestamp, source, type, correlationId, payload — in JSON. What comes
from the bus was written by somebody else: it is read against these types, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import gmtime, strftime, time
from typing import Any, Final, Generic, TypeVar

import msgspec

from toolpost.errors import ConfigError

TICKET: Final = "Toolpost-Ticket"
"""The header in which a request carries its ticket."""
OBJECT: Final = "Toolpost-Object"
"""The header that says where the body is, if it is too large to be sent."""
PREFIX: Final = "toolpost"
REQUEST: Final = "tool.request"
RESPONSE: Final = "tool.response"
PROGRESS: Final = "tool.progress"
ALIVE: Final = "tool.alive"
WORKER: Final = "worker.here"
GONE: Final = "worker.gone"
SPECS: Final = "worker.specs"
MEET: Final = "worker.meet"
DEAD: Final = "job.dead"
ENDED: Final = "job.ended"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
T = TypeVar("T")


class Subjects(msgspec.Struct, frozen=True):
    """Where things are said. Several houses share one bus by their prefixes."""

    prefix: str = PREFIX

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                "the prefix of subjects is words of letters, digits, - and _ with dots between",
                at=("prefix",),
            )

    def request(self, tool: str) -> str:
        return f"{self.prefix}.tool.{tool}.request"

    def fits(self, tool: str) -> bool:
        """Whether there is a subject for a tool of this name: between dots there is a word."""
        return all(tool.split("."))

    def cancel(self, nonce: str) -> str:
        return f"{self.prefix}.cancel.{nonce}"

    @property
    def workers(self) -> str:
        """Here workers say that they are there, and that they go."""
        return f"{self.prefix}.workers"

    @property
    def roll_call(self) -> str:
        """Whoever wants to know who is there asks here."""
        return f"{self.prefix}.roll-call"

    def specs(self, worker: str) -> str:
        """A worker is asked here what its tools are."""
        return f"{self.prefix}.worker.{worker}.specs"

    def job(self, key: str, tool: str = "") -> str:
        """A job waits here to be taken, under its key."""
        return f"{self.prefix}.job.{key}.{tool}" if tool else f"{self.prefix}.job.{key}"

    def progress(self, key: str) -> str:
        """Here a worker says how far a job is, and that it has ended."""
        return f"{self.prefix}.progress.{key}"

    def running(self, worker: str) -> str:
        """A worker is asked here whether it runs a job still."""
        return f"{self.prefix}.worker.{worker}.running"

    def dead(self, tool: str) -> str:
        """Jobs that were given up, and why."""
        return f"{self.prefix}.dead.{tool}"

    def meet(self, worker: str) -> str:
        """A gateway introduces itself here."""
        return f"{self.prefix}.worker.{worker}.meet"

    @property
    def call(self) -> str:
        """Clients call gateways here."""
        return f"{self.prefix}.call"


class Envelope(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename="camel"):
    """What every message is in. ``correlation_id`` is the id of what it answers."""

    id: str
    timestamp: str
    source: str
    type: str
    correlation_id: str | None = None
    payload: T


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A call. Who calls is in the ticket."""

    tool: str
    call_id: str
    arguments: dict[str, Any]
    timeout: float
    """Seconds that are left for it: clocks of two hosts need not agree."""
    session_id: str | None = None
    phase: str | None = None
    working_dir: str | None = None
    dry_run: bool = False
    key: str | None = None
    progress: bool = False
    """Somebody listens."""


class Offered(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool as a worker has it."""

    spec: dict[str, Any]
    """Without its binding."""
    digest: str
    """Of the whole: a ticket names it."""
    most: int
    """Calls that it takes at once, those that wait their turn there included."""


class Here(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker says so every few seconds. ``offers`` is a digest of all that it offers."""

    worker: str
    offers: str
    tools: int
    every: float
    jobs: bool = False
    """It takes jobs from the queue, too."""
    meets: str = ""
    """Its half of the keys that it shares with gateways; without it, all that it is sent is signed.
    """


class Met(msgspec.Struct, frozen=True, rename="camel"):
    """A gateway's half of the key that it shares with a worker from now on."""

    public: str


class Page(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of what a worker offers; ``next`` is where the following one begins."""

    offers: str
    tools: Mapping[str, Offered]
    next: int | None = None


_encode: Final = msgspec.json.Encoder().encode


def said(kind: str, payload: Any, *, source: str, number: str, answers: str | None = None) -> bytes:
    """A message, as bytes."""
    return _encode(
        Envelope(
            id=number,
            timestamp=_now(),
            source=source,
            type=kind,
            correlation_id=answers,
            payload=payload,
        )
    )


_second: tuple[int, str] = (0, "")
_MILLISECONDS: Final = [f".{number:03d}Z" for number in range(1000)]


def _now() -> str:
    """To the millisecond; the rest is written once a second."""
    global _second
    now = time()
    whole = int(now)
    if whole != _second[0]:
        _second = whole, strftime("%Y-%m-%dT%H:%M:%S", gmtime(whole))
    return _second[1] + _MILLISECONDS[int((now - whole) * 1000)]
