"""LangChain, both ways: its tools in a registry, and ours as live ``StructuredTool``s.

    registry = Registry(items(search, WikipediaTool(), effects="read"))
    agent = create_agent(model, await tools(runtime, caller=bot))

Above: programs. Below: ``loop``, ``create_tool``, and ``langchain_core``, from the extra
``langchain``. A tool of theirs that blocks has a thread to itself.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Unpack

from toolpost.errors import MissingPart

try:
    from langchain_core.messages import ToolCall, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException
    from langchain_core.tools import Tool as Plain
except ModuleNotFoundError as exc:
    raise MissingPart(
        f"the bridge to LangChain needs {exc.name!r}. "
        'Install it with: pip install "toolpost[langchain]"'
    ) from exc

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from toolpost import sync
from toolpost.authoring import FunctionTool, SpecOptions, create_tool
from toolpost.bridges.acting import Acting, misfit
from toolpost.call import Call, Caller
from toolpost.errors import InvalidArguments, InvalidSpec, ToolFailed
from toolpost.loop import Listing, Tools, content_of, in_words, listed
from toolpost.loop.calling import written
from toolpost.loop.content import data_of
from toolpost.registry import Item
from toolpost.result import Image, Output, Part, Resource, Result, Text
from toolpost.spec import ToolSpec

_FORM: Final = "langchain"
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
Who = Caller | Callable[[RunnableConfig], Caller] | None
Own = Callable[[dict[str, Any]], dict[str, Any]]
"""Arguments of a model under the tool's own names."""
Session = str | Callable[[RunnableConfig], str | None] | None


# --- ours, there -----------------------------------------------------------------------------


class LiveTool(StructuredTool):
    """A tool whose calls go to toolpost. Its parameters may have any name, ``config`` too."""

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self._parse_input(tool_input, tool_call_id),), {}


async def tools(
    source: Tools, *, caller: Who = None, session_id: Session = None, raises: bool = False
) -> list[StructuredTool]:
    """The tools of a caller. ``invoke`` works in other threads, ``ainvoke`` on this event loop.

    What goes wrong is a message of status ``error`` that the model can act on; with ``raises`` it
    is raised. The artifact of a message is the whole ``Result``. A caller, or a session, that is a
    function gets the config of the run: then every tool is offered, and the calls are judged.
    """
    acting: Acting[RunnableConfig] = Acting(source, caller=caller, session_id=session_id)
    home = asyncio.get_running_loop()

    def made(spec: ToolSpec, own: Own) -> dict[str, Any]:
        async def wait(arguments: dict[str, Any], config: RunnableConfig) -> tuple[Any, Result]:
            return _told(await acting.call(spec.name, own(arguments), config), raises=raises)

        def block(arguments: dict[str, Any], config: RunnableConfig) -> tuple[Any, Result]:
            if _is_running(home):
                raise RuntimeError("the tools' event loop runs here: use ainvoke")
            return asyncio.run_coroutine_threadsafe(wait(arguments, config), home).result()

        return {"coroutine": wait, "func": block}

    return _live(await listed(source, _FORM, caller=acting.known), made)


def blocking_tools(
    source: sync.Tools,
    *,
    caller: Caller | None = None,
    session_id: str | None = None,
    raises: bool = False,
) -> list[StructuredTool]:
    """The same for a program without an event loop: of ``toolpost.sync``."""
    more = {"caller": caller, "session_id": session_id}
    said = {key: value for key, value in more.items() if value is not None}

    def made(spec: ToolSpec, own: Own) -> dict[str, Any]:
        def block(arguments: dict[str, Any]) -> tuple[Any, Result]:
            return _told(source.execute(spec.name, own(arguments), **said), raises=raises)  # type: ignore[arg-type]

        return {"func": block}

    specs = source.list() if caller is None else source.list(caller)
    return _live(written(specs, _FORM), made)


def _live(
    listing: Listing, made: Callable[[ToolSpec, Own], dict[str, Any]]
) -> list[StructuredTool]:
    return [
        LiveTool(
            name=name,
            description=tool["description"],
            args_schema={"properties": {}, **tool["parameters"]},
            response_format="content_and_artifact",
            handle_tool_error=True,
            tags=list(spec.tags) or None,
            metadata={"tool": spec.name, "tier": spec.tier, "effects": spec.effects},
            **made(spec, partial(listing.exported.arguments_of, name)),
        )
        for spec, name, tool in listing.written()
    ]


def _told(result: Result, *, raises: bool) -> tuple[Any, Result]:
    if raises:
        result.raise_for_error()
    parts = content_of(result)
    if result.error is not None:
        raise ToolException(in_words(parts[0]))
    only = len(parts) == 1 and type(parts[0]) is Text
    return in_words(parts[0]) if only else list(map(_block, parts)), result


def _block(part: Part) -> dict[str, Any]:
    if (found := data_of(part)) is None:
        return {"type": "text", "text": in_words(part)}
    data, mime = found
    kind = "image" if mime.startswith("image/") else "file"  # there are no sounds in an answer
    return {"type": kind, "base64": b64encode(data).decode(), "mime_type": mime}


