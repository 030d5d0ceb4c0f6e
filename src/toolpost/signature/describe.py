"""A function's signature as data: description, schemas, what is injected, the ways in and out.

Above: ``authoring.py``. Below: ``annotation`` (types), ``docstring`` (words), ``inject`` (markers).
It refuses to call the function and to know what a tool is.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Annotated, Any, Final, NoReturn, get_args, get_origin

import msgspec

from toolpost.errors import InvalidArguments, InvalidSpec
from toolpost.plain import is_simple, measure
from toolpost.signature.annotation import Form, NoJsonForm, Way, apply, form, optional, whole
from toolpost.signature.docstring import read
from toolpost.signature.inject import FromSpec, Inject, Secret

_EMPTY: Final = inspect.Parameter.empty
_STREAMS: Final = frozenset(
    (abc.AsyncIterator, abc.AsyncGenerator, abc.Iterator, abc.Generator, abc.AsyncIterable)
)
_ZONED: Final = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)$")
_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; take out the slash after it",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values; make it a list",
    inspect.Parameter.VAR_KEYWORD: "takes any name; make it a dict",
}


Convert = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Marker = Inject | Secret | FromSpec


class Signature(msgspec.Struct, frozen=True):
    """How to present a function as a tool, and how to call it.

    ``convert`` turns admitted JSON arguments into keyword arguments of the function, ``dump`` its
    return value into JSON; each is None where there is nothing to turn. ``stays_json``: what
    ``convert`` gives is still JSON, so that it may be done before the arguments travel.
    """

    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    injected: Mapping[str, Marker]
    convert: Convert | None
    dump: Way | None
    stays_json: bool


class _Parameter(msgspec.Struct):
    name: str
    annotation: Any
    default: Any


def describe(function: Callable[..., Any], *, skip_first: bool = False) -> Signature:
    """The signature of a function; raises :class:`InvalidSpec` naming the parameter at fault.

    ``skip_first`` leaves out the first parameter, the ``self`` of a function in a class body.
    """
    description, words = read(function.__doc__ if not isinstance(function, partial) else None)
    parameters, returns = _parameters(function)
    if skip_first:
        del parameters[:1]
    resolve = _Names(function)
    injected: dict[str, Marker] = {}
    forms: dict[str, Form] = {}
    made = _Object()
    for parameter in parameters:
        name = parameter.name
        annotation = parameter.annotation
        if not _is_ordinary(annotation):
            annotation = resolve(annotation, name)
            marker = _marker(annotation, parameter.default)
            if marker is not None:
                injected[name] = marker
                continue
            _note_ordinary(annotation)
        forms[name] = made.add(parameter, annotation, words.get(name))
    answer = _answer(returns if _is_ordinary(returns) else resolve(returns, "return"))
    return Signature(
        description,
        made.schema(),
        None if answer is None else _standalone(answer),
        injected,
        _converter(forms),
        None if answer is None else answer.dump,
        all(one.convert in (None, whole) for one in forms.values()),
    )


def _parameters(function: Any) -> tuple[list[_Parameter], Any]:
    """The parameters and the return annotation; straight from the code of a plain function."""
    function = getattr(function, "__func__", function) if _is_wrapper(function) else function
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return _inspected(function)
    code = function.__code__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_posonlyargcount:
        return _inspected(function)
    annotations = _annotations(function)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    by_name = function.__kwdefaults__ or {}
    found = [
        _Parameter(
            name,
            annotations.get(name, _EMPTY),
            defaults[index - first]
            if first <= index < code.co_argcount
            else by_name.get(name, _EMPTY),
        )
        for index, name in enumerate(names)
    ]
    return found, annotations.get("return", _EMPTY)


def _is_wrapper(function: Any) -> bool:
    return isinstance(function, staticmethod | classmethod)


def _annotations(function: Any) -> dict[str, Any]:
    try:
        return function.__annotations__  # type: ignore[no-any-return]
    except NameError as error:  # evaluated here from Python 3.14 on
        raise _unseen(function, error) from None


def _inspected(function: Any) -> tuple[list[_Parameter], Any]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{_called(function)} has no signature that can be read") from error
    except NameError as error:
        raise _unseen(function, error) from None
    found = []
    for one in signature.parameters.values():
        if one.kind in _REFUSED:
            raise InvalidSpec(
                f"{_called(function)}: parameter {one.name} {_REFUSED[one.kind]}; "
                "a tool is called with named arguments",
                at=("input_schema",),
            )
        found.append(_Parameter(one.name, one.annotation, one.default))
    return found, signature.return_annotation


def _unseen(function: Any, error: NameError) -> InvalidSpec:
    return InvalidSpec(f"{_called(function)}: an annotation names {error.name!r}, {_UNSEEN}")


def _called(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


_UNSEEN: Final = "which cannot be seen from the module; names inside an enclosing function cannot"


_ORDINARY: set[Any] = set()
"""Annotations seen before that hold no unresolved name and no marker: most are used often."""
_MOST_ORDINARY: Final = 10_000


def _is_ordinary(annotation: Any) -> bool:
    try:
        return type(annotation) is not str and annotation in _ORDINARY
    except TypeError:  # metadata that cannot be hashed
        return False


def _note_ordinary(annotation: Any) -> None:
    if len(_ORDINARY) > _MOST_ORDINARY:
        _ORDINARY.clear()
    if annotation.__hash__ is not None and get_origin(annotation) is not Annotated:
        _ORDINARY.add(annotation)


class _Names:
    """Annotations written as text, resolved where the function stands."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, annotation: Any, name: str) -> Any:
        if not isinstance(annotation, str):
            return annotation if not _unresolved(annotation) else self._deep(annotation, name)
        try:
            found = eval(_compiled(annotation), self._globals())  # noqa: S307  the module's own text
        except NameError as error:
            self._fail(name, f"names {error.name!r}, {_UNSEEN}")
        except Exception as error:  # noqa: BLE001  an annotation may be any expression
            self._fail(name, f"cannot be read: {error}")
        return self(found, name)

    def _deep(self, annotation: Any, name: str) -> Any:
        """Names in quotes inside a type, such as ``list["Node"]``."""

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            return typing.get_type_hints(holder, self._globals(), include_extras=True)["it"]
        except NameError as error:
            self._fail(name, f"names {error.name!r}, {_UNSEEN}")

    def _globals(self) -> dict[str, Any]:
        function = self._function
        while True:
            if isinstance(function, partial):
                function = function.func
            elif hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            elif hasattr(function, "__func__"):
                function = function.__func__
            elif not hasattr(function, "__globals__") and not isinstance(function, type):
                function = type(function).__call__
            else:
                return getattr(function, "__globals__", {})

    def _fail(self, name: str, problem: str) -> NoReturn:
        what = "the return annotation" if name == "return" else f"the annotation of {name}"
        raise InvalidSpec(f"{_called(self._function)}: {what} {problem}") from None


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CodeType:
    return compile(text.strip(), "<annotation>", "eval")


