"""What people write: Markdown, reStructuredText, mail, plain text.

Above: ``tool.py``. Below: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolpost.builtin.classify.guess import Guess, Sample, share

_MARKDOWN: Final = tuple(
    (weight, re.compile(pattern))
    for weight, pattern in (
        (2.0, r"#{1,6} \S"),
        (2.0, r"```"),
        (1.0, r"\s{0,8}(?:[-*+]|\d{1,3}\.) \S"),
        (1.5, r".*\[[^\]]{1,200}\]\([^)\s]{1,500}\)"),
        (1.0, r".*\*\*[^*]{1,200}\*\*"),
        (0.7, r".*`[^`]{1,200}`"),
        (1.5, r"\|.*\|\s*$"),
        (0.7, r"> "),
        (1.5, r"!\[[^\]]{0,200}\]\("),
        (1.5, r"(?:={3,}|-{3,})\s*$"),
    )
)
_RST: Final = re.compile(
    r"\.\. [\w-]+::|:[\w-]+:`[^`]{1,200}`|\.\. _[\w -]+:|\w .*\S::$|`[^`<]{1,200}<[^>]{1,300}>`__?"
)
_LITERAL: Final = re.compile(r"``[^`]{1,200}``")
_UNDERLINE: Final = re.compile(r"([=~^\"*+#-])\1{3,}\s*$")
_MAIL: Final = re.compile(
    r"(?:From|To|Subject|Date|Message-ID|Received|MIME-Version|Return-Path): ", re.I
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def detect(sample: Sample) -> Iterator[Guess]:
    for detector in (_mail, _rst, _markdown, _plain):
        found = detector(sample)
        if found is not None:
            yield found


def _mail(sample: Sample) -> Guess | None:
    head = sample.lines[:40]
    blank = next((n for n, line in enumerate(head) if not line.strip()), len(head))
    fields = [line for line in head[:blank] if _MAIL.match(line)]
    if len(fields) >= 3 and any(line.lower().startswith("from:") for line in fields):
        return Guess("document", "mail", 0.95)
    return None


def _rst(sample: Sample) -> Guess | None:
    signs = sum(_RST.search(line) is not None for line in sample.filled)
    titles = sum(_UNDERLINE.match(line) is not None for line in sample.filled)
    titles += sum(_LITERAL.search(line) is not None for line in sample.filled)
    if signs and signs + titles >= 2 and "\n```" not in sample.head:
        return Guess("document", "restructuredtext", min(0.9, 0.7 + 0.05 * signs))
    return None


def _markdown(sample: Sample) -> Guess | None:
    lines = sample.filled[:500]
    kinds, total = set(), 0.0
    for line, before, after in zip(lines, ["", *lines], [*lines[1:], ""], strict=False):
        if line[0] == "#" and (before[:1] == "#" or after[:1] == "#"):
            continue  # a comment over several lines, not a title
        for number, (weight, pattern) in enumerate(_MARKDOWN):
            if pattern.match(line):
                kinds.add(number)
                total += weight
                break
    if total < 2 or not lines or (len(kinds) < 2 and not ({0, 1, 3, 6} & kinds)):
        return None
    sure = 0.5 + 0.08 * len(kinds) + 0.2 * min(1.0, total / len(lines))
    if sample.name.lower().endswith((".md", ".markdown")):
        sure += 0.2
    return Guess("document", "markdown", min(0.95, sure))


def _plain(sample: Sample) -> Guess | None:
    text = sample.text[:20_000]
    words = sum(len(word) for word in _WORD.findall(text))
    lettered = words / max(1, len(text))
    long = share(sample.filled[:200], lambda line: line.count(" ") >= 4)
    return Guess("text", "plain text", 0.3 + 0.2 * min(1.0, lettered) + 0.1 * long)
