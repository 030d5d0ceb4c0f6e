"""Keys and signatures: what proves that a piece of state is as this house wrote it.

Above: the audit's ledger, the bus, and whatever else has to recognise its own state. Below: PyNaCl
or ``cryptography`` if one is installed (``pip install "toolpost[seal]"``): Ed25519, and anybody
with the public key can check. Without them HMAC-SHA256 of the standard library stands in: then only
who holds the key file can. It refuses to know what is signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from toolpost.errors import ConfigError, MissingPart

Algorithm = Literal["ed25519", "hmac-sha256"]
KEY_SUFFIX: Final = ".key"
PUBLIC_SUFFIX: Final = ".pub"
_ACCEPTED_SUFFIX: Final = ".accepted"
"""Of a file that says that another key took the place of this one, and that a person knows it."""


class Verifier(msgspec.Struct, frozen=True):
    """Checks signatures. ``key`` names the key that made them."""

    algorithm: Algorithm
    key: str
    check: Callable[[bytes, str], bool]
    """Whether this text is the signature of that message."""


class Seal(msgspec.Struct, frozen=True):
    """Makes signatures, as text."""

    algorithm: Algorithm
    key: str
    sign: Callable[[bytes], str]
    verifier: Verifier


def can_sign_publicly() -> bool:
    """Whether Ed25519 is to be had here."""
    try:
        return _sodium() is not None or _ed25519() is not None
    except MissingPart:
        return False


def new_seal() -> Seal:
    """A key that lives as long as this process."""
    return _seal(*_new())


def open_seal(folder: Path, name: str) -> Seal:
    """The key ``folder/name.key``, made if there is none; nobody but its owner may read it.

    Beside it, ``<id>.pub`` keeps what is needed to check its signatures when it has been replaced.
    """
    file = folder / f"{name}{KEY_SUFFIX}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        algorithm, secret = _parsed(file, _private(file))
    except FileNotFoundError:
        algorithm, secret = _kept(file, *_new())
    seal = _seal(algorithm, secret)
    if algorithm == "ed25519" and not (public := folder / f"{seal.key}{PUBLIC_SUFFIX}").exists():
        public.write_text(f"{algorithm} {to_text(_public(secret))}\n", encoding="ascii")
    return seal


def verifiers(folder: Path, name: str) -> dict[str, Verifier]:
    """Everything here that signatures can be checked with, by the id of the key. It may be a folder
    or a public key alone.
    """
    found: dict[str, Verifier] = {}
    alone = folder.suffix == PUBLIC_SUFFIX and folder.is_file()
    for file in [folder] if alone else sorted(folder.glob(f"*{PUBLIC_SUFFIX}")):
        algorithm, public = _parsed(file, _text_of(file))
        verifier = _verifier(algorithm, public)
        found[verifier.key] = verifier
    file = folder / f"{name}{KEY_SUFFIX}"
    if file.exists():
        verifier = _seal(*_parsed(file, _private(file))).verifier
        found[verifier.key] = verifier
    return found


def key_in(folder: Path, name: str) -> str | None:
    """The id of the key that signs here now."""
    file = folder / f"{name}{KEY_SUFFIX}"
    return _seal(*_parsed(file, _private(file))).key if file.exists() else None


def accept_other_keys(folder: Path, name: str) -> None:
    """Have the key of today say that it took the place of every other that was known here."""
    if key_in(folder, name) is None:
        return
    seal = open_seal(folder, name)
    for key in verifiers(folder, name).keys() - {seal.key}:
        text = f"{seal.key} {seal.sign(_acceptance(key))}\n"
        (folder / f"{key}{_ACCEPTED_SUFFIX}").write_text(text, encoding="ascii")


def accepted_keys(folder: Path, keys: Mapping[str, Verifier]) -> frozenset[str]:
    """The keys of earlier times, as far as one that is known here says so."""
    found = set()
    for file in folder.glob(f"*{_ACCEPTED_SUFFIX}"):
        signer, _, signature = _text_of(file).strip().partition(" ")
        if signer in keys and keys[signer].check(_acceptance(file.stem), signature):
            found.add(file.stem)
    return frozenset(found)


def _acceptance(key: str) -> bytes:
    return f"another key took the place of {key}".encode()


def _text_of(file: Path) -> str:
    if not file.is_file():  # to open a pipe would wait for somebody who writes to it
        raise ConfigError(f"{file} is a folder, or something else that is no file: move it away")
    return file.read_text(encoding="ascii", errors="replace")


def _private(file: Path) -> str:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise ConfigError(
            f"{file} is a folder, or something else that is no file: move it away, and restore the "
            "key from a copy"
        )
    with os.fdopen(fd, encoding="ascii", errors="replace") as opened:
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise ConfigError(
                f"{file}: others may read this key, or it is not yours. If nobody has: "
                f"chmod 600 {file}; else move it away, and a new one is made"
            )
        return opened.read(1024)


def _parsed(file: Path, text: str) -> tuple[Algorithm, bytes]:
    algorithm, _, rest = text.strip().partition(" ")
    try:
        key = from_text(rest)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"{file}: this is not a key of toolpost; restore it from a copy")
    if algorithm == "ed25519":
        return "ed25519", key
    if algorithm == "hmac-sha256":
        return "hmac-sha256", key
    raise ConfigError(f"{file}: there is no way to sign with {algorithm!r}")


def _new() -> tuple[Algorithm, bytes]:
    return ("ed25519" if can_sign_publicly() else "hmac-sha256"), secrets.token_bytes(32)


def _kept(file: Path, algorithm: Algorithm, secret: bytes) -> tuple[Algorithm, bytes]:
    """Written whole beside its place and linked there: of two who start at once, one wins."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as opened:
            opened.write(f"{algorithm} {to_text(secret)}\n")
            opened.flush()
            os.fsync(fd)
        try:
            os.link(draft, file)
        except FileExistsError:
            return _parsed(file, _private(file))
    finally:
        draft.unlink()
    return algorithm, secret


