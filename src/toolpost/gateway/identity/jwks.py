"""The public keys of an issuer: fetched, kept, and fetched again when they rotate.

Above: ``tokens.py``. Below: ``net``, which connects to the issuer and to where it says its keys
are, and PyJWT, which makes keys of what it publishes. A token that names a key which is not known
makes for one fetch at most within a while, whoever sends how many of them; what cannot be fetched
leaves the keys that there were. Where a token itself says that keys are (``jku``, ``x5u``, ``jwk``)
is never looked at. It refuses to know what tokens say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from jwt.algorithms import get_default_algorithms

from toolpost.contracts import Clock
from toolpost.document.strict import NotStrictJson, strict_json
from toolpost.errors import CallError, Unavailable
from toolpost.gateway.identity.settings import IssuerSettings, address_of
from toolpost.net.client import Client, Request
from toolpost.net.destination import Granted, Refused
from toolpost.net.url import Url, url_from
from toolpost.net.words import plainly

_log = logging.getLogger("toolpost.gateway")
FLOOR: Final = 30.0
"""Seconds between two fetches, however many tokens name keys that are not known."""
_SOON: Final = 5.0
"""The same after a fetch that failed."""
_LARGEST: Final = 512 * 1024
_MOST: Final = 100
"""Keys of one issuer that are taken."""
_OK: Final = 200
_HEADERS: Final = (("Accept", "application/json"), ("User-Agent", "toolpost"))
_FAMILIES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Table = Mapping[tuple[str | None, str], Sequence[Any]]
"""Key id and algorithm → the keys; ``None``: of any id."""


class _Unfit(Exception):
    """What was fetched is of no use; the text says why."""


class Published:
    """The keys of one issuer; ``problem`` is why they could not be fetched the last time."""

    def __init__(self, name: str, settings: IssuerSettings, *, clock: Clock) -> None:
        self.problem: str | None = None
        self._name, self._settings, self._clock = name, settings, clock
        self._url = address_of(settings)
        self._keys: Table | None = None
        self._fetched = self._next = clock.monotonic()
        self._fetching: asyncio.Task[None] | None = None

    async def matching(self, kid: str | None, algorithm: str) -> Sequence[Any]:
        """The keys that may have signed this; none if there are none."""
        age = self._clock.monotonic() - self._fetched
        if self._keys is None or age >= 2 * self._settings.refresh:
            await self.renewed()
        elif age >= self._settings.refresh:
            self._renew()
        found = self._found(kid, algorithm)
        if not found and await self.renewed():
            found = self._found(kid, algorithm)
        return found

    async def renewed(self) -> bool:
        """Fetch them, unless that was done just now; who goes away does not end it for others."""
        fetching = self._renew()
        if fetching is not None:
            await asyncio.shield(fetching)
        return fetching is not None

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _found(self, kid: str | None, algorithm: str) -> Sequence[Any]:
        if self._keys is None:
            raise Unavailable(
                "Nobody can be identified now: the keys of the issuer cannot be fetched. Try again "
                "later.",
                retry_after=_SOON,
            )
        return self._keys.get((kid, algorithm), ())

    def _renew(self) -> asyncio.Task[None] | None:
        if self._fetching is None or self._fetching.done():
            now = self._clock.monotonic()
            if now < self._next:
                return None
            self._next = now + FLOOR
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        return self._fetching

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                keys = await self._published()
        except TimeoutError:
            self._failed(f"no answer within {self._settings.timeout:g} s")
        except CallError as fault:
            self._failed(plainly(fault))
        except (_Unfit, Refused) as fault:
            self._failed(str(fault))
        except Exception as fault:  # noqa: BLE001 - whatever it is, the keys that there were stay
            _log.exception("the keys of %s", self._name)
            self._failed(type(fault).__name__)
        else:
            self._keys, self._fetched, self.problem = keys, self._clock.monotonic(), None

    def _failed(self, why: str) -> None:
        self._next = self._clock.monotonic() + _SOON
        self.problem = f"the keys of {self._name} cannot be fetched: {why}"
        _log.error("%s; %s", self.problem, "none are known" if self._keys is None else "old stay")

    async def _published(self) -> Table:
        document = await self._document(self._url, exact=True)
        if self._settings.jwks is None:
            if document.get("issuer") != self._settings.issuer:
                raise _Unfit("the discovery document is another issuer's")
            where = url_from(str(document.get("jwks_uri")))
            if where.scheme == "http" and self._url.scheme == "https":
                raise _Unfit("jwks_uri leads from https to http")
            same = where.authority == self._url.authority
            document = await self._document(where, exact=same)
        return _table(document.get("keys"), self._settings.algorithms)

    async def _document(self, url: Url, *, exact: bool) -> Mapping[str, Any]:
        """A JSON object from there; who is not named in the config must be public."""
        here = (url.authority,)
        granted = Granted(here) if exact else Granted((), public=here)
        client = Client(granted, trusted=self._settings.ca_file)
        request = Request(method="GET", url=url, headers=_HEADERS)
        try:
            async with client.answered(request, redirects=0) as answer:
                if answer.status != _OK:
                    raise _Unfit(f"{url.host} answered {answer.status}")
                body = await answer.read(_LARGEST)
        finally:
            await client.close()
        try:
            document = strict_json(body, "document")
        except NotStrictJson:
            document = None
        if not isinstance(document, dict):
            raise _Unfit(f"{url.host} answered with something else than a JSON object")
        return document


def _table(published: Any, algorithms: Iterable[str]) -> Table:
    """What can be used of what is published; one key may serve several algorithms."""
    table: dict[tuple[str | None, str], list[Any]] = {}
    for jwk in published[:_MOST] if isinstance(published, list) else ():
        if not isinstance(jwk, dict) or not _is_for_signatures(jwk):
            continue
        kid = jwk.get("kid")
        for algorithm in algorithms:
            key = _key(jwk, algorithm)
            if key is not None:
                for name in {None, kid if isinstance(kid, str) else None}:
                    table.setdefault((name, algorithm), []).append(key)
    if not table:
        raise _Unfit("there is no key among them that fits the algorithms of the config")
    return table


def _is_for_signatures(jwk: Mapping[str, Any]) -> bool:
    """A public one; of a private or a shared one everybody could have signed anything."""
    uses = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig"
        and (isinstance(uses, list) and "verify" in uses)
        and not {"d", "k"} & jwk.keys()
    )


def _key(jwk: dict[str, Any], algorithm: str) -> Any:
    """The key, if it is one for this algorithm and long enough; else ``None``."""
    if jwk.get("kty") != _FAMILIES[algorithm[:2]] or jwk.get("alg", algorithm) != algorithm:
        return None
    maker = get_default_algorithms()[algorithm]
    try:
        key = maker.prepare_key(maker.from_jwk(jwk))
    except Exception:  # noqa: BLE001 - a stranger's data in a foreign library: then it is no key
        return None
    return None if maker.check_key_length(key) else key
