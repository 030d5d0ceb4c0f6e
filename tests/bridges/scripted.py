"""A model that reads from a script, for every framework: and what it was told, round by round.

The vendors' own clients speak with it over loopback, in the JSON of the wire; frameworks through
the fake or function models that they bring along.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.gateway.mcp.running import listening

Asked = tuple[str, dict[str, Any] | str]
"""A tool, under its own name, and the arguments: text is sent as it is."""
Round = list[Asked] | str


class Script:
    """``before`` is awaited before the round of that number; ``heard`` is what came of the calls of
    each round, in their order, as data where it is JSON.
    """

    def __init__(
        self, *rounds: Round, before: dict[int, Callable[[], Awaitable[None]]] | None = None
    ) -> None:
        self._rounds, self._before = rounds, before or {}
        self._number = 0
        self.heard: list[list[Any]] = []
        self.offered: list[str] = []
        self.sent: list[Any] = []
        """The bodies that came over the wire."""

    async def next(self, heard: Sequence[Any], offered: Sequence[str]) -> Round:
        self._number += 1
        if self._number > 1:
            self.heard.append([data_of(one) for one in heard])
        self.offered = list(offered)
        if self._number in self._before:
            await self._before[self._number]()
        return self._rounds[self._number - 1]

    def calls(self, asked: list[Asked]) -> list[tuple[str, str, Any]]:
        """Number, name as it was offered, arguments."""
        return [
            (f"call_{self._number}_{index}", self._offered(name), arguments)
            for index, (name, arguments) in enumerate(asked)
        ]

    def _offered(self, name: str) -> str:
        return name.replace(".", "__") if name.replace(".", "__") in self.offered else name


def data_of(said: Any) -> Any:
    if isinstance(said, list) and len(said) == 1 and "text" in said[0]:
        said = said[0]["text"]
    try:
        return json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return said


# --- the wire --------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(script: Script) -> AsyncIterator[str]:
    """A server that answers as the vendors' do."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        script.sent.append(asked)
        answer = json.dumps(await _WIRE[scope["path"]](script, asked)).encode()
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async with listening(app) as url:
        yield url


def written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


async def _chat(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
    told: list[Any] = []
    for message in reversed(asked["messages"]):
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            told.insert(0, message["content"])
    names = [tool["function"]["name"] for tool in asked.get("tools", [])]
    said = await script.next(told, names)
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    message["annotations"] = []
    if isinstance(said, str):
        message["content"] = said
    else:
        message["tool_calls"] = [
            {
                "id": number,
                "type": "function",
                "function": {"name": name, "arguments": written(arguments)},
            }
            for number, name, arguments in script.calls(said)
        ]
    reason = "stop" if isinstance(said, str) else "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": reason, "logprobs": None, "message": message}],
    }


async def _responses(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
    told: list[Any] = []
    for item in reversed(asked["input"]):
        if item.get("type") != "function_call_output":
            break
        told.insert(0, item["output"])
    said = await script.next(told, [tool["name"] for tool in asked.get("tools", [])])
    if isinstance(said, str):
        text = {"type": "output_text", "text": said, "annotations": []}
        output: list[dict[str, Any]] = [
            {
                "type": "message",
                "id": "m",
                "status": "completed",
                "role": "assistant",
                "content": [text],
            }
        ]
    else:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": number,
                "name": name,
                "arguments": written(arguments),
                "status": "completed",
            }
            for number, name, arguments in script.calls(said)
        ]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


