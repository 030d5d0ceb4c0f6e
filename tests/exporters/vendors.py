"""What the vendors' own packages make of an exported tool: they read it, or they refuse it."""

from __future__ import annotations

from typing import Any

from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from langchain_core.utils.function_calling import convert_to_openai_tool
from mcp.types import Tool
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from toolpost.exporters import Export

_COMPLETIONS = TypeAdapter(ChatCompletionFunctionToolParam)
_RESPONSES = TypeAdapter(FunctionToolParam)
_ANTHROPIC = TypeAdapter(ToolParam)


def _read(kind: TypeAdapter[Any], tool: dict[str, Any]) -> Any:
    """A key that the vendor does not know would be gone."""
    read = {**kind.validate_python(tool)}
    if "input_examples" in read:
        read["input_examples"] = list(read["input_examples"])
    assert read == tool
    return read


def schema_read(form: str, tool: dict[str, Any]) -> Any:
    """The input schema as the vendor's types have it, after they have read the whole tool."""
    if form == "openai":
        return _read(_COMPLETIONS, tool)["function"]["parameters"]
    if form == "openai-responses":
        return _read(_RESPONSES, tool)["parameters"]
    if form == "anthropic":
        return _read(_ANTHROPIC, tool)["input_schema"]
    if form == "mcp":
        return Tool.model_validate(tool).input_schema
    if form == "gemini":
        return FunctionDeclaration.model_validate(tool).parameters_json_schema
    assert form == "langchain"
    assert tool.keys() <= {"name", "description", "parameters", "strict"}
    function = convert_to_openai_tool(tool)["function"]
    assert function["name"] == tool["name"] and function["description"] == tool["description"]
    return function["parameters"]


def schemas_read(export: Export) -> dict[str, Any]:
    """Name of the tool → its input schema, as the vendor has read it."""
    named = zip(export.names.values(), export.tools, strict=True)
    return {name: schema_read(export.form, tool) for name, tool in named}
