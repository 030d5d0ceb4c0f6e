"""A function's signature becomes schemas, and values find their way in and out of its types."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
)
from uuid import UUID

import annotated_types
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.errors import InvalidArguments, InvalidOutput, InvalidSpec
from toolpost.schema import Schema, verify, verify_input
from toolpost.signature import Inject, Injected, Secret, describe


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Line:
    start: Point
    end: Point
    color: Color = Color.RED


class Node(pydantic.BaseModel):
    value: int
    children: list[Node] = []


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    released: NotRequired[date]


class Pair(NamedTuple):
    name: str
    size: int


class Order(pydantic.BaseModel):
    id: UUID
    total: Decimal
    at: datetime
    tags: set[str] = set()


UserId = NewType("UserId", int)


class Database:
    pass


class Call:
    __toolpost_injected__: ClassVar[bool] = True


class Output:
    __toolpost_output__: ClassVar[bool] = True


def schema_of(annotation: Any) -> Any:
    return describe(taking(annotation)).input_schema["properties"]["v"]


def taking(annotation: Any, default: Any = ...) -> Callable[..., Any]:
    def function(v: Any = default) -> Any:
        return v

    if default is ...:
        function.__defaults__ = None
    function.__annotations__ = {"v": annotation, "return": annotation}
    return function


# --- words ---------------------------------------------------------------------------------------


async def google(query: str, limit: int = 10, *, tags: list[str] | None = None) -> dict[str, str]:
    """Search the web.

    Note: results are cached.

    Args:
        query: What to look for,
            in full sentences: like this.
        limit (int, optional): How many.
        tags: Labels.

    Returns:
        Titles by address.

    Raises:
        ValueError: never.
    """
    return {}


async def numpy(query: str, limit: int = 10, *, tags: list[str] | None = None) -> dict[str, str]:
    """Search the web.

    Note: results are cached.

    Parameters
    ----------
    query : str
        What to look for,
        in full sentences: like this.
    limit : int
        How many.
    tags : list, optional
        Labels.

    Returns
    -------
    dict
    """
    return {}


async def sphinx(query: str, limit: int = 10, *, tags: list[str] | None = None) -> dict[str, str]:
    """Search the web.

    Note: results are cached.

    :param query: What to look for,
        in full sentences: like this.
    :param int limit: How many.
    :param tags: Labels.
    :returns: Titles by address.
    """
    return {}


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_every_docstring_style_describes_the_tool_and_its_parameters(function: Any) -> None:
    signature = describe(function)
    assert signature.description == "Search the web.\n\nNote: results are cached."
    assert signature.input_schema == {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "What to look for, in full sentences: like this.",
            },
            "limit": {"type": "integer", "description": "How many.", "default": 10},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "description": "Labels.",
                "default": None,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert signature.output_schema == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }


def test_a_plain_docstring_is_the_description() -> None:
    def function() -> None:
        """Do it.

        Like so: at once.
        """

    signature = describe(function)
    assert signature.description == "Do it.\n\nLike so: at once."
    assert signature.input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert signature.output_schema == {"type": "null"}
    assert signature.convert is None
    assert signature.dump is None


# --- schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (Any, {}),
        (object, {}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[float], {"type": "array", "items": {"type": "number"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Mapping[str, Any], {"type": "object"}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1, None], {"enum": ["a", 1, None]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (UserId, {"type": "integer"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Annotated[int, annotated_types.Ge(1), annotated_types.Lt(9), "How many"],
            {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "description": "How many"},
        ),
        (
            Annotated[str, pydantic.Field(min_length=1, pattern="^a", description="It")],
            {"type": "string", "minLength": 1, "pattern": "^a", "description": "It"},
        ),
        (
            Annotated[list[str], annotated_types.MaxLen(3)],
            {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Movie,
            {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "year": {"type": "integer"},
                    "released": {"type": "string", "format": "date"},
                },
                "required": ["title"],
                "additionalProperties": False,
            },
        ),
    ],
    ids=str,
)
def test_a_type_has_its_schema(annotation: Any, schema: Any) -> None:
    assert schema_of(annotation) == schema
    verify_input(describe(taking(annotation)).input_schema)


def test_a_model_used_once_is_inlined_and_one_used_twice_is_defined() -> None:
    schema = describe(taking(Line)).input_schema
    assert schema["properties"]["v"]["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["v"]["properties"]["color"]["enum"] == ["red", "blue"]
    assert list(schema["$defs"]) == ["Point"]
    assert "title" not in str(schema)


def test_a_recursive_model_keeps_its_definition() -> None:
    signature = describe(taking(Node))
    verify_input(signature.input_schema)
    value = {"v": {"value": 1, "children": [{"value": 2}]}}
    assert signature.convert is not None
    admitted = Schema(signature.input_schema).admit(value)
    assert signature.convert(admitted) == {"v": Node(value=1, children=[Node(value=2)])}


def test_two_models_of_one_name_keep_apart() -> None:
    def make(kind: type) -> Any:
        again: Any = OPTIONAL["Item"]
        return pydantic.create_model("Item", a=(kind, ...), next=(again, None))

    one, two = make(int), make(str)

    def function(first: Any, second: Any) -> None: ...

    function.__annotations__ = {"first": one, "second": two}
    schema = Schema(describe(function).input_schema)
    good = {"first": {"a": 1, "next": {"a": 2}}, "second": {"a": "x", "next": {"a": "y"}}}
    assert schema.admit(good)
    with pytest.raises(InvalidArguments, match="/second/next/a: expected string, got integer"):
        schema.admit({**good, "second": {"a": "x", "next": {"a": 2}}})


def test_defaults_are_dumped_and_sentinels_left_to_the_function() -> None:
    sentinel = object()

    def function(
        color: Color = Color.BLUE,
        at: Point = Point(1),  # noqa: B008
        tags: tuple[str, ...] = ("a",),
        other: Any = sentinel,
        maybe: str = None,  # type: ignore[assignment]  # noqa: RUF013
        ranged: int = pydantic.Field(5, ge=1),
    ) -> None: ...

    properties = describe(function).input_schema["properties"]
    assert properties["color"]["default"] == "blue"
    assert properties["at"]["default"] == {"x": 1, "y": 0}
    assert properties["tags"]["default"] == ["a"]
    assert properties["other"] == {}
    assert properties["maybe"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
    }
    assert properties["ranged"] == {"type": "integer", "minimum": 1, "default": 5}
    verify_input(describe(function).input_schema)


def test_an_unannotated_parameter_takes_any_json() -> None:
    def function(a, b=1):  # type: ignore[no-untyped-def]
        pass

    signature = describe(function)
    assert signature.input_schema["properties"] == {"a": {}, "b": {"default": 1}}
    assert signature.output_schema is None


def test_methods_partials_and_wrapped_functions_are_described() -> None:
    class Service:
        def run(self, a: int) -> int:
            return a

        def __call__(self, a: int) -> int:
            return a

    @functools.wraps(google)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await google(*args, **kwargs)

    expected = {"a": {"type": "integer"}}
    assert describe(Service().run).input_schema["properties"] == expected
    assert describe(Service()).input_schema["properties"] == expected
    assert describe(Service.run, skip_first=True).input_schema["properties"] == expected
    assert describe(wrapped).input_schema == describe(google).input_schema
    partial = functools.partial(google, "x", limit=3)
    assert describe(partial).input_schema["properties"]["limit"]["default"] == 3


# --- what is refused -----------------------------------------------------------------------------


def positional(a: int, /) -> None: ...


def variadic(*values: int) -> None: ...


def keywords(**values: int) -> None: ...


def unseen(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def unseen_inside(a: list[Nowhere]) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def returns_unseen() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821


def arbitrary(a: Database) -> None: ...


def returns_arbitrary() -> Database: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional, "parameter a is positional-only"),
        (variadic, "parameter values takes any number of values; make it a list"),
        (keywords, "parameter values takes any name; make it a dict"),
        (unseen, "the annotation of a names 'Nowhere'"),
        (unseen_inside, "the annotation of a names 'Nowhere'"),
        (returns_unseen, "the return annotation names 'Nowhere'"),
        (arbitrary, "parameter a: Database has no JSON form"),
        (returns_arbitrary, "the return annotation: Database has no JSON form"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        describe(function)


def test_a_name_of_an_enclosing_function_is_refused_with_the_reason() -> None:
    class Local(TypedDict):
        a: int

    def function(v: Local) -> None: ...

    with pytest.raises(InvalidSpec, match="names inside an enclosing function cannot"):
        describe(function)


# --- injection -----------------------------------------------------------------------------------


def test_injected_parameters_are_marked_and_stay_out_of_the_schema() -> None:
    def function(
        query: str,
        db: Injected[Database],
        key: Annotated[str, Secret("API_KEY")],
        call: Call,
        maybe: Call | None = None,
        cache: Injected[Database | None] = None,
        other: Annotated[str, Secret("OTHER")] = "",
    ) -> None: ...

    signature = describe(function)
    assert list(signature.input_schema["properties"]) == ["query"]
    assert signature.injected == {
        "db": Inject(Database),
        "key": Secret("API_KEY"),
        "call": Inject(Call),
        "maybe": Inject(Call, optional=True),
        "cache": Inject(Database, optional=True),
        "other": Secret("OTHER", optional=True),
    }


# --- in and out ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returns", [Any, Output, Output | dict, AsyncIterator[str], None.__class__]
)
def test_a_return_type_that_says_more_than_json_has_no_schema(returns: Any) -> None:
    def function() -> Any: ...

    function.__annotations__ = {"return": returns}
    expected = {"type": "null"} if returns is type(None) else None
    assert describe(function).output_schema == expected


def test_an_integral_float_reaches_the_function_as_an_integer() -> None:
    def function(a: int, b: list[int], c: int | None, d: float, e: dict[str, int]) -> None: ...

    convert = describe(function).convert
    assert convert is not None
    sent = {"a": 1.0, "b": [1, 2], "c": 3.0, "d": 4.0, "e": {"f": 5}}
    turned = convert(sent)
    assert repr(turned) == repr({"a": 1, "b": [1, 2], "c": 3, "d": 4.0, "e": {"f": 5}})
    assert sent["a"] == 1.0
    same = {"a": 1, "b": [1], "c": None, "d": 1.5, "e": {}}
    assert convert(same) == same


def test_what_a_type_refuses_is_told_without_the_value() -> None:
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def check(cls, number: int) -> int:
            if number % 2:
                raise ValueError("must be even")
            return number

    def function(a: Any, b: bytes) -> None: ...

    function.__annotations__ = {"a": Even, "b": bytes}
    convert = describe(function).convert
    assert convert is not None
    with pytest.raises(InvalidArguments) as caught:
        convert({"a": {"number": 4711}, "b": "se cret"})
    assert caught.value.message == (
        "/a/number: Value error, must be even; /b: is not a value of the type it must have"
    )
    assert "4711" not in str(caught.value.details)


def test_return_values_are_dumped_to_plain_json_that_fits() -> None:
    def function() -> dict[str, list[Order] | Line]: ...  # type: ignore[empty-body]

    signature = describe(function)
    order = Order(
        id=UUID(int=1), total=Decimal("1.50"), at=datetime(2026, 1, 1, tzinfo=UTC), tags={"x"}
    )
    assert signature.dump is not None
    assert signature.output_schema is not None
    verify(signature.output_schema)
    dumped = signature.dump({"a": [order], "b": Line(Point(1), Point(2))})
    assert Schema(signature.output_schema).check(dumped) == {
        "a": [
            {
                "id": str(UUID(int=1)),
                "total": "1.50",
                "at": "2026-01-01T00:00:00Z",
                "tags": ["x"],
            }
        ],
        "b": {"start": {"x": 1, "y": 0}, "end": {"x": 2, "y": 0}, "color": "red"},
    }


def test_a_moment_without_a_time_zone_may_come_out_and_be_a_default() -> None:
    def function(at: datetime = datetime(2026, 1, 1)) -> datetime:
        return at

    signature = describe(function)
    verify_input(signature.input_schema)
    assert signature.dump is not None
    assert signature.convert is not None
    assert signature.output_schema is not None
    dumped = signature.dump(datetime(2026, 1, 2))
    assert Schema(signature.output_schema).check(dumped) == "2026-01-02T00:00:00"
    admitted = Schema(signature.input_schema).admit({})
    assert signature.convert(admitted) == {"at": datetime(2026, 1, 1)}


def test_a_wrong_return_value_is_left_for_the_schema_to_refuse() -> None:
    def function() -> Point: ...  # type: ignore[empty-body]

    signature = describe(function)
    assert signature.dump is not None
    assert signature.output_schema is not None
    with pytest.raises(InvalidOutput):
        Schema(signature.output_schema).check(signature.dump("elsewhere"))


def test_plain_tools_load_neither_pydantic_nor_a_docstring_parser() -> None:
    program = """
