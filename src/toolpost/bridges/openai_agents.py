"""The OpenAI Agents SDK: ours as live ``FunctionTool``s of an agent.

    agent = Agent(name="clerk", tools=await tools(runtime, caller=bot))

Above: programs. Below: ``loop``, and ``agents``, from the extra ``openai-agents``.

A call that waits for a person is told to the model; with ``approve`` the SDK is told before the
call that it needs a yes: the run is interrupted, and the yes that is given to its state is laid
down here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from toolpost.errors import MissingPart

try:
    from agents import (
        FunctionTool,
        RunContextWrapper,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
    )
    from agents.tool_context import ToolContext
except ModuleNotFoundError as exc:
    raise MissingPart(
        f"the bridge to the OpenAI Agents SDK needs {exc.name!r}. "
        'Install it with: pip install "toolpost[openai-agents]"'
    ) from exc

from toolpost.bridges.acting import Acting, Approve
from toolpost.call import Caller
from toolpost.errors import InvalidArguments
from toolpost.exporters import Export
from toolpost.loop import Tools, content_of, in_words, listed, parse, text_of
from toolpost.loop.content import data_of, refused
from toolpost.result import Part, Result
from toolpost.spec import ToolSpec

Context = RunContextWrapper[Any]
Shown = ToolOutputText | ToolOutputImage | ToolOutputFileContent


async def tools(
    source: Tools,
    *,
    caller: Caller | Callable[[Context], Caller] | None = None,
    session_id: str | Callable[[Context], str | None] | None = None,
    approve: Approve | None = None,
    strict: bool = False,
) -> list[FunctionTool]:
    """The tools of a caller. Whatever goes wrong with a call is text that the model reads.

    A caller, or a session, that is a function gets the context of the run: then every tool is
    offered, and the calls are judged.
    """
    acting: Acting[Context] = Acting(source, caller=caller, session_id=session_id, approve=approve)
    listing = await listed(source, "openai-responses", caller=acting.known, strict=strict)
    return [_tool(acting, listing.exported, spec, said=tool) for spec, _, tool in listing.written()]


def _tool(
    acting: Acting[Context], exported: Export, spec: ToolSpec, *, said: dict[str, Any]
) -> FunctionTool:
    name = said["name"]

    async def invoke(context: ToolContext[Any], text: str) -> str | list[Shown]:
        try:
            arguments = exported.arguments_of(name, parse(text))
        except InvalidArguments as fault:
            return text_of(refused(fault, spec.name))
        if context.is_tool_approved(name, context.tool_call_id):
            return _output(await acting.approved(spec.name, arguments, context))
        return _output(await acting.call(spec.name, arguments, context))

    async def waits(context: Context, arguments: dict[str, Any], number: str) -> bool:
        given = exported.arguments_of(name, arguments)
        planned = await acting.call(spec.name, given, context, dry_run=True)
        return "ask" in (planned.metadata.plan or {})

    return FunctionTool(
        name=name,
        description=said["description"],
        params_json_schema=said["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=said.get("strict") is True,
        needs_approval=False if acting.approve is None else waits,
    )


def _output(result: Result) -> str | list[Shown]:
    if result.error is not None or not result.parts:
        return text_of(result)
    return [_shown(part) for part in content_of(result)]


def _shown(part: Part) -> Shown:
    if (found := data_of(part)) is not None:
        data, mime = found
        url = f"data:{mime};base64,{b64encode(data).decode()}"
        if mime.startswith("image/"):
            return ToolOutputImage(image_url=url)
        if mime == "application/pdf":
            return ToolOutputFileContent(file_data=url, filename="file.pdf")
    return ToolOutputText(text=in_words(part))
