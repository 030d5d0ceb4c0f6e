"""What a check has found: findings, what they make of an item, and the score of a tool.

Above: whoever prints or judges by it. Below: nothing. It refuses to know what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "hint"]
Outcome = Literal["passed", "failed", "warned", "n/a"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One remark: ``at`` is a JSON pointer into the definition as its author wrote it, ``fix`` says
    what to do next, in words that fit every tool with the same remark.
    """

    item: str
    severity: Severity
    at: str
    what: str
    fix: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the list for one tool; where it does not apply, ``why`` says so."""

    item: str
    title: str
    outcome: Outcome
    why: str = ""
    findings: tuple[Finding, ...] = ()


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, item by item."""

    name: str
    origin: str
    items: tuple[Judged, ...]
    tokens: int | None = None
    """What it costs a model to read of the tool, about."""

    @property
    def score(self) -> tuple[int, int]:
        """How many items passed, of how many that apply."""
        outcomes = [one.outcome for one in self.items]
        return outcomes.count("passed"), len(outcomes) - outcomes.count("n/a")

    def outcome(self, item: str) -> Outcome:
        """What came of one item."""
        return next(one.outcome for one in self.items if one.item == item)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(found for one in self.items for found in one.findings)


class Scores(msgspec.Struct, frozen=True):
    """Every tool that was looked at."""

    tools: tuple[Scored, ...]

    @property
    def failed(self) -> int:
        """Tools with an item that failed."""
        return sum(any(one.outcome == "failed" for one in tool.items) for tool in self.tools)

    @property
    def warned(self) -> int:
        """Tools with an item that is in doubt."""
        return sum(any(one.outcome == "warned" for one in tool.items) for tool in self.tools)

    @property
    def tokens(self) -> int:
        return sum(tool.tokens or 0 for tool in self.tools)

    def ok(self, *, strict: bool = False) -> bool:
        return not (self.failed or (strict and self.warned))

    def raise_if_failed(self, *, strict: bool = False) -> None:
        """For a test: an ``AssertionError`` with every finding that counts."""
        if not self.ok(strict=strict):
            raise AssertionError(str(self))

    def __str__(self) -> str:
        return "\n".join(_lines(self.tools))


def outcome_of(findings: Sequence[Finding]) -> Outcome:
    """A hint costs nothing."""
    severities = {one.severity for one in findings}
    if "error" in severities:
        return "failed"
    return "warned" if "warning" in severities else "passed"


def _lines(tools: Sequence[Scored]) -> Iterator[str]:
    for tool in tools:
        passed, of = tool.score
        yield f"{tool.name}: {passed}/{of}"
        for one in tool.findings:
            if one.severity != "hint":
                yield f"  {one.severity} {one.item} {one.at or '/'}: {one.what}. {one.fix}"
