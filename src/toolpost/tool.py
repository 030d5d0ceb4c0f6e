"""Writing tools: ``@tool`` for functions, ``Tool`` for classes, ``create_tool`` for plain data.

What comes out has a ``spec`` and the code behind it; how the code is run is the backend's
business. A tool is checked when it is written: a missing description, a type that has no JSON form
or an illegal name fails here, with what to change.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypedDict, Unpack, get_args, overload

from toolpost.contracts import Health
from toolpost.errors import InvalidArguments, InvalidOutput, InvalidSpec
from toolpost.schema import Schema, verify, verify_input
from toolpost.signature import Signature, describe
from toolpost.spec import (
    Cache,
    Effects,
    Isolation,
    Limits,
    Permissions,
    Retry,
    ToolSpec,
    nearest,
)


class ToolOptions(TypedDict, total=False):
    """Every field of a spec that the code itself does not tell."""

    name: str
    description: str
    title: str
    version: str
    category: str
    tags: Iterable[str]
    examples: Iterable[dict[str, Any]]
    tier: int
    effects: Effects
    timeout: float
    limits: Limits
    egress: Iterable[str]
    permissions: Permissions
    requires_approval: bool
    retry: Retry
    fallback: str
    cache: Cache
    labels: dict[str, str]
    context_aware: bool
    isolation: Isolation
    coerce: bool
    output_schema: dict[str, Any] | bool


_OPTIONS = tuple(ToolOptions.__annotations__)
_TUPLES = ("tags", "examples", "egress")


class FunctionTool:
    """A function and its spec. Calling it calls the plain function; it is safe to share."""

    __slots__ = ("__dict__", "__weakref__", "function", "mapping", "signature", "spec")

    def __init__(
        self, function: Callable[..., Any], spec: ToolSpec, signature: Signature | None
    ) -> None:
        self.function = function
        self.spec = spec
        self.signature = signature
        """How to call it; ``None`` if it takes its arguments as one mapping."""
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            self.__dict__[name] = getattr(function, name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool: ``@tool`` or ``@tool(tier=0, effects="read", timeout=5)``."""
    if function is None:
        return lambda function: _from_function(function, options)
    return _from_function(function, options)


def _from_function(function: Callable[..., Any], options: ToolOptions) -> FunctionTool:
    if not callable(function):
        raise InvalidSpec(f"@tool stands before a function, not a {type(function).__name__}")
    signature = describe(function)
    spec = _spec(
        options,
        signature,
        name=getattr(function, "__name__", ""),
        binding=_reference(function),
    )
    return FunctionTool(function, spec, signature)


def create_tool(
    name: str,
    description: str,
    function: Callable[..., Any],
    *,
    input_schema: dict[str, Any],
    **options: Unpack[ToolOptions],
) -> FunctionTool:
    """Make a tool from plain data and a function that takes the arguments as one mapping.

    A parameter of type ``Call`` is filled in; no other is.
    """
    _known(options)
    verify_input(input_schema)
    if (output_schema := options.get("output_schema")) is not None:
        verify(output_schema)
    fields: dict[str, Any] = {**options, "name": name, "description": description}
    spec = ToolSpec(
        input_schema=input_schema, binding=_reference(function), **_tuples(fields)
    )
    return FunctionTool(function, spec, None)


class Tool:
    """A tool with state or a life cycle: subclass it and write ``run``.

    ``class Weather(Tool, tier=1, effects="read")`` takes its description from the docstring and
    its schema from ``run``. Register an instance, or the class: then it is made on first use, and
    its constructor's parameters are injected.
    """

    spec: ClassVar[ToolSpec]
    signature: ClassVar[Signature]

    def __init_subclass__(cls, **options: Unpack[ToolOptions]) -> None:
        super().__init_subclass__()
        run = cls.__dict__.get("run")
        if run is None:
            raise InvalidSpec(f"{cls.__name__} has no run method: write what the tool does there")
        cls.signature = describe(run, skip_first=True)
        options.setdefault("description", inspect.cleandoc(cls.__doc__ or ""))
        cls.spec = _spec(options, cls.signature, name=_snake(cls.__name__), binding={})

    async def initialize(self) -> None:
        """Called once, before the first call."""

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """What is wrong with arguments that fit the schema; nothing if they are fine."""
        return ()

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        """Called once, after the last call has left."""


def validate_tool_input(tool: FunctionTool | Tool | ToolSpec, arguments: Any) -> str | None:
    """What is wrong with these arguments, or ``None``."""
    spec = tool if isinstance(tool, ToolSpec) else tool.spec
    try:
        Schema(spec.input_schema, coerce=spec.coerce).admit(arguments)
    except InvalidArguments as fault:
        return fault.message
    return None


def validate_tool_output(tool: FunctionTool | Tool | ToolSpec, output: Any) -> str | None:
    """What is wrong with this output, or ``None``."""
    spec = tool if isinstance(tool, ToolSpec) else tool.spec
    try:
        Schema(True if spec.output_schema is None else spec.output_schema).check(output)
    except InvalidOutput as fault:
        return fault.message
    return None


def _spec(
    options: ToolOptions, signature: Signature, *, name: str, binding: dict[str, Any]
) -> ToolSpec:
    fields: dict[str, Any] = {
        "name": name,
        "description": signature.description,
        "output_schema": signature.output_schema,
        **_tuples(_known(options)),
    }
    if "output_schema" in options and fields["output_schema"] is not None:
        verify(fields["output_schema"])
    return ToolSpec(input_schema=signature.input_schema, binding=binding, **fields)


def _known(options: ToolOptions) -> dict[str, Any]:
    for key in options:
        if key not in _OPTIONS:
            raise InvalidSpec(f"a tool has no option {key!r}{nearest(key, _OPTIONS)}", at=(key,))
    for key, allowed in (("effects", get_args(Effects)), ("isolation", get_args(Isolation))):
        value = options.get(key)
        if value is not None and value not in allowed:
            raise InvalidSpec(f"{key} is one of {', '.join(allowed)}, not {value!r}", at=(key,))
    return dict(options)


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    for key in _TUPLES:
        if key in fields:
            if isinstance(fields[key], str):
                raise InvalidSpec(f"{key} is a list of values, not one text", at=(key,))
            fields[key] = tuple(fields[key])
    return fields


def _reference(function: Callable[..., Any]) -> dict[str, Any]:
    """Where another process finds the function; what it finds there is checked at bind."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module is None or "<" in qualname:
        return {}
    reference = {"module": module, "function": qualname}
    if module == "__main__":
        path = getattr(sys.modules["__main__"], "__file__", None)
        if path is None:
            return {}
        reference["main"] = path
    return reference


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
