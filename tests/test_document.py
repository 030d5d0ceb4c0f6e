"""Documents: what is read, where it stands, and what is refused without harm."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.document import MAX_BYTES, MAX_DEPTH, Document, parse, read
from toolpost.errors import SourceError

both_yaml_parsers = pytest.mark.parametrize("pure", [False, True], ids=["libyaml", "pure"])


@contextmanager
def yaml_parser(*, pure: bool) -> Iterator[None]:
    """PyYAML as it is where its C part could not be built."""
    with pytest.MonkeyPatch.context() as patch:
        if pure:
            patch.delattr(yaml, "CSafeLoader")
        yield


def of_yaml(text: str) -> Any:
    return parse(dedent(text), format="yaml", name="x").data


def of_json(text: str) -> Any:
    return parse(text, format="json", name="x").data


def of_toml(text: str) -> Any:
    return parse(dedent(text), format="toml", name="x").data


def fault(text: str, form: Any) -> str:
    with pytest.raises(SourceError) as caught:
        parse(text, format=form, name="x")
    return str(caught.value)


def offset(document: Document, text: str, *pointer: str | int, key: bool = False) -> int:
    line, column = map(int, document.where(pointer, key=key).split(":")[-2:])
    lines = text.split("\n")
    assert 1 <= line <= len(lines)
    assert 1 <= column <= len(lines[line - 1]) + 1
    return sum(len(before) + 1 for before in lines[: line - 1]) + column - 1


def pointers(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield at
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from pointers(item, (*at, step))


# --- what YAML means -------------------------------------------------------------------------


@both_yaml_parsers
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("N", "N"),
        ("true", True), ("True", True), ("FALSE", False), ("tRue", "tRue"),
        ("null", None), ("~", None), ("", None), ("NULL", None), ("nUll", "nUll"),
        ("12", 12), ("-12", -12), ("+12", 12), ("012", 12), ("0o14", 12), ("0x1F", 31), ("-0", 0),
        ("-0o14", "-0o14"), ("0b11", "0b11"), ("1_000", "1_000"), ("0o9", "0o9"),
        ("12:30:45", "12:30:45"), ("2026-11-15", "2026-11-15"), ("12:30", "12:30"),
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
        ("1e3", 1000.0), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("-1.5E-3", -0.0015),
        ("1.2.3", "1.2.3"), ("a-b", "a-b"), (".", "."), ("+", "+"), ("e3", "e3"), ("=", "="),
        ('"12"', "12"), ("'true'", "true"), ('"\\u00e9\\t"', "é\t"), ("|\n  a\n  b", "a\nb"),
        (">\n  a\n  b", "a b"), ("12345678901234567890123", 12345678901234567890123),
    ],
)  # fmt: skip
def test_yaml_scalars_follow_the_core_schema_of_yaml_1_2(
    written: str, meant: Any, pure: bool
) -> None:
    with yaml_parser(pure=pure):
        assert repr(of_yaml(f"v: {written}")) == repr({"v": meant})


@both_yaml_parsers
def test_yaml_keys_that_yaml_1_1_would_turn_into_booleans_stay_strings(pure: bool) -> None:
    with yaml_parser(pure=pure):
        assert of_yaml("on: 1\nno: 2\ny: 3") == {"on": 1, "no": 2, "y": 3}


@both_yaml_parsers
def test_an_alias_repeats_its_anchor_and_is_a_value_of_its_own(pure: bool) -> None:
    with yaml_parser(pure=pure):
        data = of_yaml("a: &a {x: [1, {y: 2}]}\nb: *a\nc: &c text\nd: *c\n*c : 5")
    assert data == {"a": {"x": [1, {"y": 2}]}, "b": {"x": [1, {"y": 2}]}, "c": "text", "d": "text",
                    "text": 5}  # fmt: skip
    data["b"]["x"][1]["y"] = 3
    assert data["a"]["x"][1]["y"] == 2


def test_a_later_anchor_of_the_same_name_takes_over() -> None:
    assert of_yaml("[&a 1, *a, &a 2, *a]") == [1, 1, 2, 2]


def test_an_anchor_may_stand_on_a_key_and_on_nothing() -> None:
    assert of_yaml("&k key: &n\nother: *n\nname: *k") == {"key": None, "other": None, "name": "key"}


@both_yaml_parsers
def test_a_merge_key_adds_what_the_mapping_does_not_say_itself(pure: bool) -> None:
    text = """
        base: &base {a: 1, b: 2}
        more: &more {b: 3, c: 4}
        one: {<<: *base, b: 9}
        two:
          b: 9
          <<: [*base, *more]
        inline: {<<: {z: 1}}
        quoted: {"<<": *base}
        """
    with yaml_parser(pure=pure):
        data = of_yaml(text)
    assert data["one"] == {"a": 1, "b": 9}
    assert data["two"] == {"a": 1, "b": 9, "c": 4}
    assert data["inline"] == {"z": 1}
    assert data["quoted"] == {"<<": {"a": 1, "b": 2}}


def test_a_merged_mapping_can_be_merged_again() -> None:
    text = "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, z: 3}"
    assert of_yaml(text)["c"] == {"x": 1, "y": 2, "z": 3}


def test_an_empty_yaml_document_is_nothing() -> None:
    for text in ("", "\n# only a comment\n", "---\n", "---\n...\n", "\ufeff"):
        document = parse(text, format="yaml", name="x")
        assert document.data is None
        assert document.where(("a",)).startswith("x:")


def test_the_yaml_example_of_a_tool_file_reads_as_it_stands() -> None:
    text = """
        # tools
        tools:
          - name: remover
            input_schema:
              properties:
                path: {type: string}
            implementation_config:
              command: "rm {path}"
        """
    assert of_yaml(text) == {
        "tools": [
            {
                "name": "remover",
                "input_schema": {"properties": {"path": {"type": "string"}}},
                "implementation_config": {"command": "rm {path}"},
            }
        ]
    }


@both_yaml_parsers
def test_json_that_yaml_parsers_refuse_is_read_as_yaml_all_the_same(pure: bool) -> None:
    value = {"😀": "\U0001f600", "k" * 2000: "\x7f\u2028\x85", "t\tab": [1, -0.0, 1e300]}
    with yaml_parser(pure=pure):
        for ascii_only in (True, False):
            assert repr(of_yaml(json.dumps(value, ensure_ascii=ascii_only))) == repr(value)
        assert of_yaml('\n\t{"a":\t1}') == {"a": 1}


def test_yaml_reads_without_the_c_part_of_pyyaml() -> None:
    child = (
        "import sys; sys.modules['yaml._yaml'] = None\n"
        "from toolpost.document import parse\n"
        "import yaml; assert not yaml.__with_libyaml__\n"
        "print(parse('a: [1, no]', format='yaml', name='x').data)"
    )
    assert run(child).stdout == "{'a': [1, 'no']}\n"


def test_importing_the_module_does_not_import_yaml() -> None:
    child = "import sys, toolpost.document; print('yaml' in sys.modules)"
    assert run(child).stdout == "False\n"


# --- what JSON and TOML mean -----------------------------------------------------------------


def test_json_integers_are_exact_and_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert of_json("\ufeff[1180591620717411303425, -0, 1.0]") == [1180591620717411303425, 0, 1.0]
    assert fault("\ufeff[1,]", "json").startswith("x:1:")


def test_an_escaped_nul_is_data_in_every_format() -> None:
    assert of_json('"\\u0000"') == of_yaml('- "\\0"')[0] == of_toml('a = "\\u0000"')["a"] == "\0"


def test_toml_dates_and_times_become_their_iso_text() -> None:
    data = of_toml(
        """
        a = 1979-05-27T07:32:00Z
        b = 1979-05-27 07:32:00.5
        c = 1979-05-27
        d = [07:32:00, {e = 1979-05-27}]
        """
    )
    assert data == {
        "a": "1979-05-27T07:32:00+00:00",
        "b": "1979-05-27T07:32:00.500000",
        "c": "1979-05-27",
        "d": ["07:32:00", {"e": "1979-05-27"}],
    }


# --- where -----------------------------------------------------------------------------------

YAML_TEXT = """\
# a comment
tools:
  - name: n1
    deep: {k2: 2, "k 3": [31, {k4: 4}]}
    after: >
      a5
  - &again
    name: n6
