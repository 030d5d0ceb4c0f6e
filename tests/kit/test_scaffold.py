"""A new tool works, its tests pass, and the checklist has nothing to say, whatever its style."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import need_a_sandbox
from toolpost import InvalidSpec
from toolpost.document import parse
from toolpost.kit.checking import check, subjects_in
from toolpost.kit.scaffold import STYLES, Style, configured, scaffold


@pytest.mark.req("FM-14")
def test_the_tests_of_a_new_tool_pass_at_once_in_every_style(tmp_path: Path) -> None:
    need_a_sandbox()
    for style in STYLES:
        for name, text in scaffold(f"count.by-{style}", style).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * len(STYLES)} passed" in done.stdout


@pytest.mark.req("FM-16")
@pytest.mark.parametrize("style", STYLES)
def test_the_checklist_has_nothing_to_say_of_a_new_tool(style: Style, tmp_path: Path) -> None:
    files = scaffold("word_count", style)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    scores = check(subjects_in(tmp_path / next(iter(files))))
    assert scores.ok(strict=True)
    assert scores.tools[0].name == "word_count"


@pytest.mark.parametrize("name", ["json", "list", "class", "1st", "getURL", "a.b-c", "_", "tool"])
@pytest.mark.parametrize("style", STYLES)
def test_any_legal_name_makes_files_that_hide_nobody_elses(name: str, style: Style) -> None:
    files = scaffold(name, style)
    for file, text in files.items():
        assert Path(file).stem not in sys.stdlib_module_names
        if file.endswith(".py"):
            compile(text, file, "exec")
        else:
            assert parse(text, format="yaml", name=file).data["tools"][0]["name"] == name
    parse(configured(name, style), format="toml", name="config")


def test_a_name_that_no_tool_may_have_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="not a legal tool name"):
        scaffold("../x")
