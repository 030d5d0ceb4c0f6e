"""The real program, run in a process of its own: piped, or in a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests import warm
from toolpost.cli.main import status

PROGRAM = (sys.executable, "-m", "toolpost.cli.main")
_UNWANTED = ("TOOLPOST_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM")
_TAKE_THE_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "  # whoever runs the tests may ignore it
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_UNWANTED)}
    return {**kept, "COLUMNS": "80", "TERM": "xterm", "PYTHONUTF8": "1", **more}


def toolpost(
    *words: str, cwd: Path, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    env = environment(**variables)
    return warm.run(words, module="toolpost.cli.main", cwd=cwd, env=env, stdin=stdin)


def inside(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same without a process: for what depends on none."""
    out, err = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        code = status(list(words))
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def json_of(*words: str, cwd: Path) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(toolpost(*words, "--json", cwd=cwd).stdout)


class Terminal:
    """The program in a terminal of its own: what it writes, and keys to press."""

    def __init__(
        self, *words: str, cwd: Path, program: Sequence[str] = PROGRAM, **variables: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.written = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_THE_TERMINAL, *program, *words],
            cwd=cwd,
            env=environment(**variables),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def read_until(self, text: str, *, within: float = 30) -> None:
        end = time.monotonic() + within
        while text not in self.written:
            assert self._read(end - time.monotonic()), f"never wrote {text!r}: {self.written!r}"

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def ended(self, *, within: float = 30) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + within
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, seconds))
        try:
            data = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the other end is closed
            return False
        self.written += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._ours)
