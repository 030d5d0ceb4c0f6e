"""``toolpost list``: grouped, filtered, and harmless to look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import json_of, toolpost


@pytest.mark.req("FG-6")
def test_tools_are_grouped_by_category(project: Path) -> None:
    lines = toolpost("list", cwd=project).stdout.splitlines()
    heads = [line.strip() for line in lines if line[:1].strip() and len(line.split()) == 1]
    assert [head for head in heads if "─" not in head] == ["file", "other", "web"]
    first = [line.split()[0] for line in lines if line.strip()]
    assert first[first.index("other") + 1 : first.index("web")][:2] == ["add", "break"]


@pytest.mark.req("FG-6", "UX-2")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--category", "web"), ["paint", "picture"]),
        (("--tag", "maths"), ["add"]),
        (("--tier", "0"), ["add"]),
        (("--kind", "http"), []),
    ],
)
def test_filters_leave_what_fits(project: Path, words: tuple[str, ...], names: list[str]) -> None:
    assert [spec["name"] for spec in json_of("list", *words, cwd=project)] == names


@pytest.mark.req("UX-1")
def test_a_listing_has_no_bindings(project: Path) -> None:
    listed = json_of("list", cwd=project)
    assert len(listed) == 10
    assert not any("binding" in spec for spec in listed)


def test_no_tools_is_no_error_and_says_what_to_do(tmp_path: Path) -> None:
    done = toolpost("list", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "toolpost init" in done.stderr


def test_what_the_store_refuses_is_refused_before_the_first_call(project: Path) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write('[store]\nkind = "postgres"\ndsn = "postgresql://ann:zQk7Rt@host/db"\n')
    done = toolpost("list", cwd=project)
    assert done.returncode == 78
    assert "toolpost.toml:7:7" in done.stderr and "zQk7Rt" not in done.stderr


def test_thousands_of_tools_are_printed_line_by_line(project: Path) -> None:
    many = [
        {"name": f"t{number:04}", "description": "Do\x1b[31m it.", "category": "many"}
        for number in range(2_001)
    ]
    (project / "tools.yaml").write_text(json.dumps(many), encoding="utf-8")
    lines = toolpost("list", cwd=project).stdout.splitlines()
    assert lines[0] == "many"
    assert lines[1] == "  t0000  python  1 standard  once  Do it."
    assert lines[-2].startswith("  t2000  ")
    assert lines[-1].rstrip() == "2001 tools"


def test_text_of_a_spec_is_neither_obeyed_nor_markup(project: Path) -> None:
    shown = toolpost("list", cwd=project).stdout
    assert "[bold]not" in shown
    assert not set(shown) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "add"),
        ("show", "x" * 100),
        ("doctor", "--probe", "none"),
        ("config",),
        ("plugins",),
    ],
)
def test_tables_fit_into_eighty_columns(project: Path, words: tuple[str, ...]) -> None:
    long = "x" * 100  # a name is never broken
    more = f"- {{name: {long}, description: {'y' * 200}, category: {'z' * 100}}}\n"
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        file.write(more)
    done = toolpost(*words, cwd=project)
    assert done.stdout
    shown = (line for line in done.stdout.splitlines() if line.strip() != long)
    assert max(map(len, shown)) <= 80


def test_a_long_name_leaves_room_for_what_a_tool_does(tmp_path: Path) -> None:
    tool = {
        "name": "a_name_of_a_tool_that_somebody_has_made_" + "very_" * 4 + "long",
        "description": "Say four short words.",
        "kind": "python",
        "binding": {"module": "m", "function": "f"},
    }
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    (tmp_path / "toolpost.toml").write_text('[[sources]]\nkind = "files"\npaths = ["tools.json"]\n')
    shown = toolpost("list", cwd=tmp_path, COLUMNS="80").stdout
    assert "Say four short" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_listing_has_the_first_sentence_and_whole_names(project: Path) -> None:
    long = "a_name_that_says_much_of_what_it_does_and_more"
    tools = [
        {"name": "brief", "description": "Fetch e.g. a page. Then a lot more is said."},
        {"name": "folded", "description": "Fetch the\n    page. More."},
    ]
    (project / "tools.yaml").write_text(json.dumps(tools), encoding="utf-8")
    shown = toolpost("list", cwd=project).stdout
    assert "Fetch e.g. a page." in shown and "Fetch the page." in shown
    assert "lot more" not in shown and "More." not in shown
    tools.append({"name": long, "description": "Do it."})
    (project / "tools.yaml").write_text(json.dumps(tools), encoding="utf-8")
    shown = toolpost("list", cwd=project).stdout
    assert f"  {long}\n    python  1 standard  once  Do it.\n" in shown
