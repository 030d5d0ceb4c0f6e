"""The manifest of a tool: what it may do, and that it can do no more.

Above: ``bringing.py``, which makes a spec with its grants. Below: ``document``, ``spec``. It
refuses to know how a grant is enforced: that is the sandbox's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from toolpost.document import read
from toolpost.errors import InvalidSpec
from toolpost.wording import explained, nearest, short

_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_PLACE: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_HTTPS: Final = 443


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Network(_Part, frozen=True):
    egress: tuple[str, ...] = ()
    """``*`` for every public address, ``host:port``, or a host alone: then port 443."""

    def __post_init__(self) -> None:
        for one in self.egress:
            place = _PLACE.fullmatch(one)
            if not (one == "*" or _HOST.fullmatch(one) or (place and 0 < int(place[1]) < 65536)):
                raise InvalidSpec(
                    f"egress {short(one)!r} is neither a host, nor host:port, nor * for every "
                    "public address; a part of a name cannot be granted",
                    at=("capabilities", "network", "egress"),
                )

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(f"{one}:{_HTTPS}" if _HOST.fullmatch(one) else one for one in self.egress)


class Resources(_Part, frozen=True):
    memory: int | str | None = None
    cpus: float | None = None


class Capabilities(_Part, frozen=True):
    network: Network = Network()
    resources: Resources = Resources()


class Provides(_Part, frozen=True):
    tool: str
    security_tier: int


class Manifest(_Part, frozen=True):
    """What is not in ``capabilities`` is not granted; what is there and not understood is refused,
    for nobody could keep to it.
    """

    name: str
    version: str
    type: Literal["tool"]
    provides: Provides
    capabilities: Capabilities = Capabilities()

    @classmethod
    def of(cls, data: Any) -> Self:
        """From plain data; a fault is an ``InvalidSpec`` that knows its place."""
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise InvalidSpec("a manifest is an object with name, version, type and provides")
        _verify(data.get("capabilities"), Capabilities, "capabilities")
        _verify(data.get("provides"), Provides, "provides")
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as fault:
            what, at = explained(fault, cls)
            where = ".".join(map(str, at))
            raise InvalidSpec(f"manifest: {where + ': ' if where else ''}{what}", at=at) from None

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """From a file, ``manifest.json`` mostly."""
        file = Path(path)
        document = read(file)
        try:
            return cls.of(document.data)
        except InvalidSpec as fault:
            where = document.where(fault.at) if fault.at else str(file)
            raise InvalidSpec(f"{where}: {fault.message}", at=fault.at) from None


_INSIDE: Final[Mapping[str, type[_Part]]] = {"network": Network, "resources": Resources}


def _verify(given: Any, kind: type[_Part], *at: str) -> None:
    """Refuse what is not known, in these parts and those below."""
    if not isinstance(given, Mapping):
        return
    names = kind.__struct_encode_fields__
    for name, below in given.items():
        if name not in names:
            raise InvalidSpec(
                f"{'.'.join(at)} has no {short(str(name))!r}{nearest(str(name), names)}",
                at=(*at, str(name)),
            )
        if name in _INSIDE:
            _verify(below, _INSIDE[name], *at, name)