def _is_running(home: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is home
    except RuntimeError:
        return False


# --- theirs, here ----------------------------------------------------------------------------


def items(*tools: BaseTool, **options: Unpack[SpecOptions]) -> list[FunctionTool]:
    """Tools of LangChain for a registry or a runtime, with these options of a spec for all.

    The content of a message is what the model reads. Its artifact, if it is JSON, is the output.
    """
    return [_item(tool, options) for tool in tools]


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools of theirs that a module holds; those that are ours already stay where they are."""
    found = {id(one): one for one in namespace.values() if isinstance(one, BaseTool)}
    return [*items(*(one for one in found.values() if not isinstance(one, LiveTool)))]


def _item(tool: BaseTool, options: SpecOptions) -> FunctionTool:
    if not isinstance(tool, BaseTool):
        raise InvalidSpec(
            f"a {type(tool).__name__} is no tool of LangChain: put @tool before the function"
        )
    shown = tool.tool_call_schema
    wanted = _required(_full(tool)) - _properties(shown).keys() - _call_ids(_full(tool))
    if wanted:
        raise InvalidSpec(
            f"{tool.name} wants {', '.join(sorted(wanted))} of the agent that runs it, "
            "and there is none here"
        )

    def asked(arguments: dict[str, Any], call: Call) -> Any:
        formal = ToolCall(name=tool.name, args=arguments, id=call.call_id, type="tool_call")
        return formal if _is_formal(tool) else arguments

    async def wait(arguments: dict[str, Any], call: Call) -> Any:
        with _spoken(tool):
            return _output(await tool.ainvoke(asked(arguments, call)))

    def block(arguments: dict[str, Any], call: Call) -> Any:
        with _spoken(tool):
            return _output(tool.invoke(asked(arguments, call)))

    schema = {k: v for k, v in _schema(shown).items() if k not in ("title", "description")}
    return create_tool(
        _ILLEGAL.sub("_", tool.name).lstrip(".-") or "tool",
        tool.description,
        block if _blocks(tool) else wait,
        input_schema={"type": "object", "properties": {}, **schema},
        **options,
    )


@contextmanager
def _spoken(tool: BaseTool) -> Iterator[None]:
    """What LangChain's errors mean here."""
    try:
        yield
    except ToolException as exc:
        raise ToolFailed(str(exc) or "The tool failed.") from exc
    except ValidationError as exc:
        if exc.title != _title(tool):  # what a tool validates itself is none of the model's
            raise
        raise InvalidArguments(misfit(exc), effects="none") from exc


def _blocks(tool: BaseTool) -> bool:
    """Whether there is nothing to await. LangChain would run it in the few threads that everything
    in the process shares, and one that hangs would keep the others out.
    """
    if isinstance(tool, StructuredTool | Plain):
        return tool.coroutine is None
    return type(tool)._arun is BaseTool._arun


def _is_formal(tool: BaseTool) -> bool:
    """Whether its answer has to be a message: else it may be any data."""
    return bool(
        tool.response_format == "content_and_artifact"
        or tool.handle_tool_error
        or tool.handle_validation_error
        or _call_ids(_full(tool))
    )


def _output(said: Any) -> Any:
    if not isinstance(said, ToolMessage):
        return to_jsonable_python(said, serialize_unknown=True, bytes_mode="base64")
    content: Any = said.content
    blocks = [content] if isinstance(content, str) else content
    parts = tuple(map(_part, blocks))
    if said.status == "error":
        raise ToolFailed("\n".join(map(in_words, parts)) or "The tool failed.")
    if said.artifact is None:
        return content if isinstance(content, str) else Output(parts=parts)
    value = to_jsonable_python(said.artifact, serialize_unknown=True, bytes_mode="base64")
    return Output(value, parts or (Text(""),))


def _part(block: Any) -> Part:
    if isinstance(block, str):
        return Text(block)
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "base64": str(data), "mime_type": str(mime)}:
            return Image(b64decode(data), mime)
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image", "url": url}:
            found = _DATA_URL.fullmatch(url)
            return Image(b64decode(found[2]), found[1]) if found else Resource(url)
        case {"type": "file", "base64": str(data), "mime_type": str(mime)}:
            return Resource("data:", mime, data=b64decode(data))
        case _:
            return Text(json.dumps(block, default=str))


def _schema(of: Any) -> dict[str, Any]:
    if isinstance(of, dict):
        return of
    made: dict[str, Any] = (
        of.model_json_schema() if hasattr(of, "model_json_schema") else of.schema()
    )
    return made


def _properties(of: Any) -> dict[str, Any]:
    found: dict[str, Any] = _schema(of).get("properties", {})
    return found


def _full(tool: BaseTool) -> Any:
    """Its arguments, and what else it wants."""
    return tool.args_schema if isinstance(tool.args_schema, dict) else tool.get_input_schema()


def _title(tool: BaseTool) -> str:
    """What pydantic calls its arguments in an error."""
    of = _full(tool)
    config = getattr(of, "model_config", {})
    return str(config.get("title") or getattr(of, "__name__", ""))


def _required(of: Any) -> set[str]:
    fields = getattr(of, "model_fields", {})
    return {name for name, field in fields.items() if field.is_required()}


def _call_ids(of: Any) -> set[str]:
    """What is to be the number of the call."""
    return {
        name
        for name, field in getattr(of, "model_fields", {}).items()
        if any(_is_call_id(mark) for mark in field.metadata)
    }


def _is_call_id(mark: Any) -> bool:
    return mark is InjectedToolCallId or isinstance(mark, InjectedToolCallId)
