"""Files: read, write, edit, list, search and delete, inside the folders that the config names.

    [sources.files]
    roots = ["workspace"]
    read = ["/var/log/app"]

The tools run in a worker, where a call that takes too long is killed; whether a file lies beneath
its folder is decided by the kernel, and what is written is there whole or not at all.
"""

from toolpost.builtin.files.settings import SAMPLE, Settings
from toolpost.builtin.files.tools import tools

__all__ = ["SAMPLE", "Settings", "tools"]
