"""Log: one record for each call, and the last of them kept in memory.

An observer. Records go to the logger ``toolpost.calls`` of the standard library, as a sentence and
as fields (``record.call``); secrets and personal data are redacted in both. Where nobody listens
no record is made. The last calls are kept in a ring (``Log.recent()``) in any case: names, times
and outcomes, never arguments or outputs.

``setup`` makes a process write its log: JSON lines, or lines for people on a terminal. Only the
command line and the gateway call it; a library leaves logging to the program it is part of, which
may put the filter ``Redacting`` on handlers of its own.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from logging import INFO, WARNING
from time import monotonic
from typing import Any, Final, Literal, Self, TextIO

import msgspec

from toolpost.call import Call
from toolpost.contracts import Clock, Road, Surroundings, Watch
from toolpost.errors import ConfigError
from toolpost.options import Options, options_from
from toolpost.redact import redact, redact_text, visible
from toolpost.result import Result
from toolpost.spec import ToolSpec
from toolpost.wording import redacted_and_shortened

LOGGER: Final = "toolpost.calls"
_log: Final = logging.getLogger(LOGGER)
_TROUBLE: Final = frozenset(
    ("INTERNAL_ERROR", "TIMEOUT", "UNAVAILABLE", "RESOURCE_LIMIT", "OUTPUT_INVALID")
)
"""What somebody has to look at; the other codes are answers to a caller."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call, as the ring keeps it."""

    time: float
    call_id: str
    tool: str
    caller: str
    duration_ms: float
    code: str | None = None
    """The error's; None where it went well."""
    session_id: str | None = None


class _Settings(Options, frozen=True, kw_only=True):
    keep: int = 1000
    arguments: bool = True


class Log:
    """``keep`` calls stay in memory; ``arguments=False`` leaves arguments out of the records."""

    name = "log"
    options = _Settings

    def __init__(
        self, *, keep: int = 1000, arguments: bool = True, clock: Clock | None = None
    ) -> None:
        if keep < 0:
            raise ConfigError("extension log: keep must be at least 0", at=("keep",))
        self._arguments = arguments
        self._ring: deque[tuple[Any, ...]] = deque(maxlen=keep)
        self._time = time.time if clock is None else clock.time

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        given = options_from(options, _Settings, "extension log")
        return cls(keep=given.keep, arguments=given.arguments, clock=around.clock)

    def recent(self) -> list[Entry]:
        """The last calls, the newest at the end. Names that callers made up are redacted."""
        zero = self._time() - monotonic()  # on the way there is no time to ask what time it is
        return [
            Entry(
                zero + began + took / 1000, call_id, redact_text(tool), redact_text(caller.id),
                took, code, session_id and redact_text(session_id),
            )
            for began, call_id, tool, caller, took, code, session_id in tuple(self._ring)
        ]  # fmt: skip

    def bind(self, spec: ToolSpec, road: Road) -> Watch:
        keep, listened = self._ring.append, _log.isEnabledFor

        def ended(call: Call, result: Result | None) -> None:
            code, level = None, INFO
            if result is None:
                code, took = "CANCELLED", (monotonic() - call.started) * 1000
            else:
                took = result.metadata.duration_ms
                if result.error is not None:
                    code = result.error.code
                    level = WARNING if code in _TROUBLE else INFO
            keep((call.started, call.call_id, call.tool, call.caller, took, code, call.session_id))
            if listened(level):
                self._write(level, call, result, code, took)

        return Watch(after=ended)

    def _write(
        self, level: int, call: Call, result: Result | None, code: str | None, took: float
    ) -> None:
        fields = _fields(call, result, code, took)
        if self._arguments:
            fields["arguments"] = redact(call.arguments)
        said = f": {fields['message']}" if "message" in fields else ""
        _log.log(
            level, "%s %s in %.1f ms%s", fields["tool"], code or "ok", took, said,
            extra={"call": fields},
        )  # fmt: skip


def _fields(call: Call, result: Result | None, code: str | None, took: float) -> dict[str, Any]:
    caller = call.caller
    fields: dict[str, Any] = {
        "tool": redact_text(redacted_and_shortened(call.tool, 200)),
        "call_id": call.call_id,
        "outcome": code or "ok",
        "duration_ms": round(took, 3),
        "caller": redact_text(caller.id),
        "user": caller.user and redact_text(caller.user),
        "agent": caller.agent and redact_text(caller.agent),
        "key": caller.key and redact_text(caller.key),
        "session_id": call.session_id and redact_text(call.session_id),
        "dry_run": call.dry_run or None,
        "trail": redact(call.trail) or None,
    }
    if result is not None:
        about, error = result.metadata, result.error
        fields["attempts"] = about.attempts if about.attempts > 1 else None
        fields["cached"] = about.cached or None
        fields["warnings"] = redact(about.warnings) or None
        fields["message"] = error and redact_text(error.message)
        fields["effects"] = error and error.effects
    return {name: value for name, value in fields.items() if value is not None}


class Redacting(logging.Filter):
    """Takes secrets and personal data out of records: message, traceback, fields. For a handler:
    a logger's filter does not see what the loggers beneath it say.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a foreign record whose arguments do not fit its text
            message = str(record.msg)
        record.name, record.msg, record.args = redact_text(record.name), redact_text(message), None
        if record.exc_info and not record.exc_text:
            record.exc_text = _PLAIN.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact_text(record.exc_text)
        record.exc_info = None  # what was raised may hold anything
        if record.stack_info:
            record.stack_info = redact_text(record.stack_info)
        return True


_PLAIN: Final = logging.Formatter()


class ForPeople(logging.Formatter):
    """A line each, and nothing in it that a terminal obeys."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class ForMachines(logging.Formatter):
    """A JSON object on a line each, ASCII only; what ``record.call`` says is beside the rest."""

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "time": self._stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
            **getattr(record, "call", {}),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            body["traceback"] = record.exc_text
        return json.dumps(body, default=lambda thing: f"[{type(thing).__name__}]")

    @staticmethod
    def _stamp(seconds: float) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def setup(
    stream: TextIO,
    *,
    level: int = logging.INFO,
    form: Literal["auto", "people", "machines"] = "auto",
    logger: str = "toolpost",
) -> logging.Handler:
    """Write the log of a logger and of all beneath it to a stream, redacted: for people if it is a
    terminal, as JSON lines if it is not. ``logger=""`` is everything that is logged at all.
    ``logging.getLogger(logger).removeHandler(…)`` undoes it.
    """
    people = stream.isatty() if form == "auto" else form == "people"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ForPeople() if people else ForMachines())
    handler.addFilter(Redacting())
    at = logging.getLogger(logger)
    at.addHandler(handler)
    at.setLevel(level)
    return handler


class _RedactedRecord(logging.LogRecord):
    """A record whose text is redacted whoever formats it: a tool may bring handlers of its own."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if self.exc_info:
            self.exc_text = redact_text(_PLAIN.formatException(self.exc_info))

    def getMessage(self) -> str:  # noqa: N802 - as logging calls it
        return redact_text(super().getMessage())


def setup_all(stream: TextIO, *, level: int = logging.INFO) -> logging.Handler:
    """For a process that runs tools and nothing else: one handler, for the log of toolpost from
    this level on and for the warnings of everything else. A tool's own logger is redacted, too,
    whichever handler writes it.
    """
    logging.setLogRecordFactory(_RedactedRecord)
    handler = setup(stream, level=logging.WARNING, logger="")
    logging.getLogger("toolpost").setLevel(level)
    return handler
