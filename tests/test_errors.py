"""The error tree: every error says what happened, whether to try again and what to do."""

from __future__ import annotations

import re

import pytest

from toolpost import errors
from toolpost.errors import (
    CallError,
    ConfigError,
    InvalidSchema,
    InvalidSpec,
    RateLimited,
    SetupError,
    TimedOut,
    ToolFailed,
    ToolpostError,
)

CLASSES = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, CallError)]


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = re.findall(r"[├└]── (\w+) +([A-Z_]+) +([a-z_]+)$", errors.__doc__ or "", re.MULTILINE)
    real = [(c.__name__, c.code, c.remedy) for c in CLASSES if c is not CallError]
    assert drawn == real


def test_every_code_belongs_to_one_error() -> None:
    codes = [c.code for c in CLASSES if c is not CallError]
    assert sorted(codes) == sorted(set(codes)) == sorted(errors.Code.__args__)
    assert {code: c.code for code, c in errors.BY_CODE.items()} == {code: code for code in codes}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_a_call_error_has_a_remedy_that_models_know(kind: type[CallError]) -> None:
    assert kind.remedy in errors.Remedy.__args__
    assert kind.effects in errors.Outcome.__args__


def test_an_error_that_may_be_retried_tells_to_wait_or_to_try_something_else() -> None:
    assert {c.remedy for c in CLASSES if c.retryable} == {"wait", "other_tool"}


def test_an_instance_says_more_than_its_class() -> None:
    error = RateLimited("Wait.", retry_after=3, remedy="stop", retryable=False, effects="done")
    assert (error.code, error.retry_after, error.remedy) == ("RATE_LIMITED", 3, "stop")
    assert (error.retryable, error.effects, error.details) == (False, "done", None)


def test_an_instance_changes_nothing_for_the_others() -> None:
    TimedOut("Late.", remedy="stop", retryable=False)
    error = TimedOut("Late.")
    assert (error.remedy, error.retryable, error.effects) == ("other_tool", True, "unknown")


def test_an_exception_handed_in_as_the_message_becomes_text() -> None:
    assert ToolFailed(ValueError("no such city")).message == "no such city"  # type: ignore[arg-type]


def test_a_setup_error_knows_the_place_inside_the_definition() -> None:
    error = InvalidSpec("bad tier", at=("tools", 0, "tier"))
    assert (str(error), error.message, error.at) == ("bad tier", "bad tier", ("tools", 0, "tier"))


@pytest.mark.parametrize("kind", [CallError, SetupError, InvalidSchema, ConfigError])
def test_one_except_catches_everything(kind: type[CallError | SetupError]) -> None:
    with pytest.raises(ToolpostError, match="it went wrong"):
        raise kind("it went wrong")
