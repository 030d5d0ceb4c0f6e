"""What specs from afar may ask of this machine: no more than the config grants their source.

A spec is data, but it names things that are here: a module, a program, a server of the config, a
secret, an address of the inner network. Whoever can write such specs from elsewhere would reach
them all. So a source of that sort has a list of kinds, of secrets and of addresses, and a tool that
asks for anything else is left out, with the reason.

Above: the sources ``http`` and ``database``. Below: specs. It refuses to know where they come from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from toolpost.errors import ConfigError
from toolpost.spec import ToolSpec
from toolpost.wording import short

_log = logging.getLogger("toolpost.sources")

KINDS: Final = ("http",)
"""Without further words: requests to public addresses, without a secret of yours."""
ALL: Final = "*"
_IN_AUTH: Final = frozenset(("bearer", "password", "user_secret", "secret"))
"""The keys of an HTTP tool's ``auth`` that hold the name of a secret."""


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """``kinds`` and ``secrets`` may be ``*``, all of them; ``egress`` are exact ``host:port``."""

    kinds: tuple[str, ...] = KINDS
    secrets: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if ALL in self.egress:
            raise ConfigError(
                "egress: public addresses are open to tools anyway; name the others as host:port",
                at=("egress",),
            )


def sifted(
    specs: Iterable[ToolSpec], grants: Grants, label: str
) -> tuple[list[ToolSpec], dict[str, str]]:
    """The specs that ask for no more than is granted, and of the others the reason, by name."""
    kept, left_out = [], {}
    for spec in specs:
        if (why := _beyond(spec, grants)) is None:
            kept.append(spec)
        else:
            left_out[spec.name] = why
    for name, why in left_out.items():
        _log.warning("%s: the tool %s is left out: %s", label, name, why)
    return kept, left_out


def _beyond(spec: ToolSpec, grants: Grants) -> str | None:
    if ALL not in grants.kinds and spec.kind not in grants.kinds:
        return _lacking("kinds", spec.kind)
    for name in _secrets(spec.kind, spec.binding):
        if ALL not in grants.secrets and name not in grants.secrets:
            return _lacking("secrets", name)
    named = {one.lower() for one in grants.egress}
    for one in spec.egress:
        if one != ALL and one.lower() not in named:
            return _lacking("egress", one)
    return None


def _lacking(setting: str, wanted: object) -> str:
    return (
        f"it asks for {short(wanted)!r}, and its source is not granted that: if it is meant, add "
        f"it to the source's {setting}"
    )


def _secrets(kind: str, binding: Mapping[str, Any]) -> Iterator[str]:
    """The names of secrets in a binding that its kind has found in order."""
    if kind == "http":
        yield from _in_auth(binding.get("auth"))
    elif kind == "python":
        yield from binding.get("env", ())
    elif kind == "shell":
        yield from binding.get("secrets", ())


def _in_auth(auth: Any) -> Iterator[str]:
    if isinstance(auth, Mapping):
        for key, value in auth.items():
            if key in _IN_AUTH and isinstance(value, str):
                yield value
            else:
                yield from _in_auth(value)
    elif isinstance(auth, list | tuple):
        for one in auth:
            yield from _in_auth(one)
