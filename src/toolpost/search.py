"""Find a tool by what it does: by the words of a query and, where that can be had, by its meaning.

Above: ``Registry.search``. Below: SQLite's full-text search, in memory, and ``meaning.py``. Every
word has its forms (stems), a few others that say the same, and one that is not known is taken for
the beginning of one, for two in one, or for a typing error. A query is words and nothing else: no
sign in it means anything to SQLite. Who may see which tool is not known here: ``among`` says it.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolpost import meaning
from toolpost.errors import InvalidArguments, MissingPart
from toolpost.schema.parameters import parameters
from toolpost.spec import ToolSpec

_WEIGHTS: Final = {
    "name": 10.0, "title": 6.0, "tags": 4.0, "summary": 5.0, "description": 1.5, "parameters": 1.0
}  # fmt: skip
"""What a word counts by where it stands; the summary is the first sentence of a description."""
_FOUND: Final = (
    f"select rowid, -bm25(tools, {', '.join(map(str, _WEIGHTS.values()))}) "  # noqa: S608 - ours
    "from tools where tools match ?"
)
_ANY: Final = "select 1 from tools where tools match ?"
_ADDED: Final = (
    f"insert into tools (rowid, {', '.join(_WEIGHTS)}) values (?{', ?' * len(_WEIGHTS)})"  # noqa: S608 - ours
)
_TOKENS: Final = "porter unicode61 remove_diacritics 2"
_WORD: Final = re.compile(r"[\u3040-\u9fff]|[^\W_\u3040-\u9fff]+")
"""A run of letters and digits; of scripts that do without blanks, each sign."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n\s*\n")
_MOST_WORDS: Final = 16
_LONGEST_WORD: Final = 40
_MOST_READ: Final = 2000
"""Characters of a query, and of a description, that are looked at."""
_SPREAD: Final = 10
"""The larger, the less a better rank counts when two rankings are made one."""
_CANDIDATES: Final = 50
_MOST_ROWS: Final = 3000
"""SQLite ranks about a thousand in a millisecond."""
_LEAST_NEAR: Final = 0.2
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a about an and any are as at be by can could do does for from has have how i if in into "
        "is it its me my of on or our please should some something somebody so that the their "
        "them there these this to tool us want was we what when where which who will with would "
        "you your",
    )
)
_ALIKE: Final = tuple(
    frozenset(group.split())
    for group in """
        mail email
        delete remove erase drop
        create make new add generate
        get fetch retrieve read load
        find search lookup query grep
        show list view display
        send post publish
        change update edit modify set
        run execute start launch
        compute calculate arithmetic math sum
        picture image photo
        folder directory
        web internet online website site url
        appointment meeting event schedule
        bug issue ticket
        combine merge join concatenate
        shorten summarize summarise
        price cost quote
        lamp light
        bill invoice
        money payment charge
        command shell terminal program
        status state
        kubernetes k8s
        draw paint
        speech voice audio
    """.strip().splitlines()
)
"""Words that people use for one another when they look for a tool."""
_SAME_AS: Final = {
    word: sorted(frozenset().union(*(g for g in _ALIKE if word in g)) - {word})
    for word in frozenset().union(*_ALIKE)
}
_SAME: Final = 0.5
_BEGINS: Final = 0.8
_MISSPELT: Final = 0.7


class Found(NamedTuple):
    """A tool, and how well it fits: 1 is as well as one can."""

    spec: ToolSpec
    score: float


