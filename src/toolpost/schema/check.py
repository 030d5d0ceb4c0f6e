"""JSON Schema: verify a schema once, then check values against it, many times and fast.

Above: tools, the registry and the executor. Below: the native validator, and what bounds it:
``cost`` (what may be compiled), ``closed`` (what native code may see unseen),
``fill`` (defaults, coercion), ``faults`` (words). It refuses to know what a tool is,
and to fetch anything: a reference that leads out of the schema is an error.

Draft 2020-12 unless ``$schema`` names an earlier one; formats are asserted. Where a schema is
closed a value goes straight to native code, which also takes a tuple for an array, a ``Decimal``
for a number, an ``Enum`` member for its value and a lone surrogate for text; where it is open the
value is walked first and must be plain JSON to the last leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from toolpost.errors import CallError, InvalidArguments, InvalidOutput, InvalidSchema
from toolpost.plain import NotPlain, Path, is_simple, json_name, measure, pointer
from toolpost.schema.closed import is_closed, open_properties
from toolpost.schema.cost import Cost, judge_cost
from toolpost.schema.faults import MAX_FAULTS, Fault, explain, message
from toolpost.schema.fill import Fill, plan, with_whole_numbers
from toolpost.schema.ordinary import is_ordinary
from toolpost.schema.tree import Tree, fault

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

BACKTRACK_LIMIT: Final = 100_000
_MAX_TRIES: Final = 20_000_000
_EXPLAINED_TRIES: Final = 20_000
_MAX_DEAR_TEXTS: Final = 20_000
_LIGHT: Final = 64
_PATTERN_SIZE: Final = 8 * 1024 * 1024
_PLAIN_DEFAULT: Final = frozenset(("type", "default", "description", "title", "examples"))
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


def verify(schema: Mapping[str, Any] | bool) -> None:
    """Raise :class:`InvalidSchema`, with place and remedy, unless values can be checked by it.

    What it may cost is judged before anything is compiled.
    """
    if type(schema) is dict and is_ordinary(schema):
        return
    tree = Tree(_as_dict(schema))
    cost = judge_cost(tree)
    _compile(tree, tree.root)
    if cost.limits:
        _compile(tree, _fenced(tree, cost.limits))
    _verify_defaults(tree)


def verify_input(schema: Mapping[str, Any] | bool) -> None:
    """:func:`verify` for the arguments of a tool, which are always an object."""
    verify(schema)
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind != "object" and not (
        kind is None and isinstance(schema, Mapping) and "properties" in schema
    ):
        raise fault(("type",), 'the arguments of a tool are an object; write "type": "object"')


class Schema:
    """A checker for one schema, compiled on first use; threads may share it.

    The schema is taken as verified. It is compiled under the same bounds, so that one which was
    not is refused rather than run.
    """

    __slots__ = (
        "_coerce", "_cost", "_exact", "_fill", "_lock", "_look", "_native", "_ordinary", "_schema",
        "_valid",
    )  # fmt: skip

    def __init__(self, schema: Mapping[str, Any] | bool, *, coerce: bool = False) -> None:
        self._schema: Any = schema
        self._coerce = coerce
        self._lock = Lock()
        self._look: Callable[[Any], None] | None = self._first_look
        self._fill: Fill | None = None
        self._valid: Callable[[Any], bool] = bool
        self._exact: Callable[[Any], bool] = bool
        self._native: Validator | None = None
        self._ordinary = False
        self._cost = Cost((1,), {})

    def admit(self, value: Any) -> dict[str, Any]:
        """The arguments to use, with defaults added; raises :class:`InvalidArguments`.

        ``value`` itself is returned if there is nothing to add, and never changed.
        """
        taken: Any = value
        try:
            if self._look is not None:
                self._look(value)
            if self._fill is not None:
                taken = self._fill(value)
            if self._exact(taken) and isinstance(value, dict):
                return taken  # type: ignore[no-any-return]
            if self._exact is not self._valid and self._valid(taken):
                return with_whole_numbers(self._schema, taken)  # type: ignore[no-any-return]
        except ValueError:
            pass  # not JSON: said below, with the place
        otherwise = "The arguments do not fit the tool's schema."
        if not isinstance(value, dict):
            otherwise = f"expected object, got {json_name(value)}"
        raise self._refusal(taken, InvalidArguments, otherwise)

    def native(self) -> Callable[[Any], bool] | None:
        """Native code alone, where nothing is to be done before or after it: true for arguments
        that fit; of others, and of what it raises ``ValueError`` about, ``admit`` tells more.
        """
        self._compiled()
        alone = self._look is None and self._fill is None
        return self._exact if alone and self._schema.get("type") == "object" else None

    def without(self, pattern: str) -> Callable[[Any], bool] | None:
        """As ``native``, but false as well for arguments with a text that the pattern matches in,
        unless the schema itself states the text. ``None`` where a schema is not ordinary.
        """
        if self.native() is None or not self._ordinary:
            return None
        import jsonschema_rs  # as in _compile

        options = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZE, dfa_size_limit=_PATTERN_SIZE)
        # of another draft, for Draft 4 would have it a pattern of JavaScript
        text = {"$schema": _DRAFT_2020, "type": "string", "not": {"pattern": pattern}}
        strict = {**_in_draft_4(_with_texts(self._schema, {"$ref": _TEXT})), **_DRAFT_4}
        try:
            registry = jsonschema_rs.Registry([(_TEXT, text)])
            return jsonschema_rs.validator_for(
                strict, registry=registry, offline=True, pattern_options=options
            ).is_valid
        except (ValueError, jsonschema_rs.ValidationError):  # nobody depends on it
            return None

    def check(self, value: Any) -> Any:
        """``value`` if it fits, as it is; raises :class:`InvalidOutput`."""
        try:
            if self._look is not None:
                self._look(value)
            if self._valid(value):
                return value
        except ValueError:
            pass  # not JSON: said below, with the place
        raise self._refusal(value, InvalidOutput, "The output does not fit the tool's schema.")

    def faults(self, value: Any) -> list[Fault]:
        """What is wrong with a value, most important first; empty if it fits."""
        self._compiled()
        try:
            extent = measure(value)
            if self._over(*extent):
                return [Fault("", _TOO_LARGE)]
            if self._valid(value):
                return []
        except NotPlain as error:
            return [Fault(pointer(error.at), error.problem)]
        except ValueError:
            return [Fault("", "is not plain JSON data")]
        return explain(self._errors(value, *extent), self._schema)

    def _errors(self, value: Any, nodes: int, levels: int) -> list[ValidationError]:
        """All errors where listing them is cheap, the first alone where it is not, or none."""
        assert self._native is not None
        if self._cost.of(nodes, levels) <= _EXPLAINED_TRIES:
            return list(self._native.iter_errors(value))
        if self._cost.visits[-1] <= 100:
            try:
                self._native.validate(value)
            except _validation_error() as error:
                return [error]
        return []

    def _refusal(self, value: Any, error: type[CallError], otherwise: str) -> CallError:
        faults = self.faults(value)
        if not faults:
            return error(otherwise)
        text = message(faults)
        return error(text, details={"faults": [one.data() for one in faults[:MAX_FAULTS]]})

    def _over(self, nodes: int, levels: int) -> bool:
        if self._cost.limits and nodes > _MAX_DEAR_TEXTS:
            return True
        return self._cost.of(nodes, levels) > _MAX_TRIES

    def _first_look(self, value: Any) -> None:
        self._compiled()
        if self._look is not None:
            self._look(value)

    def _compiled(self) -> None:
        with self._lock:
            if self._native is not None:
                return
            tree = Tree(_as_dict(self._schema))
            self._cost = judge_cost(tree)
            native = _compile(tree, tree.root)
            self._schema = _fenced(tree, self._cost.limits)
            if self._schema is not tree.root:
                native = _compile(tree, self._schema)
            self._fill = plan(tree, coerce=self._coerce)
            self._valid = self._exact = native.is_valid
            self._ordinary = gives_whole_numbers(tree.root)
            if self._schema is not tree.root and self._ordinary:
                self._exact = _compile(tree, {**_in_draft_4(self._schema), **_DRAFT_4}).is_valid
            self._look = self._looker(tree)
            self._native = native  # last: its presence says that the rest is there

    def _looker(self, tree: Tree) -> Callable[[Any], None] | None:
        """What must be walked before native code sees it: nothing, some properties, or all."""
        if self._cost.visits[-1] > _LIGHT or self._cost.limits:
            return self._look_at_all  # its size must be known, closed or not
        if is_closed(tree, tree.root):
            return None
        some = open_properties(tree)
        if some is None:
            return _look_through

        def look(value: Any) -> None:
            if type(value) is dict:
                for name in some:
                    if name in value:
                        _look_through(value[name])

        return look

    def _look_at_all(self, value: Any) -> None:
        if self._over(*measure(value)):
            raise NotPlain((), _TOO_LARGE)


def _look_through(value: Any) -> None:
    if not is_simple(value):
        measure(value)


_TOO_LARGE: Final = "is too large or too deeply nested to be held against this schema; send less"


def _as_dict(schema: Any) -> Any:
    return dict(schema) if isinstance(schema, Mapping) and type(schema) is not dict else schema


def gives_whole_numbers(schema: Any) -> bool:
    """Whether arguments that were admitted have no ``1.0`` where this schema says integer.

    To Draft 4 alone ``1.0`` is no integer, and ordinary schemas mean the same in every draft: what
    passes as Draft 4 need not be looked through for such numbers.
    """
    return type(schema) is dict and schema.get("type") == "object" and is_ordinary(schema)


def _compile(tree: Tree, schema: Any) -> Validator:
    """The native validator for the schema of a tree, or for a copy of that with fences."""
    import jsonschema_rs  # 40 ms, so only once a schema is in use

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
    try:
        return jsonschema_rs.validator_for(
            schema, validate_formats=True, offline=True, pattern_options=options
        )
    except jsonschema_rs.ValidationError as error:
        raise _named(error, tree.root) from None
    except ValueError as error:
        raise fault((), f"cannot be compiled: {error}") from None


def _validation_error() -> type[ValidationError]:
    import jsonschema_rs  # as in _compile

    return jsonschema_rs.ValidationError


def _in_draft_4(schema: Any) -> dict[str, Any]:
    """An ordinary schema, fenced or not, as that draft has it, which knows no ``required: []``.

    Where all properties are required and there are no others, their number says so: to look each of
    them up twice would take half of the time again.
    """
    copy = {key: value for key, value in schema.items() if value != []}
    if "properties" in copy:
        names = copy["properties"].keys()
        if copy.get("additionalProperties") is False and names == set(copy.get("required", ())):
            copy = {key: value for key, value in copy.items() if key != "required"}
            copy["minProperties"] = len(names)
        copy["properties"] = {k: _in_draft_4(one) for k, one in copy["properties"].items()}
    if "items" in copy:
        copy["items"] = _in_draft_4(copy["items"])
    return copy


def _with_texts(schema: Any, text: dict[str, Any]) -> dict[str, Any]:
    """An ordinary schema with this in the place of every text of somebody's choice."""
    if schema.get("type") == "string" and "enum" not in schema:
        return text
    copy = {**schema}
    if "properties" in schema:
        copy["properties"] = {k: _with_texts(one, text) for k, one in schema["properties"].items()}
    if "items" in schema:
        copy["items"] = _with_texts(schema["items"], text)
    return copy