copy: *again
merged:
  <<: *again
  own: 7
merged_list: {<<: [*again, {m8: 8}], own: 9}
é😀: {q: 10}
"""


@both_yaml_parsers
def test_places_in_yaml(pure: bool) -> None:
    with yaml_parser(pure=pure):
        document = parse(YAML_TEXT, format="yaml", name="f.yaml")
        assert document.where() == "f.yaml:2:1"
        assert document.where(("tools",)) == "f.yaml:3:3"
        assert document.where(("tools",), key=True) == "f.yaml:2:1"
        assert document.where(("tools", 0)) == "f.yaml:3:5"
        assert document.where(("tools", 0), key=True) == "f.yaml:3:5"
        assert document.where(("tools", 0, "name")) == "f.yaml:3:11"
        assert document.where(("tools", 0, "deep", "k 3", 1, "k4")) == "f.yaml:4:36"
        assert document.where(("tools", 0, "deep", "k 3", 1, "k4"), key=True) == "f.yaml:4:32"
        assert document.where(("tools", 0, "after")) == "f.yaml:5:12"
        assert document.where(("copy",)) == "f.yaml:9:7"
        assert document.where(("copy", "name")) == "f.yaml:8:11"
        assert document.where(("merged", "name")) == "f.yaml:8:11"
        assert document.where(("merged", "own"), key=True) == "f.yaml:12:3"
        assert document.where(("merged_list", "m8")) == "f.yaml:13:33"
        assert document.where(("é😀", "q")) == "f.yaml:14:9"


@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_an_unknown_path_is_at_its_nearest_known_ancestor(form: Any) -> None:
    text = {"yaml": "a:\n  b: 1", "json": '{"a":\n {"b": 1}}', "toml": "\n[a]\nb = 1"}[form]
    document = parse(text, format=form, name="x")
    at = document.where(("a",))
    assert document.where(("a", "missing")) == at
    assert document.where(("a", "missing", 3, "x"), key=True) == at
    assert document.where(("nothing",)) == document.where()
    assert document.where(("a", "b", "no container")) == document.where(("a", "b"))
    assert document.where(["a", 0]) == at


TOML_TEXT = r"""# comment = "1"
title = 'one'
"quoted \"key" = "two"  # [three]
a.b.c = 3
numbers = [
  41, [42, 43], # comment ]
  1.5, 07:32:00,
  {k = 44, 'l' = [45]},
]
empty = []
hollow = {}
text = '''
[not.a.table]
''''
other = "\"\"x"
basic = QQQa "quoted" = 1 \" QQQ
[table.sub]
float = 5.5
date = 1979-05-27 07:32:00
[table]
x = {y.z = 6, w = 7}
[[items]]
n = 81
[items.inner]
m = 82
[[items]]
n = 83
  [[items.more]]
  o = 84