class Index:
    """Tools made searchable; what has changed since the last search is taken up by the next."""

    def __init__(self, model: Callable[[], meaning.Model | None] = meaning.model) -> None:
        self._model = model
        self._one_at_a_time = threading.Lock()
        self._listed: tuple[ToolSpec, ...] = ()
        self._specs: dict[int, ToolSpec] = {}
        self._rows: dict[str, int] = {}
        self._words: Counter[str] = Counter()
        self._texts: dict[int, tuple[str, ...]] = {}
        self._vectors = _Vectors()
        self._last = 0
        connection = _opened()
        self._run = connection.execute
        weakref.finalize(self, connection.close)

    def search(
        self,
        query: str,
        specs: tuple[ToolSpec, ...],
        *,
        limit: int = 10,
        among: Iterable[ToolSpec] | None = None,
    ) -> tuple[Found, ...]:
        """The best of ``specs``, or of those that are ``among`` them, best first."""
        if not query.strip():
            raise InvalidArguments("An empty query finds nothing: say what the tool should do.")
        if limit < 1:
            raise InvalidArguments(f"limit must be 1 or more, not {limit}.")
        with self._one_at_a_time:
            self._take_up(specs)
            rows = self._specs if among is None else {self._rows.get(s.name, 0) for s in among}
            return self._searched(query[:_MOST_READ], limit, rows)

    def _searched(self, query: str, limit: int, seen: Collection[int]) -> tuple[Found, ...]:
        by_words = self._by_words(words_of(query))
        rankings = [sorted((row for row in by_words if row in seen), key=by_words.__getitem__)]
        rankings[0].reverse()
        model = self._model()
        if model is not None:
            near = self._vectors.near(model, query, self._specs)
            rankings.append([row for row in near if row in seen])
        best = _fused(rankings)
        folded = "".join(words_of(query, common=True))
        chosen = sorted(best, key=lambda row: (-best[row], self._specs[row].name))
        chosen.sort(key=lambda row: "".join(_words(self._specs[row].name)) != folded)
        return tuple(Found(self._specs[row], round(best[row], 3)) for row in chosen[:limit])

    # By words

    def _by_words(self, words: Sequence[str]) -> dict[int, float]:
        """Row → how well it fits; each word counts as its best form does. The rare ones come first:
        if there is too much to look at, what is left aside tells least.
        """
        fits: dict[int, float] = {}
        looked_at = 0
        for word in sorted(words, key=self._words.__getitem__):
            best: dict[int, float] = {}
            for phrase, weight in self._forms(word):
                for row, rank in self._run(_FOUND, (phrase,)) if looked_at < _MOST_ROWS else ():
                    best[row] = max(best.get(row, 0.0), weight * rank)
                looked_at += len(best)
            for row, rank in best.items():
                fits[row] = fits.get(row, 0.0) + rank
        return fits

    def _forms(self, word: str) -> list[tuple[str, float]]:
        """What to look for, and what each counts."""
        same = [(f'"{one}"', _SAME) for one in _SAME_AS.get(word, ())]
        if self._has(exact := f'"{word}"'):
            return [(exact, 1.0), *same]
        if same:
            return same
        if len(word) >= 3 and self._has(begins := f'"{word}"*'):
            return [(begins, _BEGINS)]
        if two := self._two(word):
            return [(f'"{one}"', _BEGINS) for one in two]
        return [(f'"{one}"', _MISSPELT) for one in _closest(word, self._words)]

    def _has(self, phrase: str) -> bool:
        return next(self._run(f"{_ANY} limit 1", (phrase,)), None) is not None

    def _two(self, word: str) -> tuple[str, str] | None:
        """``filesystem`` as ``file`` and ``system``, where those are known."""
        parts = ((word[:at], word[at:]) for at in range(3, len(word) - 2))
        return next((p for p in parts if p[0] in self._words and p[1] in self._words), None)

    # Taking up

    def _take_up(self, specs: tuple[ToolSpec, ...]) -> None:
        if specs is self._listed:
            return
        now = {spec.name: spec for spec in specs}
        for name, row in tuple(self._rows.items()):
            if now.get(name) is not self._specs[row]:
                self._forget(name, row)
        fresh = [spec for spec in specs if spec.name not in self._rows]
        self._run("begin")
        for spec in fresh:
            self._add(spec)
        self._run("commit")
        self._listed = specs

    def _add(self, spec: ToolSpec) -> None:
        self._last += 1
        texts = tuple(" ".join(words) for words in _columns(spec))
        self._run(_ADDED, (self._last, *texts))
        self._words.update(" ".join(texts).split())
        self._texts[self._last] = texts
        self._specs[self._last] = spec
        self._rows[spec.name] = self._last

    def _forget(self, name: str, row: int) -> None:
        self._run("delete from tools where rowid = ?", (row,))
        for word in " ".join(self._texts.pop(row)).split():
            self._words[word] -= 1
            if not self._words[word]:
                del self._words[word]
        del self._specs[row], self._rows[name]


