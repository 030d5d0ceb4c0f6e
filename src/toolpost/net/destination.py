"""Where a connection may lead: decided by name and port, and then by the addresses behind them.

Above: whoever connects for a tool. Below: the resolver. A name is resolved once for a connection,
and the addresses that were looked at are the ones that are connected to. It refuses to know what is
sent.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port → addresses; raises ``OSError`` where there are none."""

_NAME: Final = re.compile(
    r"(?=.{1,254}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
    r"(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?"
)
_LIKE_A_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*\.?")
_LOCAL: Final = "localhost"
_UNICAST: Final = IPv6Network("2000::/3")
"""All that has been given out for everybody to reach; what is outside is special in some way."""
_CARRIERS: Final = tuple(map(IPv6Network, ("::/96", "64:ff9b::/96", "::ffff:0:0:0/96")))
"""IPv4 inside IPv6: the old compatible form, NAT64, and the translated one."""


class Refused(Exception):
    """Not granted; the text says why."""


class Unresolved(Refused):
    """There is no such name."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """What the system's resolver says."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]


class Granted:
    """What one description grants; it remembers which names were private when first looked up.

    ``egress`` are exact ``host:port``, which may be private, and ``*`` for all that is public.
    ``public`` are exact ones that must be.
    """

    def __init__(
        self, egress: Collection[str], *, public: Collection[str] = (), resolve: Resolve = resolved
    ) -> None:
        self._exact = frozenset(one.lower() for one in egress if one != "*")
        self._public = frozenset(one.lower() for one in public)
        self._any_public = "*" in egress
        self._private: dict[str, bool] = {}
        self._resolve = resolve

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses to connect to; raises ``Refused`` if one of them is not granted."""
        literal = self.verify(host, port)
        if literal is not None:
            return [str(literal)]
        host = host.lower()
        exact = self.names(host, port)
        found = await self._looked_up(host, port)
        for one in found:
            self._check(host, one, exact=exact)
        return list(dict.fromkeys(map(str, found)))

    def verify(self, host: str, port: int) -> Address | None:
        """As far as can be seen from the spelling: the address, if it is one; else ``Refused``."""
        literal = literal_from(host)
        spelled = _spelled(host, literal, port)
        if spelled in self._exact:
            return literal
        if not self._any_public and spelled not in self._public:
            raise Refused(f"{spelled} is not granted")
        local = f".{spelled}".rpartition(":")[0].endswith(f".{_LOCAL}")
        if local or (literal is not None and not is_public(literal)):
            raise Refused(f"{host} is not a public address")
        return literal

    def names(self, host: str, port: int) -> bool:
        """Whether it is named, and so may be private."""
        return _spelled(host, literal_from(host), port) in self._exact

    def _check(self, host: str, address: Address, *, exact: bool) -> None:
        """A private host that was named is meant; a public one that turns private is a trick."""
        address = _unwrapped(address)
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

    async def _looked_up(self, host: str, port: int) -> list[Address]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise Unresolved(f"{host} cannot be found")
        return [ip_address(one.partition("%")[0]) for one in found]


def is_public(address: Address) -> bool:
    """Reachable for everybody, whatever it is wrapped in."""
    address = _unwrapped(address)
    if isinstance(address, IPv6Address) and (address not in _UNICAST or address.teredo):
        return False
    return address.is_global and not address.is_multicast


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in net for net in _CARRIERS) and not address.is_loopback:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def literal_from(host: str) -> Address | None:
    """An address in its one ordinary spelling; all others are refused, for they only hide."""
    host = host.lower()
    try:
        if "%" not in host:
            return ip_address(host.strip("[]")) if ":" in host else ip_address(host)
    except ValueError:
        pass
    if _LIKE_A_NUMBER.fullmatch(host) or not _NAME.fullmatch(host):
        raise Refused(f"{host[:100]!r} is neither a name nor an ordinary address")
    return None


def _spelled(host: str, literal: Address | None, port: int) -> str:
    if isinstance(literal, IPv6Address):
        return f"[{literal}]:{port}"
    return f"{host.lower().rstrip('.')}:{port}"
