"""Digests: the same data, the same digest; other data, another one."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings

from tests.specs import values
from toolpost.digest import canonical, digest, digest_json


def test_canonical_json_has_sorted_keys_and_no_white_space() -> None:
    assert canonical({"b": [1, 2.5, None], "a": "ü"}) == '{"a":"ü","b":[1,2.5,null]}'.encode()


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_digest_depends_on_the_order_of_items() -> None:
    assert digest([1, 2]) != digest([2, 1])


def test_integers_of_any_size_are_exact() -> None:
    assert canonical(2**80) == str(2**80).encode()
    assert digest(2**80) != digest(2**80 + 1)


def test_true_and_one_are_two_values() -> None:
    assert digest({"a": True}) != digest({"a": 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800"])
def test_what_json_cannot_carry_has_no_digest(value: object) -> None:
    with pytest.raises(ValueError):
        digest({"a": value})


def test_a_digest_names_its_algorithm() -> None:
    assert digest({}) == ("sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a")


def test_another_process_computes_the_same_digest() -> None:
    value = {"z": [1, "é", {"y": None}], "a": {"c": 1.5, "b": True}}
    program = (
        "import json, sys; from toolpost.digest import digest; print(digest(json.load(sys.stdin)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == digest(value)


@settings(deadline=None)
@given(values)
def test_data_that_went_through_json_has_the_digest_it_had(value: object) -> None:
    assert digest(json.loads(json.dumps(value))) == digest(value)


@given(values)
@settings(max_examples=300, deadline=None)
def test_the_fast_digest_of_parsed_json_is_the_same(value: object) -> None:
    parsed = json.loads(json.dumps(value))
    assert digest_json(parsed) == digest(parsed)


@pytest.mark.parametrize(
    "text",
    ['{"b":1,"a":{"ü":2,"z":[3]}}', "1e400", "[1.0, 1e16, 1e-7]", "[null]", '"\\u007f\\u2028\\\\"',
     str(2**80), "[18446744073709551615, -9223372036854775808]", '{"1e5":"2.5"}'],
)  # fmt: skip
def test_the_fast_digest_takes_the_slow_way_where_texts_could_differ(text: str) -> None:
    value = json.loads(text)
    if value == math.inf:
        with pytest.raises(ValueError, match="JSON compliant"):
            digest_json(value)
    else:
        assert digest_json(value) == digest(value)
