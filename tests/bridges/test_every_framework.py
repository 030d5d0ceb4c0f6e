"""The same tools under every framework, in process and through MCP: what the model is told and what
the audit has are the same.

LangChain's own MCP adapters want the SDK before version 2 and cannot stand beside ours: there, and
for the plain SDKs, it is the MCP SDK's client that speaks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bridges.scripted import (
    Script,
    through_langchain,
    through_openai_agents,
    through_pydantic_ai,
    through_sdk,
)
from tests.gateway.mcp.running import Running, serving
from toolpost import (
    Caller,
    Failure,
    Metadata,
    MissingPart,
    Result,
    Text,
    ToolFailed,
    ToolSpec,
    tool,
)
from toolpost.approvals import Decision
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = pytest.mark.anyio
BOT = Caller("key-1", user="ann", agent="bot")
ANN = Caller("ann-at-home", user="ann")


@tool(effects="read")
async def population(city: str) -> dict[str, Any]:
    """How many people live in a city."""
    return {"city": city, "people": 134_794}


@tool
async def note(text: str) -> int:
    """Write a note, and tell how many letters it has."""
    return len(text)


@tool(name="page.fetch", effects="read")
async def fetch(url: str) -> str:
    """Fetch a page."""
    raise ToolFailed(f"There is no page at {url}. Try another address.")


@tool(requires_approval=True)
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


PAY = ("pay", {"to": "bob", "amount": 5})
WAITS = "This call waits for a person's yes as ap-…"
FAILED = (
    "There is no page at x. Try another address.\n"
    "[EXECUTION_ERROR; remedy: fix_args; effects: none]"
)
HEARD = [
    [{"city": "Bern", "people": 134_794}, 5],
    [FAILED],
    [WAITS],
    ["paid 5 to bob"],
]
AUDIT = sorted(
    [
        ("population", "OK", "none", "key-1", "ann", "bot", None),
        ("note", "OK", "done", "key-1", "ann", "bot", None),
        ("page.fetch", "EXECUTION_ERROR", "none", "key-1", "ann", "bot", None),
        ("pay", "APPROVAL_REQUIRED", "none", "key-1", "ann", "bot", None),
        ("pay", "APPROVED", "none", "ann-at-home", "ann", None, None),
        ("pay", "OK", "done", "key-1", "ann", "bot", None),
    ]
)
FRAMEWORKS = (
    "langchain",
    "pydantic-ai",
    "openai-agents",
    "openai",
    "openai-responses",
    "anthropic",
)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[Running, Script]]:
    rings = {"observers": ["audit"], "guards": ["approval"]}
    async with serving([population, note, fetch, pay], folder, **rings) as running:
        running.caller = BOT

        async def say_yes() -> None:
            approvals = running.runtime.extension("approval").approvals
            (request,) = await approvals.waiting()
            yes = Decision(approve=True)
            await approvals.decide(request.handle, yes, by=ANN, channel="console")

        rounds = [("population", {"city": "Bern"}), ("note", {"text": "hello"})]
        yield (
            running,
            Script(
                rounds, [("page.fetch", {"url": "x"})], [PAY], [PAY], "Done.", before={4: say_yes}
            ),
        )


async def audit(running: Running) -> list[tuple[Any, ...]]:
    runtime = running.runtime
    await runtime.extension("audit").close()  # what is still in its hands is written
    found = [one async for one in calls(lines_of(runtime.store))]
    return sorted(
        (
            one.asked.tool,
            one.code,
            one.ended.outcome,
            *msgspec.structs.astuple(one.asked.caller),
        )
        for one in found
        if one.ended is not None and one.asked.caller is not None
    )


def said(script: Script) -> list[list[Any]]:
    return [[_unnumbered(one) for one in told] for told in script.heard]


def _unnumbered(one: Any) -> Any:
    """A request has another handle every time, and many words."""
    return re.sub(r"ap-[0-9a-f]+:.*", "ap-…", one, flags=re.DOTALL) if type(one) is str else one


class OverMcp:
    """The tools behind a client of the MCP SDK, as the loop and the bridges want them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def list(self) -> list[ToolSpec]:
        listed = await self._client.list_tools()
        return [
            ToolSpec(name=one.name, description=one.description, input_schema=one.input_schema)
            for one in listed.tools
        ]

    async def execute(self, name: str, arguments: dict[str, Any]) -> Result:
        answer = await self._client.call_tool(name, arguments)
        if answer.is_error:
            error = msgspec.convert(answer.meta["toolpost/error"], Failure)
            return Result(error=error, metadata=Metadata(answer.meta["toolpost/call_id"]))
        return Result(parts=tuple(Text(one.text) for one in answer.content))


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_in_process_every_framework_is_told_the_same_and_leaves_the_same_audit(
    framework: str, tmp_path: Path
) -> None:
    from toolpost.bridges import langchain, openai_agents, pydantic_ai

    async with world(tmp_path) as (running, script):
        tools = running.runtime
        match framework:
            case "langchain":
                await through_langchain(script, await langchain.tools(tools, caller=BOT))
            case "pydantic-ai":
                await through_pydantic_ai(script, pydantic_ai.Toolset(tools, caller=BOT))
            case "openai-agents":
                await through_openai_agents(
                    script, tools=await openai_agents.tools(tools, caller=BOT)
                )
            case form:
                await through_sdk(script, tools, form, caller=BOT)
        assert said(script) == HEARD
        assert await audit(running) == AUDIT


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_through_mcp_every_framework_is_told_the_same_and_leaves_the_same_audit(
    framework: str, tmp_path: Path
) -> None:
    from mcp import Client

    from toolpost.bridges import langchain

    async with world(tmp_path) as (running, script):
        match framework:
            case "langchain":
                async with Client(running.url) as client:
                    await through_langchain(script, await langchain.tools(OverMcp(client)))
            case "pydantic-ai":
                await with_mcp_of_pydantic_ai(script, running.url)
            case "openai-agents":
                await with_mcp_of_openai_agents(script, running.url)
            case form:
                async with Client(running.url) as client:
                    await through_sdk(script, OverMcp(client), form)
        assert said(script) == HEARD
        assert await audit(running) == AUDIT


async def with_mcp_of_pydantic_ai(script: Script, url: str) -> None:
    from pydantic_ai.mcp import MCPToolset

    await through_pydantic_ai(script, MCPToolset(url, tool_error_behavior="failed"))


async def with_mcp_of_openai_agents(script: Script, url: str) -> None:
    from agents.mcp import MCPServerStreamableHttp

    async with MCPServerStreamableHttp({"url": url}, client_session_timeout_seconds=60) as server:
        await through_openai_agents(script, mcp_servers=[server])


@pytest.mark.parametrize(
    ("bridge", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("openai_agents", "agents", "openai-agents"),
    ],
)
def test_without_its_extra_a_bridge_says_which_to_install(
    bridge: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == package or name == f"toolpost.bridges.{bridge}":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPart, match=re.escape(f'pip install "toolpost[{extra}]"')):
        import_module(f"toolpost.bridges.{bridge}")
