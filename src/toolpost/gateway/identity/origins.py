"""By which name this gateway may be called, and from which web pages; and where it may listen.

Above: the application, before anything else of a request is looked at. Below: nothing. A name that
was made to lead here (DNS rebinding) arrives in ``Host``, a page that was lured somewhere arrives
in ``Origin``: both are refused unless they were expected. Who asks is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol

from toolpost.errors import ConfigError
from toolpost.gateway.identity.settings import AuthSettings
from toolpost.wording import short

_HOST: Final = re.compile(
    r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?)\.?(?::([0-9]{1,5}))?"
)
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@\\\s]+)")
_PORTS: Final = {"http": "80", "https": "443"}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_LONGEST: Final = 300
_REMEMBERED: Final = 64

Place = tuple[str, str]
"""Name and port, the port empty where none is said."""


class _Listens(Protocol):
    """Settings that say where the gateway listens, and by which names it is known."""

    @property
    def host(self) -> str: ...

    @property
    def hosts(self) -> tuple[str, ...]: ...

    @property
    def origins(self) -> tuple[str, ...]: ...


class Origins:
    """``host`` is what it listens on, ``hosts`` are the names that it has beside that, with a port
    or for any; ``origins`` are pages, as ``https://app.example.com``, that may call it.
    """

    def __init__(
        self, *, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> None:
        self._hosts = {_named(name) for name in hosts} | {(name, "") for name in _own(host)}
        self._any_address = _is_everywhere(host)
        self._origins = frozenset(map(_page, origins))
        self._good: set[bytes] = set()
        """Headers that were good, as they came: mostly the next one is the same."""

    def refused(self, host: bytes | None, origin: bytes | None) -> str | None:
        """Why a request is refused, or ``None``."""
        if origin is None and host in self._good:
            return None
        place = None if host is None else _place(host)
        if host is None or place is None:
            return "The request does not say properly which host it is for (Host)."
        name, port = place
        if not ((name, "") in self._hosts or (name, port) in self._hosts or self._is_address(name)):
            return (
                "This is not a name of this gateway (Host). If it is meant to be one, whoever runs "
                "it adds it to hosts in [gateway]."
            )
        if len(self._good) < _REMEMBERED:
            self._good.add(host)
        return None if origin is None else self._refused_page(origin, place)

    def _refused_page(self, origin: bytes, place: Place) -> str | None:
        page = _parted(origin)
        if page is not None:
            scheme, name, port = page
            own = (name, port) == (place[0], place[1] or _PORTS[scheme])
            if own or f"{scheme}://{name}:{port}" in self._origins:
                return None
        return (
            "Pages of this origin may not call this gateway (Origin). If they are meant to, "
            "whoever runs it adds the origin to origins in [gateway]."
        )

    def _is_address(self, name: str) -> bool:
        """Listening everywhere, it has every address; a page cannot make one lead elsewhere."""
        return self._any_address and _address(name) is not None


def refused_origin(settings: _Listens, host: bytes | None, origin: bytes | None) -> str | None:
    """Why a request to this host from this page is refused, or ``None``: for who asks once."""
    origins = Origins(host=settings.host, hosts=settings.hosts, origins=settings.origins)
    return origins.refused(host, origin)


def refused_binding(settings: AuthSettings, host: str) -> str | None:
    """Why a gateway with these settings may not listen there, or ``None``."""
    if not settings.anonymous or _is_loopback(host):
        return None
    return (
        f"{short(host)!r} can be reached from other machines, and nobody would be asked who they "
        "are. Make a key with: toolpost keys create NAME, and say in toolpost.toml\n"
        "[gateway.auth]\nkeys = true\n"
        "or name an issuer there; or listen on 127.0.0.1"
    )


def _is_loopback(host: str) -> bool:
    address = _address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return host.lower() == "localhost" if address is None else address.is_loopback


def _is_everywhere(host: str) -> bool:
    address = _address(host)
    return not host or (address is not None and address.is_unspecified)


def _own(host: str) -> Iterable[str]:
    """The names of what it listens on."""
    if _is_loopback(host) or _is_everywhere(host):
        yield from _LOOPBACK
    if host:
        yield f"[{_address(host)}]" if ":" in host else host.lower().rstrip(".")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None


def _place(header: bytes) -> Place | None:
    """Name and port of a ``Host``; ``None`` for what is none."""
    if len(header) > _LONGEST or not header.isascii():
        return None
    match = _HOST.fullmatch(header.decode("ascii").lower())
    if match is None:
        return None
    name = match[1]
    if name.startswith("["):
        address = _address(name)
        return None if address is None else (f"[{address}]", match[2] or "")
    return name, match[2] or ""


def _parted(origin: bytes) -> tuple[str, str, str] | None:
    """Scheme, name and port of an ``Origin``; ``null`` and whatever else is none has none."""
    if len(origin) > _LONGEST or not origin.isascii():
        return None
    match = _ORIGIN.fullmatch(origin.decode("ascii").lower())
    place = None if match is None else _place(match[2].encode("ascii"))
    if match is None or place is None:
        return None
    return match[1], place[0], place[1] or _PORTS[match[1]]


def _named(name: str) -> Place:
    place = _place(name.encode("utf-8", "replace"))
    if place is None:
        raise ConfigError(
            f"{short(name)!r} is no name of a host: write tools.example.com, or with a port "
            "tools.example.com:8443",
            at=("hosts",),
        )
    return place


def _page(text: str) -> str:
    parted = _parted(text.encode("utf-8", "replace"))
    if parted is None:
        raise ConfigError(
            f"{short(text)!r} is no origin: write https://app.example.com, without a path",
            at=("origins",),
        )
    scheme, name, port = parted
    return f"{scheme}://{name}:{port}"
