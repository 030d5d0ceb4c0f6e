"""Patterns of tools, and globs."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.call import OWNER, Caller
from toolpost.errors import ConfigError
from toolpost.patterns import caller_matcher, glob, selector
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


BOT = Caller("key:0123456789ab", user="ann", agent="bot", key="ci")


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        *(("ann", True), ("bot", True), ("ci", True), ("key:0123456789ab", True)),
        *(("user:ann", True), ("agent:bot", True), ("key:ci", True), ("key:c*", True)),
        *(("user:bot", False), ("agent:ann", False), ("key:ann", False), ("user:ci", False)),
        *(("*", True), ("b?t", True), ("annie", False), ("user:*", True), ("local", False)),
    ],
)
def test_a_caller_is_meant_by_any_of_its_names_or_by_the_one_that_is_said(
    pattern: str, fits: bool
) -> None:
    assert caller_matcher((pattern,))(BOT) is fits


def test_attack_a_name_does_not_pass_for_another_kind_of_name_or_for_the_owner() -> None:
    sly = Caller("corp:x", user="key:ci", agent="user:ann")
    assert not caller_matcher(("key:ci", "user:ann"))(sly)
    assert not caller_matcher(("owner", "local"))(Caller("corp:owner", user="owner", agent="local"))
    assert caller_matcher(("owner",))(OWNER)


def test_users_of_two_issuers_are_two_principals() -> None:
    one = Caller("corp:ann", user="ann", issuer="corp")
    other = Caller("club:ann", user="ann", issuer="club")
    assert (one.principal, other.principal) == ("user:corp/ann", "user:club/ann")
    assert caller_matcher(("user:corp/ann",))(one)
    assert not caller_matcher(("user:corp/ann",))(other)
