"""What the records of one tool say: who asked for what, what was decided, what came of it.

Above: ``audit.py``, which says when one is made. Below: ``ledger`` for its form, ``redact`` for
what must not be kept. Of long texts the beginning is shown, and of all that was sent a digest. It
refuses to write anything down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Sized
from time import monotonic
from typing import Any, Final

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Lined, Road, Surroundings, Vouches
from toolpost.digest import digest_json
from toolpost.ledger.block import Sent, Shape, text_of
from toolpost.ledger.record import OK, AuditRecord, Who
from toolpost.redact import clean_json, redact, redact_text
from toolpost.redact.places import MARKS
from toolpost.redact.texts import textless
from toolpost.result import Failure, Metadata, Result
from toolpost.spec import ToolSpec

SHOWN: Final = 4096
_MARGIN: Final = 4096
"""Characters beyond the shown ones that are searched too, so that no secret is cut in half."""
_STRUCTURED: Final = 262_144
"""Bytes of arguments above which only their digest and their size are kept."""
_MOST_SHAPES: Final = 1024
_encode = msgspec.json.Encoder().encode
NOT_JSON: Final = (TypeError, ValueError, OverflowError, RecursionError)


class ToolRecords:
    """What is the same in every record of one tool, and how its records are made."""

    def __init__(self, spec: ToolSpec, road: Road, around: Surroundings) -> None:
        self.spec = spec
        self.raws = tuple(_raws(spec.input_schema))
        """The parameters that are kept from being sanitized."""
        self._road, self._clock = road, around.clock
        self._digest = ""
        self._isolation: str | None = None
        self._whom: tuple[Caller, Who] | None = None
        self._shapes: dict[Any, Shape] = {}
        self._steps: tuple[Sequence[Any], list[str]] = ((), [])
        """The trail of the last call, and as it is written: most calls have the same."""
        self._failed: tuple[str, str] | None = None
        """How the last call failed that did."""
        # of what is sent, nothing reaches the tool as something else, or stands in the schema
        plain = not spec.coerce and clean_json(snapshot(spec.input_schema))
        self._textless = plain and textless(spec.input_schema)
        self._vouching, self._observers = _vouching(spec, road) if plain else ((), frozenset())

    def usual(self, call: Call, result: Result) -> bool:
        """Whether what is looked at on the way tells such a call from others."""
        about = result.metadata
        once = about.attempts == 1 and not about.cached and about.approved is None
        well = result.error is None and not call.dry_run and call.grant is None
        return once and well and not self.raws

    def shape(self, call: Call, result: Result, sent: Sized) -> Shape | None:
        """What a call has in common with others like it; ``None``: nothing has. One that failed has
        if the one before it failed in the same words: where many are refused, they are refused so.
        """
        about, error = result.metadata, result.error
        if error is not None:
            failed, self._failed = self._failed, (error.code, error.message)
            if failed != self._failed or error.details or len(error.message) > SHOWN:
                return None
        if len(sent) > SHOWN or about is not call.about:
            return None
        key = (
            call.tool, call.caller, call.session_id, call.grant, call.dry_run, about.attempts,
            about.cached, about.approved, tuple(about.trail),
            error and (error.code, error.message, error.effects),
            *(name in call.arguments for name in self.raws),
        )  # fmt: skip
        try:
            if key not in self._shapes:
                if len(self._shapes) >= _MOST_SHAPES:
                    self._shapes.clear()
                same = self._same(call) | self._end(call, error, about, took=None)
                clean = self._textless or self._vouched(call.trail)
                self._shapes[key] = Shape.of(AuditRecord(kind="call", **same), clean=clean)
            return self._shapes[key]
        except Exception:  # noqa: BLE001 - rings put anything into a trail; it is told at length
            return None

    def _vouched(self, trail: Sequence[str]) -> bool:
        """Whether a guard that vouches for what it lets pass was the first to see what was sent,
        and had nothing to say of it.
        """
        for name in self._vouching:
            if name in trail and self._observers.issuperset(trail[: trail.index(name)]):
                return not any(step.startswith(f"{name}: ") for step in trail)
        return False

    def whole(
        self,
        call: Call,
        sent: Sent,
        took: float,
        error: Failure | None,
        about: Metadata | None,
    ) -> AuditRecord:
        return AuditRecord(
            kind="call",
            **self._asked(call, sent, monotonic() - call.started),
            **self._end(call, error, about, took=took),
        )

    def intent(self, call: Call, sent: Sent, began: float) -> AuditRecord:
        ago = self._clock.monotonic() - began
        return AuditRecord(kind="intent", **self._asked(call, sent, ago))

    def outcome(
        self,
        call: Call,
        began: float,
        ended: float,
        error: Failure | None,
        about: Metadata | None,
    ) -> AuditRecord:
        return AuditRecord(
            kind="outcome",
            time=self._wall(self._clock.monotonic() - ended),
            call_id=call.call_id,
            tool=self._name(call),
            **self._end(call, error, about, took=(ended - began) * 1000),
        )

    def _asked(self, call: Call, sent: Sent, ago: float) -> dict[str, Any]:
        text = text_of(sent)
        value = json.loads(text)
        try:
            exact = digest_json(value)
        except (ValueError, RecursionError):
            exact = ""
        said = self._same(call)
        said["time"], said["call_id"] = self._wall(ago), call.call_id
        said["arguments"], said["arguments_digest"] = _shown(text, value), exact
        return said

    def _same(self, call: Call) -> dict[str, Any]:
        return {
            "session": call.session_id and _harmless(call.session_id),
            "caller": self._who(call.caller),
            "tool": self._name(call),
            "spec": self._pinned(),
            "tier": self.spec.tier,
            "effects": self.spec.effects,
            "isolation": self._isolated(),
            "raw": [name for name in self.raws if name in call.arguments],
            "grant": call.grant and _harmless(call.grant),
            "dry_run": call.dry_run,
        }

    def _end(
        self, call: Call, error: Failure | None, about: Metadata | None, *, took: float | None
    ) -> dict[str, Any]:
        steps = call.trail if about is None else about.trail
        if steps != self._steps[0]:
            self._steps = ([*steps], [_step(step) for step in steps])
        end: dict[str, Any] = {
            "code": OK,
            "outcome": "none" if self.spec.effects == "read" else "done",
            "duration_ms": None if took is None else round(took, 3),
            "trail": self._steps[1],
            "approver": _approver(call.about if about is None else about),
            "attempts": 1 if about is None else about.attempts,
            "cached": about is not None and about.cached,
        }
        if error is not None:
            end |= {
                "code": error.code,
                "outcome": error.effects,
                "message": _cut(_harmless(error.message[: SHOWN + _MARGIN])),
                "details": _shown_details(error.details) if error.details else None,
            }
        return end

    def _wall(self, ago: float) -> float:
        """The time so many seconds ago: on the way nobody asked for it."""
        return round(self._clock.time() - ago, 6)

    def _name(self, call: Call) -> str:
        """A name that no tool has may be anything, a secret included."""
        if call.tool == self.spec.name:
            return call.tool
        return _cut(_harmless(call.tool[: SHOWN + _MARGIN]), 200)

    def _who(self, caller: Caller) -> Who:
        if self._whom is None or self._whom[0] is not caller:
            names = (caller.user, caller.agent, caller.key)
            safe = (name and _harmless(name) for name in names)
            self._whom = caller, Who(_harmless(caller.id), *safe)
        return self._whom[1]

    def _pinned(self) -> str:
        if not self._digest:
            self._digest = self.spec.digest
        return self._digest

    def _isolated(self) -> str:
        if self._isolation is None:
            bound = self._road.bound(self.spec.name)
            about = getattr(getattr(bound, "handle", None), "about", {})
            same = bound.spec is self.spec  # else it has been replaced since
            told = _isolation(about) if same else self.spec.isolation or ""
            if told == "sandbox":
                return told  # which level is not known before somebody has opened it
            self._isolation = told
        return self._isolation


def _isolation(about: Mapping[str, Any]) -> str:
    """Where a tool runs, the level of a sandbox, and whether that is less than it should be."""
    lowered = "lowered" if about.get("lowered") else ""
    words = (about.get("isolation"), about.get("level"), lowered)
    return " ".join(str(word) for word in words if word)


def _vouching(spec: ToolSpec, road: Road) -> tuple[tuple[str, ...], frozenset[str]]:
    """The guards that vouch for a tool's arguments, each the only one of its name; and who may
    stand before them, because an observer changes nothing.
    """
    if not isinstance(road, Lined):
        return (), frozenset()
    names = [one.name for one in (*road.observers, *road.guards)]
    trusted = [g for g in road.guards if isinstance(g, Vouches) and names.count(g.name) == 1]
    observers = frozenset(one.name for one in road.observers)
    return tuple(guard.name for guard in trusted if guard.vouches(spec)), observers


def _raws(schema: Mapping[str, Any]) -> Iterator[str]:
    """The parameters that the schema lets through as they are, or something inside of them."""
    for part in _reached(schema, schema, inside=False):
        for name, inner in (part.get("properties") or {}).items():
            within = (part, *_reached(inner, schema))
            if any(one.get(mark) is True for one in within for mark in MARKS):
                yield name


def _reached(
    schema: Any, root: Mapping[str, Any], *, inside: bool = True
) -> Iterator[Mapping[str, Any]]:
    """A schema, its alternatives, what it refers to; and the schemas of what is inside."""
    waiting, seen = [schema], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [other for key in ("allOf", "anyOf", "oneOf") for other in one.get(key) or ()]
        reference = one.get("$ref")
        if isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/")):
            _, group, name = reference.split("/", 2)
            waiting.append((root.get(group) or {}).get(name))
        if inside:
            waiting += [*(one.get("properties") or {}).values(), one.get("items")]


def _approver(about: Metadata) -> str:
    """Who said yes, as the approval has put it there: a trail is anybody's to write."""
    return "" if about.approved is None else _cut(_harmless(", ".join(about.approved.by)))