class _Vectors:
    """The vectors of tools, made when they are first wanted."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._matrix: Any = None

    def near(self, model: meaning.Model, query: str, specs: Mapping[int, ToolSpec]) -> list[int]:
        """The rows that are near enough, nearest first."""
        if not specs:
            return []
        if self._rows != list(specs):
            self._make(model, specs)
        near = self._matrix @ model.vectors([query])[0]
        best = near.argpartition(-min(_CANDIDATES, len(near)))[-_CANDIDATES:]
        order = best[near[best].argsort()[::-1]]
        return [self._rows[place] for place in order if near[place] >= _LEAST_NEAR]

    def _make(self, model: meaning.Model, specs: Mapping[int, ToolSpec]) -> None:
        kept = {row: self._matrix[place] for place, row in enumerate(self._rows) if row in specs}
        fresh = [row for row in specs if row not in kept]
        made = model.vectors([_said(specs[row]) for row in fresh])
        kept.update(zip(fresh, made, strict=True))
        self._rows = list(specs)
        self._matrix = model.numpy.stack([kept[row] for row in self._rows])


def words_of(query: str, *, common: bool = False) -> list[str]:
    """The words of a query that are worth looking for, each once; or all of them."""
    found = _words(query)
    telling = found if common else [word for word in found if word not in _COMMON]
    return list(dict.fromkeys(telling or found))[:_MOST_WORDS]


def _opened() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.execute(
            f"create virtual table tools using fts5 ({', '.join(_WEIGHTS)}, tokenize='{_TOKENS}')"
        )
    except sqlite3.OperationalError as exc:
        raise MissingPart("the SQLite of this Python has no full-text search (FTS5)") from exc
    return connection


def _columns(spec: ToolSpec) -> Iterator[list[str]]:
    yield _words(spec.name)
    yield _words(spec.title or "")
    yield [*_words(" ".join(spec.tags)), *_words(spec.category)]
    yield from map(_words, _split(spec.description))
    yield _words(
        " ".join(f"{p.name} {p.description}" for p in parameters(spec.input_schema).values())
    )


def _words(text: str) -> list[str]:
    return [one[:_LONGEST_WORD].lower() for one in _WORD.findall(_HUMP.sub(" ", text))]


def _said(spec: ToolSpec) -> str:
    """What a tool is, in a few words."""
    summary, _ = _split(spec.description)
    return f"{' '.join(_words(spec.title or spec.name))}. {summary} {' '.join(spec.tags)}"


def _split(description: str) -> tuple[str, str]:
    """Its first sentence, and the rest."""
    summary, *rest = _SENTENCE.split(description[:_MOST_READ].strip(), maxsplit=1)
    return summary, " ".join(rest)


def _fused(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Rows with what their places in the rankings come to (reciprocal rank fusion): 1 is the first
    place in all of them.
    """
    fits: dict[int, float] = {}
    for ranking in rankings:
        for place, row in enumerate(ranking[:_CANDIDATES]):
            share = (_SPREAD + 1) / (_SPREAD + 1 + place) / len(rankings)
            fits[row] = fits.get(row, 0.0) + share
    return fits


def _closest(word: str, known: Iterable[str]) -> list[str]:
    """The words that somebody may have meant who wrote this one."""
    most = 0 if len(word) < 4 else 1 if len(word) < 9 else 2
    letters = frozenset(word)
    distances = {
        one: distance
        for one in known
        if abs(len(one) - len(word)) <= most
        and (one[0] == word[0] or one[-1] == word[-1])
        and len(letters.symmetric_difference(one)) <= 2 * most
        if (distance := _distance(word, one)) <= most
    }
    least = min(distances.values(), default=0)
    return [one for one, distance in distances.items() if distance == least]


def _distance(a: str, b: str) -> int:
    """How many letters are wrong, missing, too many, or have changed places with a neighbour."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row = [i + 1]
        for j, y in enumerate(b):
            least = min(last[j] + (x != y), last[j + 1] + 1, row[j] + 1)
            if i and j and x == b[j - 1] and a[i - 1] == y:
                least = min(least, before[j - 1] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
