"""What ``doctor.py`` runs to see whether tools run and can be stopped: two tools.

They are imported in worker processes. Below: the standard library.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from toolpost.call import Call

_DAEMON = """
import fcntl, os, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
signal.pause()
"""


def pid_namespace() -> str:
    """Which pid namespace this process is in; elsewhere than on Linux, none."""
    link = Path("/proc/self/ns/pid")
    return str(link.readlink()) if link.exists() else ""


def leave_daemon(lock: str, call: Call) -> None:
    """Start a process that leaves us behind and holds a lock while it lives; then never end."""
    argv = [sys.executable, "-I", "-S", "-c", _DAEMON, lock]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:  # noqa: S603 - our own program
        assert child.stdout is not None
        if child.stdout.readline() == b"held\n":
            call.progress(1, 1, "held")
        threading.Event().wait()
