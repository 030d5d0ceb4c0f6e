"""The calls that are running through this door, so that whoever made one can stop it.

Above: the routes. Below: asyncio. A call is its id, its caller and the task that waits for it; what
runs behind the task is stopped by cancelling it, as a closed connection does. It refuses to know
jobs, which outlive their requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time
from typing import Any, NamedTuple

from toolpost.approvals.values import principal
from toolpost.call import Caller


class Running(NamedTuple):
    """One call on its way."""

    tool: str
    caller: Caller
    task: asyncio.Task[Any]
    since: float


class InFlight:
    """``enter`` and ``leave`` are on the way of every call: they are two steps in a dict."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[str, Caller, asyncio.Task[Any], float]] = {}
        self._stopped: set[str] = set()
        self.stopping = False
        """Whether the server has been told to stop, and only finishes what it has."""

    def enter(self, call_id: str, tool: str, caller: Caller, task: asyncio.Task[Any]) -> None:
        self._running[call_id] = (tool, caller, task, time())

    def leave(self, call_id: str) -> None:
        del self._running[call_id]
        if self._stopped:
            self._stopped.discard(call_id)

    def __len__(self) -> int:
        return len(self._running)

    def of(self, caller: Caller) -> Sequence[tuple[str, Running]]:
        """The calls of one caller, the oldest first."""
        running = [(call_id, Running(*one)) for call_id, one in self._running.items()]
        return [(call_id, one) for call_id, one in running if _same(one.caller, caller)]

    def stop(self, call_id: str, caller: Caller) -> bool:
        """Cancel a call, if it is this caller's; another's is not there."""
        if (found := self._running.get(call_id)) is None:
            return False
        one = Running(*found)
        if not _same(one.caller, caller):
            return False
        self._stopped.add(call_id)
        one.task.cancel()
        return True

    def another_s(self, call_id: str, caller: Caller) -> Running | None:
        """The call of this id, if somebody else has made it."""
        found = self._running.get(call_id)
        return None if found is None or _same(found[1], caller) else Running(*found)

    def was_stopped(self, call_id: str) -> bool:
        """Whether its caller stopped it, and has not just gone away."""
        return call_id in self._stopped


def _same(one: Caller, other: Caller) -> bool:
    return one is other or principal(one) == principal(other)
