"""How one Python function is called: arguments converted, injected ones filled in, the return value
made plain. The same in the loop, in a thread and in a worker's process.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from toolpost.call import Call
from toolpost.contracts import Secrets, Services
from toolpost.errors import InvalidArguments, InvalidOutput, InvalidSpec, MissingPart
from toolpost.result import PARTS, Output, Part
from toolpost.schema import gives_whole_numbers
from toolpost.signature import Convert, FromSpec, Inject, Secret, Signature, describe
from toolpost.spec import ToolSpec
from toolpost.wording import explained, nearest, short

_log = logging.getLogger("toolpost.tools")
_SCALARS = frozenset((int, str, float, bool, type(None)))
Giver = Callable[[Call | None], Any]
Marker = Inject | Secret | FromSpec


class Function(msgspec.Struct, frozen=True):
    """A function, how a call becomes a call of it, and how its return value becomes data."""

    function: Callable[..., Any]
    call: Callable[[Call], Any]
    finish: Callable[[Any], Any]
    is_async: bool
    gives_data: bool
    """What comes back needs no finishing."""
    takes_json: bool
    """JSON goes in, and nothing is injected: any process can call it that has the function."""
    convert: Convert | None = None
    secrets: tuple[str, ...] = ()
    """The variables it wants injected."""
    provided: tuple[str, ...] = ()
    """The parameters that get a live object of this process."""
    mapping: bool = False
    """The arguments go in as one mapping."""


def function_of(target: Any, services: Services) -> Function:
    """The function behind a tool that was written with ``@tool`` or ``create_tool``."""
    if target.signature is None:
        return taking_a_mapping(target.function, services)
    signature, schema = target.signature, target.spec.input_schema
    if signature.stays_json and schema == signature.input_schema and gives_whole_numbers(schema):
        # they are as it would make them
        signature = msgspec.structs.replace(signature, convert=None)
    return described(target.function, signature, services, defaults(target.function))


def function_from(found: Any, services: Services | None = None) -> Function:
    """The function that a reference led to: a tool, or a plain function of any module."""
    services = services or Services()
    if hasattr(found, "function") and hasattr(found, "signature"):
        return function_of(found, services)
    return described(found, describe(found), services, defaults(found))


def described(
    function: Callable[..., Any],
    signature: Signature,
    services: Services,
    otherwise: Mapping[str, Any],
) -> Function:
    """``otherwise``: what an injected parameter is where there is nothing to inject."""
    convert, dump = signature.convert, signature.dump
    injected = _injected_by(signature, services, otherwise)
    if injected:

        def call_it(call: Call) -> Any:
            given = call.arguments if convert is None else convert(call.arguments)
            more = {name: give(call) for name, give in injected.items()}
            try:
                return function(**given, **more)
            except TypeError:
                _refuse_misfit(given, signature)
                raise

    elif convert is not None:

        def call_it(call: Call) -> Any:
            given = convert(call.arguments)
            try:
                return function(**given)
            except TypeError:
                _refuse_misfit(given, signature)
                raise

    else:

        def call_it(call: Call) -> Any:
            try:
                return function(**call.arguments)
            except TypeError:
                _refuse_misfit(call.arguments, signature)
                raise

    return Function(
        function,
        call_it,
        _finisher(dump),
        _is_async(function),
        dump is None and signature.output_schema is not None,
        not injected and signature.stays_json,
        convert,
        tuple(kind.name for kind in signature.injected.values() if isinstance(kind, Secret)),
        tuple(name for name, kind in signature.injected.items() if _is_provided(kind)),
    )


def _refuse_misfit(given: Mapping[str, Any], signature: Signature) -> None:
    """Arguments that a schema let pass which is wider than the function behind it."""
    schema = signature.input_schema
    known, needed = schema.get("properties", {}), set(schema.get("required", ()))
    for name in sorted(given.keys() - known.keys()):
        problem = f"/{short(name)}: unknown parameter{nearest(name, known)}"
        raise InvalidArguments(problem, effects="none")
    for name in sorted(needed - given.keys()):
        raise InvalidArguments(f"/{name}: is missing", effects="none")


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that a function can do without, and what they are then."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def constructor_arguments(kind: type, services: Services) -> dict[str, Any]:
    """What a class is made with: every parameter is injected, by its type or its marker."""
    if kind.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    return _arguments(kind.__init__, inspect.signature(kind), services)  # type: ignore[misc]


def health_arguments(health: Callable[..., Any], services: Services) -> dict[str, Any]:
    """What a method that tells the health of a tool asks for: secrets, mostly."""
    signature = inspect.signature(health)
    return _arguments(health, signature, services) if signature.parameters else {}


def _arguments(
    function: Callable[..., Any], signature: inspect.Signature, services: Services
) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    given = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            wanted = _wanted(hints.get(name), optional=parameter.default is not parameter.empty)
            given[name] = _giver(name, wanted, services, parameter.default)(None)
    return given


def _wanted(hint: Any, *, optional: bool) -> Inject | Secret:
    for marker in getattr(hint, "__metadata__", ()):
        if isinstance(marker, Secret):
            return Secret(marker.name, optional)
    wanted = hint.__origin__ if get_origin(hint) is Annotated else hint
    members = [one for one in get_args(wanted) if one is not type(None)]
    if len(members) == 1 and type(None) in get_args(wanted):
        return Inject(members[0], optional)
    return Inject(wanted, optional)


def taking_a_mapping(function: Callable[..., Any], services: Services) -> Function:
    """The function behind a tool of ``create_tool``: it gets the arguments and what it asks for."""
    signature = describe(function)
    injected = _injected_by(signature, services, defaults(function))

    def call_it(call: Call) -> Any:
        return function(call.arguments, **{name: give(call) for name, give in injected.items()})

    return Function(
        function,
        call_it,
        _finisher(None),
        _is_async(function),
        gives_data=False,
        takes_json=False,
        secrets=tuple(k.name for k in signature.injected.values() if isinstance(k, Secret)),
        provided=tuple(name for name, kind in signature.injected.items() if _is_provided(kind)),
        mapping=True,
    )


def _injected_by(
    signature: Signature, services: Services, otherwise: Mapping[str, Any]
) -> Mapping[str, Giver]:
    """Parameter → what fills it in, for those that no model sees."""
    return {
        name: _giver(name, kind, services, otherwise.get(name))
        for name, kind in signature.injected.items()
    }


def _is_provided(kind: Marker) -> bool:
    return isinstance(kind, Inject) and not getattr(kind.type, "__toolpost_injected__", False)


def _giver(name: str, kind: Marker, services: Services, otherwise: Any) -> Giver:
    if isinstance(kind, FromSpec):
        return _from_spec(name, kind, otherwise)
    if isinstance(kind, Secret):
        return lambda call: _secret(kind, services, otherwise)
    if getattr(kind.type, "__toolpost_injected__", False):
        return lambda call: call
    if kind.type is Secrets:
        secrets = Secrets(services.secret)
        return lambda call: secrets
    if isinstance(kind.type, type):
        for offered in (kind.type, *services.provide):  # itself before a subclass of it
            if offered in services.provide and issubclass(offered, kind.type):
                value = services.provide[offered]
                return lambda call: value
    if kind.optional:
        return lambda call: otherwise
    wanted = getattr(kind.type, "__name__", str(kind.type))
    raise MissingPart(
        f"the parameter {name!r} wants a {wanted}, and nobody provides one: "
        f"Executor(registry, provide={{{wanted}: …}})"
    )


def _from_spec(name: str, kind: FromSpec, otherwise: Any) -> Giver:
    """What the spec of the call gives; made of its data once, for all calls have one spec."""
    known: tuple[ToolSpec | None, Any] = (None, None)

    def give(call: Call | None) -> Any:
        nonlocal known
        assert call is not None, "a constructor has none"
        spec, value = known
        if spec is not call.spec:
            value = _of_spec(call.spec, name, kind, otherwise)
            known = (call.spec, value)
        return value

    return give


def _of_spec(spec: ToolSpec, name: str, kind: FromSpec, otherwise: Any) -> Any:
    given = spec.binding.get("given", {})
    if name not in given:
        if kind.optional:
            return otherwise
        raise InvalidSpec(f"the binding of {spec.name!r} has no given.{name}")
    try:
        return msgspec.convert(given[name], kind.type)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, kind.type)
        path = ".".join(map(str, ("given", name, *at)))
        raise InvalidSpec(f"the binding of {spec.name!r}: {path}: {what}") from None


def _secret(kind: Secret, services: Services, otherwise: Any) -> Any:
    value = services.secret(kind.name)
    if value is None and not kind.optional:
        raise MissingPart(f"the secret {kind.name} is not set: set the variable {kind.name}")
    return otherwise if value is None else value


def _finisher(dump: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def finish(value: Any) -> Any:
        if isinstance(value, Output):
            return value
        if isinstance(value, Part):
            return Output(None, (value,))
        if isinstance(value, list | tuple) and value and all(isinstance(v, PARTS) for v in value):
            return Output(None, tuple(value))
        if dump is None and type(value) in _SCALARS:
            return value
        try:
            return dump(value) if dump is not None else _plain(value)
        except Exception as exc:  # what a value does when it is written down is foreign code
            _log.error("a %s was returned: it has no JSON form", type(value).__name__, exc_info=exc)
            raise InvalidOutput(
                "The tool returned something that is not JSON data. Use another tool."
            ) from exc

    return finish


def _plain(value: Any) -> Any:
    return _listed(msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign))


def _listed(value: Any) -> Any:
    """JSON knows no tuples."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value


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