async def _messages(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
    last = asked["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else []
    told = [block["content"] for block in blocks if block["type"] == "tool_result"]
    said = await script.next(told, [tool["name"] for tool in asked.get("tools", [])])
    if isinstance(said, str):
        content: list[dict[str, Any]] = [{"type": "text", "text": said}]
    else:
        content = [
            {"type": "tool_use", "id": number, "name": name, "input": arguments}
            for number, name, arguments in script.calls(said)
        ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": "end_turn" if isinstance(said, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


_WIRE = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/messages": _messages,
}


@asynccontextmanager
async def client_of(form: str, url: str) -> AsyncIterator[Callable[[list[Any], list[Any]], Any]]:
    """A vendor's own client, as a program uses it."""
    import anthropic
    import openai

    if form == "anthropic":
        async with anthropic.AsyncAnthropic(api_key="none", base_url=url, max_retries=0) as claude:
            yield lambda messages, tools: claude.messages.create(
                model="scripted", max_tokens=100, messages=messages, tools=tools
            )
        return
    async with openai.AsyncOpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0) as gpt:
        if form == "openai":
            yield lambda messages, tools: gpt.chat.completions.create(
                model="scripted", messages=messages, tools=tools
            )
        else:
            yield lambda messages, tools: gpt.responses.create(
                model="scripted", input=messages, tools=tools
            )


# --- frameworks ------------------------------------------------------------------------------


async def through_sdk(script: Script, tools: Any, form: str, *, caller: Any = None) -> None:
    """The loop, in the few lines that it takes."""
    from toolpost.loop import Loop

    async with at_work(script) as url, client_of(form, url) as ask:
        agent = Loop(tools, form, caller=caller)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
        while True:
            turn = await agent.answer(await ask(messages, await agent.tools()))
            messages += turn.messages
            if turn.over:
                break


async def through_langchain(script: Script, tools: Sequence[Any]) -> None:
    import asyncio

    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.messages.tool import tool_call

    named = {tool.name: tool for tool in tools}
    messages: list[Any] = [HumanMessage("Go.")]
    told: list[Any] = []
    while not isinstance(said := await script.next(told, list(named)), str):
        calls = [
            tool_call(name=name, args=arguments, id=number)
            for number, name, arguments in script.calls(said)
        ]
        model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=calls)]))
        answer = await model.ainvoke(messages)
        results = await asyncio.gather(
            *(named[call["name"]].ainvoke(call) for call in answer.tool_calls)
        )
        assert all(isinstance(result, ToolMessage) for result in results)
        messages += [answer, *results]
        told = [result.content for result in results]


async def through_pydantic_ai(script: Script, toolset: Any, **more: Any) -> Any:
    from pydantic_ai import Agent

    return await Agent(pydantic_model(script), toolsets=[toolset]).run("Go.", **more)


def pydantic_model(script: Script) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    async def respond(messages: Any, info: Any) -> Any:
        parts = [part for part in messages[-1].parts if hasattr(part, "tool_call_id")]
        told = [part.content for part in parts]
        said = await script.next(told, [tool.name for tool in info.function_tools])
        if isinstance(said, str):
            return ModelResponse(parts=[TextPart(said)])
        return ModelResponse(
            parts=[
                ToolCallPart(name, arguments, tool_call_id=number)
                for number, name, arguments in script.calls(said)
            ]
        )

    return FunctionModel(respond)


async def through_openai_agents(script: Script, **agent: Any) -> Any:
    from agents import Agent, RunConfig, Runner

    made = Agent(name="scripted", model=agents_model(script), **agent)
    return await Runner.run(made, "Go.", run_config=RunConfig(tracing_disabled=True), max_turns=20)


def agents_model(script: Script) -> Any:
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        async def get_response(self, *, input: Any, tools: Any, **more: Any) -> Any:  # noqa: A002
            told: list[Any] = []
            for item in reversed(input if isinstance(input, list) else []):
                if item.get("type") != "function_call_output":
                    break
                told.insert(0, item["output"])
            said = await script.next(told, [tool.name for tool in tools])
            output: list[Any]
            if isinstance(said, str):
                text = ResponseOutputText(type="output_text", text=said, annotations=[])
                output = [
                    ResponseOutputMessage(
                        id="m",
                        type="message",
                        role="assistant",
                        status="completed",
                        content=[text],
                    )
                ]
            else:
                output = [
                    ResponseFunctionToolCall(
                        type="function_call",
                        call_id=number,
                        name=name,
                        arguments=written(arguments),
                    )
                    for number, name, arguments in script.calls(said)
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *more: Any, **named: Any) -> Any:
            raise NotImplementedError

    return Scripted()
