"""A part's own table in the config: checked against what the part says it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from toolpost.errors import ConfigError
from toolpost.wording import explained, nearest, short


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Subclass it with the settings a part takes."""


T = TypeVar("T", bound=Options)


def options_from(given: Mapping[str, Any], kind: type[T], owner: str) -> T:
    """The options as a value, or a ``ConfigError`` that says what the owner takes."""
    known = kind.__struct_fields__
    for key in given:
        if key not in known:
            hint = nearest(key, known) or f"; it takes {', '.join(known) or 'none'}"
            raise ConfigError(f"{owner} has no setting {short(key)!r}{hint}", at=(key,))
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, kind)
        path = "".join(f" {step}" for step in at)
        raise ConfigError(f"{owner}{path}: {what}", at=at) from None