_DRAFT_4: Final = {"$schema": "http://json-schema.org/draft-04/schema#"}
_DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final = "urn:toolpost:text"


_WRITABLE: Final = {"anyOf": [{"type": "number"}, {"not": {"type": "integer"}}]}
"""What native code cannot write out is an integer to it, of any size, and no number."""


def _fenced(tree: Tree, limits: Mapping[int, int]) -> Any:
    """A copy in which a pattern that is dear on long text is only tried on short text, and an
    integer too long to be written out does not slip past its bounds.
    """
    fences = [
        (place.at, fences)
        for place in tree.places()
        if (fences := _fences(place.schema, limits.get(id(place.schema))))
    ]
    if not fences:
        return tree.root
    copy: Any = deepcopy(tree.root)
    for at, wanted in fences:
        inner = copy
        for part in at:
            inner = inner[part]
        if len(wanted) > 1 or "if" in wanted[0]:
            del inner["pattern"]
        inner["allOf"] = [*inner.get("allOf", ()), *wanted]
    return copy


def _fences(schema: Mapping[str, Any], limit: int | None) -> list[dict[str, Any]]:
    types = schema.get("type")
    fences: list[dict[str, Any]] = []
    if types == "integer" or (isinstance(types, list) and "integer" in types):
        fences.append(_WRITABLE)
    if limit is not None:
        pattern = {"pattern": schema["pattern"]}
        fences.append({"if": {"maxLength": limit}, "then": pattern, "else": False})
    return fences


