"""The command: prepare the environment, run the sections, print Markdown, write the page.

Only the standard library is imported until the environment is there; the sections are imported
after that.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from types import ModuleType

from benchmarks import environment
from benchmarks.report import Outcome, Target, markdown, targets_markdown
from benchmarks.rounds import FULL, QUICK, Effort

SECTIONS = (
    "calls",
    "rings",
    "concurrency",
    "registration",
    "startup",
    "loading",
    "sandbox",
    "network",
    "durable",
    "bus",
)
PAGE = environment.ROOT / "docs" / "performance.md"
QUIET = {
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "FASTMCP_LOG_LEVEL": "ERROR",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYTHONWARNINGS": "ignore",
}
DISTRIBUTIONS = (
    "toolpost",
    "pydantic",
    "jsonschema-rs",
    "openai-agents",
    "mcp",
    "uvicorn",
    "pydantic-ai-slim",
    "toolregistry",
    "fastmcp",
    "langchain-core",
)
PREFACE = """\
# Performance

Written by `make bench`; do not edit. Absolute times belong to the machine that measured them, the
ratios carry over: every table was measured with its contenders interleaved in one run, a ratio is
the median of the ratios inside each round, and each contender's answer was checked before it was
timed.

{setting}
"""


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if not (options.here or environment.inside()):
        environment.prepare()
        environment.enter(arguments)
    os.environ.update(QUIET)
    effort = QUICK if options.quick else FULL
    names = options.only or SECTIONS
    setting = _setting(effort)  # before the run: afterwards the load is our own
    found = {name: _run(name, effort) for name in names}
    page = _page(found, setting)
    print(page)
    whole = names == SECTIONS and effort is FULL
    if options.output or whole:
        (options.output or PAGE).write_text(page)
    targets = [target for _, outcome in found.values() for target in outcome.targets]
    return _verdict(targets) if options.check else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute, rougher figures")
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="this section; repeatable"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is not met")
    parser.add_argument("--here", action="store_true", help="use this interpreter as it is")
    parser.add_argument(
        "--output",
        type=Path,
        help="write the page here (a whole full run writes docs/performance.md)",
    )
    return parser.parse_args(arguments)


def _run(name: str, effort: Effort) -> tuple[ModuleType, Outcome]:
    section = importlib.import_module(f"benchmarks.sections.{name}")
    began = time.perf_counter()
    outcome: Outcome = section.measure(effort)
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return section, outcome


def _page(found: dict[str, tuple[ModuleType, Outcome]], setting: str) -> str:
    parts = [PREFACE.format(setting=setting)]
    targets = [target for _, outcome in found.values() for target in outcome.targets]
    parts.append(targets_markdown(targets))
    for section, outcome in found.values():
        parts.append(f"## {section.TITLE}\n")
        parts += [markdown(table) for table in outcome.tables]
    return "\n".join(parts)


def _setting(effort: Effort) -> str:
    versions = ", ".join(f"{name} {_version(name)}" for name in DISTRIBUTIONS)
    return (
        f"A {effort.name} run on Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the "
        f"start; {versions}."
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _verdict(targets: list[Target]) -> int:
    missed = [target for target in targets if target.met is False]
    for target in missed:
        print(f"NOT MET: {target.claim} ({target.measured})", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
