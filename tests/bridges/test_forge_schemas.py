"""The schemas of Forge tools, in the vendors' forms, as their own packages take them."""

from __future__ import annotations

import pytest
from anthropic.types import ToolParam
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from tests.bridges.test_forge import TEXT, Forged
from toolpost.bridges.forge import ToolExecutor, ToolParameter, ToolRegistry


@pytest.mark.req("FG-5")
def test_the_schemas_are_those_of_the_document_and_the_vendors_take_them() -> None:
    registry = ToolRegistry()
    registry.clear()
    made = Forged(None, TEXT, ToolParameter(name="n", type="integer", description="n", minimum=1))
    parameters = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "A text."},
            "n": {"type": "integer", "description": "n", "minimum": 1},
        },
        "required": ["text", "n"],
    }
    named = {"name": "forged", "description": "A tool for tests."}
    openai = {"type": "function", "function": {**named, "parameters": parameters}}
    anthropic = {**named, "input_schema": parameters}
    assert made.to_openai_schema() == openai
    assert made.to_anthropic_schema() == anthropic
    registry.register(made)
    executor = ToolExecutor(registry)
    assert executor.get_all_schemas() == [openai]
    assert executor.get_all_schemas("anthropic") == [anthropic]
    langchain = executor.get_all_schemas(format="langchain")
    assert langchain == [made.to_langchain_schema()]
    assert convert_to_openai_tool(langchain[0]) == openai
    TypeAdapter(ChatCompletionFunctionToolParam).validate_python(openai)
    TypeAdapter(ToolParam).validate_python(anthropic)
    with pytest.raises(ValueError, match="Unknown schema format: gemini"):
        executor.get_all_schemas("gemini")
    registry.clear()