""".replace("QQQ", 3 * '"')


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_places_in_toml(newline: str) -> None:
    text = TOML_TEXT.replace("\n", newline)
    document = parse(text, format="toml", name="f.toml")
    values = {
        ("title",): "'one'",
        ('quoted "key',): '"two"',
        ("a", "b", "c"): "3",
        ("numbers",): "[",
        ("numbers", 0): "41",
        ("numbers", 1): "[42",
        ("numbers", 1, 1): "43",
        ("numbers", 2): "1.5",
        ("numbers", 4): "{k",
        ("numbers", 4, "k"): "44",
        ("numbers", 4, "l", 0): "45",
        ("empty",): "[]",
        ("hollow",): "{}",
        ("text",): "'''",
        ("other",): '"\\"',
        ("basic",): '"""a',
        ("table",): "table]",
        ("table", "sub"): "sub]",
        ("table", "sub", "float"): "5.5",
        ("table", "sub", "date"): "1979-05-27 07",
        ("table", "x", "y", "z"): "6",
        ("table", "x", "w"): "7",
        ("items", 0): "items]]",
        ("items", 0, "n"): "81",
        ("items", 0, "inner", "m"): "82",
        ("items", 1, "n"): "83",
        ("items", 1, "more", 0, "o"): "84",
    }
    for pointer, begins in values.items():
        assert text[offset(document, text, *pointer) :].startswith(begins), pointer
    for pointer in (("title",), ("a", "b", "c"), ("numbers", 4, "k"), ("table", "x", "w")):
        at = offset(document, text, *pointer, key=True)
        assert text[at:].startswith(str(pointer[-1])), pointer
    for pointer in pointers(document.data):
        offset(document, text, *pointer)


# --- what is refused -------------------------------------------------------------------------


