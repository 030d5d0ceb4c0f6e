"""LangChain's form: a function as a dict, which ``bind_tools`` and its like take for any model.

Above: ``export``, by name. Below: OpenAI's form, which LangChain has made its own, and ``keys``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from toolpost.exporters.keys import STRICTEST, keys_of, respelled
from toolpost.exporters.openai import NAMES, function_of
from toolpost.exporters.roots import rooted
from toolpost.exporters.values import Form, Tell
from toolpost.spec import ToolSpec


def _function(spec: ToolSpec, name: str, *, strict: bool, tell: Tell) -> dict[str, Any]:
    """For any model: parameters have names that the strictest of vendors takes."""
    if keys_of(spec):
        schema, _ = respelled(rooted(spec.input_schema, tell), STRICTEST, tell)
        spec = msgspec.structs.replace(spec, input_schema=schema, examples=())
    return function_of(spec, name, strict=strict, tell=tell)


LANGCHAIN: Final = Form(write=_function, names=NAMES, strict=True, keys=keys_of)
