"""``toolpost policy``: rules tried, explained and checked, without a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import json_of, toolpost

RULES = """
[[rules]]
id = "small-sums"
decision = "deny"
reason = "Large numbers are for grown-ups."
tool = "add"
arguments."/b" = {greater = 9}

[[rules]]
id = "no-coders"
decision = "ask"
agent = "coder"
"""


@pytest.fixture
def governed(project: Path) -> Path:
    config = (project / "toolpost.toml").read_text(encoding="utf-8")
    top = 'guards = ["policy"]\nmode = "strict"\n'
    table = '\n[extensions.policy]\nfile = "policy.toml"\n'
    (project / "toolpost.toml").write_text(top + config + table, encoding="utf-8")
    (project / "policy.toml").write_text(RULES, encoding="utf-8")
    return project


@pytest.mark.req("NA-3")
def test_a_decision_is_explained_with_its_rule_and_place(governed: Path) -> None:
    done = toolpost("policy", "explain", "add", "a=1", cwd=governed)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for text in ("deny", "small-sums", "Large numbers are for grown-ups.", "holds"):
        assert text in shown
    told = json_of("policy", "explain", "add", "a=1", "b=2", "--agent", "coder", cwd=governed)
    assert (told["verdict"], told["rule"]) == ("ask", "no-coders")
    assert [(s["rule"], s["failed"]) for s in told["steps"]] == [
        ("small-sums", "/b"),
        ("no-coders", None),
    ]
    assert told["steps"][0]["place"].endswith("policy.toml:2:3")


def test_a_rule_on_a_caller_knows_the_name_of_its_key(governed: Path) -> None:
    rule = '[[rules]]\nid = "not-ci"\ndecision = "deny"\ncaller = ["key:ci"]\n'
    file = governed / "callers.toml"
    file.write_text(rule, encoding="utf-8")
    for options, verdict in ((("--key", "ci"), "deny"), (("--user", "ci"), "allow")):
        words = ("policy", "explain", "add", "a=1", "b=2", "--policy", str(file), *options)
        assert json_of(*words, cwd=governed)["verdict"] == verdict


def test_a_tool_that_asks_for_itself_is_said_to(project: Path) -> None:
    """The rules allow it, and still it does not run before somebody has said yes."""
    tools = project / "tools.yaml"
    for asks in (False, True):
        if asks:
            text = tools.read_text(encoding="utf-8")
            tools.write_text(text.replace("- name: add", ASKING, 1), encoding="utf-8")
        words = ("policy", "explain", "add", "a=1")
        told = json_of(*words, cwd=project)
        assert (told["verdict"], told["requires_approval"]) == ("allow", asks)
        shown = toolpost(*words, cwd=project).stdout
        assert ("add itself asks for a person's yes first" in shown) == asks


ASKING = "- name: add\n  requires_approval: true"
RAW = """
- name: mail
  description: Send a mail.
  input_schema:
    type: object
    properties:
      to: {type: array, items: {$ref: "#/$defs/address"}}
      body: {type: string}
      login: {type: object, properties: {key: {type: string, x-secret: true}}}
    $defs: {address: {type: string, x-raw: true}}
  binding: {module: nowhere, function: mail}
"""


def test_explain_and_show_tell_which_parameters_are_raw(governed: Path) -> None:
    config = governed / "toolpost.toml"
    text = config.read_text(encoding="utf-8").replace('["tools.yaml"', '["raw.yaml", "tools.yaml"')
    config.write_text(text, encoding="utf-8")
    (governed / "raw.yaml").write_text(RAW, encoding="utf-8")
    for command in (("policy", "explain"), ("show",)):
        assert json_of(*command, "mail", cwd=governed)["raw"] == ["to", "login"]
        arguments = ("a=1",) if command[0] == "policy" else ()
        assert json_of(*command, "add", *arguments, cwd=governed)["raw"] == []
        shown = toolpost(*command, "mail", cwd=governed).stdout
        assert "raw" in shown and "secret" in shown
        assert "raw" not in toolpost(*command, "add", *arguments, cwd=governed).stdout


def test_where_no_rule_speaks_the_mode_is_named(governed: Path) -> None:
    told = json_of("policy", "explain", "refuse", cwd=governed)
    assert (told["verdict"], told["rule"]) == ("ask", "strict/tier-2")
    (governed / "toolpost.toml").write_text('mode = "permissive"\n', encoding="utf-8")
    assert toolpost("policy", "explain", "refuse", cwd=governed).returncode == 4
    config = 'guards = []\n[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
    (governed / "toolpost.toml").write_text(config, encoding="utf-8")
    done = toolpost("policy", "explain", "refuse", "--caller", "x", cwd=governed)
    assert "No rules: the mode and the tier decide." in done.stdout
    assert "policy is not among the guards" in done.stderr


def test_arguments_that_no_call_could_have_are_not_judged(governed: Path) -> None:
    done = toolpost("policy", "explain", "add", "a=x", cwd=governed)
    assert (done.returncode, "VALIDATION_ERROR" in done.stderr) == (3, True)


EXAMPLES = """
[[calls]]
tool = "add"
arguments = {a = 1}
expect = "deny"
rule = "small-sums"

