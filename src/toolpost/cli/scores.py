"""Scores on the screen and as JSON: a table, then what to do about each tool.

Above: ``check.py``. Below: the terminal. Remarks that many tools share are told once; hints always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from toolpost.cli.options import Asked
from toolpost.cli.terminal import console, counted, plain, row, table
from toolpost.kit.checking import Finding, Judged, Scored, Scores

_MANY: Final = 40
"""Tools with remarks; more are told remark by remark, not tool by tool."""
_NAMED: Final = 3
_STYLES: Final = {
    "error": "bold red", "warning": "yellow", "hint": "dim",
    "failed": "bold red", "warned": "yellow", "passed": "green", "n/a": "dim",
}  # fmt: skip


def as_data(scores: Scores) -> dict[str, Any]:
    """For programs."""
    return {
        "failed": scores.failed,
        "warned": scores.warned,
        "tokens": scores.tokens,
        "tools": [_tool(one) for one in scores.tools],
    }


def _tool(one: Scored) -> dict[str, Any]:
    passed, of = one.score
    data: dict[str, Any] = msgspec.to_builtins(one)
    return {
        "name": data.pop("name"), "origin": data.pop("origin"),
        "score": {"passed": passed, "of": of}, **data,
    }  # fmt: skip


def show(asked: Asked, scores: Scores, *, each: bool) -> None:
    """``each``: every item of every tool, and not only what is to be said of it."""
    screen = console(asked)
    if each:
        for tool in scores.tools:
            _show_items(screen, tool)
    else:
        _show_table(screen, scores.tools)
    remarked = [one for one in scores.tools if _serious(one)]
    if len(remarked) > _MANY:
        _show_shared(screen, scores.tools, severities=("error", "warning"))
    else:
        for tool in remarked:
            _show_remarks(screen, tool)
    _show_shared(screen, scores.tools, severities=("hint",))
    for line in _summary(scores):
        screen.print(plain(line))


def _show_table(screen: Console, tools: Sequence[Scored]) -> None:
    shown = tools if len(tools) <= _MANY else sorted(tools, key=_rank)[:_MANY]
    listing = table("tool", "score", "failed", "warned", "tokens", wide=["tool"])
    for column in listing.columns[1:]:
        column.justify = "right"
    for one in shown:
        outcomes = [each.outcome for each in one.items]
        worst = next((kind for kind in ("failed", "warned") if kind in outcomes), "")
        row(
            listing, one.name, "{}/{}".format(*one.score),
            *(str(outcomes.count(kind) or "") for kind in ("failed", "warned")),
            "" if one.tokens is None else f"{one.tokens:,}",
            style=_STYLES.get(worst),
        )  # fmt: skip
    screen.print(listing)
    if len(shown) < len(tools):
        left = len(tools) - len(shown)
        screen.print(plain(f"… and {counted(left, 'tool')} with a score no worse", "dim"))


def _rank(tool: Scored) -> tuple[bool, float]:
    passed, of = tool.score
    return not any(one.outcome == "failed" for one in tool.items), passed / max(of, 1)


def _show_items(screen: Console, tool: Scored) -> None:
    listing = table(tool.name, "", "", wide=[""])
    listing.columns[2].ratio, listing.columns[1].ratio = 1, None
    listing.columns[1].width = None
    for one in tool.items:
        outcome = plain(one.outcome, _STYLES[one.outcome])
        listing.add_row(plain(one.item), outcome, plain(_said(one)))
    screen.print(listing)


def _said(one: Judged) -> str:
    return f"{one.title}: {one.why}" if one.why else one.title


def _serious(tool: Scored) -> list[Finding]:
    return [one for one in tool.findings if one.severity != "hint"]


def _show_remarks(screen: Console, tool: Scored) -> None:
    screen.print()
    screen.print(plain(tool.name, "bold"))
    listing = _grid()
    for one in _serious(tool):
        where = f" ({one.at})" if one.at else ""
        listing.add_row(
            plain(f"  {one.severity}", _STYLES[one.severity]), plain(one.item),
            plain(f"{one.what}{where}. {one.fix}"),
        )  # fmt: skip
    screen.print(listing)


def _show_shared(screen: Console, tools: Sequence[Scored], *, severities: Sequence[str]) -> None:
    """What several tools have in common, once, with the tools that it is about."""
    shared: dict[tuple[str, str, str], dict[str, Finding]] = defaultdict(dict)
    for tool in tools:
        for one in tool.findings:
            if one.severity in severities:
                shared[one.severity, one.item, one.fix].setdefault(tool.name, one)
    if not shared:
        return
    screen.print()
    listing = _grid()
    order = sorted(shared.items(), key=lambda pair: (severities.index(pair[0][0]), -len(pair[1])))
    for (severity, item, fix), found in order:
        listing.add_row(
            plain(f"  {severity}", _STYLES[severity]), plain(item), plain(f"{_about(found)}. {fix}")
        )
    screen.print(listing)


def _about(found: dict[str, Finding]) -> str:
    said = [f"{name}: {one.what}" for name, one in found.items()]
    if len({one.what for one in found.values()}) == 1 and len(found) > 1:
        names = ", ".join(list(found)[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return f"{names}{more}: {next(iter(found.values())).what}"
    more = f"; {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return "; ".join(said[:_NAMED]) + more


def _grid() -> Table:
    made = Table.grid(padding=(0, 2), expand=True)
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold", ratio=1)
    return made


def _summary(scores: Scores) -> Iterator[str]:
    passed, of = (sum(one.score[side] for one in scores.tools) for side in (0, 1))
    yield ""
    yield (
        f"{counted(len(scores.tools), 'tool')}, {scores.failed} failed, {scores.warned} warned; "
        f"{passed:,} of {of:,} items passed; about {scores.tokens:,} tokens"
    )
    unjudged = [
        one.item
        for tool in scores.tools[:1]
        for one in tool.items
        if all(other.outcome(one.item) == "n/a" for other in scores.tools)
    ]
    if unjudged:
        yield f"not judged: {', '.join(unjudged)}"
