"""What a tool receives is what was sent, or the call is refused; what was redacted in an output is
said in the text that a model and a person read, in every interface.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest
from mcp import Client, StdioServerParameters

from tests.bridges.scripted import Script, through_langchain, through_openai_agents, through_sdk
from tests.cli.program import Terminal, toolpost
from tests.gateway import running as rest
from tests.gateway.mcp.running import call, gateway
from tests.redact_corpus import made
from toolpost import Executor, Registry, tool
from toolpost.client import Client as GatewayClient
from toolpost.document.strict import NotStrictJson, explain
from toolpost.errors import InvalidSpec
from toolpost.extensions.log import setup
from toolpost.extensions.sanitize import Sanitize
from toolpost.schema import Schema
from toolpost.spec import ToolSpec
from toolpost.wording import short

pytestmark = pytest.mark.anyio
TOKEN = "gh" + "p_" + made(36)
SAYS = "Redacted in the output: email at /mail."
MARK = "[redacted:email]"

CONFIG = """
[[sources]]
kind = "builtin"
tools = ["files"]
[sources.files]
roots = ["workspace"]
[[sources]]
kind = "modules"
modules = ["crm"]
"""
MODULE = '''
from typing import Annotated
from pydantic import Field
from toolpost import ToolFailed, tool

CUSTOMERS = {"ada@example.org": "Ada"}

@tool(effects="read")
async def find_customer(email: str) -> str:
    """Find a customer by e-mail address."""
    if email not in CUSTOMERS:
        raise ToolFailed(f"no customer with {email}")
    return CUSTOMERS[email]

@tool(effects="read", labels={"external": "true"})
async def look_up(name: str) -> dict[str, str]:
    """Look up somebody elsewhere."""
    return {"name": name, "mail": "ada@example.org"}

@tool(effects="read")
async def log_in(password: Annotated[str, Field(json_schema_extra={"x-secret": True})]) -> int:
    """Log in with a password."""
    return len(password)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    (tmp_path / "crm.py").write_text(MODULE)
    return tmp_path


def over_stdio(project: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolpost", "--config", str(project / "toolpost.toml"), "mcp"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), *sys.path])},
    )


LETTER = "Dear Ada,\nwrite to ada@example.org or call +1 (415) 555-2671.\n"


async def test_through_an_mcp_client_a_tool_receives_what_was_sent(project: Path) -> None:
    async with asyncio.timeout(60), Client(over_stdio(project)) as client:
        done = await client.call_tool("write_file", {"path": "a.txt", "content": LETTER})
        assert not done.is_error
        assert (project / "workspace" / "a.txt").read_text() == LETTER
        found = await client.call_tool("find_customer", {"email": "ada@example.org"})
        assert not found.is_error and found.content[0].text == "Ada"

        secret = {"path": "b.txt", "content": f"token: {TOKEN}"}
        refused = await client.call_tool("write_file", secret)
        assert refused.is_error and not (project / "workspace" / "b.txt").exists()
        text = refused.content[0].text
        assert "The arguments of write_file hold github_token at /content" in text
        assert "it was not run. Take it out and call again." in text and "x-secret" in text
        assert TOKEN not in refused.model_dump_json()
        entered = await client.call_tool("log_in", {"password": TOKEN})
        assert entered.structured_content == {"result": len(TOKEN)}

        told = await client.call_tool("look_up", {"name": "Ada"})
        assert told.structured_content == {"name": "Ada", "mail": MARK}
        assert told.content[0].text == json.dumps(told.structured_content, separators=(",", ":"))
        assert told.content[1].text.startswith(SAYS)


def test_on_the_command_line_a_tool_receives_what_was_sent(project: Path) -> None:
    done = toolpost("call", "write_file", "path=a.txt", f"content={LETTER}", cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "workspace" / "a.txt").read_text() == LETTER
    done = toolpost("call", "find_customer", "email=ada@example.org", cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Ada\n", "")
    done = toolpost("call", "write_file", "path=b.txt", f"content={TOKEN}", cwd=project)
    assert done.returncode != 0 and not (project / "workspace" / "b.txt").exists()
    assert "error: POLICY_DENIED: The arguments of write_file hold github_token" in done.stderr
    assert toolpost("call", "log_in", f"password={TOKEN}", cwd=project).stdout == "40\n"


def test_the_command_line_says_what_was_redacted_and_keeps_the_output_whole(project: Path) -> None:
    done = toolpost("call", "look_up", "name=Ada", cwd=project)
    assert json.loads(done.stdout) == {"name": "Ada", "mail": MARK}
    assert f"warning: {SAYS}" in done.stderr and done.stderr.count(SAYS) == 1
    done = toolpost("call", "look_up", "name=Ada", "--json", cwd=project)
    (notice,) = json.loads(done.stdout)["parts"]
    assert notice["type"] == "notice" and notice["text"].startswith(SAYS)
    with Terminal("call", "look_up", "name=Ada", cwd=project) as terminal:
        assert terminal.ended() == 0
    assert SAYS in terminal.written and terminal.written.count(SAYS) == 1


class Person(TypedDict):
    name: str
    mail: str


@tool(effects="read", labels={"external": "true"})
async def look_up(name: str) -> Person:
    """Look up somebody elsewhere."""
    return {"name": name, "mail": "ada@example.org"}


@pytest.mark.parametrize("slowly", [False, True])
async def test_mcp_content_says_it_and_the_structured_output_fits(
    slowly: bool, tmp_path: Path
) -> None:
    async with gateway([look_up], tmp_path, guards=["sanitize"]) as running:
        said = await call(running.url, "look_up", {"name": "Ada"}, slowly=slowly)
        async with Client(running.url, mode="legacy") as client:
            older = await client.call_tool("look_up", {"name": "Ada"})
    content = said["result"]["content"]
    assert content[0]["text"] == f'{{"name":"Ada","mail":"{MARK}"}}'
    assert content[1]["type"] == "text" and content[1]["text"].startswith(SAYS)
    assert said["result"]["structuredContent"] == {"name": "Ada", "mail": MARK}
    assert older.content[1].text.startswith(SAYS)


@tool(
    effects="once",
    labels={"external": "true"},
    output_schema={
        "type": "object",
        "properties": {"mail": {"type": "string", "pattern": "@"}},
        "required": ["mail"],
    },
)
async def fetch_address(name: str) -> Any:
    """Fetch somebody's address."""
    return {"mail": "ada@example.org"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_mcp_client_is_told_when_a_redacted_output_does_not_fit_its_schema(
    mode: Any, tmp_path: Path
) -> None:
    async with (
        gateway([fetch_address], tmp_path, guards=["sanitize"]) as running,
        Client(running.url, mode=mode) as client,
    ):
        await client.list_tools()
        said = await client.call_tool("fetch_address", {"name": "Ada"})
    assert said.is_error and "The tool did run" in said.content[0].text
    assert "Redacted in the output of fetch_address: email at /mail" in said.content[0].text
    assert "ada@example.org" not in said.model_dump_json()


async def test_rest_says_it_and_so_does_its_client(tmp_path: Path) -> None:
    settings = {"guards": ["sanitize"], "observers": [], "store": {"kind": "memory"}}
    async with rest.serving(tmp_path, look_up, settings=settings) as served:
        body = (await served.call("look_up", {"name": "Ada"})).data
        assert body["output"] == {"name": "Ada", "mail": MARK}
        assert body["parts"][0]["text"].startswith(SAYS)
        async with GatewayClient(served.url) as client:
            (notice,) = (await client.execute("look_up", {"name": "Ada"})).notices
    assert notice.startswith(SAYS)


def _script() -> Script:
    return Script([("look_up", {"name": "Ada"})], "Done.")


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic"])
async def test_the_loop_says_it_to_the_model(form: str) -> None:
    script = _script()
    async with Executor(Registry([look_up]), guards=[Sanitize()]) as tools:
        await through_sdk(script, tools, form)
    assert MARK in str(script.heard) and SAYS in str(script.heard)


async def test_langchain_says_it_to_the_model() -> None:
    from toolpost.bridges import langchain

    script = _script()
    async with Executor(Registry([look_up]), guards=[Sanitize()]) as tools:
        await through_langchain(script, await langchain.tools(tools))
    assert MARK in str(script.heard) and SAYS in str(script.heard)


async def test_openai_agents_says_it_to_the_model() -> None:
    from toolpost.bridges import openai_agents

    script = _script()
    async with Executor(Registry([look_up]), guards=[Sanitize()]) as tools:
        await through_openai_agents(script, tools=await openai_agents.tools(tools))
    assert MARK in str(script.heard) and SAYS in str(script.heard)


async def test_pydantic_ai_says_it_to_the_model_beside_the_value() -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    from toolpost.bridges import pydantic_ai

    heard: list[Any] = []

    async def respond(messages: Any, info: Any) -> Any:
        heard.append(messages[-1].parts)
        first = ToolCallPart("look_up", {"name": "Ada"})
        return ModelResponse(parts=[first if len(heard) == 1 else TextPart("Done.")])

    async with Executor(Registry([look_up]), guards=[Sanitize()]) as tools:
        await Agent(FunctionModel(respond), toolsets=[pydantic_ai.Toolset(tools)]).run("Go.")
    (value,) = [part for part in heard[1] if isinstance(part, ToolReturnPart)]
    assert value.content == {"name": "Ada", "mail": MARK}
    assert SAYS in str([part for part in heard[1] if part is not value])


# --- names that are keys -------------------------------------------------------------------------


def _nothing_of(token: str, said: str) -> None:
    assert token[4:16] not in said
    assert "[redacted:github_token]" in said


def test_a_parameter_named_like_a_key_is_redacted_before_it_is_cut(project: Path) -> None:
    ran = toolpost("call", "find_customer", "email=x", f"my_{TOKEN}=1", cwd=project)
    _nothing_of(TOKEN, ran.stdout + ran.stderr)
    shown = toolpost("calls", "--json", cwd=project)
    assert TOKEN[4:16] not in shown.stdout + shown.stderr


@pytest.mark.parametrize("secret", [False, True])
def test_a_fault_never_names_half_a_key(secret: bool) -> None:
    inner = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    closed = {"type": "object", "properties": {"in": {**inner, "x-secret": secret}}}
    for place in range(16):
        name = "n" * place + "_" + TOKEN
        (fault,) = Schema(closed).faults({"in": {name: 1}})
        _nothing_of(TOKEN, f"{fault.at} {fault}")


def test_a_message_about_a_file_or_a_body_repeats_no_key() -> None:
    twice = json.dumps({TOKEN: 1})[:-1] + f', "{TOKEN}": 2}}'
    with pytest.raises(NotStrictJson) as fault:
        explain(twice.encode())
    _nothing_of(TOKEN, str(fault.value))
    for text in (TOKEN, f"effects {TOKEN}", "x" * 30 + TOKEN, TOKEN + "x" * 30):
        _nothing_of(TOKEN, short(text))
    with pytest.raises(InvalidSpec) as wrong:
        ToolSpec.from_dict({"name": "a", "description": "b", "effects": TOKEN})
    _nothing_of(TOKEN, str(wrong.value))


async def test_rest_repeats_no_key_from_a_field_or_a_path(tmp_path: Path) -> None:
    async with rest.serving(tmp_path, look_up) as served:
        field = await served.call("look_up", {"name": "a"}, **{TOKEN: 1})
        path = await served.get(f"/v1/nothing/{TOKEN}")
    _nothing_of(TOKEN, json.dumps(field.data))
    _nothing_of(TOKEN, json.dumps(path.data))


@pytest.mark.parametrize("form", ["people", "machines"])
def test_the_name_of_a_logger_is_redacted_in_the_log(form: Any) -> None:
    said, name = io.StringIO(), "a_logger_of_its_own"
    handler = setup(said, form=form, logger=name)
    try:
        logging.getLogger(f"{name}.{TOKEN}").warning("hello")
    finally:
        logging.getLogger(name).removeHandler(handler)
    _nothing_of(TOKEN, said.getvalue())
