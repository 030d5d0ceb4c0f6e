"""What is started ahead: stems that can become anything, and sandboxes that wait for a program.

Above: ``sandbox.py`` takes from here, and asks to fill up behind itself. Below: ``stem.py``,
``warm.py``, and a group for every child. It refuses to know what is granted, and to whom.

How many wait follows what is asked for. A description that was used before and finds none waiting
gets one more place, up to a few; a minute without use takes all but one away, and ten that one too.
They are made one after the other, and a stem before everything: with one, nobody has to wait for
the start of a keeper.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from toolpost.process import Child
from toolpost.sandbox import plan
from toolpost.sandbox.confinement import Confinement, Shape, within
from toolpost.sandbox.egress import Proxies
from toolpost.sandbox.groups import Group, Groups
from toolpost.sandbox.plan import Machine
from toolpost.sandbox.stem import Stem
from toolpost.sandbox.warm import Warm

_MOST_WARM: Final = 8
"""Sandboxes that wait, of all descriptions together; those of the one least used go."""
_MOST_OF_A_KIND: Final = 4
_MOST_KNOWN: Final = 256
_STEMS: Final = 2
_MOST_STEMS: Final = 4
"""So many where calls have found none."""
_BREATH: Final = 0.05
"""Seconds before what was used is replaced, unless the program ends earlier: a short call shall
have the machine to itself.
"""
_GRACE: Final = 0.2
"""Seconds that a sandbox has to be gone by itself, and at most twice as many, once its program has
ended; what is left is killed.
"""
_IDLE: Final = 60.0
_PATIENCE: Final = 10
"""So many times ``_IDLE`` without use, and nothing waits any more."""


@dataclass(slots=True, eq=False)
class _Place:
    """One description: what waits for it, and how many of them should."""

    confinement: Confinement
    wanted: int = 0
    kept: bool = False
    coming: int = 0
    """How many are being made."""
    idle: int = 0
    waiting: deque[Warm] = field(default_factory=deque)


class Ready:
    """Stems and sandboxes that wait. Nothing is started before it is asked for.

    ``check`` refuses what cannot be granted, and says which host path is behind each that can.
    """

    def __init__(
        self,
        machine: Machine,
        groups: Groups | None,
        check: Callable[[Confinement], Mapping[str, str]],
    ) -> None:
        self._machine = machine
        self._groups = groups
        self._check = check
        self._proxies = Proxies()
        self._stems: deque[Stem] = deque()
        self._spare = _STEMS
        self._places: OrderedDict[Shape, _Place] = OrderedDict()
        self._filling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._children: set[Child] = set()
        self._of: WeakKeyDictionary[Child, Group] = WeakKeyDictionary()
        self._exceeded: WeakKeyDictionary[Child, tuple[str, ...]] = WeakKeyDictionary()
        self._clock: asyncio.TimerHandle | None = None
        self._leaving: set[Child] = set()
        self._late: set[Child] = set()
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    async def close(self) -> None:
        """End what waits, and see off what is ending."""
        self._closed = True
        for timer in (self._clock, self._look):
            if timer is not None:
                timer.cancel()
        if self._filling is not None:
            self._filling.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        waiting: list[Stem | Warm] = [*self._stems]
        waiting += [warm for place in self._places.values() for warm in place.waiting]
        self._stems.clear()
        self._places.clear()
        await asyncio.gather(*(one.discard() for one in waiting))
        ending = self._leaving | self._late | {child for child in self._children if child.over}
        await asyncio.gather(*(child.kill() for child in ending))
        await self._proxies.close()
        if self._groups is not None:
            self._groups.close()

    async def settled(self) -> None:
        """Wait until everything that is started ahead is there."""
        self.fill()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def exceeded(self, child: Child) -> tuple[str, ...]:
        group = self._of.get(child)
        return self._exceeded.get(child, ()) if group is None else group.exceeded()

    def take(self, confinement: Confinement) -> Warm | None:
        """The sandbox that waits for this description, if there is one and it is still good."""
        shape = confinement.shape
        place = self._places.get(shape)
        if place is None:
            if self._machine.bwrap is not None:
                self._place(confinement)
            return None
        self._places.move_to_end(shape)
        place.idle = 0
        while place.waiting:
            warm = place.waiting.popleft()
            if warm.usable:
                return warm
            self._in_background(warm.discard())
        place.wanted = min(place.wanted + 1, _MOST_OF_A_KIND)
        return None

    async def new(self, confinement: Confinement) -> Warm:
        """A sandbox for this description, made now."""
        real = self._check(confinement)
        egress = confinement.egress
        socket = await self._proxies.socket(egress) if egress else None
        planned = plan.inner(self._machine, confinement, socket=socket, real=real)
        paths = [*confinement.read, *confinement.write]
        hidden = self._machine.hidden
        if hidden is not None and any(within(hidden, one) for one in real.values()):
            paths.append(hidden)  # one that is made later is not covered
        return await Warm.start(await self.stem(confinement), planned, paths)

    async def stem(self, confinement: Confinement) -> Stem:
        """One that waits, else a new one; bound as described."""
        if "processes" in confinement.host:
            stem = await self._new_stem(namespace=False)
        else:
            stem = await self._next_stem()
        try:
            self._bound(stem, confinement)
        except BaseException:
            await stem.discard()
            raise
        return stem

    def _bound(self, stem: Stem, confinement: Confinement) -> None:
        if stem.group is not None:
            stem.group.limit(
                memory=confinement.bound,
                cpus=confinement.cpus,
                processes=confinement.processes + plan.own_processes(self._machine, confinement),
            )

    async def _next_stem(self) -> Stem:
        while self._stems:
            stem = self._stems.popleft()
            if not stem.child.exited.done():
                return stem
            await stem.discard()
        self._spare = min(self._spare + 1, _MOST_STEMS)
        return await self._new_stem()

    async def keep(self, confinement: Confinement) -> None:
        """Have one waiting for this description, from now on."""
        if self._machine.bwrap is not None:
            place = self._place(confinement)
            place.kept = True
            place.wanted = max(place.wanted, 1)
            if not place.waiting and not place.coming:
                await self._add(place)
        await self.settled()

    def refill_behind(self, child: Child) -> None:
        """Once this one has ended, or has run for a moment."""
        handle = asyncio.get_running_loop().call_later(_BREATH, self.fill)
        child.exited.add_done_callback(partial(self._ended_early, handle))

    def _ended_early(self, handle: asyncio.TimerHandle, _: object) -> None:
        handle.cancel()
        self.fill()

    def fill(self) -> None:
        if not self._closed and (self._filling is None or self._filling.done()):
            self._filling = self._in_background(self._fill())

    async def _fill(self) -> None:
        """One thing after the other, and the most urgent first."""
        while True:
            place = next(
                (p for p in self._places.values() if len(p.waiting) + p.coming < p.wanted), None
            )
            if not self._stems or (place is None and len(self._stems) < self._spare):
                self._stems.append(await self._new_stem())
            elif place is None:
                return
            else:
                await self._add_if_possible(place)

    async def _add_if_possible(self, place: _Place) -> None:
        try:
            await self._add(place)
        except Exception:  # noqa: BLE001 - the next call meets it too, and says so
            place.wanted = 0

    async def _add(self, place: _Place) -> None:
        place.coming += 1
        try:
            made = await self.new(place.confinement)
        finally:
            place.coming -= 1
        place.waiting.append(made)
        if self._places.get(place.confinement.shape) is not place:  # given up meanwhile
            await self._shrink(place, 0)
        while sum(len(p.waiting) for p in self._places.values()) > _MOST_WARM:
            await self._shrink(next(p for p in self._places.values() if p.waiting), 0)

    async def _shrink(self, place: _Place, most: int) -> None:
        place.wanted = min(place.wanted, most)
        surplus = [place.waiting.popleft() for _ in range(len(place.waiting) - most)]
        await asyncio.gather(*(warm.discard() for warm in surplus))

    def _place(self, confinement: Confinement) -> _Place:
        place = self._places.get(confinement.shape)
        if place is None:
            bare = msgspec.structs.replace(confinement, environment={}, working_dir=None)
            place = self._places[confinement.shape] = _Place(bare)  # secrets are not kept
            if len(self._places) > _MOST_KNOWN:
                _, forgotten = self._places.popitem(last=False)
                self._in_background(self._shrink(forgotten, 0))
            if self._clock is None:
                self._clock = asyncio.get_running_loop().call_later(_IDLE, self._tick)
        return place

    def _tick(self) -> None:
        """A while has passed: what nobody uses goes."""
        for shape, place in [*self._places.items()]:
            place.idle += 1
            most = 1 if place.idle <= _PATIENCE or place.kept else 0
            if not most:
                del self._places[shape]
            if place.idle > 1 and place.wanted > most:
                self._in_background(self._shrink(place, most))
        self._spare = _STEMS
        while len(self._stems) > self._spare:
            self._in_background(self._stems.pop().discard())
        loop = asyncio.get_running_loop()
        self._clock = loop.call_later(_IDLE, self._tick) if self._places else None

    async def _new_stem(self, *, namespace: bool = True) -> Stem:
        group = None if self._groups is None else self._groups.make()
        try:
            stem = await Stem.start(group, namespace=namespace)
        except BaseException:
            if group is not None:
                group.remove()
            raise
        self._children.add(stem.child)
        stem.child.attended = True
        stem.child.on_leaving = self._leaves
        if group is not None:
            self._of[stem.child] = group
        stem.child.exited.add_done_callback(partial(self._ended, stem.child))
        return stem

    def _leaves(self, child: Child) -> None:
        """Nothing inside is trusted to go: it can say that it ended, and stay. One look around for
        all of them costs a call next to nothing.
        """
        if not child.exited.done():
            self._leaving.add(child)
            if self._look is None:
                loop = asyncio.get_running_loop()
                self._look = loop.call_later(_GRACE, self._look_around)

    def _look_around(self) -> None:
        for child in self._late:
            child.kill_soon()
        self._late, self._leaving = self._leaving, set()
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_GRACE, self._look_around) if self._late else None

    def _ended(self, child: Child, _: object) -> None:
        self._children.discard(child)
        self._leaving.discard(child)
        self._late.discard(child)
        group = self._of.pop(child, None)
        if group is not None:
            self._exceeded[child] = group.exceeded()
            group.remove()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the next call meets it too, and says so
