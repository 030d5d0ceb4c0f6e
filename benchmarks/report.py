"""What a section hands back, and how it becomes Markdown.

Above it are the sections and the command; below it nothing. Knows how a figure is written, not what
it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Cell = str | float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; ``None`` in a row is a cell that does not apply."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to reach. ``met`` is ``None`` where what to compare with is not installed."""

    number: str
    claim: str
    measured: str
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one section found."""

    tables: list[Table]
    targets: list[Target]


def at_most(number: str, claim: str, *, measured: float | None, limit: float, unit: str) -> Target:
    """A target that is met when the figure stays at or under its limit."""
    met = None if measured is None else measured <= limit
    return Target(number=number, claim=claim, measured=_with_unit(measured, unit), met=met)


def at_least(number: str, claim: str, *, measured: float | None, limit: float, unit: str) -> Target:
    """A target that is met when the figure reaches its limit."""
    met = None if measured is None else measured >= limit
    return Target(number=number, claim=claim, measured=_with_unit(measured, unit), met=met)


def broken(number: str, claim: str) -> Target:
    """A target that toolpost itself could not be measured for: that is a failure, not a gap."""
    return Target(number=number, claim=claim, measured="toolpost could not run it", met=False)


def figure(value: float) -> str:
    """Three significant places, thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def times(value: float | None) -> str | None:
    """A ratio as it stands in a table."""
    return None if value is None else f"{figure(value)} ×"


def markdown(table: Table) -> str:
    """One table with its heading and its note."""
    lines = [f"### {table.title}", "", _row(table.columns), "|" + "---|" * len(table.columns)]
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"


def targets_markdown(targets: Iterable[Target]) -> str:
    """The table of what was to be reached."""
    verdicts = {True: "met", False: "**NOT MET**", None: "not measured"}
    lines = ["## Targets", "", "| | target | measured | |", "|---|---|---|---|"]
    for target in targets:
        lines.append(_row([target.number, target.claim, target.measured, verdicts[target.met]]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return figure(cell) if isinstance(cell, float) else str(cell)


def _with_unit(measured: float | None, unit: str) -> str:
    return "–" if measured is None else f"{figure(measured)} {unit}"
