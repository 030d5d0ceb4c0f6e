"""Where a tool may connect to: decided by name and port, and then by the address behind them.

Above: ``egress.py``. Below: the resolver. A name is resolved once for a connection, and the address
that was looked at is the one that is connected to. It refuses to know what is sent.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?)+")
_LIKE_A_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*\.?")
_LOCAL: Final = "localhost"


class Refused(Exception):
    """Not granted; the text says why."""


class Granted:
    """What one description grants; it remembers which names were private when first looked up."""

    def __init__(self, egress: Collection[str]) -> None:
        self._exact = frozenset(one.lower() for one in egress if one != "*")
        self._any_public = "*" in egress
        self._private: dict[str, bool] = {}

    async def address(self, host: str, port: int) -> str:
        """The address to connect to; raises ``Refused``."""
        host = host.lower()
        literal = _literal(host)
        exact = self._named(host, literal, port)
        if not exact and not self._any_public:
            raise Refused(f"{host}:{port} is not granted")
        if literal is not None:
            if not exact and not is_public(literal):
                raise Refused(f"{host} is not a public address")
            return str(literal)
        found = await _resolved(host, port)
        for one in found:
            self._check(host, one, exact=exact)
        return str(found[0])

    def _named(self, host: str, literal: Address | None, port: int) -> bool:
        spelled = f"[{literal}]" if isinstance(literal, IPv6Address) else host.rstrip(".")
        return f"{spelled}:{port}" in self._exact

    def _check(self, host: str, address: Address, *, exact: bool) -> None:
        """A private host that was named is meant; a public one that turns private is a trick."""
        if is_public(address):
            if exact:
                self._private.setdefault(host, False)
            return
        if exact and host == _LOCAL and address.is_loopback:
            return
        harmless = address.is_private and not (
            address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address.is_reserved
        )
        if not exact or not harmless or not self._private.setdefault(host, True):
            raise Refused(f"{host} leads to an address that is not public")


def is_public(address: Address) -> bool:
    """Reachable for everybody, whatever it is wrapped in."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or _embedded(address)
        if inner is not None:
            return is_public(inner)
        teredo = address.teredo
        if teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """What NAT64 and the old compatible form carry."""
    number = int(address)
    if number >> 32 == 0x0064FF9B << 64 or (number >> 32 == 0 and number > 1):
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def _literal(host: str) -> Address | None:
    """An address in its one ordinary spelling; all others are refused, for they only hide."""
    try:
        return ip_address(host.strip("[]")) if ":" in host else ip_address(host)
    except ValueError:
        pass
    if _LIKE_A_NUMBER.fullmatch(host) or not _NAME.fullmatch(host):
        raise Refused(f"{host!r} is neither a name nor an ordinary address")
    return None


async def _resolved(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Refused(f"{host} cannot be found") from None
    return [ip_address(str(where[0]).partition("%")[0]) for *_, where in found]
