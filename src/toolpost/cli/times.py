"""Times on the screen: a moment on the clock of who reads it, and how long something takes.

Above: commands that list what waits or has run. Below: nothing of ours.
"""

from __future__ import annotations

from datetime import datetime


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%d %b %H:%M:%S")


def span(seconds: float) -> str:
    """Rounded down: who reads how much is left is not to be too late."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds) // 1:.0f} s"
