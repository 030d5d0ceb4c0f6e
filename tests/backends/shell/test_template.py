"""Templates: what is read from a spec, and what comes out as an argv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.shell.tools import schema, shell
from toolpost.backends.shell.binding import command_of
from toolpost.backends.shell.filling import argv_from
from toolpost.errors import InvalidArguments, InvalidSpec, SourceError
from toolpost.sources.files import FilesSource

pytestmark = pytest.mark.anyio

EVERY = schema(
    "a",
    "b",
    "n",
    "x",
    "mode",
    n={"type": "integer"},
    x={"type": "number"},
    on={"type": "boolean"},
    many={"type": "array", "items": {"type": "string"}},
    mode={"enum": ["-x", "-c"]},
    maybe={"type": ["string", "null"]},
    any={},
    usual={"type": "string", "default": "."},
)


def argv(command: Any, allow: dict[str, str] | None = None, **values: Any) -> list[str]:
    spec = shell(command, input_schema=EVERY, allow_leading=allow or {})
    return argv_from(command_of(spec).template, values)


def fault(command: Any, **options: Any) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        command_of(shell(command, **{"input_schema": EVERY, **options}))
    return caught.value


@pytest.mark.req("UX-7")
@pytest.mark.parametrize(
    ("command", "values", "words"),
    [
        ("rm {a}", {"a": "x y"}, ["rm", "x y"]),
        ("rm -- {a}", {"a": "-rf"}, ["rm", "--", "-rf"]),
        ("rm '{a}'", {"a": "$(x)"}, ["rm", "$(x)"]),
        ('rm "{a} {b}"', {"a": "1 2", "b": "3"}, ["rm", "1 2 3"]),
        ("cp {a} {b}", {"a": "1", "b": ""}, ["cp", "1", ""]),
        ("ls --sort={a}", {"a": "-x"}, ["ls", "--sort=-x"]),
        ("ls --sort={a}:{b}", {"a": "1", "b": "2"}, ["ls", "--sort=1:2"]),
        (["ls", "{a}b", "c{a}"], {"a": "1"}, ["ls", "1b", "c1"]),
        ("head -n {n}", {"n": 12}, ["head", "-n", "12"]),
        ("head -n{n}", {"n": 12}, ["head", "-n12"]),
        ("sleep {x}", {"x": 3.0}, ["sleep", "3"]),
        ("sleep {x}", {"x": 0.25}, ["sleep", "0.25"]),
        ("sleep {x}", {"x": 1e22}, ["sleep", "1e+22"]),
        ("tar {mode}", {"mode": "-x"}, ["tar", "-x"]),
        ("tar {mode}f", {"mode": "-x"}, ["tar", "-xf"]),
        ("ls {usual}", {"usual": "."}, ["ls", "."]),
    ],
)
def test_a_value_fills_one_word(command: Any, values: Any, words: list[str]) -> None:
    assert argv(command, **values) == words


@pytest.mark.parametrize(
    ("command", "values", "words"),
    [
        ("ls {on?-l} {a}", {"on": True, "a": "x"}, ["ls", "-l", "x"]),
        ("ls {on?-l} {a}", {"on": False, "a": "x"}, ["ls", "x"]),
        ("ls {on?-l}", {}, ["ls"]),
        ("ls {on?-l}", {"on": None}, ["ls"]),
        (["ls", "{on?--time-style=long iso}"], {"on": True}, ["ls", "--time-style=long iso"]),
    ],
)
def test_a_boolean_is_a_flag(command: Any, values: Any, words: list[str]) -> None:
    assert argv(command, **values) == words


@pytest.mark.parametrize(
    ("command", "values", "words"),
    [
        ("x [--to {maybe}] {a}", {"maybe": "m", "a": "1"}, ["x", "--to", "m", "1"]),
        ("x [--to {maybe}] {a}", {"a": "1"}, ["x", "1"]),
        ("x [--to {maybe}] {a}", {"maybe": None, "a": "1"}, ["x", "1"]),
        ("x [--to={maybe}]", {"maybe": ""}, ["x", "--to="]),
        ("x [{maybe}]", {}, ["x"]),
        ("x [{maybe} {n}]", {"maybe": "m"}, ["x"]),
        ("x [{on?-v} {maybe}]", {"maybe": "m"}, ["x", "m"]),
        ("x [{on?-v} {maybe}]", {"on": True}, ["x"]),
        (["x", ["--to", "{maybe}"]], {"maybe": "m"}, ["x", "--to", "m"]),
        (["x", ["--to", "{maybe}"]], {}, ["x"]),
    ],
)
def test_a_group_is_left_out_when_a_value_is_missing(
    command: Any, values: Any, words: list[str]
) -> None:
    assert argv(command, **values) == words


@pytest.mark.parametrize(
    ("command", "values", "words"),
    [
        ("rm -- [{many}]", {"many": ["1", "-2"]}, ["rm", "--", "1", "-2"]),
        ("rm -- [{many}]", {"many": []}, ["rm", "--"]),
        ("x [--no={many}]", {"many": ["1", "2"]}, ["x", "--no=1", "--no=2"]),
        ("x [-H {many}]", {"many": ["1", "2"]}, ["x", "-H", "1", "2"]),
        ("x [-H {many} ...]", {"many": ["1", "2"]}, ["x", "-H", "1", "-H", "2"]),
        ("x [-H {many} ...]", {"many": []}, ["x"]),
        (["x", ["-H", "{a}={many}", "..."]], {"many": ["1", "2"], "a": "k"},
         ["x", "-H", "k=1", "-H", "k=2"]),
    ],
)  # fmt: skip
def test_an_array_gives_a_word_for_each_item(command: Any, values: Any, words: list[str]) -> None:
    assert argv(command, **values) == words


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a b'c'\"d\"e", ["a", "bcde"]),
        ("a '' \"\"", ["a", "", ""]),
        ("a '|' \\; '$HOME' '*' '[x]' \\[", ["a", "|", ";", "$HOME", "*", "[x]", "["]),
        ('a "\\"\\\\ \\$x \\n"', ["a", '"\\ $x \\n']),
        ("a\n\tb  c ", ["a", "b", "c"]),
        ("a {{}} {{x}} '{{\"k\": 1}}'", ["a", "{}", "{x}", '{"k": 1}']),
        ("a {{{{x}}}}", ["a", "{{x}}"]),
        (["a", "b c", "| [x] $y ~ *", ""], ["a", "b c", "| [x] $y ~ *", ""]),
        ("sh -c 'rm -- \"$1\"' sh", ["sh", "-c", 'rm -- "$1"', "sh"]),
    ],
)
def test_a_text_is_split_as_a_posix_shell_splits_it(command: Any, words: list[str]) -> None:
    assert argv(command) == words


@pytest.mark.req("UX-7")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("cat {c}", "{c} is no parameter of the input_schema (there is a, b, n, x, mode, on"),
        ("cat {usul}", "{usul} is no parameter of the input_schema; did you mean 'usual'?"),
        ("cat {uno?-v}", "{uno} is no parameter"),
        ("cat {}", "'{}' names no parameter; write {{ and }} for braces that are meant"),
        ("curl -d '{\"k\": 1}'", "names no parameter; write {{ and }}"),
        ("cat {a", "'{' names no parameter"),
        ("cat a}", "'}' names no parameter"),
        ("cat {a?-v}", "{a?…} needs a parameter of the type boolean"),
        ("cat x{on?-v}", "a flag is a word of its own"),
        ("cat {on}", "'on' is true or false: write {on?--on} for a flag"),
        ("cat {maybe}", "'maybe' may be missing: put what depends on it in [brackets]"),
        ("cat {many}", "'many' may be missing"),
        ("{a} x", "the program itself cannot come from a parameter"),
        ("x{a} x", "the program itself cannot come from a parameter"),
        (["{on?ls}"], "the program itself cannot come from a parameter"),
        ("'' x", "the program itself cannot come from a parameter"),
        ("", "the command begins with the program"),
        ([], "the command begins with the program"),
        ("[ls {a}]", "the command begins with the program"),
        ("ls [-l]", "a group has a value in it"),
        ("ls []", "a group has a value in it"),
        ("ls [-l {maybe} ...]", "exactly one parameter of the type array"),
        ("ls [{a}", "a bracket is not closed"),
        ("ls {a}]", "brackets stand around whole words"),
        ("ls [[{a}]]", "brackets stand around whole words"),
        ("ls x[0]", "brackets stand around whole words"),
        ("ls [{a}]x", "brackets stand around whole words"),
        ("ls 'x", "a quote is not closed"),
        ('ls "x', "a quote is not closed"),
        ("ls x\\", "a backslash is the last character"),
        ("cat {a} | sh", "'|' means nothing here, for no shell reads this"),
        ("cat {a} > x", "'>' means nothing here"),
        ("cat {a}; ls", "';' means nothing here"),
        ("cat {a} && ls", "'&' means nothing here"),
        ("cat $HOME", "'$' means nothing here"),
        ('cat "$HOME"', "'$' means nothing here"),
        ('cat "`id`"', "'`' means nothing here"),
        ("cat `id`", "'`' means nothing here"),
        ("ls *.txt", "'*' means nothing here"),
        ("ls ~/x", "'~' means nothing here"),
        ("tar -{a}", "{a} could choose another flag here"),
        ("tar -x{a}", "{a} could choose another flag here"),
        ("tar --{a}", "{a} could choose another flag here"),
        ("tar --x{n}{a}=1", "{a} could choose another flag here"),
        ("sh -c {a}", "what a shell runs with -c cannot hold a value"),
        ("sh -c 'rm {a}'", "what a shell runs with -c cannot hold a value"),
        ("/bin/bash -lc 'rm {a}'", "what a shell runs with -c cannot hold a value"),
        ("sh -c -e 'rm {a}'", "what a shell runs with -c cannot hold a value"),
        ("env X=1 bash -e -c 'rm {a}'", "what a shell runs with -c cannot hold a value"),
        (["sh", "-c", ["{maybe}"]], "what a shell runs with -c cannot hold a value"),
        (["ls", "a\0b"], "a NUL character"),
    ],
)
def test_a_template_that_means_something_else_is_refused(command: Any, message: str) -> None:
    assert message in fault(command).message


def test_an_object_is_no_word() -> None:
    refused = fault("x {o}", input_schema=schema(o={"type": "object"}) | {"required": ["o"]})
    assert "hand it over with stdin" in refused.message


@pytest.mark.parametrize(
    ("options", "at", "message"),
    [
        ({"comand": "ls"}, ("comand",), "did you mean 'command'?"),
        ({"output": "xml"}, ("output",), "not 'xml'"),
        ({"exit_codes": {"one": {"ok": True}}}, ("exit_codes", "one"), "no exit status"),
        ({"exit_codes": {"0": {"ok": True}}}, ("exit_codes", "0"), "no exit status"),
        ({"exit_codes": {"256": {"ok": True}}}, ("exit_codes", "256"), "no exit status"),
        ({"exit_codes": {"1": {"error": "NOT_FUND"}}}, ("exit_codes", "1", "error"),
         "a program cannot end with 'NOT_FUND'; did you mean 'NOT_FOUND'?"),
        ({"exit_codes": {"1": {"error": "APPROVAL_REQUIRED"}}}, ("exit_codes", "1", "error"),
         "a program cannot end with 'APPROVAL_REQUIRED'"),
        ({"environment": {"LD_PRELOAD": "x"}}, ("environment", "LD_PRELOAD"), "cannot be set"),
        ({"environment": {"A=B": "x"}}, ("environment", "A=B"), "cannot be set"),
        ({"environment": {"A": "x\0"}}, ("environment", "A"), "a NUL character"),
        ({"secrets": ["A", "LD_AUDIT"]}, ("secrets", 1), "cannot be set"),
        ({"allow_leading": {"aa": "-"}}, ("allow_leading", "aa"), "'aa' is no parameter"),
        ({"allow_leading": {"a": "+"}}, ("allow_leading", "a"), "'-', '@' or '-@'"),
        ({"stdin": "{c}"}, ("stdin",), "{c} is no parameter"),
        ({"stdin": "{on?x}"}, ("stdin",), "a flag has no meaning here"),
        ({"truncate": True, "output": "json"}, ("truncate",), "half of a JSON text is none"),
    ],
)  # fmt: skip
def test_a_binding_that_cannot_be_is_refused_with_its_place(
    options: Any, at: Any, message: str
) -> None:
    refused = fault("ls", **options)
    assert message in refused.message
    assert refused.at == ("binding", *at)


def test_a_program_does_not_run_in_our_own_process() -> None:
    assert fault("ls", isolation="thread").at == ("isolation",)


@pytest.mark.req("UX-8", "UX-7")
@pytest.mark.parametrize(
    ("binding", "place", "message"),
    [
        ("implementation_config: {command: 'rm {pth}'}", "4:36", "did you mean 'path'?"),
        ("implementation_config:\n    command: [rm, --, '{pth}']", "5:23", "{pth} is no parameter"),
        ("implementation_config:\n    command: [rm, [-x, '{pth}']]", "5:24", "{pth} is no param"),
        ("implementation_config:\n    comand: rm", "5:13", "did you mean 'command'?"),
        ("implementation_config:\n    command: rm | sh", "5:14", "'|' means nothing here"),
        ("implementation_config: {}", "4:26", "missing required field `command`"),
    ],
)
async def test_a_fault_is_reported_where_the_file_has_it(
    tmp_path: Path, binding: str, place: str, message: str
) -> None:
    (tmp_path / "t.yaml").write_text(
        f"- name: delete\n  description: Delete.\n  tool_type: shell\n  {binding}\n"
        "  input_schema: {type: object, properties: {path: {type: string}}}\n"
    )
    with pytest.raises(SourceError) as caught:
        await FilesSource(["t.yaml"], base=tmp_path).load(lambda done, total: None)
    assert str(caught.value).startswith(f"{tmp_path / 't.yaml'}:{place}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("command", "values", "message"),
    [
        ("x {a}", {}, "/a: is needed"),
        ("x {a}", {"a": None}, "/a: is needed"),
        ("x [{any}]", {"any": True}, "/any: must be a text or a number here, not true or false"),
        ("x [{any}]", {"any": {"k": 1}}, "/any: must be a text or a number"),
        ("x [{any}]", {"any": [["k"]]}, "/any: must be a text or a number"),
        ("x [{any}{a}]", {"any": ["k"], "a": "1"}, "/any: must be a text or a number"),
        ("x [{any}]", {"any": float("inf")}, "/any: must be a text or a number"),
        ("x [{any}]", {"any": 10**5000}, "/any: has too many digits"),
        ("x {a}", {"a": "1\0002"}, "/a: must not hold a NUL character"),
        ("x {a}", {"a": "\ud800"}, "/a: holds half of a surrogate pair"),
    ],
)
def test_a_value_that_is_no_word_is_refused(command: str, values: Any, message: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        argv(command, **values)
    assert caught.value.message.startswith(message)
    assert caught.value.effects == "none"
    assert caught.value.of_a_run().effects == "none"


@pytest.mark.req("UX-7")
@pytest.mark.parametrize(
    ("command", "allow", "value", "passes"),
    [
        ("x {a}", {}, "-v", False),
        ("x {a}", {}, "--", False),
        ("x {a}", {}, "-", False),
        ("x {a}", {}, "@f", False),
        ("x {a}", {"a": "-"}, "-v", True),
        ("x {a}", {"a": "-"}, "@f", False),
        ("x {a}", {"a": "@"}, "@f", True),
        ("x {a}", {"a": "@"}, "-v", False),
        ("x {a}", {"a": "-@"}, "-v", True),
        ("x {a}", {"b": "-@"}, "-v", False),
        ("x -- {a}", {}, "-v", True),
        ("x -- {a}", {}, "@f", True),
        ("x {a} --", {}, "-v", False),
        ("x [-- {maybe}] {a}", {}, "-v", False),
        ("x -o {a}", {}, "-v", False),
        ("x -o={a}", {}, "-v", True),
        ("x -o={a}", {}, "@f", False),
        ("x k={a}", {}, "@f", False),
        ("x {a}{b}", {}, "-v", False),
        ("x {b}{a}", {}, "-v", False),
        ("x {b}{a}", {}, "@f", False),
        ("x {b}{a}", {"b": "-"}, "-v", False),
        ("x {b}-{a}", {}, "v", False),
    ],
)
def test_a_value_that_would_lead_is_refused_unless_it_is_behind_two_dashes_or_allowed(
    command: str, allow: dict[str, str], value: str, passes: bool
) -> None:
    def filled() -> list[str]:
        return argv(command, allow, a=value, b="")

    if passes:
        assert value in filled()[-1]
    else:
        with pytest.raises(InvalidArguments, match=r"must not begin with '[-@]'"):
            filled()


def test_a_choice_that_is_empty_does_not_let_the_next_value_lead() -> None:
    properties = {"sign": {"enum": ["", "+"]}, "n": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["sign", "n"]}
    template = command_of(shell("sort {sign}{n}", input_schema=schema)).template
    assert argv_from(template, {"sign": "+", "n": "-1"}) == ["sort", "+-1"]
    with pytest.raises(InvalidArguments, match="/n: must not begin with '-'"):
        argv_from(template, {"sign": "", "n": "--compress-program=x"})


def test_a_negative_number_is_a_flag_too() -> None:
    assert argv("head -n {n}", {"n": "-"}, n=-5) == ["head", "-n", "-5"]
    with pytest.raises(InvalidArguments, match="/n: must not begin with '-'"):
        argv("head -n {n}", n=-5)


@pytest.mark.req("UX-7")
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(max_size=3))
def test_any_text_is_one_word_or_refused_for_its_first_character(a: str, b: str) -> None:
    if "\0" in a:
        with pytest.raises(InvalidArguments, match="NUL"):
            argv("x -- {a}", a=a)
        return
    assert argv("x -- {a} y", a=a) == ["x", "--", a, "y"]
    assert argv("x {a} y", {"a": "-@"}, a=a) == ["x", a, "y"]
    if a.startswith(("-", "@")):
        with pytest.raises(InvalidArguments, match="must not begin with"):
            argv("x {a} y", a=a)
    else:
        assert argv("x {a} y", a=a) == ["x", a, "y"]
        assert argv("x --k={a} y", a=a) == ["x", f"--k={a}", "y"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_array_is_as_many_words_as_it_has_items(many: list[str]) -> None:
    assert argv("x -- [{many}]", many=many) == ["x", "--", *many]


@given(st.text(st.characters(exclude_characters="\0{}", exclude_categories=["Cs"])))
def test_a_quoted_text_is_one_word_whatever_is_in_it(text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert argv(f"x {quoted} y") == ["x", text, "y"]


@given(st.text(max_size=30))
def test_any_text_as_a_template_is_read_or_refused(text: str) -> None:
    try:
        command_of(shell(f"x {text}", input_schema=EVERY))
    except InvalidSpec as refused:
        assert refused.at[:2] == ("binding", "command")