import sys
from toolpost.signature import describe
from toolpost.schema import Schema

def add(a: int, b: list[str] | None = None) -> dict[str, float]:
    '''Add.

    Args:
        a: one
    '''

describe(add)
Schema({})
loaded = {"docstring_parser", "jsonschema_rs", "pydantic"} & set(sys.modules)
sys.exit(repr(loaded) if loaded else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- any type, any value -------------------------------------------------------------------------

Case = tuple[Any, st.SearchStrategy[Any], bool]
"""An annotation, its values, and whether they can be told apart by hash."""

_text = st.text(st.characters(codec="utf-8"), max_size=8)
_plain: list[Case] = [
    (str, _text, True),
    (int, st.integers(), True),
    (float, st.floats(allow_nan=False, allow_infinity=False), True),
    (bool, st.booleans(), True),
    (Color, st.sampled_from(Color), True),
    (Level, st.sampled_from(Level), True),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3]), True),
    (UserId, st.integers(), True),
]
_rich: list[Case] = [
    (bytes, st.binary(max_size=9), True),
    (datetime, st.datetimes(timezones=st.just(UTC)), True),
    (date, st.dates(), True),
    (timedelta, st.timedeltas(timedelta(0), timedelta(days=400)), True),
    (UUID, st.uuids(), True),
    (Decimal, st.decimals(-(10**9), 10**9, places=4), True),
    (Path, st.just(Path("a/b.txt")), True),
    (Point, st.builds(Point, st.integers(), st.integers()), False),
    (Pair, st.builds(Pair, _text, st.integers()), True),
    (Movie, st.fixed_dictionaries({"title": _text}, optional={"year": st.integers()}), False),
    (Mood, st.sampled_from(Mood), True),
]


