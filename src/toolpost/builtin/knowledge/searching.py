"""Which passages answer a query: by its words and, where that can be had, by its meaning.

Above: ``tool.py``. Below: ``index.py`` and ``meaning.py``. A score is between 0 and 1: how many of
the query's words a passage has, the rare ones counting more, and how well SQLite ranks it; with the
meaning, that counts for four tenths.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

from toolpost import meaning
from toolpost.builtin.knowledge.index import Found, Index, words_of

_CANDIDATES: Final = 60
_OF_ONE_DOCUMENT: Final = 3
_BY_MEANING: Final = 0.4
_BEGINNING_ONLY: Final = 0.7
_MOST_VECTORS: Final = 300_000
_LEAST: Final = 0.05


def search(index: Index, query: str, *, limit: int, by_meaning: bool) -> list[tuple[Found, float]]:
    """The best passages with their scores."""
    words = words_of(query)
    scores = _by_words(index, words)
    model = meaning.model() if by_meaning else None
    if model is not None:
        scores = _with_meaning(index, model, query, scores)
    best = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
    best = [one for one in best if one[1] >= _LEAST][: _CANDIDATES + limit]
    told = index.found([number for number, _ in best], words)
    return _spread([(found, scores[found.id]) for found in told], limit)


def _spread(found: list[tuple[Found, float]], limit: int) -> list[tuple[Found, float]]:
    """No document takes all the places, unless there is nothing else."""
    seen: dict[str, int] = {}
    first: list[tuple[Found, float]] = []
    rest: list[tuple[Found, float]] = []
    for one in found:
        seen[one[0].path] = seen.get(one[0].path, 0) + 1
        (first if seen[one[0].path] <= _OF_ONE_DOCUMENT else rest).append(one)
    chosen = [*first, *rest][:limit]
    return sorted(chosen, key=lambda one: -one[1])


def _by_words(index: Index, words: Sequence[str]) -> dict[int, float]:
    if not words:
        return {}
    exact = _scored(index, words, begins=False)
    if len(exact) >= _CANDIDATES // 4:
        return exact
    long = [word for word in words if len(word) > 3]
    longer = _scored(index, long, begins=True)
    fresh = [number for number in longer if number not in exact]
    for found in index.found(fresh, ()):
        text = f"{found.title} {found.heading} {found.text}".lower()
        if any(word in text for word in long):  # not only what is left of it without its ending
            exact[found.id] = longer[found.id] * _BEGINNING_ONLY
    return exact


def _scored(index: Index, words: Sequence[str], *, begins: bool) -> dict[int, float]:
    hits = index.matching(words, most=_CANDIDATES, begins=begins) if words else []
    if not hits:
        return {}
    ids = [hit.id for hit in hits]
    _, total = index.counts()
    weights = {word: _rarity(index.spread(word), total) for word in words}
    has: dict[int, float] = dict.fromkeys(ids, 0.0)
    for word in words:
        for number in index.holding(word, ids, begins=begins):
            has[number] += weights[word]
    whole = max(sum(weights[word] for word in words), 1e-9)
    best = max(hit.rank for hit in hits) or 1.0
    return {hit.id: has[hit.id] / whole * (0.75 + 0.25 * max(0.0, hit.rank) / best) for hit in hits}


def _rarity(spread: int, total: int) -> float:
    """What a word says: much if few passages have it, little if all have it or none."""
    if spread == 0:
        return 0.5
    return max(0.2, log(1 + (total - spread + 0.5) / (spread + 0.5)))


_kept: dict[tuple[str, int], tuple[list[int], list[bytes]]] = {}
"""The vectors of the index that was searched last, which a worker keeps between two calls."""


def _with_meaning(
    index: Index, model: meaning.Model, query: str, scores: dict[int, float]
) -> dict[int, float]:
    now = index.path, index.generation
    if now not in _kept:
        rows = index.vectors()
        _kept.clear()
        _kept[now] = ([row[0] for row in rows], [row[1] for row in rows])
    ids, packed = _kept[now]
    if not ids or len(ids) > _MOST_VECTORS:
        return scores
    near = model.near(query, packed)
    order = near.argsort()[::-1][:_CANDIDATES]
    nearest = {ids[place]: float(near[place]) for place in order}
    at = {number: place for place, number in enumerate(ids)}
    mixed = {}
    for number in {*scores, *nearest}:
        by_meaning = float(near[at[number]]) if number in at else 0.0
        mixed[number] = (1 - _BY_MEANING) * scores.get(number, 0.0) + _BY_MEANING * by_meaning
    return mixed
