"""JSON Schema: verify a schema once, then check values against it, many times and fast.

Above: tools, the registry and the executor. Below: the native validator, and what bounds it:
``cost`` (what may be compiled), ``closed`` (what native code may see unseen),
``fill`` (defaults, coercion), ``faults`` (words). It refuses to know what a tool is,
and to fetch anything: a reference that leads out of the schema has to be registered
(``resources``), else it is an error.

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

from toolpost.errors import CallError, InvalidArguments, InvalidOutput
from toolpost.plain import NotPlain, is_simple, json_name, measure, pointer
from toolpost.schema.closed import is_closed, open_properties
from toolpost.schema.cost import Cost, judge_cost
from toolpost.schema.defaults import UnusableDefault, unusable_defaults
from toolpost.schema.faults import MAX_FAULTS, Fault, explain, message
from toolpost.schema.fill import (
    Fill,
    is_safe_to_fill,
    plan_coercion,
    plan_defaults,
    with_whole_numbers,
)
from toolpost.schema.native import BoundedValidator, compile_validator
from toolpost.schema.ordinary import is_ordinary
from toolpost.schema.resources import add_schema, remove_schema
from toolpost.schema.tree import Tree, fault

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_MAX_TRIES: Final = 20_000_000
_EXPLAINED_TRIES: Final = 20_000
_LIGHT: Final = 64
_PATTERN_SIZE: Final = 8 * 1024 * 1024


def verify(schema: Mapping[str, Any] | bool) -> Any:
    """Raise :class:`InvalidSchema`, with place and remedy, unless values can be checked by it.

    Returns the schema, or a copy in the spelling of its draft. What it may cost is judged before
    anything is compiled.
    """
    if type(schema) is dict and is_ordinary(schema):
        return schema
    tree = Tree(_as_dict(schema))
    cost = judge_cost(tree)
    compile_validator(tree, tree.root)
    if cost.has_limits:
        compile_validator(tree, _fenced(tree, cost))
    return tree.respelled


def verify_input(schema: Mapping[str, Any] | bool) -> Any:
    """:func:`verify` for the arguments of a tool, which are always an object."""
    verified = verify(schema)
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind != "object" and not (
        kind is None and isinstance(schema, Mapping) and "properties" in schema
    ):
        raise fault(("type",), 'the arguments of a tool are an object; write "type": "object"')
    return verified


def faulty_defaults(schema: Mapping[str, Any] | bool) -> list[UnusableDefault]:
    """The defaults of a verified schema that do not fit it, and so are not filled in."""
    return unusable_defaults(Tree(_as_dict(schema)))


def register_schemas(schemas: Mapping[str, Mapping[str, Any]]) -> None:
    """Let the ``$ref`` and ``$schema`` of other schemas name these by their addresses.

    They are verified and copied, and may refer to each other. A schema can only refer to one of its
    own draft.
    """
    added = []
    try:
        for address, schema in schemas.items():
            if add_schema(address, schema):
                added.append(address)
        for address, schema in schemas.items():
            verify({"$schema": schema.get("$schema", _DRAFT_2020), "$ref": address})
    except BaseException:
        for address in added:
            remove_schema(address)
        raise


class Schema:
    """A checker for one schema, compiled on first use; threads may share it.

    The schema is taken as verified. It is compiled under the same bounds, so that one which was
    not is refused rather than run.
    """

    __slots__ = (
        "_bounded", "_coerce", "_coercion", "_cost", "_exact", "_fill", "_lock", "_look",
        "_native", "_ordinary", "_safe", "_schema", "_valid",
    )  # fmt: skip

    def __init__(self, schema: Mapping[str, Any] | bool, *, coerce: bool = False) -> None:
        self._schema: Any = schema
        self._coerce = coerce
        self._lock = Lock()
        self._look: Callable[[Any], None] | None = self._first_look
        self._coercion: Fill | None = None
        self._fill: Fill | None = None
        self._safe = False
        self._valid: Callable[[Any], bool] = bool
        self._exact: Callable[[Any], bool] = bool
        self._native: Validator | None = None
        self._bounded: BoundedValidator | None = None
        self._ordinary = False
        self._cost = Cost((1,))

    def admit(self, value: Any) -> dict[str, Any]:
        """The arguments to use, with defaults added; raises :class:`InvalidArguments`.

        ``value`` itself is returned if there is nothing to add, and never changed.
        """
        taken: Any = value
        try:
            if self._look is not None:
                self._look(value)
            if self._coercion is not None:
                taken = self._coercion(value)
            if self._exact(taken) and isinstance(value, dict):
                return taken if self._fill is None else self._filled(taken)  # type: ignore[no-any-return]
            if self._exact is not self._valid and self._valid(taken):
                return self._filled(with_whole_numbers(self._schema, taken))  # type: ignore[no-any-return]
        except ValueError:
            pass  # not JSON: said below, with the place
        otherwise = "The arguments do not fit the tool's schema."
        if not isinstance(value, dict):
            otherwise = f"expected object, got {json_name(value)}"
        raise self._refusal(taken, InvalidArguments, otherwise)

    def _filled(self, value: Any) -> Any:
        """Valid arguments with defaults; without them where they would make the whole invalid."""
        filled = value if self._fill is None else self._fill(value)
        return filled if self._safe or filled is value or self._valid(filled) else value

    def native(self) -> Callable[[Any], bool] | None:
        """Native code alone, where nothing is to be done before or after it: true for arguments
        that fit; of others, and of what it raises ``ValueError`` about, ``admit`` tells more.
        """
        self._compiled()
        alone = self._look is None and self._fill is None and self._coercion is None
        return self._exact if alone and self._schema.get("type") == "object" else None

    def without(self, pattern: str) -> Callable[[Any], bool] | None:
        """As ``native``, but false as well for arguments with a text that the pattern matches in,
        unless the schema itself states the text. ``None`` where a schema is not ordinary.
        """
        if self.native() is None or not self._ordinary:
            return None
        import jsonschema_rs  # 40 ms, see native.py

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
        native = self._native if self._bounded is None else self._bounded.of(nodes, levels)
        assert native is not None
        if self._cost.of(nodes, levels) <= _EXPLAINED_TRIES:
            return list(native.iter_errors(value))
        if self._cost.visits[-1] <= 100:
            try:
                native.validate(value)
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
        most = BoundedValidator.MOST_TRIES if self._cost.has_limits else _MAX_TRIES
        return self._cost.of(nodes, levels) > most

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
            native = compile_validator(tree, tree.root)
            self._schema = _fenced(tree, self._cost)
            if self._schema is not tree.root:
                native = compile_validator(tree, self._schema)
            unusable = {id(one.schema) for one in unusable_defaults(tree)}
            self._fill = plan_defaults(tree, unusable)
            self._safe = is_safe_to_fill(tree)
            self._coercion = plan_coercion(tree) if self._coerce else None
            if self._cost.has_limits:
                self._bounded = BoundedValidator(tree, self._schema, native, self._cost)
            self._valid = self._exact = (self._bounded or native).is_valid
            self._ordinary = gives_whole_numbers(tree.root)
            if self._schema is not tree.root and self._ordinary:
                self._exact = compile_validator(
                    tree, {**_in_draft_4(self._schema), **_DRAFT_4}
                ).is_valid
            self._look = self._looker(tree)
            self._native = native  # last: its presence says that the rest is there

    def _looker(self, tree: Tree) -> Callable[[Any], None] | None:
        """What must be walked before native code sees it: nothing, some properties, or all."""
        if self._cost.visits[-1] > _LIGHT or self._cost.has_limits:
            return self._look_at_all  # its size must be known, closed or not
        if tree.has_own_dialect:
            return _look_through  # which keywords are asserted is not known here
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


def _validation_error() -> type[ValidationError]:
    import jsonschema_rs  # 40 ms, see native.py

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


def _fenced(tree: Tree, cost: Cost) -> Any:
    """A copy in which a pattern that is dear on long text is only tried on short text, and an
    integer too long to be written out does not slip past its bounds.
    """
    fenced = [place for place in tree.places() if _needs_fence(place.schema, cost)]
    if not fenced:
        return tree.root
    copy: Any = deepcopy(tree.root)
    for schema, at, _ in sorted(fenced, key=lambda place: -len(place.at)):  # the innermost first
        inner = copy
        for part in at:
            inner = inner[part]
        inner["allOf"] = [*inner.get("allOf", ()), *_fences(schema, inner, cost)]
    return copy


def _needs_fence(schema: Mapping[str, Any], cost: Cost) -> bool:
    dear = id(schema) in cost.limits or id(schema) in cost.key_limits
    return dear or _is_integer(schema.get("type"))


def _is_integer(types: Any) -> bool:
    return types == "integer" or (isinstance(types, list) and "integer" in types)


def _fences(schema: Mapping[str, Any], inner: dict[str, Any], cost: Cost) -> list[dict[str, Any]]:
    """What is to hold beside ``inner``, the copy of ``schema``, from which it is taken out."""
    fences: list[dict[str, Any]] = []
    if _is_integer(schema.get("type")):
        fences.append(_WRITABLE)
    limit = cost.limits.get(id(schema))
    if limit is not None:
        pattern = {"pattern": inner.pop("pattern")}
        fences.append({"if": {"maxLength": limit}, "then": pattern, "else": False})
    limit = cost.key_limits.get(id(schema))
    if limit is not None:  # which properties are additional depends on the patterns beside them
        then = {key: inner.pop(key) for key in _KEYWORDS_OF_KEYS if key in inner}
        short = {"propertyNames": {"maxLength": limit}}
        fences.append({"if": short, "then": then, "else": False})
    return fences


_KEYWORDS_OF_KEYS: Final = ("properties", "patternProperties", "additionalProperties")
