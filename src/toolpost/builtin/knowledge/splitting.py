"""Texts cut into passages: each with the headings above it and the line it begins at.

Above: ``ingesting.py``. Below: nothing. Markdown, reStructuredText's underlined titles, plain text
and HTML; what is code stays whole where it fits. HTML is read here, and not by the standard
library, whose parser takes time by the square of what malformed tags there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Final, NamedTuple

SIZE: Final = 1200
"""Characters of a passage, about; a paragraph that is longer is cut."""
_LEAST: Final = 200
"""A passage that is shorter goes on with the next paragraph, if that is under the same heading."""
_MOST_HEADING: Final = 200
_DEEPEST: Final = 6

_ATX: Final = re.compile(r" {0,3}(#{1,6})[ \t]++(\S.*)$")
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_UNDERLINE: Final = re.compile(r"(=|-|~|\^|\"|\*|\+|#)\1{2,}\s*$")
_LEVELS: Final = {"=": 1, "-": 2, "~": 3, "^": 4, '"': 5, "*": 4, "+": 5, "#": 1}
_MATTER: Final = re.compile(r"---\s*$")
_TITLE: Final = re.compile(r"title\s*:\s*(.{1,200})", re.I)
_HTML_NAME: Final = re.compile(r"\.x?html?$", re.I)


class Passage(NamedTuple):
    """A piece of a text. ``heading`` is all that stand above it, the outermost first."""

    heading: str
    line: int
    text: str


class Document(NamedTuple):
    title: str
    passages: list[Passage]


class Block(NamedTuple):
    """A heading (with its level) or a paragraph (level 0)."""

    level: int
    line: int
    text: str


def split(text: str, name: str) -> Document:
    """A text as passages; ``name`` is the file's, which tells what it is and stands for a title."""
    stem = name.rpartition("/")[2].rpartition(".")[0] or name
    if _HTML_NAME.search(name) or text[:200].lstrip().lower().startswith(
        ("<!doctype html", "<html")
    ):
        page = _Page(text)
        blocks, title = page.blocks, page.title
    else:
        blocks, title = list(_blocks(text)), _front_title(text)
    first = next((block.text for block in blocks if block.level), "")
    return Document((title or first or stem)[:_MOST_HEADING], list(_passages(blocks)))


def _passages(blocks: list[Block]) -> Iterator[Passage]:
    above: dict[int, str] = {}
    held: list[str] = []
    line = size = 0

    def made() -> Iterator[Passage]:
        if held:
            heading = " > ".join(above[level] for level in sorted(above))
            yield Passage(heading[:_MOST_HEADING], line, "\n\n".join(held))
            held.clear()

    for block in blocks:
        if block.level:
            yield from made()
            above = {level: text for level, text in above.items() if level < block.level}
            above[block.level] = block.text[:_MOST_HEADING]
            continue
        size = size if held else 0
        if held and size >= _LEAST and size + len(block.text) > SIZE:
            yield from made()
            size = 0
        line = line if held else block.line
        if len(block.text) <= SIZE * 2:
            held.append(block.text)
            size += len(block.text)
            continue
        yield from made()
        for piece, offset in _cut(block.text):
            line = block.line + offset
            held.append(piece)
            yield from made()
    yield from made()


