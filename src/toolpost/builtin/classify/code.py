"""Source code: which language, by the words and marks that only it has.

Above: ``tool.py``. Below: nothing. Code is never parsed: every language has some lines that look
like it, and they are counted. A file's ending counts where it is known, but never alone.
"""

from __future__ import annotations

import re
from math import sqrt
from typing import Final

from toolpost.builtin.classify.guess import Guess, Sample
from toolpost.builtin.classify.languages import LANGUAGES, Signs

_LINES: Final = 600


_ENDINGS: Final = {
    "py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript", "jsx": "javascript",
    "ts": "typescript", "tsx": "typescript", "java": "java", "kt": "kotlin", "c": "c", "h": "c",
    "cc": "cpp", "cpp": "cpp", "hpp": "cpp", "cs": "csharp", "go": "go", "rs": "rust", "rb": "ruby",
    "php": "php", "sh": "shell", "bash": "shell", "ps1": "powershell", "sql": "sql", "css": "css",
    "scss": "css", "scala": "scala", "swift": "swift", "lua": "lua", "pl": "perl", "r": "r",
    "hs": "haskell", "ex": "elixir", "exs": "elixir", "mk": "makefile", "proto": "protobuf",
    "graphql": "graphql", "diff": "diff", "patch": "diff",
}  # fmt: skip
_SHEBANGS: Final = (
    ("python", "python"), ("node", "javascript"), ("bash", "shell"), ("/sh", "shell"),
    ("zsh", "shell"), ("ruby", "ruby"), ("perl", "perl"), ("php", "php"), ("lua", "lua"),
    ("pwsh", "powershell"), ("Rscript", "r"),
)  # fmt: skip


def detect(sample: Sample) -> Guess | None:
    """The language of a text that is code."""
    lines = _unfenced(sample.filled[:_LINES])
    if lines and lines[0].startswith("#!"):
        for word, language in _SHEBANGS:
            if word in lines[0]:
                return Guess("source_code", language, 0.98)
    lines = _uncommented(lines)
    if not lines:
        return None
    scores = {name: _score(lines, signs) for name, signs in LANGUAGES.items()}
    if (ending := named(sample.name)) is not None:
        scores[ending] = scores[ending] * 1.5 + 2
    _settle(scores, lines)
    language = max(scores, key=lambda name: scores[name])
    best = scores[language]
    fitting = _fitting(lines, LANGUAGES[language])
    if best < 4 or fitting < 0.05 or (best < 7 and fitting < 0.3):
        return None
    others = sorted(scores.values(), reverse=True)[1]
    lead = (best - min(best, others)) / best
    sure = (
        0.55 + 0.2 * min(1.0, best / 20) + 0.12 * min(1.0, fitting * 3) + 0.1 * min(1.0, lead * 2)
    )
    return Guess("source_code", language, min(0.97, sure))


def named(name: str) -> str | None:
    """The language that a file's name tells."""
    return _ENDINGS.get(name.rpartition(".")[2].lower()) if "." in name else None


_COMMENT: Final = re.compile(
    r"\s*(?://|\*|#(?![!]|include|define|if|endif|else|pragma|\[|\w)|--(?!-)|;;|%%)"
)
_QUOTES: Final = ('"""', "'''")


def _uncommented(lines: list[str]) -> list[str]:
    """Without lines that are comments in one language or another, and without long texts."""
    kept: list[str] = []
    until = ""
    for line in lines:
        bare = line.strip()
        if until:
            until = "" if until in bare else until
        elif bare.startswith("/*"):
            until = "" if "*/" in bare else "*/"
        elif bare.startswith(_QUOTES):
            until = "" if bare.count(bare[:3]) > 1 else bare[:3]
        elif not _COMMENT.match(line):
            kept.append(line)
    return kept


def _unfenced(lines: list[str]) -> list[str]:
    """Without what stands between fences: code in a text about code."""
    kept, fenced = [], False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return kept


def _settle(scores: dict[str, float], lines: list[str]) -> None:
    """Languages that have all of another one, and one that is all colons."""
    if scores["typescript"] > 4:
        scores["typescript"] += scores["javascript"]
    if scores["cpp"] > 4:
        scores["cpp"] += scores["c"] * 0.8
    if not _has_recipes(lines):
        scores["makefile"] = 0.0


_TARGET: Final = re.compile(
    r"[\w./%$(){}-]+(?: [\w./%-]+)*\s*:(?![=:])(?:\s+[\w./%$(){}| -]+)?\s*$"
)


def _has_recipes(lines: list[str]) -> bool:
    return any(
        line.startswith(".PHONY") or (_TARGET.match(line) and following.startswith("\t"))
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
    )


def _score(lines: list[str], signs: Signs) -> float:
    """For each line the first sign that fits; one that is seen often counts less each time."""
    seen = [0] * len(signs)
    for line in lines:
        for number, (_, pattern) in enumerate(signs):
            if pattern.match(line):
                seen[number] += 1
                break
    return sum(
        weight * sqrt(min(16, count)) for (weight, _), count in zip(signs, seen, strict=True)
    )


def _fitting(lines: list[str], signs: Signs) -> float:
    fits = sum(any(pattern.match(line) for _, pattern in signs) for line in lines)
    return fits / len(lines)
