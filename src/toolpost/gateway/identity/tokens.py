"""Tokens of issuers (JWT): is this one genuine, is it for us, is it timely, and who is it?

Above: ``callers.py``. Below: PyJWT, which checks signatures, and ``jwks.py``, which has the keys. A
token is looked at before its signature is checked only to find the key; nothing that it says of
itself decides how it is checked. It refuses to know what roles mean.
"""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode
from binascii import Error
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import jwt
import msgspec

from toolpost.call import Caller
from toolpost.contracts import Clock
from toolpost.document.strict import strict_json
from toolpost.gateway.identity.credential import Rejected
from toolpost.gateway.identity.jwks import Published
from toolpost.gateway.identity.settings import IssuerSettings, several

_TYPES: Final = frozenset(("jwt", "at+jwt", "application/at+jwt"))
"""What a token may say that it is; others are made for something else."""
_LONGEST: Final = 200
_MOST_ROLES: Final = 200
_MOST_KEYS: Final = 5
"""Keys that are tried for a token that names none."""
_ALWAYS: Final = ("iss", "aud", "sub", "exp")
_AMOUNT: Final = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
"""Time is told here: by the clock that everything here goes by, and numbers only."""


class Look(msgspec.Struct, frozen=True):
    """What a token says of itself, believed by nobody yet."""

    algorithm: str
    kid: str | None
    issuer: str


def looked_at(token: str) -> Look:
    """Its header and its issuer, or ``Rejected``."""
    parts = token.split(".")
    if len(parts) != 3:
        raise Rejected("it is neither a key nor a token")
    header, claims = _object(parts[0]), _object(parts[1])
    algorithm, kid, issuer = header.get("alg"), header.get("kid"), claims.get("iss")
    kind = header.get("typ", "jwt")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Rejected("the token is of another type")
    if not isinstance(algorithm, str) or not isinstance(issuer, str):
        raise Rejected("the token has no algorithm or no issuer")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= _LONGEST):
        raise Rejected("the token's key id is none")
    return Look(algorithm, kid, issuer)


def _object(part: str) -> Mapping[str, Any]:
    try:
        found = strict_json(urlsafe_b64decode(part + "=" * (-len(part) % 4)), "token")
    except (Error, ValueError):
        found = None
    if not isinstance(found, dict):
        raise Rejected("the token cannot be read")
    return found


class Issuer:
    """One whose tokens are believed; ``name`` stands in the ids of its callers. Where it is not
    ``alone``, its users are not those of the same name that another has.
    """

    def __init__(
        self, name: str, settings: IssuerSettings, *, clock: Clock, alone: bool = True
    ) -> None:
        self.name, self.issuer = name, settings.issuer
        self._vouches = None if alone else name
        self.published = Published(name, settings, clock=clock)
        self._settings, self._clock = settings, clock
        self._audience = several(settings.audience)
        self._algorithms = frozenset[str](settings.algorithms)
        self._options: Any = {
            **_AMOUNT,
            "require": [*_ALWAYS, *settings.required],
            "enforce_minimum_key_length": True,
        }

    async def verified(self, token: str, look: Look) -> tuple[Caller, float]:
        """Who it stands for, and when it ends; or ``Rejected``."""
        if look.algorithm not in self._algorithms:
            raise Rejected("the token's algorithm is not one of the config's")
        self._moments(_object(token.split(".")[1]))  # an old one is not worth a fetch of keys
        keys = await self.published.matching(look.kid, look.algorithm)
        claims = self._genuine(token, look, keys[:_MOST_KEYS])
        return self._caller(claims), self._moments(claims)

    def _genuine(self, token: str, look: Look, keys: Sequence[Any]) -> Mapping[str, Any]:
        for key in keys:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key,
                    algorithms=[look.algorithm],
                    audience=self._audience,
                    issuer=self.issuer,
                    options=self._options,
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as fault:
                raise Rejected(f"the token is not accepted: {type(fault).__name__}") from None
            except Exception as fault:  # noqa: BLE001 - a stranger's bytes in a foreign library
                raise Rejected(f"the token cannot be read: {type(fault).__name__}") from None
            return claims
        raise Rejected("the token is signed by nobody who is known")

    def _moments(self, claims: Mapping[str, Any]) -> float:
        """When it ends, if it has begun and not ended."""
        now, leeway = self._clock.time(), self._settings.leeway
        ends = _moment(claims, "exp")
        if ends is None or ends + leeway <= now:
            raise Rejected("the token has expired")
        for claim in ("nbf", "iat"):
            begins = _moment(claims, claim)
            if begins is not None and begins - leeway > now:
                raise Rejected(f"the token is not valid yet ({claim})")
        return ends + leeway

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        said = self._settings
        subject = _text(claims, "sub")
        user = _text(claims, said.user)
        found = (_text(claims, one) for one in several(said.agent))
        agent = next((one for one in found if one is not None), None)
        if agent in said.apps:
            agent = None
        if subject is None:
            raise Rejected("the token has no subject")
        roles = frozenset(role for claim in several(said.roles) for role in _roles(claims, claim))
        if agent == subject:  # a program on its own behalf
            return Caller(f"{self.name}:{subject}", agent=agent, roles=roles)
        # before the first colon stands who speaks, whatever is in the subject
        via = "" if agent is None else f"+{quote(agent, safe='')}"
        return Caller(
            f"{self.name}{via}:{subject}",
            user=user,
            agent=agent,
            roles=roles,
            issuer=self._vouches if user is not None else None,
        )


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    moment = claims.get(name)
    if moment is None:
        return None
    if type(moment) not in (int, float) or not -1e12 < moment < 1e12 or math.isnan(moment):
        raise Rejected(f"the token's {name} is no time")
    return float(moment)


def _at(claims: Mapping[str, Any], claim: str) -> Any:
    """What stands under a name, or where a pointer leads; ``None``: nothing."""
    if not claim.startswith("/"):
        return claims.get(claim)
    found: Any = claims
    for step in claim[1:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if _is_map(found) else None
    return found


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _text(claims: Mapping[str, Any], claim: str) -> str | None:
    found = _at(claims, claim)
    if found is not None and not _is_name(found):
        raise Rejected(f"the token's {claim} is no name")
    return found  # type: ignore[no-any-return] # a text or nothing


def _roles(claims: Mapping[str, Any], claim: str) -> Iterator[str]:
    found = _at(claims, claim)
    named = found.split() if isinstance(found, str) else [] if found is None else found
    if not isinstance(named, list) or len(named) > _MOST_ROLES or not all(map(_is_name, named)):
        raise Rejected(f"the token's {claim} are no roles")
    yield from named


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST and value.isprintable()
