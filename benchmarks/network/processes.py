"""Server processes, and the one that asks them: started, spoken to in lines of JSON, stopped.

Above: the section. Below: the operating system, which also says how much time of a processor a
process has had. Knows no server by name.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.children import ChildFailed
from benchmarks.environment import ROOT

START_SECONDS = 60
STOP_SECONDS = 30
LOAD = (sys.executable, "-m", "benchmarks.network.load")


class Child:
    """A process that answers in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self._process, self._said = process, said

    def line(self, seconds: float) -> dict[str, Any]:
        """The next line it says, or why there is none."""
        out = _pipe(self._process.stdout)
        text = out.readline() if select.select([out], [], [], seconds)[0] else ""
        if not text:
            told = self._said.read_text(errors="replace").strip().splitlines()
            raise ChildFailed((told or [f"nothing said within {seconds:g} s"])[-1][:160])
        found: dict[str, Any] = json.loads(text)
        if "fault" in found:
            raise ChildFailed(found["fault"])
        return found

    def told(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What it answers to an order."""
        into = _pipe(self._process.stdin)
        into.write(json.dumps(order) + "\n")
        into.flush()
        return self.line(seconds)

    def spent(self) -> float:
        """Seconds of a processor that it has had so far, in all its threads."""
        clock = ~self._process.pid << 3 | 2  # as clock_getcpuclockid(3) makes it
        return time.clock_gettime(clock)


@contextmanager
def started(command: Sequence[str], said: Path) -> Iterator[Child]:
    """The process while it is wanted; what it says on standard error goes into a file."""
    with said.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield Child(process, said)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
