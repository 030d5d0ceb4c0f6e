"""Docstrings: what a function says about itself and its parameters.

Above: ``describe.py``. Below: docstring-parser, loaded only for the styles that need it: NumPy and
Sphinx. Google's style, and plain text, are read here, for they are the common case and a
program may have ten thousand tools. It refuses to know types; annotations tell those.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final

_PARAMETERS: Final = frozenset(
    ("Args:", "Arguments:", "Parameters:", "Params:", "Keyword Args:", "Keyword Arguments:")
)
_LEFT_OUT: Final = frozenset(("Returns:", "Return:", "Raises:", "Yields:", "Yield:"))
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"^(?:Other )?Parameters\n-{3,}", re.MULTILINE)

Described = tuple[str, dict[str, str]]


def read(text: str | None) -> Described:
    """The description, without the sections on parameters and outcome; and the parameters'."""
    if not text:
        return "", {}
    text = cleandoc(text)
    if ":param " in text or ":parameter " in text or _NUMPY.search(text):
        return _parsed(text)
    if ":\n" not in text:
        return text, {}
    return _google(text)


def _google(text: str) -> Described:
    kept: list[str] = []
    parameters: dict[str, list[str]] = {}
    section = ""  # the name of the section being left out or read; empty in the description
    indent = 0
    entry: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if stripped and depth == 0:
            section = stripped if stripped in _PARAMETERS or stripped in _LEFT_OUT else ""
            indent = 0
        if not section:
            kept.append(line)
        elif section in _PARAMETERS and stripped and depth:
            found = _ENTRY.match(stripped) if not indent or depth <= indent else None
            if found:
                indent = depth
                entry = parameters[found[1]] = [found[2]]
            else:
                entry.append(stripped)
    described = {name: " ".join(lines).strip() for name, lines in parameters.items()}
    return "\n".join(kept).strip(), described


def _parsed(text: str) -> Described:
    import docstring_parser  # 24 ms, and most programs have no such docstring

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    described = {
        p.arg_name.lstrip("*"): " ".join((p.description or "").split()) for p in parsed.params
    }
    return parsed.description or "", {name: said for name, said in described.items() if said}
