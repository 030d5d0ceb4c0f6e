"""The audit: who called what, with which arguments, what was decided, what came of it.

An observer. A call that only reads, of tier 0 or 1, is taken down when it is over and written in
batches. Of everything else an *intent* is on the disk before the call goes on, and an outcome
follows: no record, no run. Above: the executor. Below: ``ledger`` keeps the records and proves that
they are as they were written, ``redact`` takes out what must not be kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Ring, Road, Surroundings, Walk
from toolpost.digest import digest
from toolpost.errors import ConfigError, Unavailable
from toolpost.ledger.opening import FOLDER, open_chain
from toolpost.ledger.record import OK, AuditRecord, Who
from toolpost.ledger.retention import prune
from toolpost.ledger.scribe import BATCH, Scribe
from toolpost.ledger.writing import CHECKPOINT_EVERY, Chain
from toolpost.options import Options, options_from
from toolpost.redact import redact, redact_text
from toolpost.result import Failure, Metadata, Result
from toolpost.spec import ToolSpec

_SCALARS: Final = frozenset(("string", "integer", "number", "boolean", "null"))
_SHOWN: Final = 4096
_MARGIN: Final = 4096
"""Characters beyond the shown ones that are searched too, so that no secret is cut in half."""
_STRUCTURED: Final = 262_144
"""Bytes of arguments above which only their digest and their size are kept."""
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_encode = msgspec.json.Encoder().encode


class AuditOptions(Options, frozen=True, kw_only=True):
    """What ``[extensions.audit]`` may say."""

    seconds: float = 0.2
    buffer: int = 10_000
    patience: float = 5.0
    checkpoint: int = CHECKPOINT_EVERY
    keep_days: float | None = None
    archive: bool = True


class Audit:
    """``problem`` says why nothing can be written right now."""

    name = "audit"

    def __init__(self, around: Surroundings, options: AuditOptions | None = None) -> None:
        self._options = options or AuditOptions()
        self._around = around
        # what forgets has nothing that could be held against an anchor
        keeps = not getattr(around.journal, "volatile", False)
        self._folder = around.state / FOLDER if keeps else None
        self._scribe = Scribe(
            self._opened,
            around.clock,
            seconds=self._options.seconds,
            most=self._options.buffer,
            patience=self._options.patience,
            tend=None if self._options.keep_days is None else self._pruned,
        )
        self._prune_at = 0.0

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        chosen = options_from(options, AuditOptions, "extension audit")
        for field, least in (("seconds", 0), ("buffer", BATCH), ("patience", 0), ("checkpoint", 1)):
            if not getattr(chosen, field) >= least:
                raise ConfigError(f"extension audit: {field} is at least {least}", at=(field,))
        if chosen.keep_days is not None and not chosen.keep_days > 0:
            raise ConfigError(
                "extension audit: keep_days is above 0; leave it out to keep everything",
                at=("keep_days",),
            )
        return cls(around, chosen)

    @property
    def problem(self) -> str | None:
        return self._scribe.problem

    async def open(self) -> None:
        """Close what dead writers left open now, and not with the first call."""
        await self._scribe.open()

    async def close(self) -> None:
        await self._scribe.close()

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        tool = _Tool(spec, road, self._around)
        behind = self._behind(tool)
        if spec.tier <= 1 and spec.effects == "read":
            return behind
        before = self._before(tool)
        if spec.kind != "unknown":
            return before

        def either(call: Call, call_next: Walk) -> Any:
            # a name that no tool has runs nothing; a tool that is really called so may
            return (before if call.tool == spec.name else behind)(call, call_next)

        return either

    def _behind(self, tool: _Tool) -> Ring:
        """Taken down when the call is over: on the way there is time for little."""
        scribe, monotonic = self._scribe, self._around.clock.monotonic
        append, pending, make = scribe.pending.append, scribe.pending, tool.whole
        strict, flat = self._around.mode == "strict", _flat(tool.spec.input_schema)

        async def ring(call: Call, call_next: Walk) -> Result:
            if strict and scribe.problem is not None:
                self._refused(tool, call)
            raw = None if flat else _snapshot(call.arguments)
            began = monotonic()
            try:
                result = await call_next(call)
            except BaseException:
                raw = raw or _snapshot(call.arguments)
                scribe.put(len(raw), make, call, raw, began, monotonic(), _GONE, None)
                raise
            error = result.error
            if error is not None and raw is None:  # its arguments may be anything
                raw = _snapshot(call.arguments)
            size = 0 if raw is None else len(raw)
            append((None, size, make, call, raw, began, monotonic(), error, result.metadata))
            if len(pending) >= scribe.brim:
                await scribe.press()
            return result

        return ring

    def _before(self, tool: _Tool) -> Ring:
        """No record, no run — but for tiers 0 and 1 where the mode is not strict."""
        scribe, monotonic = self._scribe, self._around.clock.monotonic
        must = tool.spec.tier >= 2 or self._around.mode == "strict"

        async def ring(call: Call, call_next: Walk) -> Result:
            raw, began = _snapshot(call.arguments), monotonic()
            ended: tuple[Failure | None, Metadata | None] = (_NOT_BEGUN, None)
            try:
                written = await scribe.commit(len(raw), tool.intent, call, raw, began)
                if must and not written:
                    ended = (_NO_RECORD, None)
                    raise Unavailable(_NO_RECORD.message, retry_after=_NO_RECORD.retry_after)
                ended = (_GONE, None)
                result = await call_next(call)
                ended = (result.error, result.metadata)
                return result
            finally:
                scribe.put(0, tool.outcome, call, began, monotonic(), *ended)

        return ring

    def _refused(self, tool: _Tool, call: Call) -> None:
        raw, now = _snapshot(call.arguments), self._around.clock.monotonic()
        self._scribe.put(len(raw), tool.whole, call, raw, now, now, _NO_RECORD, None)
        raise Unavailable(_NO_RECORD.message, retry_after=_NO_RECORD.retry_after)

    async def _opened(self) -> Chain:
        return await open_chain(
            self._folder,
            self._around.journal,
            self._around.clock,
            every=self._options.checkpoint,
            tend=None if self._options.keep_days is None else self._drop_old,
        )

    async def _pruned(self, chain: Chain) -> None:
        now = self._around.clock.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + _HOUR
            await self._drop_old(chain)

    async def _drop_old(self, chain: Chain) -> None:
        assert self._options.keep_days is not None
        before = self._around.clock.time() - self._options.keep_days * _DAY
        archive = self._folder / "archive" if self._folder and self._options.archive else None
        await prune(chain, self._around.journal, before=before, archive=archive)


def _said(code: Any, message: str, effects: Any, *, after: float | None = None) -> Failure:
    return Failure(code, message, "wait", code == "UNAVAILABLE", effects, after)


_GONE: Final = _said("CANCELLED", "The caller went away.", "unknown")
_NOT_BEGUN: Final = _said("CANCELLED", "The caller went away before the call began.", "none")
_NO_RECORD: Final = _said(
    "UNAVAILABLE",
    "The audit cannot be written, and without a record this tool does not run. Try again later.",
    "none",
    after=1.0,
)


class _Tool:
    """What is the same in every record of one tool, and how its records are made."""

    def __init__(self, spec: ToolSpec, road: Road, around: Surroundings) -> None:
        self.spec = spec
        self._road, self._clock = road, around.clock
        self._digest = ""
        self._isolation: str | None = None
        self._whom: tuple[Caller, Who] | None = None

    def whole(
        self,
        call: Call,
        raw: bytes | None,
        began: float,
        ended: float,
        error: Failure | None,
        about: Metadata | None,
    ) -> AuditRecord:
        return AuditRecord(
            kind="call", **self._asked(call, raw, began), **self._end(began, ended, error, about)
        )

    def intent(self, call: Call, raw: bytes, began: float) -> AuditRecord:
        return AuditRecord(kind="intent", **self._asked(call, raw, began))

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
            time=self._wall(ended),
            call_id=call.call_id,
            tool=self._name(call),
            **self._end(began, ended, error, about, trail=call.trail),
        )

    def _asked(self, call: Call, raw: bytes | None, began: float) -> dict[str, Any]:
        exact, shown = _arguments(call, raw)
        return {
            "time": self._wall(began),
            "call_id": call.call_id,
            "session": call.session_id and _harmless(call.session_id),
            "caller": self._who(call.caller),
            "tool": self._name(call),
            "spec": self._pinned(),
            "tier": self.spec.tier,
            "effects": self.spec.effects,
            "isolation": self._isolated(),
            "arguments": shown,
            "arguments_digest": exact,
            "grant": call.grant,
            "dry_run": call.dry_run,
        }

    def _end(
        self,
        began: float,
        ended: float,
        error: Failure | None,
        about: Metadata | None,
        trail: list[str] | None = None,
    ) -> dict[str, Any]:
        steps = about.trail if about is not None else trail or []
        end: dict[str, Any] = {
            "code": OK,
            "outcome": "none" if self.spec.effects == "read" else "done",
            "duration_ms": round((ended - began) * 1000, 3),
            "trail": [_step(step) for step in steps],
            "attempts": 1 if about is None else about.attempts,
            "cached": about is not None and about.cached,
        }
        if error is not None:
            end |= {
                "code": error.code,
                "outcome": error.effects,
                "message": _cut(_harmless(error.message[: _SHOWN + _MARGIN])),
                "details": _shown(_snapshot(error.details)) if error.details else None,
            }
        return end

    def _wall(self, moment: float) -> float:
        """The time of a moment of the monotonic clock: nobody asked for both on the way."""
        return round(self._clock.time() - (self._clock.monotonic() - moment), 6)

    def _name(self, call: Call) -> str:
        """A name that no tool has may be anything, a secret included."""
        if call.tool == self.spec.name:
            return call.tool
        return _cut(_harmless(call.tool[: _SHOWN + _MARGIN]), 200)

    def _who(self, caller: Caller) -> Who:
        if self._whom is None or self._whom[0] is not caller:
            user, agent = (name and _harmless(name) for name in (caller.user, caller.agent))
            self._whom = caller, Who(_harmless(caller.id), user, agent)
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
            self._isolation = str(about.get("isolation", "")) if same else self.spec.isolation or ""
        return self._isolation


def _flat(schema: Mapping[str, Any]) -> bool:
    """Whether arguments that fit hold nothing that could be changed in place."""
    properties = schema.get("properties", {})
    return schema.get("additionalProperties") is False and all(
        isinstance(one, Mapping) and one.get("type") in _SCALARS for one in properties.values()
    )


def _snapshot(arguments: Any) -> bytes:
    """As they are now: a tool may change what it was given."""
    try:
        return _encode(arguments)
    except (TypeError, ValueError, RecursionError):
        return _told(arguments)


def _told(arguments: Any) -> bytes:
    """What is not JSON, as far as it can be told; such calls are refused, and on the record."""
    try:
        return json.dumps(
            arguments,
            default=lambda one: f"({type(one).__name__})",
            skipkeys=True,
            ensure_ascii=False,
        ).encode(errors="replace")
    except (TypeError, ValueError, RecursionError):
        return b'"(not JSON)"'


def _arguments(call: Call, raw: bytes | None) -> tuple[str, Any]:
    """The digest of the exact arguments, and what may be shown of them."""
    if raw is None:
        return digest(call.arguments), _shown_value(call.arguments)
    try:
        exact = digest(json.loads(raw))
    except (ValueError, RecursionError):
        exact = ""
    return exact, _shown(raw)


def _shown(raw: bytes) -> Any:
    if len(raw) > _STRUCTURED:
        return f"({len(raw)} bytes)"
    return _shown_value(json.loads(raw))


def _shown_value(value: Any) -> Any:
    if len(_encode(value)) <= _SHOWN:
        return redact(value)
    return _shortened(redact(_shortened(value, _SHOWN + _MARGIN)), _SHOWN)


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
    return _cut(_harmless(str(step)[: _SHOWN + _MARGIN]))


def _harmless(text: str) -> str:
    """With nothing in it that must not be kept, or that is no text."""
    return redact_text(text if text.isascii() else text.encode(errors="replace").decode())


def _cut(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