LIST: Any = list
DICT: Any = dict
TUPLE: Any = tuple
FROZENSET: Any = frozenset
OPTIONAL: Any = Optional


def _wider(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    exact = cases.filter(lambda c: c[2] and c[0] not in (float, Decimal))
    pairs = st.tuples(cases, cases)
    return st.one_of(
        cases.map(lambda c: (LIST[c[0]], st.lists(c[1], max_size=3), False)),
        cases.map(lambda c: (DICT[str, c[0]], st.dictionaries(_text, c[1], max_size=3), False)),
        cases.map(lambda c: (OPTIONAL[c[0]], st.none() | c[1], c[2])),
        cases.map(lambda c: (TUPLE[c[0], ...], st.lists(c[1], max_size=3).map(tuple), c[2])),
        pairs.map(lambda p: (TUPLE[p[0][0], p[1][0]], st.tuples(p[0][1], p[1][1]), False)),
        exact.map(lambda c: (FROZENSET[c[0]], st.frozensets(c[1], max_size=3), True)),
    )


_cases: st.SearchStrategy[Case] = st.recursive(
    st.sampled_from(_plain + _rich), _wider, max_leaves=4
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_survives_the_way_out_and_in_again(data: st.DataObject) -> None:
    annotation, values, _ = data.draw(_cases)
    value = data.draw(values)
    signature = describe(taking(annotation))
    dumped = signature.dump(value) if signature.dump else value
    if signature.output_schema is not None:
        assert Schema(signature.output_schema).check(dumped) is dumped
    admitted = Schema(signature.input_schema).admit({"v": dumped})
    turned = signature.convert(admitted) if signature.convert else admitted
    assert turned == {"v": value}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([str, int, float, bool, Color, Level, Point, UUID, list[int]]), st.data())
def test_a_value_of_another_json_type_is_refused(annotation: Any, data: st.DataObject) -> None:
    schema = describe(taking(annotation)).input_schema
    kind = schema["properties"]["v"]["type"]
    other = data.draw(
        st.sampled_from(
            [
                value
                for name, value in {
                    "object": {"never": 1},
                    "array": ["never"],
                    "string": "never",
                    "number": 0.5,
                    "boolean": True,
                    "null": None,
                }.items()
                if name != kind
            ]
        )
    )
    if annotation is float and isinstance(other, int) and not isinstance(other, bool):
        return
    with pytest.raises(InvalidArguments, match=r"^/v"):
        Schema(schema).admit({"v": other})


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}_", fullmatch=True), st.sampled_from(_plain + _rich), max_size=5
    ),
    st.data(),
)
def test_a_signature_of_any_parameters_describes_exactly_those(
    cases: dict[str, Case], data: st.DataObject
) -> None:
    names = list(cases)
    scope: dict[str, Any] = {}
    exec(f"def function({', '.join(names)}): return locals()", scope)
    function = scope["function"]
    function.__annotations__ = {name: case[0] for name, case in cases.items()}
    signature = describe(function)
    verify_input(signature.input_schema)
    assert list(signature.input_schema["properties"]) == names
    values = {name: data.draw(case[1]) for name, case in cases.items()}
    sent = {
        name: describe(taking(case[0])).dump or (lambda value: value)
        for name, case in cases.items()
    }
    arguments = {name: sent[name](values[name]) for name in names}
    admitted = Schema(signature.input_schema).admit(arguments)
    turned = signature.convert(admitted) if signature.convert else admitted
    assert function(**turned) == values