@both_yaml_parsers
@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "x:4:3", "'c' is here twice, first at x:3:3"),
        ("{a: 1, 'a': 2}", "x:1:8", "first at x:1:2"),
        ("- a: 1\n- &k b: 1\n  *k : 2", "x:3:3", "'b' is here twice, first at x:2:"),
        ("a: !!str 1", "x:1:4", "the tag '!!str'"),
        ("a: ! 1", "x:1:4", "the tag '!'"),
        ("a: !python/object:os.system {}", "x:1:4", "remove it"),
        ("!!map {a: 1}", "x:1:1", "the tag '!!map'"),
        ("- !x [1]", "x:1:3", "tags are not read"),
        ("a: !h!t 1", "x:1:4", "remove the tag"),
        ("%TAG ! tag:x\n--- a", "x:1:1", "remove the %TAG line"),
        ("--- a\n...\n%TAG ! tag:x\n--- a", "x:3:1", "remove the %TAG line"),
        ("a: 1\n---\nb: 2", "x:2:1", "a second document"),
        ("a:\n  12: x", "x:2:3", "the key 12 is no string; put it in quotes"),
        ("true: x", "x:1:1", "the key True is no string"),
        ("null: x", "x:1:1", "the key None is no string"),
        ("1.5: x", "x:1:1", "put it in quotes"),
        ("? [a]\n: 1", "x:1:3", "a list or mapping as a key"),
        ("[&a [1], {*a : 1}]", "x:1:11", "the key [1] is no string"),
        ("a:\n\tb: 1", "x:2:1", "a tab in the indentation; YAML takes only spaces"),
        ("a: 1\n\tb: 1", "x:2:1", "a tab in the indentation"),
        ("a: b: c", "x:1:5", "in quotes"),
        ("a: [1, 2", "x:1:9", "close the list with ]"),
        ("a: {b: 2", "x:1:9", "close the mapping with }"),
        ("a: 'b", "x:1:6", "close the quotes"),
        ("a: @b", "x:1:4", "put the text in quotes"),
        ("a: 1\n b: 2", "x:2:3", "mapping values are not allowed"),
        ('a: "\\q"', "x:1:", "use single quotes"),
        ('a: "\\UFFFFFFFF"', "x:1:", "scape"),
        ('a: "\\U00110000"', "x:1:", "scape"),
        ('a: "\\ud83d"', "x:1:", ""),
        ('a: "\\ud83d\\ude00"', "x:1:", ""),
        ("a: .inf", "x:1:4", "not a finite number"),
        ("a: -.INF", "x:1:4", "not a finite number"),
        ("a: .NaN", "x:1:4", "not a finite number"),
        ("a: 1e999", "x:1:4", "not a finite number"),
        ("a: " + "9" * 5000, "x:1:4", "more than 640 digits"),
        ("a: 0x" + "f" * 5000, "x:1:4", "more than 640 digits"),
        ("a: 0x" + "f" * 600, "x:1:4", "more than 640 digits"),
        ("a: *b", "x:1:4", "*b has no anchor before it"),
        ("a: &a [*a]", "x:1:8", "*a stands inside what it repeats"),
        ("a: {<<: 1}", "x:1:9", "<< takes a mapping or a list of mappings"),
        ("a: {<<: [{b: 1}, 2]}", "x:1:9", "<< takes a mapping"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "x:1:17", "a second <<"),
        ("a: b\x07", "x:1:5", "the control character U+0007"),
        ("a: \x7f", "x:1:4", "U+007F"),
        ("a\nb: 1", "x:", "not valid YAML"),
        ("a: 1\nb", "x:", "not valid YAML"),
    ],
)
def test_wrong_yaml_is_refused_with_its_place(text: str, place: str, says: str, pure: bool) -> None:
    with yaml_parser(pure=pure):
        message = fault(text, "yaml")
    assert message.startswith(place)
    assert says in message
    assert re.match(r"x:\d+:\d+: \S", message)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "x:1:1", "Expecting value"),
        ('{"a": 1,\n "b": 2, "a": 3}', "x:2:10", "'a' is here twice, first at x:1:2"),
        ('{"a": {"b": 1, "\\u0062": 3}}', "x:1:16", "'b' is here twice, first at x:1:8"),
        ("[1, NaN]", "x:1:5", "not a finite number"),
        ("[-Infinity]", "x:1:2", "not a finite number"),
        ('{"a":\n1e999}', "x:2:1", "not a finite number"),
        ("[" + "1" * 5000 + "]", "x:1:2", "more than 640 digits"),
        ("[-" + "1" * 641 + "]", "x:1:2", "more than 640 digits"),
        ('["a", "\\ud800"]', "x:1:7", "half of a surrogate pair"),
        ('{"\\udc00": 1}', "x:1:2", "half of a surrogate pair"),
        ("[1,]", "x:1:", "comma"),
        ("{'a': 1}", "x:1:2", "double quotes"),
        ('{"a" 1}', "x:1:6", '"key": value'),
        ('["a]', "x:1:2", "close it with a double quote"),
        ('["a\tb"]', "x:1:4", r"a tab as \t"),
        ('["\\q"]', "x:1:", r"\\"),
        ("1 2", "x:1:3", "only one value can stand here"),
        ('{"a": 1 // one\n}', "x:1:9", "JSON has no comments"),
        ("# x\n{}", "x:1:1", "JSON has no comments"),
        ("[1 2]", "x:1:4", "put a comma"),
    ],
)
def test_wrong_json_is_refused_with_its_place(text: str, place: str, says: str) -> None:
    message = fault(text, "json")
    assert message.startswith(place)
    assert says in message


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a = 1\nb", "x:2:", "write key = value"),
        ("a = one", "x:1:5", "put strings in quotes"),
        ("a = 1\na = 2", "x:2:", "keep one"),
        ("[a]\n[a]", "x:2:", "keep one"),
        ("a = [1,\n", "x:2:1", "not valid TOML"),
        ("a = 'x", "x:1:", "not valid TOML"),
        ('a = "\\q"', "x:1:", "use single quotes"),
        ("a = 1 b = 2", "x:1:", "one statement on a line"),
        ("a = [1, inf]", "x:1:9", "not a finite number"),
        ("[t]\nb = nan", "x:2:5", "not a finite number"),
        ("a = 1e999", "x:1:5", "not a finite number"),
        ("a = " + "1" * 5000, "x:1:5", "more than 640 digits"),
        ("a = 0x" + "1" * 5000, "x:1:5", "more than 640 digits"),
        ("a = 0x" + "f" * 600, "x:1:5", "more than 640 digits"),
        ("é = 1", "x:1:1", "not valid TOML"),
    ],
)
def test_wrong_toml_is_refused_with_its_place(text: str, place: str, says: str) -> None:
    message = fault(text, "toml")
    assert message.startswith(place)
    assert says in message


