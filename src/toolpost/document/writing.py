"""Plain data written as YAML that people can read and :func:`parse` reads back as it was.

Above: whoever writes files for people to edit. Below: nothing but the rules of ``yaml.py``. What is
no simple word stands in quotes, escaped as in JSON, so that nothing is guessed when it is read and
nothing is obeyed by the terminal it is shown in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from toolpost.characters import visible, visible_json
from toolpost.document.yaml import UNPRINTABLE, plain

_WORD: Final = re.compile(r"[A-Za-z_](?:[\w ./(),+-]*[\w./()+-])?", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(?:\\|u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2}))")
_LONGEST_KEY: Final = 500
_STEP: Final = "  "


def as_yaml(value: Any) -> str:
    """The text of a document, with a line break at its end."""
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _entry(f"{indent}{_key(key, indent)}:", one, indent)
    elif isinstance(value, list) and value:
        for one in value:
            if isinstance(one, dict) and one:  # the first key stands beside the dash
                first, *rest = _lines(one, f"{indent}{_STEP}")
                yield f"{indent}- {first.removeprefix(indent + _STEP)}"
                yield from rest
            else:
                yield from _entry(f"{indent}-", one, indent)
    else:
        yield f"{indent}{_scalar(value)}"


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    """A key or a dash, and what belongs to it: beside it, or below."""
    if isinstance(value, dict | list) and value:
        yield head
        yield from _lines(value, f"{indent}{_STEP}")
    elif isinstance(value, str) and _is_block(value):
        yield f"{head} |-"
        yield from (f"{indent}{_STEP}{line}" if line else "" for line in value.split("\n"))
    else:
        yield f"{head} {_scalar(value)}"


def _key(key: str, indent: str) -> str:
    text = _scalar(key)
    return text if len(text) <= _LONGEST_KEY else f"? {text}\n{indent}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _is_word(value):
        return value
    text = _ESCAPED.sub(_in_one, visible_json(value, indent=None))
    return UNPRINTABLE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def _in_one(escaped: re.Match[str]) -> str:
    """Where JSON escapes a character in two halves, YAML has one number for it."""
    if escaped[1] is None:
        return escaped[0]
    code = 0x10000 + ((int(escaped[1], 16) & 0x3FF) << 10) + (int(escaped[2], 16) & 0x3FF)
    return f"\\U{code:08x}"


def _is_word(text: str) -> bool:
    return bool(_WORD.fullmatch(text)) and plain(text) == text


def _is_block(text: str) -> bool:
    """Several lines that can stand as they are."""
    ends = text[:1].isspace() or text[-1:].isspace()
    plainly = "\n" in text and not ends and "\t" not in text and visible(text) == text
    return plainly and not UNPRINTABLE.search(text)
