"""A tool of the Forge contract as a tool of ours, and a result of ours as one of the contract.

Above: ``base.py`` and the contract's registry, factory and executor. Below: the public API. How a
call is governed is not known here.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final, Protocol

import msgspec

from toolpost import (
    Call,
    Executor,
    FunctionTool,
    InvalidArguments,
    InvalidOutput,
    InvalidSpec,
    Output,
    Registry,
    Resource,
    Result,
    ToolFailed,
    ToolpostError,
    create_tool,
)
from toolpost.authoring import SpecOptions
from toolpost.bridges.forge.dry_run import handles_dry_run
from toolpost.bridges.forge.values import (
    TIMEOUT,
    ExecutionContext,
    ToolCategory,
    ToolError,
    ToolParameter,
    ToolResult,
)
from toolpost.bridges.instances import marked

CONTEXT: Final = "toolpost.forge.context"
"""Under this name the metadata of a call hold the context that it was made with."""
LONGEST: Final = 86_400.0
_BESIDE: Final = "forge:metadata"
_TIERS: Final = {"execution": 3, "mcp": 2}
_EXTERNAL: Final = frozenset(("web", "mcp"))
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 128
_log = logging.getLogger("toolpost.tools")
Work = Callable[..., Any]


class Forged(Protocol):
    """What is asked of a tool here; ``BaseTool`` has it all."""

    TOOLPOST: ClassVar[SpecOptions]
    PREVIEWS: ClassVar[bool | None]
    SHOWS_EXCEPTIONS: ClassVar[bool]

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def category(self) -> ToolCategory: ...
    @property
    def parameters(self) -> list[ToolParameter]: ...
    def validate_params(self, **kwargs: Any) -> tuple[bool, str | None]: ...
    async def execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult: ...
    async def _execute(self, context: ExecutionContext, **kwargs: Any) -> ToolResult: ...
    def _overrides(self, method: str) -> bool: ...


def item_of(
    tool: Forged,
    work: Work | None = None,
    *,
    timeout: float | None = None,
    module: str | None = None,
) -> FunctionTool:
    """The tool as an item of a registry. ``work`` is what runs it: without it ``execute``, where
    the tool has one of its own, or ``_execute``; ``module``, where the item is said to stand, else
    where its class does. What cannot be a tool is a ``ToolError``.
    """
    name = "(without a name)"
    try:
        name = tool.name
        work = work or work_of(tool)
        category = getattr(tool.category, "value", tool.category)
        blocking = not inspect.iscoroutinefunction(work)
        running = _running(tool, work, blocking=blocking)
        options: SpecOptions = {
            "category": str(category),
            "timeout": timeout or TIMEOUT,
            "tier": _TIERS.get(category, 1),
            "labels": {"external": "true"} if category in _EXTERNAL else {},
            "isolation": "thread" if blocking else "inline",
        }
        options.update(tool.TOOLPOST)
        return create_tool(
            spec_name(tool),
            tool.description,
            marked(running, tool, module),
            input_schema=_schema_of(tool, work),
            **options,
        )
    except ToolpostError as fault:
        raise ToolError(name, str(fault)) from fault
    except Exception as exc:  # what a tool says of itself is foreign code
        raise ToolError(name, f"cannot be registered: {type(exc).__name__}: {exc}") from exc


def spec_name(tool: Forged) -> str:
    """The name of the tool's spec: its own, with ``_`` for what no name may have in it. The
    contract allows any text; a name without a single letter or digit is that of the class.
    """
    legal = _ILLEGAL.sub("_", tool.name)
    if not re.search(r"[A-Za-z0-9]", legal):
        legal = type(tool).__name__
    return (legal if legal[0] not in ".-" else f"_{legal}")[:_LONGEST_NAME]


def work_of(tool: Forged) -> Work:
    return tool.execute if tool._overrides("execute") else tool._execute


async def run_alone(
    tool: Forged, context: ExecutionContext, arguments: dict[str, Any]
) -> ToolResult:
    """One call on a road of its own, which costs a quarter of a millisecond: what the tool says of
    itself may be different in the next.
    """
    try:
        item = item_of(tool, tool._execute, timeout=LONGEST)
    except ToolError as fault:
        return ToolResult.fail(str(fault), code="INTERNAL_ERROR")
    async with Executor(Registry([item])) as executor:
        result = await executor.execute(item.spec.name, arguments, **asked(tool, context))
    return as_forged(result, tool, arguments, context.timeout)


def asked(tool: Forged | None, context: ExecutionContext) -> dict[str, Any]:
    """What a context says of a call, as an executor takes it."""
    return {
        "session_id": context.session_id or None,
        "timeout": context.timeout,
        "working_dir": context.working_dir,
        "dry_run": context.dry_run and not (tool is not None and handles_dry_run(tool)),
        "metadata": {**context.metadata, CONTEXT: context},
    }


def as_forged(
    result: Result, tool: Forged | None, arguments: dict[str, Any], limit: float
) -> ToolResult:
    """The result as the contract has it; ``tool`` puts faults of the arguments into its words, and
    ``limit`` is what the call was given, of which a little is used up on the way.
    """
    error, took = result.error, result.metadata.duration_ms
    if error is None:
        return _succeeded(result, tool, arguments)
    message = error.message
    if error.code == "VALIDATION_ERROR" and tool is not None:
        message = _in_its_words(tool, arguments) or message
    elif error.code == "TIMEOUT":
        message = f"Tool timed out after {limit:g}s"
    elif error.code == "INTERNAL_ERROR":
        message = f"Execution error: {message}"
    said = {"code": error.code, "retryable": error.retryable, "remedy": error.remedy}
    about = {**said, **(error.details or {})}
    return ToolResult(success=False, error=message, duration_ms=took, metadata=about)


def _succeeded(result: Result, tool: Forged | None, arguments: dict[str, Any]) -> ToolResult:
    about = result.metadata
    metadata: dict[str, Any] = {"warnings": [*about.warnings]} if about.warnings else {}
    if about.plan is not None:
        name = about.plan.get("tool") if tool is None else tool.name
        metadata |= {"dry_run": True, "plan": about.plan}
        return ToolResult(
            success=True,
            output=f"[Dry Run] {name} was not run. Its arguments: {arguments}",
            duration_ms=about.duration_ms,
            metadata=metadata,
        )
    parts = []
    for part in result.own_parts:
        if isinstance(part, Resource) and part.uri == _BESIDE:
            metadata.update(msgspec.json.decode(part.text or "{}"))
        else:
            parts.append(msgspec.to_builtins(part))
    output: Any = parts if parts and result.output is None else result.output
    if parts and result.output is not None:
        metadata["parts"] = parts
    return ToolResult(success=True, output=output, duration_ms=about.duration_ms, metadata=metadata)


def _in_its_words(tool: Forged, arguments: dict[str, Any]) -> str | None:
    try:
        return tool.validate_params(**arguments)[1]
    except Exception:  # noqa: BLE001 - foreign code, and the road has said what is wrong
        return None


def _schema_of(tool: Forged, work: Work) -> dict[str, Any]:
    """Open to other arguments, as the document's is, unless ``work`` could not take them."""
    named = list(inspect.signature(work).parameters.values())
    properties = {one.name: one.to_json_schema() for one in tool.parameters}
    for one in tool.parameters:
        if one.name in _reserved(work):
            raise InvalidSpec(
                f"a parameter cannot be called {one.name!r}: its method has it already"
            )
        if one.required:
            properties[one.name].pop("default", None)  # missing is missing
    closed = {} if any(p.kind is p.VAR_KEYWORD for p in named) else {"additionalProperties": False}
    required = [one.name for one in tool.parameters if one.required]
    return {"type": "object", "properties": properties, "required": required, **closed}


