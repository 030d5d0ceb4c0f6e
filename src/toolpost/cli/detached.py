"""Who runs jobs when no gateway does: a process of its own, started when there is something to run.

Above: ``call.py --detach`` and ``jobs.py``. Below: ``toolpost jobs run`` in a session of its own:
it goes on when the command that started it ends, and ends when nothing is left to run. What it has
to say is in ``jobs.log`` in the state folder. If it is killed, the next command that looks at jobs
starts another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from toolpost.config import Config
from toolpost.jobs import Board, house

LOG: Final = "jobs.log"
_MOST: Final = 1024 * 1024
"""Bytes of the log: then it begins anew."""


async def see_to(board: Board, config: Config) -> bool:
    """If there are jobs that nobody runs, start somebody who does; whether that was needed."""
    if await board.held_by(house(config)):
        return False
    async for _ in board.left():
        _start(config)
        return True
    return False


def _start(config: Config) -> None:
    words = ["--config", str(config.file.resolve())] if config.file else []
    state = config.base / config.settings.state
    log = _log(state / LOG)
    try:
        started = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "toolpost.cli.main", *words, "jobs", "run"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started.returncode = 0  # it is nobody's to wait for: without this Python would complain
    finally:
        os.close(log)


def _log(file: Path) -> int:
    begins_anew = file.exists() and file.stat().st_size > _MOST
    anew = os.O_TRUNC if begins_anew else 0
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | anew
    return os.open(file, flags, 0o600)
