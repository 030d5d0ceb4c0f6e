"""Parcels: jobs on the bus. Each is in a work queue until it has been seen through, and whoever
takes one out says so, once and for all, before it runs.

Above: the backend ``nats``, which hands parcels over and asks what came of them, and the worker,
which takes them. Below: JetStream. A parcel is one run of a job. Its message stays in the stream
until it is acknowledged; how it stands is an entry in a bucket, and every change of that names the
one that it changes: of two who want to run it, or to say how it ended, one does. It refuses to know
what a job is.

    <prefix>-jobs       the queue: <prefix>.job.<key>.<tool>, one message for each
    <prefix>-parcels    how each stands: begun, ended with its result, or void: never to be run
    <prefix>-dead       what was given up, and why: <prefix>.dead.<tool>
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from toolpost.bus.connection import Bus
from toolpost.bus.large import Large
from toolpost.bus.ticket import GRANT_LIFE
from toolpost.bus.wire import DEAD, TICKET, said
from toolpost.document.strict import BROKEN, strict_json
from toolpost.errors import CallError, Unavailable
from toolpost.result import Result

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.client import JetStreamContext

ACK_WAIT: Final = 5.0
"""Seconds after which a worker that has not been heard of is taken for dead."""
_REMEMBERED: Final = 2 * GRANT_LIFE
"""Seconds that it is known how a parcel stands: longer than its message can be in the queue."""
_BURIED: Final = 30 * 86_400.0
_DUPLICATES: Final = 120.0
_IDLE: Final = 2 * 86_400.0
_WITHIN: Final = 5.0
_THERE_ALREADY: Final = 10077
"""What JetStream says of a second message on a subject that may have one."""
_OTHERWISE: Final = 10058
"""What it says of a stream that is there with other settings: somebody has made it by hand."""
_NO_STREAM: Final = 10059
_ANOTHER_VERSION: Final = 10071
_MESSAGE_ID: Final = "Nats-Msg-Id"
T = TypeVar("T")


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a parcel stands. ``by``: who says so. ``deaths``: how many workers it has outlived."""

    state: Literal["begun", "ended", "void"]
    by: str
    deaths: int = 0
    result: msgspec.Raw = msgspec.Raw(b"")
    object: str | None = None
    """Where the result is, if it is too large to stand here."""