def nested(form: str, depth: int) -> list[str]:
    arrays, tables = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
    if form == "json":
        return [arrays, tables]
    if form == "yaml":
        block = "\n".join("  " * level + "a:" for level in range(depth))
        return [arrays, tables, "- " * depth + "1", block + " 1", "# c\n" + arrays]
    inner = depth - 1
    dotted = ".".join("a" * depth)
    header = ".".join("a" * (depth - 1))
    return [
        "a = " + "[" * inner + "]" * inner,
        "a = " + "{a = " * inner + "1" + "}" * inner,
        f"{dotted} = 1",
        f"[{header}]\nb = 1",
        f"[{header[: -2 * 10]}]\nb.c.d.e.f.g.h.i.j.k.l = 1",
    ]


@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_the_deepest_allowed_is_read_and_one_more_is_refused(form: Any) -> None:
    for text in nested(form, MAX_DEPTH):
        data, depth = parse(text, format=form, name="x").data, 0
        while isinstance(data, dict | list):
            depth += 1
            data = next(iter(data.values() if isinstance(data, dict) else data), None)
        assert depth == MAX_DEPTH, text[:40]
    for text in nested(form, MAX_DEPTH + 1):
        message = fault(text, form)
        assert re.match(r"x:\d+:\d+: nested more than 64 levels deep", message), text[:40]


def test_brackets_in_strings_and_many_siblings_are_not_depth() -> None:
    value = [["[" * 100, {"{" * 100: '\\"['}]] * 100
    assert of_json(json.dumps(value)) == value
    assert of_yaml("- " + json.dumps(value))[0] == value
    assert of_toml(f"a = ['{'[' * 100}']\n" + "[[b]]\n" * 100)["b"] == [{}] * 100


def test_an_alias_may_not_go_deeper_than_the_text_may() -> None:
    half = "[" * 40 + "]" * 40
    assert "nested more than 64" in fault(f"a: &a {half}\nb: {'[' * 40}*a{']' * 40}", "yaml")
    doubled = f"a: &a {half}\nb: &b [*a, 1]\nc: {'[' * 22}*b{']' * 22}"
    assert isinstance(of_yaml(doubled)["c"], list)
    assert "nested more than 64" in fault(doubled.replace("c: [", "c: [[") + "]", "yaml")


@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
def test_a_nul_and_half_a_character_are_refused_in_any_text(form: Any) -> None:
    assert fault("a\n b\0", form).startswith("x:2:3: a NUL character")
    assert fault("a\n\ud800", form).startswith("x:2:1: half of a surrogate pair")


def test_messages_show_short_pieces_and_nothing_a_terminal_would_obey() -> None:
    key = "\u202e\x1b" + "k" * 900
    message = fault(json.dumps({key: 1})[:-1] + ", " + json.dumps({key: 2})[1:], "json")
    assert len(message) < 200
    assert message.isprintable()


def test_an_unknown_format_is_refused() -> None:
    assert fault("", "ini") == "x: unknown format 'ini'; use yaml, json or toml"


# --- files -----------------------------------------------------------------------------------


def unread(path: Path | str, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        read(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".yaml", "a: [1]"), (".YML", "a: [1]"), (".json", '{"a": [1]}'), (".toml", "a = [1]")],
)
def test_the_suffix_tells_the_format(tmp_path: Path, suffix: str, content: str) -> None:
    file = tmp_path / f"x{suffix}"
    file.write_bytes(b"\xef\xbb\xbf" + content.encode())
    document = read(file)
    assert (document.data, document.name) == ({"a": [1]}, str(file))
    assert document.where(("a",), key=True).startswith(f"{file}:1:")