def _reserved(work: Work) -> set[str]:
    return {"self", next(iter(inspect.signature(work).parameters), "self")}


def _running(tool: Forged, work: Work, *, blocking: bool) -> Callable[..., Any]:
    reserved, judges = _reserved(work), tool._overrides("validate_params")

    def begin(arguments: dict[str, Any], call: Call) -> Any:
        for name in reserved & arguments.keys():
            raise InvalidArguments(f"/{name}: unknown parameter", effects="none")
        if judges:
            fits, problem = tool.validate_params(**arguments)
            if not fits:
                raise InvalidArguments(problem or "Validation failed", effects="none")
        return work(_context_of(call), **arguments)

    shown = _shown if tool.SHOWS_EXCEPTIONS else nullcontext

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        with shown():
            return _given(await begin(arguments, call))

    async def awaited(value: Awaitable[Any]) -> Any:
        with shown():
            return _given(await value)

    def run_blocking(arguments: dict[str, Any], call: Call) -> Any:
        with shown():
            value = begin(arguments, call)
            return awaited(value) if inspect.isawaitable(value) else _given(value)

    return run_blocking if blocking else run


@contextmanager
def _shown() -> Iterator[None]:
    """Make the text of an exception the error that the caller reads, as the document has it."""
    try:
        yield
    except (ToolpostError, TimeoutError):
        raise
    except Exception as exc:
        raise ToolFailed(f"Execution error: {exc}") from exc


def _context_of(call: Call) -> ExecutionContext:
    """The very one that the call was made with; else one that says what the call says."""
    context = call.metadata.get(CONTEXT)
    if isinstance(context, ExecutionContext):
        return context
    left = call.spec.time_limit
    if call.deadline is not None:
        left = max(0.0, min(left, call.deadline - monotonic()))
    return ExecutionContext(
        working_dir=call.working_dir or str(Path.cwd()),
        session_id=call.session_id,
        agent_id=call.caller.agent,
        dry_run=call.dry_run,
        timeout=left,
        metadata=dict(call.metadata),
        permissions=None if call.caller.owner else call.caller.roles,
    )


def _given(value: Any) -> Any:
    """What a tool returned, as the road takes it; its metadata go beside the output."""
    if not isinstance(value, ToolResult):
        _log.error("a %s was returned where a ToolResult is due", type(value).__name__)
        raise InvalidOutput("The tool did not return a ToolResult. Use another tool.")
    try:
        said: Mapping[str, Any] = value.model_dump(mode="json")
    except Exception as exc:  # what a value does when it is written down is foreign code
        _log.error("a %s was returned: it has no JSON form", type(value.output), exc_info=exc)
        raise InvalidOutput(
            "The tool returned something that is not JSON data. Use another tool."
        ) from exc
    if not value.success:
        why = value.error or "The tool failed and did not say why."
        raise ToolFailed(why, details=said["metadata"] or None)
    if not said["metadata"]:
        return said["output"]
    text = msgspec.json.encode(said["metadata"]).decode()
    return Output(said["output"], (Resource(_BESIDE, mime="application/json", text=text),))
