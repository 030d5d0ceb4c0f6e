"""One call of a tool of the Nachos contract: ids put in, the answer judged.

Above: ``bringing.py`` in this process, ``inside.py`` in another. Below: ``contract.py``. What a
tool says of itself is read here and nowhere else; a plain mapping will do for each of its values.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from toolpost import known
from toolpost.bridges.nachos.config import ToolConfig
from toolpost.bridges.nachos.contract import (
    CALL,
    FOREIGN,
    SESSION,
    HealthStatus,
    ToolError,
    ToolResult,
    ValidationResult,
)
from toolpost.call import Call
from toolpost.contracts import Health
from toolpost.errors import SAYABLE, CallError, InternalError, InvalidArguments, ToolFailed
from toolpost.redact import redact_text

_log = logging.getLogger("toolpost.tools")
_UNNAMED: Final = "pending"
"""The ids of a call that is looked at before it is made."""
T = TypeVar("T", ToolResult, ValidationResult, HealthStatus)


def params_of(arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """What a tool is given: its arguments and the two ids, which no model can set. A call of no
    session is a session of its own.
    """
    sent = call.metadata.get(CALL)
    call_id = sent if isinstance(sent, str) else call.call_id
    return {**arguments, SESSION: call.session_id or call.call_id, CALL: call_id}


async def prepared(tool: Any, config: ToolConfig) -> None:
    """Initialize it, as a coroutine or not."""
    begun = tool.initialize(config)
    if inspect.isawaitable(begun):
        await begun


def faults(tool: Any, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What its ``validate`` has against these arguments."""
    params = {**arguments, SESSION: _UNNAMED, CALL: _UNNAMED}
    said = _read(tool.validate(params), ValidationResult, "validate")
    if said.valid:
        return ()
    return tuple(said.errors or ("the tool does not accept these parameters",))


def refuse(tool: Any, arguments: Mapping[str, Any]) -> None:
    """Raise what its ``validate`` says, if it is not content."""
    if problems := faults(tool, arguments):
        told = [{"at": "", "problem": one} for one in problems]
        raise InvalidArguments(", ".join(problems), effects="none", details={"faults": told})


async def executed(begun: Awaitable[Any], call: Call, config: ToolConfig) -> Any:
    """The data of a result that is still to come."""
    return judged(await begun, call, config)


def judged(said: Any, call: Call, config: ToolConfig) -> Any:
    """The data of a result, without the tool's secrets; an error in it is raised, its warnings are
    passed on.
    """
    result = _read(said, ToolResult, "execute")
    if result.metadata is not None:
        for warning in result.metadata.warnings or ():
            call.warn(warning)
        if result.metadata.cached:
            call.about.cached = True
    if result.success:
        hidden = [one for one in config.secrets.values() if one in known.values]
        return _without(hidden, result.result) if hidden else result.result
    raise _raised(result.error or ToolError("EXECUTION_ERROR", "The tool failed."), call)


async def health_of(tool: Any) -> Health:
    begun = tool.health_check()
    said = _read(await begun if inspect.isawaitable(begun) else begun, HealthStatus, "health_check")
    return Health(said.healthy, said.error)


def _without(hidden: Iterable[str], value: Any) -> Any:
    """What sanitizing does for the outputs of others: a tool's own secrets go into no result."""
    if not isinstance(value, str | Mapping | list | tuple):
        value = _data(value)
    if isinstance(value, str):
        for one in hidden:
            value = value.replace(one, f"[redacted:{known.KIND}]")
        return value
    if isinstance(value, Mapping):
        return {_without(hidden, key): _without(hidden, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without(hidden, one) for one in value]
    return value


def _data(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except TypeError:  # what has no JSON form is refused further on
        return value


def _raised(error: ToolError, call: Call) -> CallError:
    """What a tool may mean by a code; the codes of the road it may not speak."""
    if error.code == "INTERNAL_ERROR":
        _log.error("%s failed (call %s): %s", call.tool, call.call_id, redact_text(error.message))
        return InternalError("Internal tool error. See logs for details.")
    details = error.details
    if error.code in SAYABLE:
        kind = SAYABLE[error.code]
        return kind(error.message, details=_mapping(details))
    return ToolFailed(
        error.message,
        details={FOREIGN: error.code, **({} if details is None else {"details": details})},
    )


def _mapping(details: Any) -> Mapping[str, Any] | None:
    return details if details is None or isinstance(details, Mapping) else {"details": details}


def _read(said: Any, kind: type[T], method: str) -> T:
    if isinstance(said, kind):
        return said
    try:
        return msgspec.convert(said, kind, from_attributes=True)
    except msgspec.ValidationError as fault:
        _log.error("%s returned what is no %s: %s", method, kind.__name__, fault)
        raise InternalError("Internal tool error. See logs for details.") from fault
