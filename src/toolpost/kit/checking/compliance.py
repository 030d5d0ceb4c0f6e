"""The items that a tool has to fulfil before it is accepted, each judged by what can be known.

Above: ``checklist.py``. Below: the subject and what is known around it. What only the source, the
tests or a run could tell is not applicable, with what would tell: it is never failed for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolpost.kit.checking.around import Around, look
from toolpost.kit.checking.descriptions import words_of
from toolpost.kit.checking.findings import Finding, Severity
from toolpost.kit.checking.subject import Subject
from toolpost.spec import is_external
from toolpost.testing.report import NotApplicable, Report
from toolpost.wording import short

_LONGEST: Final = 600.0
_RUN: Final = "only a run can tell: --run makes one"
_UNSEEN: Final = "cannot be judged without source"
_SECRET: Final = re.compile(
    r"(?:password|passwd|passphrase|api_?key|secret(?:_key)?|client_secret|access_token|auth_token"
    r"|bearer(?:_token)?|private_key|credentials?)"
)


def interface(subject: Subject, around: Around) -> Iterator[Finding]:
    fault = subject.fault
    if fault is not None and not fault.of_schema:
        at = subject.at(str(fault.at[0]), *fault.at[1:]) if fault.at else ""
        fix = "Change the definition as the message says; until then nobody can call it."
        if fault.ours:
            fix = "toolpost leaves it out; others may be able to call it."
        severity: Severity = "warning" if fault.ours else "error"
        yield Finding(item="interface", severity=severity, at=at, what=fault.message, fix=fix)


def registered(subject: Subject, around: Around) -> Iterator[Finding]:
    """Under a name that nobody takes for another's."""
    others = list(around.alike.get(look(subject.name), ()))
    if others.count(subject.name) > 1:
        yield _found(
            subject, "registered", "error", f"{others.count(subject.name)} tools have this name",
            "Rename all but one: a call reaches only one of them.", "name",
        )  # fmt: skip
    strange = [one for one in others if one != subject.name]
    if strange:
        yield _found(
            subject, "registered", "warning", f"it looks like {short(strange[0])!r}",
            "Make the names easier to tell apart: a model, and who approves a call, mix them up.",
            "name",
        )  # fmt: skip


def result(subject: Subject, around: Around) -> Iterator[Finding]:
    yield from _tried(subject, around, "result", ("success", "output"), needed="success")


def schema(subject: Subject, around: Around) -> Iterator[Finding]:
    fault = subject.fault
    if fault is not None:
        if not fault.of_schema:
            raise NotApplicable("the definition is no tool, whatever its schema says")
        at = subject.at(str(fault.at[0]), *fault.at[1:])
        fix = "Write valid JSON Schema: arguments cannot be checked by this one."
        yield Finding(item="schema", severity="error", at=at, what=fault.message, fix=fix)
        return
    properties, required = (subject.input_schema.get(key) for key in ("properties", "required"))
    known = properties if isinstance(properties, Mapping) else {}
    named = required if isinstance(required, list) else []
    missing = [one for one in named if one not in known]
    if missing and "patternProperties" not in subject.input_schema:
        closed = subject.input_schema.get("additionalProperties") is False
        yield _found(
            subject, "schema", "error" if closed else "warning",
            f"required, but not described: {', '.join(short(one, 30) for one in missing[:5])}",
            "Add the parameter to properties, or take it out of required.",
            "input_schema", "required",
        )  # fmt: skip


def sanitizes(subject: Subject, around: Around) -> Iterator[Finding]:
    if around.pipeline is None:
        raise NotApplicable(f"{_UNSEEN}; toolpost does it for every call of a config")
    if not around.pipeline.sanitizes:
        yield Finding(
            item="sanitizes", severity="warning", at="",
            what="nothing takes secrets and personal data out of what it is given",
            fix="Put the guard sanitize back into the config.",
        )  # fmt: skip


def errors(subject: Subject, around: Around) -> Iterator[Finding]:
    names = ("missing argument", "wrong type", "unknown argument", "error handling")
    yield from _tried(subject, around, "errors", names)


