"""YAML 1.2, core schema, built from parse events: nothing recurses and nothing is guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from toolpost.document.json import HALF, read_json
from toolpost.document.places import (
    HALF_PAIR,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIGITS,
    NOT_FINITE,
    TOO_DEEP,
    TOO_LONG,
    TOO_WIDE,
    Document,
    Place,
    Progress,
    Refused,
    Text,
    hint,
    shown,
)
from toolpost.errors import SourceError

UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# libyaml compares each %TAG with all before it, before it emits an event: refused unparsed.
_TAG_DIRECTIVE = re.compile("(?:^|(?<=[\n\r\x85\u2028\u2029]))\ufeff?%TAG")
_JSON_BEGINS = re.compile(r'[ \t\r\n]*+[\[{"]')
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(
    r"(?P<dec>[-+]?[0-9]++)"
    r"|0o(?P<oct>[0-7]++)"
    r"|0x(?P<hex>[0-9a-fA-F]++)"
    r"|(?P<float>[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?)"
    r"|(?P<bad>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_MARKS = ("\n", ",", ": ", "- ", "]", "}")
_MOST_MARKS = 1_500_000
"""No value without one of these near by, and each takes a microsecond or two: where there are more,
it is told without parsing. Ten thousand tools with all their parameters have a third of it.
"""
_BASES = {"dec": 10, "oct": 8, "hex": 16}
_HINTS = {
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


def read_yaml(source: Text, progress: Progress | None) -> Document:
    if _JSON_BEGINS.match(source.text):
        # JSON is YAML, but PyYAML refuses some of it (surrogate pairs, long keys, U+007F)
        # and folds U+2028. What is no JSON, or wrong, is for the YAML walk to judge.
        try:
            return read_json(source, None)
        except SourceError:
            pass
    _refuse_crowd(source)
    walk = _YamlWalk(source, progress=progress)
    walk.run()
    return Document(walk.data, source.name, source, _places)


def _refuse_crowd(source: Text) -> None:
    """A text with too many values, refused in the milliseconds that counting takes."""
    low, high, before = 0, len(source.text), 0
    if high <= _MOST_MARKS or _marks(source.text, 0, high) <= _MOST_MARKS:
        return
    while high - low > 1:  # halves of halves: in all no more than counting once more
        middle = (low + high) // 2
        more = _marks(source.text, low, middle)
        if before + more > _MOST_MARKS:
            high = middle
        else:
            low, before = middle, before + more
    raise source.fault(low, f"more than {_MOST_MARKS:,} values; split the file")


def _marks(text: str, start: int, end: int) -> int:
    return sum(text.count(mark, start, end) for mark in _MARKS)


def _places(source: Text) -> Place:
    walk = _YamlWalk(source, placing=True)
    walk.run()
    return walk.place


def _events(source: Text) -> Iterator[Any]:
    """Parse events: the one thing PyYAML does without recursion, in C where it has that."""
    import yaml  # lazy: a program without a YAML file never pays for it

    if control := UNPRINTABLE.search(source.text):
        code = f"U+{ord(control[0]):04X}"
        raise source.fault(control.start(), f"the control character {code}; remove it or escape it")
    if "%TAG" in source.text and (directive := _TAG_DIRECTIVE.search(source.text)):
        raise source.fault(directive.start(), "tags are not read; remove the %TAG line")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(source.text)
    last = 0
    try:
        while (event := loader.get_event()) is not None:
            last = event.start_mark.index
            yield event
    except yaml.MarkedYAMLError as exc:
        raise _fault(source, exc.problem or "", exc.problem_mark, last) from exc
    except (ValueError, OverflowError) as exc:  # a \U beyond Unicode, in the pure Python scanner
        raise _fault(source, "invalid escape", None, last) from exc
    finally:
        loader.dispose()


def _fault(source: Text, problem: str, mark: Any, last: int) -> SourceError:
    offset = last if mark is None else mark.index
    if source.text[offset : offset + 1] == "\t":
        return source.fault(offset, "a tab in the indentation; YAML takes only spaces there")
    return source.fault(offset, f"not valid YAML: {problem}; {hint(problem, _HINTS)}")


def plain(text: str) -> Any:
    """What an unquoted text means: the core schema of YAML 1.2, where ``no`` is a text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-." or not (match := _NUMBER.fullmatch(text)):
        return text
    if match.lastgroup in _BASES:
        if len(text.lstrip("+-")) <= MAX_DIGITS:
            integer = int(match[match.lastgroup], _BASES[match.lastgroup])
            if integer < TOO_WIDE:
                return integer
        raise Refused(TOO_LONG)
    if match.lastgroup == "float" and math.isfinite(number := float(text)):
        return number
    raise Refused(NOT_FINITE)


