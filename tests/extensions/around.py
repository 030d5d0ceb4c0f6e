"""What an extension is made with, for tests: a store in memory, the real clock, no secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from toolpost.clock import SystemClock
from toolpost.contracts import Record, Surroundings
from toolpost.stores.memory import MemoryStore


class Yielding(MemoryStore):
    """A store that lets others go first, as one on a disk does: whoever can race, races."""

    async def get(self, space: str, key: str) -> Record | None:
        await asyncio.sleep(0)
        return await super().get(space, key)

    async def put(self, space: str, key: str, value: Any, **more: Any) -> int | None:
        await asyncio.sleep(0)
        return await super().put(space, key, value, **more)


def surroundings(folder: Path, **changes: Any) -> Surroundings:
    store = MemoryStore()
    given: dict[str, Any] = {
        "records": store,
        "journal": store,
        "clock": SystemClock(),
        "base": folder,
        "state": folder / ".toolpost",
        "mode": "standard",
        "secret": lambda name: None,
    }
    return Surroundings(**given | changes)
