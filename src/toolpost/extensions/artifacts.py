"""What is too large to be handed over is kept, and read piece by piece.

An extension that puts no ring around anything: when every ring has seen a result, it is told of
those whose output is large. Of an output above the soft cap the caller gets the beginning, the end,
the size and a handle; the whole is in the store for a while, for this caller and nobody else. A
result that is small costs nothing. Above: the executor, and the doors, which read by handle. Below:
``Records``. It refuses to know what an output means: texts are kept as they are, anything else as
JSON, images and sounds as their bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Self

import msgspec

from toolpost.approvals.values import kept_caller, principal
from toolpost.call import Call, Caller
from toolpost.clock import SystemClock
from toolpost.contracts import Clock, Record, Records, Ring, Road, Surroundings
from toolpost.digest import digest
from toolpost.errors import CallError, InvalidArguments, ToolNotFound
from toolpost.ledger.record import AuditRecord
from toolpost.ledger.trespass import trespass
from toolpost.options import Options, options_from
from toolpost.output import LARGE
from toolpost.redact import redact_text
from toolpost.result import Artifact, Audio, Image, Notice, Part, Resource, Result, Text
from toolpost.spec import ToolSpec
from toolpost.wording import short

_log = logging.getLogger("toolpost")
_SPACE: Final = "artifacts"
_PIECES: Final = "artifacts.pieces"
_OF: Final = "artifacts.of"
_HANDLE: Final = re.compile(r"ar-[0-9a-f]{20}")
_PIECE: Final = 48 * 1024
"""Bytes of a piece; three become four characters in the store."""
_AT_ONCE: Final = 16
MOST_READ: Final = 1024 * 1024
SCHEME: Final = "toolpost://artifacts/"
"""What the address of an artifact begins with; its handle follows."""
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_encode = msgspec.json.Encoder().encode


class ArtifactsOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.artifacts]``. ``soft``: bytes that are handed over whole; ``head``
    and ``tail``: bytes of what is not, that are; ``ttl``: seconds that it is kept; ``most``: bytes
    that are kept for one caller: beyond them the oldest goes.
    """

    soft: int = 512 * 1024
    head: int = 2000
    tail: int = 1000
    ttl: float = 86_400.0
    most: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.soft < LARGE:
            raise ValueError(f"soft is at least {LARGE}")
        if self.head < 0 or self.tail < 0 or self.head + self.tail > self.soft:
            raise ValueError("head and tail together are at most soft")
        if not 0 < self.ttl <= 365 * 86_400:
            raise ValueError("ttl is a number of seconds, up to a year")
        if self.most < 1:
            raise ValueError("most is above 0")


DEFAULTS: Final = ArtifactsOptions()


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact as the store knows it."""

    handle: str
    size: int
    mime: str
    sha256: str
    made: float
    expires: float
    caller: Caller
    tool: str
    call_id: str

    @property
    def uri(self) -> str:
        return SCHEME + self.handle

    def to_dict(self) -> dict[str, Any]:
        """For who may read it."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return {**data, "caller": redact_text(self.caller.id), "uri": self.uri}


