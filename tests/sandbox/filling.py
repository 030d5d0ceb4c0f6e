"""Programs that try to fill a disk. Each runs inside a sandbox, in a folder it may write to, and
ends by itself after 1.5 GB or 200,000 files: it prints ``done`` then.
"""

from __future__ import annotations

import os
from pathlib import Path

_BEGIN = """
import mmap, os, signal, socket, sys, time
MANY, PIECE = 1_500, os.urandom(1_000_000)
def create(path): return os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
def fork(work):
    pid = os.fork()
    if pid == 0:
        try: work()
        finally: os._exit(0)
    return pid
"""

ATTACKS = {
    "large files by many processes": (
        "disk",
        """
def work(n):
    for i in range(MANY // 15):
        fd = create(f"{n}-{i}"); os.write(fd, PIECE); os.close(fd)
for pid in [fork(lambda n=n: work(n)) for n in range(15)]: os.waitpid(pid, 0)
""",
    ),
    "small files": (
        "disk",
        """
for i in range(1_500_000):
    fd = create(str(i % 150)); os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, PIECE[:10_000]); os.close(fd)
""",
    ),
    "empty files": (
        "files",
        "for i in range(200_000): os.close(create(str(i)))",
    ),
    "links and folders": (
        "files",
        "for i in range(100_000): os.symlink('x' * 100, f'l{i}'); os.mkdir(f'd{i}')",
    ),
    "folders in one another": (
        "files",
        "for i in range(200_000): os.mkdir('d'); os.chdir('d')",
    ),
    "files in closed folders": (
        "files",
        """
for i in range(2_000):
    os.mkdir(f"d{i}")
    for n in range(100): os.close(create(f"d{i}/{n}"))
    os.chmod(f"d{i}", 0)
""",
    ),
    "files without a name": (
        "disk",
        """
held = []
for i in range(200):
    fd = create("x"); os.unlink("x"); held.append(fd)
    for _ in range(7): os.write(fd, PIECE)
""",
    ),
    "a map of files without a name": (
        "disk",
        """
maps = []
for i in range(200):
    fd = create("x"); os.unlink("x"); os.ftruncate(fd, 7_000_000)
    maps.append(mmap.mmap(fd, 7_000_000)); os.close(fd)
    for at in range(0, 7_000_000, 4096): maps[-1][at] = 1
""",
    ),
    "children that nobody waits for, and links of one file": (
        "disk",
        """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for i in range(MANY):
    def work():
        fd = create(f"x{i}"); os.write(fd, PIECE); os.link(f"x{i}", f"y{i}")
    fork(work)
    if i % 8 == 0: time.sleep(0.002)
time.sleep(1)
""",
    ),
}

HARMLESS = """
for i in range(50):
    fd = create(f"sparse{i}"); os.ftruncate(fd, 7_000_000); os.close(fd)
fd = create("x"); os.write(fd, PIECE)
for i in range(1_000): os.link("x", f"y{i}")
for _ in range(100): os.pwrite(fd, PIECE, 0)
try: os.posix_fallocate(fd, 0, 2_000_000)
except OSError as error: print(error)
"""


def program(attack: str) -> str:
    return f"{_BEGIN}\n{attack}\nprint('done')\n"


def left(folder: Path) -> tuple[int, int]:
    """Bytes and files that are in a folder, as far down as paths can be; hard links count once."""
    size, files, waiting, seen = 0, 0, [str(folder)], set()
    while waiting:
        for entry in os.scandir(waiting.pop()):
            about = entry.stat(follow_symlinks=False)
            if about.st_ino in seen:
                continue
            seen.add(about.st_ino)
            files += 1
            size += about.st_blocks * 512
            if entry.is_dir(follow_symlinks=False) and len(entry.path) < 3_000:
                os.chmod(entry.path, 0o700)
                waiting.append(entry.path)
    return size, files
