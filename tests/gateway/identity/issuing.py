"""An issuer of tokens on loopback: it publishes keys, changes them, and fails as a test says."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.backends.http.service import Asked, Reply, Service, Writer, serving
from toolpost.gateway.identity import AuthSettings, Identity, auth_from
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

NOW = 1_800_000_000.0
AUDIENCE = "toolpost"


def private(algorithm: str, which: int = 0) -> Any:
    """Made once for all tests; ``which`` tells those of one sort apart."""
    return _private(algorithm, which)


@cache
def _private(algorithm: str, which: int) -> Any:
    if algorithm.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048 if which < 9 else 1024)


def jwk(kid: str | None, algorithm: str = "ES256", which: int = 0, **more: Any) -> dict[str, Any]:
    maker = jwt.algorithms.get_default_algorithms()[algorithm]
    made: dict[str, Any] = maker.to_jwk(private(algorithm, which).public_key(), as_dict=True)
    made.pop("key_ops", None)
    return {**made, **({} if kid is None else {"kid": kid}), **more}


def pem(algorithm: str = "ES256") -> bytes:
    """The public key as text, as somebody may use it who wants it to be taken for a password."""
    encoding = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    made: bytes = private(algorithm).public_key().public_bytes(*encoding)
    return made


def segment(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuing:
    """``answers`` takes the place of what is published, if it is set."""

    def __init__(self) -> None:
        self.keys = [jwk("one")]
        self.service: Service
        self.answers: Callable[[Asked], Reply | Callable[[Writer], Awaitable[None]]] | None = None
        self.discovery: dict[str, Any] = {}

    def answer(self, asked: Asked) -> Reply | Callable[[Writer], Awaitable[None]]:
        if self.answers is not None:
            return self.answers(asked)
        if asked.target == "/.well-known/openid-configuration":
            told = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.discovery}
            return Reply(json.dumps(told))
        assert asked.target == "/jwks"
        return Reply(json.dumps({"keys": self.keys}))

    @property
    def url(self) -> str:
        return self.service.url

    @property
    def fetches(self) -> int:
        return len(self.service.asked)

    def settings(self, **more: Any) -> AuthSettings:
        table = {"issuer": self.url, "audience": AUDIENCE, "timeout": 2.0, **more}
        return auth_from({"issuers": {"corp": table}})

    def token(
        self,
        *,
        alg: str = "ES256",
        kid: str | None = "one",
        key: Any = None,
        headers: dict[str, Any] | None = None,
        **claims: Any,
    ) -> bytes:
        """A header ``Authorization``; a claim that is ``...`` is left out."""
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 600}
        said = {**usual, **claims}
        said = {name: value for name, value in said.items() if value is not ...}
        more = {**({} if kid is None else {"kid": kid}), **(headers or {})}
        key = private(alg) if key is None else key
        return f"Bearer {jwt.encode(said, key, algorithm=alg, headers=more)}".encode()


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuing]:
    issuer = Issuing()
    async with serving(issuer.answer) as issuer.service:
        yield issuer


@asynccontextmanager
async def identifying(
    settings: AuthSettings, *, clock: Clock | None = None, store: MemoryStore | None = None
) -> AsyncIterator[Identity]:
    made = Identity.of(settings, records=store or MemoryStore(), clock=clock or Clock(NOW))
    await made.open()
    try:
        yield made
    finally:
        await made.close()
