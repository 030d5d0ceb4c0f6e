"""Rules: what they say of a call, and what is said of them when they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.specs import specs, values
from toolpost import Caller
from toolpost.contracts import Mode
from toolpost.errors import ConfigError
from toolpost.rules import TABLE, Decision, Rules, by_mode, parse_rules, read_rules
from toolpost.spec import ToolSpec

OWNER = Caller("owner", owner=True)


def spec(**fields: Any) -> ToolSpec:
    return ToolSpec(
        **{"name": "db.drop", "description": "A tool.", "input_schema": {"type": "object"}} | fields
    )


def decided(
    text: str, arguments: dict[str, Any] | None = None, *, caller: Caller = OWNER, **fields: Any
) -> str:
    """What the rules say, both ways of asking them; ``-`` where they say nothing."""
    rules, of = parse_rules(text), spec(**fields)
    made = rules.judge(of, "standard")(caller, arguments or {})
    told, _ = rules.explain(of, "standard", caller=caller, arguments=arguments or {})
    assert made == told
    return "-" if made == by_mode(of, "standard") else made.verdict


@pytest.mark.req("NA-2", "NA-3")
@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        ("strict", "allow allow ask ask deny"),
        ("standard", "allow allow allow ask deny"),
        ("permissive", "allow allow allow ask ask"),
    ],
)
def test_mode_and_tier_decide_where_no_rule_does(mode: Mode, verdicts: str) -> None:
    assert " ".join(TABLE[mode]) == verdicts
    for tier, verdict in enumerate(verdicts.split()):
        made = Rules().judge(spec(tier=tier), mode)(OWNER, {})
        assert (made.verdict, made.rule) == (verdict, f"{mode}/tier-{tier}")
        assert f"(rule {mode}/tier-{tier})" in made.reason


def test_the_first_rule_that_holds_decides_and_names_itself() -> None:
    rules = parse_rules(
        """
        [[rules]]
        id = "reads"
        decision = "allow"
        effects = "read"

        [[rules]]
        id = "no-drop"
        decision = "deny"
        reason = "Nothing is dropped here."
        tool = "db.*"

        [[rules]]
        id = "never-asked"
        decision = "ask"
        tool = "db.*"
        """
    )
    made = rules.judge(spec(), "permissive")(OWNER, {})
    assert made == Decision("deny", "no-drop", "Nothing is dropped here. (rule no-drop)")
    made = rules.judge(spec(effects="read", tier=4), "strict")(OWNER, {})
    assert made == Decision("allow", "reads", "This call is allowed. (rule reads)")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('tool = "db.*"', True),
        ('tool = ["web.*", "tag:risky"]', True),
        ('tool = "web.*"', False),
        ('tag = "ris*"', True),
        ('tag = "tame"', False),
        ('kind = ["python", "http"]', True),
        ('kind = "shell"', False),
        ("tier = 2", True),
        ("tier = [3, 4]", False),
        ('effects = ["once", "read"]', True),
        ('effects = "idempotent"', False),
        ('caller = "key-*"', True),
        ('caller = "owner"', False),
        ('user = "ann"', True),
        ('user = "bob"', False),
        ('agent = ["planner", "coder"]', True),
        ('agent = "coder"', False),
        ('role = "read*"', True),
        ('role = "admin"', False),
        ('tool = "db.*"\ntier = 2\nrole = "reader"', True),
        ('tool = "db.*"\ntier = 2\nrole = "admin"', False),
        ('user = "ann"\nagent = "planner"', True),
        ('user = "ann"\nagent = "coder"', False),
    ],
)
def test_a_rule_holds_if_every_condition_does(condition: str, holds: bool) -> None:
    ann = Caller("key-1", user="ann", agent="planner", roles=frozenset({"reader", "x"}))
    rule = f'[[rules]]\nid = "r"\ndecision = "deny"\n{condition}\n'
    assert decided(rule, caller=ann, tier=2, tags=("risky",)) == ("deny" if holds else "-")


def test_who_has_no_user_agent_or_role_is_none_of_them() -> None:
    for field in ("user", "agent", "role"):
        rule = f'[[rules]]\nid = "r"\ndecision = "deny"\n{field} = "*"\n'
        assert decided(rule, caller=Caller("somebody")) == "-"


@pytest.mark.parametrize(
    ("test", "value", "holds"),
    [
        ("equals = 1", 1, True),
        ("equals = 1", 1.0, True),
        ("equals = 1", True, False),
        ("equals = true", 1, False),
        ("equals = true", True, True),
        ('equals = "x"', "x", True),
        ('equals = {a = [1, "b"]}', {"a": [1, "b"]}, True),
        ("equals = {a = [1]}", {"a": [True]}, False),
        ("equals = {a = 1}", {"a": 1, "b": 2}, False),
        ("equals = [1]", [1, 2], False),
        ('in = ["prod", "live"]', "live", True),
        ('in = ["prod", "live"]', "test", False),
        ("in = [1]", True, False),
        ('matches = "/etc/*"', "/etc/passwd", True),
        ('matches = ["*.key", "/etc/*"]', "a.key", True),
        ('matches = "/etc/*"', "/tmp/etc/x", False),
        ("greater = 10", 11, True),
        ("greater = 10", 10, False),
        ("less = 0.5", 0.4, True),
        ("less = 0.5", 1, False),
        ("greater = 1\nless = 3", 2, True),
        ("greater = 1\nless = 3", 3, False),
        ("present = true", None, True),
        ("present = false", None, False),
    ],
)
def test_an_argument_is_compared_as_json(test: str, value: Any, holds: bool) -> None:
    for verdict in ("deny", "allow", "ask"):
        text = f'[[rules]]\nid = "r"\ndecision = "{verdict}"\n[rules.arguments."/v"]\n{test}\n'
        assert decided(text, {"v": value}, tier=2) == (verdict if holds else "-")


@pytest.mark.parametrize("test", ["greater = 1", "less = 1", 'matches = "a*"', "less=9\ngreater=1"])
@pytest.mark.parametrize("value", [True, None, [], {}, float("nan")])
def test_what_cannot_be_compared_counts_against_the_call(test: str, value: Any) -> None:
    for verdict, expected in (("deny", "deny"), ("ask", "ask"), ("allow", "-")):
        text = f'[[rules]]\nid = "r"\ndecision = "{verdict}"\n[rules.arguments."/v"]\n{test}\n'
        assert decided(text, {"v": value}, tier=2) == expected


def test_of_several_values_one_is_enough_to_deny_and_all_are_needed_to_allow() -> None:
    def rule(verdict: str) -> str:
        return (
            f'[[rules]]\nid = "r"\ndecision = "{verdict}"\n'
            'arguments."/files/*/path" = {matches = "/work/*"}\n'
        )

    inside, outside = {"path": "/work/a"}, {"path": "/etc/b"}
    both: dict[str, Any] = {"files": [inside, outside]}
    assert decided(rule("deny"), both) == "deny"
    assert decided(rule("allow"), both) == "-"
    assert decided(rule("allow"), {"files": [inside, inside]}) == "allow"
    assert decided(rule("allow"), {"files": []}) == "-"
    assert decided(rule("deny"), {"files": {"one": outside, "two": inside}}) == "deny"


def test_a_pointer_goes_into_lists_and_unescapes_as_json_pointers_do() -> None:
    def rule(pointer: str) -> str:
        return f'[[rules]]\nid = "r"\ndecision = "deny"\narguments."{pointer}" = {{equals = 5}}\n'

    arguments = {"a/b": {"~": [0, 5]}, "list": [5], "deep": {"x": {"": 5}}}
    for pointer in ("/a~1b/~0/1", "/list/0", "/list/*", "/deep/x/", "/*/0", "/deep/*/*"):
        assert decided(rule(pointer), arguments) == "deny", pointer
    for pointer in ("/list/1", "/list/00x", "/list/-1", "/a", "/deep/x/y/z", "/list/9999999999999"):
        assert decided(rule(pointer), arguments) == "-", pointer


def test_an_argument_that_is_not_there_meets_no_test_but_that_of_absence() -> None:
    absent = '[[rules]]\nid = "r"\ndecision = "deny"\narguments."/v" = {present = false}\n'
    assert decided(absent, {}) == "deny"
    assert decided(absent, {"v": 0}) == "-"
    there = '[[rules]]\nid = "r"\ndecision = "deny"\narguments."/v" = {matches = "*"}\n'
    assert decided(there, {}) == "-"


@pytest.mark.parametrize(
    ("schema", "concerned"),
    [
        ({"properties": {"b": {}}, "additionalProperties": False}, False),
        ({"properties": {"v": {}}, "additionalProperties": False}, True),
        ({"properties": {"b": {}}}, True),
        (
            {
                "properties": {"b": {}},
                "patternProperties": {"v": {}},
                "additionalProperties": False,
            },
            True,
        ),
        ({"additionalProperties": False}, True),
    ],
)
def test_a_rule_about_an_argument_does_not_concern_tools_that_cannot_have_it(
    schema: dict[str, Any], concerned: bool
) -> None:
    rules = parse_rules('[[rules]]\nid = "r"\ndecision = "deny"\narguments."/v" = {equals = 1}\n')
    tool = spec(input_schema={"type": "object", **schema})
    assert rules.idle([tool]) == ([] if concerned else ["r"])


@given(specs, st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_asking_and_explaining_agree_whatever_is_called(
    tool: ToolSpec, arguments: dict[str, Any]
) -> None:
    rules = parse_rules(
        """
        [[rules]]
        id = "a"
        decision = "deny"
        tier = [3, 4]
        arguments."/*" = {greater = 3}
        [[rules]]
        id = "b"
        decision = "ask"
        kind = "h*"
        arguments."/*/*" = {matches = "a*"}
        [[rules]]
        id = "c"
        decision = "allow"
        arguments."/*" = {equals = true}
        """
    )
    for mode in TABLE:
        made = rules.judge(tool, mode)(OWNER, arguments)
        told, steps = rules.explain(tool, mode, caller=OWNER, arguments=arguments)
        assert made == told
        assert (steps[-1].failed is None) == (made.rule in "abc")


def test_rules_are_written_in_toml_yaml_or_json(tmp_path: Path) -> None:
    toml = '[[rules]]\nid = "a"\ndecision = "deny"\narguments."/p" = {matches = "x*"}\n'
    yaml = "rules:\n- id: a\n  decision: deny\n  arguments: {/p: {matches: x*}}\n"
    json = '{"rules": [{"id": "a", "decision": "deny", "arguments": {"/p": {"matches": "x*"}}}]}'
    read = []
    for name, text in (("p.toml", toml), ("p.yaml", yaml), ("p.json", json)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        read.append(read_rules(tmp_path / name))
    assert len({rules.digest for rules in read}) == 1
    assert read[1].rules[0].place == f"{tmp_path}/p.yaml:2:3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p:1:1: it has no rules"),
        ("# nothing\n", "it has no rules"),
        ("rules = []", "p:1:9: it has no rules"),
        ("rules = 5", "p:1:9: rules is a list of tables"),
        ("rules = [5]", "p:1:10: a rule is a table"),
        ("rule = []", "p:1:1: unknown 'rule'; did you mean 'rules'?"),
        ('[[rules]]\nid = "a"', "missing required field `decision`"),
        ('[[rules]]\ndecision = "deny"', "missing required field `id`"),
        ('[[rules]]\nid = ""\ndecision = "deny"', "p:2:6: an id is 1 to 100"),
        (
            '[[rules]]\nid = "a"\ndecision = "no"',
            "p:3:12: decision: use one of allow, ask, deny, not 'no'",
        ),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntols = "x"', "p:4:1: unknown 'tols'; did you"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntool = []', "p:4:8: tool names nothing"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntool = "a b"', "p:4:8: tool: 'a b' is no patt"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntool = "tga:x"', "did you mean 'tag'?"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntier = 5', "p:4:8: tier: a tier is 0 to 4"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\ntier = "3"', "p:4:8: tier: expected"),
        ('[[rules]]\nid = "a"\ndecision = "deny"\narguments = {}', "arguments tests nothing"),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\narguments."/p" = {}',
            "p:4:18: /p is tested for nothing; there are equals, in, matches",
        ),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\narguments."/p" = {equal = 1}',
            "p:4:19: unknown 'equal'; did you mean 'equals'?",
        ),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\narguments.p = {equals = 1}',
            "p:4:11: 'p' is no JSON pointer",
        ),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\narguments."/p" = {greater = "1"}',
            "greater: expected",
        ),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\narguments."/p" = {present=false, less=1}',
            "what is not present can be nothing else",
        ),
        (
            '[[rules]]\nid = "a"\ndecision = "deny"\n[[rules]]\nid = "a"\ndecision = "ask"',
            "p:5:6: the id 'a' is taken, at p:1:",
        ),
        ("[[rules]\n", "p:1:"),
    ],
)
def test_what_is_wrong_with_rules_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as fault:
        parse_rules(text, name="p")
    assert said in fault.value.message
    assert fault.value.message.startswith("p:")


@pytest.mark.parametrize("text", ["", "5", "[]", "- a\n"])
def test_a_file_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^p:1:1: "):
        parse_rules(text, format="yaml", name="p")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rules(tmp_path / "policy.toml")


def test_rules_that_never_decide_are_found() -> None:
    rules = parse_rules(
        """
        [[rules]]
        id = "web"
        decision = "deny"
        tool = "web.*"
        [[rules]]
        id = "all"
        decision = "ask"
        [[rules]]
        id = "late"
        decision = "deny"
        tier = 4
        """
    )
    assert rules.unreachable() == ["late"]
    assert rules.idle([spec(tier=4)]) == ["web"]
    assert Rules().unreachable() == []