def _named(error: ValidationError, root: Any) -> InvalidSchema:
    """What the meta-schema says, with its place and what would be allowed there."""
    at: Path = tuple(error.instance_path)
    kind: Any = error.kind
    if at[-1:] == ("type",) and kind.name == "anyOf":
        return fault(at, f"must be one or a list of: {', '.join(_TYPES)}")
    if kind.name == "format" and kind.format == "regex":
        return fault(at, "is not a valid regular expression")
    if kind.name == "$ref":
        return fault(at, "refers to something that is not in this schema")
    faults = explain([error], root)
    return fault(at, faults[0].problem if faults else "is not valid JSON Schema")


def _verify_defaults(tree: Tree) -> None:
    """Every default must fit the subschema it stands in."""
    dear: list[tuple[Path, Any]] = []
    for place in tree.places():
        if "default" in place.schema:
            default = place.schema["default"]
            if default is None and _is_optional(place.schema):
                continue
            if not _PLAIN_DEFAULT.issuperset(place.schema):
                dear.append((place.at, default))
            elif not _of_type(default, place.schema.get("type")):
                raise fault((*place.at, "default"), _bad_default(place.schema["type"]))
    if dear:
        _verify_dear_defaults(tree, dear)


def _verify_dear_defaults(tree: Tree, defaults: list[tuple[Path, Any]]) -> None:
    import jsonschema_rs  # as in _compile

    root = tree.root
    assert isinstance(root, dict)
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
    validators = jsonschema_rs.validator_map_for(
        root, validate_formats=True, offline=True, pattern_options=options
    )
    for at, default in defaults:
        validator = validators.get("#" + "".join(f"/{_escaped(part)}" for part in at))
        if validator is not None and not validator.is_valid(default):
            faults = explain(list(validator.iter_errors(default)), root)
            raise fault((*at, "default"), f"does not fit its own schema: {faults[0].text()}")


def _is_optional(schema: Mapping[str, Any]) -> bool:
    """The common "this or null", told at a glance."""
    branches = schema.get("anyOf")
    return (
        isinstance(branches, list)
        and {"type": "null"} in branches
        and schema.keys() - _PLAIN_DEFAULT == {"anyOf"}
    )


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _of_type(value: Any, types: Any) -> bool:
    if types is None:
        return True
    names = types if isinstance(types, list) else [types]
    kind = json_name(value)
    if kind == "integer":
        return "integer" in names or "number" in names
    return kind in names or (kind == "number" and "integer" in names and value.is_integer())


def _bad_default(types: Any) -> str:
    names = types if isinstance(types, list) else [types]
    return f"does not fit its own schema: expected {' or '.join(names)}"
