"""How one Python function is called: arguments converted, injected ones filled in, the return value
made plain. The same in the loop, in a thread and in a worker's process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolpost.call import Call
from toolpost.contracts import Services
from toolpost.errors import MissingPart
from toolpost.result import PARTS, Output
from toolpost.signature import Inject, Secret, Signature, describe

_SCALARS = frozenset((int, str, float, bool, type(None)))
Giver = Callable[[Call | None], Any]


class Function(msgspec.Struct, frozen=True):
    """A function, how a call becomes a call of it, and how its return value becomes data."""

    function: Callable[..., Any]
    call: Callable[[Call], Any]
    finish: Callable[[Any], Any]
    is_async: bool
    gives_data: bool
    """What comes back needs no finishing."""
    takes_json: bool
    """The arguments go in as they are, and none is injected."""
    secrets: tuple[str, ...] = ()
    """The variables it wants injected."""


def function_of(target: Any, services: Services) -> Function:
    """The function behind a tool that was written with ``@tool`` or ``create_tool``."""
    if target.signature is None:
        return _taking_a_mapping(target.function, services)
    return described(target.function, target.signature, services)


def function_from(found: Any, services: Services | None = None) -> Function:
    """The function that a reference led to: a tool, or a plain function of any module."""
    services = services or Services()
    if hasattr(found, "function") and hasattr(found, "signature"):
        return function_of(found, services)
    return described(found, describe(found), services)


def described(
    function: Callable[..., Any], signature: Signature, services: Services
) -> Function:
    convert, dump = signature.convert, signature.dump
    injected = injected_by(signature, services)
    if injected:

        def call_it(call: Call) -> Any:
            given = call.arguments if convert is None else convert(call.arguments)
            return function(**given, **{name: give(call) for name, give in injected.items()})

    elif convert is not None:

        def call_it(call: Call) -> Any:
            return function(**convert(call.arguments))

    else:

        def call_it(call: Call) -> Any:
            return function(**call.arguments)

    return Function(
        function,
        call_it,
        _finisher(dump),
        _is_async(function),
        dump is None and signature.output_schema is not None,
        not injected and convert is None,
        tuple(kind.name for kind in signature.injected.values() if isinstance(kind, Secret)),
    )


def injected_by(
    signature: Signature, services: Services
) -> Mapping[str, Giver]:
    """Parameter → what fills it in, for those that no model sees."""
    return {name: _giver(name, kind, services) for name, kind in signature.injected.items()}


def constructor_arguments(kind: type, services: Services) -> dict[str, Any]:
    """What a class wants injected when it is made."""
    if kind.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    signature = describe(kind.__init__, skip_first=True)  # type: ignore[misc]
    return {name: give(None) for name, give in injected_by(signature, services).items()}


def _taking_a_mapping(function: Callable[..., Any], services: Services) -> Function:
    injected = injected_by(describe(function), services)

    def call_it(call: Call) -> Any:
        return function(call.arguments, **{name: give(call) for name, give in injected.items()})

    return Function(function, call_it, _finisher(None), _is_async(function), False, False)


def _giver(name: str, kind: Inject | Secret, services: Services) -> Giver:
    if isinstance(kind, Secret):
        return lambda call: _secret(kind, services)
    if getattr(kind.type, "__toolpost_injected__", False):
        return lambda call: call
    for offered, value in services.provide.items():
        if isinstance(kind.type, type) and issubclass(offered, kind.type):
            return lambda call: value
    if kind.optional:
        return lambda call: None
    wanted = getattr(kind.type, "__name__", str(kind.type))
    raise MissingPart(
        f"the parameter {name!r} wants a {wanted}, and nobody provides one: "
        f"Executor(registry, provide={{{wanted}: …}})"
    )


def _secret(kind: Secret, services: Services) -> str | None:
    value = services.secret(kind.name)
    if value is None and not kind.optional:
        raise MissingPart(f"the secret {kind.name} is not set: set the variable {kind.name}")
    return value


def _finisher(dump: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def finish(value: Any) -> Any:
        if isinstance(value, Output):
            return value
        if isinstance(value, PARTS):
            return Output(None, (value,))
        if isinstance(value, list | tuple) and value and all(isinstance(v, PARTS) for v in value):
            return Output(None, tuple(value))
        if dump is not None:
            return dump(value)
        if type(value) in _SCALARS:
            return value
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)

    return finish


def _foreign(value: Any) -> Any:
    """Objects msgspec does not know: pydantic models say themselves how they look as JSON."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
