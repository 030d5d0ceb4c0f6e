"""The test kit: what it finds right, what it finds wrong, and what it does not judge."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import Annotated, Any

import pydantic
import pytest

from tests.backends import python_tools
from toolpost import Call, Injected, Registry, Tool, ToolFailed, ToolSpec, tool
from toolpost.contracts import Health
from toolpost.schema import Schema
from toolpost.testing import Clock, Report, Tried, check_tool, echo, sample_executor
from toolpost.testing.example import NoExample, example

pytestmark = pytest.mark.anyio
FENCE = 20


@tool(tier=0, effects="read")
async def divide(a: float, b: float, slowly: bool = False) -> float:
    """Divide two numbers."""
    if slowly:
        await asyncio.get_running_loop().create_future()
    if b == 0:
        raise ToolFailed("Division by zero. Use another divisor.")
    return a / b


GOOD = {
    "arguments": {"a": 1, "b": 2},
    "failing": {"a": 1, "b": 0},
    "slow": {"a": 1, "b": 1, "slowly": True},
}


@pytest.mark.req("FM-14")
async def test_one_call_tries_everything_on_a_good_tool() -> None:
    report = await check_tool(divide, **GOOD)
    report.raise_if_failed()
    assert [(item.name, item.outcome) for item in report.items] == [
        (name, "passed")
        for name in (
            "schema",
            "success",
            "output",
            "missing argument",
            "wrong type",
            "unknown argument",
            "error handling",
            "timeout",
            "cancellation",
            "concurrency",
        )
    ]
    assert report.ok
    assert report.subject == "divide"
    assert "Division by zero" in str(report)


class Weather(Tool, effects="read"):
    """Tell the weather."""

    def __init__(self, default: str = "fine") -> None:
        self.default = default

    async def run(self, city: str) -> str:
        return f"{self.default} in {city}"


class Lookup:
    """A backend for one kind."""

    def bind(self, spec: ToolSpec, target: object | None) -> Lookup:
        return self

    async def run(self, call: Any) -> Any:
        return {"found": call.arguments["word"]}

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        pass


LOOKUP = ToolSpec(
    name="look_up",
    description="Look up.",
    kind="lookup",
    input_schema={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    examples=({"word": "tree"},),
)


@pytest.mark.req("FM-14")
@pytest.mark.parametrize(
    "subject",
    [echo, Weather, Weather("rain"), LOOKUP, python_tools.spins, python_tools.standard],
    ids=["function", "class", "instance", "spec", "process", "thread"],
)
async def test_any_kind_of_tool_can_be_tried(subject: Any) -> None:
    report = await check_tool(subject, backends={"lookup": Lookup()}, parallel=3)
    report.raise_if_failed()
    assert report.outcome("success") == "passed"


async def test_a_tool_gets_what_it_wants_injected() -> None:
    @tool
    async def wants(store: Injected[Clock]) -> float:
        """Use what is injected."""
        return store()

    assert (await check_tool(wants, provide={Clock: Clock(5)})).ok
    assert not (await check_tool(wants)).ok


def failing(report: Report) -> dict[str, str]:
    return {item.name: item.reason for item in report.failed}


async def test_a_tool_that_breaks_fails_even_with_made_up_arguments() -> None:
    @tool
    async def breaks(a: int) -> int:
        """Break."""
        raise ZeroDivisionError

    report = await check_tool(breaks)
    assert failing(report)["success"].startswith("INTERNAL_ERROR with {'a': 0}")
    with pytest.raises(AssertionError, match=re.escape("breaks: 1 failed")):
        report.raise_if_failed()
    assert report.outcome("concurrency") == "not applicable"


async def test_made_up_arguments_that_do_not_suit_the_tool_are_not_its_fault() -> None:
    @tool
    async def reads(path: str) -> str:
        """Read a file."""
        raise ToolFailed("File not found.")

    report = await check_tool(reads)
    assert report.ok
    assert report.outcome("success") == report.outcome("output") == "not applicable"
    assert not (await check_tool(reads, arguments={"path": "x"})).ok


async def test_a_tool_that_does_not_return_what_it_says_fails() -> None:
    @tool(output_schema={"type": "integer"})
    async def lies() -> Any:
        """Say one thing and return another."""
        return "text"

    report = await check_tool(lies)
    assert set(failing(report)) == {"success", "output"}
    assert report.outcome("missing argument") == "not applicable"
    assert report.outcome("wrong type") == "not applicable"


async def test_a_tool_that_lets_exceptions_out_handles_no_errors() -> None:
    @tool
    async def careless(a: int) -> int:
        """Be careless."""
        return 1 // a

    report = await check_tool(careless, arguments={"a": 1}, failing={"a": 0})
    assert set(failing(report)) == {"error handling"}
    report = await check_tool(careless, arguments={"a": 1}, failing={"a": 2})
    assert failing(report) == {"error handling": "it succeeded with {'a': 2}"}


async def test_a_message_that_helps_nobody_is_found_out() -> None:
    @tool
    async def mute(fails: bool = False) -> None:
        """Say nothing."""
        if fails:
            raise ToolFailed(" ")

    report = await check_tool(mute, failing={"fails": True})
    assert failing(report) == {"error handling": "its message helps nobody"}


async def test_a_tool_that_takes_anything_is_not_judged_by_its_arguments() -> None:
    @tool(coerce=True)
    async def anything(a: Any = None) -> Any:
        """Take anything."""
        return a

    spec = ToolSpec(
        name="open", description="Open.", kind="lookup", input_schema={"type": "object"}
    )
    for subject in (anything, spec):
        report = await check_tool(subject, backends={"lookup": Lookup()}, arguments={})
        assert (
            report.outcome("wrong type") == report.outcome("missing argument") == "not applicable"
        )
    assert report.outcome("unknown argument") == "not applicable"


async def test_arguments_that_cannot_be_made_up_are_asked_for() -> None:
    @tool
    async def coded(code: Annotated[str, pydantic.Field(pattern="^[A-Z]{3}-[0-9]+$")]) -> str:
        """Take a code."""
        return code

    report = await check_tool(coded)
    assert report.ok
    assert report.outcome("success") == "not applicable"
    assert "give arguments=" in str(report)
    assert (await check_tool(coded, arguments={"code": "ABC-1"})).outcome("success") == "passed"


async def test_an_example_that_does_not_fit_is_found_out() -> None:
    @tool(examples=[{"b": 1}, {"a": 1}])
    async def shown(a: int) -> int:
        """Be shown."""
        return a

    report = await check_tool(shown)
    assert failing(report) == {"schema": "example 1 of the spec does not fit its schema"}
    assert report.outcome("success") == "passed"


async def test_a_tool_that_is_not_slow_when_it_should_be_is_found_out() -> None:
    report = await check_tool(echo, slow={"text": "x"})
    assert failing(report)["timeout"] == "it was not slow"
    report = await check_tool(divide, arguments={"a": 1, "b": 1}, slow={"a": 1, "b": 0})
    assert failing(report)["timeout"].startswith("EXECUTION_ERROR")


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ({"complete": False, "read": 3}, True),
        ({"complete": True, "read": 3}, False),
        ({"read": 3}, False),
        ("complete: false", False),
    ],
)
async def test_an_answer_before_the_limit_counts_only_if_it_says_that_it_is_partial(
    output: Any, passes: bool
) -> None:
    @tool
    async def hurried(call: Call) -> Any:
        """Answer with what there is."""
        call.warn("The time limit is near: this is not all.")
        return output

    report = await check_tool(hurried, slow={})
    assert report.outcome("timeout") == ("passed" if passes else "failed"), str(report)


async def test_to_check_a_tool_that_asks_first_is_to_say_yes() -> None:
    @tool(requires_approval=True)
    async def careful(number: int) -> int:
        """Count."""
        return number

    report = await check_tool(careful)
    assert report.outcome("success") == "passed", str(report)
    async with sample_executor(careful) as tools:
        result = await tools.execute("careful", {"number": 1})
    assert result.error is not None
    assert result.error.code == "APPROVAL_REQUIRED", "and nobody else has said it"


async def test_a_tool_that_fails_when_many_call_it_is_found_out() -> None:
    inside = 0

    @tool
    async def alone() -> int:
        """Work alone."""
        nonlocal inside
        inside += 1
        try:
            await asyncio.sleep(0)
            if inside > 1:
                raise ToolFailed("Busy.")
            return 1
        finally:
            inside -= 1

    report = await check_tool(alone)
    assert "Busy." in failing(report)["concurrency"]


async def test_a_tool_that_blocks_the_loop_beyond_its_limit_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    monkeypatch.setattr("toolpost.testing.tool.GRACE", -2)

    @tool(isolation="inline", timeout=60)
    def blocks(long: bool = False) -> int:
        """Block."""
        if long:
            gate.wait(0.4)
        return 1

    report = await check_tool(blocks, slow={"long": True}, parallel=1)
    assert "the limit was 0.2 s" in failing(report)["timeout"]


async def test_a_tool_that_clings_to_life_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = asyncio.Event()

    @tool(timeout=60)
    async def clings(long: bool = False) -> int:
        """Cling to life."""
        while long and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return 1

    monkeypatch.setattr("toolpost.testing.tool.GRACE", -4.9)
    report = await check_tool(clings, slow={"long": True}, parallel=1)
    release.set()
    assert failing(report)["cancellation"] == "it goes on after its caller has gone"


async def test_a_broken_schema_of_a_foreign_tool_is_found_out() -> None:
    class Foreign:
        spec = ToolSpec(
            name="foreign",
            description="Foreign.",
            kind="lookup",
            input_schema={"type": "objekt"},
            output_schema=True,
        )

    report = await check_tool(Foreign(), backends={"lookup": Lookup()}, arguments={"word": "x"})
    assert report.subject == "foreign"
    assert "must be one or a list of" in failing(report)["schema"]


async def test_a_function_that_cannot_be_a_tool_is_found_out() -> None:
    async def undescribed(a: int) -> int:
        return a

    report = await check_tool(undescribed)
    assert report.subject == "undescribed"
    assert "has no description" in failing(report)["schema"]


async def test_a_check_that_takes_for_ever_is_given_up() -> None:
    from toolpost.testing.report import reported

    async def never() -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    async def breaks() -> str:
        raise OSError("no disk")

    async def fails() -> str:
        raise AssertionError

    report = await reported("it", {"never": never, "breaks": breaks, "fails": fails}, 0.01)
    assert report.items == (
        Tried("never", "failed", "it did not come back within 0.01 s"),
        Tried("breaks", "failed", "OSError: no disk"),
        Tried("fails", "failed", "it does not hold"),
    )


# Samples


async def test_the_sample_tools_can_be_called() -> None:
    async with sample_executor(divide) as executor:
        assert (await executor.execute("echo", {"text": "hey"})).output == "hey"
        assert (await executor.execute("fail", {"message": "No."})).error.message == "No."
        assert (await executor.execute("hang", timeout=0.01)).error.code == "TIMEOUT"
        assert (await executor.execute("divide", {"a": 1, "b": 2})).output == 0.5


def test_a_clock_moves_when_it_is_told_to() -> None:
    clock = Clock(100)
    assert clock() == clock() == 100
    clock.advance(2.5)
    assert clock() == 102.5
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


# Examples


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "string"},
        {"type": "string", "minLength": 12},
        {"type": "string", "maxLength": 3},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "email"},
        {"type": "string", "format": "uuid"},
        {"type": "integer"},
        {"type": "integer", "minimum": 5},
        {"type": "integer", "exclusiveMinimum": 5},
        {"type": "integer", "maximum": -5},
        {"type": "integer", "exclusiveMaximum": 0},
        {"type": "integer", "minimum": 5, "multipleOf": 4},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 3},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["null", "string"]},
        {"enum": ["a", "b"]},
        {"const": 5},
        {"type": "string", "default": "d"},
        {"type": "string", "examples": ["e"], "pattern": "^e$"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        {"anyOf": [{"type": "string", "pattern": "x"}, {"type": "integer"}]},
        {"allOf": [{"type": "integer"}]},
        {"description": "anything"},
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "object", "required": ["a"]},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}},
        {"type": "array", "items": {"$ref": "#"}},
    ],
    ids=str,
)
def test_an_example_fits_its_schema(schema: Any) -> None:
    value = example(schema)
    assert Schema(schema).check(value) is value


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "pattern": "x"},
        {"anyOf": [{"type": "string", "pattern": "x"}]},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    ],
    ids=str,
)
def test_where_there_is_no_example_it_says_so(schema: Any) -> None:
    with pytest.raises(NoExample):
        example(schema)


def test_the_kit_names_what_it_offers() -> None:
    import toolpost.testing as kit

    assert kit.__all__ == sorted(kit.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(kit, name) for name in kit.__all__)


async def test_checks_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    await check_tool(echo)
    assert caplog.text == ""
    assert [s.name for s in Registry([echo])] == ["echo"]
