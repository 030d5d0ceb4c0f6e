"""``toolpost search``: a tool is found by what it does, here and at a gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.program import inside
from tests.gateway.gateway_tools import ALL
from tests.gateway.running import serving
from toolpost.client import Client
from toolpost.errors import CallError


def test_the_best_tools_are_shown_in_a_table_that_fits(project: Path) -> None:
    done = inside("search", "sum", "two", "numbers", cwd=project)
    head, _, first, *_ = done.stdout.splitlines()
    assert head.split() == ["name", "what", "it", "does", "tier"]
    assert first.split() == ["add", "Add", "two", "numbers.", "0", "safe"]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_programs_get_the_public_spec_and_a_score(project: Path) -> None:
    found = json.loads(inside("search", "join words", "--limit", "1", "--json", cwd=project).stdout)
    assert [(one["name"], 0 < one["score"] <= 1) for one in found] == [("join", True)]
    assert "binding" not in found[0]


def test_what_nothing_fits_is_said_and_no_error(project: Path) -> None:
    done = inside("search", "?!", cwd=project)
    assert (done.returncode, done.stdout) == (0, "")
    assert "toolpost list" in done.stderr


def test_an_empty_query_says_what_to_write(project: Path) -> None:
    done = inside("search", " ", cwd=project)
    assert done.returncode == 3
    assert "say what the tool should do" in done.stderr


@pytest.mark.anyio
async def test_the_tools_of_a_gateway_are_searched_there(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL) as running:
        async with Client(running.url) as client:
            found = await client.search("add two numbers", limit=2)
            assert found[0].spec.name == "add"
            assert len(found) <= 2
            with pytest.raises(CallError, match="search"):
                await client.search("")

        words = ("--url", running.url, "search", "add numbers", "--json")
        done = await asyncio.to_thread(inside, *words, cwd=tmp_path)
        assert json.loads(done.stdout)[0]["name"] == "add"
