"""What makes a tool better or worse for the models and people that use it, beyond its words.

Above: ``checklist.py``. Below: the subject, schemas, and what vendors make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolpost.errors import InvalidSchema
from toolpost.kit.checking.around import Around
from toolpost.kit.checking.descriptions import words_of
from toolpost.kit.checking.findings import Finding, Severity
from toolpost.kit.checking.subject import Subject
from toolpost.plain import pointer
from toolpost.schema import Schema, faulty_defaults
from toolpost.schema.tree import Tree
from toolpost.spec import TIERS
from toolpost.testing.report import NotApplicable
from toolpost.wording import short

_DEAR: Final = 1_000
_TOO_DEAR: Final = 3_000
_CHANGING: Final = re.compile(
    r"cancel|delete|destroy|insert|install|kill|overwrite|publish|purge|rename|revoke|send"
    r"|terminate|truncate|uninstall|update|upload|upsert|write"
)
"""Not what a function may do to its arguments: to add, move or replace can be to compute."""
_MOST_SHOWN: Final = 3


def effects(subject: Subject, around: Around) -> Iterator[Finding]:
    """Who has to decide about a call knows what it may do."""
    if subject.spec is None:
        raise NotApplicable("the definition is no tool")
    yield from _unsaid_in_mcp(subject) if subject.form == "mcp" else _unsaid(subject)
    words = [one for one in words_of(subject.name.rpartition(".")[2]) if one != around.prefix]
    if subject.effects == "read" and words and _CHANGING.fullmatch(words[0]):
        said = "readOnlyHint" if subject.form == "mcp" else "effects: read"
        yield _found(
            subject, "effects", "warning", f"it says {said}, and its name says {words[0]!r}",
            "Say what it does: what only reads is called, repeated and cached without a question.",
            "effects",
        )  # fmt: skip


def _unsaid(subject: Subject) -> Iterator[Finding]:
    spec = subject.spec
    assert spec is not None, "it was looked at"
    if subject.form == "openapi":
        return  # by the method
    fix = "Say tier and effects: retries, approvals and caches go by them."
    if subject.said is not None and (missing := {"tier", "effects"} - subject.said):
        held = f"tier {spec.tier} ({TIERS[spec.tier].lower()}), effects {spec.effects}"
        what = f"it does not say {' and '.join(sorted(missing))}: {held} hold"
        yield _found(subject, "effects", "warning", what, fix, sorted(missing)[0])
    elif subject.said is None and (spec.tier, spec.effects) == (1, "once"):
        what = "tier 1 and effects once, as if nothing had been said"
        yield _found(subject, "effects", "hint", what, fix, "effects")


def _unsaid_in_mcp(subject: Subject) -> Iterator[Finding]:
    hints = subject.hints
    if hints.get("readOnlyHint") is True:
        if hints.get("destructiveHint") is True:
            yield _found(
                subject, "effects", "warning", "it says readOnlyHint and destructiveHint",
                "Say one of them: what only reads destroys nothing.", "effects",
            )  # fmt: skip
    elif "readOnlyHint" not in hints and "destructiveHint" not in hints:
        yield _found(
            subject, "effects", "warning", "it does not say what it does to the world",
            "Say annotations with readOnlyHint, or destructiveHint and idempotentHint: without "
            "them clients take it for destructive.",
            "effects",
        )  # fmt: skip
    elif "destructiveHint" not in hints:
        yield _found(
            subject, "effects", "hint", "it does not say destructiveHint, so it counts as true",
            "Say destructiveHint: false if it only adds.", "effects",
        )  # fmt: skip


def output(subject: Subject, around: Around) -> Iterator[Finding]:
    if subject.spec is None:
        raise NotApplicable("the definition is no tool")
    if subject.spec.output_schema is None:
        yield _found(
            subject, "output-schema", "hint", "it does not say what it returns",
            "Add a schema of the output: programs and models can rely on it.", "output_schema",
        )  # fmt: skip
        raise NotApplicable("it may return anything, as far as it says")


def examples(subject: Subject, around: Around) -> Iterator[Finding]:
    """Whatever is shown as an example can be used as one."""
    if subject.spec is None:
        raise NotApplicable("the definition is no tool")
    count = len(subject.spec.examples)
    schema = Schema(subject.spec.input_schema)
    for index, shown in enumerate(subject.spec.examples):
        if wrong := schema.faults(shown):
            yield _found(
                subject, "examples", "error", f"it does not fit the schema: {wrong[0].text()}",
                "Mend the example or the schema: models copy examples.",
                "examples", str(index),
            )  # fmt: skip
    for at, shown, inner in _shown(subject.input_schema):
        count += 1
        if faults := _faults(inner, shown, subject.input_schema):
            yield _found(
                subject, "examples", "warning", f"it does not fit its schema: {faults}",
                "Mend the example or the schema: models copy examples.",
                "input_schema", *map(str, at),
            )  # fmt: skip
    if not count:
        raise NotApplicable("it shows none")


def _shown(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    for place in Tree(dict(schema)).places():
        for index, one in enumerate(_as_list(place.schema.get("examples"))):
            yield (*place.at, "examples", index), one, place.schema


def _faults(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any]) -> str:
    defined = {key: root[key] for key in ("$defs", "definitions", "$schema") if key in root}
    try:
        found = Schema({**defined, **schema}).faults(value)
    except InvalidSchema:  # a reference that leads elsewhere than to the definitions
        return ""
    return found[0].text() if found else ""


def tokens(subject: Subject, around: Around) -> Iterator[Finding]:
    cost = None if subject.spec is None else around.tokens.get(subject.spec.name)
    if cost is None:
        raise NotApplicable("no vendor's form can say it")
    if cost > _DEAR:
        yield _found(
            subject, "tokens", "warning" if cost > _TOO_DEAR else "hint", f"about {cost:,} tokens",
            "Every request carries it: shorten descriptions, and leave out what is hardly used.",
        )  # fmt: skip


def vendors(subject: Subject, around: Around) -> Iterator[Finding]:
    """What becomes of it at the vendors of models."""
    if subject.spec is None:
        raise NotApplicable("the definition is no tool")
    told = around.told.get(subject.spec.name, ())
    for one in told:
        if one.left_out:
            yield _found(
                subject, "vendors", "warning", f"{one.vendor} cannot have it: {one.what}",
                "Say it in simpler words of JSON Schema, if models of that vendor are to use it.",
                *_place(one.where),
            )  # fmt: skip
    for vendor in dict.fromkeys(one.vendor for one in told):
        rewritten = [one for one in told if one.vendor == vendor and one.loses]
        if rewritten:
            first = rewritten[0]
            more = f", and {len(rewritten) - 1} more" if len(rewritten) > 1 else ""
            yield _found(
                subject, "vendors", "hint", f"{vendor}: {first.where} {first.what}{more}",
                f"{vendor} gets it in other words; toolpost export shows them.",
                *_place(first.where),
            )  # fmt: skip


def _place(where: str) -> tuple[str, ...]:
    if where.startswith("/"):
        return ("input_schema", *where[1:].split("/"))
    return (where,) if where else ()


def bounds(subject: Subject, around: Around) -> Iterator[Finding]:
    """Hints: a caller that says too much, or what nobody asked for."""
    schema = subject.input_schema
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return
    if "additionalProperties" not in schema:
        yield _found(
            subject, "schema", "hint", "it takes parameters of any name",
            "Say additionalProperties: false, so that a misspelt parameter is refused.",
            "input_schema",
        )  # fmt: skip
    wide = [key for key, one in properties.items() if _is_unbounded(one)]
    if wide:
        yield _found(
            subject, "schema", "hint", f"of any length: {_listed(wide)}",
            "Say maxLength or maxItems where more than that cannot be meant.",
            "input_schema", "properties", wide[0],
        )  # fmt: skip


def defaults(subject: Subject) -> Iterator[Finding]:
    """Defaults that are never used: ``default`` says what is usual, and decides nothing."""
    if subject.spec is None:
        return
    for one in faulty_defaults(subject.spec.input_schema):
        yield _found(
            subject, "schema", "warning", f"the default does not fit: {one.problem}",
            "Change the default or the schema. It is not filled in, but a model may send it.",
            "input_schema", *map(str, one.at), "default",
        )  # fmt: skip
    schema = subject.spec.input_schema
    known = schema.get("properties")
    for name in _as_list(schema.get("required")):
        child = known.get(name) if isinstance(known, Mapping) else None
        if isinstance(child, Mapping) and "default" in child:
            yield _found(
                subject, "schema", "hint", f"{short(name, 30)} is required and has a default",
                "Take it out of required if the default is meant to apply: it never does.",
                "input_schema", "properties", name, "default",
            )  # fmt: skip


def _is_unbounded(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or {"enum", "const", "format", "pattern"} & schema.keys():
        return False
    kind = schema.get("type")
    return (kind == "string" and "maxLength" not in schema) or (
        kind == "array" and "maxItems" not in schema
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(names: list[str]) -> str:
    shown = ", ".join(short(one, 30) for one in names[:_MOST_SHOWN])
    more = len(names) - _MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _found(
    subject: Subject, item: str, severity: Severity, what: str, fix: str, *at: str
) -> Finding:
    where = subject.at(*at) if at else pointer(())
    return Finding(item=item, severity=severity, at=where, what=what, fix=fix)