class _Open:
    """A mapping or a sequence whose end has not come."""

    __slots__ = (
        "anchor", "at", "expanded", "height", "key", "key_at", "merge", "merging", "place",
        "value", "wants_key",
    )  # fmt: skip

    def __init__(self, event: Any, value: Any, place: Place, expanded: int) -> None:
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
        self.merge: tuple[Any, Place, int] | None = None


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A value that aliases may repeat: how much text it stands for, how many levels it has."""

    value: Any
    place: Place
    weight: int
    height: int


_NOWHERE = Place(0, 0)
"""The place of everything in a walk that notes none."""


class _YamlWalk:
    """Builds data (and places, if asked) straight from parse events, with a stack of its own."""

    def __init__(
        self, source: Text, *, progress: Progress | None = None, placing: bool = False
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
        for count, event in enumerate(_events(self.source), 1):
            if handler := handlers.get(type(event)):
                handler(event)
            if not count % 1000 and self.progress is not None:
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
                value = plain(value)
            except Refused as exc:
                raise self._fault(event, str(exc)) from None
        elif not value.isascii() and HALF.search(value):  # libyaml refuses it by itself
            raise self._fault(event, HALF_PAIR)
        if top is not None and top.wants_key:
            place = self._key(top, value, event)
        else:
            place = self._put(value, event)
        if event.anchor is not None:
            weight = event.end_mark.index - event.start_mark.index
            self.anchors[event.anchor] = _Anchor(value, place, weight, 0)

    def _key(self, top: _Open, key: Any, event: Any) -> Place:
        if type(key) is not str and self.source.lenient and hasattr(event, "value"):
            key = event.value
        if type(key) is not str:
            raise self._fault(event, f"the key {key!r:.60} is no string; put it in quotes")
        at = event.start_mark.index
        if key in top.value:
            if not self.placing:
                _places(self.source)  # raises as well, and knows where the first one is
            raise self.source.twice(key, at, top.place.children[key].key)
        top.key, top.key_at, top.wants_key = key, at, False
        return _NOWHERE

    def _put(self, value: Any, event: Any) -> Place:
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

    def _place(self, top: _Open | None, value: Any, at: int) -> Place:
        leaf = not isinstance(value, (dict, list))
        if top is None:
            return Place(at, at, leaf=leaf)
        if type(top.value) is list:
            place = top.place.children[len(top.value)] = Place(at, at, leaf=leaf)
        else:
            place = Place(at, top.key_at, leaf=leaf)
            if not top.merging:
                top.place.children[top.key] = place
        return place

    def _begin(self, event: Any, value: Any) -> None:
        if event.tag is not None:
            raise self._tagged(event)
        if self.top is not None and self.top.wants_key:
            raise self._fault(event, "a list or mapping as a key; use a string")
        if len(self.stack) == MAX_DEPTH:
            raise self._fault(event, TOO_DEEP)
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
            raise self._fault(event, TOO_DEEP)
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

    def _merge(self, into: _Open, merge: Any, place: Place, at: int) -> None:
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
        return self._fault(event, f"the tag {shown(tag)}; tags are not read: {advice}")

    def _fault(self, event: Any, message: str) -> SourceError:
        return self.source.fault(event.start_mark.index, message)


def _copy(value: Any) -> Any:
    """An alias is a value of its own: a change to it must not change what it repeats."""
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value
