"""What is started ahead: stems that can become anything, and sandboxes that wait for a program.

Above: ``sandbox.py`` takes from here, and asks to fill up behind itself. Below: ``stem.py``,
``warm.py``, and a group for every child. It refuses to know what is granted, and to whom.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from toolpost.process import Child
from toolpost.sandbox import plan
from toolpost.sandbox.confinement import Confinement, Shape
from toolpost.sandbox.egress import Proxies
from toolpost.sandbox.groups import Group, Groups
from toolpost.sandbox.plan import Machine
from toolpost.sandbox.stem import Stem
from toolpost.sandbox.warm import Warm

_MOST_WARM: Final = 8
"""Sandboxes that wait, of all descriptions together; the one that waited longest goes."""
_MOST_USED: Final = 256
_STEMS: Final = 2
_BREATH: Final = 0.05
"""Seconds before what was used is replaced: a short call is over by then."""
_OWN_PROCESSES: Final = 4
"""Bubblewrap's two, the limiter or what waits inside, and the relay."""


class Ready:
    """Stems and sandboxes that wait. Nothing is started before it is asked for."""

    def __init__(self, machine: Machine, groups: Groups | None) -> None:
        self._machine = machine
        self._groups = groups
        self._proxies = Proxies()
        self._stems: deque[Stem] = deque()
        self._starting = asyncio.Lock()
        self._warm: OrderedDict[Shape, Warm] = OrderedDict()
        self._filling: set[Shape] = set()
        self._used: OrderedDict[Shape, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._of: WeakKeyDictionary[Child, Group] = WeakKeyDictionary()
        self._exceeded: WeakKeyDictionary[Child, tuple[str, ...]] = WeakKeyDictionary()
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        waiting: list[Stem | Warm] = [*self._stems, *self._warm.values()]
        self._stems.clear()
        self._warm.clear()
        await asyncio.gather(*(one.discard() for one in waiting))
        await self._proxies.close()
        if self._groups is not None:
            self._groups.close()

    async def settled(self) -> None:
        """Wait until everything that is started ahead is there."""
        await self._keep_stems()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def exceeded(self, child: Child) -> tuple[str, ...]:
        group = self._of.get(child)
        return self._exceeded.get(child, ()) if group is None else group.exceeded()

    def take(self, shape: Shape) -> Warm | None:
        """The sandbox that waits for this description, if there is one and it is still good."""
        warm = self._warm.pop(shape, None)
        if warm is None or warm.usable:
            return warm
        self._in_background(warm.discard())
        return None

    async def new(self, confinement: Confinement) -> Warm:
        """A sandbox for this description, made now."""
        egress = confinement.egress
        socket = await self._proxies.socket(egress) if egress else None
        planned = plan.inner(self._machine, confinement, socket=socket)
        paths = (*confinement.read, *confinement.write)
        return await Warm.start(await self.stem(confinement), planned, paths)

    async def stem(self, confinement: Confinement) -> Stem:
        """One that waits, else a new one; bound as described."""
        while self._stems:
            stem = self._stems.popleft()
            if not stem.child.exited.done():
                break
        else:
            stem = await self._new_stem()
        if stem.group is not None:
            stem.group.limit(
                memory=confinement.bound,
                cpus=confinement.cpus,
                processes=confinement.processes + _OWN_PROCESSES,
            )
        return stem

    async def keep(self, confinement: Confinement) -> None:
        """Have one waiting for this description, from now on."""
        self._used[confinement.shape] = None
        await self._keep_warm(confinement)

    def refill_soon(self, confinement: Confinement) -> None:
        asyncio.get_running_loop().call_later(_BREATH, self._refill, confinement)

    def fill(self) -> None:
        self._in_background(self._keep_stems())

    def _refill(self, confinement: Confinement) -> None:
        """What was used twice is worth a sandbox that waits; for any other there is the stem."""
        shape = confinement.shape
        if self._closed or shape in self._filling:
            return
        if shape in self._used:
            self._in_background(self._keep_warm(confinement))
        else:
            self.fill()
        self._used[shape] = None
        self._used.move_to_end(shape)
        if len(self._used) > _MOST_USED:
            self._used.popitem(last=False)

    async def _keep_warm(self, confinement: Confinement) -> None:
        shape = confinement.shape
        if self._machine.bwrap is not None and shape not in self._warm:
            self._filling.add(shape)
            try:
                made = await self.new(confinement)
            finally:
                self._filling.discard(shape)
            surplus = made if shape in self._warm else None  # two were made at once
            self._warm.setdefault(shape, made)
            if len(self._warm) > _MOST_WARM:
                surplus = self._warm.popitem(last=False)[1]
            if surplus is not None:
                await surplus.discard()
        await self._keep_stems()

    async def _keep_stems(self) -> None:
        async with self._starting:
            while len(self._stems) < _STEMS:
                self._stems.append(await self._new_stem())

    async def _new_stem(self) -> Stem:
        group = None if self._groups is None else self._groups.make()
        try:
            stem = await Stem.start(group)
        except BaseException:
            if group is not None:
                group.remove()
            raise
        if group is not None:
            self._of[stem.child] = group
            stem.child.exited.add_done_callback(partial(self._ended, stem.child))
        return stem

    def _ended(self, child: Child, _: object) -> None:
        group = self._of.pop(child, None)
        if group is not None:
            self._exceeded[child] = group.exceeded()
            group.remove()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the next call meets it too, and says so
