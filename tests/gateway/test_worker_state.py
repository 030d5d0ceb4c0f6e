"""Two keys at a real gateway: neither meets the other in a worker, nor waits for the other's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.backends import state_tools
from tests.backends.test_worker_state import (  # noqa: F401 - two are fixtures
    ATTACKS,
    STEAL,
    TOLD,
    isolation,
    sandbox,
    tools,
    until,
)
from tests.gateway.running import Answer, Running, serving
from tests.gateway.test_callers import key

pytestmark = pytest.mark.anyio

ACCESS = {"access": {"default": {"see": ["*"], "call": ["*"]}}}


def settings(**python: Any) -> dict[str, Any]:
    return {"extensions": ACCESS, "backends": {"python": python}}


async def output(served: Running, who: dict[str, str], called: str, /, **arguments: Any) -> Any:
    answer: Answer = await served.call(called, arguments, who)
    assert answer.status == 200, answer.data
    return answer.data["output"]


async def test_attack_a_key_never_receives_what_another_key_sends(
    isolation: str,  # noqa: F811 - as above
    tmp_path: Path,
) -> None:
    found = tools(isolation, tier=1)
    config = settings(workers=1, extra_workers=0)
    async with serving(tmp_path, *found, settings=config, auth={"keys": True}) as served:
        eve, bob = await key(served, "eve"), await key(served, "bob")
        for attack in ATTACKS.values():
            await output(served, bob, "greet", name="nobody")
            await output(served, eve, "run_code", code=attack)
            assert await output(served, bob, "greet", name=TOLD) == f"Hello {TOLD}"
            assert TOLD not in repr(await output(served, eve, "run_code", code=STEAL))


async def test_long_calls_of_one_key_do_not_hold_up_another_key(tmp_path: Path) -> None:
    file = tmp_path / "go"
    found = tools("process")
    async with serving(tmp_path, *found, settings=settings(), auth={"keys": True}) as served:
        eve, bob = await key(served, "eve"), await key(served, "bob")
        held = [
            asyncio.create_task(output(served, eve, "wait_for", file=str(file))) for _ in range(12)
        ]
        await until(file, 10)  # as many as the tool has slots
        assert await output(served, bob, "greet", name="Bob") == "Hello Bob"
        assert not any(one.done() for one in held)
        file.touch()
        assert await asyncio.gather(*held) == ["waited"] * 12


async def test_a_key_that_holds_every_worker_leaves_one_for_each_other_key(tmp_path: Path) -> None:
    file = tmp_path / "go"
    found = tools("process")
    config = settings(workers=2, extra_workers=2)
    async with serving(tmp_path, *found, settings=config, auth={"keys": True}) as served:
        eve, bob, ann = [await key(served, name) for name in ("eve", "bob", "ann")]
        held = [
            asyncio.create_task(output(served, eve, "wait_for", file=str(file))) for _ in range(9)
        ]
        await until(file, 2)
        for who in (bob, ann, bob):
            answer = await served.call("greet", {"name": "you"}, who)
            assert answer.data.get("output") == "Hello you", answer.data
            assert answer.data["metadata"]["waited_ms"] > 0
        assert [one for one in held if one.done()] == []
        file.touch()
        assert await asyncio.gather(*held) == ["waited"] * 9
    assert state_tools.heard == []
