"""Patterns of tools, and globs."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import ConfigError
from toolpost.patterns import glob, selector
from toolpost.spec import ToolSpec

SPEC = ToolSpec(
    name="kb.search", description="Search.", kind="http", category="web", tags=("safe", "fast")
)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("kb.search", True),
        ("kb.*", True),
        ("*", True),
        ("k?.search", True),
        ("[jk]b.search", True),
        ("[!j]b.[a-z]earch", True),
        ("kb", False),
        ("KB.search", False),
        ("tag:safe", True),
        ("tag:fa*", True),
        ("tag:slow", False),
        ("category:web", True),
        ("category:file", False),
        ("kind:http", True),
        ("kind:*sh*", False),
    ],
)
def test_a_pattern_means_tools_by_name_tag_category_or_kind(pattern: str, meant: bool) -> None:
    assert selector([pattern])(SPEC) is meant
    assert selector(["no.such", pattern])(SPEC) is meant
    assert selector([])(SPEC) is False


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("tags:safe", "did you mean 'tag'?"),
        ("tier:3", "write tag:…, category:…, kind:…"),
        ("tag:", "is no pattern"),
        ("", "is no pattern"),
        ("a b", "no tool can have such a name"),
        ("kb/*", "no tool can have such a name"),
        ("[bad", "no tool can have such a name"),
        ("kb.]", "no tool can have such a name"),
        ("!kb", "no tool can have such a name"),
    ],
)
def test_what_can_mean_no_tool_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ConfigError) as fault:
        selector([pattern])
    assert said in fault.value.message


@given(st.lists(st.text("ab*?[]!-", max_size=6), max_size=3), st.text("ab-", max_size=8))
def test_a_glob_is_what_the_standard_library_makes_of_it(patterns: list[str], text: str) -> None:
    assert glob(patterns)(text) == any(fnmatchcase(text, pattern) for pattern in patterns)


def test_a_hostile_text_does_not_make_a_glob_expensive() -> None:
    matches, text = glob(["*a*a*a*a*a*a*a*a*a*a*b"]), "a" * 100_000
    begun = time.monotonic()
    assert not matches(text)
    assert time.monotonic() - begun < 5
