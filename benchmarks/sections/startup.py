"""What it costs to start: imports, and the command line's help, each in a fresh interpreter.

All packages live in one environment, so a peer may also pick up another's optional parts; the
second import of a name is never timed, because every figure has a process of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

from benchmarks.children import ChildFailed, figures, run
from benchmarks.report import Cell, Outcome, Table, Target, at_most, broken, times
from benchmarks.rounds import QUICK, Effort, Series, turn

NAME = "startup"
TITLE = "Starting up"

TOOLPOST, TOOLPOST_NAMES = "import toolpost", "from toolpost import Executor, Registry, tool"
PYDANTIC, PYDANTIC_NAMES = "import pydantic", "from pydantic import BaseModel, TypeAdapter"
IMPORTS = ("import asyncio", PYDANTIC, PYDANTIC_NAMES, TOOLPOST, TOOLPOST_NAMES)
PEER_IMPORTS = (
    "from toolregistry import ToolRegistry",
    "from langchain_core.tools import StructuredTool",
    "from pydantic_ai import FunctionToolset; from pydantic_ai.tool_manager import ToolManager",
    "from mcp.server.mcpserver import MCPServer",
    "from fastmcp import FastMCP",
    "from agents import function_tool",
)
PROBE = """
import time
began = time.perf_counter()
{statement}
spent = time.perf_counter() - began
import json
status = open("/proc/self/status").read()
kib = int(status.partition("VmRSS:")[2].split()[0])
print(json.dumps({{"seconds": spent, "mib": kib / 1024}}))
"""

BARE_CLI = Path(__file__).resolve().parent.parent / "bare_cli.py"
COMMANDS = {
    "bare click + rich program, `--help`": (sys.executable, str(BARE_CLI), "--help"),
    "`toolpost --help`": (str(Path(sys.executable).parent / "toolpost"), "--help"),
}
BARE_HELP, TOOLPOST_HELP = COMMANDS


def measure(effort: Effort) -> Outcome:
    seconds, mib, faults = _imports(effort)
    helps, help_faults = _helps(effort)
    tables = [_import_table(seconds, mib, faults), _help_table(helps, help_faults)]
    return Outcome(tables=tables, targets=_targets(seconds, mib, helps))


def _imports(effort: Effort) -> tuple[dict[str, Series], dict[str, Series], dict[str, str]]:
    seconds: dict[str, Series] = {}
    mib: dict[str, Series] = {}
    faults: dict[str, str] = {}
    wanted = IMPORTS if effort is QUICK else IMPORTS + PEER_IMPORTS
    for statement in wanted:  # once unmeasured: it writes the byte code
        try:
            figures("-c", PROBE.format(statement=statement))
        except ChildFailed as failed:
            faults[statement] = str(failed)
        else:
            seconds[statement], mib[statement] = Series(), Series()
    for number in range(effort.processes):
        for statement in turn(tuple(seconds), number):
            found = figures("-c", PROBE.format(statement=statement))
            seconds[statement].rounds.append(found["seconds"])
            mib[statement].rounds.append(found["mib"])
    return seconds, mib, faults


def _helps(effort: Effort) -> tuple[dict[str, Series], dict[str, str]]:
    helps: dict[str, Series] = {}
    faults: dict[str, str] = {}
    for label, command in COMMANDS.items():
        try:
            run(*command)
        except (ChildFailed, OSError) as failed:
            faults[label] = str(failed)
        else:
            helps[label] = Series()
    for number in range(2 * effort.processes):  # cheap, and a process start is noisy
        for label in turn(tuple(helps), number):
            began = perf_counter()
            run(*COMMANDS[label])
            helps[label].rounds.append(perf_counter() - began)
    return helps, faults


def _import_table(
    seconds: dict[str, Series], mib: dict[str, Series], faults: dict[str, str]
) -> Table:
    base = seconds.get(PYDANTIC)
    rows: list[list[Cell]] = [
        [
            f"`{statement}`",
            one.median * 1e3,
            one.best * 1e3,
            times(one.ratio(base)) if base else None,
            mib[statement].median,
        ]
        for statement, one in seconds.items()
    ]
    for statement, reason in faults.items():
        rows.append([f"`{statement}`", f"not available: {reason}", None, None, None])
    columns = ("", "median ms", "best ms", f"× `{PYDANTIC}`", "RSS MiB")
    note = "One environment holds them all: a peer may load optional parts that another brought in."
    return Table(title="Import", columns=columns, rows=rows, note=note)


def _help_table(helps: dict[str, Series], faults: dict[str, str]) -> Table:
    base = helps.get(BARE_HELP)
    rows: list[list[Cell]] = [
        [label, one.median * 1e3, one.best * 1e3, times(one.ratio(base)) if base else None]
        for label, one in helps.items()
    ]
    rows += [[label, f"not available: {reason}", None, None] for label, reason in faults.items()]
    columns = ("", "median ms", "best ms", "× bare program")
    return Table(title="Help of a command line, whole process", columns=columns, rows=rows)


def _targets(
    seconds: dict[str, Series], mib: dict[str, Series], helps: dict[str, Series]
) -> list[Target]:
    return [
        _at_most_times(seconds, (TOOLPOST, PYDANTIC), most=1.5),
        _at_most_times(seconds, (TOOLPOST_NAMES, PYDANTIC_NAMES), most=1.5),
        _at_most_mib(mib, TOOLPOST),
        _at_most_mib(mib, TOOLPOST_NAMES),
        _at_most_times(helps, (TOOLPOST_HELP, BARE_HELP), most=2),
    ]


def _at_most_times(found: dict[str, Series], pair: tuple[str, str], *, most: float) -> Target:
    ours, base = pair
    claim = f"{_quoted(ours)}: ≤ {most:g} × {_quoted(base)}"
    if ours not in found:
        return broken("7", claim)
    ratio = found[ours].ratio(found[base]) if base in found else None
    return at_most("7", claim, measured=ratio, limit=most, unit="×")


def _at_most_mib(mib: dict[str, Series], statement: str) -> Target:
    claim = f"{_quoted(statement)}: ≤ 30 MiB"
    if statement not in mib:
        return broken("7", claim)
    return at_most("7", claim, measured=mib[statement].median, limit=30, unit="MiB")


def _quoted(label: str) -> str:
    return label if "`" in label else f"`{label}`"
