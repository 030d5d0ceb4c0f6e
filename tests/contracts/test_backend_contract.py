"""The socket of backends: one suite over every occupant, and one written in a few lines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.backends import python_tools
from tests.backends.http.service import Asked, Reply, forever, http, serving
from toolpost import Call, Registry, ToolFailed, ToolSpec, tool
from toolpost.backends.http.backend import HttpBackend
from toolpost.backends.mcp.backend import McpBackend
from toolpost.backends.python.backend import PythonBackend
from toolpost.contracts import Health, Services
from toolpost.testing import check_backend

pytestmark = pytest.mark.anyio


class Table:
    """A kind of its own: look a word up in a table that the spec carries."""

    def bind(self, spec: ToolSpec, target: object | None) -> TableHandle:
        return TableHandle(spec.binding["words"])

    async def close(self) -> None:
        pass


class TableHandle:
    def __init__(self, words: dict[str, str]) -> None:
        self.words = words

    async def run(self, call: Call) -> str:
        if call.arguments["word"] == "wait":
            await asyncio.get_running_loop().create_future()
        if call.arguments["word"] not in self.words:
            raise ToolFailed("Not in the table.")
        return self.words[call.arguments["word"]]

    async def health(self) -> Health:
        return Health(bool(self.words))

    async def close(self) -> None:
        pass


TABLE = ToolSpec(
    name="look_up",
    description="Look a word up.",
    kind="table",
    binding={"words": {"one": "eins"}},
    input_schema={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
)


@tool
async def waits() -> None:
    """Wait for ever."""
    await asyncio.get_running_loop().create_future()


@pytest.mark.req("UX-10")
async def test_a_kind_written_in_twenty_lines_keeps_the_contract() -> None:
    report = await check_backend(
        Table(), TABLE, {"word": "one"}, "eins", slow=(TABLE, {"word": "wait"})
    )
    report.raise_if_failed()
    assert report.outcome("timeout") == "passed"


async def test_a_tool_that_is_never_slow_is_not_judged_for_it() -> None:
    report = await check_backend(Table(), TABLE, {"word": "one"}, "eins")
    report.raise_if_failed()
    assert report.outcome("timeout") == report.outcome("cancellation") == "not applicable"


@pytest.mark.req("UX-3", "UX-5")
@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
@pytest.mark.parametrize("function", ["plain_add", "plain_async_add"])
async def test_python_keeps_the_contract_wherever_it_runs(isolation: Any, function: str) -> None:
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    spec = ToolSpec(
        name="add",
        description="Add.",
        binding={"module": python_tools.__name__, "function": function},
        input_schema={"type": "object", "properties": numbers},
        isolation=isolation,
    )
    slow = {
        "inline": ((waits.spec, {}), waits),
        "process": ((python_tools.spins.spec, {"seconds": 60}), python_tools.spins),
    }.get(isolation, (None, None))
    report = await check_backend(
        PythonBackend(), spec, {"a": 1, "b": 2}, 3, slow=slow[0], slow_target=slow[1]
    )
    report.raise_if_failed()
    assert report.subject == "python"


@pytest.mark.req("UX-3")
async def test_http_keeps_the_contract() -> None:
    def answers(asked: Asked) -> Any:
        return forever if asked.target == "/slow" else Reply('"eins"')

    async with serving(answers) as service:
        spec = http(service.url + "/{word}", service, input_schema=TABLE.input_schema)
        report = await check_backend(
            HttpBackend(), spec, {"word": "one"}, "eins", slow=(spec, {"word": "slow"})
        )
    report.raise_if_failed()
    assert report.outcome("timeout") == report.outcome("cancellation") == "passed"


@servers.needed
@pytest.mark.req("UX-3", "UX-6")
async def test_mcp_keeps_the_contract(tmp_path: Path) -> None:
    settings = {"mcp": {"servers": {"odd": servers.odd(tmp_path)}}}
    add, wait = (
        ToolSpec(
            name=name,
            description="A tool of a server.",
            kind="mcp",
            binding={"server": "odd", "tool": name},
            input_schema={"type": "object"},
        )
        for name in ("add", "wait")
    )
    report = await check_backend(
        McpBackend(Services(settings=settings)), add, {"a": 1, "b": 2}, "3", slow=(wait, {})
    )
    report.raise_if_failed()
    assert report.outcome("timeout") == report.outcome("cancellation") == "passed"


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"expected": "zwei"}, {"success", "concurrency", "reload"}),
        ({"arguments": {"word": "two"}}, {"success", "concurrency", "reload"}),
        ({"slow": (TABLE, {"word": "one"})}, {"timeout", "cancellation"}),
        ({"slow": (TABLE, {"word": "two"})}, {"timeout", "cancellation"}),
    ],
    ids=["another output", "a failure", "not slow", "not slow but failing"],
)
async def test_what_does_not_hold_is_found_out(change: Any, failed: set[str]) -> None:
    given = {"arguments": {"word": "one"}, "expected": "eins", **change}
    report = await check_backend(
        Table(), TABLE, given["arguments"], given["expected"], slow=given.get("slow")
    )
    assert {item.name for item in report.failed} == failed


class Bad(Table):
    def bind(self, spec: ToolSpec, target: object | None) -> Any:
        return BadHandle(spec.binding["words"])

    async def close(self) -> None:
        raise OSError("stuck")


class BadHandle(TableHandle):
    async def run(self, call: Call) -> str:
        try:
            return await super().run(call)
        except asyncio.CancelledError:
            raise ToolFailed("Cancelled, and kept it.") from None

    async def health(self) -> Any:
        return True


async def test_a_backend_that_breaks_the_contract_is_found_out() -> None:
    report = await check_backend(
        Bad(), TABLE, {"word": "one"}, "eins", slow=(TABLE, {"word": "wait"})
    )
    assert {item.name for item in report.failed} == {"health", "close"}
    assert "OSError: stuck" in str(report)


def test_the_specs_here_can_be_registered() -> None:
    assert [s.name for s in Registry([TABLE, waits])] == ["look_up", "waits"]
