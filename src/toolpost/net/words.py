"""What went wrong on the way, in words for who looks after this and not for a model.

Above: the sources that ask the web for specs. Below: nothing but the message of a ``CallError``,
which ``client.py`` has written for whoever calls a tool.
"""

from __future__ import annotations

from typing import Final

from toolpost.errors import CallError

_ADVICE: Final = (" Try again later.", " Use another tool.", " Ask for less at a time.")
"""What a model is told, and a config's owner need not be."""


def plainly(fault: CallError) -> str:
    """What went wrong, without what a model is advised to do about it."""
    said = fault.message.removeprefix("This tool may not connect there: ")
    for advice in _ADVICE:
        said = said.removesuffix(advice)
    return said.removesuffix(".")
