"""The time: the system's, unless a test brings its own (``toolpost.testing.Clock``)."""

from __future__ import annotations

import time as _time


class SystemClock:
    """``time`` is for people and records, ``monotonic`` for limits: it never jumps."""

    time = staticmethod(_time.time)
    monotonic = staticmethod(_time.monotonic)
