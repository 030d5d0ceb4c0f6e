"""``Worker``: takes calls from the bus, checks their tickets, runs them, and answers.

Above: ``toolpost worker``. Below: a runtime, whose road a call walks here too, and the bus. It says
every few seconds that it is there and, while a call runs, that it still does. It refuses to know
what a caller may: a gateway has decided that, and its ticket says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from toolpost.bus.claims import Claims
from toolpost.bus.connection import Bus, drained
from toolpost.bus.large import Large, unsent
from toolpost.bus.meeting import Half, name_of
from toolpost.bus.ticket import CHANGED, MET, NOT_MET, Inspector, Ticket
from toolpost.bus.wire import (
    GONE,
    OBJECT,
    RESPONSE,
    SPECS,
    TICKET,
    WORKER,
    Envelope,
    Here,
    Met,
    Offered,
    Page,
    Request,
    said,
)
from toolpost.call import OWNER, new_call_id
from toolpost.contracts import Declared
from toolpost.digest import digest
from toolpost.document.strict import NotStrictJson, StrictDecoder
from toolpost.errors import CallError, InternalError, ToolNotFound, ToolpostError, Unavailable
from toolpost.failure import failure
from toolpost.registry import Entry, Registry
from toolpost.result import Metadata, Result
from toolpost.runtime import Runtime
from toolpost.seal import PUBLIC_SUFFIX, Verifier, verifiers
from toolpost.spec import ToolSpec
from toolpost.worker.endpoints import Endpoints
from toolpost.worker.reading import read_request
from toolpost.worker.running import BEAT, Run, Runs, begun
from toolpost.worker.settings import WorkerSettings, as_served
from toolpost.worker.taking import Taking

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_log = logging.getLogger("toolpost.worker")
_DRAINED: Final = 5.0
"""Seconds for the bus to hear that no more is taken."""
_LOOKS: Final = 10
"""So often an answer looks whether a bus is back that was away."""
_LAST: Final = 10.0
"""Seconds that calls which were stopped may take to be gone."""
_PAGE: Final = 256 * 1024
"""Bytes of specs in one answer, about."""
_met: Final = StrictDecoder[Envelope[Met]](Envelope[Met])
_asked: Final = StrictDecoder[Envelope[dict[str, Any]]](Envelope[dict[str, Any]])


class Worker:
    """``async with Worker(runtime, settings, folder=…) as worker: await worker.stopped.wait()``."""

    def __init__(self, runtime: Runtime, settings: WorkerSettings, *, folder: Path) -> None:
        self.id = token_hex(8)
        self.bus = Bus(settings, name=f"worker-{self.id}", role="worker", folder=folder)
        self._runtime, self._settings = runtime, settings
        self._inspector = Inspector(trusting(settings, folder), worker=self.id)
        self._half = Half()
        self._claims, self._large = Claims(settings.prefix), Large(settings.prefix)
        self._runs = Runs(self.bus, self._large)
        self._offers: dict[str, Offered] = {}
        self._mine: dict[str, ToolSpec | None] = {}
        """The specs as they run here: what differs from them has changed."""
        self._serving: dict[str, Subscription] = {}
        self._endpoints = Endpoints(
            self.bus, self.id, group=settings.group, offers=lambda: self._offers
        )
        self._jobs = Taking(
            self.bus, self._runs, self._inspector,
            worker=self.id, offers=self._offered, execute=self._executed,
        )  # fmt: skip
        self._tasks: set[asyncio.Task[Any]] = set()
        self._announcing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._deaf: Callable[[], None] | None = None
        self._leaving = self._left = False

    async def open(self) -> None:
        """Serve; raises ``Unavailable`` if the bus cannot be reached."""
        self._take_over(self._runtime.registry)
        subjects = self.bus.subjects
        client = await self.bus.client()
        await self.bus.listen(subjects.cancel("*"), self._cancel)
        await self.bus.listen(subjects.roll_call, self._called)
        await self.bus.listen(subjects.specs(self.id), self._tell_specs)
        await self.bus.listen(subjects.meet(self.id), self._meet)
        await self._endpoints.open()
        await self._subscribe()
        await self._jobs.serve()
        self._deaf = self._runtime.registry.listen(lambda _: self._changed.set())
        self._announcing = asyncio.create_task(self._announce())
        await self._say(WORKER)
        await client.flush()

    async def close(self, *, grace: float | None = None) -> None:
        """Take no more; what runs may take so many seconds to end, then it is stopped."""
        if self._deaf is not None:
            self._deaf()
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.wait([self._announcing])
        await self._jobs.leave()
        await self._take_no_more()
        await self._runs.end(self._settings.drain if grace is None else grace)
        if self._tasks:  # they were told to stop, and clear up
            await asyncio.wait(self._tasks, timeout=_LAST)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._jobs.close()
        await self.bus.close()

    async def _take_no_more(self) -> None:
        self._leaving = True
        if self.bus.problem is None:
            with suppress(Exception):  # a bus that is going down: others notice by themselves
                await self._say(GONE)
                # what has been delivered already is run
                serving = self._serving.values()
                if all(await asyncio.gather(*(drained(one, _DRAINED) for one in serving))):
                    await self._endpoints.close()
                    return
        self._left = True  # else there is more when the bus is back
        for subscription in self._serving.values():
            with suppress(Exception):
                await subscription.unsubscribe()

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.bus.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(self._offers)

    @property
    def running(self) -> int:
        return len(self._runs)

    # --- what it serves ---------------------------------------------------------------------

    def _take_over(self, registry: Registry) -> None:
        """Offer what there is, and put what runs here in its place."""
        offers: dict[str, Offered] = {}
        served: list[Entry] = []
        for spec in registry.list():
            entry, known = registry.entry(spec.name), self._offers.get(spec.name)
            assert entry is not None, "it was just listed"
            if not self.bus.subjects.fits(spec.name):
                _log.warning("the tool %s is not served: no subject can have its name", spec.name)
                continue
            declared = entry.target is None or isinstance(entry.target, Declared)
            runs = as_served(spec, self._settings, declared=declared)
            if known is not None and self._mine.get(spec.name) is spec:
                offers[spec.name] = known
                continue
            limits = spec.limits
            offers[spec.name] = Offered(
                spec=spec.public(), digest=spec.digest, most=limits.concurrency + limits.queue
            )
            served.append(Entry(runs, entry.target))
        self._offers = offers
        if served:
            registry.replace(*served)
        self._mine = {name: registry.get(name) for name in offers}

    def _offered(self) -> Mapping[str, Offered]:
        """As of now: what has changed a moment ago does not run as it was written, unconfined."""
        if self._changed.is_set():
            self._take_over(self._runtime.registry)
        return self._offers

    async def _subscribe(self) -> None:
        group, subjects = self._settings.group, self.bus.subjects
        for name in self._offers.keys() - self._serving.keys():
            self._serving[name] = await self.bus.listen(
                subjects.request(name), self._hearing(name), queue=group
            )
        for name in self._serving.keys() - self._offers.keys():
            await drained(self._serving.pop(name), _DRAINED)

    async def _announce(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.announce):
                    await self._changed.wait()
            self._trust_again()
            try:
                if self._changed.is_set():
                    self._changed.clear()
                    self._take_over(self._runtime.registry)
                    self._changed.clear()  # that was ourselves
                    await self._subscribe()
                await self._jobs.serve()
                if self.bus.problem is None:
                    await self._say(WORKER)
            except CallError:
                continue  # the bus is down: when it is back, it is said again
            except Exception:  # noqa: BLE001 - one that says nothing would be taken for dead
                _log.exception("the worker could not say that it is there")

    def _trust_again(self) -> None:
        try:
            self._inspector.look_again()
        except (ToolpostError, OSError) as fault:  # a file that is being written, mostly
            _log.warning("whom to trust cannot be read, and stays as it was: %s", fault)

    async def _say(self, kind: str) -> None:
        here = Here(
            worker=self.id,
            offers=digest({name: one.digest for name, one in self._offers.items()}),
            tools=len(self._offers),
            every=self._settings.announce,
            meets=self._half.public,
            jobs=self._jobs.open and not self._jobs.crowded,
        )
        body = said(kind, here, source=self.bus.name, number=new_call_id())
        await (await self.bus.client()).publish(self.bus.subjects.workers, body)

    async def _called(self, message: Msg) -> None:
        if not self._leaving:
            await self._say(WORKER)

    async def _meet(self, message: Msg) -> None:
        """A gateway that signs with a trusted key brings its half of a key that both share."""
        header = (message.headers or {}).get(TICKET, "")
        try:
            self._inspector.read(
                header, tool=message.subject, spec=self._half.public, body=message.data,
                reply=message.reply,
            )  # fmt: skip
            public = _met.decode(message.data).payload.public
        except (CallError, NotStrictJson) as refused:
            _log.warning("somebody who would share a key is refused: %s", refused)
            return
        gateway = name_of(public)
        key = self._half.with_other(public, gateway=gateway, worker=self.id)
        if key is None:
            return
        self._inspector.meet(gateway, key, text=header)
        await message.respond(MET)

    async def _tell_specs(self, message: Msg) -> None:
        """A page of what is offered, from where it is asked for."""
        try:
            start = int(_asked.decode(message.data).payload.get("from", 0))
        except (ValueError, TypeError, OverflowError):
            start = 0
        names, tools, size = sorted(self._offers), dict[str, Offered](), 0
        place = max(0, start)
        while place < len(names) and size < _PAGE:
            offer = tools[names[place]] = self._offers[names[place]]
            size += len(msgspec.json.encode(offer))
            place += 1
        page = Page(
            offers=digest({name: one.digest for name, one in self._offers.items()}),
            tools=tools,
            next=place if place < len(names) else None,
        )
        body = said(SPECS, page, source=self.bus.name, number=new_call_id())
        await message.respond(body)

    # --- calls ------------------------------------------------------------------------------

    def _hearing(self, name: str) -> Callable[[Msg], Any]:
        async def heard(message: Msg) -> None:
            if self._left:
                return
            task = begun(self._serve(name, message))
            if not task.done():
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        return heard

    async def _serve(self, name: str, message: Msg) -> None:
        if not message.reply:
            _log.warning("a call of %s says not where the answer is to go", name)
            return
        run, counts = Run(message.reply), self._endpoints.counts(name)
        since = counts.begin()
        self._runs.begin(run)
        try:
            try:
                result = await self._ran(name, message, run)
            except CallError as refused:
                level = logging.DEBUG if refused.message == NOT_MET else logging.WARNING
                _log.log(level, "a call of %s is refused: %s", name, refused.message)
                result = _failed(refused, name, run.call_id)
            except Exception:  # noqa: BLE001 - the border: whatever it is, the caller has an answer
                _log.exception("a call of %s could not be served", name)
                result = _failed(InternalError("The worker failed."), name, run.call_id)
            if run.telling is not None:
                await self._runs.told(run)
            await self._answer(message.reply, result, run.call_id)  # a large one takes its time
        except asyncio.CancelledError:
            if not run.cancelled:
                raise
            counts.end(since, "CANCELLED")
            return  # who asked does not listen any more
        finally:
            self._runs.over(run)
        counts.end(since, None if result.error is None else result.error.code)

    async def _ran(self, name: str, message: Msg, run: Run) -> Result:
        client = self.bus.connected or await self.bus.client()
        headers, body = message.headers or {}, message.data
        header, looked = headers.get(TICKET), None
        if OBJECT in headers:  # nobody has it fetched without a ticket
            looked = self._inspector.look(header, tool=name, reply=message.reply)
            body = await self._large.unpacked(client, message)
        offer = self._offered().get(name)
        if offer is None:
            raise ToolNotFound("This worker does not have the tool any more.", effects="none")
        ticket: Ticket
        if looked is not None:
            ticket = self._inspector.accept(looked, spec=offer.digest, body=body)
        elif header is None:
            ticket, body = self._inspector.read_inside(
                body, tool=name, spec=offer.digest, reply=message.reply
            )
        else:
            ticket = self._inspector.read(
                header, tool=name, spec=offer.digest, body=body, reply=message.reply
            )
        request = read_request(body, name)
        run.call_id = request.call_id
        self._runs.named(run, ticket.jti)
        if offer.spec.get("effects", "once") != "read" and not request.dry_run:
            await self._claims.claim(client, ticket.jti, self.id)
            if self._offered().get(name) is not offer:
                raise Unavailable(CHANGED, retryable=True, retry_after=1.0, effects="none")
        if request.progress:
            self._runs.hear(run)
        # for who runs the gateway itself, the road is a little shorter
        caller = OWNER if ticket.caller == OWNER else ticket.caller
        return await self._executed(name, request, caller, run)

    def _executed(
        self, name: str, request: Request, caller: Any, run: Run
    ) -> Coroutine[Any, Any, Result]:
        return self._runtime.execute(
            name,
            request.arguments,
            caller=caller,
            session_id=request.session_id,
            timeout=request.timeout,
            working_dir=request.working_dir,
            dry_run=request.dry_run,
            phase=request.phase,
            key=request.key,
            on_progress=run.report if run.heard else None,
            call_id=request.call_id,
        )

    async def _answer(self, reply: str, result: Result, call_id: str) -> None:
        body = said(RESPONSE, result, source=self.bus.name, number=call_id, answers=call_id)
        try:
            client = self.bus.connected or await self._back()
            headers: dict[str, str] | None = None
            if not self._large.fits(client, body):
                try:
                    body, headers = await self._large.packed(client, body)
                except CallError as fault:  # that much can be said: it is not silence
                    _log.warning("an answer is not sent (call %s): %s", call_id, fault.message)
                    told = unsent(fault, result)
                    body = said(
                        RESPONSE, told, source=self.bus.name, number=call_id, answers=call_id
                    )
            await client.publish(reply, body, headers=headers)
        except CallError as fault:
            _log.warning("an answer could not be sent (call %s): %s", call_id, fault.message)
        except Exception as fault:  # noqa: BLE001 - whatever nats-py has against it
            _log.warning("an answer could not be sent (call %s): %r", call_id, fault)

    async def _back(self) -> Client:
        """The bus, once it is there again: who waits for an answer waits for that, too, and may be
        back a moment later than we are.
        """
        for _ in range(_LOOKS):
            await asyncio.sleep(BEAT)
            if self.bus.connected is not None:
                break
        await asyncio.sleep(BEAT)
        return await self.bus.client()

    async def _cancel(self, message: Msg) -> None:
        self._runs.cancel(message.subject.rpartition(".")[2])


def _failed(error: CallError, tool: str, call_id: str) -> Result:
    said_of = failure(error, tool=tool, call_id=call_id, effects="once")
    return Result(error=said_of, metadata=Metadata(call_id))


def trusting(settings: WorkerSettings, folder: Path) -> Callable[[], Mapping[str, Verifier]]:
    """Reads the public keys of gateways anew, each time it is asked."""

    def trusted() -> Mapping[str, Verifier]:
        found: dict[str, Verifier] = {}
        for named in settings.trust:
            found |= _readable(folder / named)
        if not found:
            _log.warning("there is no key of a gateway in %s", ", ".join(settings.trust))
        return found

    return trusted


def _readable(place: Path) -> Mapping[str, Verifier]:
    """What can be read, though something there cannot: a key that was taken away is not believed
    for the sake of another file.
    """
    try:
        return verifiers(place, "bus")
    except (ToolpostError, OSError) as fault:
        _log.warning("somebody whom to trust cannot be read: %s", fault)
    found: dict[str, Verifier] = {}
    for file in sorted(place.glob(f"*{PUBLIC_SUFFIX}")) if place.is_dir() else ():
        with suppress(ToolpostError, OSError):
            found |= verifiers(file, "bus")
    return found
