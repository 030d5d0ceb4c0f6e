"""What is known of all tools together: names, exports, what was tried, where they are called.

Above: the items of the list, which judge one tool with it. Below: ``exporters``, ``testing``. It is
made once for a check, before the first tool is judged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from toolpost.exporters import export
from toolpost.kit.checking.descriptions import words_of
from toolpost.kit.checking.subject import Subject
from toolpost.testing import Report

_VENDORS: Final = ("openai", "anthropic", "gemini")
_LOST: Final = re.compile(r"left out|any value|anywhere|more than one may fit|alike")
_LOOKS: Final = (("rn", "m"), ("vv", "w"), ("1", "l"), ("i", "l"), ("0", "o"))


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """The road that calls go, where it is known: what the config puts around the tools."""

    sanitizes: bool
    pinned: frozenset[str] | None = None
    """The names in the lock; ``None`` without one."""


class Told(msgspec.Struct, frozen=True):
    """What a vendor's form cannot say of a tool."""

    vendor: str
    where: str
    what: str
    left_out: bool = False

    @property
    def loses(self) -> bool:
        """Whether it takes more there than it says here; most rewrites keep what was meant."""
        own = self.where.rpartition("/")[2].startswith("x-")
        return not (self.left_out or own) and _LOST.search(self.what) is not None


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """``alike`` has the names by what they look like, ``tried`` the reports of real runs."""

    alike: Mapping[str, Sequence[str]]
    told: Mapping[str, Sequence[Told]]
    tokens: Mapping[str, int]
    tried: Mapping[str, Report]
    pipeline: Pipeline | None
    prefix: str
    """The word that all names begin with, if there is one."""


def around(
    subjects: Sequence[Subject], *, pipeline: Pipeline | None, tried: Mapping[str, Report]
) -> Around:
    """What the tools have in common, and what becomes of them elsewhere."""
    alike: dict[str, list[str]] = defaultdict(list)
    for one in subjects:
        alike[look(one.name)].append(one.name)
    told, tokens = _exported(subjects)
    first = {words[0] for one in subjects if (words := words_of(one.name))}
    prefix = first.pop() if len(first) == 1 and len(subjects) > 1 else ""
    return Around(
        alike=alike, told=told, tokens=tokens, tried=tried, pipeline=pipeline, prefix=prefix
    )


def look(name: str) -> str:
    """A name as a reader in a hurry sees it."""
    text = name.casefold()
    for sign in "-._ ":
        text = text.replace(sign, "")
    for one, other in _LOOKS:
        text = text.replace(one, other)
    return text


def _exported(subjects: Sequence[Subject]) -> tuple[dict[str, list[Told]], dict[str, int]]:
    """By the name in the spec: what each vendor's form has to leave out, and the cost."""
    specs = [one.spec for one in subjects if one.spec is not None]
    told: dict[str, list[Told]] = defaultdict(list)
    tokens: dict[str, int] = {}
    for vendor in _VENDORS:
        made = export(specs, vendor)
        for note in made.notes:
            told[note.tool].append(Told(vendor, note.where, note.what))
        for note in made.left_out:
            told[note.tool].append(Told(vendor, note.where, note.what, left_out=True))
        tokens = dict(made.tokens) | tokens
    return told, tokens
