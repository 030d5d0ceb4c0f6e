"""Loading tools from a file: 10,000 specs of YAML, beside PyYAML reading the same bytes.

Every figure comes from a fresh process (this module, run with the file). toolpost alone is
measured, because no peer reads its tools from files.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.cases import spec_data
from benchmarks.children import ChildFailed, figures
from benchmarks.report import Cell, Outcome, Table, times
from benchmarks.rounds import Effort, Series

NAME = "loading"
TITLE = "Loading from files"

COUNT = 10_000
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
STAND_IN = 987_654_321
ONE_SPEC: str = yaml.safe_dump([spec_data(STAND_IN)], sort_keys=False)
LABELS = {
    "parse": f"PyYAML `{LOADER.__name__}`, nothing checked",
    "load": "**toolpost** `FilesSource.load`, every spec checked",
    "register": "**toolpost**, loaded and registered",
}


def measure(effort: Effort) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tools.yaml")
        file.write_text("tools:\n" + "".join(_written(number) for number in range(COUNT)))
        title = f"{COUNT:,} specs of YAML, {file.stat().st_size / 2**20:.1f} MiB"
        try:
            reports = [figures("-m", __name__, str(file)) for _ in range(_repeats(effort))]
        except ChildFailed as failed:
            rows: list[list[Cell]] = [[LABELS["load"], f"not available: {failed}", None]]
        else:
            rows = _rows(reports)
    return Outcome(
        tables=[Table(title=title, columns=("", "s", "× parsing"), rows=rows)], targets=[]
    )


def _written(number: int) -> str:
    """One spec as it would be written by hand; dumping 10,000 of them would take longer."""
    return ONE_SPEC.replace(str(STAND_IN), str(number))


def _repeats(effort: Effort) -> int:
    return max(1, effort.processes - 2)


def _rows(reports: list[dict[str, Any]]) -> list[list[Cell]]:
    series = {name: Series([report[name] for report in reports]) for name in LABELS}
    return [
        [LABELS[name], one.median, times(one.ratio(series["parse"]))]
        for name, one in series.items()
    ]


async def child(file: str) -> dict[str, float]:
    """Run in a fresh process: parse the file, load it, load and register it."""
    from toolpost import Registry
    from toolpost.sources.files import FilesSource

    began = time.perf_counter()
    yaml.load(Path(file).read_text(), Loader=LOADER)
    parsed = time.perf_counter()
    source = FilesSource([file], base=Path(file).parent)
    loaded = list(await source.load(lambda done, total: None))
    listed = time.perf_counter()
    registry = Registry(loaded)
    registered = time.perf_counter()
    if len(registry) != COUNT:
        raise ValueError(f"{len(registry)} tools instead of {COUNT}")
    return {"parse": parsed - began, "load": listed - parsed, "register": registered - parsed}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(child(sys.argv[1]))))
