"""The audit: who called what, with which arguments, what was decided, what came of it.

An observer. A call that only reads, of tier 0 or 1, is taken down in short when it is over and
written in batches. Of everything else an *intent* is on the disk before the call goes on, and an
outcome follows: no record, no run. Above: the executor. Below: ``ledger`` keeps the records and
proves that they are as they were written, ``redact`` takes out what must not be kept.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence, Sized
from time import monotonic
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Lined, Opens, Ring, Road, Surroundings, Vouches, Walk, Watch
from toolpost.digest import digest
from toolpost.errors import ConfigError, Unavailable
from toolpost.ledger.block import Sent, Shape, encode_row, text_of
from toolpost.ledger.opening import FOLDER, open_chain
from toolpost.ledger.record import OK, AuditRecord, Who
from toolpost.ledger.retention import prune
from toolpost.ledger.scribe import BATCH, Scribe
from toolpost.ledger.tidy import LONG, POINT, Tidy
from toolpost.ledger.writing import CHECKPOINT_EVERY, Chain
from toolpost.options import Options, options_from
from toolpost.redact import clean_json, redact, redact_text
from toolpost.redact.texts import textless
from toolpost.result import Failure, Metadata, Result
from toolpost.spec import ToolSpec

_SHOWN: Final = 4096
_MARGIN: Final = 4096
"""Characters beyond the shown ones that are searched too, so that no secret is cut in half."""
_STRUCTURED: Final = 262_144
"""Bytes of arguments above which only their digest and their size are kept."""
_LARGEST_PAGE: Final = 1024 * 1024
"""Bytes that are kept for the arguments of a tool's next call."""
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_MOST_SHAPES: Final = 1024
_encode = msgspec.json.Encoder().encode
_NOT_JSON: Final = (TypeError, ValueError, OverflowError, RecursionError)


class AuditOptions(Options, frozen=True, kw_only=True):
    """What ``[extensions.audit]`` may say."""

    seconds: float = 0.2
    buffer: int = 20_000
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
            tidy=Tidy(),
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
        """Close what dead writers left open now, and not with the first call. If there has been
        none yet, nothing is made.
        """
        if self._folder is None or self._folder.exists():
            await self._scribe.open()

    async def close(self) -> None:
        await self._scribe.close()

    async def keep(self, record: AuditRecord) -> bool:
        """Take down what is no call: what a person has decided. ``False``: it is not on the disk.
        Whoever makes such a record takes out what must not be kept.
        """
        return await self._scribe.commit(lambda: record, size=0)

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

    def _behind(self, tool: _Tool) -> Watch:  # noqa: C901 - in one piece, for that is fastest
        """Taken down when the call is over: on the way there is time for little."""
        scribe = self._scribe
        append, pending = scribe.pending.append, scribe.pending
        pack, page = msgspec.msgpack.Encoder().encode_into, bytearray()
        on_page: list[bytes] | None = None
        shape: Shape | None = None
        trail: Sequence[str] = ()
        caller: Caller | None = None
        session: str | None = None

        def before(call: Call) -> str | list[bytes]:
            """Now: a tool may change what it was given. What nobody vouches for is searched. The
            rest stays on the page until its call is over, or until the page is needed by another.
            """
            nonlocal on_page
            if shape is None or not shape.clean:
                return _snapshot(call.arguments)
            if on_page is not None:
                on_page.append(bytes(page))
                on_page = None
            try:
                pack(call.arguments, page)
            except _NOT_JSON:
                return _snapshot(call.arguments)
            on_page = []
            return on_page

        def after(
            call: Call, result: Result | None, kept: str | list[bytes]
        ) -> Awaitable[None] | None:
            nonlocal shape, trail, caller, session, on_page
            sent: Sent | bytearray
            if type(kept) is str:
                sent = kept
            elif kept is on_page:
                sent, on_page = page, None
            else:
                sent = kept[0] if kept else _snapshot(call.arguments)
            if result is None:
                took = (monotonic() - call.started) * 1000
                scribe.put(tool.whole, call, _apart(sent), took, _GONE, None, size=len(sent))
                return None
            about, alike = result.metadata, shape
            if (
                (about.trail is not trail and about.trail != trail) or call.session_id != session
                or (call.caller is not caller and call.caller != caller)
                or result.error is not None or about is not call.about or len(sent) > _SHOWN
                or about.attempts != 1 or about.cached or call.dry_run or call.grant is not None
                or about.approved is not None
            ):  # fmt: skip
                alike = tool.shape(call, result, sent)
                if alike is not None and tool.usual(call, result):
                    shape, trail = alike, about.trail[:]  # of a list, what it is now
                    caller, session = call.caller, call.session_id
            if alike is not None:
                began = call.started
                row = encode_row((alike.number, call.call_id, began, about.duration_ms, sent))
                sure = (
                    alike.clean and type(sent) is not str and LONG not in sent and POINT not in sent
                )
                append((alike, row, began if sure else 0.0))
            else:
                took = about.duration_ms
                own = _apart(sent)
                scribe.put(tool.whole, call, own, took, result.error, about, size=len(own))
                if len(page) > _LARGEST_PAGE and on_page is None:
                    page.clear()
            return scribe.press() if len(pending) >= scribe.brim else None

        def unless_broken(call: Call) -> str | list[bytes]:
            if scribe.problem is not None:
                self._refused(tool, call)
            return before(call)

        return Watch(after, unless_broken if self._around.mode == "strict" else before)

    def _before(self, tool: _Tool) -> Ring:
        """No record, no run — but for tiers 0 and 1 where the mode is not strict."""
        scribe, now = self._scribe, self._around.clock.monotonic
        must = tool.spec.tier >= 2 or self._around.mode == "strict"

        async def ring(call: Call, call_next: Walk) -> Result:
            sent, began = _snapshot(call.arguments), now()
            ended: tuple[Failure | None, Metadata | None] = (_NOT_BEGUN, None)
            try:
                written = await scribe.commit(tool.intent, call, sent, began, size=len(sent))
                if must and not written:
                    ended = (_NO_RECORD, None)
                    raise Unavailable(_NO_RECORD.message, retry_after=_NO_RECORD.retry_after)
                ended = (_GONE, None)
                result = await call_next(call)
                ended = (result.error, result.metadata)
                return result
            finally:
                scribe.put(tool.outcome, call, began, now(), *ended)

        return ring

    def _refused(self, tool: _Tool, call: Call) -> None:
        sent = _snapshot(call.arguments)
        self._scribe.put(tool.whole, call, sent, 0.0, _NO_RECORD, None, size=len(sent))
        raise Unavailable(_NO_RECORD.message, retry_after=_NO_RECORD.retry_after)

    async def _opened(self) -> Chain:
        if isinstance(self._around.journal, Opens):  # before a key is made for what cannot be kept
            await self._around.journal.open()
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


