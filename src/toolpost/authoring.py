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
from typing import Any, ClassVar, TypedDict, Unpack, overload

import msgspec

from toolpost.contracts import Health
from toolpost.errors import InvalidArguments, InvalidOutput, InvalidSpec
from toolpost.schema import Schema
from toolpost.signature import Signature, describe
from toolpost.spec import (
    Cache,
    Effects,
    Isolation,
    Limits,
    Permissions,
    Retry,
    State,
    ToolSpec,
    spec_from,
)
from toolpost.verified import verified
from toolpost.wording import nearest


class SpecOptions(TypedDict, total=False):
    """Every field of a spec that neither the code nor ``create_tool`` itself tells."""

    title: str
    version: str
    category: str
    tags: Iterable[str]
    examples: Iterable[dict[str, Any]]
    tier: int
    effects: Effects
    timeout: float
    total_timeout: float
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
    state: State
    coerce: bool
    output_schema: dict[str, Any] | bool


class ToolOptions(SpecOptions, total=False):
    """The same, and what the code tells too, for those who want to say it otherwise."""

    name: str
    description: str


_OPTIONS = tuple(ToolOptions.__annotations__)
_TUPLES = frozenset(("tags", "examples", "egress"))


class FunctionTool(msgspec.Struct, frozen=True, eq=False, dict=True, weakref=True):
    """A function and its spec. Calling it calls the plain function; it is safe to share."""

    function: Callable[..., Any]
    spec: ToolSpec
    signature: Signature | None
    """How to call it; ``None`` if it takes its arguments as one mapping."""

    def __post_init__(self) -> None:
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            self.__dict__[name] = getattr(self.function, name, None)

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
    if inspect.isclass(function):
        raise InvalidSpec(
            f"@tool stands before a function: make {function.__name__} a Tool instead"
        )
    if not callable(function):
        raise InvalidSpec(
            f"@tool stands before a function, not a {type(function).__name__}; "
            "its options have names: @tool(name=…)"
        )
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
    **options: Unpack[SpecOptions],
) -> FunctionTool:
    """Make a tool from plain data and a function that takes the arguments as one mapping.

    A parameter of type ``Call`` is filled in; no other is. What was given may be changed
    afterwards: the tool keeps a copy.
    """
    fields = {
        **_fields(options),
        "name": name,
        "description": description,
        "input_schema": input_schema,
        "binding": _reference(function),
    }
    spec = verified(spec_from(fields))
    describe(function)  # what it asks for beside the arguments has to be something we can give
    return FunctionTool(function, spec_from(spec.to_dict()), None)


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
        run = getattr(cls, "run", None)
        if run is None:
            raise InvalidSpec(f"{cls.__name__} has no run method: write what the tool does there")
        cls.signature = describe(run, skip_first=True)
        if cls.__doc__:
            options.setdefault("description", inspect.cleandoc(cls.__doc__))
        cls.spec = _spec(options, cls.signature, name=_snake(cls.__name__), binding={})

    async def initialize(self) -> None:
        """Called once, before the first call."""

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """What is wrong with arguments that fit the schema; nothing if they are fine. A tool
        that is ready is asked before a person is.
        """
        return ()

    async def health(self) -> Health:
        """Whether it can do its work; what it needs to know for that, a secret, is injected."""
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
    fields = {
        "name": name,
        "description": signature.description,
        "output_schema": signature.output_schema,
        **_fields(options),
        "input_schema": signature.input_schema,
        "binding": binding,
    }
    spec = spec_from(fields)
    return verified(spec) if "output_schema" in options else spec


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as fields of a spec."""
    for key in options:
        if key not in _OPTIONS:
            raise InvalidSpec(f"a tool has no option {key!r}{nearest(key, _OPTIONS)}", at=(key,))
    return {k: _listed(v) if k in _TUPLES else v for k, v in options.items()}


def _listed(values: Any) -> Any:
    is_list = isinstance(values, Iterable) and not isinstance(values, str)
    return tuple(values) if is_list else values


def _reference(function: Callable[..., Any]) -> dict[str, Any]:
    """Where another process finds the function; what it finds there is checked at bind."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not qualname or "<" in qualname or inspect.ismethod(function):
        return {}
    reference = {"module": module, "function": qualname}
    if module == "__main__":
        from pathlib import Path  # only a script's own functions need it

        path = getattr(sys.modules["__main__"], "__file__", None)
        if path is None or not Path(path).is_file():  # typed in, or piped in
            return {}
        reference["main"] = path
    return reference


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
