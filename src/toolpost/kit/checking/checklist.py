"""The list: every item in its order, and what each says of a tool.

Above: ``toolpost check`` and tests of tools. Below: the items, one function each. The first twelve
are those that a tool is accepted by; the others say how well a model gets on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from toolpost.kit.checking import compliance, descriptions, hidden, lint
from toolpost.kit.checking.around import Around, Pipeline, around
from toolpost.kit.checking.findings import Finding, Judged, Scored, Scores, outcome_of
from toolpost.kit.checking.subject import Subject, subject_of
from toolpost.registry import Item as Tool
from toolpost.testing import Report
from toolpost.testing.report import NotApplicable

Judge = Callable[[Subject, Around], Iterator[Finding]]


class Item(NamedTuple):
    """One line of the list."""

    id: str
    title: str
    judge: Judge


def _schema(subject: Subject, known: Around) -> Iterator[Finding]:
    yield from compliance.schema(subject, known)
    yield from lint.bounds(subject, known)
    yield from lint.defaults(subject)


def _alone(judge: Callable[[Subject], Iterator[Finding]]) -> Judge:
    return lambda subject, _: judge(subject)


CHECKLIST: Final = (
    Item("interface", "Is a tool that can be called", compliance.interface),
    Item("registered", "Has a name of its own", compliance.registered),
    Item("result", "Returns a valid result", compliance.result),
    Item("schema", "Has a valid schema", _schema),
    Item("sanitizes", "Sanitizes all inputs", compliance.sanitizes),
    Item("errors", "Handles errors gracefully", compliance.errors),
    Item("timeout", "Is stopped at a time limit", compliance.timeout),
    Item("unit-tests", "Has unit tests", compliance.unit_tests),
    Item("integration-tests", "Has integration tests", compliance.integration_tests),
    Item("documentation", "Is documented", compliance.documentation),
    Item("privacy", "Keeps private what is private", compliance.privacy),
    Item("security-review", "Was looked at, if it goes outside", compliance.security_review),
)
"""What a tool is accepted by."""

LINT: Final = (
    Item("name", "Has a name that works everywhere", _alone(descriptions.name)),
    Item("description", "Says what it does", _alone(descriptions.description)),
    Item(
        "parameters", "Has parameters that can be understood", _alone(descriptions.parameters_said)
    ),
    Item("effects", "Says what it does to the world", lint.effects),
    Item("output-schema", "Says what it returns", lint.output),
    Item("examples", "Has examples that fit", lint.examples),
    Item("tokens", "Costs few tokens", lint.tokens),
    Item("vendors", "Can be used with every vendor", lint.vendors),
    Item("hidden-text", "Hides nothing", _alone(hidden.hidden)),
    Item("suspicious-text", "Gives a model no orders", _alone(hidden.suspicious)),
)
"""What makes it good."""

ITEMS: Final = (*CHECKLIST, *LINT)


def check(
    tools: Iterable[Tool | Subject],
    *,
    pipeline: Pipeline | None = None,
    tried: Mapping[str, Report] | None = None,
) -> Scores:
    """Score functions, ``Tool``\\ s, specs and subjects, item by item. Nothing is run.

    ``tried`` are the reports of ``check_tool`` by name, ``pipeline`` what is known of the road that
    calls go; what they would tell is not applicable without them.
    """
    subjects = [subject_of(one) for one in tools]
    known = around(subjects, pipeline=pipeline, tried=tried or {})
    return Scores(tuple(_scored(one, known) for one in subjects))


def _scored(subject: Subject, known: Around) -> Scored:
    return Scored(
        name=subject.name,
        origin=subject.origin,
        items=tuple(_judged(item, subject, known) for item in ITEMS),
        tokens=None if subject.spec is None else known.tokens.get(subject.spec.name),
    )


def _judged(item: Item, subject: Subject, known: Around) -> Judged:
    found: list[Finding] = []
    try:
        found.extend(item.judge(subject, known))
    except NotApplicable as why:
        if outcome_of(found) == "passed":
            return Judged(
                item=item.id,
                title=item.title,
                outcome="n/a",
                why=str(why),
                findings=tuple(found),
            )
    return Judged(item=item.id, title=item.title, outcome=outcome_of(found), findings=tuple(found))
