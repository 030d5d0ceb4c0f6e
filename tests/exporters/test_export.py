"""``export`` as a whole: order, names, what is left out, tokens, and an exporter of one's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.exporters.schemas import spec_of
from tests.sources.packages import forgotten, install
from toolpost import MissingPart
from toolpost.exporters import FORMATS, Note, Rule, export
from toolpost.exporters.names import named
from toolpost.exporters.tokens import estimate

PLAIN = {"type": "object", "properties": {}}
RULES = [
    Rule(legal=r"[A-Za-z0-9_-]+", most=64),
    Rule(legal=r"[A-Za-z_][A-Za-z0-9_.:-]*", most=128),
    Rule(legal=r"[A-Za-z0-9_-]+", most=10),
]
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True) | st.from_regex(
    r"a[_.]{0,4}b", fullmatch=True
)


@settings(max_examples=60)
@given(st.sets(NAMES, max_size=8), st.sampled_from(RULES), NAMES)
def test_names_are_legal_unique_and_those_that_were_legal_stay(
    names: set[str], rule: Rule, more: str
) -> None:
    made = named(names, rule)
    assert made == named(sorted(names, reverse=True), rule)
    assert len(set(made.values())) == len(names)
    assert all(re.fullmatch(rule.legal, one) and len(one) <= rule.most for one in made.values())
    assert all(made[name] == name for name in names if rule.allows(name))
    later = named({*names, more}, rule)
    changed = [name for name in names if later[name] != made[name]]
    assert not changed or later[more] != named({more}, rule)[more] or rule.allows(more)


def test_two_names_that_would_meet_are_both_marked() -> None:
    rule = RULES[0]
    assert named(["files.read"], rule) == {"files.read": "files__read"}
    met = named(["files.read", "files__read"], rule)
    assert met["files__read"] == "files__read"
    assert re.fullmatch("files__read_[0-9a-f]{8}", met["files.read"])
    assert named(["x" * 100], rule)["x" * 100].startswith("x" * 55 + "_")
    assert named(["3d.turn"], RULES[1]) == {"3d.turn": "_3d.turn"}


def test_the_answer_of_a_model_leads_back_to_the_tool() -> None:
    made = export([spec_of(PLAIN, "a.b"), spec_of(PLAIN, "c")], "openai")
    assert made.names == {"a__b": "a.b", "c": "c"}
    assert [tool["function"]["name"] for tool in made.tools] == ["a__b", "c"]
    assert (made.name_of("a__b"), made.name_of("never")) == ("a.b", "never")
    assert made.arguments_of("a__b", {"x": None}) == {"x": None}, "only strict ones are looked at"


@pytest.mark.parametrize("form", FORMATS)
def test_a_tool_that_cannot_be_said_is_left_out_and_the_others_are_not(form: str) -> None:
    bad = {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}, "allOf": [False]}
    specs = [spec_of(PLAIN, "first"), spec_of(bad, "bad"), spec_of(PLAIN, "last")]
    made = export(specs, form)
    if form == "mcp":  # it says everything
        assert made.left_out == ()
    else:
        assert list(made.names) == list(made.tokens) == ["first", "last"]
        assert [note.tool for note in made.left_out] == ["bad"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("schema", [False, True, None, []])
def test_an_input_schema_that_is_no_object_is_left_out_with_a_reason(
    form: str, schema: Any
) -> None:
    made = export([spec_of(schema, "bad"), spec_of(PLAIN, "good")], form)
    what = "is no object: it has to be one, that says what the arguments are"
    assert made.left_out == (Note("bad", "input_schema", what),)
    assert list(made.names) == ["good"]


def test_of_two_tools_of_one_name_the_first_is_exported() -> None:
    made = export([spec_of(PLAIN), spec_of(PLAIN)], "openai")
    assert len(made.tools) == 1
    assert made.left_out == (Note("tool", "name", "there is another tool of this name"),)


def test_a_form_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(MissingPart, match=r"no exporter 'opena' .* did you mean 'openai'"):
        export([], "opena")


def test_no_package_of_a_vendor_is_imported() -> None:
    code = (
        "import sys\n"
        "from toolpost import ToolSpec\n"
        "from toolpost.exporters import FORMATS, export\n"
        "spec = ToolSpec(name='a', description='b')\n"
        "made = [export([spec], form, strict=True) for form in FORMATS]\n"
        "vendors = {'openai', 'anthropic', 'google', 'mcp', 'langchain_core', 'pydantic'}\n"
        "print(*vendors & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""


def test_an_exporter_of_ones_own_is_found_by_its_name(tmp_path: Path) -> None:
    code = """
from toolpost.exporters import Form, Rule, Unexportable

def write(spec, name, *, strict, tell):
    if spec.name == "secret":
        raise Unexportable("it is nobody's business")
    if spec.name == "broken":
        raise KeyError("oops")
    tell("description", "is loud")
    return {"tool": name, "says": spec.description.upper()}

LOUD = Form(write=write, names=Rule(legal="[a-z]+", most=9))
"""
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        points = {"toolpost.exporters": {"loud": "loud:LOUD"}}
        install(tmp_path, "loud-package", points=points, loud=code)
        specs = [spec_of(PLAIN, name) for name in ("tool", "secret", "broken", "a.b")]
        made = export(specs, "loud")
    assert made.tools == ({"tool": "tool", "says": "DO IT."},)
    assert made.notes == (Note("tool", "description", "is loud"),)
    assert [str(note) for note in made.left_out] == [
        "secret: it is nobody's business",
        "broken: KeyError: 'oops'",
        "a.b name: cannot be spelled there",
    ]


READ = {
    "name": "read_file",
    "description": "Read a file of the workspace and give back its lines, numbered.",
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "offset": {"type": "integer", "minimum": 1, "default": 1},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
}
REGION = {
    "name": "region",
    "description": "Choose a region.",
    "parameters": {
        "type": "object",
        "properties": {
            "region": {"enum": ["eu-central-1", "us-east-2", "ap-southeast-1", "sa-east-1"]},
            "since": {"type": "string", "examples": ["2026-11-16T08:00:00Z"]},
        },
    },
}
GERMAN = "Liest eine Datei aus dem Arbeitsverzeichnis; große Dateien werden gekürzt."
CHINESE = "读取工作目录中的文件并返回其内容；大文件会被截断。"


@pytest.mark.parametrize(
    ("tool", "counted", "least"),
    [  # what o200k_base, cl100k_base and Anthropic's published tokenizer make of the JSON
        (READ, (69, 68, 70), 0.9),
        (REGION, (70, 70, 73), 0.9),
        ({"name": "datei", "description": GERMAN}, (25, 29, 33), 0.75),
        ({"name": "wenjian", "description": CHINESE}, (26, 32, 26), 0.75),
    ],
    ids=["words", "codes", "German", "Chinese"],
)
def test_an_estimate_is_near_what_tokenizers_count(
    tool: dict[str, object], counted: tuple[int, int, int], least: float
) -> None:
    guess = estimate(tool)
    assert least * max(counted) <= guess <= 1.15 * min(counted)


def test_tokens_are_counted_for_each_tool_and_in_all() -> None:
    made = export([spec_of(PLAIN, "a"), spec_of(PLAIN, "b")], "anthropic")
    assert set(made.tokens) == {"a", "b"}
    assert made.tokens_in_all == sum(made.tokens.values()) == 2 * estimate(made.tools[0])