def _seal(algorithm: Algorithm, secret: bytes) -> Seal:
    if algorithm == "hmac-sha256":
        verifier = _verifier(algorithm, secret)
        return Seal(algorithm, verifier.key, lambda m: _mac(secret, m), verifier)
    verifier = _verifier(algorithm, _public(secret))
    if (sodium := _sodium()) is not None:
        _, pair = sodium.crypto_sign_seed_keypair(secret)
        return Seal(
            algorithm, verifier.key, lambda m: to_text(sodium.crypto_sign(m, pair)[:64]), verifier
        )
    private = _ed25519().Ed25519PrivateKey.from_private_bytes(secret)
    return Seal(algorithm, verifier.key, lambda m: to_text(private.sign(m)), verifier)


def _verifier(algorithm: Algorithm, key: bytes) -> Verifier:
    if algorithm == "hmac-sha256":
        # the id is a digest of the key under a label: it tells nothing about the key
        name = _mac(key, b"the name of this key")[:16]
        return Verifier(algorithm, name, lambda m, s: _same(_mac(key, m), s))
    name = hashlib.sha256(key).hexdigest()[:16]
    if (sodium := _sodium()) is not None:
        return Verifier(algorithm, name, partial(_opens, sodium, key))
    public = _ed25519().Ed25519PublicKey.from_public_bytes(key)

    def check(message: bytes, signature: str) -> bool:
        from cryptography.exceptions import InvalidSignature  # with the rest: only if asked

        try:
            public.verify(from_text(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True

    return Verifier(algorithm, name, check)


def _opens(sodium: Any, key: bytes, message: bytes, signature: str) -> bool:
    from nacl.exceptions import CryptoError  # with the rest: only if asked

    try:
        given = from_text(signature)
        return len(given) == 64 and sodium.crypto_sign_open(given + message, key) == message
    except (CryptoError, ValueError):
        return False


def _public(secret: bytes) -> bytes:
    public: bytes
    if (sodium := _sodium()) is not None:
        public, _ = sodium.crypto_sign_seed_keypair(secret)
        return public
    public = _ed25519().Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return public


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as exc:
        raise MissingPart(
            "an Ed25519 key needs 'cryptography'. Install it with: pip install \"toolpost[seal]\""
        ) from exc
    return ed25519


def _sodium() -> Any:
    """The same signatures in half the time, if it is there: every call on the bus has one."""
    try:
        from nacl import bindings
    except ImportError:
        return None
    return bindings


def _mac(key: bytes, message: bytes) -> str:
    return to_text(hmac.digest(key, message, "sha256"))


def _same(one: str, other: str) -> bool:
    return other.isascii() and hmac.compare_digest(one, other)


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def from_text(text: str) -> bytes:
    """The only spelling that ``to_text`` has; ``ValueError`` for every other that base64 would take
    for the same: a state that could be written in two ways could be used as two.
    """
    data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    if to_text(data) != text:
        raise ValueError("this is not how it was written")
    return data
