"""``Given``: what a spec says of a parameter reaches the function, wherever it runs."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from tests.builtin.given_tools import Limits, limited, limited_async, same
from toolpost import (
    Executor,
    FunctionTool,
    Given,
    InvalidSpec,
    Registry,
    ToolSpec,
    create_tool,
    tool,
)
from toolpost.builtin import given

pytestmark = pytest.mark.anyio
LIMITS = Limits(most=3, names=("a", "b"))


async def called(made: FunctionTool | ToolSpec, arguments: dict[str, Any]) -> Any:
    spec = made if isinstance(made, ToolSpec) else made.spec
    async with Executor(Registry([made])) as executor:
        return await executor.execute(spec.name, arguments)


def running(made: FunctionTool, isolation: Any) -> FunctionTool:
    spec = msgspec.structs.replace(made.spec, isolation=isolation)
    return FunctionTool(made.function, spec, made.signature)


@pytest.mark.parametrize("isolation", ["inline", "thread", "process", "sandbox"])
async def test_what_a_spec_gives_reaches_the_function_wherever_it_runs(isolation: str) -> None:
    result = await called(running(given(limited, limits=LIMITS), isolation), {"text": "x"})
    assert result.error is None, result.error
    here = result.output.pop("pid") == os.getpid()
    assert result.output == {"text": "x", "most": 3, "names": ["a", "b"]}
    assert here == (isolation in ("inline", "thread"))


async def test_a_tool_that_is_all_data_is_given_the_same() -> None:
    binding = {
        "module": limited.__module__,
        "function": "limited",
        "given": {"limits": {"most": 7}},
    }
    spec = msgspec.structs.replace(limited.spec, binding=binding)
    result = await called(spec, {"text": "x"})
    assert result.output["most"] == 7


async def test_what_is_given_is_in_no_schema_and_no_caller_can_set_it() -> None:
    made = given(limited, limits=LIMITS)
    assert list(made.spec.input_schema["properties"]) == ["text"]
    assert "given" not in str(made.spec.public())
    result = await called(made, {"text": "x", "limits": {"most": 1_000}})
    assert (result.error.code, "limits" in result.error.message) == ("VALIDATION_ERROR", True)


async def test_a_schema_that_is_wider_than_the_function_does_not_let_a_caller_in() -> None:
    made = given(limited_async, limits=LIMITS)
    wide = {"type": "object", "properties": {"text": {}, "limits": {}}}
    spec = msgspec.structs.replace(made.spec, input_schema=wide)
    made = FunctionTool(made.function, spec, made.signature)
    result = await called(made, {"text": "x", "limits": {"most": 1_000}})
    assert result.error.code == "VALIDATION_ERROR"


async def test_settings_are_made_of_the_spec_once_and_may_be_left_out() -> None:
    async with Executor(Registry([given(same, limits=LIMITS)])) as executor:
        first, second = [await executor.execute("same", {}) for _ in range(2)]
    assert first.output == second.output
    assert first.output[1] is True


async def test_a_tool_that_was_given_nothing_does_not_run() -> None:
    result = await called(limited_async, {"text": "x"})
    assert (result.error.code, result.error.remedy) == ("UNAVAILABLE", "other_tool")


async def test_settings_of_the_wrong_type_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = given(limited_async, limits={"most": "many"})
    result = await called(made, {"text": "x"})
    assert result.error.code == "UNAVAILABLE"
    assert "given.limits.most: expected `int`, got `str`" in caplog.text


async def test_a_tool_of_plain_data_is_given_settings_as_well() -> None:
    async def most(arguments: dict[str, Any], limits: Given[Limits]) -> int:
        return limits.most

    made = create_tool("most", "Tell the limit.", most, input_schema={"type": "object"})
    spec = msgspec.structs.replace(made.spec, binding={"given": {"limits": {"most": 9}}})
    assert (await called(FunctionTool(most, spec, None), {})).output == 9


def test_a_parameter_that_is_not_there_cannot_be_given() -> None:
    with pytest.raises(
        InvalidSpec, match="no parameter 'limit' to be given; did you mean 'limits'"
    ):
        given(limited, limit=LIMITS)
    with pytest.raises(InvalidSpec, match="no parameter 'text' to be given; given are limits"):
        given(limited, text="x")


def test_what_is_given_is_part_of_the_digest() -> None:
    assert given(limited, limits=LIMITS).spec.digest != limited.spec.digest
    assert given(limited, limits=LIMITS).spec.public_digest == limited.spec.public_digest
    assert given(limited, limits=LIMITS).spec == given(limited, limits=LIMITS).spec


def test_a_given_parameter_of_a_function_in_a_function_is_found() -> None:
    @tool
    def inner(limits: Given[Limits]) -> int:
        """Tell the limit."""
        return limits.most

    assert inner.spec.input_schema["properties"] == {}
