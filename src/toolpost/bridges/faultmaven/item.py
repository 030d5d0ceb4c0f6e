"""A tool of the FaultMaven contract as a tool of ours, and a result of ours as one of the contract.

Above: the container. Below: the public API. How a call is governed is not known here.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, Final
from weakref import WeakSet

import msgspec

from toolpost import (
    Call,
    FunctionTool,
    InvalidOutput,
    InvalidSpec,
    RateLimited,
    Result,
    ToolFailed,
    ToolpostError,
    create_tool,
)
from toolpost.authoring import SpecOptions
from toolpost.bridges.faultmaven.contract import BaseTool, ToolResult
from toolpost.bridges.faultmaven.sanitizer import DataSanitizer
from toolpost.bridges.instances import Living, instances_in, marked
from toolpost.registry import Item

TIMEOUT: Final = 30
"""Seconds, unless a tool says otherwise."""
_PHASE: Final = "phase"
_COOLDOWN: Final = re.compile(r"(?is)rate limit\b.*\bretry after (\d{1,6}) ?s")
"""The contract's own words for a rate limit, which has no other place in its result."""
_UNMARKED: Final = (
    "%s (%s) does not say what repeating a call does, so a transient error is not retried. If a "
    'repeat is harmless, say so on the class: TOOLPOST = ToolOptions(effects="read"); if it is '
    'not, say effects="once"'
)
_told: Final[WeakSet[type]] = WeakSet()
_log = logging.getLogger("toolpost.tools")


def tools(*given: BaseTool, module: str | None = None) -> list[Item]:
    """The same tools as tools of ours, for a ``Registry``, an ``Executor`` or a ``Runtime``.

    A source of kind ``modules`` finds them by their names in the module that their classes are in,
    or in the one that is named: ``logs, search = tools(Logs(), Search(), module=__name__)``.
    """
    return [item_of(tool, module=module) for tool in given]


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools that a module holds: instances, what ``tools`` has made of some, and the classes
    that it defines itself. Of a class that there is an instance of, the instance counts. A class is
    made with a sanitizer and without settings.
    """
    offered = {"settings": None, "sanitizer": DataSanitizer(), "knowledge_ingester": None}
    items, found = instances_in(namespace, BaseTool, offered)  # type: ignore[type-abstract]
    return [*items, *tools(*found)]


def item_of(
    tool: BaseTool, hold: Callable[[], Living[BaseTool]] | None = None, *, module: str | None = None
) -> FunctionTool:
    """The tool as an item of a registry. ``hold`` gives the instance for the time of one call;
    without it, that is the tool itself. ``module``: where it is said to stand, else where its class
    does.
    """
    try:
        schema: Any = tool.get_schema()
    except ToolpostError:
        raise
    except Exception as exc:  # what a tool says of itself is foreign code
        raise InvalidSpec(
            f"{type(tool).__name__} has no schema: {type(exc).__name__}: {exc}"
        ) from exc
    if not isinstance(schema, Mapping):
        raise InvalidSpec(f"get_schema of {type(tool).__name__} gives no mapping")
    for key in ("name", "description", "parameters"):
        if key not in schema:
            raise InvalidSpec(f"the schema of {type(tool).__name__} has no {key}", at=(key,))
    blocking = not inspect.iscoroutinefunction(tool.execute)
    options: SpecOptions = {
        "timeout": TIMEOUT,
        "examples": schema.get("examples") or (),
        "context_aware": bool(schema.get("context_aware")),
        "requires_approval": bool(
            tool.REQUIRES_CONFIRMATION or schema.get("requires_confirmation")
        ),
        "isolation": "thread" if blocking else "inline",
    }
    options.update(tool.TOOLPOST)
    if "effects" not in options and type(tool) not in _told:
        _told.add(type(tool))
        _log.warning(_UNMARKED, schema["name"], type(tool).__name__)
    # the contract sanitizes every input, whatever the executor's settings say
    options["labels"] = {"redact": "arguments", **options.get("labels", {})}
    alone = Living(tool, last=())
    running = _running(hold or (lambda: alone), blocking=blocking)
    return create_tool(
        schema["name"],
        schema["description"],
        marked(running, tool, module),
        input_schema=schema["parameters"],
        **options,
    )


def as_told(result: Result) -> ToolResult:
    """The result as the contract has it, with what the road has to say of the call."""
    warnings = result.metadata.warnings
    if (error := result.error) is not None:
        message, after = error.message, error.retry_after
        if after is not None and "retry after" not in message.lower():
            message = f"{message} Retry after {ceil(after)}s"
        return ToolResult(success=False, error=message, warnings=warnings, retry_after=after)
    data = result.output
    if data is None and result.own_parts:
        data = msgspec.to_builtins(result.own_parts)
    return ToolResult(success=True, data=data, warnings=warnings)


def _running(hold: Callable[[], Living[BaseTool]], *, blocking: bool) -> Callable[..., Any]:
    async def run(arguments: dict[str, Any], call: Call) -> Any:
        async with hold() as tool:
            return _given(await tool.execute(_params(arguments, call)), call)

    def run_blocking(arguments: dict[str, Any], call: Call) -> Any:
        def work(tool: BaseTool) -> Any:
            value: Any = tool.execute(_params(arguments, call))
            return _awaited(value, call) if inspect.isawaitable(value) else _given(value, call)

        return hold().run(work)

    return run_blocking if blocking else run


async def _awaited(value: Awaitable[Any], call: Call) -> Any:
    return _given(await value, call)


def _params(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """A copy, for tools of this contract write into what they get; with the phase of the work, for
    a tool that wants to know it.
    """
    return {**arguments} if call.phase is None else {**arguments, _PHASE: call.phase}


def _given(value: Any, call: Call) -> Any:
    """What a tool returned, as the road takes it."""
    if not isinstance(value, ToolResult):
        _log.error("a %s was returned where a ToolResult is due", type(value).__name__)
        raise InvalidOutput("The tool did not return a ToolResult. Use another tool.")
    if not value.success:
        why = value.error or "The tool failed and did not say why."
        after = _cooldown(why) if value.retry_after is None else value.retry_after
        if after is None:
            raise ToolFailed(why)
        may_repeat = call.spec.effects != "once"  # else only the agent decides about a repeat
        raise RateLimited(why, retry_after=after, retryable=may_repeat)
    try:
        return value.model_dump(mode="json")["data"]
    except Exception as exc:  # what a value does when it is written down is foreign code
        _log.error("a %s was returned: it has no JSON form", type(value.data), exc_info=exc)
        raise InvalidOutput(
            "The tool returned something that is not JSON data. Use another tool."
        ) from exc


def _cooldown(error: str) -> float | None:
    """The seconds to wait that an error of a rate limit names."""
    found = _COOLDOWN.search(error)
    return None if found is None else float(found[1])
