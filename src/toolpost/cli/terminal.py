"""What reaches the terminal: text made harmless, JSON, tables that fit.

Above: every command. Below: ``characters.py``, which makes text harmless, and rich, which is
imported when something needs it. It refuses to know what is printed; whoever wrote the text, no
character of it is obeyed by a terminal and none of it is markup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from toolpost.characters import visible, visible_json
from toolpost.cli.options import Asked

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_LEAST: Final = 20
"""Columns that the wide ones of a table have at least."""

_USUAL: Final = 80
_NARROWEST: Final = 40
"""Columns in which a table still has all it says."""
_GLUE: Final = "\0"
"""Stands for a blank that is no place to break a line; it is in no text that is safe."""
_PLACE: Final = re.compile(r"(?:^|(?<=^error: ))(?!error: )[^:]*:\d+:\d+:")
"""A line that begins with ``file:line:column:``, whatever the file is called."""

safe: Final = visible
json_text: Final = visible_json


def one_line(text: str) -> str:
    """The first line of a text, harmless."""
    return safe(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def out(text: str) -> None:
    """A text to standard output, with a newline at its end."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def at_once(data: str | bytes) -> None:
    """To standard output, and seen there before the next: while tools are open, too, when what
    they print goes elsewhere.
    """
    stream = sys.__stdout__
    assert stream is not None, "main has opened it"
    if isinstance(data, str):
        stream.write(data)
    else:
        stream.flush()
        stream.buffer.write(data)
    stream.flush()


def counted(number: int, one: str, many: str = "") -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def err(text: str) -> None:
    """A text to standard error. Where that cannot be written to, nobody is told: what was asked for
    is not less done for it.
    """
    try:
        sys.stderr.write(text if text.endswith("\n") else f"{text}\n")
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """What could not be written is not tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str) -> None:
    """Sentences for a person, to standard error: as wide as the terminal. What goes elsewhere keeps
    its lines, for who searches them.
    """
    err(wrapped(text, _columns()) if sys.stderr.isatty() else text)


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most so many characters; a word stays whole, and so does a place."""
    made = TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width:
            lines.append(line)
            continue
        filled = made.wrap(_PLACE.sub(lambda place: place[0].replace(" ", _GLUE), line))
        lines += (one.replace(_GLUE, " ") for one in filled)
    return "\n".join(lines)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL
    except (OSError, ValueError):  # a terminal that does not tell, or no file at all
        return _USUAL


def print_json(value: Any) -> None:
    out(json_text(value))


def console(asked: Asked, *, stderr: bool = False, width: int | None = None) -> Console:
    from rich.console import Console  # brief starts: only what prints with it pays for it

    made = Console(
        stderr=stderr,
        width=width,
        color_system="auto" if asked.color else None,
        markup=False,
        emoji=False,
        highlight=False,
    )
    made.on_broken_pipe = _reader_gone  # type: ignore[method-assign]  # rich would exit with 1
    if not stderr and made.width < _NARROWEST:  # or 0, which is no width at all
        made.width = _USUAL
    return made


def _reader_gone() -> NoReturn:
    raise BrokenPipeError


def table(*columns: str, wide: Sequence[str], whole: Sequence[str] = ()) -> Table:
    """An empty table as wide as the screen; the columns in ``wide`` share what others leave, those
    in ``whole`` are never folded.
    """
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
        expand=True,
    )
    for name in columns:
        ratio, least = (1, _LEAST) if name in wide else (None, None)
        # of a column with a ratio, rich takes the width for the least that it may have
        made.add_column(name, overflow="fold", ratio=ratio, width=least, no_wrap=name in whole)
    return made


def row(into: Table, *cells: str, style: str | None = None) -> None:
    """One row of plain texts."""
    into.add_row(*map(plain, cells), style=style)


def plain(text: str, style: str = "") -> RenderableType:
    from toolpost.cli.folding import Folded  # with rich, for what prints with it

    return Folded(safe(text), style)


def lines(pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and values, one below the other."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(plain(name), plain(value))
    return made
