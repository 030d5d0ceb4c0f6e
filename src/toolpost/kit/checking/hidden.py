"""Text that a person does not see, or that gives a model orders: looked for in all that it reads.

Above: the list. Below: ``characters.py``. A pattern here has a bound on every repeat. What a good
author writes now and then (an emoji, a warning in capitals, "call that tool first") is no finding:
an alarm that rings for nothing is one that nobody hears.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from toolpost.characters import SEQUENCE, stripped
from toolpost.kit.checking.findings import Finding, Severity
from toolpost.kit.checking.subject import Path, Subject
from toolpost.plain import pointer
from toolpost.wording import short

_MOST: Final = 16_384
"""Characters of one text that are looked at; one that is longer is told of for that alone."""
_OBEYED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TURNING: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_WRITTEN_UNSEEN: Final = re.compile("[\U000e0001-\U000e007f\U000e0100-\U000e01ef]")
_FLAGS: Final = re.compile(
    "(?<=\U0001f3f4)\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|"
    "\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
"""Of England, Scotland and Wales: what makes them of a black flag are the same signs."""
_STRAY: Final = 4
"""So many characters without a look may come from a clumsy copy; more of them are a message."""
_COMMENT: Final = re.compile(r"<!--.{0,2000}?-->", re.S)
_MARK: Final = 60
"""Characters of a comment that may be a mark for some program."""
_PUSHED: Final = re.compile(r"(?:[ \t]{0,80}\n){20}|[ \t\u00a0]{200}")
_MIXED: Final = re.compile(r"[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/]{160}")

_CLEAR: Final = "Write only what a person can see."
_PLAIN: Final = "Take it out: a description says what the tool does, and orders nothing else."


class Rule(NamedTuple):
    """A phrase that has no business in a description."""

    what: str
    severity: Severity
    pattern: re.Pattern[str]


def _rule(what: str, severity: Severity, pattern: str) -> Rule:
    return Rule(what, severity, re.compile(pattern, re.IGNORECASE))


_GAP: Final = r"[\s_]{1,9}"
_SENTENCE: Final = r"(?:[^.\n]|\.(?=\S))"
_PLACES: Final = (
    r"(?:~/\.|\.ssh\b|id[_ ](?:rsa|ed25519|dsa)\b|\.env\b(?!\.example)|"
    r"/etc/(?:passwd|shadow)|\.aws\b|\.netrc\b|\.npmrc\b|\.kube\b|\.git-credentials|mcp\.json|"
    r"private key|seed phrase|(?:api|access|secret) keys?\b|passwords? of the user|"
    r"user'?s? (?:password|credential)s?|conversation history|chat history|"
    r"previous messages|system prompt)"
)
RULES: Final = (
    _rule(
        "it tells the model to forget what it was told",
        "error",
        rf"\b(?:ignore|disregard|forget|override|bypass){_GAP}(?:\w{{1,12}}{_GAP}){{0,3}}?"
        rf"(?:previous|prior|earlier|above|preceding|system|other){_GAP}"
        rf"(?:\w{{1,12}}{_GAP})?(?:instructions?|prompts?|rules|guidelines|directives)\b",
    ),
    _rule(
        "it tells the model to keep something from the user",
        "error",
        rf"\b(?:do{_GAP}not|don'?t|never|must{_GAP}not|without|avoid){_GAP}(?:ever{_GAP})?"
        rf"(?:tell|telling|inform|informing|notify|notifying|alert|alerting|reveal|revealing|"
        rf"mention|mentioning|disclose|disclosing|show|showing){_GAP}"
        rf"(?:(?:this|it|that|anything|any{_GAP}of{_GAP}this|about{_GAP}\w{{1,12}}){_GAP})?"
        rf"(?:to{_GAP})?(?:the{_GAP}|your{_GAP})?(?:end{_GAP})?(?:users?|humans?|person)\b"
        rf"(?!{_GAP}(?:interface|id|name|agent)\b)",
    ),
    _rule(
        "it wants something done behind the user's back",
        "error",
        rf"\b(?:without|so{_GAP}that){_GAP}the{_GAP}user(?:'s)?{_GAP}"
        rf"(?:knowing|knowledge|noticing|does{_GAP}not{_GAP}(?:know|notice))\b"
        rf"|\b(?:keep|hide){_GAP}(?:this|it){_GAP}(?:secret|hidden)?{_GAP}?from{_GAP}the{_GAP}user\b",
    ),
    _rule(
        "it asks for what is none of its business",
        "error",
        rf"\b(?:read|reading|open|cat|send|include|pass|paste|upload|attach|provide|append|put|"
        rf"copy|leak|exfiltrate|forward|contents?{_GAP}of|content{_GAP}from)\b"
        rf"{_SENTENCE}{{0,60}}?{_PLACES}{_SENTENCE}{{0,80}}?"
        rf"\b(?:as|in|into|to|with|before|first|parameter|argument|here|otherwise|or)\b",
    ),
    _rule(
        "it speaks to the model as its system does",
        "error",
        r"<\|(?:im_start|im_end|system|assistant)\|>|\[/?INST\]|<</?SYS>>",
    ),
    _rule(
        "it marks a part as coming from somebody else",
        "warning",
        r"<(?:system|system[-_]prompt|assistant|instructions?)>\s",
    ),
    _rule(
        "it tells the model who to be",
        "warning",
        rf"\byou{_GAP}are{_GAP}now{_GAP}(?:a|an|in|the|no{_GAP}longer)\b"
        rf"|\b(?:new|updated|real){_GAP}(?:system{_GAP})?instructions?\s?:"
        rf"|\b(?:print|reveal|repeat|output|leak){_GAP}(?:your|the){_GAP}system{_GAP}prompt\b",
    ),
    _rule(
        "it wants to be called before every other tool",
        "warning",
        rf"\b(?:before|prior{_GAP}to){_GAP}(?:using{_GAP}|calling{_GAP}|running{_GAP}|invoking{_GAP})?"
        rf"(?:any|every|all){_GAP}(?:of{_GAP}the{_GAP})?other{_GAP}tools?\b"
        rf"|\b(?:instead{_GAP}of|rather{_GAP}than){_GAP}(?:any|every|all){_GAP}other{_GAP}tools?\b",
    ),
)  # fmt: skip
_ANY: Final = re.compile(
    r"ignore|disregard|forget|override|bypass|tell|inform|notif|alert|reveal|mention|disclos|show"
    r"|knowing|knowledge|notic|secret|hid|~/|\.ssh|id[_ ]|\.env|/etc/|\.aws|\.n|\.kube|\.git|mcp"
    r"|key|passw|history|messages|prompt|seed|credential|<|\[|you|instruction|tool",
    re.IGNORECASE,
)
"""Whether any rule could apply: most texts are done with at once."""


def hidden(subject: Subject) -> Iterator[Finding]:
    """What a person would not see."""
    for at, text in subject.texts():
        if text.isascii() and text.isprintable() and len(text) < 200 and "<" not in text:
            continue
        for severity, what in _unseen(text[:_MOST]):
            yield _found("hidden-text", severity, at, what, _CLEAR)


def _unseen(text: str) -> Iterator[tuple[Severity, str]]:
    if SEQUENCE.search(text) or _OBEYED.search(text):
        yield "error", "it holds control characters, which a terminal obeys"
    if not text.isascii():
        yield from _unseen_signs(text)
    if found := _COMMENT.search(text):
        severity: Severity = "warning" if len(found[0]) > _MARK else "hint"
        yield severity, f"a comment that only a model reads: {short(found[0])!r}"
    if _PUSHED.search(text) and text.strip():
        yield "warning", "a gap pushes what follows out of sight"


def _unseen_signs(text: str) -> Iterator[tuple[Severity, str]]:
    text = _FLAGS.sub("", text)
    if found := _WRITTEN_UNSEEN.findall(text):
        yield "error", f"{len(found)} characters that only a model reads: {_decoded(found)!r}"
        return
    if _TURNING.search(text):
        yield "error", "characters that turn the direction of writing: it is not read as it looks"
        return
    calm = SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    many = len(_OBEYED.sub("", calm)) - len(stripped(text))
    if many > _STRAY:
        yield "error", f"{many} characters that nobody sees"
    elif many > 0:
        yield "warning", f"{many} of its characters nobody sees"
    if found := _MIXED.findall(text):
        yield "warning", f"Latin and Cyrillic letters in one word: {short(found[0])!r}"


def _decoded(signs: list[str]) -> str:
    """Letters that were written as tags, as what they say."""
    said = (chr(ord(sign) - 0xE0000) if ord(sign) < 0xE0080 else "?" for sign in signs)
    return short("".join(said))


def suspicious(subject: Subject) -> Iterator[Finding]:
    """What gives orders, or could: read as the model would, so without what hides in it."""
    for at, text in subject.texts():
        if len(text) < 12:
            continue
        seen = stripped(text[:_MOST])
        if at[-1:] == (text,):  # the name of a parameter, which a model is to fill in
            seen = f"{seen.replace('_', ' ')} as parameter"
        if _ANY.search(seen):
            for rule in RULES:
                if found := rule.pattern.search(seen):
                    what = f"{rule.what}: {short(found[0])!r}"
                    yield _found("suspicious-text", rule.severity, at, what, _PLAIN)
        if len(text) > _MOST:
            what = f"{len(text):,} characters, of which {_MOST:,} were looked at"
            fix = "Say it in fewer words: nobody reads so many, but a model does."
            yield _found("suspicious-text", "warning", at, what, fix)
        if at[-1:] in (("description",), ("title",)) and _is_encoded(seen):
            what = "a long text that is encoded: nobody can tell what it says"
            yield _found("suspicious-text", "warning", at, what, "Write it out, or take it out.")


def _is_encoded(text: str) -> bool:
    found = _ENCODED.search(text)
    return found is not None and len(set(found[0])) > 20


def _found(item: str, severity: Severity, at: Path, what: str, fix: str) -> Finding:
    return Finding(item=item, severity=severity, at=pointer(at), what=what, fix=fix)
