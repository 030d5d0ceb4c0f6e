"""What reaches a terminal: nothing that it obeys, and nothing lost."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from toolpost.cli.terminal import json_text, one_line, safe


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
