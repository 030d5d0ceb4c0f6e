"""The official conformance suite for clients, run against the MCP backend, in both eras."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests import servers
from tests.gateway.mcp.running import HANDSHAKE, MODERN, ended

pytestmark = [pytest.mark.anyio, servers.needed, pytest.mark.verify]

PASSED: Final[dict[str, dict[str, int]]] = {
    HANDSHAKE: {
        "elicitation-sep1034-client-defaults": 5,
        "initialize": 1,
        "json-schema-2020-12-preservation": 9,
        "sse-retry": 3,
        "tools_call": 2,
    },
    MODERN: {
        "http-custom-headers": 18,
        "http-invalid-tool-headers": 12,
        "http-standard-headers": 3,
        "json-schema-2020-12-preservation": 9,
        "json-schema-ref-no-deref": 1,
        "request-metadata": 6,
        "sep-2322-client-request-state": 5,
        "tools_call": 2,
    },
}
"""Scenario → how many of its checks are passed; those that are only told do not count."""
LEFT_OUT: Final = {
    "auth/": "the backend sends a secret of the config and asks nobody to log in: no OAuth client",
    "sep-2640-client-": "an extension: there are no skills here",
}
"""What the names of scenarios begin with → why they are not run."""
NOT_ASKED: Final = {
    "sep-2575-client-declares-roots-capability": "the backend has no roots to give",
    "sep-2575-client-declares-sampling-capability": "the backend has no model to lend",
    "sep-2243-client-includes-standard-headers": "it reads no resources and gets no prompts",
    "sep-2106-client-composition-keywords-preserved": "only said of the later revision",
}
"""Checks that the suite itself skips, as it finds nothing to look at."""


async def test_every_scenario_for_clients_is_run_or_left_out_for_a_reason() -> None:
    status, out, err = await ended(servers.npm("conformance", "list"))
    assert status == 0, err
    listed = out.partition("Client scenarios")[2].partition("\n\n")[0]
    found = dict(re.findall(r"^  - (\S+) \[(.*)\]$", listed, re.MULTILINE))
    run = {name for some in PASSED.values() for name in some}
    assert {one for one in found if not one.startswith(tuple(LEFT_OUT))} == run
    for revision, some in PASSED.items():
        of_it = {name for name in run if revision in found[name].split(",")}
        assert of_it == some.keys()


@pytest.mark.req("UX-6")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_the_official_suite_for_clients_finds_nothing(revision: str, tmp_path: Path) -> None:
    few = asyncio.Semaphore(3)

    async def checks(name: str) -> list[Any]:
        program = f"{sys.executable} -m tests.backends.mcp.conforming"
        words = ("client", "--command", program, "--scenario", name, "--spec-version", revision)
        async with few:
            _, out, err = await ended(
                [*servers.npm("conformance", *words), "-o", str(tmp_path / name)],
                PYTHONPATH=":".join(sys.path),
            )
        (file,) = (tmp_path / name).rglob("checks.json")
        found = json.loads(file.read_text())
        bad = [one for one in found if one["status"] in ("FAILURE", "WARNING")]
        odd = [one for one in found if one["status"] == "SKIPPED" and one["id"] not in NOT_ASKED]
        assert (bad, odd) == ([], []), out + err
        return found

    some = PASSED[revision]
    every = await asyncio.gather(*map(checks, some))
    passed = {
        name: sum(one["status"] == "SUCCESS" for one in found)
        for name, found in zip(some, every, strict=True)
    }
    assert passed == some