def _unresolved(annotation: Any) -> bool:
    return (
        any(
            isinstance(one, str | typing.ForwardRef) or (get_args(one) and _unresolved(one))
            for one in get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]
        )
        and get_origin(annotation) is not typing.Literal
    )


def _marker(annotation: Any, default: Any) -> Marker | None:
    """How a parameter is injected; None for an ordinary one."""
    if isinstance(annotation, type):
        if not getattr(annotation, "__toolpost_injected__", False):
            return None
        return Inject(annotation, optional=default is not _EMPTY)
    origin = get_origin(annotation)
    if origin is Annotated:
        for one in annotation.__metadata__:
            if isinstance(one, Secret):
                return msgspec.structs.replace(one, optional=default is not _EMPTY)
            if isinstance(one, FromSpec):
                return FromSpec(annotation.__origin__, optional=default is not _EMPTY)
            if isinstance(one, Inject) or one is Inject:
                return Inject(*_wanted(annotation.__origin__, default))
    elif origin is not None:
        wanted, missing = _wanted(annotation, default)
        if missing and getattr(wanted, "__toolpost_injected__", False):
            return Inject(wanted, optional=True)
    return None


def _wanted(annotation: Any, default: Any) -> tuple[Any, bool]:
    """The type to inject and whether there may be none."""
    args = get_args(annotation)
    members = [one for one in args if one is not type(None)]
    if len(members) == 1 and len(args) == 2 and type(None) in args:
        return members[0], True
    return annotation, default is not _EMPTY


class _Object:
    """The input schema as it grows, parameter by parameter."""

    def __init__(self) -> None:
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._defs: dict[str, Any] = {}

    def add(self, parameter: _Parameter, annotation: Any, words: str | None) -> Form:
        annotation, default = _field_default(annotation, parameter.default)
        made = _formed(annotation, parameter.name)
        if default is None and not _nullable(made.schema):
            made = optional(made)
        schema = dict(made.schema)
        if made.defs:
            schema = _adopted(schema, made.defs, self._defs)
        if words and "description" not in schema:
            schema["description"] = words
        if default is _EMPTY:
            self._required.append(parameter.name)
        else:
            _add_default(schema, _dumped(made, default))
        self._properties[parameter.name] = schema
        return made

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        schema["additionalProperties"] = False
        if self._defs:
            schema["$defs"] = self._defs
        return schema


def _formed(annotation: Any, name: str) -> Form:
    if annotation is _EMPTY:
        return form(Any)
    try:
        return form(annotation)
    except NoJsonForm as error:
        raise InvalidSpec(f"parameter {name}: {error}") from error


def _field_default(annotation: Any, default: Any) -> tuple[Any, Any]:
    """A default written as pydantic's ``Field(10, ge=1)``: its constraints, and the default."""
    if type(default).__name__ != "FieldInfo":
        return annotation, default
    value = default.get_default(call_default_factory=True) if not default.is_required() else _EMPTY
    rules = tuple(default.metadata) + ((default.description,) if default.description else ())
    if rules:
        annotation = Annotated[(annotation if annotation is not _EMPTY else Any, *rules)]
    return annotation, value


