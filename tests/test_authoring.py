"""Writing tools: functions, classes and plain data; what is wrong is said where it is written."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from toolpost import (
    Cache,
    Call,
    Executor,
    FunctionTool,
    Image,
    Injected,
    InvalidSchema,
    InvalidSpec,
    Limits,
    Output,
    Permissions,
    Registry,
    Resource,
    Result,
    Retry,
    Secret,
    Text,
    Tool,
    ToolFailed,
    ToolSpec,
    create_tool,
    tool,
    validate_tool_input,
    validate_tool_output,
)
from toolpost.contracts import Health

pytestmark = pytest.mark.anyio
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
    "required": ["a"],
}


class Db:
    def __init__(self, answer: int) -> None:
        self.answer = answer

    def ask(self, arguments: Mapping[str, Any]) -> int:
        return self.answer


class Postgres(Db):
    pass


async def run(
    item: Any, arguments: Any = None, *, provide: Mapping[type, object] | None = None
) -> Result:
    registry = Registry([item])
    async with Executor(registry, provide=provide) as executor, asyncio.timeout(60):
        return await executor.execute(registry.list()[0].name, arguments)


@tool
def double(x: int) -> int:
    """Double a number."""
    return 2 * x


# --- functions ---------------------------------------------------------------------------------


async def test_a_bare_decorator_takes_everything_from_the_function() -> None:
    @tool
    async def greet(name: str, times: int = 1) -> str:
        """Greet somebody.

        Args:
            name: Who it is.
        """
        return f"hello {name} " * times

    assert greet.spec.public() == {
        "name": "greet",
        "description": "Greet somebody.",
        "input_schema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who it is."},
                "times": {"type": "integer", "default": 1},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "string"},
    }
    assert (await run(greet, {"name": "Ada"})).output == "hello Ada "


async def test_options_say_the_rest() -> None:
    @tool(
        name="adder",
        description="Adds.",
        title="Adder",
        version="1.2",
        category="math",
        tags=["a", "b"],
        examples=({"a": i} for i in range(2)),
        tier=0,
        effects="read",
        timeout=7,
        limits=Limits(concurrency=2),
        egress={"example.com:443"},
        permissions=Permissions(roles=("clerk",)),
        requires_approval=True,
        retry=Retry(attempts=2),
        fallback="other",
        cache=Cache(ttl=5),
        labels={"team": "x"},
        context_aware=True,
        isolation="inline",
        coerce=True,
        output_schema={"type": "integer", "minimum": 0},
    )
    async def add(a: int) -> int:
        """Something else."""
        return a

    assert add.spec.public() == {
        "name": "adder",
        "description": "Adds.",
        "input_schema": add.spec.input_schema,
        "output_schema": {"type": "integer", "minimum": 0},
        "title": "Adder",
        "version": "1.2",
        "category": "math",
        "tags": ["a", "b"],
        "examples": [{"a": 0}, {"a": 1}],
        "tier": 0,
        "effects": "read",
        "timeout": 7.0,
        "limits": {"concurrency": 2},
        "egress": ["example.com:443"],
        "permissions": {"roles": ["clerk"]},
        "requires_approval": True,
        "retry": {"attempts": 2},
        "fallback": "other",
        "cache": {"ttl": 5.0},
        "labels": {"team": "x"},
        "context_aware": True,
        "isolation": "inline",
        "coerce": True,
    }
    unasked = msgspec.structs.replace(add.spec, requires_approval=False)
    free = msgspec.structs.replace(add, spec=unasked)
    assert (await run(free, {"a": "5"})).output == 5
    failed = await run(free, {"a": -1})
    assert failed.error is not None
    assert failed.error.code == "OUTPUT_INVALID"


async def test_a_synchronous_function_leaves_the_loop_free() -> None:
    here = threading.get_ident()

    @tool
    def where() -> bool:
        """Whether this is the thread of the loop."""
        return threading.get_ident() == here

    assert (await run(where)).output is False


def test_a_tool_is_still_the_function_it_was() -> None:
    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")
    assert repr(double) == "<tool double>"
    assert weakref.ref(double)() is double


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timout": 5}, "a tool has no option 'timout'; did you mean 'timeout'?"),
        ({"input_schema": {}}, "a tool has no option 'input_schema'"),
        ({"binding": {}}, "a tool has no option 'binding'"),
        ({"effects": "reed"}, "effects: use one of read, idempotent, once"),
        ({"isolation": "jail"}, "isolation: use one of inline"),
        ({"tags": "math"}, "tags: expected `array`, got `str`"),
        ({"tags": 5}, "tags: expected `array`, got `int`"),
        ({"tier": 9}, "tier of 'f' must be 0 (safe) to 4 (dangerous)"),
        ({"tier": "high"}, "tier: expected `int`, got `str`"),
        ({"timeout": 0}, "must be above 0 seconds"),
        ({"description": " "}, "tool 'f' has no description"),
        ({"description": 5}, "description: expected `str`, got `int`"),
        ({"name": "two words"}, "'two words' is not a legal tool name"),
        ({"output_schema": {"type": "nothing"}}, "output_schema of 'f': /type"),
        ({"limits": {"memroy": 5}}, "unknown field 'memroy' in limits"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(
    options: dict[str, Any], message: str
) -> None:
    def f(x: int) -> int:
        """Give it back."""
        return x

    with pytest.raises(InvalidSpec) as caught:
        tool(**options)(f)
    assert message in caught.value.message


@pytest.mark.req("FM-3")
def test_a_function_without_a_docstring_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidSpec, match="for a Python function, its docstring"):

        @tool
        def silent(x: int) -> int:
            return x


def test_a_function_that_takes_any_number_of_values_is_refused() -> None:
    with pytest.raises(
        InvalidSpec, match="parameter values takes any number of values; make it a list"
    ):

        @tool
        def total(*values: int) -> int:
            """Add numbers."""
            return sum(values)


@pytest.mark.parametrize("thing", ["search", 5, [double]])
def test_what_is_no_function_is_refused_with_how_to_name_it(thing: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"not a \w+; its options have names: @tool\(name=…\)"):
        tool(thing)


def test_a_class_under_the_decorator_is_pointed_to_tool() -> None:
    with pytest.raises(InvalidSpec, match="make Greeter a Tool instead"):

        @tool
        class Greeter:
            """Greets."""


@pytest.mark.parametrize(
    ("function", "binding"),
    [
        (double.function, {"module": __name__, "function": "double"}),
        (lambda x: x, {}),
        (functools.partial(double.function), {}),
        ("text".upper, {}),
        (Db(1).ask, {}),
    ],
    ids=["function", "lambda", "partial", "builtin method", "method"],
)
def test_only_what_another_process_can_import_has_a_reference(
    function: Any, binding: dict[str, Any]
) -> None:
    made = create_tool("t", "A tool.", function, input_schema={"type": "object"})
    assert made.spec.binding == binding


async def test_a_local_function_of_tier_two_is_refused_with_what_to_do() -> None:
    @tool(tier=2)
    def wipe(path: str) -> str:
        """Wipe a folder."""
        return path

    result = await run(wipe, {"path": "x"})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
    assert "'wipe' asks for isolation: process" in result.error.message
    assert "move the function to the top level of a module" in result.error.message


PROGRAM = '''
import asyncio
from toolpost import Executor, Registry, tool

@tool(tier=2)
def double(x: int) -> int:
    """Double a number."""
    return 2 * x

async def main():
    async with Executor(Registry([double])) as executor:
        result = await executor.execute("double", {"x": 2})
        print(result.output if result.success else result.error.message)

if __name__ == "__main__":
    asyncio.run(main())
'''


def test_a_function_of_the_program_itself_runs_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "4\n"


def test_a_function_of_a_program_without_a_file_is_refused() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("'double' asks for isolation: process, and another process")


@pytest.mark.parametrize("path", [__file__, "<stdin>", None])
def test_the_reference_of_a_programs_own_function_names_its_file(
    monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    def own(arguments: Mapping[str, Any]) -> int:
        return 1

    own.__module__, own.__qualname__ = "__main__", "own"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", path, raising=False)
    made = create_tool("own", "Mine.", own, input_schema={"type": "object"})
    expected = {"module": "__main__", "function": "own", "main": path} if path == __file__ else {}
    assert made.spec.binding == expected


# --- immutable and shared ----------------------------------------------------------------------


@pytest.mark.req("AF-1")
@pytest.mark.parametrize(
    "made", [double, create_tool("t", "A tool.", lambda given: given, input_schema=NUMBERS)]
)
@pytest.mark.parametrize("field", ["spec", "function", "signature", "name"])
def test_a_tool_does_not_change(made: FunctionTool, field: str) -> None:
    with pytest.raises(AttributeError):
        setattr(made, field, None)


@pytest.mark.req("AF-1")
async def test_what_a_tool_was_made_from_may_change_afterwards() -> None:
    schema = json.loads(json.dumps(NUMBERS))
    output = {"type": "integer"}
    tags = ["math"]
    made = create_tool(
        "add",
        "Add.",
        lambda given: given["a"],
        input_schema=schema,
        output_schema=output,
        tags=tags,
    )
    before = made.spec.digest
    schema["properties"]["a"]["type"] = "string"
    output["type"] = "string"
    tags.append("other")
    assert made.spec.digest == before
    assert (await run(made, {"a": 3})).output == 3


@pytest.mark.req("AF-1")
def test_one_tool_serves_many_threads_at_once() -> None:
    made = create_tool(
        "add",
        "Add.",
        lambda given: given["a"] + given["b"],
        input_schema=NUMBERS,
        isolation="inline",
    )
    outputs: list[Any] = []

    async def many(thread: int) -> None:
        async with Executor(Registry([made])) as executor:
            for i in range(50):
                outputs.append((await executor.execute("add", {"a": thread, "b": i})).output - i)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(many(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outputs) == [n for n in range(4) for _ in range(50)]


# --- plain data --------------------------------------------------------------------------------


def test_a_function_that_cannot_be_called_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(InvalidSpec, match="parameter given takes any number of values"):
        create_tool("t", "A tool.", lambda *given: 1, input_schema=NUMBERS)


@pytest.mark.req("AF-1")
async def test_a_tool_is_made_from_data_and_a_function_of_one_mapping() -> None:
    async def add(given: Mapping[str, Any]) -> dict[str, int]:
        return {"sum": given["a"] + given["b"]}

    made = create_tool(
        "add",
        "Add two numbers.",
        add,
        input_schema=NUMBERS,
        output_schema={"type": "object", "required": ["sum"]},
        timeout=10,
        effects="read",
    )
    assert made.spec.timeout == 10
    assert (await run(made, {"a": 2})).output == {"sum": 3}
    failed = await run(made, {"a": "2"})
    assert failed.error is not None
    assert failed.error.code == "VALIDATION_ERROR"


async def test_a_function_of_one_mapping_may_ask_for_the_call() -> None:
    def who(given: Mapping[str, Any], call: Call) -> str:
        return f"{given['a']} {call.tool}"

    made = create_tool("who", "Who.", who, input_schema=NUMBERS)
    assert (await run(made, {"a": 1})).output == "1 who"


@pytest.mark.req("FM-3")
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"input_schema": {"type": "nothing"}}, InvalidSchema, "input_schema of 'a': /type"),
        ({"input_schema": "text"}, InvalidSpec, "input_schema: expected `object`, got `str`"),
        ({"output_schema": {"type": 5}}, InvalidSchema, "output_schema of 'a': /type"),
        ({"tier": 5}, InvalidSpec, "tier of 'a'"),
        ({"timout": 5}, InvalidSpec, "did you mean 'timeout'?"),
        ({"description": ""}, InvalidSpec, "has no description"),
    ],
)
def test_data_that_is_no_tool_is_refused_at_once(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"description": "d", "input_schema": NUMBERS, **fields}
    with pytest.raises(error) as caught:
        create_tool("a", given.pop("description"), lambda given: given, **given)
    assert message in str(caught.value)


@pytest.mark.req("AF-6")
def test_input_is_validated_without_a_call() -> None:
    spec = ToolSpec(name="a", description="d", input_schema=NUMBERS)
    for one in (spec, create_tool("a", "d", lambda given: given, input_schema=NUMBERS)):
        assert validate_tool_input(one, {"a": 1}) is None
        fault = validate_tool_input(one, {"a": "x", "b": None})
        assert fault is not None
        assert "/a" in fault
        assert "/b" in fault
        assert validate_tool_input(one, [1]) == "expected object, got array"


@pytest.mark.req("AF-6")
def test_output_is_validated_without_a_call() -> None:
    class Sum(Tool):
        """Adds."""

        async def run(self, a: int) -> int:
            return a

    for one in (double, Sum(), double.spec):
        assert validate_tool_output(one, 5) is None
        assert validate_tool_output(one, "5") == "expected integer, got string"
    free = ToolSpec(name="a", description="d")
    assert validate_tool_output(free, {"any": ["thing"]}) is None
    assert validate_tool_output(free, object()) is not None


# --- what is injected --------------------------------------------------------------------------


async def test_a_dependency_is_found_by_its_type() -> None:
    @tool
    async def ask(question: str, db: Injected[Db]) -> int:
        """Ask."""
        return db.answer

    assert list(ask.spec.input_schema["properties"]) == ["question"]
    assert (await run(ask, {"question": "?"}, provide={Db: Db(42)})).output == 42
    assert (await run(ask, {"question": "?"}, provide={Postgres: Postgres(43)})).output == 43


async def test_a_dependency_that_nobody_provides_is_named() -> None:
    @tool
    async def ask(db: Injected[Db]) -> int:
        """Ask."""
        return db.answer

    result = await run(ask)
    assert result.error is not None
    assert result.error.code == "UNAVAILABLE"
    assert "wants a Db, and nobody provides one" in result.error.message


@pytest.mark.req("NA-3")
async def test_a_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def length(key: Annotated[str, Secret("TOOL_TEST_KEY")]) -> int:
        """The length of the key."""
        return len(key)

    monkeypatch.setenv("TOOL_TEST_KEY", "hunter2")
    result = await run(length)
    assert (result.output, length.spec.input_schema["properties"]) == (7, {})
    assert "hunter2" not in json.dumps(result.to_dict())


async def test_a_secret_that_is_not_set_is_named_in_the_log_and_not_to_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def length(key: Annotated[str, Secret("TOOL_TEST_KEY")]) -> int:
        """The length of the key."""
        return len(key)

    monkeypatch.delenv("TOOL_TEST_KEY", raising=False)
    result = await run(length)
    assert result.error is not None
    assert "the secret TOOL_TEST_KEY is not set: set the variable TOOL_TEST_KEY" in caplog.text
    assert "TOOL_TEST_KEY" not in json.dumps(result.to_dict())


async def test_a_caller_cannot_send_what_is_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def length(key: Annotated[str, Secret("TOOL_TEST_KEY")]) -> int:
        """The length of the key."""
        return len(key)

    monkeypatch.setenv("TOOL_TEST_KEY", "hunter2")
    result = await run(length, {"key": "mine"})
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"


# --- what a tool gives back --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "output", "parts"),
    [
        (Output({"n": 1}, (Text("one"),)), {"n": 1}, (Text("one"),)),
        (Image(b"png"), None, (Image(b"png"),)),
        (Text("hello"), None, (Text("hello"),)),
        ([Text("a"), Resource("file:///b")], None, (Text("a"), Resource("file:///b"))),
        ({"n": [1, 2.5, None]}, {"n": [1, 2.5, None]}, ()),
        ([], [], ()),
    ],
)
async def test_a_tool_gives_data_parts_or_both(
    given: Any, output: Any, parts: tuple[Any, ...]
) -> None:
    @tool
    async def give() -> Any:
        """Give something."""
        return given

    result = await run(give)
    assert (result.success, result.output, result.parts) == (True, output, parts)
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


async def test_a_tool_speaks_to_the_model_by_raising() -> None:
    @tool
    async def find(city: str) -> str:
        """Find a city."""
        raise ToolFailed(
            f"There is no city {city}. Check the spelling.", details={"near": ["Rome"]}
        )

    result = await run(find, {"city": "Rme"})
    assert result.error is not None
    assert result.error.code == "EXECUTION_ERROR"
    assert result.error.message == "There is no city Rme. Check the spelling."
    assert result.error.details == {"near": ["Rome"]}


# --- classes -----------------------------------------------------------------------------------


def test_a_class_tells_name_description_and_schema() -> None:
    class HTTPStatusPage(Tool, tier=0, effects="read", tags=["web"]):
        """Whether a site is up.

        It asks the status page.
        """

        async def run(self, site: str) -> bool:
            return True

    spec = HTTPStatusPage.spec
    assert (spec.name, spec.tier, spec.effects, spec.tags) == (
        "http_status_page",
        0,
        "read",
        ("web",),
    )
    assert spec.description == "Whether a site is up.\n\nIt asks the status page."
    assert list(spec.input_schema["properties"]) == ["site"]
    assert spec.output_schema == {"type": "boolean"}


def test_a_class_without_a_docstring_takes_that_of_run() -> None:
    class Echo(Tool):
        async def run(self, text: str) -> str:
            """Say it again."""
            return text

    assert Echo.spec.description == "Say it again."


def test_a_class_without_run_or_description_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="Idle has no run method"):

        class Idle(Tool):
            """Does nothing."""

    with pytest.raises(InvalidSpec, match="tool 'mute' has no description"):

        class Mute(Tool):
            async def run(self) -> None: ...

    with pytest.raises(InvalidSpec, match=r"did you mean 'timeout'\?"):

        class Typo(Tool, timout=5):  # type: ignore[call-arg]
            """Says something."""

            async def run(self) -> None: ...


async def test_a_class_may_inherit_its_run() -> None:
    class Echo(Tool):
        """Say it again."""

        suffix = ""

        async def run(self, text: str) -> str:
            return text + self.suffix

    class Shout(Echo):
        """Say it louder."""

        suffix = "!"

    assert (await run(Shout, {"text": "hey"})).output == "hey!"


@pytest.mark.req("FG-8")
async def test_a_class_is_made_on_first_use_with_what_it_asks_for() -> None:
    life: list[str] = []

    class Lookup(Tool):
        """Look something up."""

        def __init__(self, db: Injected[Db]) -> None:
            life.append("made")
            self.db = db

        async def initialize(self) -> None:
            life.append("initialized")

        async def run(self, key: str) -> int:
            life.append(f"run {key}")
            return self.db.answer

        async def close(self) -> None:
            life.append("closed")

    async with Executor(Registry([Lookup]), provide={Db: Db(42)}) as executor:
        assert life == []
        results = await asyncio.gather(*(executor.execute("lookup", {"key": k}) for k in "ab"))
        assert [r.output for r in results] == [42, 42]
    assert life == ["made", "initialized", "run a", "run b", "closed"]


@pytest.mark.req("FG-8")
async def test_a_class_that_is_never_called_is_never_made() -> None:
    class Costly(Tool):
        """Costs a lot."""

        def __init__(self) -> None:
            raise AssertionError("made")

        async def run(self) -> None: ...

    async with Executor(Registry([Costly])) as executor:
        assert [s.name for s in executor.list()] == ["costly"]
        await executor.execute("costly", {"unknown": 1})


@pytest.mark.req("NA-1")
async def test_an_object_validates_beyond_the_schema() -> None:
    class Transfer(Tool):
        """Move money."""

        async def run(self, amount: int, limit: int) -> int:
            return amount

        def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
            if arguments["amount"] > arguments["limit"]:
                yield "amount is above limit"
            if arguments["limit"] < 0:
                yield "limit is negative"

    assert (await run(Transfer(), {"amount": 1, "limit": 5})).output == 1
    result = await run(Transfer(), {"amount": 1, "limit": -5})
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"
    assert result.error.message == "amount is above limit; limit is negative"


@pytest.mark.req("NA-1")
async def test_an_object_tells_its_health() -> None:
    class Fine(Tool):
        """Works."""

        async def run(self) -> None: ...

    class Ill(Tool):
        """Does not work."""

        async def run(self) -> None: ...

        async def health(self) -> Health:
            return Health(False, "no connection")

    class Broken(Tool):
        """Cannot start."""

        async def initialize(self) -> None:
            raise OSError("no disk")

        async def run(self) -> None: ...

    async with Executor(Registry([Fine, Ill(), Broken])) as executor:
        assert await executor.health("fine") == Health(True)
        assert await executor.health("ill") == Health(False, "no connection")
        broken = await executor.health("broken")
    assert not broken.healthy
    assert "no disk" in (broken.error or "")


async def test_a_synchronous_run_is_fine_too() -> None:
    class Square(Tool):
        """Square a number."""

        def run(self, x: int) -> int:
            return x * x

    assert (await run(Square, {"x": 3})).output == 9