def _cut(text: str) -> Iterator[tuple[str, int]]:
    """A long paragraph in pieces that end at the end of a line, of a sentence or of a word."""
    place = lines = 0
    while place < len(text):
        end = min(len(text), place + SIZE)
        if end < len(text):
            for mark in ("\n", ". ", " "):
                found = text.rfind(mark, place + SIZE // 2, end)
                if found > 0:
                    end = found + len(mark)
                    break
        yield text[place:end].strip(), lines
        lines += text.count("\n", place, end)
        place = end


# Markdown, reStructuredText, plain text --------------------------------------------------------


def _front_title(text: str) -> str:
    """The title in a block of settings at the start, as many Markdown files have one."""
    if not text.startswith("---"):
        return ""
    for line in text.split("\n", 40)[1:40]:
        if _MATTER.match(line):
            return ""
        if (found := _TITLE.match(line)) is not None:
            return found[1].strip().strip("\"'")
    return ""


def _blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number, count = _after_matter(lines), len(lines)
    held: list[str] = []
    begun = number
    fence = ""
    while number < count:
        line = lines[number]
        found = _FENCE.match(line)
        if fence or found:
            begun = begun if held else number
            held.append(line)
            if found and (not fence or found[1] == fence):
                fence = "" if fence else found[1]
        elif (heading := _ATX.match(line)) is not None:
            yield from _block(held, begun)
            yield Block(len(heading[1]), number + 1, heading[2].rstrip("# \t"))
        elif _is_title(lines, number):
            yield from _block(held, begun)
            yield Block(_LEVELS[lines[number + 1].strip()[0]], number + 1, line.strip())
            number += 1
        elif not line.strip():
            yield from _block(held, begun)
        else:
            begun = begun if held else number
            held.append(line)
        number += 1
    yield from _block(held, begun)


def _block(held: list[str], begun: int) -> Iterator[Block]:
    if held:
        yield Block(0, begun + 1, "\n".join(held))
        held.clear()


def _after_matter(lines: list[str]) -> int:
    if lines and _MATTER.match(lines[0]):
        for number, line in enumerate(lines[1:60], start=1):
            if _MATTER.match(line):
                return number + 1
    return 0


def _is_title(lines: list[str], number: int) -> bool:
    """A line with a line of marks below it, at least as long."""
    if number + 1 >= len(lines) or (number and lines[number - 1].strip()):
        return False
    line, below = lines[number].strip(), lines[number + 1]
    return (
        0 < len(line) <= _MOST_HEADING
        and _UNDERLINE.match(below) is not None
        and len(below.strip()) >= min(len(line), 4)
        and not line.startswith(("-", "*", "|", ">"))
    )


# HTML ------------------------------------------------------------------------------------------

_HEADINGS: Final = {f"h{level}": level for level in range(1, _DEEPEST + 1)}
_PARAGRAPHS: Final = frozenset(
    ("p", "li", "pre", "td", "th", "dt", "dd", "blockquote", "div", "section", "article", "tr",
     "table", "ul", "ol", "body", "main", "figcaption", "summary", "details")
)  # fmt: skip
_UNSEEN: Final = frozenset(("template", "noscript", "svg", "nav", "footer"))
_RAW: Final = frozenset(("script", "style", "textarea"))


_NAME: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9:-]{0,40}+)")
_TAG_END: Final = re.compile(r"(?:[^\"'<>]++|\"[^\"]*+\"|'[^']*+')*+>")
_LONGEST_TAG: Final = 4096


class _Page:
    """The headings and paragraphs of a page. Tags are told apart from text in one pass, whatever
    is wrong with them: one that does not end is text.
    """

    def __init__(self, text: str) -> None:
        self.blocks: list[Block] = []
        self.title = ""
        self._text, self._small = text, text.lower()
        self._held: list[str] = []
        self._line, self._begun = 1, 1
        self._level = 0
        self._unseen = ""
        self._in_title = False
        self._read()

    def _read(self) -> None:
        place, text = 0, self._text
        while (found := text.find("<", place)) >= 0:
            self._data(place, found)
            place = self._tag(found)
        self._data(place, len(text))
        self._end()

    def _tag(self, start: int) -> int:
        """Where the text goes on behind a tag."""
        text = self._text
        if text.startswith("<!--", start):
            return self._passed(start, text.find("-->", start + 4), 3)
        name = _NAME.match(text, start)
        if name is None and text[start + 1 : start + 2] not in ("!", "?"):
            self._data(start, start + 1)
            return start + 1
        after = start + 1 if name is None else name.end()
        end = _TAG_END.match(text, after, after + _LONGEST_TAG)
        if end is None:
            self._data(start, after)
            return after
        self._line += text.count("\n", start, end.end())
        if name is None:
            return end.end()
        tag = name[2].lower()
        if name[1]:
            self._closes(tag)
        else:
            self._opens(tag)
            if tag in _RAW:
                return self._passed(end.end(), self._small.find(f"</{tag}", end.end()), 0)
        return end.end()

    def _passed(self, start: int, found: int, length: int) -> int:
        """Behind what is never shown; all the rest is, if it has no end."""
        end = len(self._text) if found < 0 else found + length
        self._line += self._text.count("\n", start, end)
        return end

    def _opens(self, tag: str) -> None:
        if tag == "title":
            self._in_title = True
        elif not self._unseen and tag in _UNSEEN:
            self._end()
            self._unseen = tag
        elif tag in _HEADINGS:
            self._end()
            self._level = _HEADINGS[tag]
        elif tag in _PARAGRAPHS:
            self._end()
        elif tag == "br":
            self._held.append("\n")

    def _closes(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == self._unseen:
            self._unseen = ""
        elif tag in _HEADINGS or tag in _PARAGRAPHS:
            self._end()

    def _data(self, start: int, end: int) -> None:
        data = self._text[start:end]
        bare = data.lstrip()
        if self._in_title and bare:
            self.title = (self.title + unescape(data[:1000])).strip()[:_MOST_HEADING]
        elif bare and not self._unseen:
            if not self._held:
                self._begun = self._line + data[: len(data) - len(bare)].count("\n")
            self._held.append(data)
        elif data and self._held:
            self._held.append(" ")
        self._line += data.count("\n")

    def _end(self) -> None:
        text = unescape("".join(self._held))
        text = " ".join(text.split()) if self._level else _tidy(text)
        if text:
            self.blocks.append(Block(self._level, self._begun, text))
        self._held.clear()
        self._level = 0


def _tidy(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
