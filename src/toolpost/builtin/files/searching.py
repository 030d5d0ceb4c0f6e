"""Lines that match a pattern, in any number of files, within a time that is set beforehand.

Above: ``reading.py``. Below: the engine that also checks the patterns of schemas: it takes time in
proportion to the text, whatever the pattern, and refuses the few things that would not.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, TypedDict

from toolpost import beneath
from toolpost.builtin.decoding import encoding
from toolpost.builtin.rooted import legible
from toolpost.errors import InvalidArguments

_BLOCK: Final = 256 * 1024
_LONGEST: Final = 64 * 1024
"""Characters of a line; what is behind them is not looked at."""
_SHOWN: Final = 400
_COMPILED: Final = 1_000_000
"""Bytes of a compiled pattern: with so many a line of full length takes a few seconds at worst."""
_PATIENCE: Final = 20.0
"""Seconds, of the tool's thirty: then what was found is given back."""


class Match(TypedDict):
    """A line that matches, with its number, counted from 1."""

    path: str
    line: int
    text: str


class Matches(TypedDict):
    """``truncated``: there may be more, in what was not looked at any more."""

    matches: list[Match]
    files: int
    truncated: bool


def matcher(pattern: str, *, ignore_case: bool, literal: bool) -> Callable[[str], bool]:
    """Whether a line matches; an ``InvalidArguments`` for what is no pattern."""
    if literal:
        if not ignore_case:
            return lambda line: pattern in line
        folded = pattern.casefold()
        return lambda line: folded in line.casefold()
    import jsonschema_rs  # 40 ms, so only for who searches

    try:
        return jsonschema_rs.validator_for(
            {"pattern": f"(?i){pattern}" if ignore_case else pattern},
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=_COMPILED, dfa_size_limit=_COMPILED
            ),
            offline=True,
        ).is_valid
    except (jsonschema_rs.ValidationError, ValueError):
        raise InvalidArguments(
            "/pattern: is not a regular expression that can be used: look-around, back-references "
            "and very large repetitions cannot. Set literal for a plain text",
            effects="none",
        ) from None


def search(
    folder: int,
    names: Iterable[str | None],
    matches: Callable[[str], bool],
    *,
    at: str,
    shown: str,
    limit: int,
) -> Matches:
    """Look through files beneath a folder, ``names`` from ``at`` on, which callers call ``shown``,
    no longer than there is patience. ``None`` among the names: there are more that are not told.
    """
    until = monotonic() + _PATIENCE
    found: list[Match] = []
    looked = 0
    for name in names:
        if name is None or monotonic() > until:
            return {"matches": found, "files": looked, "truncated": True}
        looked += 1
        path = legible(_joined(shown, name))
        for number, line in _lines(folder, _joined(at, name), until):
            if not number or monotonic() > until:
                return {"matches": found, "files": looked, "truncated": True}
            if matches(line):
                if len(found) >= limit:
                    return {"matches": found, "files": looked, "truncated": True}
                found.append({"path": path, "line": number, "text": line[:_SHOWN]})
    return {"matches": found, "files": looked, "truncated": False}


def _joined(above: str, name: str) -> str:
    if not name:
        return above
    return name if above == "." else f"{above.rstrip('/')}/{name}"


def _lines(folder: int, path: str, until: float) -> Iterator[tuple[int, str]]:
    """The lines of a file, numbered; number 0 is the end of patience."""
    try:
        fd = beneath.regular(folder, path)
    except OSError:
        return  # it has gone, or is not for us
    try:
        number, rest, skipping = 0, "", False
        for text in _texts(fd):
            if monotonic() > until:
                yield 0, ""
                return
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                number += 1
                if not skipping:
                    yield number, line[:_LONGEST].removesuffix("\r")
                skipping = False
            if len(rest) > _LONGEST:
                if not skipping:
                    yield number + 1, rest[:_LONGEST]
                rest, skipping = "", True
        if rest and not skipping:
            yield number + 1, rest
    except OSError:
        return  # it cannot be read, as some of the kernel's own files cannot
    finally:
        os.close(fd)


def _texts(fd: int) -> Iterator[str]:
    """A file's text, block by block; nothing if it is no text."""
    head = os.pread(fd, _BLOCK, 0)
    how = encoding(head, whole=len(head) < _BLOCK)
    if how is None:
        return
    decode = codecs.getincrementaldecoder(how.name)("replace").decode
    at = len(head)
    yield decode(head[len(how.mark) :])
    while block := os.pread(fd, _BLOCK, at):
        at += len(block)
        yield decode(block)
    yield decode(b"", final=True)
