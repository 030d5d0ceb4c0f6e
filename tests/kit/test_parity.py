"""Old tools and new ones get the same calls; what differs is told, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.old_tools import IN_AN_OBJECT, OLD, OURS
from toolpost import Executor, Image, Output, Registry, SourceError, ToolFailed, tool
from toolpost.kit.modules import entries_in, imported
from toolpost.kit.parity import Ask, Difference, Parity, Side, _Same, calls_in, changing, compare

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """What one test imports from its folder is not there for the next."""
    path, modules = [*sys.path], set(sys.modules)
    yield
    sys.path[:] = path
    for name in ("old_ways", "brought_old_ways", "added_anew", "brought_added_anew"):
        if name not in modules:
            sys.modules.pop(name, None)


@tool(effects="read")
async def same(value: Any = None) -> Any:
    """Give back what was given."""
    return value


@tool
async def other(value: Any = None) -> Any:
    """Give back something else."""
    if value == "fail":
        raise ToolFailed("No.")
    if value == "picture":
        return Output(parts=(Image(b"1"),))
    return {"sum": 3.0000000000001, "list": [1, 2], "when": "now", "extra": True}


OLD_OUTPUT = {"sum": 3, "list": [1, 3], "when": "then", "gone": None}


async def compared(*asks: Ask, **more: Any) -> Parity:
    async with Executor(Registry([same, other])) as executor:
        side = Side.of("here", executor)
        return await compare(side, side, asks, **more)


def _ask(old: str, new: str, value: Any = None) -> Ask:
    return Ask(old=old, new=new, arguments={"value": value})


@pytest.mark.req("UX-9")
async def test_what_differs_in_results_is_named_by_its_place() -> None:
    (one,) = (await compared(_ask("same", "other", OLD_OUTPUT))).compared
    assert one.differences == (
        Difference("/list/1", "3", "2"),
        Difference("/when", '"then"', '"now"'),
        Difference("/gone", "null", "(not there)"),
        Difference("/extra", "(not there)", "true"),
    )


@pytest.mark.req("UX-9")
async def test_what_may_differ_is_left_out() -> None:
    asks = (_ask("same", "other", OLD_OUTPUT),)
    ignore = ("when", "gone", "extra", "/list/1")
    assert (await compared(*asks, ignore=ignore)).same
    assert not (await compared(*asks, ignore=ignore, tolerance=0)).same


@pytest.mark.req("UX-9")
@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        (9007199254740993, 9007199254740992, False),
        (1700000000000000000, 1700000000000000001, False),
        (1700000000, 1700000001, False),
        (3, 3, True),
        (3, 3.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
    ],
)
def test_two_integers_are_the_same_only_if_they_are_equal(old: Any, new: Any, alike: bool) -> None:
    loose = _Same(0.01, frozenset())
    assert bool(list(loose.differences({"id": old}, {"id": new}))) is not alike


@pytest.mark.req("UX-9")
async def test_codes_of_errors_and_parts_are_compared() -> None:
    found = await compared(
        _ask("same", "other", "fail"),
        _ask("other", "other", "fail"),
        _ask("same", "other", "picture"),
        _ask("other", "other", "picture"),
    )
    told = [[difference.at for difference in one.differences] for one in found.compared]
    assert told == [["code"], [], ["output", "/parts"], []]
    assert found.compared[0].differences[0].new == "EXECUTION_ERROR: No."


async def test_a_tool_that_one_side_lacks_is_a_difference() -> None:
    (one,) = (await compared(_ask("same", "gone"))).compared
    assert one.differences == (Difference("tool", "same", "(not there)"),)


@pytest.mark.req("UX-9")
async def test_latency_is_told_for_each_tool() -> None:
    found = await compared(_ask("same", "same"), _ask("same", "same", 1), repeat=3)
    (told,) = found.tools().values()
    assert (told.calls, told.same) == (6, 6)
    assert told.old_p50 and told.new_p50 and told.ratio


async def test_only_what_reads_is_called_if_that_is_wanted() -> None:
    asks = (_ask("same", "other"), _ask("other", "same"))
    found = await compared(*asks, only_read=True)
    assert [bool(one.skipped) for one in found.compared] == [True, False]
    async with Executor(Registry([same, other])) as executor:
        side = Side.of("here", executor)
        assert changing(side, side, asks) == ["other"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=3), of, max_size=3),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(_JSON, _JSON)
def test_values_are_the_same_as_themselves_and_differ_both_ways(one: Any, two: Any) -> None:
    strict = _Same(0.0, frozenset())
    assert not list(strict.differences(one, one))
    assert bool(list(strict.differences(one, two))) == bool(list(strict.differences(two, one)))
    if list(strict.differences(one, two)):
        assert json.dumps(one, sort_keys=True) != json.dumps(two, sort_keys=True)


def test_calls_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(
        '{"tool": "a", "arguments": {"x": 1}, "code": "OK"}\n\n{"old": "b", "new": "c"}\n'
    )
    assert calls_in(file) == [
        Ask(old="a", new="a", arguments={"x": 1}, line=1),
        Ask(old="b", new="c", line=3),
    ]
    for wrong, said in (("", "no call"), ("[]", "1: a call is"), ("{}", "which tool"), ("{", ":1")):
        file.write_text(wrong)
        with pytest.raises(SourceError, match=said):
            calls_in(file)


@pytest.mark.req("UX-9")
@pytest.mark.parametrize("contract", OLD)
async def test_tools_of_every_contract_are_found_and_do_as_new_ones(
    contract: str, tmp_path: Path
) -> None:
    (tmp_path / f"added_as_{contract}.py").write_text(OLD[contract], encoding="utf-8")
    anew = IN_AN_OBJECT if contract == "agentic" else OURS
    (tmp_path / "added_anew.py").write_text(anew, encoding="utf-8")
    before = entries_in(imported(tmp_path / f"added_as_{contract}.py"), wanted=["add"])
    after = entries_in(imported(tmp_path / "added_anew.py"))
    assert [entry.spec.name for entry in before] == ["add"]
    asks = [
        Ask(old="add", new="add", arguments=arguments)
        for arguments in ({"a": 1.5, "b": 2}, {"a": 5000, "b": 1}, {"a": "x", "b": 1}, {})
    ]
    async with Executor(Registry(before)) as old, Executor(Registry(after)) as new:
        found = await compare(Side.of("old", old), Side.of("new", new), asks)
    assert [one.differences for one in found.compared] == [(), (), (), ()]


def test_a_module_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken_tools.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"broken_tools\.py: it cannot be imported: ZeroDivision"):
        imported(tmp_path / "broken_tools.py")
    with pytest.raises(SourceError, match="no_such_module"):
        imported("no_such_module_of_tools")
