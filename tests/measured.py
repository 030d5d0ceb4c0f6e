"""Runs a Python file and writes down every step it takes from line to line of the package.

``tests/conftest.py`` puts this before the keeper's file when coverage is measured, and gives what
was written to coverage in the end. Coverage's own way into child processes is of no use here: it
writes when a process ends in order, and ours end by SIGKILL, ``exec`` and ``os._exit``; they have
no environment, no site-packages and no descriptors of ours either. So each step is written the
moment it is taken for the first time, and the file is opened and closed for it.
"""

from __future__ import annotations

import contextlib
import opcode
import os
import resource
import sys
from importlib.machinery import SourceFileLoader
from types import FrameType

RESUME = opcode.opmap["RESUME"]


def may_grow(fd: int) -> bool:
    """Whether a write would not end the process: a tool may be held to small files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return limit == resource.RLIM_INFINITY or os.fstat(fd).st_size + 4096 < limit


class Measured(dict[str, bool]):
    """Which files are: the package's own, and those in its rooms, as in
    ``/path/package/:schema/:backends/python/``.
    """

    def __init__(self, package: str) -> None:
        self.package, *rooms = package.split(":")
        self.rooms = tuple(rooms)

    def __missing__(self, file: str) -> bool:
        inside = file.removeprefix(self.package)
        self[file] = inside != file and ("/" not in inside or inside.startswith(self.rooms))
        return self[file]


class Steps:
    """A trace function: sees each frame, follows those of files that are measured."""

    def __init__(self, record: str, package: str) -> None:
        self.record = record
        self.taken: set[tuple[str, int, int]] = set()
        measured, follow = Measured(package), self.follow

        def enter(frame: FrameType, event: str, _: object) -> object:
            # every call of the process comes by here
            return follow(frame) if measured[frame.f_code.co_filename] else None

        self.enter = enter

    def follow(self, frame: FrameType) -> object:
        file = frame.f_code.co_filename
        code = frame.f_code.co_code
        first = frame.f_code.co_firstlineno
        resumed = code[frame.f_lasti + 1] != 0  # what RESUME says: 0 is a call, else after a yield
        last = frame.f_lineno if resumed else -first

        def follow(frame: FrameType, event: str, _: object) -> object:
            nonlocal last
            if event == "line":
                self.take(file, last, frame.f_lineno)
                last = frame.f_lineno
            elif event == "return" and RESUME not in code[frame.f_lasti : frame.f_lasti + 3 : 2]:
                if sys.version_info >= (3, 14) and frame.f_lineno != last:
                    self.take(file, last, frame.f_lineno)  # it tells of some lines only now
                    last = frame.f_lineno
                self.take(file, last, -first)
            return follow

        return follow

    def take(self, file: str, start: int, end: int) -> None:
        if (file, start, end) in self.taken:
            return
        self.taken.add((file, start, end))
        with contextlib.suppress(OSError):  # it may have used up its descriptors, on purpose
            fd = os.open(self.record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if may_grow(fd):
                    os.write(fd, f"{start}\t{end}\t{file}\n".encode())
            finally:
                os.close(fd)


def steps(record: str) -> dict[str, set[tuple[int, int]]]:
    """What has been written, by file; of a line that was cut short nothing is known."""
    import re  # not in a child: it has little to spare

    whole_line = re.compile(r"(-?[0-9]+)\t(-?[0-9]+)\t(/[^\t]+)\n")
    found: dict[str, set[tuple[int, int]]] = {}
    with open(record, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if whole := whole_line.fullmatch(line):
                found.setdefault(whole[3], set()).add((int(whole[1]), int(whole[2])))
    return found


def main(record: str, package: str, program: str) -> None:
    code = SourceFileLoader("__main__", program).get_code("__main__")
    assert code is not None
    module = sys.modules["__main__"] = type(sys)("__main__")
    sys.settrace(Steps(record, package).enter)
    exec(code, module.__dict__)


if __name__ == "__main__":
    _, *ours, program = sys.argv[:4]
    del sys.argv[:3]
    main(*ours, program)