def snapshot(arguments: Any) -> str:
    """As they are now; what is not JSON, as far as it can be told: such calls are refused, and on
    the record.
    """
    try:
        return _encode(arguments).decode()
    except NOT_JSON:
        pass
    try:
        text = json.dumps(
            arguments,
            default=lambda one: f"({type(one).__name__})",
            skipkeys=True,
            ensure_ascii=False,
        )
        return text.encode(errors="replace").decode()
    except NOT_JSON:
        return '"(not JSON)"'


def _shown(text: str, value: Any) -> Any:
    """The value of a JSON text as people may read it."""
    if len(text) > _STRUCTURED:
        return f"({len(text.encode())} bytes)"
    if len(text) <= SHOWN // 4:  # of four bytes a character at most
        return redact(value)
    return _shown_value(value)


def _shown_details(details: Any) -> Any:
    text = snapshot(details)
    return _shown(text, json.loads(text))


def _shown_value(value: Any) -> Any:
    if len(_encode(value)) <= SHOWN:
        return redact(value)
    return _shortened(redact(_shortened(value, SHOWN + _MARGIN)), SHOWN)


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _cut(value, most)
    if isinstance(value, dict):
        return {_cut(key, most): _shortened(one, most) for key, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one, most) for one in value]
    return value


def _step(step: Any) -> str:
    """A ring's name as it is; what a ring said, which may be anything, made harmless."""
    if type(step) is str and ": " not in step:
        return step
    return _cut(_harmless(str(step)[: SHOWN + _MARGIN]))


def _harmless(text: str) -> str:
    """With nothing in it that must not be kept, or that is no text."""
    return redact_text(text if text.isascii() else text.encode(errors="replace").decode())


def _cut(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
