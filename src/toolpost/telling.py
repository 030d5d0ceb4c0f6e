"""Telling a caller what is written while it is being written: whole lines, ten times a second at
most.

Above: backends whose tools write texts bit by bit. Below: the call. It refuses to know where the
text comes from.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from toolpost.call import Call
from toolpost.characters import stripped
from toolpost.wording import redacted_and_shortened

_log = logging.getLogger("toolpost.tools")
_EVERY: Final = 0.1
"""Seconds between two pieces that a listener is told."""
_LONGEST: Final = 16 * 1024
"""Bytes of a line that is told before its end is there."""
_MOST_MESSAGE: Final = 500


class Telling:
    """Output is told as pieces of it, what is said beside it as messages."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting = {True: bytearray(), False: bytearray()}
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def hear(self, data: bytes, *, is_output: bool = True) -> None:
        self._waiting[is_output] += data
        if self._resting is None:
            self._tell()

    def close(self) -> None:
        """Tell the lines that wait, and no more."""
        if self._resting is not None:
            self._resting.cancel()
        self._tell()
        if self._resting is not None:
            self._resting.cancel()

    def _tell(self) -> None:
        self._resting = None
        told = False
        for is_output, waiting in self._waiting.items():
            end = waiting.rfind(b"\n") + 1 or (len(waiting) if len(waiting) > _LONGEST else 0)
            if end:
                self._say(bytes(waiting[:end]).decode("utf-8", "replace"), is_output=is_output)
                del waiting[:end]
                told = True
        if told:
            self._resting = self._loop.call_later(_EVERY, self._tell)

    def _say(self, text: str, *, is_output: bool) -> None:
        try:
            if is_output:
                self._call.partial(text)
            elif lines := stripped(text).strip().splitlines():
                self._call.progress(message=redacted_and_shortened(lines[-1], _MOST_MESSAGE))
        except Exception:  # noqa: BLE001 - a listener's fault must not end the tool
            _log.exception("a listener failed on what %s writes", self._call.tool)