def _apart(sent: Sent | bytearray) -> Sent:
    """What was sent, as nobody else will write over it."""
    return bytes(sent) if isinstance(sent, bytearray) else sent


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
        self.raws = tuple(_raws(spec.input_schema))
        """The parameters that are kept from being sanitized."""
        self._road, self._clock = road, around.clock
        self._digest = ""
        self._isolation: str | None = None
        self._whom: tuple[Caller, Who] | None = None
        self._shapes: dict[Any, Shape] = {}
        self._failed: tuple[str, str] | None = None
        """How the last call failed that did."""
        # of what is sent, nothing reaches the tool as something else, or stands in the schema
        plain = not spec.coerce and clean_json(_snapshot(spec.input_schema))
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
            if failed != self._failed or error.details or len(error.message) > _SHOWN:
                return None
        if len(sent) > _SHOWN or about is not call.about:
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
        try:
            exact = digest(json.loads(text))
        except (ValueError, RecursionError):
            exact = ""
        return {
            **self._same(call),
            "time": self._wall(ago),
            "call_id": call.call_id,
            "arguments": _shown(text),
            "arguments_digest": exact,
        }

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
        trail = [_step(step) for step in (call.trail if about is None else about.trail)]
        end: dict[str, Any] = {
            "code": OK,
            "outcome": "none" if self.spec.effects == "read" else "done",
            "duration_ms": None if took is None else round(took, 3),
            "trail": trail,
            "approver": _approver(call.about if about is None else about),
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

    def _wall(self, ago: float) -> float:
        """The time so many seconds ago: on the way nobody asked for it."""
        return round(self._clock.time() - ago, 6)

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
    """The parameters that the schema calls raw, or something inside of them."""
    for part in _reached(schema, schema, inside=False):
        for name, inner in (part.get("properties") or {}).items():
            if any(one.get("x-raw") is True for one in (part, *_reached(inner, schema))):
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


def _snapshot(arguments: Any) -> str:
    """As they are now; what is not JSON, as far as it can be told: such calls are refused, and on
    the record.
    """
    try:
        return _encode(arguments).decode()
    except _NOT_JSON:
        pass
    try:
        text = json.dumps(
            arguments,
            default=lambda one: f"({type(one).__name__})",
            skipkeys=True,
            ensure_ascii=False,
        )
        return text.encode(errors="replace").decode()
    except _NOT_JSON:
        return '"(not JSON)"'


def _shown(text: str) -> Any:
    if len(text) > _STRUCTURED:
        return f"({len(text.encode())} bytes)"
    return _shown_value(json.loads(text))


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
