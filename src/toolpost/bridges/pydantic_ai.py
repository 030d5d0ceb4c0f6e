"""pydantic-ai: ours as a toolset of an agent, and its tools in a registry.

    agent = Agent(model, toolsets=[Toolset(runtime, caller=bot)])

Above: programs. Below: ``loop``, ``create_tool``, and ``pydantic_ai``, from the extra
``pydantic-ai``. Arguments are checked by toolpost alone, in one place.

A call that waits for a person is told to the model; with ``approve`` it becomes a deferred call of
pydantic-ai, and the yes that is given there is laid down here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

import msgspec
from pydantic import ValidationError

from toolpost.errors import MissingPart

try:
    from pydantic_ai import (
        ApprovalRequired,
        BinaryContent,
        ModelRetry,
        RunContext,
        Tool,
        ToolReturn,
    )
    from pydantic_ai import ToolFailed as Failed
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ModuleNotFoundError as exc:
    raise MissingPart(
        f"the bridge to pydantic-ai needs {exc.name!r}. "
        'Install it with: pip install "toolpost[pydantic-ai]"'
    ) from exc

from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from toolpost.authoring import FunctionTool, SpecOptions, create_tool
from toolpost.bridges.acting import Acting, Approve, misfit, waits
from toolpost.call import Caller
from toolpost.errors import InvalidArguments, InvalidSpec, ToolFailed
from toolpost.exporters.values import own
from toolpost.loop import Listing, Tools, content_of, in_words, specs_of, text_of
from toolpost.loop.calling import written
from toolpost.loop.content import data_of, refused
from toolpost.result import Part, Result
from toolpost.spec import ToolSpec

_OBJECT: Final = SchemaValidator(core_schema.dict_schema(keys_schema=core_schema.str_schema()))
_UNREAD: Final = "toolpost: unread"
"""In place of arguments that were none: what is wrong with them."""
Context = RunContext[Any]


class Toolset(AbstractToolset[Any]):
    """The tools of a caller, as they are at every step. A caller, or a session, that is a function
    gets the context of the run: ``caller=lambda ctx: Caller(ctx.deps.user)``.

    Arguments that do not fit are a retry, as long as there are any left; everything else that goes
    wrong is a failed call that the model reads.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        caller: Caller | Callable[[Context], Caller] | None = None,
        session_id: str | Callable[[Context], str | None] | None = None,
        approve: Approve | None = None,
        max_retries: int = 1,
        id: str | None = None,  # noqa: A002 - as pydantic-ai calls it
    ) -> None:
        self._acting: Acting[Context] = Acting(
            tools, caller=caller, session_id=session_id, approve=approve
        )
        self._max_retries, self._id = max_retries, id
        self._listing: Listing | None = None

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: Context) -> dict[str, ToolsetTool[Any]]:
        specs = await specs_of(self._acting.tools, self._acting.caller(ctx))
        listing = self._listing
        if listing is None or not listing.is_of(specs):
            listing = self._listing = written(specs, "langchain")
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=_definition(spec, name, tool, listing.exported.keys.get(spec.name)),
                max_retries=self._max_retries,
                args_validator=_ANYTHING,
            )
            for spec, name, tool in listing.written()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: Context, tool: ToolsetTool[Any]
    ) -> Any:
        about = tool.tool_def.metadata or {}
        ours, tool_args = about["tool"], own(tool_args, about.get("keys"))
        if _UNREAD in tool_args:
            fault = InvalidArguments(f"{tool_args[_UNREAD]}. Call it again with a JSON object.")
            result = refused(fault, ours)
        elif ctx.tool_call_approved:
            result = await self._acting.approved(ours, tool_args, ctx)
        else:
            result = await self._acting.call(ours, tool_args, ctx)
            handle = waits(result)
            if handle is not None and self._acting.approve is not None:
                raise ApprovalRequired(metadata={"approval": handle, "message": text_of(result)})
        if result.error is None:
            return _returned(result)
        fixable = result.error.code == "VALIDATION_ERROR" and result.error.remedy == "fix_args"
        if fixable and ctx.retry < ctx.max_retries:
            raise ModelRetry(text_of(result))
        raise Failed(text_of(result))


class _Anything:
    """Lets through what is no JSON object, too: pydantic-ai would end a run for the second in a
    row. ``call_tool`` refuses it, and a copy that a hook makes of it.
    """

    def validate_json(self, input: str | bytes | bytearray, **how: Any) -> Any:  # noqa: A002
        return self._read(_OBJECT.validate_json, input, how)

    def validate_python(self, input: Any, **how: Any) -> Any:  # noqa: A002
        return self._read(_OBJECT.validate_python, input, how)

    def _read(self, read: Callable[..., Any], given: Any, how: dict[str, Any]) -> Any:
        try:
            return read(given, **how)
        except ValidationError as exc:
            return {_UNREAD: misfit(exc)}


_ANYTHING: Final = _Anything()


def _definition(
    spec: ToolSpec, name: str, tool: dict[str, Any], keys: Mapping[str, str] | None
) -> ToolDefinition:
    schema = spec.output_schema
    more = {"keys": dict(keys)} if keys else {}
    return ToolDefinition(
        name=name,
        description=tool["description"],
        parameters_json_schema=tool["parameters"],
        return_schema=schema if isinstance(schema, dict) else None,
        metadata={"tool": spec.name, "tier": spec.tier, "effects": spec.effects, **more},
    )


def _returned(result: Result) -> ToolReturn[Any]:
    """Data as it is, for pydantic-ai writes it as JSON itself; with parts, what is to be read.
    Notices are sent beside the value, which has to fit the tool's schema.
    """
    own = msgspec.structs.replace(result, parts=result.own_parts)
    value = [_content(part) for part in content_of(own)] if own.parts else result.output
    about = msgspec.to_builtins(result.metadata)
    return ToolReturn(value, content=list(result.notices) or None, metadata=about)


def _content(part: Part) -> str | BinaryContent:
    if (found := data_of(part)) is None:
        return in_words(part)
    data, mime = found
    return BinaryContent(data, media_type=mime)


# --- theirs, here ----------------------------------------------------------------------------


def items(
    *tools: Tool[Any] | Callable[..., Any], **options: Unpack[SpecOptions]
) -> list[FunctionTool]:
    """Tools of pydantic-ai for a registry or a runtime, with these options of a spec for all. One
    that wants the context of a run is refused: there is no run here.
    """
    return [_item(tool if isinstance(tool, Tool) else Tool(tool), options) for tool in tools]


def _item(tool: Tool[Any], options: SpecOptions) -> FunctionTool:
    schema = tool.function_schema
    if schema.takes_ctx:
        raise InvalidSpec(
            f"{tool.name} wants the context of an agent's run, and there is none here: "
            "write one that does without"
        )
    own: SpecOptions = {"requires_approval": True} if tool.requires_approval else {}
    if tool.timeout is not None:
        own["timeout"] = tool.timeout
    own.update(options)

    async def run(arguments: dict[str, Any]) -> Any:
        nobody: Any = None
        try:
            given = schema.validator.validate_python(arguments)
        except ValidationError as exc:  # of what a tool validates itself nothing is told
            raise InvalidArguments(misfit(exc), effects="none") from exc
        try:
            said = await schema.call(given, nobody)
        except (ModelRetry, Failed) as exc:
            raise ToolFailed(exc.message) from exc
        value = said.return_value if isinstance(said, ToolReturn) else said
        return to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")

    return create_tool(
        tool.name,
        tool.description or "",
        run,
        input_schema=dict(schema.json_schema),
        **own,
    )
