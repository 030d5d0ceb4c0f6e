"""The table ``[gateway.auth]``: which credentials are accepted, and whose tokens.

Above: the settings of the gateway. Below: ``options.py``. Nothing is fetched or opened here: what
can be seen to be wrong is refused at the start, with its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from toolpost.errors import ConfigError
from toolpost.net.destination import Refused, is_public, literal_from
from toolpost.net.url import Url, url_from
from toolpost.options import Options, options_from
from toolpost.wording import short

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]  # fmt: skip
"""Signatures that are checked with a public key; there are no others here, and none is none."""
Some = str | tuple[str, ...]

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,48}[a-z0-9])?")
_TAKEN: Final = frozenset(("key", "local", "owner", "user", "agent", "caller"))
"""What other callers' ids begin with."""
_LONGEST: Final = 3600.0


class IssuerSettings(Options, frozen=True, kw_only=True):
    """``[gateway.auth.issuers.NAME]``: whose tokens are believed, and what their claims mean.

    A claim is named, or pointed at where it is inside another one: ``/realm_access/roles``.
    """

    issuer: str
    """As it stands in the claim ``iss``, to the letter."""
    audience: Some
    """What a token must be meant for: one of these in ``aud``."""
    jwks: str | None = None
    """Where the keys are; unless it is said, the issuer's discovery document tells."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    leeway: float = 30.0
    """Seconds that the clocks of the two may differ."""
    required: tuple[str, ...] = ()
    """Claims that must be there, beside iss, aud, sub and exp."""
    user: str = "sub"
    """The claim that names the person."""
    agent: Some = ("/act/sub", "azp", "client_id")
    """Claims that may name the agent; the first that is there counts."""
    apps: tuple[str, ...] = ()
    """Programs that are no agents: through them, people act themselves."""
    roles: Some = "roles"
    """Claims with roles: a list of texts, or one text with blanks between them."""
    refresh: float = 600.0
    """Seconds after which the keys are fetched again."""
    timeout: float = 5.0
    """Seconds that fetching them may take."""
    ca_file: str | None = None
    """Certificates that are believed beside the system's."""
    insecure: bool = False
    """Whether keys may come over http:// from another machine."""

    def __post_init__(self) -> None:
        if not self.algorithms:
            raise ValueError("algorithms names none: leave it out, or name some")
        if not 0 <= self.leeway <= _LONGEST / 10:
            raise ValueError("leeway must be 0 to 360 seconds")
        if not 1 <= self.refresh < math.inf:
            raise ValueError("refresh must be at least 1 second")
        if not 0.1 <= self.timeout <= 60:
            raise ValueError("timeout must be 0.1 to 60 seconds")
        if not all(several(self.audience)) or not several(self.audience):
            raise ValueError("audience names what a token must be meant for, and is not empty")


class AuthSettings(Options, frozen=True, kw_only=True):
    """``[gateway.auth]``. With neither keys nor issuers nobody is asked who they are."""

    keys: bool = False
    """Whether API keys are accepted (``toolpost keys create``)."""
    issuers: dict[str, IssuerSettings] = msgspec.field(default_factory=dict)
    """Whose tokens are, by a name that stands in the ids of their callers."""
    resource: str | None = None
    """The address by which clients know this gateway, for those that look for its issuers."""

    @property
    def anonymous(self) -> bool:
        return not self.keys and not self.issuers


def auth_from(table: Mapping[str, Any], *, base: Path | None = None) -> AuthSettings:
    """The settings from their table; a ``ConfigError`` knows the place inside of it. Files are
    looked for in ``base``, the folder of the config.
    """
    issuers = table.get("issuers")
    made: dict[str, Any] = dict(table)
    if isinstance(issuers, Mapping):
        made["issuers"] = {
            name: _issuer(name, inner, base or Path()) for name, inner in issuers.items()
        }
    settings = options_from(made, AuthSettings, "gateway.auth")
    if settings.resource is not None:
        _address(settings.resource, "resource", "gateway.auth resource")
    if "keys" not in table and not settings.issuers and table:
        raise ConfigError(
            "gateway.auth accepts nothing: say keys = true, or name an issuer", at=tuple(table)[:1]
        )
    return settings


def several(value: Some) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def address_of(settings: IssuerSettings) -> Url:
    """Where to ask first: for the keys, or for the document that says where they are."""
    if settings.jwks is not None:
        return url_from(settings.jwks)
    return url_from(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration")


def is_here(url: Url) -> bool:
    """This machine, or an address of the inner network."""
    literal = literal_from(url.host)
    return url.host == "localhost" if literal is None else not is_public(literal)


def _issuer(name: str, table: Any, base: Path) -> dict[str, Any]:
    """The table as it is, once everything about it has been looked at."""
    owner = f"gateway.auth issuer {short(name)!r}"
    try:
        if not _NAME.fullmatch(name) or name in _TAKEN:
            raise ConfigError(f"{owner}: a name has small letters, digits, and . _ - inside")
        if not isinstance(table, Mapping):
            raise ConfigError(f"{owner} is a table: [gateway.auth.issuers.{name}]")
        settings = options_from(table, IssuerSettings, owner)
        where = "issuer" if settings.jwks is None else "jwks"
        url = _address(str(getattr(settings, where)), where, owner)
        if url.scheme == "http" and not (settings.insecure or is_here(url)):
            raise ConfigError(
                f"{owner}: over http:// its keys can be changed on the way: use https://, or say "
                "insecure = true",
                at=(where,),
            )
        trusted = settings.ca_file and str(base / settings.ca_file)
        if trusted and not Path(trusted).is_file():
            raise ConfigError(f"{owner}: there is no file {trusted!r}", at=("ca_file",))
    except ConfigError as fault:
        raise ConfigError(fault.message, at=("issuers", name, *fault.at)) from None
    return {**msgspec.structs.asdict(settings), "ca_file": trusted}


def _address(text: str, at: str, owner: str) -> Url:
    try:
        return url_from(text)
    except Refused as fault:
        raise ConfigError(f"{owner}: {fault}", at=(at,)) from None