def timeout(subject: Subject, around: Around) -> Iterator[Finding]:
    if subject.spec is None:
        raise NotApplicable("there is no tool that could take its time")
    limit = subject.spec.time_limit
    if subject.form != "spec":
        raise NotApplicable(f"it cannot say so; toolpost stops it after {limit:g} s")
    if subject.spec.timeout is None:
        yield _found(
            subject, "timeout", "hint", f"it does not say how long it may take: {limit:g} s hold",
            "Say timeout: what is usual for its kind may be too much, or too little.", "timeout",
        )  # fmt: skip
    elif limit > _LONGEST:
        yield _found(
            subject, "timeout", "warning", f"it may take {limit:,.0f} s",
            "An agent waits for it: stay within ten minutes, or have it called detached.",
            "timeout",
        )  # fmt: skip


def unit_tests(subject: Subject, around: Around) -> Iterator[Finding]:
    names = ("schema", "success", "missing argument", "wrong type", "unknown argument")
    yield from _tried(subject, around, "unit-tests", names, needed="success", kit=True)


def integration_tests(subject: Subject, around: Around) -> Iterator[Finding]:
    names = ("timeout", "cancellation", "concurrency")
    yield from _tried(subject, around, "integration-tests", names, needed="concurrency", kit=True)


def documentation(subject: Subject, around: Around) -> Iterator[Finding]:
    if subject.fault is not None and subject.fault.ours:
        raise NotApplicable("it was left out")
    if not subject.description.strip():
        yield _found(
            subject, "documentation", "error", "it has no description",
            "Say in a sentence what it does and when to use it.", "description",
        )  # fmt: skip


def privacy(subject: Subject, around: Around) -> Iterator[Finding]:
    """No secret goes through a model, and what does is sanitized."""
    properties = subject.input_schema.get("properties")
    asked = [
        key
        for key in (properties if isinstance(properties, Mapping) else {})
        if _SECRET.fullmatch("_".join(words_of(key)))
    ]
    if asked:
        yield _found(
            subject, "privacy", "warning", f"a model has to be told a secret: {', '.join(asked)}",
            "Take it from the environment or the config, where no model and no log sees it.",
            "input_schema", "properties", asked[0],
        )  # fmt: skip
    elif around.pipeline is None:
        raise NotApplicable(f"{_UNSEEN}; it asks for no secret")
    elif not around.pipeline.sanitizes:
        raise NotApplicable("see: sanitizes")


def security_review(subject: Subject, around: Around) -> Iterator[Finding]:
    spec = subject.spec
    if spec is None or not (is_external(spec) or spec.egress):
        raise NotApplicable("it accesses no external service, as far as it says")
    if any("*" in one.partition(":")[0].split(".")[-2:] for one in spec.egress):
        yield _found(
            subject, "security-review", "hint", "it may connect to anywhere",
            "Name the hosts that it needs, unless the whole web is what it is for.", "egress",
        )  # fmt: skip
    if around.pipeline is None:
        raise NotApplicable("whether somebody has looked at it cannot be told from here")
    elif around.pipeline.pinned is None or spec.name not in around.pipeline.pinned:
        yield Finding(
            item="security-review", severity="warning", at="",
            what="nobody has said that it may be as it is",
            fix="Look at it, and pin it with: toolpost lock",
        )  # fmt: skip


def _tried(
    subject: Subject,
    around: Around,
    item: str,
    names: tuple[str, ...],
    *,
    needed: str | None = None,
    kit: bool = False,
) -> Iterator[Finding]:
    """What a real run has shown; without ``needed``, nothing that counts was tried."""
    report: Report | None = around.tried.get(subject.name)
    if report is None:
        raise NotApplicable(f"{_UNSEEN}; the kit's are run by --run" if kit else _RUN)
    known = {one.name: one for one in report.items}
    for name in names:
        if name in known and known[name].outcome == "failed":
            yield Finding(
                item=item, severity="error", at="", what=f"{name}: {known[name].reason}",
                fix="Run check_tool on it in a test, with arguments that suit it, and mend it.",
            )  # fmt: skip
    counted = [known[name] for name in names if name in known]
    if needed is not None and needed in known and known[needed].outcome == "not applicable":
        raise NotApplicable(known[needed].reason)
    if all(one.outcome == "not applicable" for one in counted):
        raise NotApplicable(counted[0].reason if counted else "the kit could not try it")


def _found(
    subject: Subject, item: str, severity: Severity, what: str, fix: str, *at: str
) -> Finding:
    return Finding(item=item, severity=severity, at=subject.at(*at), what=what, fix=fix)
