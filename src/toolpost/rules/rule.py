"""Rules ready to be held against calls, and what they decide.

Above: the policy ring, ``toolpost policy``. Below: the call and the spec. How rules are written
down, and what their conditions look at, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from toolpost.call import Caller
from toolpost.contracts import Mode
from toolpost.spec import ToolSpec

Verdict = Literal["allow", "ask", "deny"]

TABLE: Final[Mapping[Mode, tuple[Verdict, ...]]] = MappingProxyType(
    {
        "strict": ("allow", "allow", "ask", "ask", "deny"),
        "standard": ("allow", "allow", "allow", "ask", "deny"),
        "permissive": ("allow", "allow", "allow", "ask", "ask"),
    }
)
"""Mode → what becomes of tier 0 to 4 where no rule speaks."""

_SAYS: Final[Mapping[Verdict, str]] = {
    "allow": "This call is allowed.",
    "ask": "A person has to approve this call before it runs.",
    "deny": "This call is not allowed. Do not repeat it.",
}


class Decision(msgspec.Struct, frozen=True):
    """What was decided, by which rule, and why; the reason names the rule."""

    verdict: Verdict
    rule: str
    reason: str


def decision(verdict: Verdict, rule: str, reason: str | None = None) -> Decision:
    why = (reason or _SAYS[verdict]).strip()
    return Decision(verdict, rule, f"{why} (rule {rule})")


def by_mode(spec: ToolSpec, mode: Mode) -> Decision:
    """What the mode and the tier say."""
    return decision(TABLE[mode][spec.tier], f"{mode}/tier-{spec.tier}")


OfTool = Callable[[ToolSpec], bool]
OfCall = Callable[[Caller, Mapping[str, Any]], bool]


class Condition(msgspec.Struct, frozen=True):
    """One thing that a rule demands: of the tool, which is known before any call, or of a call."""

    about: str
    of_tool: OfTool | None = None
    of_call: OfCall | None = None

    def holds(self, spec: ToolSpec, caller: Caller, arguments: Mapping[str, Any]) -> bool:
        if self.of_tool is not None and not self.of_tool(spec):
            return False
        return self.of_call is None or self.of_call(caller, arguments)


class Rule(msgspec.Struct, frozen=True):
    """What is decided where every condition holds, and where that is written."""

    decision: Decision
    conditions: tuple[Condition, ...]
    place: str

    def may_meet(self, spec: ToolSpec) -> bool:
        return all(c.of_tool(spec) for c in self.conditions if c.of_tool is not None)


class Step(msgspec.Struct, frozen=True):
    """How one rule took one call: ``failed`` is the condition that did not hold, if any."""

    rule: str
    verdict: Verdict
    place: str
    failed: str | None


Judge = Callable[[Caller, Mapping[str, Any]], Decision]
"""Decides on calls of one tool."""


class Rules(msgspec.Struct, frozen=True):
    """The rules of one file, in their order, and the digest of what it says."""

    name: str = "(no file)"
    rules: tuple[Rule, ...] = ()
    digest: str = ""

    def judge(self, spec: ToolSpec, mode: Mode) -> Judge:
        """The rules that can apply to this tool, with nothing left to ask of the tool itself."""
        last, rest = by_mode(spec, mode), []
        for rule in self.rules:
            if not rule.may_meet(spec):
                continue
            tests = tuple(c.of_call for c in rule.conditions if c.of_call is not None)
            if not tests:
                last = rule.decision
                break
            rest.append((tests[0] if len(tests) == 1 else _all_of(tests), rule.decision))
        return _judging(tuple(rest), last)

    def explain(
        self, spec: ToolSpec, mode: Mode, *, caller: Caller, arguments: Mapping[str, Any]
    ) -> tuple[Decision, list[Step]]:
        """The decision on one call, and how each rule up to it took the call."""
        steps: list[Step] = []
        for rule in self.rules:
            missed = (c.about for c in rule.conditions if not c.holds(spec, caller, arguments))
            failed, made = next(missed, None), rule.decision
            steps.append(Step(made.rule, made.verdict, rule.place, failed))
            if failed is None:
                return made, steps
        return by_mode(spec, mode), steps

    def unreachable(self) -> list[str]:
        """The rules behind one that decides on everything."""
        ends = [i for i, rule in enumerate(self.rules) if not rule.conditions]
        return [rule.decision.rule for rule in self.rules[ends[0] + 1 :]] if ends else []

    def idle(self, specs: Sequence[ToolSpec]) -> list[str]:
        """The rules that none of these tools can meet."""
        return [r.decision.rule for r in self.rules if not any(map(r.may_meet, specs))]


def _all_of(tests: Sequence[OfCall]) -> OfCall:
    return lambda caller, arguments: all(test(caller, arguments) for test in tests)


def _judging(rules: tuple[tuple[OfCall, Decision], ...], last: Decision) -> Judge:
    if not rules:
        return lambda caller, arguments: last

    def judge(caller: Caller, arguments: Mapping[str, Any]) -> Decision:
        for holds, decided in rules:
            if holds(caller, arguments):
                return decided
        return last

    return judge
