"""Logs: ``analyze_logs`` tells in a page what a log says: templates, levels, bursts and errors.

    [sources.logs]
    roots = ["logs", "/var/log/app"]

A log comes as text or as a file, packed or not; one of any size is read once, in bounded memory.
"""

from toolpost.builtin.logs.tool import SAMPLE, Settings, analyze_logs, tools

__all__ = ["SAMPLE", "Settings", "analyze_logs", "tools"]