[[calls]]
tool = "add"
arguments = {a = 1, b = 2}
caller = {agent = "coder", roles = ["x"]}
expect = "ask"

[[calls]]
tool = "not.here"
spec = {tier = 4}
mode = "permissive"
expect = "ask"
"""


def test_rules_that_decide_as_expected_pass(governed: Path) -> None:
    (governed / "calls.toml").write_text(EXAMPLES, encoding="utf-8")
    done = toolpost("policy", "test", "calls.toml", cwd=governed)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "3 of 3 calls are decided as expected\n"


def test_rules_that_decide_otherwise_fail_with_the_place_of_the_example(governed: Path) -> None:
    calls = [
        {"tool": "add", "arguments": {"a": 1}, "expect": "allow"},
        {"tool": "add", "arguments": {"a": 1}, "expect": "deny", "rule": "other"},
        {"tool": "add", "arguments": {"a": 1, "b": 2}, "expect": "allow"},
        {"tool": "ad", "expect": "allow"},
        {"tool": "add", "expect": "allow"},
        {"tool": "x", "spec": {"tire": 1}, "expect": "allow"},
    ]
    (governed / "calls.json").write_text(json.dumps({"calls": calls}), encoding="utf-8")
    done = toolpost("policy", "test", "calls.json", cwd=governed)
    assert done.returncode == 1
    assert done.stdout == "1 of 6 calls are decided as expected\n"
    said = done.stderr.splitlines()
    assert said[0] == "calls.json:1:12: add: expected allow, got deny by small-sums"
    assert "expected deny by other, got deny by small-sums" in said[1]
    assert "got nothing: There is no tool 'ad'; did you mean 'add'?" in said[2]
    assert "got nothing: " in said[3]
    assert "unknown field 'tire'" in said[4]
    told = json_of("policy", "test", "calls.json", cwd=governed)
    assert (told["passed"], [c["passed"] for c in told["calls"]]) == (
        False,
        [False, False, True, False, False, False],
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("calls = []", "there are no examples"),
        ('[[calls]]\ntool = "add"', "missing required field `expect`"),
        (
            '[[calls]]\ntool = "add"\nexpect = "no"',
            "calls.toml:3:10: use one of allow, ask, deny, not 'no'",
        ),
        ('[[calls]]\ntoll = "add"', "unknown 'toll'; did you mean 'tool'?"),
        ('[[calls]]\ntool = "add"\nexpect = "ask"\ncaller = {role = "x"}', "unknown field `role`"),
        ("calls = [", "calls.toml:1:"),
    ],
)
def test_examples_that_cannot_be_read_are_refused(governed: Path, text: str, said: str) -> None:
    (governed / "calls.toml").write_text(text, encoding="utf-8")
    done = toolpost("policy", "test", "calls.toml", cwd=governed)
    assert (done.returncode, said in done.stderr) == (78, True), done.stderr


def test_a_check_finds_rules_that_never_decide(governed: Path) -> None:
    more = '[[rules]]\nid = "all"\ndecision = "ask"\n[[rules]]\nid = "x"\ndecision = "deny"\n'
    idle = '[[rules]]\nid = "typo"\ndecision = "deny"\ntool = "aad"\n'
    (governed / "new.toml").write_text(RULES + idle + more, encoding="utf-8")
    done = toolpost("policy", "check", "--policy", "new.toml", cwd=governed)
    assert (done.returncode, done.stdout) == (0, "new.toml: 5 rules, in order\n")
    assert "x is never reached" in done.stderr
    assert "typo is for no tool" in done.stderr
    told = json_of("policy", "check", cwd=governed)
    assert (told["rules"], told["unreachable"], told["idle"]) == (2, [], [])


@pytest.mark.parametrize("text", ["", "[[rules]\n", None])
def test_a_broken_policy_is_one_line_with_its_place(governed: Path, text: str | None) -> None:
    file = governed / "policy.toml"
    file.unlink() if text is None else file.write_text(text, encoding="utf-8")
    for words in (("policy", "check"), ("list",), ("call", "add", "a=1")):
        done = toolpost(*words, cwd=governed)
        assert (done.returncode, done.stdout) == (78, "")
        assert "toolpost.toml:9:8: " in done.stderr and "policy.toml" in done.stderr
        assert "Traceback" not in done.stderr


def test_what_was_explained_is_what_happens(governed: Path) -> None:
    denied = toolpost("call", "add", "a=1", cwd=governed)
    assert (denied.returncode, "(rule small-sums)" in denied.stderr) == (6, True)
    asked = toolpost("call", "refuse", cwd=governed)
    assert (asked.returncode, "(rule strict/tier-2)" in asked.stderr) == (7, True)
    assert toolpost("call", "add", "a=1", "b=2", cwd=governed).stdout == "3\n"
