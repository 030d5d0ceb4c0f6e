"""Where an operation is: the address that its path is joined to.

Above: ``converting.py``. Below: ``net``, which says what a URL is. What the config says comes
before all that a document says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

from toolpost.net.destination import Refused
from toolpost.net.url import Url, url_from
from toolpost.sources.openapi.description import Description, Object, Operation, Place, Unfit
from toolpost.wording import short

_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


class Server(NamedTuple):
    """The beginning of every URL, without a slash at its end."""

    prefix: str
    url: Url


class Servers:
    """The servers of a document; ``home`` is the address it came from, if from the web, and
    ``named`` the host and port that somebody asked for it.
    """

    def __init__(
        self,
        description: Description,
        *,
        base_url: str | None,
        home: str | None,
        named: str | None,
    ) -> None:
        self._description = description
        self._base_url = base_url
        self._home = home
        self._named = {named} if base_url is None else {url_from(base_url).authority}

    def server_of(self, operation: Operation) -> Server:
        """The first that can be used, one with https before the others."""
        if self._base_url is not None:
            return _server(self._base_url, ())
        written, at = self._written(operation)
        usable, why = [], "it has no server"
        for number, one in enumerate(written):
            try:
                address = self._absolute(one, (*at, number))
                usable.append(_server(address, (*at, number)))
            except Unfit as fault:
                why = fault.why
        if not usable:
            raise Unfit(why, at)
        return next((one for one in usable if one.url.scheme == "https"), usable[0])

    def egress_of(self, server: Server) -> tuple[str, ...]:
        """An address that the config names is meant, even if it is a private one."""
        authority = server.url.authority
        return (authority,) if authority in self._named else ()

    def _written(self, operation: Operation) -> tuple[list[Any], Place]:
        holders: list[tuple[Object, Place]] = [
            (operation.written, operation.at),
            (operation.around, operation.at[:-1]),
            (self._description.data, ()),
        ]
        for holder, at in holders:
            if isinstance(found := holder.get("servers"), list) and found:
                return found, (*at, "servers")
        return [{"url": "/"}], ("servers",)

    def _absolute(self, written: Any, at: Place) -> str:
        address = written.get("url") if isinstance(written, Mapping) else None
        if not isinstance(address, str):
            raise Unfit("a server has a url", at)
        address = "".join(_filled(address, written, at))
        if re.match(r"(?i)https?://", address):
            return address
        if self._home is None:
            raise Unfit(
                f"its server {short(address)!r} is relative: say with base_url where it is", at
            )
        return urljoin(self._home, address)


def _filled(address: str, written: Object, at: Place) -> Iterator[str]:
    variables = written.get("variables")
    for number, piece in enumerate(_VARIABLE.split(address)):
        if number % 2 == 0:
            yield piece
            continue
        about = variables.get(piece) if isinstance(variables, Mapping) else None
        default = about.get("default") if isinstance(about, Mapping) else None
        if not isinstance(default, str | int) or default == "":
            raise Unfit(
                f"the server's {{{short(piece)}}} has no default: say with base_url where it is",
                at,
            )
        yield str(default)


def _server(address: str, at: Place) -> Server:
    address = address.partition("#")[0].partition("?")[0].rstrip("/")
    try:
        return Server(address.replace("{", "{{").replace("}", "}}"), url_from(address))
    except Refused as fault:
        raise Unfit(f"{short(address)!r} is no server: {fault}", at) from None
