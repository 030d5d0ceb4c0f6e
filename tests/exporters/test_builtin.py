"""The tools that come with toolpost, in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.builtin.stages import brought
from tests.exporters.vendors import schemas_read
from toolpost.exporters import FORMATS, export
from toolpost.sources.builtin import SETS
from toolpost.spec import ToolSpec

pytestmark = pytest.mark.anyio

_TOLD: Final[dict[str, dict[str, Any]]] = {
    "commands": {"programs": ["df", "kubectl"]},
    "web": {"egress": ["api.example.com:443"]},
}
"""What a set has to be told before all of its tools are there."""


def unmarked(schema: Any) -> Any:
    """Without what is said to toolpost alone, of which no note is made."""
    if isinstance(schema, list):
        return [unmarked(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: unmarked(one) for key, one in schema.items() if key != "x-raw"}


@pytest.mark.req("FG-5", "UX-2")
async def test_every_built_in_tool_is_taken_by_every_vendor(tmp_path: Path) -> None:
    specs: list[ToolSpec] = []
    for name in SETS:
        tools = await brought(name, tmp_path / name, **_TOLD.get(name, {}))
        specs += [one.spec for one in tools.values()]
    own = {spec.name: spec.input_schema for spec in specs}
    for form in FORMATS:
        plain = export(specs, form)
        assert (plain.left_out, list(plain.names.values())) == ((), list(own))
        read = schemas_read(plain)
        rewritten = {note.tool for note in plain.notes if note.where != "output_schema"}
        kept = own if form == "mcp" else {name: unmarked(own[name]) for name in own}
        changed = {name for name in own if read[name] != kept[name]}
        assert form == "gemini" or changed == rewritten
        strict = export(specs, form, strict=True)
        assert strict.left_out == ()
        assert schemas_read(strict).keys() == own.keys()
