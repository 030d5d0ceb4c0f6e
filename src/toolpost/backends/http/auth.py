"""Proving who asks: the secrets that a binding names, made into what goes on the wire.

Above: ``backend.py``. Below: the binding, and whatever hands out secrets. It refuses to know the
call: nothing that its caller said is ever passed on as a credential.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from toolpost.backends.http.binding import Auth, Basic
from toolpost.errors import MissingPart
from toolpost.known import remember
from toolpost.net.client import Credentials, Request

_SENDABLE: Final = re.compile(r"[\x20-\x7e]+")


class Secrets:
    """What one tool needs; ``problem`` names the one that is not there."""

    def __init__(self, auth: tuple[Auth, ...], secret: Callable[[str], str | None]) -> None:
        self._auth = auth
        self._secret = secret

    def signed(self, request: Request) -> Request:
        """The request with its credentials."""
        return _signed(request, self._auth, self._looked_up)

    def shown(self, request: Request) -> Request:
        """The same for people to read: where a secret would be stands its name."""
        return _signed(request, self._auth, "[secret {}]".format, readable=True)

    @property
    def problem(self) -> str | None:
        try:
            for name in _names(self._auth):
                self._looked_up(name)
        except MissingPart as missing:
            return missing.message
        return None

    def _looked_up(self, name: str) -> str:
        value = (self._secret(name) or "").strip()
        if not value:
            raise MissingPart(f"the secret {name} is not set: set the variable {name}")
        if not _SENDABLE.fullmatch(value):
            raise MissingPart(f"the secret {name} holds characters that cannot be sent")
        return value


def _signed(
    request: Request,
    auth: tuple[Auth, ...],
    look_up: Callable[[str], str],
    *,
    readable: bool = False,
) -> Request:
    headers: list[tuple[str, str]] = []
    query: list[tuple[str, str]] = []
    cookies: list[str] = []
    for one in auth:
        if one.bearer is not None:
            headers.append(("Authorization", f"Bearer {look_up(one.bearer)}"))
        if one.basic is not None:
            headers.append(("Authorization", f"Basic {_basic(one.basic, look_up, readable)}"))
        if (key := one.api_key) is not None:
            value = key.prefix + look_up(key.secret)
            if key.where == "header":
                headers.append((key.name, value))
            elif key.where == "query":
                query.append((key.name, value))
            else:
                cookies.append(f"{key.name}={value if readable else quote(value, safe='')}")
    others = request.headers
    if cookies:  # a request has one such header
        cookies[:0] = [value for name, value in others if name == "Cookie"]
        others = tuple(pair for pair in others if pair[0] != "Cookie")
        headers.append(("Cookie", "; ".join(cookies)))
    signed: Request = msgspec.structs.replace(
        request, headers=others, credentials=Credentials(tuple(headers), tuple(query))
    )
    return signed


def _basic(basic: Basic, look_up: Callable[[str], str], readable: bool) -> str:
    user = look_up(basic.user_secret) if basic.user_secret else basic.user or ""
    pair = f"{user}:{look_up(basic.password) if basic.password else ''}"
    if readable:
        return pair
    packed = base64.b64encode(pair.encode()).decode()
    remember(packed)  # it can be unpacked by anybody
    return packed


def _names(auth: tuple[Auth, ...]) -> Iterator[str]:
    for one in auth:
        key = one.api_key and one.api_key.secret
        basic = one.basic and (one.basic.user_secret, one.basic.password)
        yield from (name for name in (one.bearer, key, *(basic or ())) if name)