def test_a_file_of_another_suffix_needs_its_format_named(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.write_text("a = 1")
    assert "name it .yaml, .yml, .json, .toml" in unread(file)
    assert read(str(file), format="toml").data == {"a": 1}


def test_bytes_that_are_no_utf_8_are_refused_at_their_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes("a: 1\né: ".encode() + b"\xff\n")
    assert unread(file) == f"{file}:2:4: not UTF-8: byte 0xff at offset 9; save it as UTF-8"
    file.write_bytes("a: 1".encode("utf-16"))
    assert unread(file) == f"{file}:1:1: this is UTF-16; save it as UTF-8"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\0")
    assert unread(file).startswith(f"{file}:1:1: not UTF-8")


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    device = tmp_path / "zero.yaml"
    device.symlink_to("/dev/zero")
    for path in (fifo, folder, device):
        assert unread(path) == f"{path}: not a regular file; name a file"


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("a: 1")
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    assert read(link).data == {"a": 1}


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert unread(missing) == f"{missing}: cannot be read: No such file or directory"
    loop = tmp_path / "loop.yaml"
    loop.symlink_to("loop.yaml")
    assert "symbolic links" in unread(loop)
    assert "not a file name" in unread("a\0b.yaml")


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert unread(file) == f"{file}: larger than 16 MiB; split it"
    assert fault(" " * MAX_BYTES + "1", "json") == "x: larger than 16 MiB; split it"
    assert of_json(" " * (MAX_BYTES - 1) + "1") == 1


def test_a_file_that_hides_its_size_is_read_up_to_the_limit_only() -> None:
    assert unread("/proc/self/pagemap", format="json") == (
        "/proc/self/pagemap: larger than 16 MiB; split it"
    )


# --- progress --------------------------------------------------------------------------------


def test_progress_rises_to_the_whole_text() -> None:
    text = "".join(f"k{index}: [1, 2, 3]\n" for index in range(2000))
    told: list[tuple[int, int]] = []
    parse(text, format="yaml", name="x", progress=lambda done, total: told.append((done, total)))
    assert len(told) > 5
    assert told == sorted(told)
    assert told[-1] == (len(text), len(text))


@pytest.mark.parametrize(("form", "text"), [("json", "[1]"), ("toml", "a=1"), ("yaml", "[1]")])
def test_progress_of_a_short_text_is_told_once(form: Any, text: str) -> None:
    told: list[tuple[int, int]] = []
    parse(text, format=form, name="x", progress=lambda *step: told.append(step))
    assert told == [(3, 3)]


def test_what_progress_raises_ends_the_reading() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parse("- 1\n" * 2000, format="yaml", name="x", progress=stop)


# --- bombs: each in a child, so that a crash is a failed test ---------------------------------


def run(program: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
    )


JUDGE = """
import sys, time
sys.setrecursionlimit(10**9)  # the limits must hold without Python's own
sys.set_int_max_str_digits(0)
if {pure}:
    sys.modules["yaml._yaml"] = None
import yaml
from toolpost.document import parse
from toolpost.errors import SourceError
text = sys.stdin.read()
begin = time.monotonic()
try:
    parse(text, format={format!r}, name="x")
except SourceError as exc:
    print(f"{{time.monotonic() - begin:.3f}} {{exc}}")
else:
    print("0 read")
"""

LAUGHS = "a0: &a0 [lol]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}], k{n}: {{<<: *a{n - 1}}}}}\n"
    for n in range(1, 30)
)
LONG_STRING = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 1_000)}]"
NESTS = "- " + "{a: " * 62 + "1" + "}" * 62 + "\n"
TEN_MB = 10_000_000

