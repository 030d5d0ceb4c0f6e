"""What is written as YAML is read back as it was, and can be read by people."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import SourceError
from toolpost.document import as_yaml, parse

TRICKY = st.sampled_from(
    [
        "", "no", "null", "~", "true", "1", "1e3", "0o17", "0x1F", ".inf", "-", "- a", "a: b", "=",
        "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "'", '"', "\\", "a\nb", "a\n", "\na", " a",
        "a\n\n b", "a\tb", "\x85", "\u2028", "\ufeff", "\x1b[31m", "\u202e", "<<", "2020-01-01",
        "a,b", "[a]", "{a}", "? a", "---", "...", "a\n---\nb", "é", "日本", "\U0001f600", "x" * 600,
        "a #b", "a ", "\U000e0000", "\uffff", "\\ud83d\\ude00",
    ]
)  # fmt: skip
TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), TRICKY)
SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
DATA = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@given(st.one_of(st.lists(DATA, max_size=4), st.dictionaries(TEXT, DATA, max_size=4)))
def test_whatever_is_written_is_read_back(value: Any) -> None:
    text = as_yaml(value)
    assert parse(text, format="yaml", name="y").data == value
    assert not any(one in text for one in "\x1b\x85\u2028\u202e\ufeff")


def test_people_can_read_it() -> None:
    value = {
        "tools": [
            {"name": "add", "description": "Two lines:\nthis one too.", "tags": ["a b", "1"]},
            {"empty": {}, "none": [], "deep": [[1, 2], [{"x": None}]]},
        ]
    }
    assert as_yaml(value) == (
        "tools:\n"
        "  - name: add\n"
        "    description: |-\n"
        "      Two lines:\n"
        "      this one too.\n"
        "    tags:\n"
        "      - a b\n"
        '      - "1"\n'
        "  - empty: {}\n"
        "    none: []\n"
        "    deep:\n"
        "      -\n"
        "        - 1\n"
        "        - 2\n"
        "      -\n"
        "        - x: null\n"
    )


def test_a_number_is_a_key_only_where_that_is_asked_for() -> None:
    text = "200: a\n2.50: b\ntrue: c\nnull: d\n"
    with pytest.raises(SourceError, match="y:1:1: the key 200 is no string"):
        parse(text, format="yaml", name="y")
    document = parse(text, format="yaml", name="y", lenient=True)
    assert document.data == {"200": "a", "2.50": "b", "true": "c", "null": "d"}
    assert document.where(("2.50",)) == "y:2:7"
    with pytest.raises(SourceError, match="is here twice"):
        parse('200: a\n"200": b\n', format="yaml", name="y", lenient=True)
