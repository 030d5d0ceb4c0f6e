"""What ``nats micro ls|info|stats`` shows of a worker: each tool an endpoint, with its counts.

The questions and answers are those of the services API of NATS; its library is not used, for it
would run the calls one after the other. Above: ``worker.py``. Below: the bus. Whoever may ask can
read it all: of an error only the code is told, for its words may be a caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost import __version__
from toolpost.bus.connection import Bus
from toolpost.bus.wire import Offered
from toolpost.errors import Code

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

NAME: Final = "toolpost-worker"
_TYPE: Final = "io.nats.micro.v1.{}_response"
_SMALL: Final = 4096
"""Bytes of a schema that is told here; larger ones are in the specs."""
_MOST: Final = 512 * 1024
"""Bytes of an answer, about: what does not fit is left out."""
_SCHEMAS: Final = {"parameters": "input_schema", "returns": "output_schema"}
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Counts(msgspec.Struct):
    """What one tool was asked, since the worker began."""

    requests: int = 0
    errors: int = 0
    nanoseconds: int = 0
    last: str = ""

    def begin(self) -> int:
        self.requests += 1
        return perf_counter_ns()

    def end(self, begun: int, code: Code | None) -> None:
        self.nanoseconds += perf_counter_ns() - begun
        if code is not None:
            self.errors += 1
            self.last = code


class Endpoints:
    """Answers for a worker. ``offers`` tells what it offers now."""

    def __init__(
        self, bus: Bus, worker: str, *, group: str, offers: Callable[[], Mapping[str, Offered]]
    ) -> None:
        self._bus, self._worker, self._group, self._offers = bus, worker, group, offers
        self._started = _now()
        self._counts: dict[str, Counts] = {}
        self._subscriptions: list[Subscription] = []

    def counts(self, tool: str) -> Counts:
        return self._counts.get(tool) or self._counts.setdefault(tool, Counts())

    async def open(self) -> None:
        for verb, told in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats)):
            for whom in ("", f".{NAME}", f".{NAME}.{self._worker}"):
                subject, heard = f"$SRV.{verb}{whom}", _answering(told)
                self._subscriptions.append(await self._bus.listen(subject, heard))

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def _ping(self) -> dict[str, Any]:
        metadata = {"worker": self._worker, "prefix": self._bus.subjects.prefix,
                    "tools": str(len(self._offers()))}  # fmt: skip
        return {"type": _TYPE.format("ping"), "name": NAME, "id": self._worker,
                "version": __version__, "metadata": metadata}  # fmt: skip

    def _info(self) -> dict[str, Any]:
        endpoints = ({**one, "metadata": _about(offer)} for one, offer in self._endpoints())
        about = {"type": _TYPE.format("info"), "description": "Tools of a toolpost worker"}
        return {**self._ping(), **about, "endpoints": _fitting(endpoints)}

    def _stats(self) -> dict[str, Any]:
        endpoints = ({**one, **self._counted(one["name"])} for one, _ in self._endpoints())
        about = {"type": _TYPE.format("stats"), "started": self._started}
        return {**self._ping(), **about, "endpoints": _fitting(endpoints)}

    def _endpoints(self) -> Iterable[tuple[dict[str, Any], Offered]]:
        for name, offer in sorted(self._offers().items()):
            subject = self._bus.subjects.request(name)
            yield {"name": name, "subject": subject, "queue_group": self._group}, offer

    def _counted(self, tool: str) -> dict[str, Any]:
        counts = self.counts(tool)
        return {
            "num_requests": counts.requests,
            "num_errors": counts.errors,
            "last_error": counts.last,
            "processing_time": counts.nanoseconds,
            "average_processing_time": counts.nanoseconds // max(counts.requests, 1),
            "data": None,
        }


def _about(offer: Offered) -> dict[str, str]:
    spec = offer.spec
    about = {
        "digest": offer.digest,
        "most": str(offer.most),
        "effects": spec.get("effects", "once"),
    }
    for name, field in _SCHEMAS.items():
        schema = _encode(spec[field]) if spec.get(field) else b""
        if schema and len(schema) <= _SMALL:
            about[name] = schema.decode()
    return about


def _fitting(endpoints: Iterable[dict[str, Any]]) -> list[msgspec.Raw]:
    kept, size = [], 0
    for endpoint in endpoints:
        text = _encode(endpoint)
        size += len(text)
        if size > _MOST:
            break
        kept.append(msgspec.Raw(text))
    return kept


def _answering(told: Callable[[], dict[str, Any]]) -> Callable[[Msg], Any]:
    async def heard(message: Msg) -> None:
        if message.reply:
            await message.respond(_encode(told()))

    return heard


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
