"""YAML, JSON and TOML files read safely into plain data, with the place of every value.

Above it: whatever reads files that people or strangers wrote (sources, configuration, lock
files). Below it: PyYAML's event parser, ``json`` and ``tomllib``. It refuses to know what the data
means: no tools, no settings, no schema, no includes.

What comes out is ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and ``None``, at most
:data:`MAX_DEPTH` levels deep, each key once, each number finite. Anything else is a
:class:`SourceError` that begins with ``file:line:column``.

Reading and placing are two walks. The first is as fast as the parsers allow and keeps no places,
because most files are right. The second happens when somebody asks :meth:`Document.where`, or when
the first has met a fault and its message needs a place. Nothing here recurses over what a file
nests, so that a hostile file cannot exhaust the stack.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from toolpost.errors import SourceError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "Format", "Progress", "parse", "read"]

Format = Literal["yaml", "json", "toml"]
Progress = Callable[[int, int], None]
"""Told how many characters of how many are done; what it raises ends the reading."""

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_DIGITS = 640
"""As many digits as Python converts under any setting of its own limit."""

_FORMATS: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep; flatten it"
_TOO_LONG = f"an integer of more than {MAX_DIGITS} digits; put it in quotes"
_NOT_FINITE = "not a finite number, which JSON cannot carry; put it in quotes or leave it out"
_HALF_PAIR = "half of a surrogate pair, which is no character; write the character itself"


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What a file says (``data``), and where it says it (:meth:`where`)."""

    data: Any
    name: str
    _text: _Text = field(repr=False)
    _places: Callable[[_Text], _Place] = field(repr=False)

    def where(self, pointer: Sequence[str | int] = (), *, key: bool = False) -> str:
        """``file:line:column`` of the value at this path, or of the key that names it.

        For a path that the document does not have, it is the value of the nearest ancestor that it
        has: where a missing key would have to be written.
        """
        place = self._text.root(self._places)
        for step in pointer:
            child = place.children.get(step)
            if child is None:
                return self._text.at(place.at)
            place = child
        return self._text.at(place.key if key else place.at)


def read(
    path: str | os.PathLike[str],
    *,
    format: Format | None = None,  # noqa: A002 - the word of the suffixes and of parse()
    follow: bool = True,
    progress: Progress | None = None,
) -> Document:
    """The document in a file, in the format its suffix names unless one is given.

    Only a regular file is read. ``follow=False`` also refuses a path that is a symbolic link, for
    files that were found rather than named.
    """
    name = os.fspath(path)
    known = format or _FORMATS.get(Path(name).suffix.lower())
    if known is None:
        raise SourceError(f"{name}: unknown format; name it {', '.join(_FORMATS)}")
    text = _decode(_bytes(name, follow=follow), name)
    return parse(text, format=known, name=name, progress=progress)


def parse(
    text: str,
    *,
    format: Format,  # noqa: A002 - as above
    name: str,
    progress: Progress | None = None,
) -> Document:
    """The document in a text; ``name`` is what its places and errors begin with."""
    if format not in get_args(Format):
        raise SourceError(f"{name}: unknown format {format!r}; use yaml, json or toml")
    source = _Text(text.removeprefix("\ufeff"), name)
    source.check()
    document = _READERS[format](source, progress)
    if progress is not None:
        progress(len(source.text), len(source.text))
    return document


# --- bytes -----------------------------------------------------------------------------------


