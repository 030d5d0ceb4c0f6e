"""What a person does not see in a spec never reaches a model, wherever the spec comes from."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from toolpost import Registry, Runtime, SourceError, ToolSpec, tool
from toolpost.errors import InvalidSpec
from toolpost.verified import verified

pytestmark = pytest.mark.anyio

UNSEEN = "\x1b[31m\u202e\u200b\U000e0041\x07\ufeff\u2066"
YAML = r"""
- name: add
  description: "Add two numbers.\e[2J\u202e\U000e0041"
  tags: ["su\u200bm"]
  examples: [{note: "x\u2066y"}]
  input_schema:
    type: object
    properties:
      a: {type: string, description: "First.\u200b", pattern: "^[^\x01]*$"}
  binding: {module: m, function: add}
"""


def spec(**fields: Any) -> ToolSpec:
    return ToolSpec(**{"name": "add", "description": "Add.", **fields})


async def test_a_spec_file_is_served_without_it_and_the_log_names_the_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools.yaml").write_text(YAML)
    (tmp_path / "toolpost.toml").write_text('[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n')
    with caplog.at_level(logging.WARNING, "toolpost.sources"):
        async with Runtime.open(tmp_path / "toolpost.toml") as tools:
            (found,) = tools.list()
    assert found.description == "Add two numbers."
    assert (found.tags, found.examples) == (("sum",), ({"note": "xy"},))
    parameter = found.input_schema["properties"]["a"]
    assert parameter == {"type": "string", "description": "First.", "pattern": "^[^\x01]*$"}
    told = [record.getMessage() for record in caplog.records]
    place = f"{tmp_path / 'tools.yaml'}:3:16: description of the tool 'add'"
    assert f"{place} held characters that nobody sees; they were taken out" in told
    assert any(":9:38: input_schema.properties.a.description" in one for one in told), told


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"a{UNSEEN}": {}}},
        {"properties": {"a": {"enum": ["x", f"y{UNSEEN}"]}}},
        {"properties": {"a": {"const": UNSEEN}}},
        {"properties": {"a": {"default": {"x": [UNSEEN]}}}},
        {"properties": {"a": {"anyOf": [{"properties": {UNSEEN: True}}]}}},
        {f"x-{UNSEEN}": "a"},
    ],
)
async def test_data_with_it_is_refused_with_its_line(tmp_path: Path, schema: Any) -> None:
    about = {"name": "add", "description": "Add.", "input_schema": {"type": "object", **schema}}
    (tmp_path / "tools.json").write_text(json.dumps([about], indent=1))
    (tmp_path / "toolpost.toml").write_text('[[sources]]\nkind = "files"\npaths = ["tools.json"]\n')
    with pytest.raises(SourceError, match=r"tools.json:\d+:\d+: .*characters that nobody sees"):
        async with Runtime.open(tmp_path / "toolpost.toml"):
            pass


@pytest.mark.parametrize("field", ["title", "description", "version", "category"])
def test_no_text_of_a_spec_has_it(field: str) -> None:
    assert getattr(verified(spec(**{field: f"Say{UNSEEN}."})), field) == "Say."


def test_no_schema_has_it_where_it_only_describes() -> None:
    inner = {"title": f"A{UNSEEN}", "examples": [{"b": f"c{UNSEEN}"}], "x-note": f"d{UNSEEN}"}
    schema = {"type": "object", "properties": {"a": inner}, "$defs": {"e": {"$comment": UNSEEN}}}
    made = verified(spec(input_schema=schema, output_schema=schema))
    clean = {"title": "A", "examples": [{"b": "c"}], "x-note": "d"}
    wanted = {"type": "object", "properties": {"a": clean}, "$defs": {"e": {"$comment": ""}}}
    assert made.input_schema == made.output_schema == wanted
    assert schema["properties"]["a"] is inner and UNSEEN in inner["title"], "the given one stays"


def test_a_tool_of_a_program_is_served_without_it() -> None:
    @tool(description=f"Add.{UNSEEN}")
    async def add() -> None: ...

    (found,) = Registry([add]).list()
    assert found.description == "Add."


def test_what_a_person_sees_stays_as_it_is() -> None:
    text = "Größe: 5 µm\r\n\tيکتا ‌می‌خواهم 👩‍👩‍👧 ❤️ 1️⃣\n"
    one = spec(description=text, labels={"größe": "ü"}, tags=("日本",))
    assert verified(one) is one


def test_a_label_with_it_in_its_name_loses_it() -> None:
    assert verified(spec(labels={f"a{UNSEEN}": "b"})).labels == {"a": "b"}


def test_it_is_refused_by_name_where_there_is_no_file() -> None:
    schema = {"type": "object", "properties": {UNSEEN: {}}}
    with pytest.raises(InvalidSpec, match=r"input_schema\.properties of 'add'"):
        verified(spec(input_schema=schema))
