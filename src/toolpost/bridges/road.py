"""The way from a bridge's own executor to toolpost's: one of yours, or one for each event loop.

Above: the bridges that have an executor or a container of their own. Below: the executor. The tools
are those of one registry, the bridge's; where they run, another follows it change by change. What
a contract calls its tools and its results is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from toolpost.contracts import Extension
from toolpost.errors import NameTaken
from toolpost.executor import Executor
from toolpost.registry import Entry, Registry

if TYPE_CHECKING:
    from toolpost.runtime import Runtime

_log = logging.getLogger("toolpost")
_TAKEN: Final = "the name %s is taken where the tools run: it cannot be called"


class Road:
    """``over`` is an executor or a runtime of yours: the tools are put into its registry. Without
    one there is an executor for each event loop, with ``guards`` of its own, in which the entries
    are as ``alone`` makes them.
    """

    def __init__(
        self,
        registry: Registry,
        over: Executor | Runtime | None = None,
        *,
        guards: Callable[[], Sequence[Extension]] = tuple,
        alone: Callable[[Entry], Entry] = lambda entry: entry,
    ) -> None:
        self._registry, self._over, self._guards = registry, over, guards
        self._as_put = alone if over is None else lambda entry: entry
        self._target = Registry() if over is None else over.registry
        self._own: dict[asyncio.AbstractEventLoop, Executor] = {}
        self._changing = Lock()
        there = [entry for spec in registry if (entry := registry.entry(spec.name)) is not None]
        self._put = {entry.spec.name: self._as_put(entry) for entry in there}
        self._target.add(*self._put.values())
        self._deaf = registry.listen(self._follow if over is not None else _weakly(self._follow))
        if over is None:  # many an executor is made for one call, and never closed
            weakref.finalize(self, self._deaf)

    async def here(self) -> Executor | Runtime:
        """What runs the calls of the loop that is running."""
        if self._over is not None:
            return self._over
        loop = asyncio.get_running_loop()
        executor = self._own.get(loop)
        if executor is None:
            for gone in [one for one in tuple(self._own) if one.is_closed()]:
                await _ended(self._own.pop(gone, None))
            executor = self._own[loop] = Executor(self._target, guards=self._guards())
        return executor

    def has(self, name: str) -> bool:
        """Whether a call of this name would come to a tool of the bridge."""
        return name in self._put and self._target.entry(name) == self._put[name]

    async def close(self) -> None:
        """Close what is ours; an executor of yours is only rid of the tools."""
        self._deaf()
        for loop in tuple(self._own):
            await _ended(self._own.pop(loop, None))
        with self._changing:
            for name in tuple(self._put):
                self._drop(name)

    def _follow(self, changed: frozenset[str]) -> None:
        """Called in whatever thread has changed the registry."""
        with self._changing:
            for name in sorted(changed):
                entry = self._registry.entry(name)
                if entry is None:
                    self._drop(name)
                elif self._target.entry(name) in (None, self._put.get(name)):
                    self._place(name, self._as_put(entry))
                else:
                    _log.error(_TAKEN, name)

    def _place(self, name: str, entry: Entry) -> None:
        try:
            self._target.replace(entry)
        except NameTaken:
            _log.error(_TAKEN, name)
        else:
            self._put[name] = entry

    def _drop(self, name: str) -> None:
        put = self._put.pop(name, None)
        if put is not None and self._target.entry(name) == put:
            self._target.remove(name)


def _weakly(follow: Callable[[frozenset[str]], None]) -> Callable[[frozenset[str]], None]:
    method = weakref.WeakMethod(follow)

    def told(changed: frozenset[str]) -> None:
        if (there := method()) is not None:
            there(changed)

    return told


async def _ended(executor: Executor | None) -> None:
    """Of a loop that is closed, what ran in it went with it."""
    if executor is not None:
        with suppress(RuntimeError):
            await executor.close()
