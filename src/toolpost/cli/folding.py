"""Text in a column of a table: what is too long for it breaks where a reader expects it.

Above: ``terminal.py``, which loads this when a table is wanted. Below: rich, which breaks lines at
blanks. A path breaks behind a slash, a dotted name behind a dot or a colon; inside a word only what
has a piece that is wider than the whole column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

_PATH: Final = re.compile(r"(?<=/)")
_NAME: Final = re.compile(r"(?<=[.:,@])")
_LEAST: Final = 9
"""Columns in which an elided text still says something."""


class Folded:
    """A plain text that is folded to the width it is given."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text, self._style = text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if options.no_wrap:
            yield Text(self._text, style=self._style)
        else:
            yield Text(folded(self._text, options.max_width), style=self._style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self._text))


class Elided(Folded):
    """A plain text on one line. What is too long loses its middle: names that begin alike differ at
    their ends.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(elided(self._text, options.max_width), style=self._style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        most = cell_len(self._text)
        return Measurement(min(most, _LEAST), most)


def elided(text: str, width: int) -> str:
    """The text in at most so many columns, with an ellipsis where its middle was."""
    if cell_len(text) <= width:
        return text
    head = max(0, (width - 1) // 2)
    tail = max(0, width - 1 - head)
    return set_cell_size(text, head) + "…" + (_end(text, tail) if tail else "")


def _end(text: str, width: int) -> str:
    """The last columns of a text."""
    while cell_len(text) > width:
        text = text[1:]
    return text


def folded(text: str, width: int) -> str:
    """The same text; a word that is too long has newlines where it may be broken."""
    if cell_len(text) <= width:
        return text
    return re.sub(r"\S+", lambda word: "\n".join(_pieces(word[0], width)), text)


def _pieces(word: str, width: int) -> list[str]:
    parts = (_PATH if "/" in word else _NAME).split(word)
    if any(cell_len(part) > width for part in parts):
        return [word]  # a digest, say: it is broken somewhere anyway
    pieces: list[str] = []
    for part in parts:
        if pieces and cell_len(pieces[-1]) + cell_len(part) <= width:
            pieces[-1] += part
        elif part:
            pieces.append(part)
    return pieces
