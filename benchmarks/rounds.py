"""How a call is timed: interleaved rounds, and the ratio inside each round.

Above it are the sections; below it only the clock. Another tenant of the machine slows a whole
round, so every contender runs once in each round and is compared with its neighbours of that round:
the median of those ratios is what is reported, the best round stands beside it. Knows no contender
by name.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

Call = Callable[[], Awaitable[Any]]

WARM_UP_CALLS = 5
MOST_CALLS_A_SLICE = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a run may take: rounds of a timed call, fresh processes, the peers' registries."""

    name: str
    rounds: int
    slice_seconds: float
    processes: int
    sizes: tuple[int, ...]


FULL = Effort(name="full", rounds=25, slice_seconds=0.012, processes=5, sizes=(10, 1_000, 10_000))
QUICK = Effort(name="quick", rounds=7, slice_seconds=0.004, processes=2, sizes=(1_000,))


@dataclass(frozen=True, slots=True)
class Series:
    """One figure per round, in seconds (or in whatever unit the section measures)."""

    rounds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def ratio(self, base: Series) -> float:
        """How many times the base: the median over rounds of (this / base)."""
        return statistics.median(a / b for a, b in zip(self.rounds, base.rounds, strict=True))

    def above(self, base: Series) -> float:
        """What this adds to the base: the median over rounds of (this - base)."""
        return statistics.median(a - b for a, b in zip(self.rounds, base.rounds, strict=True))


async def interleave(calls: Mapping[str, Call], effort: Effort) -> dict[str, Series]:
    """Time every call, one slice of each per round; seconds a call."""
    counts = {name: await _calls_a_slice(call, effort) for name, call in calls.items()}
    series = {name: Series() for name in calls}
    settle()
    for number in range(effort.rounds):
        for name in turn(tuple(calls), number):
            series[name].rounds.append(await _spin(calls[name], counts[name]))
            await asyncio.sleep(0)  # its housekeeping stays out of the next slice
    return series


def turn(names: Sequence[str], number: int) -> Sequence[str]:
    """The order of one round: every other one backwards, so none always follows the same one."""
    return names if number % 2 == 0 else names[::-1]


def settle() -> None:
    """What start-up left behind is collected now and not scanned again during the rounds."""
    gc.collect()
    gc.freeze()


async def _spin(call: Call, count: int) -> float:
    began = time.perf_counter_ns()
    for _ in repeat(None, count):
        await call()
    return (time.perf_counter_ns() - began) / count / 1e9


async def _calls_a_slice(call: Call, effort: Effort) -> int:
    for _ in range(WARM_UP_CALLS):
        await call()
    count = 1
    while (spent := await _spin(call, count) * count) < effort.slice_seconds / 4:
        if count >= MOST_CALLS_A_SLICE:
            return MOST_CALLS_A_SLICE
        count *= 4
    return max(1, min(MOST_CALLS_A_SLICE, int(count * effort.slice_seconds / spent)))
