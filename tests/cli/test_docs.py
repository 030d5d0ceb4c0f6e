"""``toolpost docs``: pages about tools, with what the audit knows of their calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import inside


@pytest.mark.req("FM-15")
def test_a_page_has_the_latency_of_the_calls_on_record(project: Path) -> None:
    before = json.loads(inside("docs", "add", "--json", cwd=project).stdout)[0]["performance"]
    assert before.startswith("Not measured yet.")
    assert not (project / ".toolpost").exists(), "to look at tools makes nothing"
    assert inside("call", "add", "a=1", cwd=project).returncode == 0
    shown = inside("docs", "add", cwd=project).stdout
    assert "## When it is used" in shown
    assert "Measured over 1 call that succeeded." in shown


@pytest.mark.req("FM-15")
def test_the_examples_of_what_only_reads_are_measured(project: Path) -> None:
    pages = json.loads(inside("docs", "add", "join", "--measure", "--json", cwd=project).stdout)
    assert [page["name"] for page in pages] == ["add", "join"]
    assert "Measured over 20 calls" in pages[0]["performance"]
    assert "Not measured yet." in pages[1]["performance"], "it may change something"


def test_a_folder_of_pages_is_written_and_written_over(project: Path) -> None:
    for _ in range(2):
        done = inside("docs", "--output", "pages", cwd=project)
        assert (done.returncode, "10 pages" in done.stderr) == (0, True)
    assert "- [`add`](add.md): Add two numbers." in (project / "pages/README.md").read_text()
    written = (project / "pages/paint.md").read_text(encoding="utf-8")
    assert "# `paint`" in written and "\x1b" not in written


def test_what_others_wrote_is_not_written_over(project: Path) -> None:
    (project / "README.md").write_text("mine", encoding="utf-8")
    done = inside("docs", "--output", ".", cwd=project)
    assert (done.returncode, "not made by" in done.stderr) == (1, True)
    assert (project / "README.md").read_text(encoding="utf-8") == "mine"
    assert not (project / "add.md").exists()


def test_a_name_that_no_tool_has_is_told(project: Path) -> None:
    done = inside("docs", "ad", cwd=project)
    assert (done.returncode, "did you mean 'add'" in done.stderr) == (4, True)
