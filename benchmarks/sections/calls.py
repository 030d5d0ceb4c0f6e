"""One in-process call by name: raw arguments in, validated, result out.

The contenders stand in ``benchmarks/contenders``; this module lines them up, one table per case,
and says which of the targets 1, 2 and 3 are met.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from benchmarks.cases import TITLES
from benchmarks.contender import Field, load, ready
from benchmarks.report import Cell, Outcome, Table, Target, at_least, at_most, broken, figure, times
from benchmarks.rounds import Effort, Series, interleave

NAME = "calls"
TITLE = "One call by name, in process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One case: seconds a call of each contender, and why the others are missing."""

    case: str
    field: Field
    series: dict[str, Series]
    faults: dict[str, str]

    @property
    def peers(self) -> list[str]:
        """The ungoverned ways of the others."""
        known = self.field.contenders
        return [name for name in self.series if known[name].peer and not known[name].governed]


def measure(effort: Effort) -> Outcome:
    found = asyncio.run(_every_case(effort))
    targets = [*_bare_road(found), *_governed(found)]
    targets.append(_beats_every_peer("3", "ToolpostProcess", found["add_sync"]))
    return Outcome(tables=[_table(one) for one in found.values()], targets=targets)


async def _every_case(effort: Effort) -> dict[str, Found]:
    field = load()
    found: dict[str, Found] = {}
    for case in TITLES:
        async with ready(field.contenders.values(), case) as entry:
            series = await interleave(entry.calls, effort)
        found[case] = Found(case=case, field=field, series=series, faults=entry.faults)
    return found


def _table(found: Found) -> Table:
    known, series = found.field.contenders, found.series
    ours = "ToolpostProcess" if found.case == "add_sync" else "ToolpostExecutor"
    rows: list[list[Cell]] = [
        [
            known[name].label,
            one.median * 1e6,
            one.best * 1e6,
            times(one.ratio(series["Bare"])),
            times(one.ratio(series[ours])) if ours in series else None,
        ]
        for name, one in sorted(series.items(), key=lambda pair: pair[1].median)
    ]
    absent = {known[name].label: reason for name, reason in found.faults.items()}
    for label, reason in {**absent, **found.field.missing}.items():
        rows.append([label, f"not available: {reason}", None, None, None])
    last = "× toolpost's worker" if found.case == "add_sync" else "× toolpost"
    columns = ("", "median µs", "best µs", "× bare", last)
    return Table(title=TITLES[found.case], columns=columns, rows=rows)


def _bare_road(found: dict[str, Found]) -> list[Target]:
    """The target's own rungs are those of the plain limit. Our results also carry an id and a
    duration, so the limit with both is shown beside it; it does not replace it.
    """
    targets: list[Target] = []
    for case in ("add", "batch"):
        for limit in ("Fused", "FusedStamped"):
            base = (limit, 2)
            targets.append(_at_most_times("1", "ToolpostExecutor", found[case], base=base))
        targets.append(_beats_every_peer("1", "ToolpostExecutor", found[case]))
    for rival in (("PydanticAI", 5), ("FastMCPServer", 30), ("LangChain", 40)):
        targets.append(_times_faster("1", "ToolpostExecutor", found["add"], rival=rival))
    return targets


def _governed(found: dict[str, Found]) -> list[Target]:
    targets: list[Target] = []
    for case, most, stretch in (("add", 30, 20), ("batch", 50, 40)):
        base = ("Bare", most)
        target = _at_most_times("2", "ToolpostRuntime", found[case], base=base)
        targets.append(replace(target, claim=f"{target.claim} (stretch: {stretch} ×)"))
        targets.append(_beats_every_peer("2", "ToolpostRuntime", found[case]))
    rival = ("FastMCPMiddleware", 30)
    return [*targets, _times_faster("2", "ToolpostRuntime", found["add"], rival=rival)]


def _at_most_times(number: str, ours: str, found: Found, *, base: tuple[str, float]) -> Target:
    name, most = base
    claim = f"{_titled(ours, found)}: ≤ {most} × {found.field.contenders[name].label}"
    if ours not in found.series:
        return broken(number, claim)
    ratio = found.series[ours].ratio(found.series[name])
    return at_most(number, claim, measured=ratio, limit=most, unit="×")


def _times_faster(number: str, ours: str, found: Found, *, rival: tuple[str, float]) -> Target:
    name, least = rival
    known = found.field.contenders
    label = known[name].label if name in known else name
    claim = f"{_titled(ours, found)}: ≥ {least} × faster than {label}"
    if ours not in found.series:
        return broken(number, claim)
    theirs = found.series.get(name)
    ratio = theirs.ratio(found.series[ours]) if theirs else None
    return at_least(number, claim, measured=ratio, limit=least, unit="×")


def _beats_every_peer(number: str, ours: str, found: Found) -> Target:
    claim = f"{_titled(ours, found)}: faster than every peer's ungoverned path"
    if ours not in found.series:
        return broken(number, claim)
    ratios = {peer: found.series[peer].ratio(found.series[ours]) for peer in found.peers}
    if not ratios:
        return Target(number=number, claim=claim, measured="–", met=None)
    nearest = min(ratios, key=lambda peer: ratios[peer])
    label = found.field.contenders[nearest].label
    measured = f"the nearest, {label}, takes {figure(ratios[nearest])} × as long"
    return Target(number=number, claim=claim, measured=measured, met=ratios[nearest] > 1)


def _titled(ours: str, found: Found) -> str:
    words = {
        "ToolpostExecutor": "bare road",
        "ToolpostRuntime": "default chain",
        "ToolpostProcess": "killable worker",
    }
    return f"{words[ours]}, {TITLES[found.case]}"
