"""Which trace a call belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from toolpost import Caller, ToolSpec
from toolpost.call import Call
from toolpost.result import Metadata
from toolpost.traceparent import incoming, inside, outgoing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def call(**metadata: Any) -> Call:
    spec = ToolSpec(name="it", description="It.")
    return Call("it", spec, {}, Caller("me"), "1", Metadata(), metadata=metadata)


def test_the_trace_of_the_caller_is_handed_through() -> None:
    assert incoming(call(traceparent=PARENT)) == {"traceparent": PARENT}
    both = {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert outgoing(call(**both)) == both


@pytest.mark.parametrize(
    "parent",
    [
        None,
        5,
        "",
        "00-0-0-0",
        PARENT.upper(),
        PARENT + "\r\nX-Evil: 1",
        PARENT + "\n",
        "ff" + PARENT[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    ],
)
def test_what_has_not_the_form_goes_nowhere(parent: Any) -> None:
    assert incoming(call(traceparent=parent, tracestate="a=1")) == {}


@pytest.mark.parametrize("state", ["", "a=1\r\nX-Evil: 1", "ä=1", "a" * 513, 5])
def test_a_state_that_has_not_the_form_is_left_out(state: Any) -> None:
    assert incoming(call(traceparent=PARENT, tracestate=state)) == {"traceparent": PARENT}


def test_an_open_span_goes_before_what_came_with_the_call() -> None:
    token = inside.set({"traceparent": "mine"})
    try:
        assert outgoing(call(traceparent=PARENT)) == {"traceparent": "mine"}
    finally:
        inside.reset(token)
    assert outgoing(call()) == {}
