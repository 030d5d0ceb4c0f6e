"""The benchmarks' own virtual environment: made once, renewed when what it is made of changes.

Runs on the plain standard library, because it runs before anything is installed. A peer that cannot
be installed is written down with pip's reason and left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
STAMP = VENV / "made-of"
NOT_INSTALLED = VENV / "not-installed.json"


def inside() -> bool:
    return Path(sys.prefix).resolve() == VENV


def prepare() -> None:
    """Make the environment, unless it is there and made of the same things."""
    stamp = _made_of()
    if STAMP.exists() and STAMP.read_text() == stamp:
        return
    _say("making benchmarks/.venv and installing toolpost and its peers (about a minute)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    if reason := _install("-e", str(ROOT)):
        raise SystemExit(f"toolpost could not be installed from the tree: {reason}")
    NOT_INSTALLED.write_text(json.dumps(_install_peers(), indent=1))
    STAMP.write_text(stamp)


def enter(arguments: list[str]) -> None:
    """Start over as the environment's own Python; does not come back."""
    os.chdir(ROOT)
    os.execv(PYTHON, [str(PYTHON), "-m", "benchmarks", *arguments])


def _made_of() -> str:
    parts = [sys.version, REQUIREMENTS.read_text(), (ROOT / "pyproject.toml").read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _install_peers() -> dict[str, str]:
    """All at once, so that they agree; one by one if that fails, so that one cannot spoil all."""
    lines = [line.strip() for line in REQUIREMENTS.read_text().splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    if not _install(*wanted):
        return {}
    failed = {name: _install(name) for name in wanted}
    for name, reason in failed.items():
        if reason:
            _say(f"{name} is left out: {reason}")
    return {name: reason for name, reason in failed.items() if reason}


def _install(*what: str) -> str:
    """An empty string, or why it failed."""
    done = subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", *what],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
    return (errors or done.stderr.strip().splitlines() or ["pip failed"])[-1][:200]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
