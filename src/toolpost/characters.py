"""Characters that do something, or hide: made visible for people, taken out for models.

Above: whatever shows foreign text — terminal, log, console — and ``extensions/sanitize.py``.
Below: the Unicode tables. It refuses to know what the text says.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

_OBEYED: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_TAGS: Final = range(0xE0000, 0xE1000)  # and selectors: nothing to see, text to a model
_JOINERS: Final = "\u200c\u200d"  # scripts and emoji need them, terminals do not obey them

# A terminal's own sentences: a window title or a link (up to its end), a colour, a single letter.
SEQUENCE: Final = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)

UNSEEN: Final = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891"
    r"\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""What may stand in the middle of a word and nobody sees it, as the inside of a character class;
joiners and the selectors of emoji are among it."""
# What makes a picture of a sign: one of them after the sign is in order, anything more is text.
_SELECTORS: Final = re.compile(r"(?<![^\x00-\x7f\ufe00-\ufe0f])[\ufe00-\ufe0f](?!\u20e3)")
_HIDING: Final = re.compile("[\ufe00-\ufe0f\U000e0000-\U000e0fff]")


class _Table(dict[int, str]):
    """Code point → what stands for it, worked out when it is first met."""

    def __init__(self, kept: str) -> None:
        super().__init__({ord(c): c for c in kept + _JOINERS})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code in _TAGS or unicodedata.category(char) in _OBEYED:
            char = self.instead(code)
        self[code] = char
        return char

    def instead(self, code: int) -> str:
        raise NotImplementedError


class _Escaped(_Table):
    def instead(self, code: int) -> str:
        if code <= 0xFF:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class _EscapedJson(_Table):
    def instead(self, code: int) -> str:
        return "\\u007f" if code == 0x7F else json.dumps(chr(code))[1:-1]  # json leaves DEL alone


class _Gone(_Table):
    def instead(self, code: int) -> str:
        return "\n" if code in (0x2028, 0x2029) else ""


_TEXT: Final = _Escaped("\n\t")
_JSON: Final = _EscapedJson("\n")
_MODEL: Final = _Gone("\n\t")


def visible(text: str) -> str:
    """The text, with whatever a terminal would obey made visible: escapes, controls, bidi marks,
    characters without a width or a look.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_TEXT)


def visible_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON that says exactly what the value is and is harmless to print."""
    return visible_json_text(json.dumps(value, ensure_ascii=False, indent=indent))


def visible_json_text(text: str) -> str:
    """The same JSON, harmless to print: what a terminal would obey is escaped, as JSON escapes."""
    return text.translate(_JSON)


def stripped(text: str) -> str:
    """The text as a person would have seen it: without escapes and without what is not to be seen.

    For models, which read what a terminal or a browser would hide.
    """
    if text.isprintable() and (text.isascii() or _HIDING.search(text) is None):
        return text  # selectors are printable, Python says
    if "\x1b" in text or not text.isascii():
        text = SEQUENCE.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_MODEL)
    return text if text.isascii() else _SELECTORS.sub("", text)
