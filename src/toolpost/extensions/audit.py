"""The audit: who called what, with which arguments, what was decided, what came of it.

An observer. A call that only reads, of tier 0 or 1, is taken down in short when it is over and
written in batches. Of everything else an *intent* is on the disk before the call goes on, and an
outcome follows: no record, no run. Above: the executor. Below: ``audit_records.py`` says what
stands in them, ``ledger`` keeps them and proves that they are as they were written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call, Caller
from toolpost.contracts import Opens, Ring, Road, Surroundings, Walk, Watch
from toolpost.errors import PART, ConfigError, Unavailable
from toolpost.extensions.audit_records import NOT_JSON, SHOWN, ToolRecords, snapshot
from toolpost.ledger.block import Sent, Shape, encode_row
from toolpost.ledger.opening import FOLDER, is_there, open_chain
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.retention import prune
from toolpost.ledger.scribe import BATCH, Scribe
from toolpost.ledger.tidy import LONG, POINT, Tidy
from toolpost.ledger.writing import CHECKPOINT_EVERY, Chain
from toolpost.options import Options, options_from
from toolpost.result import Failure, Metadata, Result
from toolpost.spec import ToolSpec

_LARGEST_PAGE: Final = 1024 * 1024
"""Bytes that are kept for the arguments of a tool's next call."""
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0


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
    options = AuditOptions

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
        if self._folder is None or is_there(self._folder):
            await self._scribe.open()

    async def close(self) -> None:
        await self._scribe.close()

    async def keep(self, record: AuditRecord) -> bool:
        """Take down what is no call: what a person has decided. ``False``: it is not on the disk.
        Whoever makes such a record takes out what must not be kept.
        """
        return await self._scribe.commit(lambda: record, size=0)

    def bind(self, spec: ToolSpec, road: Road) -> Ring:
        tool = ToolRecords(spec, road, self._around)
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

    def _behind(self, tool: ToolRecords) -> Watch:  # noqa: C901 - in one piece, for that is fastest
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
                return snapshot(call.arguments)
            if on_page is not None:
                on_page.append(bytes(page))
                on_page = None
            try:
                pack(call.arguments, page)
            except NOT_JSON:
                return snapshot(call.arguments)
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
                sent = kept[0] if kept else snapshot(call.arguments)
            if result is None:
                took = (monotonic() - call.started) * 1000
                scribe.put(tool.whole, call, _apart(sent), took, _GONE, None, size=len(sent))
                return None
            about, alike = result.metadata, shape
            if (
                (about.trail is not trail and about.trail != trail) or call.session_id != session
                or (call.caller is not caller and call.caller != caller)
                or result.error is not None or about is not call.about or len(sent) > SHOWN
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

    def _before(self, tool: ToolRecords) -> Ring:
        """No record, no run — but for tiers 0 and 1 where the mode is not strict."""
        scribe, now = self._scribe, self._around.clock.monotonic
        must = tool.spec.tier >= 2 or self._around.mode == "strict"

        async def ring(call: Call, call_next: Walk) -> Result:
            sent, began = snapshot(call.arguments), now()
            ended: tuple[Failure | None, Metadata | None] = (_NOT_BEGUN, None)
            try:
                written = await scribe.commit(tool.intent, call, sent, began, size=len(sent))
                if must and not written:
                    ended = (_NO_RECORD, None)
                    raise _no_record()
                ended = (_GONE, None)
                result = await call_next(call)
                ended = (result.error, result.metadata)
                return result
            finally:
                scribe.put(tool.outcome, call, began, now(), *ended)

        return ring

    def _refused(self, tool: ToolRecords, call: Call) -> None:
        sent = snapshot(call.arguments)
        self._scribe.put(tool.whole, call, sent, 0.0, _NO_RECORD, None, size=len(sent))
        raise _no_record()

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


def _no_record() -> Unavailable:
    details = {PART: "audit"}
    return Unavailable(_NO_RECORD.message, retry_after=_NO_RECORD.retry_after, details=details)


_GONE: Final = _said("CANCELLED", "The caller went away.", "unknown")
_NOT_BEGUN: Final = _said("CANCELLED", "The caller went away before the call began.", "none")
_NO_RECORD: Final = _said(
    "UNAVAILABLE",
    "The audit cannot be written, and without a record this tool does not run. Try again later.",
    "none",
    after=1.0,
)