class Dead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is kept of a parcel that was given up; its job has the rest."""

    parcel: str
    tool: str
    code: str
    reason: str
    worker: str


_standing: Final = msgspec.json.Decoder(Standing)
_encode: Final = msgspec.json.Encoder().encode


class Parcels:
    """The queue, and how everything in it stands."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        word = bus.subjects.prefix.replace(".", "-")
        self.queue, self._dead, self._bucket = f"{word}-jobs", f"{word}-dead", f"{word}-parcels"
        self.large = Large(word, name="parcel-bodies", ttl=_REMEMBERED)
        self._store: Any = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """``Unavailable`` if there is no JetStream, or not now."""
        await self._opened()

    async def stream(self) -> JetStreamContext:
        await self._opened()
        return (await self._bus.client()).jetstream(timeout=_WITHIN)

    async def put(self, key: str, *, tool: str, body: bytes, grant: str) -> None:
        """Into the queue; where it is there already, it stays as it is."""
        client, stream = await self._bus.client(), await self.stream()
        sent, headers = await self.large.packed(client, body)
        headers |= {TICKET: grant, _MESSAGE_ID: key}
        subject = self._bus.subjects.job(key, tool)
        try:
            await self._told(stream.publish(subject, sent, headers=headers, stream=self.queue))
        except Unavailable as fault:
            there = fault.__cause__
            if getattr(there, "err_code", None) != _THERE_ALREADY:
                raise

    async def queued(self, key: str) -> bool:
        """Whether its message is in the queue still, with a worker or not."""
        from nats.js.errors import NotFoundError

        stream, subject = await self.stream(), self._bus.subjects.job(key, ">")
        try:
            await self._told(stream.get_last_msg(self.queue, subject))
        except Unavailable as fault:
            if isinstance(fault.__cause__, NotFoundError):
                return False
            raise
        return True

    async def standing(self, key: str) -> tuple[Standing, int] | None:
        """How it stands and the version of that; ``None``: nobody has begun it."""
        from nats.js.errors import KeyNotFoundError

        store = await self._opened()
        try:
            entry = await self._told(store.get(key))
        except Unavailable as fault:
            if isinstance(fault.__cause__, KeyNotFoundError):
                return None
            raise
        try:
            return _standing.decode(entry.value), entry.revision
        except BROKEN:
            raise Unavailable(
                f"What is known of the parcel {key} cannot be read.",
                retryable=False,
                effects="unknown",
            ) from None

    async def stand(self, key: str, standing: Standing, version: int = 0) -> int | None:
        """From now on it stands so; ``None``: it does not stand as of this version any more."""
        from nats.js.errors import KeyWrongLastSequenceError

        store = await self._opened()
        try:
            made: int = await self._told(
                store.update(key, _encode(standing), last=version)
                if version
                else store.create(key, _encode(standing))  # it may have been put back
            )
        except Unavailable as fault:
            if isinstance(fault.__cause__, KeyWrongLastSequenceError):
                return None
            raise
        return made

    async def put_back(self, key: str, version: int) -> bool:
        """Nobody has begun it, after all; ``False``: it does not stand as of this version."""
        store = await self._opened()
        try:
            await self._told(store.delete(key, last=version))
        except Unavailable as fault:
            if getattr(fault.__cause__, "err_code", None) == _ANOTHER_VERSION:
                return False
            raise
        return True

    async def end(self, key: str, result: Result, *, by: str, version: int) -> bool:
        """It has ended, with this result; ``False``: somebody else has said how."""
        client = await self._bus.client()
        body, headers = await self.large.packed(client, _encode(result))
        ended = Standing(
            state="ended",
            by=by,
            result=msgspec.Raw(body or b"null"),
            object=next(iter(headers.values()), None),
        )
        return await self.stand(key, ended, version) is not None

    async def result(self, standing: Standing) -> Result:
        """With what it has ended."""
        body = bytes(standing.result)
        if standing.object is not None:
            body = await self.large.kept(await self._bus.client(), standing.object)
        try:
            return Result.from_dict(strict_json(body, "result"))
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError):
            raise Unavailable(
                "The worker answered with something unreadable.",
                retryable=False,
                effects="unknown",
            ) from None

    async def bury(self, dead: Dead) -> None:
        """For people, who want to know what was given up."""
        stream = await self.stream()
        body = said(DEAD, dead, source=self._bus.name, number=dead.parcel)
        headers = {_MESSAGE_ID: dead.parcel}
        await self._told(stream.publish(self._bus.subjects.dead(dead.tool), body, headers=headers))

    async def consumer(self, tool: str) -> str:
        """What the workers of a tool share: each message in it is one worker's."""
        from nats.js.api import ConsumerConfig

        name = _consumer(tool)
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            description=f"jobs of {tool}",
            filter_subject=self._bus.subjects.job("*", tool),
            ack_wait=ACK_WAIT,
            max_deliver=-1,
            inactive_threshold=_IDLE,
        )
        stream = await self.stream()
        await self._told(stream.add_consumer(self.queue, config))
        return name

    async def _told(self, asked: Awaitable[T]) -> T:
        """What nats-py says is wrong, as an error of ours with its cause."""
        from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

        try:
            return await asked
        except CallError:
            raise
        except Exception as fault:
            gone = getattr(fault, "err_code", None) == _NO_STREAM  # some of theirs have none
            if gone or isinstance(fault, NoStreamResponseError | ServiceUnavailableError):
                self._store = None  # it may have come back empty
            raise Unavailable(
                "The queue of jobs on the bus does not answer. Try again later.",
                retry_after=1.0,
                effects="none",
            ) from fault

    async def _opened(self) -> Any:
        client = await self._bus.client()
        async with self._opening:
            if self._store is None:
                self._store = await self._told(self._made(client))
            return self._store

    async def _made(self, client: Client) -> Any:
        from nats.js.api import DiscardPolicy, KeyValueConfig, RetentionPolicy, StreamConfig

        stream, subjects = client.jetstream(timeout=_WITHIN), self._bus.subjects
        await _made(
            stream,
            StreamConfig(
                name=self.queue,
                subjects=[subjects.job(">")],
                retention=RetentionPolicy.WORK_QUEUE,
                discard=DiscardPolicy.NEW,
                max_msgs_per_subject=1,
                discard_new_per_subject=True,
                max_age=GRANT_LIFE,
                duplicate_window=_DUPLICATES,
            ),
        )
        await _made(
            stream,
            StreamConfig(name=self._dead, subjects=[subjects.dead(">")], max_age=_BURIED),
        )
        bucket = KeyValueConfig(bucket=self._bucket, ttl=_REMEMBERED, history=1)
        return await stream.create_key_value(bucket)


async def _made(stream: JetStreamContext, config: Any) -> None:
    from nats.js.errors import APIError

    try:
        await stream.add_stream(config)
    except APIError as fault:
        if getattr(fault, "err_code", None) != _OTHERWISE:
            raise


def _consumer(tool: str) -> str:
    """A name may not have all the letters that a tool's may."""
    return f"{tool.replace('.', '_')[:64]}-{sha256(tool.encode()).hexdigest()[:8]}"
