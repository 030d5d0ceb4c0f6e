"""HTTP tools on the whole road: declared in a file, governed as any other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.http.service import Asked, Reply, Service, http, serving
from toolpost import Result, Runtime

pytestmark = pytest.mark.anyio


async def called(folder: Path, service: Service, **options: Any) -> Result:
    """The result of a tool that a file declares."""
    spec = http(service.url, service, **options)
    (folder / "tools.json").write_text(json.dumps([spec.to_dict()]))
    (folder / "toolpost.toml").write_text('[[sources]]\nkind = "files"\npaths = ["tools.json"]\n')
    async with Runtime.open(folder / "toolpost.toml") as runtime, asyncio.timeout(60):
        return await runtime.execute("it")


@pytest.mark.req("FM-7", "FM-11", "UX-3")
@pytest.mark.parametrize(
    ("effects", "status", "attempts"),
    [
        ("read", 503, 2),
        ("idempotent", 503, 2),
        ("once", 503, 1),
        ("once", 429, 2),
        ("once", 500, 1),
        ("read", 404, 1),
    ],
)
async def test_what_may_be_repeated_is_and_what_may_have_been_done_is_not(
    tmp_path: Path, effects: str, status: int, attempts: int
) -> None:
    def answers(asked: Asked) -> Reply:
        first = len(service.asked) == 1
        return Reply("", status, headers={"Retry-After": "0"}) if first else Reply('"second"')

    async with serving(answers) as service:
        result = await called(tmp_path, service, effects=effects, method="POST")
    assert len(service.asked) == attempts
    assert result.metadata.attempts == attempts
    assert result.success == (attempts == 2)


async def test_a_request_that_was_never_sent_may_be_sent_again(tmp_path: Path) -> None:
    async with serving() as service:
        pass
    result = await called(tmp_path, service, effects="once", method="POST")
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
    assert result.metadata.attempts == 3