def _bytes(name: str, *, follow: bool) -> bytes:
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        _check_regular(name, Path(name).stat(follow_symlinks=follow))  # opening has effects
        with os.fdopen(os.open(name, flags), "rb") as file:
            _check_regular(name, os.fstat(file.fileno()))  # it may be another one by now
            content = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise SourceError(f"{name}: cannot be read: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise SourceError(f"{name!r}: not a file name: {exc}") from exc
    if len(content) > MAX_BYTES:
        raise SourceError(f"{name}: larger than {MAX_BYTES >> 20} MiB; split it")
    return content


def _check_regular(name: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise SourceError(f"{name}: a symbolic link; put the file itself here")
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{name}: not a regular file; name a file")
    if found.st_size > MAX_BYTES:
        raise SourceError(f"{name}: larger than {MAX_BYTES >> 20} MiB; split it")


def _decode(content: bytes, name: str) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(f"{name}:1:1: this is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = content[: exc.start].decode("utf-8").removeprefix("\ufeff")
        source = _Text(before, name)
        raise source.fault(
            len(before),
            f"not UTF-8: byte 0x{content[exc.start]:02x} at offset {exc.start}; save it as UTF-8",
        ) from exc


# --- places ----------------------------------------------------------------------------------


class _Place:
    """Offsets of a value and of the key that names it, and the places of what is inside it."""

    __slots__ = ("at", "children", "key")

    def __init__(self, at: int, key: int, *, leaf: bool = False) -> None:
        self.at = at
        self.key = key
        self.children: dict[str | int, _Place] = _NOTHING if leaf else {}


_NOTHING: dict[str | int, _Place] = {}
"""Inside every leaf, and never written to: a dict for each would double what places cost."""


class _Text:
    """A text under its name: turns offsets into places and faults."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self._root: _Place | None = None

    def check(self) -> None:
        """What no format allows."""
        try:
            size = len(self.text.encode("utf-8"))
        except UnicodeEncodeError as exc:
            raise self.fault(exc.start, _HALF_PAIR) from exc
        if size > MAX_BYTES:
            raise SourceError(f"{self.name}: larger than {MAX_BYTES >> 20} MiB; split it")
        if (nul := self.text.find("\0")) >= 0:
            raise self.fault(nul, "a NUL character; this is no text file, or it is damaged")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def at(self, offset: int) -> str:
        offset = min(offset, len(self.text))
        line = bisect_right(self._starts, offset)
        return f"{self.name}:{line}:{offset - self._starts[line - 1] + 1}"

    def fault(self, offset: int, message: str) -> SourceError:
        return SourceError(f"{self.at(offset)}: {message}")

    def twice(self, key: str, offset: int, first: int) -> SourceError:
        message = f"the key {_shown(key)} is here twice, first at {self.at(first)}; keep one"
        return self.fault(offset, message)

    def root(self, places: Callable[[_Text], _Place]) -> _Place:
        if self._root is None:
            self._root = places(self)
        return self._root


def _shown(value: str) -> str:
    """A piece of the file for a message: short, and with nothing a terminal would obey."""
    return repr(value if len(value) <= 60 else value[:57] + "...")


class _Refused(Exception):
    """Parsed, but not plain data; the placing walk knows where."""


def _hint(problem: str, hints: dict[str, str]) -> str:
    return next((hint for start, hint in hints.items() if start in problem), "")


# --- YAML ------------------------------------------------------------------------------------

_YAML_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
# libyaml compares each %TAG with all before it, before it emits an event: refused unparsed.
_YAML_TAG_DIRECTIVE = re.compile("(?:^|(?<=[\n\r\x85\u2028\u2029]))\ufeff?%TAG")
_JSON_BEGINS = re.compile(r'[ \t\r\n]*+[\[{"]')
_YAML_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_YAML_NUMBER = re.compile(
    r"(?P<dec>[-+]?[0-9]++)"
    r"|0o(?P<oct>[0-7]++)"
    r"|0x(?P<hex>[0-9a-fA-F]++)"
    r"|(?P<float>[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?)"
    r"|(?P<bad>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_YAML_BASES = {"dec": 10, "oct": 8, "hex": 16}
_YAML_HINTS = {
    "mapping values are not allowed": "put a text that contains ': ' in quotes",
    "cannot start any token": "put the text in quotes",
    "',' or ']'": "put a comma, or close the list with ]",
    "',' or '}'": "put a comma, or close the mapping with }",
    "did not find expected key": "begin the keys of one mapping in the same column",
    "<block end>": "begin the keys of one mapping in the same column",
    "expected '-' indicator": "begin the items of one list in the same column",
    "unexpected end of stream": "close the quotes",
    "expected ':'": "write `key: value`, or put the text in quotes",
    "escape": "write a backslash as \\\\, or use single quotes",
    "tag": "remove the tag",
    "": "check the indentation and the quotes",
}


def _read_yaml(source: _Text, progress: Progress | None) -> Document:
    if _JSON_BEGINS.match(source.text):
        # JSON is YAML, but PyYAML refuses some of it (surrogate pairs, long keys, U+007F)
        # and folds U+2028. What is no JSON, or wrong, is for the YAML walk to judge.
        try:
            return _read_json(source, None)
        except SourceError:
            pass
    walk = _YamlWalk(source, progress=progress)
    walk.run()
    return Document(walk.data, source.name, source, _yaml_places)


def _yaml_places(source: _Text) -> _Place:
    walk = _YamlWalk(source, placing=True)
    walk.run()
    return walk.place


def _yaml_events(source: _Text) -> Iterator[Any]:
    """Parse events: the one thing PyYAML does without recursion, in C where it has that."""
    import yaml  # lazy: a program without a YAML file never pays for it

    if control := _YAML_UNPRINTABLE.search(source.text):
        code = f"U+{ord(control[0]):04X}"
        raise source.fault(control.start(), f"the control character {code}; remove it or escape it")
    if "%TAG" in source.text and (directive := _YAML_TAG_DIRECTIVE.search(source.text)):
        raise source.fault(directive.start(), "tags are not read; remove the %TAG line")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(source.text)
    last = 0
    try:
        while (event := loader.get_event()) is not None:
            last = event.start_mark.index
            yield event
    except yaml.MarkedYAMLError as exc:
        raise _yaml_fault(source, exc.problem or "", exc.problem_mark, last) from exc
    except (ValueError, OverflowError) as exc:  # a \U beyond Unicode, in the pure Python scanner
        raise _yaml_fault(source, "invalid escape", None, last) from exc
    finally:
        loader.dispose()


def _yaml_fault(source: _Text, problem: str, mark: Any, last: int) -> SourceError:
    offset = last if mark is None else mark.index
    if source.text[offset : offset + 1] == "\t":
        return source.fault(offset, "a tab in the indentation; YAML takes only spaces there")
    return source.fault(offset, f"not valid YAML: {problem}; {_hint(problem, _YAML_HINTS)}")


def _yaml_plain(text: str) -> Any:
    """What an unquoted text means: the core schema of YAML 1.2, where ``no`` is a text."""
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if text[0] not in "0123456789+-." or not (match := _YAML_NUMBER.fullmatch(text)):
        return text
    if match.lastgroup in _YAML_BASES:
        if len(text.lstrip("+-")) > MAX_DIGITS:
            raise _Refused(_TOO_LONG)
        return int(match[match.lastgroup], _YAML_BASES[match.lastgroup])
    if match.lastgroup == "float" and math.isfinite(number := float(text)):
        return number
    raise _Refused(_NOT_FINITE)


class _Open:
    """A mapping or a sequence whose end has not come."""

    __slots__ = (
        "anchor", "at", "expanded", "height", "key", "key_at", "merge", "merging", "place",
        "value", "wants_key",
    )  # fmt: skip

    def __init__(self, event: Any, value: Any, place: _Place, expanded: int) -> None:
        self.value = value
        self.place = place
        self.anchor: str | None = event.anchor
        self.at: int = event.start_mark.index
        self.expanded = expanded
        self.height = 1
        self.wants_key = type(value) is dict
        self.key = ""
        self.key_at = 0
        self.merging = False
        self.merge: tuple[Any, _Place, int] | None = None


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A value that aliases may repeat: how much text it stands for, how many levels it has."""

    value: Any
    place: _Place
    weight: int
    height: int


_NOWHERE = _Place(0, 0)
"""The place of everything in a walk that notes none."""


class _YamlWalk:
    """Builds data (and places, if asked) straight from parse events, with a stack of its own."""

    def __init__(
        self, source: _Text, *, progress: Progress | None = None, placing: bool = False
    ) -> None:
        self.source = source
        self.progress = progress
        self.placing = placing
        self.data: Any = None
        self.place = _NOWHERE
        self.started = False
        self.stack: list[_Open] = []
        self.top: _Open | None = None
        self.anchors: dict[str, _Anchor | None] = {}  # None: still open
        self.expanded = 0
        self.room = min(MAX_BYTES, (1 << 20) + 10 * len(source.text))

    def run(self) -> None:
        import yaml  # lazy, as above

        handlers: dict[type, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: lambda event: self._begin(event, {}),
            yaml.SequenceStartEvent: lambda event: self._begin(event, []),
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }
        for count, event in enumerate(_yaml_events(self.source), 1):
            if handler := handlers.get(type(event)):
                handler(event)
            if self.progress is not None and not count % 1000:
                self.progress(event.start_mark.index, len(self.source.text))

    def _document(self, event: Any) -> None:
        if self.started:
            raise self._fault(event, "a second document; a file holds one, so split it")
        self.started = True

    def _scalar(self, event: Any) -> None:
        if event.tag is not None:
            raise self._tagged(event)
        value = event.value
        top = self.top
        if not event.style:
            if value == "<<" and top is not None and top.wants_key:
                self._begin_merge(top, event)
                return
            try:
                value = _yaml_plain(value)
            except _Refused as exc:
                raise self._fault(event, str(exc)) from None
        elif not value.isascii() and _HALF.search(value):  # libyaml refuses it by itself
            raise self._fault(event, _HALF_PAIR)
        if top is not None and top.wants_key:
            place = self._key(top, value, event)
        else:
            place = self._put(value, event)
        if event.anchor is not None:
            weight = event.end_mark.index - event.start_mark.index
            self.anchors[event.anchor] = _Anchor(value, place, weight, 0)

    def _key(self, top: _Open, key: Any, event: Any) -> _Place:
        if type(key) is not str:
            raise self._fault(event, f"the key {key!r:.60} is no string; put it in quotes")
        at = event.start_mark.index
        if key in top.value:
            if not self.placing:
                _yaml_places(self.source)  # raises as well, and knows where the first one is
            raise self.source.twice(key, at, top.place.children[key].key)
        top.key, top.key_at, top.wants_key = key, at, False
        return _NOWHERE

    def _put(self, value: Any, event: Any) -> _Place:
        """Puts a value where it belongs, and gives back its place."""
        top = self.top
        place = self._place(top, value, event.start_mark.index) if self.placing else _NOWHERE
        if top is None:
            self.data, self.place = value, place
        elif type(top.value) is list:
            top.value.append(value)
        elif top.merging:
            top.merge = (value, place, event.start_mark.index)
            top.merging, top.wants_key = False, True
        else:
            top.value[top.key] = value
            top.wants_key = True
        return place

    def _place(self, top: _Open | None, value: Any, at: int) -> _Place:
        leaf = not isinstance(value, (dict, list))
        if top is None:
            return _Place(at, at, leaf=leaf)
        if type(top.value) is list:
            place = top.place.children[len(top.value)] = _Place(at, at, leaf=leaf)
        else:
            place = _Place(at, top.key_at, leaf=leaf)
            if not top.merging:
                top.place.children[top.key] = place
        return place

    def _begin(self, event: Any, value: Any) -> None:
        if event.tag is not None:
            raise self._tagged(event)
        if self.top is not None and self.top.wants_key:
            raise self._fault(event, "a list or mapping as a key; use a string")
        if len(self.stack) == MAX_DEPTH:
            raise self._fault(event, _TOO_DEEP)
        self.top = _Open(event, value, self._put(value, event), self.expanded)
        self.stack.append(self.top)
        if event.anchor is not None:
            self.anchors[event.anchor] = None

    def _end(self, event: Any) -> None:
        done = self.stack.pop()
        self.top = self.stack[-1] if self.stack else None
        if done.merge is not None:
            self._merge(done, *done.merge)
        if self.top is not None and self.top.height <= done.height:
            self.top.height = done.height + 1
        if done.anchor is not None:
            weight = event.end_mark.index - done.at + self.expanded - done.expanded
            self.anchors[done.anchor] = _Anchor(done.value, done.place, weight, done.height)

    def _alias(self, event: Any) -> None:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            inside = event.anchor in self.anchors
            reason = "stands inside what it repeats" if inside else "has no anchor before it"
            raise self._fault(event, f"*{event.anchor:.60} {reason}; write the value out")
        self.expanded += anchor.weight
        if self.expanded > self.room:
            raise self._fault(event, "the aliases expand to too much; write fewer of them")
        if len(self.stack) + anchor.height > MAX_DEPTH:
            raise self._fault(event, _TOO_DEEP)
        top = self.top
        if top is not None and top.wants_key:
            self._key(top, anchor.value, event)
            return
        place = self._put(_copy(anchor.value), event)
        if self.placing:
            place.children = anchor.place.children
        if top is not None and top.height <= anchor.height:
            top.height = anchor.height + 1

    def _begin_merge(self, top: _Open, event: Any) -> None:
        if top.merge is not None:
            raise self._fault(event, "a second <<; give the first one a list: <<: [*a, *b]")
        top.merging, top.key_at, top.wants_key = True, event.start_mark.index, False

    def _merge(self, into: _Open, merge: Any, place: _Place, at: int) -> None:
        """Adds what ``<<`` names and the mapping does not say itself; the first to name it wins."""
        listed = type(merge) is list
        for index, mapping in enumerate(merge if listed else [merge]):
            if type(mapping) is not dict:
                raise self.source.fault(at, "<< takes a mapping or a list of mappings")
            for key in mapping:
                if key in into.value:
                    continue
                into.value[key] = mapping[key]
                if self.placing:
                    origin = place.children[index] if listed else place
                    into.place.children[key] = origin.children[key]

    def _tagged(self, event: Any) -> SourceError:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        advice = "remove it, and put what shall be a string in quotes"
        return self._fault(event, f"the tag {_shown(tag)}; tags are not read: {advice}")

    def _fault(self, event: Any, message: str) -> SourceError:
        return self.source.fault(event.start_mark.index, message)


def _copy(value: Any) -> Any:
    """An alias is a value of its own: a change to it must not change what it repeats."""
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


# --- JSON ------------------------------------------------------------------------------------

# A string without an end still matches, to the end of the text: if it did not, each quote inside
# it would be tried again, and the scan would be quadratic. So in TOML below.
_JSON_BRACKET = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|([\[{])|[\]}]', re.DOTALL)
_JSON_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]|[^\s\[\]{},:"]++')
_HALF = re.compile("[\ud800-\udfff]")
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON_HINTS = {
    "property name": "put keys in double quotes, and no comma after the last one",
    "trailing comma": "remove the comma",
    "Expecting value": "put strings in double quotes, and no comma after the last value",
    "',' delimiter": "put a comma between two values, or close the bracket",
    "':' delimiter": 'write "key": value',
    "Unterminated string": "close it with a double quote",
    "control character": r"write a line break as \n and a tab as \t",
    "escape": r"write a backslash as \\",
    "Extra data": "a file holds one value; put several in a list",
    "": "check the quotes and the brackets",
}


def _read_json(source: _Text, progress: Progress | None) -> Document:
    text = source.text
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_json_depth(source)
    refused = False
    data = None
    try:
        data = _JSON.decode(text)
    except json.JSONDecodeError as exc:
        message = f"not valid JSON: {exc.msg}; {_hint(exc.msg, _JSON_HINTS)}"
        if text.startswith(("//", "/*", "#"), exc.pos):
            message = "JSON has no comments; remove it, or use YAML"
        raise source.fault(exc.pos, message) from None
    except _Refused:
        refused = True
    if refused or _HALF_ESCAPE.search(text):
        _json_places(source)
    return Document(data, source.name, source, _json_places)


def _check_json_depth(source: _Text) -> None:
    """Before the parser recurses: how deep it may go is a setting of the whole process."""
    depth = 0
    for token in _JSON_BRACKET.finditer(source.text):
        if token.lastindex:
            depth += 1
            if depth > MAX_DEPTH:
                raise source.fault(token.start(), _TOO_DEEP)
        elif source.text[token.start()] != '"':
            depth -= 1


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Refused
    return result


def _json_integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _Refused(_TOO_LONG)
    return int(digits)


def _json_float(digits: str) -> float:
    if math.isfinite(number := float(digits)):
        return number
    raise _Refused(_NOT_FINITE)


_JSON = json.JSONDecoder(
    object_pairs_hook=_json_object,
    parse_int=_json_integer,
    parse_float=_json_float,
    parse_constant=_json_float,
)


def _json_places(source: _Text) -> _Place:
    """Places in a text that is JSON; raises where it is JSON but not plain data."""
    root = _Place(0, 0)  # as if the document were the one item of a list
    opened: list[_Place] = [root]
    steps: list[str | int | None] = [0]  # an index, a key, or None where a key comes next
    key_at = 0
    for token in _JSON_TOKEN.finditer(source.text):
        at, word, step = token.start(), token[0], steps[-1]
        if word in "]}":
            opened.pop()
            steps.pop()
        elif word == ",":
            steps[-1] = step + 1 if isinstance(step, int) else None
        elif step is None:
            key = _json_scalar(source, at, word)
            if first := opened[-1].children.get(key):
                raise source.twice(key, at, first.key)
            steps[-1], key_at = key, at
        else:
            place = _Place(at, at if isinstance(step, int) else key_at, leaf=word not in "[{")
            opened[-1].children[step] = place
            if word in "[{":
                opened.append(place)
                steps.append(0 if word == "[" else None)
            else:
                _json_scalar(source, at, word)
    return root.children[0]


def _json_scalar(source: _Text, at: int, word: str) -> Any:
    if word[0] == '"' and "\\" not in word:
        return word[1:-1]
    try:
        value = _JSON.decode(word)
    except _Refused as exc:
        raise source.fault(at, str(exc)) from None
    if isinstance(value, str) and _HALF.search(value):
        raise source.fault(at, _HALF_PAIR)
    return value


# --- TOML ------------------------------------------------------------------------------------

_TOML_TOKEN = re.compile(
    r"""(?P<text>"{3}(?:[^"\\]++|\\.?|"{1,2}(?!"))*+"{0,5}|'{3}(?:[^']++|'{1,2}(?!'))*+'{0,5}
        |"(?:[^"\\\n]++|\\[^\n]?)*+"?|'[^'\n]*+'?)
      |(?P<skip>\#[^\n]*+|[ \t\r]++)
      |(?P<mark>[\[\]{}=,.\n])
      |(?P<bare>[^\s\[\]{}=,.\#"']++|\s)""",
    re.VERBOSE | re.DOTALL,
)
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOML_HINTS = {
    "Invalid value": "put strings in quotes",
    "after a key": "write key = value",
    "Invalid statement": "write key = value or [table]; other characters in a key need quotes",
    "key part": "put the key in quotes",
    "Cannot": "each key and each table is written once; keep one",
    "Duplicate": "each key is written once; keep one",
    "Unclosed": "close the bracket",
    "Unterminated": "close the quotes",
    "Illegal character": r"write a line break as \n, or use three quotes",
    "'\\'": r"write a backslash as \\, or use single quotes",
    "newline": "write one statement on a line",
    "": "check the quotes and the brackets",
}


def _read_toml(source: _Text, progress: Progress | None) -> Document:
    _check_toml(source)
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as exc:
        raise _toml_fault(source, str(exc)) from None
    document = Document(data, source.name, source, _toml_places)
    _make_plain(document)
    return document


def _check_toml(source: _Text) -> None:
    """Before tomllib, which recurses over brackets and is cubic in the parts of a dotted key."""
    depth = parts = 0
    for token in _TOML_TOKEN.finditer(source.text):
        word = token[0]
        if token.lastgroup == "bare":
            if len(word) > MAX_DIGITS and word[0] in "+-0123456789":
                raise source.fault(token.start(), _TOO_LONG)
        elif token.lastgroup == "mark":
            depth += (word in "[{") - (word in "]}")
            parts = parts + 1 if word == "." else 0
            if depth > MAX_DEPTH or parts >= MAX_DEPTH:
                raise source.fault(token.start(), _TOO_DEEP)


def _toml_fault(source: _Text, message: str) -> SourceError:
    place = _TOML_PLACE.search(message)
    problem = message[: place.start()] if place else message
    text = f"not valid TOML: {problem}; {_hint(problem, _TOML_HINTS)}"
    if place and place[1]:
        return SourceError(f"{source.name}:{place[1]}:{place[2]}: {text}")
    return source.fault(len(source.text), text)


def _make_plain(document: Document) -> None:
    """Dates and times become their ISO text; what JSON cannot carry is refused."""
    todo: list[tuple[tuple[str | int, ...], Any]] = [((), document.data)]
    while todo:
        pointer, container = todo.pop()
        if len(pointer) >= MAX_DEPTH:
            raise SourceError(f"{document.where(pointer, key=True)}: {_TOO_DEEP}")
        for step, value in container.items() if type(container) is dict else enumerate(container):
            if isinstance(value, (dict, list)):
                todo.append(((*pointer, step), value))
            elif isinstance(value, (date, time)):
                container[step] = value.isoformat()
            elif isinstance(value, float) and not math.isfinite(value):
                raise SourceError(f"{document.where((*pointer, step))}: {_NOT_FINITE}")


def _toml_places(source: _Text) -> _Place:
    """Places in a text that is TOML."""
    walk = _TomlWalk()
    for token in _TOML_TOKEN.finditer(source.text):
        if token.lastgroup != "skip":
            walk.step(token.start(), token[0])
    return walk.root


class _TomlWalk:
    """Follows the tokens of a right TOML text: which table, key or item the next one belongs to."""

    def __init__(self) -> None:
        self.root = self.table = _Place(0, 0)
        self.opened: list[tuple[_Place, bool]] = []  # inline tables, and arrays (True)
        self.parts: list[tuple[str, int]] = []  # of the dotted key that is being read
        self.double = False  # [[header]]
        self.step: Callable[[int, str], None] = self._in_key

    def _in_key(self, at: int, word: str) -> None:
        if word == "=":
            self.step = self._in_value
        elif word == "[":
            self.step, self.double = self._in_header, False
        elif word == "}":
            self._close()
        elif word not in ".,\n":
            self.parts.append((_toml_key(word), at))

    def _in_header(self, at: int, word: str) -> None:
        if word == "[":
            self.double = True
        elif word == "]":
            self._enter()
            self.step = self._after_value
        elif word != ".":
            self.parts.append((_toml_key(word), at))

    def _in_value(self, at: int, word: str) -> None:
        if self.opened and self.opened[-1][1]:
            if word == "]":
                self._close()
            if word in "]\n":
                return
            items = self.opened[-1][0].children
            place = items[len(items)] = _Place(at, at)
        else:
            parent, name, key_at = self._parent(self.opened[-1][0] if self.opened else self.table)
            place = parent.children[name] = _Place(at, key_at)
        if word in "[{":
            self.opened.append((place, word == "["))
            self.step = self._in_value if word == "[" else self._in_key
        else:
            self.step = self._after_value

    def _after_value(self, at: int, word: str) -> None:
        if not self.opened:
            if word == "\n":
                self.step = self._in_key
        elif word == ",":
            self.step = self._in_value if self.opened[-1][1] else self._in_key
        elif word in "]}":
            self._close()

    def _close(self) -> None:
        self.opened.pop()
        self.step = self._after_value

    def _enter(self) -> None:
        """The table that a header names, or one more of the tables it names."""
        parent, name, at = self._parent(self.root)
        place = parent.children.setdefault(name, _Place(at, at))
        if self.double:
            self.table = place.children[len(place.children)] = _Place(at, at)
        else:
            self.table, place.at, place.key = place, at, at

    def _parent(self, place: _Place) -> tuple[_Place, str, int]:
        """Where the last part of the key belongs, that part, and its offset."""
        *path, (name, at) = self.parts
        self.parts = []
        for part, part_at in path:
            place = place.children.setdefault(part, _Place(part_at, part_at))
            last = next(reversed(place.children), "")
            if isinstance(last, int):  # an array of tables: its latest one
                place = place.children[last]
        return place, name, at


def _toml_key(word: str) -> str:
    if "\\" in word and word[0] == '"':
        return next(iter(tomllib.loads(f"{word} = 0")))
    return word[1:-1] if word[0] in "\"'" else word


_READERS: dict[Format, Callable[[_Text, Progress | None], Document]] = {
    "yaml": _read_yaml,
    "json": _read_json,
    "toml": _read_toml,
}
