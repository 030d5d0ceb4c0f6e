"""The tools that come with toolpost: ordinary tools, each file one set of them.

A set is a module with ``tools(settings, base)``, which gives its tools, and ``Settings``, what the
config may say of it; ``SAMPLE`` is what ``toolpost init --with`` writes there, ``NEEDS`` what some
tool has to be told before it is there. ``base`` is the folder of the config, where relative paths
start.

Above: ``sources/builtin.py``, which loads a set if the config names it. Below: what anybody has who
writes tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from toolpost.authoring import FunctionTool
from toolpost.errors import InvalidSpec
from toolpost.signature import FromSpec
from toolpost.wording import nearest

__all__ = ["given", "raw"]


def given(tool: FunctionTool, **values: Any) -> FunctionTool:
    """The tool, its parameters of type ``Given`` filled in: ``given(read_file, files=settings)``.

    What is given becomes plain data of the spec, so that any process can run the tool.
    """
    injected = {} if tool.signature is None else tool.signature.injected
    wanted = [name for name, kind in injected.items() if isinstance(kind, FromSpec)]
    for name in values:
        if name not in wanted:
            hint = nearest(name, wanted) or f"; given are {', '.join(wanted) or 'none'}"
            raise InvalidSpec(f"{tool.spec.name!r} has no parameter {name!r} to be given{hint}")
    plain = {name: msgspec.json.decode(msgspec.json.encode(one)) for name, one in values.items()}
    binding = {**tool.spec.binding, "given": {**tool.spec.binding.get("given", {}), **plain}}
    spec = msgspec.structs.replace(tool.spec, binding=binding)
    return FunctionTool(tool.function, spec, tool.signature)


def raw(*names: str) -> Callable[[FunctionTool], FunctionTool]:
    """Before ``@tool``: these parameters hold what people wrote, and personal data stays in it."""

    def marked(tool: FunctionTool) -> FunctionTool:
        schema = tool.spec.input_schema
        properties = dict(schema["properties"])
        for name in names:
            properties[name] = {**properties[name], "x-raw": True}
        spec = msgspec.structs.replace(tool.spec, input_schema={**schema, "properties": properties})
        return FunctionTool(tool.function, spec, tool.signature)

    return marked
