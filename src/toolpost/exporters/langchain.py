"""LangChain's form: a function as a dict, which ``bind_tools`` and its like take for any model.

Above: ``export``, by name. Below: OpenAI's form, which LangChain has made its own.
"""

from __future__ import annotations

from typing import Final

from toolpost.exporters.openai import NAMES, function_of
from toolpost.exporters.values import Form

LANGCHAIN: Final = Form(write=function_of, names=NAMES, strict=True)
