"""A gateway and a worker that have met share a key that nobody else has, not even other workers.

A signature takes eighty microseconds to make and to check, a keyed digest two. So the gateway,
whom a worker believes by its signature, once sends its half of a key in a signed message; the
worker's half was in its announcement. From then on the gateway vouches for calls with a digest for
each worker that may take one. Who has not met it, or cannot, has signatures.

Above: the directory of workers, the worker. Below: libsodium (X25519), which comes with the extra
``nats``; where it is not, nobody meets.
"""

from __future__ import annotations

import hashlib
import hmac
from importlib import import_module
from secrets import token_bytes
from typing import Any, Final

from toolpost.seal import from_text, to_text

MOST_MET: Final = 16
"""Workers that one ticket can be for; where there are more it is signed."""
_SIZE: Final = 32
_LABEL: Final = b"toolpost: a key of two who have met"


class Half:
    """One's own half of every key; ``public`` is what the others are told."""

    def __init__(self) -> None:
        self._sodium = _sodium()
        self._secret = token_bytes(_SIZE)
        self.public = ""
        if self._sodium is not None:
            self.public = to_text(self._sodium.crypto_scalarmult_base(self._secret))

    def with_other(self, public: str, *, gateway: str, worker: str) -> bytes | None:
        """The key, if the other half is one; of the two, both have to know who is which."""
        try:
            other = from_text(public)
        except ValueError:
            return None
        if self._sodium is None or len(other) != _SIZE:
            return None
        try:
            shared: bytes = self._sodium.crypto_scalarmult(self._secret, other)
        except Exception:  # noqa: BLE001 - libsodium's words for a half that was made to break it
            return None
        if not any(shared):
            return None
        names = f"{gateway} {worker}".encode()
        return hmac.digest(shared, _LABEL + b"\0" + names, "sha256")


def name_of(public: str) -> str:
    """By which a worker knows with which gateway it shares a key."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]


def digest_of(key: bytes, tool: str, reply: str, body: bytes) -> str:
    """Of all that one of them vouches for to the other."""
    said = f"{tool}\0{reply}\0".encode() + body
    return to_text(hashlib.blake2b(said, digest_size=_SIZE, key=key).digest()).rstrip("=")


def _sodium() -> Any:
    try:
        return import_module("nacl.bindings")
    except ModuleNotFoundError:
        return None
