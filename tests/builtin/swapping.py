"""A thread that swaps a folder for a link and back, for the tests of what must not be raced."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_AT_HERE, _EXCHANGE = -100, 2


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Both names at once, all the time: at no moment is either of them missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _RENAMEAT2[os.uname().machine]
    names = os.fsencode(one), os.fsencode(other)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            assert libc.syscall(number, _AT_HERE, names[0], _AT_HERE, names[1], _EXCHANGE) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
