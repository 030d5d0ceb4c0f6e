"""Results: output or error, as data that travels, and what an exception becomes."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.specs import texts, values
from toolpost import (
    Audio,
    CallError,
    Failure,
    Image,
    InvalidArguments,
    InvalidOutput,
    Metadata,
    MissingPart,
    RateLimited,
    Resource,
    Result,
    Text,
    TimedOut,
    ToolFailed,
)
from toolpost.errors import BY_CODE
from toolpost.failure import failure

parts = st.one_of(
    st.builds(Text, texts),
    st.builds(Image, st.binary(max_size=9), st.sampled_from(["image/png", "image/jpeg"])),
    st.builds(Audio, st.binary(max_size=9)),
    st.builds(
        Resource,
        texts,
        mime=st.none() | texts,
        text=st.none() | texts,
        data=st.none() | st.binary(max_size=9),
    ),
)
failures = st.builds(
    Failure,
    code=st.sampled_from(["TIMEOUT", "VALIDATION_ERROR"]),
    message=texts,
    remedy=st.sampled_from(["stop", "wait"]),
    retryable=st.booleans(),
    effects=st.sampled_from(["none", "unknown", "done"]),
    retry_after=st.none() | st.floats(0, 100),
    details=st.none() | st.dictionaries(texts, values, max_size=2),
)
metadata = st.builds(
    Metadata,
    call_id=texts,
    duration_ms=st.floats(0, 1e6),
    attempts=st.integers(1, 3),
    cached=st.booleans(),
    warnings=st.lists(texts, max_size=2),
    trail=st.lists(texts, max_size=2),
    plan=st.none() | st.dictionaries(texts, values, max_size=2),
)
results = st.builds(
    Result,
    output=st.none() | values,
    parts=st.lists(parts, max_size=3).map(tuple),
    error=st.none() | failures,
    metadata=metadata,
)


@settings(deadline=None)
@given(results)
def test_a_result_comes_back_from_json_as_it_was(result: Result) -> None:
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.req("NA-5")
def test_a_result_is_plain_data() -> None:
    result = Result(
        {"answer": 42},
        (Text("hello"), Image(b"\x89PNG"), Resource("file:///a")),
        None,
        Metadata("c-1", 1.5, warnings=["old"]),
    )
    assert result.to_dict() == {
        "success": True,
        "output": {"answer": 42},
        "parts": [
            {"type": "text", "text": "hello"},
            {"type": "image", "data": "iVBORw==", "mime": "image/png"},
            {"type": "resource", "uri": "file:///a"},
        ],
        "error": None,
        "metadata": {"call_id": "c-1", "duration_ms": 1.5, "warnings": ["old"]},
    }


def test_success_is_the_absence_of_an_error() -> None:
    error = failed(ToolFailed("no"))
    assert Result(1).success
    assert Result().success
    assert not Result(error=error).success


def test_a_result_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Result(1).output = 2  # type: ignore[misc]


# --- exceptions --------------------------------------------------------------------------------


def failed(exc: Exception, effects: Any = "once") -> Failure:
    return failure(exc, tool="t", call_id="c-1", effects=effects)


def test_a_call_error_becomes_data_as_it_is() -> None:
    error = RateLimited("Wait 3 s.", retry_after=3, details={"limit": 10})
    assert failed(error) == Failure(
        code="RATE_LIMITED",
        message="Wait 3 s.",
        remedy="wait",
        retryable=True,
        effects="none",
        retry_after=3,
        details={"limit": 10},
    )


def test_an_error_is_no_longer_than_a_model_can_read(caplog: pytest.LogCaptureFixture) -> None:
    long = failed(ToolFailed("m" * 5_000_000, details={"d": "d" * 5_000_000}))
    assert long.message == "m" * (8 * 1024 - 1) + "…"
    assert long.details is None
    assert "details that have 5,000,008 bytes" in caplog.text
    brief = failed(ToolFailed("m" * 8_000, details={"d": "d" * 60_000}))
    assert brief.message == "m" * 8_000
    assert brief.details == {"d": "d" * 60_000}


@pytest.mark.parametrize(
    ("exc", "code", "remedy", "effects"),
    [
        (MemoryError(), "RESOURCE_LIMIT", "other_tool", "unknown"),
        (ConnectionRefusedError(), "UNAVAILABLE", "wait", "none"),
        (ConnectionResetError(), "UNAVAILABLE", "stop", "unknown"),
        (BrokenPipeError(), "UNAVAILABLE", "stop", "unknown"),
        (TimeoutError(), "UNAVAILABLE", "stop", "unknown"),
        (MissingPart("install it"), "UNAVAILABLE", "other_tool", "none"),
        (KeyError("x"), "INTERNAL_ERROR", "other_tool", "unknown"),
        (
            ExceptionGroup("two", [ValueError(), KeyError()]),
            "INTERNAL_ERROR",
            "other_tool",
            "unknown",
        ),
        (CallError("odd"), "INTERNAL_ERROR", "other_tool", "none"),
        (TimedOut("late"), "TIMEOUT", "stop", "unknown"),
        (InvalidArguments("a: missing"), "VALIDATION_ERROR", "fix_args", "none"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else None,
)
def test_every_exception_has_one_meaning(
    exc: Exception, code: str, remedy: str, effects: str
) -> None:
    error = failed(exc)
    assert (error.code, error.remedy, error.effects) == (code, remedy, effects)


@pytest.mark.req("FM-6", "FM-10")
def test_a_foreign_exception_is_in_the_log_and_not_in_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "toolpost.tools"):
        error = failed(ValueError("password=hunter2 at /srv/secret.py"))
    assert error.message == "Internal tool error. See logs for details."
    assert "hunter2" not in repr(error)
    assert "t failed (call c-1)" in caplog.text
    assert "hunter2" in caplog.text


def test_a_setup_error_says_to_the_log_what_is_missing_and_is_not_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = failed(MissingPart("Install it with: pip install x"))
    assert error.message == "This tool is not set up to run here. Use another tool."
    assert (error.code, error.remedy, error.effects) == ("UNAVAILABLE", "other_tool", "none")
    assert not error.retryable
    assert "Install it with: pip install x" in caplog.text


@pytest.mark.parametrize("exc", [ToolFailed("no"), InvalidOutput("no"), ValueError("no")])
def test_a_tool_that_only_reads_has_no_effects_even_when_it_fails(exc: Exception) -> None:
    assert failed(exc, effects="read").effects == "none"
    assert failed(exc, effects="idempotent").effects != "none"


@pytest.mark.parametrize("junk", [object(), float, {"x": object()}, "\ud800"])
def test_details_that_are_no_json_are_left_out(
    junk: object, caplog: pytest.LogCaptureFixture
) -> None:
    error = failed(ToolFailed("no", details={"junk": junk}))
    assert error.details is None
    assert "details that are not JSON" in caplog.text
    json.dumps(Result(error=error).to_dict())


def test_details_may_hold_what_has_a_json_form() -> None:
    error = failed(ToolFailed("no", details={"seen": (1, 2), "metadata": Metadata("c")}))
    assert error.details == {"seen": [1, 2], "metadata": {"call_id": "c"}}


def test_what_may_have_been_done_is_not_to_be_repeated_by_another_way() -> None:
    late = TimedOut("Operation timed out after 5s. Ask for less at a time, or use another tool.")
    once, again = (
        failure(late, tool="pay", call_id="c", effects=effects)
        for effects in ("once", "idempotent")
    )
    assert once.remedy == "stop" and "another tool" not in once.message
    assert once.message.startswith("Operation timed out after 5s. It may have been done")
    assert again.remedy == "other_tool" and "another tool" in again.message


def test_a_result_that_is_no_error_comes_back_when_errors_are_to_be_raised() -> None:
    result = Result(42)
    assert result.raise_for_error() is result


@settings(deadline=None)
@given(failures, st.sampled_from(sorted(BY_CODE)))
def test_an_error_is_raised_as_what_it_was(said: Failure, code: Any) -> None:
    said = msgspec.structs.replace(said, code=code)
    with pytest.raises(BY_CODE[code]) as caught:
        Result(error=said).raise_for_error()
    raised = {name: getattr(caught.value, name) for name in Failure.__struct_fields__}
    assert Failure(**raised) == said


def test_what_another_call_did_not_do_is_no_word_about_the_tool_that_made_it() -> None:
    said = Failure("TIMEOUT", "It waited.", "wait", True, "none")
    with pytest.raises(TimedOut) as caught:
        Result(error=said).raise_for_error()
    assert caught.value.of_a_run().effects == "unknown"
