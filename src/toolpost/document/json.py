"""JSON, as strictly as its standard: every key once, every number exact and finite."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from toolpost.document.places import (
    HALF_PAIR,
    MAX_DEPTH,
    MAX_DIGITS,
    NOT_FINITE,
    TOO_DEEP,
    TOO_LONG,
    Document,
    Place,
    Progress,
    Refused,
    Text,
    hint,
)

# A string without an end still matches, to the end of the text: if it did not, each quote inside
# it would be tried again, and the scan would be quadratic. So in TOML below.
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|([\[{])|[\]}]', re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]|[^\s\[\]{},:"]++')
HALF = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HINTS = {
    "property name": "put keys in double quotes, and no comma after the last one",
    "trailing comma": "remove the comma",
    "Expecting value": "put strings in double quotes, and no comma after the last value",
    "',' delimiter": "put a comma between two values, or close the bracket",
    "':' delimiter": 'write "key": value',
    "Unterminated string": "close it with a double quote",
    "control character": r"write a line break as \n and a tab as \t",
    "escape": r"write a backslash as \\",
    "Extra data": "only one value can stand here; put several in a list",
    "": "check the quotes and the brackets",
}


def read_json(source: Text, progress: Progress | None) -> Document:
    text = source.text
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(source)
    refused = False
    data = None
    try:
        data = _JSON.decode(text)
    except json.JSONDecodeError as exc:
        message = f"not valid JSON: {exc.msg}; {hint(exc.msg, _HINTS)}"
        if text.startswith(("//", "/*", "#"), exc.pos):
            message = "JSON has no comments; remove it, or use YAML"
        raise source.fault(exc.pos, message) from None
    except Refused:
        refused = True
    if refused or _HALF_ESCAPE.search(text):
        _places(source)
    return Document(data, source.name, source, _places)


def _check_depth(source: Text) -> None:
    """Before the parser recurses: how deep it may go is a setting of the whole process."""
    depth = 0
    for token in _BRACKET.finditer(source.text):
        if token.lastindex:
            depth += 1
            if depth > MAX_DEPTH:
                raise source.fault(token.start(), TOO_DEEP)
        elif source.text[token.start()] != '"':
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Refused
    return result


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise Refused(TOO_LONG)
    return int(digits)


def _float(digits: str) -> float:
    if math.isfinite(number := float(digits)):
        return number
    raise Refused(NOT_FINITE)


_JSON = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_float,
)


def _places(source: Text) -> Place:
    """Places in a text that is JSON; raises where it is JSON but not plain data."""
    root = Place(0, 0)  # as if the document were the one item of a list
    opened: list[Place] = [root]
    steps: list[str | int | None] = [0]  # an index, a key, or None where a key comes next
    key_at = 0
    for token in _TOKEN.finditer(source.text):
        at, word, step = token.start(), token[0], steps[-1]
        if word in "]}":
            opened.pop()
            steps.pop()
        elif word == ",":
            steps[-1] = step + 1 if isinstance(step, int) else None
        elif step is None:
            key = _scalar(source, at, word)
            if first := opened[-1].children.get(key):
                raise source.twice(key, at, first.key)
            steps[-1], key_at = key, at
        else:
            place = Place(at, at if isinstance(step, int) else key_at, leaf=word not in "[{")
            opened[-1].children[step] = place
            if word in "[{":
                opened.append(place)
                steps.append(0 if word == "[" else None)
            else:
                _scalar(source, at, word)
    return root.children[0]


def _scalar(source: Text, at: int, word: str) -> Any:
    if word[0] == '"' and "\\" not in word:
        return word[1:-1]
    try:
        value = _JSON.decode(word)
    except Refused as exc:
        raise source.fault(at, str(exc)) from None
    if isinstance(value, str) and HALF.search(value):
        raise source.fault(at, HALF_PAIR)
    return value
