"""The one conversion of an exception into data: ``failure``.

Above: the borders between rings, and the doors. Below: ``errors.py``, ``result.py``. What must not
leave the house — a traceback, the text of a foreign exception — goes to the log ``toolpost.tools``
and nowhere else. Where a program has not set up logging, Python would write the log to standard
error as it is: there it is redacted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import msgspec

from toolpost.errors import (
    CallError,
    InternalError,
    Outcome,
    ResourceLimit,
    SetupError,
    Unavailable,
)
from toolpost.result import Failure
from toolpost.spec import Effects
from toolpost.wording import redacted_and_shortened

_log = logging.getLogger("toolpost.tools")
_ours: Final = logging.getLogger("toolpost")
_MOST_MESSAGE: Final = 8 * 1024
_MOST_DETAILS: Final = 64 * 1024
"""Characters and bytes of an error: what a tool says goes to a model, whatever its length."""

# What a tool's own exceptions mean. Looked through in order; anything else is an internal error.
_FOREIGN: tuple[tuple[type[BaseException], type[CallError], str, Outcome], ...] = (
    (MemoryError, ResourceLimit, "The tool ran out of memory. Try a smaller input.", "unknown"),
    (
        ConnectionRefusedError,
        Unavailable,
        "The service behind this tool refused the connection. Try again later.",
        "none",
    ),
    (
        ConnectionError,
        Unavailable,
        "The connection to the service behind this tool broke. Try again later.",
        "unknown",
    ),
    (
        TimeoutError,
        Unavailable,
        "The service behind this tool did not answer in time. Try again later.",
        "unknown",
    ),
)


_MAYBE: Final = "It may have been done all the same: find out before anything is tried again."


def failure(exc: Exception, *, tool: str, call_id: str, effects: Effects) -> Failure:
    """The one conversion of an exception into data."""
    error = exc if isinstance(exc, CallError) else _translated(exc, tool=tool, call_id=call_id)
    message, remedy = error.message, error.remedy
    if effects == "once" and error.effects == "unknown" and error.retryable:
        # whoever repeats it, or uses another tool, may do it twice
        message, remedy = f"{message.partition('. ')[0].rstrip('.')}. {_MAYBE}", "stop"
    return Failure(
        code=error.code,
        message=redacted_and_shortened(message, _MOST_MESSAGE),
        remedy=remedy,
        retryable=error.retryable,
        effects="none" if effects == "read" else error.effects,
        retry_after=error.retry_after,
        details=None if error.details is None else _plain(error.details, tool=tool),
    )


def _plain(details: Mapping[str, Any], *, tool: str) -> Mapping[str, Any] | None:
    """A tool may put anything into the details; doors can send only JSON."""
    try:
        text = msgspec.json.encode(details)
        if len(text) <= _MOST_DETAILS:
            plain: Mapping[str, Any] = msgspec.json.decode(text)
            return plain
        problem = f"have {len(text):,} bytes, more than {_MOST_DETAILS:,}"
    except (TypeError, ValueError, RecursionError):
        problem = "are not JSON"
    _log.warning("%s failed with details that %s: they are left out", tool, problem)
    return None


def _translated(exc: Exception, *, tool: str, call_id: str) -> CallError:
    if isinstance(exc, SetupError):
        _log.error("%s cannot run (call %s): %s", tool, call_id, exc)
        return unfit()
    _log.error("%s failed (call %s)", tool, call_id, exc_info=exc)
    return foreign_error([base.__name__ for base in type(exc).__mro__])


def unfit() -> CallError:
    """A tool that finds while it runs that something is missing: what, and by which name, is for
    the log.
    """
    return Unavailable(
        "This tool is not set up to run here. Use another tool.",
        retryable=False,
        remedy="other_tool",
    )


def foreign_error(bases: Sequence[str]) -> CallError:
    """What an exception that is not ours means, by the names of its classes: they may come from
    another process.
    """
    for foreign, ours, message, outcome in _FOREIGN:
        if foreign.__name__ in bases:
            return ours(message, effects=outcome)
    return InternalError("Internal tool error. See logs for details.")


class _LastResort(logging.Handler):
    """Python's own, for all that toolpost logs and nobody else writes."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None or _written(record.name, beside=self):
            return
        with suppress(OSError, ValueError):  # nobody reads it: no reason to fail
            sys.stderr.write(f"{self.format(record)}\n")

    def format(self, record: logging.LogRecord) -> str:
        try:
            redact = import_module("toolpost.redact")  # by its name: it stands above this
            return str(redact.visible(redact.redact_text(super().format(record))))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not written as it is
            return f"{record.name}: a message that cannot be shown"


def _written(name: str, *, beside: logging.Handler) -> bool:
    """Whether a program has set up logging for this logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not beside for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


_ours.addHandler(_LastResort(logging.WARNING))
