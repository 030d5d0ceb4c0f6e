"""``toolpost new``: files to begin with, and never over those that are there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.program import inside


def test_a_new_tool_is_written_and_told_what_to_do_next(tmp_path: Path) -> None:
    done = inside("new", "word_count", "--dir", "tools", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in (tmp_path / "tools").iterdir()) == [
        "test_word_count_tool.py",
        "word_count_tool.py",
    ]
    assert "python -m pytest tools/test_word_count_tool.py" in done.stdout
    assert "toolpost check tools/word_count_tool.py" in done.stdout
    assert 'modules = ["word_count_tool"]' in done.stdout


def test_programs_are_told_the_same(tmp_path: Path) -> None:
    done = inside("new", "wc", "--style", "shell", "--json", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["files"] == ["wc_tool.yaml", "test_wc_tool.py"]
    assert 'programs = ["wc"]' in said["config"]


def test_nothing_is_written_over_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "test_wc_tool.py").write_text("mine", encoding="utf-8")
    done = inside("new", "wc", cwd=tmp_path)
    assert (done.returncode, "test_wc_tool.py already" in done.stderr) == (1, True)
    assert [f.name for f in tmp_path.iterdir()] == ["test_wc_tool.py"]


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    done = inside("new", "a b", cwd=tmp_path)
    assert done.returncode != 0
    assert "not a legal tool name" in done.stderr
    assert list(tmp_path.iterdir()) == []
