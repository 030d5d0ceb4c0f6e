"""OpenAI's two forms: a function of chat completions, and of the responses API.

Above: ``export``, by name, and LangChain's form. Below: ``roots`` and ``strict``.
"""

from __future__ import annotations

from typing import Any, Final

from toolpost.exporters.names import Rule
from toolpost.exporters.roots import rooted, with_items, with_properties
from toolpost.exporters.strict import OPENAI, strictly
from toolpost.exporters.values import Form, Tell
from toolpost.spec import ToolSpec

NAMES: Final = Rule(legal=r"[A-Za-z0-9_-]+", most=64)
_MOST: Final = 128


def function_of(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    """Name, description and parameters; ``strict`` where it was asked for and can be had."""
    schema = rooted(spec.input_schema, tell)
    function = {"name": name, "description": spec.description}
    if strict and (parameters := strictly(schema, OPENAI, tell)) is not None:
        return {**function, "parameters": parameters, "strict": True}
    return {**function, "parameters": with_properties(with_items(schema, tell), tell)}


def _completions(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    return {"type": "function", "function": function_of(spec, name, strict=strict, tell=tell)}


def _responses(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    """Where nothing is said, this API makes schemas strict as it sees fit: it is said."""
    return {"type": "function", "strict": False} | function_of(spec, name, strict=strict, tell=tell)


COMPLETIONS: Final = Form(write=_completions, names=NAMES, strict=True, most=_MOST)
RESPONSES: Final = Form(write=_responses, names=NAMES, strict=True, most=_MOST)
