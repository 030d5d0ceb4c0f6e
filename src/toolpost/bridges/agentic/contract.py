"""The AgenticFramework contract: ``create_tool(ToolConfig(…))``, its errors, its two validations.

A function gives back its output, or one of the errors, returned or raised: what the document has as
``Right`` and ``Left``. Above: ``agent.py`` runs such tools, a registry takes them as they are.
Below: the public API. It refuses to know who calls.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec

from toolpost import create_tool as create
from toolpost.authoring import FunctionTool
from toolpost.errors import (
    CallError,
    InvalidArguments,
    InvalidSpec,
    TimedOut,
    ToolFailed,
    Unauthorized,
)
from toolpost.registry import Item
from toolpost.result import Failure
from toolpost.spec import Effects, Retry

DEFAULT_TIMEOUT: Final = 10_000_000
"""Microseconds."""
_SECOND: Final = 1_000_000
_LONGEST: Final = 2**53

ToolInput = Mapping[str, Any]
ToolOutput = dict[str, Any]


class ToolError(Exception):
    """One of four. They are equal if they say the same.

    ``failure`` is what the road said, if the error came from there; ``retryable`` whether the agent
    may try again.
    """

    failure: Failure | None = None
    retryable: bool = False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), self.args))

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else self.text

    @property
    def text(self) -> str:
        """What it says where it has no words of its own."""
        return inspect.cleandoc(type(self).__doc__ or "").partition("\n")[0]

    def __str__(self) -> str:
        return self.message


class ToolExecutionError(ToolError):
    """The tool failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ToolTimeoutError(ToolError):
    """The tool exceeded its time limit."""

    def __init__(self) -> None:
        super().__init__()


class ToolValidationError(ToolError):
    """The input or the output does not fit its schema."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ToolAuthorizationError(ToolError):
    """The tool is not authorized for this agent."""

    def __init__(self) -> None:
        super().__init__()


Execute = Callable[[dict[str, Any]], "ToolOutput | ToolError | Awaitable[ToolOutput | ToolError]"]


class ToolConfig(msgspec.Struct, frozen=True):
    """``timeout`` is in microseconds, or a ``timedelta``; without one it is ten seconds.

    ``retryable`` says that a call may be repeated after a failure: the agent may then try up to
    three times.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    execute: Execute
    timeout: int | timedelta | None = None
    retryable: bool = True


class Tool(FunctionTool, frozen=True, eq=False, dict=True, weakref=True):
    """A tool of this contract: never changed, shared by any number of threads and agents."""

    timeout: int = DEFAULT_TIMEOUT
    """Microseconds."""
    retryable: bool = True

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def description(self) -> str:
        return self.spec.description

    @property
    def input_schema(self) -> dict[str, Any]:
        """A copy."""
        return copy.deepcopy(self.spec.input_schema)

    @property
    def output_schema(self) -> dict[str, Any] | bool | None:
        """A copy."""
        return copy.deepcopy(self.spec.output_schema)


def create_tool(config: ToolConfig, *, tier: int = 1, effects: Effects | None = None) -> Tool:
    """The tool of a config, ready for an agent or a registry.

    The system itself repeats nothing: trying again is the agent's business. ``effects`` are
    ``idempotent`` for a tool that may be repeated, ``once`` for one that may not, unless given.
    """
    timeout = _microseconds(config)
    made = create(
        config.name,
        config.description,
        _function(config),
        input_schema=config.input_schema,
        output_schema=config.output_schema,
        timeout=timeout / _SECOND,
        tier=tier,
        effects=effects or ("idempotent" if config.retryable else "once"),
        retry=Retry(attempts=1),
        isolation="inline" if inspect.iscoroutinefunction(config.execute) else "thread",
    )
    return Tool(made.function, made.spec, None, timeout, config.retryable)


def tools(*given: Tool) -> list[Item]:
    """The tools as items of a registry, which they are."""
    for one in given:
        if not isinstance(one, Tool):
            raise InvalidSpec(
                f"a {type(one).__name__} is no tool of this contract: make one with "
                "create_tool(ToolConfig(…))"
            )
    return list(given)


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools that a module holds, each once."""
    found = {id(one): one for one in namespace.values() if isinstance(one, Tool)}
    return tools(*found.values())


def _microseconds(config: ToolConfig) -> int:
    given = config.timeout
    if isinstance(given, timedelta):
        given = given // timedelta(microseconds=1)
    if given is None:
        return DEFAULT_TIMEOUT
    if type(given) is not int or not 0 < given <= _LONGEST:
        raise InvalidSpec(
            f"the timeout of {config.name!r} is a whole number of microseconds above 0, or a "
            "timedelta; leave it out to have ten seconds",
            at=("timeout",),
        )
    return given


def _function(config: ToolConfig) -> Callable[..., Any]:
    execute: Callable[..., Any] = config.execute
    retryable = config.retryable

    async def later(begun: Awaitable[Any]) -> Any:
        with _spoken(retryable=retryable):
            return _right(await begun)

    async def wait(arguments: dict[str, Any]) -> Any:
        return await later(execute(arguments))

    def call(arguments: dict[str, Any]) -> Any:
        with _spoken(retryable=retryable):
            given = execute(arguments)
            return later(given) if inspect.isawaitable(given) else _right(given)

    return wait if inspect.iscoroutinefunction(execute) else call


def _right(given: Any) -> Any:
    """What a tool gave back; the error that it may be is raised."""
    if isinstance(given, ToolError):
        raise given
    return given


@contextmanager
def _spoken(*, retryable: bool) -> Iterator[None]:
    """What a tool says in this contract's words is said in the road's."""
    try:
        yield
    except ToolError as error:
        kind = next(ours for theirs, ours in _MEANS.items() if isinstance(error, theirs))
        again = retryable and kind in (ToolFailed, TimedOut)
        raise kind(error.message, retryable=again) from error


_MEANS: Final[Mapping[type[ToolError], type[CallError]]] = {
    ToolValidationError: InvalidArguments,
    ToolTimeoutError: TimedOut,
    ToolAuthorizationError: Unauthorized,
    ToolError: ToolFailed,
}
