from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolpost.bus.embedded import Embedded


@pytest.fixture(scope="module")
async def nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Embedded]:
    """A real server; each test has a prefix of its own on it."""
    async with Embedded(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"t{abs(hash(str(tmp_path))):x}"
