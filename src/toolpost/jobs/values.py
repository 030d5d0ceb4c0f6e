"""What a job is: frozen values, as the store keeps them.

What a job was given is kept apart from what it is, and no longer than until it has ended; people
are shown ``arguments``, where secrets are left out.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from toolpost.call import Caller, Progress
from toolpost.errors import Cancelled, Conflict, ToolNotFound, Unavailable
from toolpost.failure import failure
from toolpost.redact import redact, redact_text
from toolpost.result import Result
from toolpost.spec import Effects
from toolpost.wording import shortened

State = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
"""``waiting``: for a person's yes. ``unknown``: who ran it ended, and nobody knows what it did."""
ENDED: Final = frozenset[State](("succeeded", "failed", "cancelled", "unknown"))
_SHOWN: Final = 500
_MESSAGE: Final = 500


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job runs with; ``arguments`` and ``metadata`` as JSON, exact in any store."""

    arguments: str
    session_id: str | None = None
    timeout: float | None = None
    working_dir: str | None = None
    phase: str | None = None
    metadata: str | None = None
    key: str | None = None
    grant: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A detached call. ``result`` is there when it has ended and was asked for by its id."""

    id: str
    tool: str
    caller: Caller
    state: State
    created: float
    effects: Effects
    given: str
    """Pins what it was given."""
    arguments: str = ""
    """For people: redacted, and cut."""
    same: str = ""
    """Of one with a key: a digest of what a repeat has to be given as well."""
    keyed: str = ""
    """Of one with a key: where that is kept."""
    session: str | None = None
    started: float | None = None
    ended: float | None = None
    expires: float | None = None
    progress: Progress | None = None
    approval: str | None = None
    """The handle of the yes that it waits for, or has waited for."""
    call_id: str | None = None
    """The call that it made last: by it the audit knows it."""
    attempts: int = 0
    deaths: int = 0
    """How often who ran it has ended meanwhile."""
    holder: str = ""
    carrier: str = ""
    """The kind of tool whose backend its attempt is handed over to, if it is not run here."""
    result: Result | None = None

    @property
    def over(self) -> bool:
        return self.state in ENDED

    def to_dict(self) -> dict[str, Any]:
        """For people and for programs; without what only those need who run it."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        for inner in ("holder", "given", "same", "keyed", "deaths", "carrier"):
            data.pop(inner, None)
        data["caller"] = redact(msgspec.to_builtins(self.caller))
        if self.result is not None:
            data["result"] = self.result.to_dict()
        return data


def state_of(result: Result) -> State:
    """As what a job has ended that has this result."""
    if result.error is None:
        return "succeeded"
    if result.error.code == "CANCELLED":
        return "cancelled"
    known = (result.error.code, result.error.effects) != ("CONFLICT", "unknown")
    return "failed" if known else "unknown"


def shown(arguments: Any) -> str:
    """Arguments for people, in a line."""
    return shortened(msgspec.json.encode(redact(arguments)).decode(), _SHOWN)


def told(report: Progress) -> Progress:
    """A report as the store may have it: pieces of output are for who listens now."""
    message = report.message and shortened(redact_text(report.message), _MESSAGE)
    return Progress(report.done, report.total, message)


def cancelled(job: Job, *, begun: bool) -> Result:
    """The result of a job that was cancelled."""
    return _failed(job, Cancelled("The job was cancelled.", effects=None if begun else "none"))


def unknown(job: Job) -> Result:
    """The result of a job that began, and whose end nobody has seen."""
    why = Conflict(
        "Who ran this job ended before it could be said what came of it. It is not run again: find "
        "out what it did before you repeat it.",
        effects="unknown",
    )
    return _failed(job, why)


def given_up(job: Job) -> Result:
    """The result of a job that may be repeated, but not for ever."""
    why = Unavailable(
        f"Who ran this job ended {job.deaths} times while it ran: it is not tried again.",
        retryable=False,
        remedy="stop",
    )
    return _failed(job, why)


def gone(job: Job) -> Result:
    """The result of a job that had begun, and whose tool did not come back."""
    why = ToolNotFound(
        f"Nobody has the tool {job.tool!r} any more, which this job began with. Submit it again "
        "when the tool is there.",
        effects="unknown",
        remedy="stop",
    )
    return _failed(job, why)


def not_begun(job: Job) -> Result:
    """The result of a job for whose tool nobody came."""
    why = ToolNotFound(
        f"Nobody has had the tool {job.tool!r} for a month. Submit the job again when it is there.",
        effects="none",
        remedy="stop",
    )
    return _failed(job, why)


def _failed(job: Job, error: Cancelled | Conflict | ToolNotFound | Unavailable) -> Result:
    call_id = job.call_id or ""
    result = Result(
        error=failure(error, tool=job.tool, call_id=call_id, effects=job.effects),
    )
    result.metadata.call_id = call_id
    return result
