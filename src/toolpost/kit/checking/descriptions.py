"""Whether a model, and a person, can tell from the words what a tool does and takes.

Above: the list. Below: nothing but words. It refuses to judge style: a remark here is about
something that is missing, and what is only short is a hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.kit.checking.findings import Finding, Severity
from toolpost.kit.checking.subject import Subject
from toolpost.kit.checking.verbs import VERBS
from toolpost.schema.parameters import Parameter, parameters
from toolpost.testing.report import NotApplicable
from toolpost.wording import short

_LONG: Final = 4_096
_FEW: Final = 4
_MANY_PARAMETERS: Final = 20
_WORD: Final = re.compile(r"[A-Za-z]+|\d+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_EMPTY: Final = frozenset(
    ("a", "an", "the", "of", "to", "for", "from", "in", "on", "by", "with", "and", "or", "all",
     "this", "that", "it", "its", "tool", "function", "operation", "method", "api", "endpoint")
)  # fmt: skip
_PLACEHOLDER: Final = re.compile(
    r"\W*(?:todo|tbd|fixme|xxx+|n/?a|none|null|undefined|lorem ipsum.{0,400}|"
    r"(?:tool |a |the |no |add |your )?description(?: here| goes here)?|string|test)\W*",
    re.IGNORECASE | re.S,
)
_METHOD_AND_PATH: Final = re.compile(r"(?:GET|PUT|POST|PATCH|DELETE|HEAD|OPTIONS) /\S*")
_OPAQUE: Final = re.compile(
    r"(?!id|to|ip|os|db|cc)[a-z]{1,2}|(?:arg|args|argument|param|parameter|input|value|val|var|data|obj|object|thing|"
    r"item|foo|bar|tmp|temp|misc|info|stuff|payload|opt|options|config|flag|kwargs|field)s?_?\d*|"
    r"[a-z]\d+",
    re.IGNORECASE,
)
_GENERIC_NAMES: Final = frozenset(
    ("tool", "run", "do", "process", "handle", "main", "function", "func", "action", "test", "foo",
     "call", "my_tool", "mytool", "helper", "util", "utils")
)  # fmt: skip


def words_of(name: str) -> list[str]:
    """``getUserByID`` and ``get-user_by.id`` are the same four words."""
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", name))]


def stem(word: str) -> str:
    """``stores``, ``stored`` and ``storing`` are one word, roughly."""
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return (word[: -len(ending)] + instead).removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


_VERB_STEMS: Final = frozenset(map(stem, _WORD.findall(VERBS)))


def description(subject: Subject) -> Iterator[Finding]:
    text = subject.description.strip()
    if not text:
        return  # the item ``documentation`` says so

    def found(severity: Severity, what: str, fix: str) -> Finding:
        return _finding(subject, "description", severity, what, fix)

    words = words_of(text)
    if _PLACEHOLDER.fullmatch(text):
        fix = "Say in a sentence what it does and when to use it."
        yield found("warning", f"a place that was never filled in: {short(text)!r}", fix)
    elif _METHOD_AND_PATH.fullmatch(text):
        fix = "Give the operation a summary or a description: what it does, in words."
        yield found("warning", f"nothing is said of it but {short(text)!r}", fix)
    elif _is_latin(text) and len(words) == 1:
        fix = "Say in a sentence what it does and when to use it."
        yield found("warning", f"one word: {short(text)!r}", fix)
    elif repeated := _repeats(subject.name, words):
        fix = "Say what the name does not: what comes back, and when to use it."
        yield found(repeated, f"it only repeats the name: {short(text)!r}", fix)
    elif _is_latin(text) and len(words) < _FEW:
        fix = "A sentence more helps a model to choose: what comes back, when to use it."
        yield found("hint", f"{len(words)} words: {short(text)!r}", fix)
    elif _is_latin(text) and not _VERB_STEMS.intersection(map(stem, words)):
        yield found("hint", "it names no action", "Begin with a verb that says what it does.")
    if len(text) > _LONG:
        fix = "Say the most important things here, the rest where it is asked for."
        yield found("warning", f"{len(text):,} characters, which are read at every call", fix)


def _repeats(name: str, words: list[str]) -> Severity | None:
    """Word by word, or at least no word but those of the name."""
    told = [stem(word) for word in words if word not in _EMPTY]
    known = [stem(word) for word in words_of(name) if word not in _EMPTY]
    if words and (told == known or "".join(words) == "".join(words_of(name))):
        return "warning"
    return "hint" if words and set(told) <= set(known) else None


def _is_latin(text: str) -> bool:
    """What is written in other letters has words that are not known here."""
    return sum(char.isascii() for char in text) > 0.8 * len(text)


def name(subject: Subject) -> Iterator[Finding]:
    plain = subject.name.rpartition(".")[2].lower()
    if plain in _GENERIC_NAMES or (len(plain) < 3 and plain.isalpha()):
        fix = "Name it for what it does to what: read_file, search_orders."
        yield _finding(subject, "name", "hint", f"{short(plain)!r} says little", fix)
    if subject.form == "mcp" and re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", subject.name) is None:
        fix = "Use up to 128 of A-Z, a-z, 0-9, '_', '-' and '.': clients may refuse others."
        what = f"not a name that every client takes: {short(subject.name)!r}"
        yield _finding(subject, "name", "warning", what, fix)
    elif len(subject.name) > 64:
        fix = "Stay within 64 characters: some vendors take no more, and clients add a prefix."
        yield _finding(subject, "name", "warning", f"{len(subject.name)} characters", fix)


def parameters_said(subject: Subject) -> Iterator[Finding]:
    """Every parameter says what it is, unless its name does."""
    if subject.spec is None:
        raise NotApplicable("the definition is no tool")
    opaque: list[str] = []
    bare: list[str] = []
    found = parameters(subject.input_schema)
    for key, one in found.items():
        if not _is_described(one):
            (opaque if _OPAQUE.fullmatch(key) else bare).append(key)
    within = ("properties",)
    if opaque:
        yield _finding(
            subject, "parameters", "warning", f"nobody can tell what {_listed(opaque)} means",
            "Describe it, or give it a name that says what it is.", *within, opaque[0],
        )  # fmt: skip
    if bare:
        yield _finding(
            subject, "parameters", "hint", f"no description: {_listed(bare)}",
            "Say what each parameter is, with an example where its form matters.",
            *within, bare[0],
        )  # fmt: skip
    if len(found) > _MANY_PARAMETERS:
        yield _finding(
            subject, "parameters", "hint", f"{len(found)} parameters",
            "Models fill in few parameters better than many: leave out what is hardly used.",
            *within,
        )  # fmt: skip


def _is_described(one: Parameter) -> bool:
    """By a description, here or on one of its alternatives, or by values that speak."""
    schema = one.schema
    branches = [b for key in ("anyOf", "oneOf", "allOf") for b in _as_list(schema.get(key))]
    if any(_has_words(each) for each in (schema, *branches)):
        return True
    items = schema.get("items")
    inside = items if isinstance(items, Mapping) else schema
    return "enum" in schema or "const" in schema or _tells_of_itself(inside)


def _tells_of_itself(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and any(map(_has_words, properties.values()))


def _has_words(schema: Any) -> bool:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return isinstance(text, str) and bool(text.strip())


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(names: list[str]) -> str:
    shown = ", ".join(short(one, 30) for one in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _finding(
    subject: Subject, item: str, severity: Severity, what: str, fix: str, *at: str
) -> Finding:
    field = {"parameters": "input_schema"}.get(item, item)
    return Finding(item=item, severity=severity, at=subject.at(field, *at), what=what, fix=fix)
