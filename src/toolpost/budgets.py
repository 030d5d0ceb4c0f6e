"""What a session may still do: calls and cost units, kept for all processes that share a store.

Above: the ring that limits calls. Below: ``Records``. Each process draws a portion of what is left
and pays from that, so that most calls do not ask the store. A process that is killed takes what it
had drawn with it: a session may get a little less than its budget, and never more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Final, Literal

from toolpost.contracts import Records

_SPACE: Final = "budgets"
_KEPT: Final = 30 * 86400.0
"""Seconds that a budget is remembered after it was last drawn on."""
_PORTIONS: Final = 16
"""A process draws this part of what is left."""
_ROUNDING: Final = 1e-9


class Purse:
    """What is at hand in this process, of one session."""

    __slots__ = ("_turn", "calls", "cost", "key")

    def __init__(self, calls: float, cost: float) -> None:
        self.calls, self.cost, self.key = calls, cost, ""
        self._turn: asyncio.Lock | None = None

    @property
    def turn(self) -> asyncio.Lock:
        """For one who draws at a time; most sessions never need it."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    def pay(self, price: float) -> bool:
        """Whether it was enough for one more call."""
        if self.calls < 1 or self.cost + _ROUNDING < price:
            return False
        self.calls -= 1
        self.cost -= price
        return True

    def put(self, calls: float, cost: float) -> None:
        """So much more: drawn, or paid for a call that was then not made."""
        self.calls += calls
        self.cost += cost


class Budgets:
    """``calls`` and ``cost`` of every session; 0 is no limit. Without records, in this process."""

    def __init__(self, calls: float, cost: float, *, records: Records | None) -> None:
        self._calls, self._cost = calls or inf, cost or inf
        self._records = records

    def purse(self) -> Purse:
        """A new one: with records there is nothing in it yet of what has a limit."""
        if self._records is None:
            return Purse(self._calls, self._cost)
        return Purse(*(limit if limit == inf else 0.0 for limit in (self._calls, self._cost)))

    async def draw(self, purse: Purse, key: str, price: float) -> Literal["calls"] | float | None:
        """Pay for one more call after drawing what it takes; else what there is too little of:
        calls, or cost units, and then how many are spent.
        """
        if self._records is None:
            return "calls" if purse.calls < 1 else self._cost - purse.cost
        purse.key = key
        async with purse.turn:
            while not purse.pay(price):
                record = await self._records.get(_SPACE, key)
                calls, cost = (0.0, 0.0) if record is None else record.value
                few, little = max(0.0, 1 - purse.calls), max(0.0, price - purse.cost)
                if self._calls - calls < few:
                    return "calls"
                if self._cost - cost + _ROUNDING < little:
                    return cost - purse.cost
                many = max(few, _portion(self._calls - calls) // 1)
                much = max(little, _portion(self._cost - cost))
                value, version = [calls + many, cost + much], record.version if record else 0
                put = self._records.put(_SPACE, key, value, version=version, ttl=_KEPT)
                if await put is not None:
                    purse.put(many, much)
        return None

    async def settle(self, purses: Iterable[Purse]) -> None:
        """Give back what was drawn and not spent."""
        for purse in list(purses):
            back = [0.0 if part == inf else part for part in (purse.calls, purse.cost)]
            if self._records is not None and purse.key and any(back):
                purse.put(-back[0], -back[1])
                await _give_back(self._records, purse.key, back)


def _portion(left: float) -> float:
    return 0.0 if left == inf else left / _PORTIONS


async def _give_back(records: Records, key: str, back: list[float]) -> None:
    while (record := await records.get(_SPACE, key)) is not None:
        value = [max(0.0, had - part) for had, part in zip(record.value, back, strict=True)]
        if await records.put(_SPACE, key, value, version=record.version, ttl=_KEPT) is not None:
            return
