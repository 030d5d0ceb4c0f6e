"""URLs, read strictly: a scheme, a host in its one ordinary spelling, a port, and a target.

Above: the client, and bindings. Below: ``destination.py`` says what a host is. What two programs
might read in two ways is refused: the one that checks is not the one that connects. It refuses to
know who may go where.
"""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import quote, urljoin

import msgspec

from toolpost.net.destination import Refused, literal_from

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"(?i)(https?)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:]+)(?::([0-9]{1,5}))?")
_VISIBLE: Final = re.compile(r"[!-~]+")
_ASCII: Final = "".join(map(chr, range(33, 127)))


class Url(msgspec.Struct, frozen=True):
    """An absolute URL; ``target`` is the path and the query."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    target: str = "/"

    @property
    def authority(self) -> str:
        """Host and port, as a description names them."""
        return f"{self._bracketed}:{self.port}"

    @property
    def header(self) -> str:
        """What stands in the header ``Host``."""
        return self._bracketed if self.is_ordinary else self.authority

    @property
    def is_ordinary(self) -> bool:
        """Whether its port is the one of its scheme."""
        return self.port == _PORTS[self.scheme]

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.scheme}://{self.header}{self.target}"


def url_from(text: str) -> Url:
    """A URL from its text, or ``Refused``."""
    if not _VISIBLE.fullmatch(text) or "\\" in text:
        raise Refused("a URL has no blanks, backslashes or letters beyond ASCII in it")
    whole = _URL.fullmatch(text)
    if whole is None:
        raise Refused("a URL begins with https:// or http:// and a host")
    scheme, authority, target = whole[1].lower(), whole[2], whole[3]
    if "@" in authority:
        raise Refused("a user or a password has no place in a URL")
    parts = _AUTHORITY.fullmatch(authority)
    port = int(parts[2] or _PORTS[scheme]) if parts is not None else 0
    if parts is None or not 0 < port < 65536:
        raise Refused(f"{authority[:100]!r} is no host and port")
    host = parts[1].lower().strip("[]")
    literal = literal_from(host)
    host = host.rstrip(".") if literal is None else str(literal)
    return Url(
        "http" if scheme == "http" else "https",
        host,
        port,
        target if target.startswith("/") else f"/{target}",
    )


def joined(base: Url, location: str) -> Url:
    """Where a ``Location`` leads, seen from the URL that answered with it; or ``Refused``."""
    if re.search(r"[\x00-\x20\x7f\\]", location):
        raise Refused("a URL has no blanks, backslashes or control characters in it")
    try:
        return url_from(urljoin(str(base), quote(location, safe=_ASCII)))
    except ValueError:
        raise Refused("that is no URL") from None