# --- rare annotations ----------------------------------------------------------------------------


class Hushed:
    """Metadata that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]


class Status(Enum):
    """Values that JSON does not have."""

    ON = (1, 2)


class Chain(TypedDict):
    next: "Chain"  # noqa: UP037 - in quotes on purpose


class Loose(TypedDict, total=False):
    name: str


def test_metadata_that_cannot_be_hashed_is_read_like_any_other() -> None:
    schema = schema_of(Annotated[int, Hushed(), "How many."])
    assert schema == {"type": "integer", "description": "How many."}


def test_a_dict_whose_keys_are_not_text_is_described_by_what_its_keys_look_like() -> None:
    described = describe(taking(dict[int, str]))
    verify_input(described.input_schema)
    assert schema_of(dict[int, str])["type"] == "object"


def test_an_enum_of_values_that_json_does_not_have_takes_their_json_form() -> None:
    assert schema_of(Status) != {}
    verify(schema_of(Status))


def test_an_empty_tuple_is_an_empty_array() -> None:
    schema = schema_of(tuple[()])
    assert Schema(schema).check([]) == []
    with pytest.raises(InvalidOutput):
        Schema(schema).check([1])


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int | str | None, [1, "a", None], [1.5]),
        (int | Any, [1, "a", None, [1.5]], []),
        (Any | None, [1, "a", None], []),
    ],
)  # fmt: skip
def test_a_union_takes_what_its_members_take(annotation: Any, good: Any, bad: Any) -> None:
    schema = Schema(schema_of(annotation))
    for value in good:
        assert schema.check(value) == value
    for value in bad:
        with pytest.raises(InvalidOutput):
            schema.check(value)


def test_a_description_stays_with_a_constraint_that_only_pydantic_knows() -> None:
    even = pydantic.AfterValidator(lambda value: value)
    schema = schema_of(Annotated[int, even, "An even number."])
    assert schema == {"type": "integer", "description": "An even number."}


def test_a_limit_that_does_not_go_with_the_type_is_left_to_pydantic() -> None:
    lengthy = schema_of(Annotated[set[int], annotated_types.MinLen(2)])
    assert lengthy["minItems"] == 2
    timely = schema_of(Annotated[Decimal, annotated_types.Ge(Decimal(1))])
    verify(timely)


def test_a_typed_dict_that_refers_to_itself_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidSpec, match="Chain refers to itself; write it as a dataclass"):
        describe(taking(Chain))


def test_a_typed_dict_whose_keys_may_all_be_left_out_requires_none() -> None:
    assert "required" not in schema_of(Loose)
    assert Schema(schema_of(Loose)).check({}) == {}


def test_a_name_in_quotes_that_cannot_be_seen_is_named() -> None:
    for annotation in (list["Absent"], dict[str, "Absent"], "Absent", "list[Absent]"):  # noqa: F821
        with pytest.raises(InvalidSpec, match="Absent"):
            describe(taking(annotation))


def test_an_annotation_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="cannot be read"):
        describe(taking("1 / 0"))


def test_a_function_without_a_readable_signature_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="has no signature that can be read"):
        describe(type)


def test_an_oddly_written_docstring_still_describes_the_tool() -> None:
    def function(v: int) -> int:
        """Count.

        :param one two three four: too many words
        :param: too few
        """
        return v

    assert describe(function).description.startswith("Count.")


def test_a_default_of_another_type_is_left_to_the_function() -> None:
    def echo(a: int = "x", b: int = 2) -> None: ...  # type: ignore[assignment]

    schema = describe(echo).input_schema
    assert schema["properties"]["a"]["default"] == "x"
    assert Schema(schema).admit({}) == {"b": 2}