BOMBS = [
    ("json", "[" * 60_000, "x:1:65: nested"),
    ("json", "[" * TEN_MB, "x:1:65: nested"),
    ("json", "[" * (TEN_MB // 2) + "]" * (TEN_MB // 2), "x:1:65: nested"),
    ("json", '{"a":' * 1_000_000, "x:1:321: nested"),
    ("json", '[{"":' * 1_000_000, "x:1:161: nested"),
    ("json", "[" + "9" * TEN_MB + "]", "x:1:2: an integer of more than 640 digits"),
    ("json", "1e999999999", "x:1:1: not a finite"),
    ("json", '["' + "\\" * 9_999_999, "x:1:2: not valid JSON"),
    ("yaml", "[" * 60_000, "x:1:65: nested"),
    ("yaml", "[" * TEN_MB, "x:1:65: nested"),
    ("yaml", "{a: " * 60_000, "x:1:257: nested"),
    ("yaml", "- " * 1_000_000, "x:1:129: nested"),
    ("yaml", "? " * 1_000_000, "x:1:3: a list or mapping as a key"),
    ("yaml", "\n".join(" " * level + "a:" for level in range(2_000)), "x:65:65: nested"),
    ("yaml", "# c\n" + "[a, " * 60_000, "x:2:257: nested"),
    ("yaml", LAUGHS, "x:6:35: the aliases expand to too much"),
    ("yaml", MERGES, "x:"),
    ("yaml", LONG_STRING, "x:2:"),
    ("yaml", "a: " + "9" * TEN_MB, "x:1:4: an integer of more than 640 digits"),
    ("yaml", "a: 1e999999999", "x:1:4: not a finite"),
    ("yaml", "".join(f"%TAG !t{n}! t:\n" for n in range(200_000)) + "--- 1", "x:1:1: tags"),
    ("yaml", "k" * 1_000_000 + ": 1", "x:1:"),
    ("yaml", "a: 1\n" * 200_000, "x:2:1: the key 'a' is here twice, first at x:1:1"),
    ("toml", "a = " + "[" * 60_000, "x:1:69: nested"),
    ("toml", "a = " + "[" * TEN_MB, "x:1:69: nested"),
    ("toml", "a = " + "{a = " * 60_000, "x:1:325: nested"),
    ("toml", "a." * 60_000 + "a = 1", "x:1:128: nested"),
    ("toml", "[" + "a." * 60_000 + "a]", "x:1:129: nested"),
    ("toml", "a = " + "9" * TEN_MB, "x:1:5: an integer of more than 640 digits"),
    ("toml", "a = 1e999999999", "x:1:5: not a finite"),
    ("json", "[]" * 70 + '"' + '\\"' * 1_000_000, "x:1:3: not valid JSON"),
    ("toml", 'a = "' + '\\"' * 1_000_000, "x:1:"),
    ("toml", 'a = """' + '\\"""' * 250_000, "x:1:"),
    ("toml", 'a = """' + '"' * 2 + "\\" * 99_999, "x:"),
]


@pytest.mark.parametrize(
    ("form", "text", "says"), BOMBS, ids=[f"{b[0]}-{b[1][:12]!r}-{len(b[1])}" for b in BOMBS]
)
def test_a_bomb_is_refused_with_its_place_and_without_a_crash(
    form: str, text: str, says: str
) -> None:
    seconds, message = run(JUDGE.format(format=form, pure=False), text).stdout.split(" ", 1)
    assert message.startswith(says)
    assert re.match(r"x:\d+:\d+: ", message)
    assert float(seconds) < 10


CROWDS = [
    ("- a\n" * 1_500_000, "x:750001:2"),
    ("a: [" + "1," * 3_000_000, "x:1:3000004"),
    ("- - a\n" * 1_000_000, "x:500001:2"),
    (NESTS * 15_000, "x:11905:285"),
    ("- [[[[]]]]\n" * 500_000, "x:250001:2"),
]


@pytest.mark.parametrize(("text", "where"), CROWDS, ids=[text[:12] for text, _ in CROWDS])
def test_a_flat_crowd_of_values_is_refused_by_counting_alone(text: str, where: str) -> None:
    told: list[int] = []
    with pytest.raises(SourceError) as refused:
        parse(text, format="yaml", name="x", progress=lambda done, total: told.append(done))
    assert str(refused.value) == f"{where}: more than 1,500,000 values; split the file"
    assert told == []  # nothing was parsed


SMALL_YAML_BOMBS = [b for b in BOMBS if b[0] == "yaml" and len(b[1]) < 300_000]


@pytest.mark.parametrize(
    ("text", "says"), [b[1:] for b in SMALL_YAML_BOMBS], ids=[b[1][:12] for b in SMALL_YAML_BOMBS]
)
def test_a_yaml_bomb_is_refused_without_libyaml_too(text: str, says: str) -> None:
    seconds, message = run(JUDGE.format(format="yaml", pure=True), text).stdout.split(" ", 1)
    assert message.startswith(says)
    assert float(seconds) < 10


def test_a_very_long_line_is_only_long() -> None:
    text = "x" * TEN_MB
    assert of_json(f'["{text}"]') == of_yaml(f"- {text}") == of_toml(f"a = '{text}'")["a"].split()


def test_many_aliases_of_a_common_part_are_no_bomb() -> None:
    text = "- &c {" + ", ".join(f"k{n}: some text" for n in range(50)) + "}\n" + "- *c\n" * 1000
    data = of_yaml(text)
    assert len(data) == 1001
    assert data[0] == data[1000]
    assert "the aliases expand to too much" in fault(LAUGHS, "yaml")


# --- properties ------------------------------------------------------------------------------

characters = st.characters(exclude_categories=["Cs"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**600), max_value=10**600)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(characters)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(characters), inner),
    max_leaves=25,
)


