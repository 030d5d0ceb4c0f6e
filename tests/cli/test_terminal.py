"""What reaches a terminal: nothing that it obeys, and nothing lost."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from toolpost.cli.terminal import json_text, one_line, safe, wrapped


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
