"""Filling a template: values go into its holes, one word each, and come out as an argv.

Above: ``backend.py``. Below: ``template.py``. Of a value only the first character is looked at: a
word cannot end early, so there is nothing in it to be escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.backends.shell.template import Flag, Group, Hole, Template, Word
from toolpost.digest import canonical
from toolpost.errors import InvalidArguments
from toolpost.plain import pointer

_LEADS: Final = {"-": "the program would take it for a flag", "@": "the program might read a file"}


def argv_from(template: Template, arguments: Mapping[str, Any]) -> list[str]:
    """The words, or ``InvalidArguments`` that says which value cannot stand where it would."""
    argv: list[str] = []
    for part in template:
        if not isinstance(part, Group):
            argv += _words(part, arguments)
        elif not any(arguments.get(name) in (None, []) for name in part.names):
            for one in _turns(part, arguments):
                for word in part.words:
                    argv += _words(word, one)
    return argv


def text_from(word: Word, arguments: Mapping[str, Any]) -> str | None:
    """A text for standard input, where anything may stand; None if one of its values is missing."""
    values = [arguments.get(hole.name) for hole in word.holes]
    if None in values:
        return None
    given = iter(values)
    parts = (p if isinstance(p, str) else _free(p.name, next(given)) for p in word.pieces)
    return "".join(parts)


def refused(name: str, problem: str) -> InvalidArguments:
    at = pointer((name,))
    return InvalidArguments(
        f"{at}: {problem}", effects="none", details={"faults": [{"at": at, "problem": problem}]}
    )


def _turns(group: Group, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if group.each is None:
        yield arguments
        return
    for item in arguments[group.each]:
        yield {**arguments, group.each: item}


def _words(part: Word | Flag, arguments: Mapping[str, Any]) -> list[str]:
    if isinstance(part, Flag):
        return [part.text] if arguments.get(part.name) is True else []
    holes = part.holes
    if len(holes) == 1 and isinstance(items := arguments.get(holes[0].name), list):
        return [_filled(part, {holes[0].name: item}) for item in items]
    return [_filled(part, arguments)]


def _filled(word: Word, values: Mapping[str, Any]) -> str:
    whole, last = "", None
    for piece in word.pieces:
        last = last if isinstance(piece, str) else piece
        text = piece if isinstance(piece, str) else _value(piece, values.get(piece.name))
        if text and not whole and last is not None and text[0] in last.leading:
            raise _leading(last.name, text[0])  # as the value, or as what its being empty lays bare
        whole += text
    return whole


def _value(hole: Hole, value: Any) -> str:
    text = _text(hole.name, value)
    if text and text[0] in hole.barred:
        raise _leading(hole.name, text[0])
    if "\0" in text:
        raise refused(hole.name, "must not hold a NUL character")
    return text


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return _encodable(name, value)
    if isinstance(value, bool):
        raise refused(name, "must be a text or a number here, not true or false")
    if isinstance(value, int):
        return _digits(name, value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    raise refused(name, "is needed" if value is None else "must be a text or a number")


def _free(name: str, value: Any) -> str:
    if isinstance(value, str):
        return _encodable(name, value)
    try:
        return canonical(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise refused(name, "is not JSON data") from None


def _encodable(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refused(name, "holds half of a surrogate pair, which is no character") from None
    return text


def _digits(name: str, value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise refused(name, "has too many digits") from None


def _leading(name: str, character: str) -> InvalidArguments:
    return refused(name, f"must not begin with {character!r}: {_LEADS[character]}")
