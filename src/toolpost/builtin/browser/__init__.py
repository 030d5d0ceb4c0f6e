"""A real browser: ``browser_navigate``, ``browser_snapshot``, ``browser_extract``,
``browser_screenshot``, ``browser_click``, ``browser_fill``.

    [sources.browser]
    egress = ["*", "localhost:3000"]

Chromium runs in a sandbox, where nothing leads out but a proxy that lets through what is granted;
so it does not matter what a page makes it ask for. Needs ``toolpost[browser]`` and the system's
Chromium.
"""

from toolpost.builtin.browser.settings import SAMPLE, Settings
from toolpost.builtin.browser.tool import tools

__all__ = ["SAMPLE", "Settings", "tools"]
