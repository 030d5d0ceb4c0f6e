"""How far long work is, on standard error: a bar on a terminal, nothing elsewhere.

Above: ``opening.py`` while specs are loaded, ``call.py`` while a tool runs. Below: rich, imported
only when there is a bar to draw. Work that is done within the blink of an eye shows nothing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from toolpost.cli.options import Asked
from toolpost.cli.terminal import console, one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE: Final = 0.3
"""Seconds that pass without a bar."""


class Bar:
    """``with Bar("loading", asked=asked) as bar: bar.tell(3, 10)``, from any thread.

    Entered on an event loop, which draws the bar when the work takes long and tells nothing.
    """

    def __init__(self, what: str, *, asked: Asked) -> None:
        self._what = one_line(what)
        self._asked = asked
        self._drawn: tuple[Progress, TaskID] | None = None
        self._state: tuple[float | None, float | None, str | None] = (None, None, None)
        self._lock = threading.Lock()
        self._from = monotonic() + PATIENCE
        self._timer: asyncio.TimerHandle | None = None
        self._over = not sys.stderr.isatty()

    def tell(self, done: float | None, total: float | None, message: str | None = None) -> None:
        """So much is done, of so much."""
        self._state = (done, total, message)
        if monotonic() >= self._from:
            self.draw()

    def draw(self) -> None:
        """Show the bar as things stand."""
        with self._lock:
            if self._over:
                return
            if self._drawn is None:
                self._drawn = self._begun()
            progress, task = self._drawn
            done, total, message = self._state
            what = self._what if message is None else one_line(message)
            progress.update(task, completed=done or 0, total=total, description=what)

    def stop(self) -> None:
        """Take the bar away for good."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._drawn is not None:
                self._drawn[0].stop()
                self._drawn = None

    def _begun(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console(self._asked, stderr=True),
            transient=True,
        )
        progress.start()
        return progress, progress.add_task(self._what, total=None)

    def __enter__(self) -> Self:
        if not self._over:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self.draw)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
