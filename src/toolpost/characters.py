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
_UNSEEN: Final = range(0xE0000, 0xE1000)  # tags and selectors: nothing to see, text to a model
_JOINERS: Final = "\u200c\u200d"  # scripts and emoji need them, terminals do not obey them

# A terminal's own sentences: a window title or a link (up to its end), a colour, a single letter.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)


class _Table(dict[int, str]):
    """Code point → what stands for it, worked out when it is first met."""

    def __init__(self, kept: str) -> None:
        super().__init__({ord(c): c for c in kept + _JOINERS})

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code in _UNSEEN or unicodedata.category(char) in _OBEYED:
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
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_JSON)


def stripped(text: str) -> str:
    """The text as a person would have seen it: without escapes and without what is not to be seen.

    For models, which read what a terminal or a browser would hide.
    """
    if text.isprintable() and (text.isascii() or not _hides(text)):
        return text
    if "\x1b" in text or not text.isascii():
        text = _SEQUENCE.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_MODEL)


def _hides(text: str) -> bool:
    return max(text) >= "\U000e0000"  # selectors are printable, Python says
