"""What a server takes up without a restart: specs and policy; and what it does with broken ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.program import Program, program, refused
from toolpost.config import find
from toolpost.errors import ConfigError
from toolpost.gateway.serving import opened
from toolpost.gateway.settings import settings_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CONFIG = """
[[sources]]
kind = "files"
paths = ["tools.yaml"]

[extensions.policy]
file = "policy.toml"
"""
SPEC = """
- name: {name}
  description: Say hello.
  kind: shell
  effects: read
  tier: 0
  input_schema: {{type: object, properties: {{}}, additionalProperties: false}}
  binding: {{command: "{name} hello"}}
"""
DENIES = """
[[rules]]
id = "no-print"
decision = "deny"
reason = "Not today."
tool = "printf"
"""
ALLOWS = DENIES.replace('"deny"', '"allow"')
BACKEND = '\n[backends.shell]\nprograms = ["printf", "echo"]\n'


def put(folder: Path, name: str, text: str) -> None:
    """At once and whole, as editors do it."""
    (folder / "new").write_text(text, encoding="utf-8")
    os.replace(folder / "new", folder / name)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    folder = tmp_path_factory.mktemp("reload")
    put(folder, "tools.yaml", SPEC.format(name="printf"))
    put(folder, "policy.toml", DENIES)
    async with program(folder, config=CONFIG + BACKEND) as made:
        yield made


async def seen(served: Program, path: str, holds: Any) -> dict[str, Any]:
    """What is at this address, once it is so."""
    async with asyncio.timeout(30):
        while True:
            told: dict[str, Any] = (await served.get(path)).data
            if holds(told):
                return told
            await asyncio.sleep(0.05)


def names(listed: dict[str, Any]) -> list[str]:
    return [one["name"] for one in listed["tools"]]


async def code(served: Program) -> str:
    answer = await served.call("printf")
    return str(answer.data.get("code", answer.data.get("output")))


@pytest.mark.req("UX-2")
async def test_a_spec_file_that_changes_is_seen_without_a_restart(served: Program) -> None:
    folder = served.folder
    assert names((await served.get("/v1/tools")).data) == ["printf"]
    put(folder, "tools.yaml", SPEC.format(name="printf") + SPEC.format(name="echo"))
    await seen(served, "/v1/tools", lambda told: names(told) == ["echo", "printf"])
    assert (await served.call("echo")).data["output"].strip() == "hello"
    described = (await served.get("/openapi.json")).data["paths"]
    assert "/v1/tools/echo:call" in described
    put(folder, "tools.yaml", SPEC.format(name="printf") + "- {name: echo, kind")
    degraded = await seen(served, "/readyz", lambda told: told["degraded"])
    assert degraded["ready"] is True
    assert "tools.yaml:" in degraded["parts"]["source 1 (files)"]["error"]
    assert names((await served.get("/v1/tools")).data) == ["echo", "printf"]
    put(folder, "tools.yaml", SPEC.format(name="printf"))
    await seen(served, "/v1/tools", lambda told: names(told) == ["printf"])
    await seen(served, "/readyz", lambda told: not told["degraded"])
    assert (await served.call("echo")).status == 404


BROKEN = ("[[rules]\n", "", None, '[[rules]]\nid = "x"\n')
"""No TOML; no rules; no file; rules that are none."""


@pytest.mark.req("NA-1", "NA-3")
async def test_attack_a_policy_that_cannot_be_used_leaves_the_old_one_in_force_and_raises_an_alarm(
    served: Program,
) -> None:
    folder, said = served.folder, set[str]()
    assert await code(served) == "POLICY_DENIED"
    for broken in BROKEN:
        if broken is None:
            (folder / "policy.toml").unlink()
        else:
            put(folder, "policy.toml", broken)
        alarm = await seen(
            served,
            "/readyz",
            lambda told: told["parts"]["extension policy"].get("error", "") not in {"", *said},
        )
        assert (alarm["ready"], alarm["degraded"]) == (True, True)
        assert "policy.toml" in alarm["parts"]["extension policy"]["error"]
        said.add(alarm["parts"]["extension policy"]["error"])
        assert await code(served) == "POLICY_DENIED"
    put(folder, "policy.toml", ALLOWS)
    await seen(served, "/readyz", lambda told: not told["degraded"])
    assert await code(served) == "hello", "and what is good is in force without a restart"
    put(folder, "policy.toml", DENIES)
    async with asyncio.timeout(30):
        while await code(served) != "POLICY_DENIED":
            await asyncio.sleep(0.05)


@pytest.mark.req("NA-3")
async def test_attack_with_a_policy_that_cannot_be_used_it_does_not_even_start(
    tmp_path: Path,
) -> None:
    put(tmp_path, "tools.yaml", SPEC.format(name="printf"))
    status, told = await refused(tmp_path, CONFIG + BACKEND)
    assert status == 78
    assert "policy.toml" in told
    config = find(str(tmp_path / "toolpost.toml"))
    for broken in BROKEN:
        if broken is not None:
            put(tmp_path, "policy.toml", broken)
            with pytest.raises(ConfigError, match=r"policy\.toml"):
                async with opened(config, settings_of(config)):
                    pass
