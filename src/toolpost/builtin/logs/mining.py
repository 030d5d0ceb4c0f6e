"""Templates of messages, found as they stream by, in bounded memory.

Above: ``analysis.py``. Below: ``masking.py``.

A message without its values (``masked``) is a *shape*. Most messages are, but for digits, ones that
were seen before, and cost one look-up (``alike``); of the others most have a shape that was.
Shapes that differ in one word only are one template where that word takes so many forms that it is
a value too: a name, a host. That is decided from time to time, over all shapes of one length, and
for good at the end. Words are never taken for values because there are few of them: ``link up`` and
``link down`` stay two templates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, Self, TypeVar

from toolpost.builtin.logs.masking import WILD, alike, masked, one_of_many, pieces, words

FORMS: Final = 8
"""So many words in one place, all else being equal, and it is a place for values."""
_FORMS_BESIDE_VALUES: Final = 3
"""… or so many, if numbers and the like were seen in that place too."""
_FORMS_WITH_DOTS: Final = 4
"""… or so many names of several parts, such as com.example.app."""
_FORMS_IN_SERIES: Final = 3
"""… or so many that differ in their last letter only, such as sda, sdb and sdc."""
_FORMS_CROSSED: Final = 3
"""… or so many in each of two places, if most of them go with most of the others."""
_MOST_SHAPES: Final = 5000
_MOST_KNOWN: Final = 50_000
_LONGEST: Final = 60
"""Words of a message that count; what follows is one value."""
_MOST_PAIRS: Final = 200_000
_PATIENCE: Final = 100_000
REST: Final = "<everything else>"

Shape = tuple[str, ...]


class Tally(Protocol):
    """What is kept about one template."""

    def absorb(self, other: Self, /) -> None:
        """Take over what another one counted."""


T = TypeVar("T", bound=Tally)


class Miner(Generic[T]):
    """``tally(message)`` is what is kept for the message's template; ``close`` gives them all."""

    def __init__(self, fresh: Callable[[], T], *, most: int = _MOST_SHAPES) -> None:
        self._fresh, self._most = fresh, most
        self._known: dict[str, T] = {}
        self._alike: dict[bytes, T] = {}
        """What was found for messages that differ in their digits only."""
        self._shapes: dict[Shape, T] = {}
        self._places: dict[tuple[int, str], set[tuple[int, ...]]] = defaultdict(set)
        self._texts: dict[Shape, str] = {}
        self._rest: T | None = None
        self._until_room = 0

    def tally(self, message: str, plain: str = "") -> T:
        """What is kept for the template of this message; made if it is new. ``plain`` is the
        message without its values, if somebody knows.
        """
        if plain:
            return self._of_plain(plain)
        key = alike(message)
        found = self._alike.get(key)
        if found is None:
            found = self._of_plain(masked(message))
            if len(self._alike) >= _MOST_KNOWN:
                self._alike.clear()
            self._alike[key] = found
        return found

    def close(self) -> Iterator[tuple[str, T]]:
        """Every template with what was kept for it."""
        self._merge(FORMS)
        found: dict[str, T] = {}
        for shape, tally in self._shapes.items():
            text = one_of_many(self._texts[shape])
            if text in found:
                found[text].absorb(tally)
            else:
                found[text] = tally
        for text, covering in _covered(found):
            found[covering].absorb(found.pop(text))
        yield from found.items()
        if self._rest is not None:
            yield REST, self._rest

    def _of_plain(self, plain: str) -> T:
        found = self._known.get(plain)
        return self._look(plain) if found is None else found

    def _look(self, plain: str) -> T:
        shape = _shape(plain)
        tally = self._matching(shape)
        if tally is None and len(self._shapes) >= self._most:
            self._make_room()
            tally = self._matching(shape)
        if tally is None and len(self._shapes) >= self._most:
            tally = self._rest = self._rest or self._fresh()
        elif tally is None:
            tally = self._shapes[shape] = self._fresh()
            self._texts[shape] = plain
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[plain] = tally
        return tally

    def _matching(self, shape: Shape) -> T | None:
        """The template that this shape belongs to, if there is one."""
        tally = self._shapes.get(shape)
        if tally is not None or not shape:
            return tally
        for start in (shape[0], WILD):
            for places in self._places.get((len(shape), start), ()):
                tally = self._shapes.get(_opened(shape, places))
                if tally is not None:
                    return tally
        return None

    def _make_room(self) -> None:
        """Merge more and more freely until a quarter is free. Where that cannot be had it is not
        tried again soon: looking costs more than a line.
        """
        self._until_room -= 1
        if self._until_room > 0:
            return
        for forms in (FORMS, 4, 2):
            self._merge(forms)
            if len(self._shapes) <= self._most * 3 // 4:
                return
        self._until_room = _PATIENCE

    def _merge(self, forms: int) -> None:
        by_length: dict[int, list[Shape]] = defaultdict(list)
        for shape in self._shapes:
            by_length[len(shape)].append(shape)
        for shapes in by_length.values():
            if len(shapes) >= _FORMS_BESIDE_VALUES:
                self._merge_alike(shapes, forms)
        self._known.clear()
        self._alike.clear()

    def _merge_alike(self, shapes: list[Shape], forms: int) -> None:
        """Shapes of one length: until none is left that differs from enough others in one word, or
        in two, or from a template only where that is open.
        """
        left = set(shapes)
        merging = True
        while merging:
            fresh = [
                self._unite(opened, fitting, left)
                for opened, members in (*_one_apart(left, forms), *_two_apart(left, forms))
                if len(fitting := [one for one in members if one in left]) > 1
            ]
            merging = bool(fresh)
            for places in dict.fromkeys(fresh):
                self._absorb(places, left)

    def _absorb(self, places: tuple[int, ...], left: set[Shape]) -> None:
        """Shapes that a template covers, which is open in these places, become part of it."""
        covered: dict[Shape, list[Shape]] = defaultdict(list)
        for shape in left:
            opened = _opened(shape, places)
            if opened != shape and opened in left:
                covered[opened].append(shape)
        for opened, members in covered.items():
            self._unite(opened, [opened, *members], left)

    def _unite(self, opened: Shape, members: list[Shape], left: set[Shape]) -> tuple[int, ...]:
        """Make several shapes one that is open where they differ; where that is, comes back."""
        if opened in self._shapes and opened not in members:
            members = [opened, *members]
        left.difference_update(members)
        left.add(opened)
        text = self._texts[members[0]]
        tallies = [self._shapes.pop(member) for member in members]
        for member in members:
            self._texts.pop(member, None)
        first, *others = tallies
        for other in others:
            first.absorb(other)
        self._shapes[opened] = first
        self._texts[opened] = _wild_in(text, opened)
        places = tuple(i for i, word in enumerate(opened) if word == WILD)
        self._places[len(opened), opened[0]].add(places)
        return places


