"""What reaches a terminal: nothing that it obeys, and nothing lost."""

from __future__ import annotations

import json
import unicodedata
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.cli.program import toolpost
from toolpost.cli.folding import folded
from toolpost.cli.terminal import counted, json_text, one_line, safe, wrapped


@given(st.text())
def test_no_text_makes_a_terminal_do_anything(text: str) -> None:
    for char in safe(text):
        assert char in "\n\t\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")


@given(st.text())
def test_json_is_exact_and_harmless(text: str) -> None:
    written = json_text({"text": text})
    assert json.loads(written) == {"text": text}
    for char in written:
        assert char in "\n\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    text = "naïve – 日本語\u3000العربية 👩\u200d💻\n\tnext"
    assert safe(text) == text
    assert json.loads(json_text(text)) == text and "日本語" in json_text(text)


def test_escapes_controls_and_bidi_are_made_visible() -> None:
    assert safe("a\x1b]8;;x\x07b\r\x7f\x9b\u2066\u2028\ud800\U000e0041") == (
        "a\\x1b]8;;x\\x07b\\x0d\\x7f\\x9b\\u2066\\u2028\\ud800\\U000e0041"
    )


def test_one_line_is_the_first_that_says_something() -> None:
    assert one_line("\n  \n  first\x1b\nsecond") == "first\\x1b"


@given(st.text(alphabet="ab -:1\n/\t", max_size=200), st.integers(min_value=20, max_value=90))
def test_wrapping_breaks_at_blanks_only_and_loses_no_word(text: str, width: int) -> None:
    made = wrapped(text, width)
    assert made.split() == text.split()
    assert wrapped(made, max(width, len(text))) == made


def test_lines_are_as_wide_as_they_may_be_and_the_next_ones_are_set_in() -> None:
    assert wrapped("error: one two three\nhint: four", 12) == (
        "error: one\n  two three\nhint: four"
    )


def test_a_place_stays_in_one_piece_whatever_the_file_is_called() -> None:
    place = "/a folder/with blanks and a very long name/tools.yaml:12:7:"
    assert wrapped(f"{place} unknown field", 30) == f"{place}\n  unknown field"
    assert wrapped(f"error: {place} wrong", 30) == f"error:\n  {place}\n  wrong"


@given(st.text(alphabet="ab/.: \n", max_size=80), st.integers(min_value=5, max_value=30))
def test_folding_only_adds_newlines_and_only_behind_a_separator(text: str, width: int) -> None:
    made = folded(text, width)
    assert made.replace("\n", "") == text.replace("\n", "")
    for before, after in pairwise(made):
        assert after != "\n" or before in "/.: \n" or f"{before}\n" in text


def test_a_path_breaks_behind_a_slash_and_a_name_behind_a_dot() -> None:
    assert (
        folded("sqlite: /a/folder/of/mine/store.db", 14) == "sqlite: /a/folder/of/\nmine/store.db"
    )
    assert folded("toolpost.stores.sqlite:SqliteStore", 20) == (
        "toolpost.stores.\nsqlite:SqliteStore"
    )
    assert folded("/fits/here.txt", 14) == "/fits/here.txt"
    assert folded("sha256:0123456789abcdef", 10) == "sha256:0123456789abcdef"


def test_one_is_not_many() -> None:
    assert [counted(n, "rule") for n in (0, 1, 2)] == ["0 rules", "1 rule", "2 rules"]
    assert counted(2, "reply", "replies") == "2 replies"


def test_a_screen_too_narrow_for_a_table_costs_none_of_it(project: Path) -> None:
    for columns in ("0", "1", "30"):
        assert "add" in toolpost("list", cwd=project, COLUMNS=columns).stdout
        assert "observers" in toolpost("config", cwd=project, COLUMNS=columns).stdout


def test_no_installed_part_is_broken_inside_a_name(tmp_path: Path) -> None:
    for columns in ("60", "80"):
        shown = toolpost("plugins", cwd=tmp_path, COLUMNS=columns).stdout
        for part in ("PythonBackend", "entrypoints", "EntryPointsSource", "SqliteStore"):
            assert part in shown
    assert "toolpost.backends.python.backend:PythonBackend" in shown
