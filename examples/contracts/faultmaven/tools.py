"""The life of FaultMaven tools: registered, made, discovered, called, let go."""

import asyncio
import json
from typing import Any

from toolpost import ToolOptions
from toolpost.bridges.faultmaven import (
    BaseTool,
    TimeoutException,
    ToolContainer,
    ToolExecutionException,
    ToolResult,
    ValidationException,
    register_tool,
)


def schema(name: str, description: str, **more: Any) -> dict[str, Any]:
    query = {"type": "string", "description": "What to look for."}
    limit = {"type": "integer", "description": "At most so many.", "default": 10}
    return {
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": {"query": query, "limit": limit},
            "required": ["query"],
        },
        **more,
    }


@register_tool("runbooks")
class Runbooks(BaseTool):
    """A direct tool; it keeps the dependencies that it names and takes no notice of the rest."""

    TOOLPOST = ToolOptions(effects="read", timeout=5, category="direct")

    def __init__(self, settings: Any = None, sanitizer: Any = None, **kwargs: Any) -> None:
        self.settings, self.sanitizer, self.open = settings, sanitizer, True

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        query = self.sanitizer.sanitize(params["query"])
        found = [one for one in self.settings["runbooks"] if query.lower() in one.lower()]
        scores = [round(1 - place / 10, 1) for place in range(len(found))]
        data = {"results": found, "count": len(found), "relevance_scores": scores}
        return ToolResult(success=True, data=data)

    def get_schema(self) -> dict[str, Any]:
        examples = [{"query": "redis", "limit": 5}]
        return schema("runbooks", "Search the runbooks.", examples=examples)

    async def cleanup(self) -> None:
        self.open = False


@register_tool("status_page")
class StatusPage(BaseTool):
    """A tool before a service of others: it may fail, and another stands in for it."""

    TOOLPOST = ToolOptions(effects="read", fallback="runbooks", labels={"external": "true"})

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        match params["query"]:
            case "limit":
                why = "API rate limit exceeded. Retry after 60 seconds."
                return ToolResult(success=False, data=None, error=why)
            case "slow":
                raise TimeoutException("Operation timed out after 30s")
            case "broken":
                raise ToolExecutionException("The service answered with nonsense.")
            case "odd":
                raise ValidationException("There is no such query.")
        raise KeyError("something that is nobody's business")

    def get_schema(self) -> dict[str, Any]:
        return schema("status_page", "Ask the status page.", context_aware=True)


@register_tool("commands")
class Commands(BaseTool):
    """A system tool: a list of commands, and somebody who is asked before each."""

    REQUIRES_CONFIRMATION = True
    TOOLPOST = ToolOptions(effects="once")
    ALLOWED_COMMANDS = ("kubectl", "curl", "nslookup")

    async def execute(self, params: dict[str, Any]) -> ToolResult:
        if params["query"] not in self.ALLOWED_COMMANDS:
            return ToolResult(success=False, error="This command is not on the list.")
        return ToolResult(success=True, data=f"{params['query']} would run")

    def get_schema(self) -> dict[str, Any]:
        return schema("commands", "Run one of a few commands.")


class Agent:
    def __init__(self, tools: list[BaseTool]) -> None:
        self.tools = {tool.get_schema()["name"]: tool for tool in tools}
        self.tool_schemas = {name: tool.get_schema() for name, tool in self.tools.items()}


async def main() -> None:
    container = ToolContainer(settings={"runbooks": ["Redis OOM", "Postgres bloat"]})
    agent = Agent(container.get_tools())
    assert list(agent.tools) == ["runbooks", "status_page", "commands"]
    assert json.dumps(agent.tool_schemas)

    result = await agent.tools["runbooks"].execute({"query": "redis", "limit": 5})
    assert result == ToolResult(
        success=True,
        data={"results": ["Redis OOM"], "count": 1, "relevance_scores": [1.0]},
        error=None,
    )
    result = await agent.tools["runbooks"].execute({})
    assert result.error == "Missing required parameter: query"

    primary, fallback = agent.tools["commands"], agent.tools["runbooks"]
    result = await primary.execute({"query": "redis"})
    assert "A person has to confirm commands" in (result.error or "")
    if not result.success:
        result = await fallback.execute({"query": "redis"})
    assert result.data["count"] == 1

    result = await container.execute("status_page", {"query": "broken"}, phase="triage")
    assert result.data["count"] == 0
    assert result.warnings[0] == (
        "status_page failed (EXECUTION_ERROR): this is the result of runbooks."
    )
    result = await container.execute("status_page", {"query": "odd"})
    assert result.error == "There is no such query."

    runbooks = container.alive("runbooks").tool
    await container.shutdown()
    assert not runbooks.open


asyncio.run(main())