def _shape(plain: str) -> Shape:
    found = words(plain)
    return tuple(found) if len(found) <= _LONGEST else (*found[:_LONGEST], WILD)


def _opened(shape: Shape, places: Iterable[int]) -> Shape:
    opened = list(shape)
    for place in places:
        opened[place] = WILD
    return tuple(opened)


def _one_apart(shapes: set[Shape], forms: int) -> list[tuple[Shape, list[Shape]]]:
    """Shapes that are equal but for one word, where that word has enough forms."""
    alike: dict[Shape, list[Shape]] = defaultdict(list)
    for shape in shapes:
        for place, word in enumerate(shape):
            if _may_vary(word):
                alike[(*shape[:place], WILD, *shape[place + 1 :])].append(shape)
    found = []
    for opened, members in alike.items():
        beside = opened in shapes
        enough = min(forms, _FORMS_BESIDE_VALUES) if beside else forms
        if len(members) < forms:
            place = next(i for i, word in enumerate(opened) if word != members[0][i])
            forms_here = [member[place] for member in members]
            if all(word.count(".") > 1 for word in forms_here):
                enough = min(enough, _FORMS_WITH_DOTS)
            if _are_series(forms_here):
                enough = min(enough, _FORMS_IN_SERIES)
        if len(members) >= enough * _doubt(opened):
            found.append((opened, members))
    found.sort(key=lambda group: -len(group[1]))
    return found


