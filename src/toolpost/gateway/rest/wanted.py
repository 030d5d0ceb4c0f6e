"""What a request wants called, taken from its body and its headers.

Above: the routes that call. Below: ``bodies.py``, which has read the JSON. Whether the arguments
fit the tool is for the road to say, in sight of its observers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, NamedTuple

from toolpost.errors import InvalidArguments
from toolpost.gateway.problems import Refused
from toolpost.plain import json_name
from toolpost.wording import nearest, short

_LONGEST: Final = 255
SHORTEST_TIME: Final = 0.1
LONGEST_TIME: Final = 86_400.0
"""Seconds that somebody may say that they wait."""
FIELDS: Final = ("arguments", "session_id", "timeout", "phase", "grant")


class Wanted(NamedTuple):
    """One call, as a client asks for it."""

    arguments: Mapping[str, Any]
    session_id: str | None = None
    timeout: float | None = None
    phase: str | None = None
    grant: str | None = None


def wanted_of(data: Any, takes: Callable[[], Container[str]]) -> Wanted:
    """The call that a body describes. ``takes``: the names of the tool's parameters, for who has
    left out the object around the arguments.
    """
    if type(data) is not dict:
        raise Refused(400, 'The body is a JSON object, such as {"arguments": {"a": 1}}.')
    arguments = data.get("arguments", {})
    if type(arguments) is not dict:
        raise InvalidArguments(f"/arguments: must be an object, not {json_name(arguments)}.")
    if len(data) <= 1 and "arguments" in data:
        return Wanted(arguments)
    for name in data:
        if name not in FIELDS:
            raise InvalidArguments(f"/{short(name)}: is not known here{_hint(name, data, takes)}")
    return Wanted(
        arguments,
        _text(data, "session_id"),
        _seconds(data),
        _text(data, "phase"),
        _text(data, "grant"),
    )


def _hint(name: str, data: Mapping[str, Any], takes: Callable[[], Container[str]]) -> str:
    is_bare = "arguments" not in data
    if not (is_bare and name in takes()) and (found := nearest(name, FIELDS)):
        return found
    if is_bare:
        own = ", ".join(f'"{short(one)}": …' for one in data if one not in FIELDS)
        return f'; put what the tool takes into "arguments": {{"arguments": {{{own}}}}}'
    return f"; there are {', '.join(FIELDS)}."


def _text(data: Mapping[str, Any], name: str) -> str | None:
    if name not in data:
        return None
    value = data[name]
    if type(value) is not str or not 0 < len(value) <= _LONGEST:
        raise InvalidArguments(f"/{name}: must be a text of 1 to {_LONGEST} characters.")
    return value


def _seconds(data: Mapping[str, Any]) -> float | None:
    if "timeout" not in data:
        return None
    value = data["timeout"]
    if type(value) not in (int, float) or not SHORTEST_TIME <= value <= LONGEST_TIME:
        raise InvalidArguments(
            f"/timeout: must be a number of seconds, {SHORTEST_TIME:g} to {LONGEST_TIME:,.0f}."
        )
    return float(value)


def key_of(headers: Mapping[bytes, bytes]) -> str | None:
    """The idempotency key; quotes around it are those of a structured header."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    if given[:1] == given[-1:] == b'"':
        given = given[1:-1]
    try:
        key = given.decode("ascii")
    except UnicodeDecodeError:
        key = ""
    if not 0 < len(key) <= _LONGEST or not key.isprintable():
        raise Refused(400, f"Idempotency-Key must have 1 to {_LONGEST} printable ASCII characters.")
    return key


def trace_of(headers: Mapping[bytes, bytes]) -> Mapping[str, str] | None:
    """The trace that this call belongs to, if its caller has one."""
    parent = headers.get(b"traceparent")
    if parent is None:
        return None
    state = headers.get(b"tracestate", b"")
    return {"traceparent": parent.decode("latin-1"), "tracestate": state.decode("latin-1")}


def prefers(headers: Mapping[bytes, bytes], what: bytes) -> bool:
    """Whether ``Prefer`` names this."""
    given = headers.get(b"prefer")
    return given is not None and what in (
        one.partition(b";")[0].strip().lower() for one in given.split(b",")
    )


def wants_events(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the answer is wanted as it comes, and not only at its end."""
    accept = headers.get(b"accept")
    return accept is not None and b"text/event-stream" in accept.lower()
