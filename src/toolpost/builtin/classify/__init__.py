"""Data: ``classify_data`` says what a text or a file is, before anybody works with it.

    [sources.classify]
    roots = ["data"]

It looks at the beginning only, and unpacks no more than it has to look at.
"""

from toolpost.builtin.classify.tool import SAMPLE, Settings, classify_data, tools

__all__ = ["SAMPLE", "Settings", "classify_data", "tools"]