def _are_series(forms: list[str]) -> bool:
    """Whether words count through something: ``LNKA``, ``LNKB``, ``LNKC``."""
    return len(forms[0]) > 2 and len({form[:-1] for form in forms}) == 1


def _covered(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Templates that are another one with more around a value, as ``host:<*>`` and ``<*>`` are in
    the same place of a message; each with the one that covers it.
    """
    alike: dict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    wholes: dict[str, list[str]] = {}
    for text in texts:
        found, whole = pieces(text)
        if WILD in text and sum(piece[0].isalpha() for piece in whole) >= 2:
            alike[tuple(whole)].append((text, found))
            wholes[text] = whole
    covered = []
    for group in alike.values():
        for text, found in group:
            if found == wholes[text] and len(group) > 1:
                covered += [(other, text) for other, _ in group if other != text]
                break
    return covered


def _two_apart(shapes: Iterable[Shape], forms: int) -> list[tuple[Shape, list[Shape]]]:
    """The same for two words that vary independently; only where there are many shapes."""
    by_start: dict[str, list[Shape]] = defaultdict(list)
    for shape in shapes:
        if len(shape) >= 5:
            by_start[shape[0]].append(shape)
    found: list[tuple[Shape, list[Shape]]] = []
    for group in by_start.values():
        if len(group) >= forms and len(group) * len(group[0]) ** 2 <= _MOST_PAIRS:
            found += _pairs(group, forms)
    found.sort(key=lambda group: -len(group[1]))
    return found


def _pairs(group: list[Shape], forms: int) -> Iterator[tuple[Shape, list[Shape]]]:
    alike: dict[Shape, list[Shape]] = defaultdict(list)
    for shape in group:
        places = [i for i, word in enumerate(shape) if _may_vary(word)]
        for number, i in enumerate(places):
            for j in places[number + 1 :]:
                alike[_opened(shape, (i, j))].append(shape)
    for opened, members in alike.items():
        if len(members) < forms:
            continue
        differing = [i for i, word in enumerate(opened) if word == WILD != members[0][i]]
        counts = [len({member[i] for member in members}) for i in differing]
        doubt = _doubt(opened)
        free = min(counts) >= forms * doubt and len(members) >= 2 * forms
        if free or (doubt == 1 and _are_crossed(counts, len(members))):
            yield opened, members


def _are_crossed(counts: list[int], members: int) -> bool:
    """Whether each of two words goes with most forms of the other: they say nothing about each
    other, as ``from NEW to RUNNING`` does not.
    """
    return min(counts) >= _FORMS_CROSSED and members > 0.6 * counts[0] * counts[-1]


def _doubt(opened: Shape) -> int:
    """How much more it takes to open a place, the fewer words a template would be left with: a
    message of one word is a word, not a value.
    """
    left = sum(word[0].isalpha() for word in opened)
    return 1 if left >= 2 else 4 if left else 1000


def _may_vary(word: str) -> bool:
    return word != WILD and (len(word) > 1 or word.isalnum())


def _wild_in(text: str, shape: Shape) -> str:
    """A template's text, with its words opened as in the shape."""
    made: list[str] = []
    place = 0
    for word, opened in zip(words(text), shape, strict=False):
        start = text.index(word, place)
        made += (text[place:start], opened)
        place = start + len(word)
    return "".join(made) + text[place:]
