"""What an extension is made with, for tests: a store in memory, the real clock, no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolpost.clock import SystemClock
from toolpost.contracts import Surroundings
from toolpost.stores.memory import MemoryStore


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
