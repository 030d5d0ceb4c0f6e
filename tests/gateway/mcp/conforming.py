"""The tools that the official conformance suite calls, written as anybody writes tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from toolpost import Call, Injected, InternalError, ToolFailed, ToolSpec, tool
from toolpost.contracts import Answer, Elicits, Question
from toolpost.result import Audio, Image, Output, Resource, Text

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8"
    "cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"
Asks = Injected[Elicits]


def _form(required: bool = True, **properties: Any) -> dict[str, Any]:
    needs = {"required": list(properties)} if required else {}
    return {"type": "object", "properties": properties, **needs}


@tool
async def test_simple_text():
    """Give a text."""
    return "This is a simple text response for testing."


@tool
async def test_image_content() -> Output:
    """Give an image."""
    return Output(parts=(Image(PNG),))


@tool
async def test_audio_content() -> Output:
    """Give a sound."""
    return Output(parts=(Audio(WAV),))


@tool
async def test_embedded_resource() -> Output:
    """Give a resource."""
    text = "This is an embedded resource content."
    return Output(parts=(Resource("test://embedded-resource", "text/plain", text),))


@tool
async def test_multiple_content_types() -> Output:
    """Give several things."""
    data = Resource(
        "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
    )
    return Output(parts=(Text("Multiple content types test:"), Image(PNG), data))


@tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolFailed("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(call: Call):
    """Tell how far it is."""
    for done in (0, 50, 100):
        call.progress(done, 100)
        await asyncio.sleep(0.02)
    return "done"


@tool
async def test_logging_tool():
    """Say nothing but its result."""
    return "done"


@tool(labels={"mcp.client": "sampling"})
async def test_missing_capability():
    """Need a client that can sample."""
    return "never"


async def _asked(asks: Elicits, call: Call, name: str, message: str, schema: Any) -> Any:
    return await asks(call, Question(name=name, message=message, schema=schema))


def _given(said: Answer, what: str) -> str:
    """What was said; of a client that cannot be asked, that nobody was."""
    return str((said.content or {}).get(what, said.action))


@tool(timeout=30)
async def test_elicitation(message: str, call: Call, asks: Asks):
    """Ask the user."""
    words = {"type": "string", "description": "What the user says."}
    said = await _asked(asks, call, "user", message, _form(username=words, email=words))
    return f"User response: {said.action}, {said.content}"


@tool(timeout=30)
async def test_elicitation_sep1034_defaults(call: Call, asks: Asks):
    """Ask, with an answer ready for everything."""
    schema = _form(
        required=False,
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    said = await _asked(asks, call, "user", "Please look it over.", schema)
    return f"Elicitation completed: action={said.action}, content={said.content}"


@tool(timeout=30)
async def test_elicitation_sep1330_enums(call: Call, asks: Asks):
    """Ask for choices of every sort."""
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    names = ["Option One", "Option Two", "Option Three"]
    schema = _form(
        required=False,
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    said = await _asked(asks, call, "user", "Please choose.", schema)
    return f"Elicitation completed: action={said.action}, content={said.content}"


@tool(timeout=30)
async def test_streaming_elicitation(call: Call, asks: Asks):
    """Tell how far it is, then ask."""
    call.progress(1, 2)
    said = await _asked(asks, call, "name", "Who are you?", _form(name={"type": "string"}))
    return said.action


@tool(timeout=30)
async def test_input_required_result_elicitation(call: Call, asks: Asks):
    """Ask for a name, and greet."""
    said = await _asked(
        asks, call, "user_name", "What is your name?", _form(name={"type": "string"})
    )
    return f"Hello, {_given(said, 'name')}!"


@tool(timeout=30)
async def test_input_required_result_request_state(call: Call, asks: Asks):
    """Ask for a yes."""
    await _asked(asks, call, "confirm", "Please confirm", _form(ok={"type": "boolean"}))
    return "state-ok"


@tool(timeout=30)
async def test_input_required_result_tampered_state(call: Call, asks: Asks):
    """Ask for a yes, too."""
    await _asked(asks, call, "confirm", "Please confirm", _form(ok={"type": "boolean"}))
    return "state-ok"


@tool(timeout=30)
async def test_input_required_result_multi_round(call: Call, asks: Asks):
    """Ask twice."""
    name = await _asked(asks, call, "step1", "What is your name?", _form(name={"type": "string"}))
    color = await _asked(asks, call, "step2", "Which colour?", _form(color={"type": "string"}))
    return f"{_given(name, 'name')} likes {_given(color, 'color')}"


@tool
async def test_custom_headers(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
):
    """Want an argument in a header, too."""
    return region


@tool
async def greet(name: str):
    """Greet, at once."""
    return f"Hello, {name}!"


@tool(timeout=120)
async def slow_compute(seconds: float, label: str = ""):
    """Take long."""
    await asyncio.sleep(seconds)
    return f"{label} computed"


@tool(timeout=120, labels={"mcp.client": "tasks"})
async def failing_job() -> str:
    """Fail, as a task."""
    raise ToolFailed("This job intentionally fails.")


@tool(timeout=120)
async def protocol_error_job() -> str:
    """Break, around the tool."""
    raise InternalError("Something of ours is broken.")


@tool(timeout=120)
async def confirm_delete(filename: str, call: Call, asks: Asks):
    """Ask, while it is a task."""
    yes = _form(confirm={"type": "boolean"})
    said = await _asked(asks, call, "confirm", f"Delete {filename}?", yes)
    return f"{filename}: {said.action}"


@tool(timeout=120)
async def multi_input(call: Call, asks: Asks):
    """Ask two things at once, while it is a task."""
    name = _form(name={"type": "string"})
    said = await asyncio.gather(
        *(_asked(asks, call, key, f"Which {key}?", name) for key in ("first", "second"))
    )
    return " and ".join(_given(one, "name") for one in said)


def how_to_reach(
    name: str = "",
    address: Any = None,
    contactMethod: str = "",
    phone: str = "",
    email: str = "",
) -> str:
    return phone or email


def _2020_12() -> ToolSpec:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
    return ToolSpec(
        name="json_schema_2020_12_tool",
        description="A schema.",
        input_schema=schema,
        binding={"module": __name__, "function": "how_to_reach"},
    )


def tools(change: Callable[[], None]) -> list[Any]:
    """All of them; ``change`` changes the list of tools."""

    @tool
    async def test_trigger_tool_change():
        """Change the list of tools."""
        change()
        return "changed"

    named = [one for name, one in globals().items() if name.startswith("test_")]
    jobs = [slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input]
    return [*named, greet, *jobs, test_trigger_tool_change, _2020_12()]
