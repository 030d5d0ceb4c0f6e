"""Fresh interpreters: what has to be measured from nothing is measured in one of these.

Below the sections that need it; knows how to run Python and to read one line of JSON back, not what
it measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT


class ChildFailed(Exception):
    """A child ended badly or not at all; the message is the last line it wrote."""


def run(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's root and wait for it, but not for ever."""
    try:
        done = subprocess.run(
            arguments,
            cwd=ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"not finished after {seconds:g} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise ChildFailed(f"exit {done.returncode}: {last.replace(f'{ROOT}/', '')[:160]}")
    return done


def _environment() -> dict[str, str]:
    """Ours, but byte code is written: what is installed has it, and so has to have what is not."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def figures(*arguments: str, seconds: float = 120) -> dict[str, Any]:
    """Run Python with these arguments; its last line of output is the JSON object wanted."""
    done = run(sys.executable, *arguments, seconds=seconds)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def resident_kib() -> int:
    """The memory of this process that is in RAM now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ChildFailed("no VmRSS in /proc/self/status")
