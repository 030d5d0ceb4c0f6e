"""Words for people: a foreign text cut to size, the name that was meant, what a value may be.

Above: everything that says what is wrong. Below: nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from heapq import nlargest
from importlib import import_module
from os.path import commonprefix
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

_MOST_COMPARED: Final = 300
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)\s+|\n\s*\n")
_LEAST: Final = 8
"""Nothing shorter in a message is a secret: most names need no look."""
_MARGIN: Final = 4096
"""Characters beyond the shown ones that are searched for secrets, too."""


def explained(fault: msgspec.ValidationError, kind: Any) -> tuple[str, tuple[str | int, ...]]:
    """What is wrong with data that should become a ``kind``, and the path of the value:
    ``$.tags[2]`` as a tuple.

    Inside a plain dict msgspec writes ``[...]``; the path then ends at the dict.
    """
    what, _, path = str(fault).rpartition(" - at `")
    what, path = (what, path) if what else (path, "")
    steps = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+|\.\.\.)\]", path)
    if choices := _choices(kind, [name for name, _ in steps]):
        value = what.removeprefix("Invalid enum value ")
        wrong = f", not {short(value)}{nearest(value[1:-1], choices)}" if value != what else ""
        what = f"use one of {', '.join(choices)}{wrong}"
    at = tuple(name or int(index) for name, index in steps if index != "...")
    return what[:1].lower() + what[1:], at


def _choices(kind: Any, path: Iterable[str]) -> list[str]:
    """The words that may stand at a path, where only certain ones may. A step without a name goes
    to an item of a collection.
    """
    found = _members(kind)
    for name in path:
        found = [inner for one in found for inner in _inside(one, name)]
    return [str(word) for one in found if get_origin(one) is Literal for word in get_args(one)]


def _inside(kind: Any, name: str) -> Iterable[Any]:
    if not name:
        return [member for one in get_args(kind) for member in _members(one)]
    struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    fields = msgspec.structs.fields(kind) if struct else ()
    return [member for one in fields if one.encode_name == name for member in _members(one.type)]


def _members(kind: Any) -> Sequence[Any]:
    """The types that a type is made of, if it is one of several."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def nearest(word: object, allowed: Iterable[str]) -> str:
    """``; did you mean …?`` for a misspelt word, or an empty string."""
    from difflib import get_close_matches  # only a typo pays for it

    text, names = str(word)[:100], list(allowed)
    if len(names) > _MOST_COMPARED:  # comparing takes 30 µs a name, and callers wait
        names = nlargest(
            _MOST_COMPARED,
            names,
            key=lambda name: len(commonprefix((name, text))),  # noqa: RUF071 - letters are meant
        )
    close = get_close_matches(text, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, on one line."""
    return " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())


def short(value: object, most: int = 60) -> str:
    """A foreign text, cut to what a message can bear, with no secret in it and nothing that a
    terminal obeys.
    """
    cut = shortened(_redacted(str(value), most), most)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def redacted_and_shortened(text: str, most: int) -> str:
    """A text of at most so many characters in which no part of a secret is left. Whoever redacts it
    later could not find a key that was cut in half.
    """
    return text if len(text) <= most else shortened(_redacted(text, most), most)


def _redacted(text: str, most: int) -> str:
    """So much of the text, and a margin, without secrets; what is cut, without personal data, too:
    whoever looks for that later could not find a part of it.
    """
    if len(text) < _LEAST:
        return text
    redact = import_module("toolpost.redact")  # by its name: it stands above this
    if len(text) <= most:
        return str(redact.without_secrets(text))
    return str(redact.redact_text(text[: most + _MARGIN]))


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; what was cut off leaves a mark."""
    return text if len(text) <= most else text[: most - 1] + "…"