def _nullable(schema: Mapping[str, Any]) -> bool:
    if not schema or schema.get("type") == "null" or None in schema.get("enum", ()):
        return True
    if "$ref" in schema or "const" in schema:
        return False
    return any(_nullable(one) for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())))


def _dumped(made: Form, default: Any) -> Any:
    """A default as JSON, or nothing where it has no JSON form: then the function applies it."""
    try:
        value = default if made.dump is None else made.dump(default)
        if not is_simple(value):
            measure(value)
    except Exception:  # noqa: BLE001  a dump is foreign code, and a default may be a sentinel
        return _EMPTY
    return value


def _add_default(schema: dict[str, Any], default: Any) -> None:
    """The default as an annotation; one of another type is not filled in, see ``schema``."""
    if default is _EMPTY:
        return
    if schema.get("format") == "date-time" and not _ZONED.search(str(default)):
        del schema["format"]
    schema["default"] = default


def _adopted(
    schema: dict[str, Any], defs: Mapping[str, Any], into: dict[str, Any]
) -> dict[str, Any]:
    """Take a form's definitions in; two different ones of one name get two names."""
    renamed = {}
    for name, one in defs.items():
        new, number = name, 1
        while new in into and into[new] != one:
            number += 1
            new = f"{name}_{number}"
        into[new] = one
        if new != name:
            renamed[f"#/$defs/{name}"] = f"#/$defs/{new}"
    if not renamed:
        return schema
    for new in renamed.values():
        key = new.removeprefix("#/$defs/")
        into[key] = _with_references(into[key], renamed)
    result: dict[str, Any] = _with_references(schema, renamed)
    return result


def _with_references(schema: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(schema, dict):
        return {
            name: renamed.get(one, one)
            if name == "$ref" and isinstance(one, str)
            else _with_references(one, renamed)
            for name, one in schema.items()
        }
    if isinstance(schema, list):
        return [_with_references(one, renamed) for one in schema]
    return schema


def _answer(annotation: Any) -> Form | None:
    """The form of what the function returns; None where it does not say, or says more than JSON."""
    if annotation is _EMPTY or annotation is Any or annotation is NoReturn:
        return None
    origin = get_origin(annotation)
    if origin in _STREAMS or _holds_output(annotation):
        return None
    try:
        return form(annotation, "serialization")
    except NoJsonForm as error:
        raise InvalidSpec(f"the return annotation: {error}; Any says nothing about it") from error


def _holds_output(annotation: Any) -> bool:
    """Whether a part of a result stands anywhere in a type: ``list[Image | Text]``."""
    return bool(getattr(annotation, "__toolpost_output__", False)) or any(
        _holds_output(one) for one in get_args(annotation)
    )


def _standalone(made: Form) -> dict[str, Any] | None:
    if not made.schema:
        return None
    return {**made.schema, "$defs": dict(made.defs)} if made.defs else made.schema


def _converter(forms: Mapping[str, Form]) -> Convert | None:
    ways = tuple((name, one.convert) for name, one in forms.items() if one.convert is not None)
    if not ways:
        return None
    if all(way is whole for _, way in ways):
        return _whole_numbers(ways)

    def convert(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            turned: Mapping[str, Any] = apply(ways, arguments)
        except (ValueError, TypeError, ArithmeticError):
            raise _unfit(ways, arguments) from None
        return turned

    return convert


def _whole_numbers(ways: tuple[tuple[str, Way], ...]) -> Convert:
    """The usual case, made cheap: integers only, which nobody ever writes as 1.0."""
    names = tuple(name for name, _ in ways)

    def convert(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in names:
            if type(arguments.get(name)) is float:
                turned: Mapping[str, Any] = apply(ways, arguments)
                return turned
        return arguments

    return convert


def _unfit(ways: tuple[tuple[str, Way], ...], arguments: Mapping[str, Any]) -> InvalidArguments:
    """What a type refuses although the schema let it pass, without the value itself."""
    faults: list[dict[str, str]] = []
    for name, way in ways:
        if name in arguments:
            try:
                way(arguments[name])
            except (ValueError, TypeError, ArithmeticError) as error:
                faults.extend(_reasons(name, error))
    text = "; ".join(f"{one['at']}: {one['problem']}" for one in faults[:10])
    return InvalidArguments(text[:1500], effects="none", details={"faults": faults[:10]})


def _reasons(name: str, error: Exception) -> Iterator[dict[str, str]]:
    errors = getattr(error, "errors", None)
    if callable(errors):
        for one in errors(include_input=False, include_url=False, include_context=False):
            path = "".join(f"/{part}" for part in one["loc"])
            yield {"at": f"/{name}{path}", "problem": one["msg"]}
    else:
        yield {"at": f"/{name}", "problem": "is not a value of the type it must have"}
