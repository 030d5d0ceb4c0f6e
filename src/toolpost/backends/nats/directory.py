"""Which workers are there, and what they offer.

Above: the source, which makes specs of it, and the calls, which ask how much room there is. Below:
the bus. A worker says every few seconds that it is there; one that has not for some time, or says
that it goes, is forgotten. What it offers is asked for when it has changed. Whatever comes from the
bus is read against its type, or left out with a warning.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolpost.bus.connection import Bus
from toolpost.bus.meeting import MOST_MET
from toolpost.bus.ticket import MET, NOBODY, Issuer, new_nonce
from toolpost.bus.wire import (
    GONE,
    MEET,
    SPECS,
    TICKET,
    WORKER,
    Envelope,
    Here,
    Met,
    Offered,
    Page,
    said,
)
from toolpost.call import OWNER, new_call_id
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import CallError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_log = logging.getLogger("toolpost.bus")
_MISSED: Final = 3.5
"""So many times its interval a worker may be silent."""
_TEND: Final = 0.5
_FETCH: Final = 3.0
_QUIET: Final = 0.25
_LONGEST_NAME: Final = 64
_MOST_PAGES: Final = 1000
_MOST_WORKERS: Final = 10_000
_MOST_TOOLS: Final = 20_000
_here: Final = StrictDecoder[Envelope[Here]](Envelope[Here])
_page: Final = StrictDecoder[Envelope[Page]](Envelope[Page])


class _Worker(msgspec.Struct):
    here: Here
    seen: float
    key: bytes | None = None
    tools: Mapping[str, Offered] = {}
    loaded: str = ""


class Directory:
    """``changed`` is told when what is offered has."""

    def __init__(self, bus: Bus, issuer: Issuer) -> None:
        self._bus, self._issuer = bus, issuer
        self._met: dict[str, Mapping[str, bytes]] = {}
        self._workers: dict[str, _Worker] = {}
        self._room: dict[str, int] = {}
        self._offers: dict[str, Offered] = {}
        self._takers: dict[str, bool] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None
        self.listeners: list[Callable[[], None]] = []

    @property
    def workers(self) -> int:
        return len(self._workers)

    def room(self, tool: str) -> int:
        """How many calls its workers take at once, all of them together."""
        return self._room.get(tool, 0)

    def takes_jobs(self, tool: str) -> bool:
        """Whether its workers take jobs from the queue, or did before they went."""
        return self._takers.get(tool, False)

    def met(self, tool: str) -> Mapping[str, bytes]:
        """The keys that are shared with those who may take a call of it, if that is all of them."""
        return self._met.get(tool, NOBODY)

    def offers(self) -> Mapping[str, Offered]:
        return self._offers

    async def open(self, *, patience: float) -> None:
        """Ask who is there. The first to say so is waited for as long as the patience lasts, others
        until nobody more has come for a moment.
        """
        if self._tending is not None:
            return
        subjects, bus = self._bus.subjects, self._bus
        await bus.listen(subjects.workers, self._heard)
        client = await bus.client()
        self._tending = asyncio.create_task(self._tend())
        await client.publish(subjects.roll_call)
        await client.flush()
        loop = asyncio.get_running_loop()
        ends, known = loop.time() + patience, 0
        while (left := ends - loop.time()) > 0 and (
            self._fetching or not self._workers or known != len(self._workers)
        ):
            known = len(self._workers)
            if self._fetching:
                await asyncio.wait(self._fetching.values(), timeout=left)
            else:
                await asyncio.sleep(min(left, _QUIET))

    async def close(self) -> None:
        tasks = [t for t in (self._tending, *self._fetching.values()) if t is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def lost(self, tool: str) -> None:
        """Nobody answers for it: whoever was there is asked again."""
        if self._room.get(tool):
            asyncio.ensure_future(self._ask()).add_done_callback(_quietly)

    async def _ask(self) -> None:
        client = await self._bus.client()
        now = monotonic()
        for worker in self._workers.values():  # who does not answer is soon forgotten
            worker.seen = min(worker.seen, now - worker.here.every * (_MISSED - 1))
        await client.publish(self._bus.subjects.roll_call)

    async def _heard(self, message: Msg) -> None:
        try:
            told = _here.decode(message.data)
        except NotStrictJson:
            _log.warning("something on %s is no word of a worker", message.subject)
            return
        here = told.payload
        if told.type == GONE:
            if self._workers.pop(here.worker, None) is not None:
                self._sum()
            return
        if told.type != WORKER or not 0.1 <= here.every <= 300 or not _is_name(here.worker):
            return
        worker = self._workers.get(here.worker)
        if worker is None:
            if len(self._workers) >= _MOST_WORKERS:
                _log.warning("too many workers: one more is left out")
                return
            worker = self._workers[here.worker] = _Worker(here, monotonic())
        changed = worker.here.jobs != here.jobs
        worker.here, worker.seen = here, monotonic()
        if changed:
            self._sum()
        if worker.loaded != here.offers and here.worker not in self._fetching:
            task = asyncio.create_task(self._fetch(here.worker))
            self._fetching[here.worker] = task
            task.add_done_callback(lambda _: self._fetching.pop(here.worker, None))

    async def _fetch(self, name: str) -> None:
        subject, tools = self._bus.subjects.specs(name), dict[str, Offered]()
        try:
            client, start = await self._bus.client(), 0
            for _ in range(_MOST_PAGES):
                asked = said(SPECS, {"from": start}, source=self._bus.name, number=new_call_id())
                answer = await client.request(subject, asked, timeout=_FETCH)
                page = _page.decode(answer.data).payload
                tools |= page.tools
                if len(tools) > _MOST_TOOLS:
                    raise ValueError("too many tools")
                if page.next is None or page.next <= start:
                    break
                start = page.next
            key = await self._meet(name)
        except (CallError, Exception) as fault:  # noqa: BLE001 - it is asked again when it next speaks
            _log.warning("the worker %s does not say what it offers: %r", name, fault)
            return
        worker = self._workers.get(name)
        if worker is not None:
            worker.tools, worker.loaded, worker.key = tools, page.offers, key
            self._sum()

    async def _meet(self, name: str) -> bytes | None:
        """A key that only this worker and this gateway have; ``None``: it is sent signatures."""
        known = self._workers.get(name)
        if known is None or not known.here.meets or known.key is not None:
            return None if known is None else known.key
        issuer, replies = self._issuer, await self._bus.replies()
        key = issuer.half.with_other(known.here.meets, gateway=issuer.gateway, worker=name)
        if key is None:
            return None
        met = Met(issuer.half.public)
        body = said(MEET, met, source=self._bus.name, number=new_call_id())
        subject, waiting = self._bus.subjects.meet(name), replies.expect()
        ticket = issuer.write(
            OWNER, tool=subject, spec=known.here.meets, body=body, reply=waiting.subject,
            nonce=new_nonce(),
        )  # fmt: skip
        try:
            client = await self._bus.client()
            await client.publish(subject, body, reply=waiting.subject, headers={TICKET: ticket})
            answer = await waiting.next(_FETCH)
        finally:
            replies.forget(waiting)
        return key if answer is not None and answer.data == MET else None

    async def _tend(self) -> None:
        while True:
            due = monotonic() + _TEND
            await asyncio.sleep(_TEND)
            now = monotonic()
            # nobody can be heard, or could: this process was stopped, or busy
            if self._bus.problem is not None or now - due > _TEND:
                for worker in self._workers.values():
                    worker.seen = now
                continue
            late = [
                name
                for name, worker in self._workers.items()
                if now - worker.seen > worker.here.every * _MISSED
            ]
            for name in late:
                _log.warning("the worker %s is silent: it is taken for dead", name)
                del self._workers[name]
            if late:
                self._sum()

    def _sum(self) -> None:
        """Of a tool that workers have in different versions, most of them decide."""
        versions: dict[str, Counter[str]] = {}
        offered: dict[tuple[str, str], Offered] = {}
        takers = dict[str, bool]()
        for worker in self._workers.values():
            for name, offer in worker.tools.items():
                takers[name] = takers.get(name, False) or worker.here.jobs
                versions.setdefault(name, Counter())[offer.digest] += 1
                offered[name, offer.digest] = offer
        offers, room = {}, {}
        for name, counted in versions.items():
            kept = self._offers.get(name)
            digest = max(counted, key=lambda d: (counted[d], kept is not None and kept.digest == d))
            offers[name] = offered[name, digest]
            room[name] = counted[digest] * offers[name].most
        self._met = {name: self._acquainted(name) for name in offers}
        changed = {n: o.digest for n, o in offers.items()} != {
            n: o.digest for n, o in self._offers.items()
        }
        self._offers, self._room = offers, room
        self._takers = takers if len(self._takers) > _MOST_TOOLS else {**self._takers, **takers}
        if changed:
            for listener in tuple(self.listeners):
                listener()

    def _acquainted(self, tool: str) -> Mapping[str, bytes]:
        keys = {n: w.key for n, w in self._workers.items() if tool in w.tools}
        met = {name: key for name, key in keys.items() if key is not None}
        return met if len(met) == len(keys) <= MOST_MET else NOBODY


def _is_name(worker: str) -> bool:
    """It becomes a part of subjects and of tickets."""
    return worker.isascii() and worker.isalnum() and len(worker) <= _LONGEST_NAME


def _quietly(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