@given(values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_json_reads_what_json_wrote(value: Any, ascii_only: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(of_json(text)) == repr(value)


@both_yaml_parsers
@given(value=values, ascii_only=st.booleans(), indent=st.sampled_from([None, 1, "\t"]))
def test_yaml_reads_what_json_wrote(pure: bool, value: Any, ascii_only: bool, indent: Any) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    with yaml_parser(pure=pure):
        assert repr(parse(text, format="yaml", name="x").data) == repr(value)


# A dumper of YAML 1.1 leaves these bare, and in YAML 1.2 they are numbers.
NUMBER_OF_1_2 = re.compile(
    r"0o[0-7]+|[-+]?[0-9]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
)


def dumpable(value: Any) -> bool:
    if isinstance(value, str):
        return not NUMBER_OF_1_2.fullmatch(value)
    if isinstance(value, dict):
        return all(dumpable(key) and dumpable(item) for key, item in value.items())
    return not isinstance(value, list) or all(map(dumpable, value))


@both_yaml_parsers
@given(value=values.filter(dumpable), flow=st.sampled_from([None, True, False]))
def test_yaml_reads_what_a_safe_dump_wrote(pure: bool, value: Any, flow: bool | None) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False)
    with yaml_parser(pure=pure):
        assert repr(parse(text, format="yaml", name="x").data) == repr(value)


@given(values, st.sampled_from([None, 2]))
def test_a_place_in_json_is_where_the_value_can_be_read(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    document = parse(text, format="json", name="x")
    for pointer in pointers(value):
        inner = value
        for step in pointer:
            inner = inner[step]
        found, _ = json.JSONDecoder().raw_decode(text, offset(document, text, *pointer))
        assert repr(found) == repr(inner)
        if pointer and isinstance(pointer[-1], str):
            at = offset(document, text, *pointer, key=True)
            assert json.JSONDecoder().raw_decode(text, at)[0] == pointer[-1]


leaves = st.integers(min_value=0, max_value=99) | st.text("abc", min_size=1, max_size=3)
trees = st.dictionaries(
    st.text("xyz", min_size=1, max_size=4),
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.dictionaries(st.text("xyz", min_size=1, max_size=4), inner, min_size=1, max_size=3)
        ),
        max_leaves=8,
    ),
)


@both_yaml_parsers
@given(tree=trees, flow=st.sampled_from([None, True, False]))
def test_a_place_in_yaml_is_where_the_value_is_written(
    pure: bool, tree: Any, flow: bool | None
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow)
    with yaml_parser(pure=pure):
        document = parse(text, format="yaml", name="x")
        for pointer in pointers(document.data):
            inner = document.data
            for step in pointer:
                inner = inner[step]
            at = text[offset(document, text, *pointer) :].lstrip("'\"")
            if not isinstance(inner, dict | list):
                assert at.startswith(str(inner))
            if pointer and isinstance(pointer[-1], str):
                key = text[offset(document, text, *pointer, key=True) :].lstrip("'\"")
                assert key.startswith(pointer[-1])


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ", # ]\n".join(map(toml_of, value)) + "]"
    return json.dumps(value)


@given(trees, trees)
def test_a_place_in_toml_is_where_the_value_is_written(first: Any, second: Any) -> None:
    lines = [f"{key} = {toml_of(item)}" for key, item in first.items()]
    lines += ["[[more.tables]]", *(f"{key} = {toml_of(item)}" for key, item in second.items())]
    text = "\n".join(lines)
    document = parse(text, format="toml", name="x")
    assert document.data == {**first, "more": {"tables": [second]}}
    for pointer in pointers(document.data):
        inner = document.data
        for step in pointer:
            inner = inner[step]
        if not isinstance(inner, dict | list):
            assert text[offset(document, text, *pointer) :].startswith(json.dumps(inner))
        if len(pointer) > 1 and isinstance(pointer[-1], str):
            assert text[offset(document, text, *pointer, key=True) :].startswith(pointer[-1])


SCRAPS = (
    "a", "b", ": ", ":", "- ", "\n", "  ", "[", "]", "{", "}", ",", "'", '"', '""' + '"', "'''",
    "&a ", "*a", "<<", "!", "!!str ", "|", ">", "%", "%TAG", "%YAML 1.2", "---", "...", "#", "?",
    "\t", "\r", "\\", "\\u", "\\ud83d", "\\U00110000", "0", "1e", "9", ".", "=", "~", "[[", "]]",
    "\u2028", "\x85", "\ufeff", "😀", "true", "null", "nan", "inf", "-", "\x01",
)  # fmt: skip
pieces = st.lists(
    st.sampled_from(SCRAPS) | st.text(max_size=3),
    max_size=30,
).map("".join)


@both_yaml_parsers
@pytest.mark.parametrize("form", ["yaml", "json", "toml"])
@settings(max_examples=300)
@given(text=pieces)
def test_any_text_is_read_or_refused_and_every_place_is_inside_it(
    form: Any, pure: bool, text: str
) -> None:
    with yaml_parser(pure=pure):
        try:
            document = parse(text, format=form, name="x")
        except SourceError as exc:
            assert re.match(r"x:\d+:\d+: \S", str(exc))
            line = int(str(exc).split(":")[1])
            assert 1 <= line <= text.count("\n") + 1
            return
        bare = text.removeprefix("\ufeff")
        for pointer in pointers(document.data):
            offset(document, bare, *pointer)
            offset(document, bare, *pointer, key=True)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from(["yaml", "json", "toml"]))
def test_any_bytes_in_a_file_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, form: Any
) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(content)
    try:
        document = read(file, format=form)
    except SourceError as exc:
        assert str(exc).startswith(f"{file}:")
    else:
        assert plain(document.data)


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return type(value) in (str, int, bool, type(None)) or math.isfinite(value)