class Artifacts:
    """``about`` and ``read`` are for doors; a caller that is the owner may read everybody's."""

    name = "artifacts"
    options = ArtifactsOptions

    def __init__(
        self,
        records: Records,
        *,
        options: ArtifactsOptions = DEFAULTS,
        clock: Clock | None = None,
    ) -> None:
        self._records, self._options, self._clock = records, options, clock or SystemClock()
        self._keep: Callable[[AuditRecord], Awaitable[bool]] | None = None

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        parsed = options_from(options, ArtifactsOptions, "extension artifacts")
        return cls(around.records, options=parsed, clock=around.clock)

    def record(self, keep: Callable[[AuditRecord], Awaitable[bool]]) -> None:
        """Have it kept this way from now on who asked for what is another's."""
        self._keep = keep

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None:
        return None

    async def about(self, handle: str, *, caller: Caller) -> About:
        """What is known of an artifact; ``ToolNotFound`` if it is not there for this caller."""
        record = await self._get(handle)
        if record is None:
            raise _unknown(handle)
        found = msgspec.convert(record.value, About)
        if not caller.owner and principal(caller) != principal(found.caller):
            await self._note(caller, found)
            raise _unknown(handle)
        return found

    async def read(
        self, handle: str, *, caller: Caller, offset: int = 0, length: int = 64 * 1024
    ) -> bytes:
        """Bytes from a place on, at most a mebibyte of them; behind the end there are none."""
        if offset < 0 or not 0 < length <= MOST_READ:
            raise InvalidArguments(f"Read from 0 on, and 1 to {MOST_READ:,} bytes at a time.")
        found = await self.about(handle, caller=caller)
        end = min(offset + length, found.size)
        numbers = range(offset // _PIECE, -(-end // _PIECE))
        pieces = await asyncio.gather(*(self._piece(handle, number) for number in numbers))
        start = offset - numbers.start * _PIECE
        return b"".join(pieces)[start : start + max(0, end - offset)]

    async def keeps(self, call: Call, result: Result) -> Result:
        """The result as the caller gets it. If it cannot be kept, that is all of it."""
        try:
            return await self._shaped(call, result)
        except (CallError, TypeError, ValueError) as fault:  # a ring's output need not be JSON
            _log.warning("a large output of %s is handed over whole: %s", call.tool, fault)
            call.warn("The output is large, and could not be kept: this is all of it.")
            return result

    async def _shaped(self, call: Call, result: Result) -> Result:
        soft, kept = self._options.soft, list[Artifact]()
        output, parts = result.output, list[Part]()
        body, mime = _body(output)
        if len(body) > soft:
            output = None
            parts += await self._stored(call, body, mime, kept)
        for part in result.parts:
            body, mime = _part_body(part)
            parts += [part] if len(body) <= soft else await self._stored(call, body, mime, kept)
        if not kept:
            return result
        result.metadata.artifacts = tuple(kept)
        return Result(output, tuple(parts), result.error, result.metadata)

    async def _stored(
        self, call: Call, body: bytes, mime: str, kept: list[Artifact]
    ) -> tuple[Part, ...]:
        """What stands in the place of so many bytes."""
        about = await self._put(call, body, mime)
        kept.append(Artifact(about.handle, about.size, mime, about.expires))
        told = f"{about.size:,} bytes of {mime.partition(';')[0]} in all, kept as {about.handle}"
        link = Resource(about.uri, mime=mime, name=about.handle, description=told)
        if not mime.startswith((_JSON, "text/")):
            return (link,)
        head, tail = _ends(body, self._options.head, self._options.tail)
        return Text(f"{head}\n[… {told}: here are its beginning and its end …]\n{tail}"), link

    async def _put(self, call: Call, body: bytes, mime: str) -> About:
        """The pieces first: what has a handle is whole. The same again is the same artifact."""
        now, ttl, who = self._clock.time(), self._options.ttl, principal(call.caller)
        sha = hashlib.sha256(body).hexdigest()
        about = About(
            handle=f"ar-{digest([who, sha, mime])[-20:]}",
            size=len(body),
            mime=mime,
            sha256=sha,
            made=now,
            expires=now + ttl,
            caller=kept_caller(call.caller),
            tool=call.tool,
            call_id=call.call_id,
        )
        if (old := await self._get(about.handle)) is not None:
            there = msgspec.convert(old.value, About)
            if there.expires - now > ttl / 2:
                return there
        await self._make_room(who, len(body))
        pieces = [*_pieces(about.handle, body)]
        for place in range(0, len(pieces), _AT_ONCE):
            some = pieces[place : place + _AT_ONCE]
            await asyncio.gather(
                *(self._records.put(_PIECES, key, piece, ttl=ttl + 60) for key, piece in some)
            )
        size = {"size": about.size, "made": now}
        await self._records.put(_OF, f"{who}/{about.handle}", size, ttl=ttl)
        await self._records.put(_SPACE, about.handle, msgspec.to_builtins(about), ttl=ttl)
        return about

    async def _make_room(self, who: str, size: int) -> None:
        """One caller's large outputs are not to fill the disk."""
        found: list[tuple[str, Record]] = []
        after = ""
        while page := await self._records.scan(_OF, prefix=f"{who}/", after=after):
            found += page
            after = page[-1][0]
        total = size + sum(record.value["size"] for _, record in found)
        for key, record in sorted(found, key=lambda one: float(one[1].value["made"])):
            if total <= self._options.most:
                return
            total -= record.value["size"]
            await self._drop(key, record.value["size"])

    async def _drop(self, key: str, size: int) -> None:
        handle = key.rpartition("/")[2]
        await self._records.put(_SPACE, handle, None)
        for number in range(-(-size // _PIECE)):
            await self._records.put(_PIECES, _place(handle, number), None)
        await self._records.put(_OF, key, None)

    async def _get(self, handle: str) -> Record | None:
        """What is no handle is not looked for."""
        return await self._records.get(_SPACE, handle) if _HANDLE.fullmatch(handle) else None

    async def _piece(self, handle: str, number: int) -> bytes:
        record = await self._records.get(_PIECES, _place(handle, number))
        if record is None:  # it has ended, or made room, just now
            raise _unknown(handle)
        return b64decode(record.value)

    async def _note(self, caller: Caller, found: About) -> None:
        _log.warning("%s asked for %s of %s", caller.id, found.handle, found.caller.id)
        if self._keep is not None:
            at = self._clock.time()
            await self._keep(
                trespass(caller, found.caller, what=found.handle, tool=found.tool, at=at)
            )


def _unknown(handle: str) -> ToolNotFound:
    return ToolNotFound(
        f"There is no artifact {short(handle)!r}, or it is kept no longer.", remedy="stop"
    )


def _body(output: Any) -> tuple[bytes, str]:
    if isinstance(output, str):
        return output.encode(errors="replace"), _TEXT
    return _encode(output), _JSON


def _part_body(part: Part) -> tuple[bytes, str]:
    if isinstance(part, Text | Notice):
        return part.text.encode(errors="replace"), _TEXT
    if isinstance(part, Image | Audio):
        return part.data, part.mime
    if part.text is not None:
        return part.text.encode(errors="replace"), part.mime or _TEXT
    return part.data or b"", part.mime or "application/octet-stream"


def _place(handle: str, number: int) -> str:
    return f"{handle}/{number:08}"


def _pieces(handle: str, body: bytes) -> Iterator[tuple[str, str]]:
    for number, start in enumerate(range(0, len(body), _PIECE)):
        yield _place(handle, number), b64encode(body[start : start + _PIECE]).decode()


def _ends(body: bytes, head: int, tail: int) -> tuple[str, str]:
    """The beginning and the end, without halves of characters."""
    first, last = body[:head], body[len(body) - tail :]
    return first.decode(errors="ignore"), last.decode(errors="ignore")
