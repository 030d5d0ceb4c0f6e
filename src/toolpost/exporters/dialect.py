"""A vendor's dialect of JSON Schema, as data: what of it the vendor takes, and how.

Above: ``strict.py`` and ``gemini.py``, which say it for their vendors, and ``rewriting.py``, which
writes schemas by it. Below: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolpost.plain import Path, pointer


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor takes."""

    keywords: frozenset[str]
    """Constraints and annotations that stay as they are; what gives a schema its shape stays."""
    only: Mapping[str, frozenset[Any]] = {}
    """The values of a keyword, where not all are taken."""
    closed: bool = False
    """Every object must name all its properties."""
    all_required: bool = False
    anything: bool = True
    """A schema may leave open what a value is."""
    prefix_items: bool = False
    const: bool = True
    listed: frozenset[str] = frozenset(("string", "integer", "number", "boolean", "null"))
    """The types of what may stand in an ``enum``."""
    root_ref: str | None = None
    """How the root is referred to; without it, it is copied into ``$defs``."""
    cycles: bool | None = True
    """A schema may hold itself; None: where a value need not go that way."""
    deepest: int = 32


class Unfit(Exception):
    """A schema that cannot be said in a dialect."""

    def __init__(self, at: Path, why: str) -> None:
        super().__init__(f"{pointer(at) or 'the top level'}: {why}")
