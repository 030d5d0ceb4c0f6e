"""Writes the vectors of tickets. The keys are nobody's: they stand here for all to read."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.bus.vectors import HERE, b64, read

NOW: Final = 1_800_000_000.0
BODY: Final = read("envelopes")["request"]
CALL: Final = {
    "tool": "greet",
    "spec": "sha256:" + "5e" * 32,
    "body": json.dumps(BODY, separators=(",", ":")),
    "reply": "_INBOX.toolpost.gateway.4cQ7.1",
}


class Key:
    def __init__(self, letter: str) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(letter.encode() * 32)
        self.public = self._private.public_key().public_bytes_raw()
        self.id = hashlib.sha256(self.public).hexdigest()[:16]

    @property
    def about(self) -> dict[str, str]:
        """``file``: what stands in ``<id>.pub``."""
        return {"id": self.id, "file": f"ed25519 {b64(self.public)}=\n"}

    def ticket(self, *, head: Any = None, **other: Any) -> str:
        claims = {
            "caller": {"id": "ada", "agent": "bot", "roles": ["ops"]},
            "tool": CALL["tool"],
            "spec": CALL["spec"],
            "body": hashlib.sha256(CALL["body"].encode()).hexdigest(),
            "reply": CALL["reply"],
            "iat": NOW,
            "exp": NOW + 15,
            "jti": "b0nK5Qe0dYkqkCjF2h3v7A",
            **other,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        first = head or {"alg": "EdDSA", "typ": "JWT", "kid": self.id}
        signed = f"{_json(first)}.{_json(claims)}"
        return f"{signed}.{b64(self._private.sign(signed.encode()))}"


def _json(value: Any) -> str:
    return b64(json.dumps(value, separators=(",", ":")).encode())


def tickets() -> dict[str, Any]:
    gateway, stranger = Key("g"), Key("s")
    good = gateway.ticket()
    head, claims, signature = good.split(".")
    other = gateway.ticket(tool="erase").split(".")[1]
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = signature[:-1] + last[last.index(signature[-1]) + 1]
    mine = {"alg": "EdDSA", "typ": "JWT", "kid": gateway.id}
    unsigned = _json({**mine, "alg": "none"})
    refused: list[tuple[str, str | None]] = [
        ("missing", None),
        ("empty", ""),
        ("no ticket at all", "a.b.c"),
        ("stale", gateway.ticket(iat=NOW - 30, exp=NOW - 15)),
        ("from the future", gateway.ticket(iat=NOW + 30, exp=NOW + 45)),
        ("good for too long", gateway.ticket(exp=NOW + 16)),
        ("signed by a stranger", stranger.ticket()),
        ("signed by a stranger in the gateway's name", stranger.ticket(head=mine)),
        ("signed by nobody", f"{unsigned}.{claims}."),
        ("altered", f"{head}.{other}.{signature}"),
        ("signature cut off", f"{head}.{claims}.{signature[:-1]}"),
        ("signature spelled otherwise", f"{head}.{claims}.{twin}"),
        ("with a fourth part", f"{good}.x"),
        ("for another tool", gateway.ticket(tool="erase")),
        ("without a caller", gateway.ticket(caller=None)),
        ("without a nonce", gateway.ticket(jti=None)),
    ]
    elsewhere = [
        ("for other bytes", {"call": {"body": CALL["body"] + " "}}),
        ("for another reply", {"call": {"reply": "_INBOX.mallory.1"}}),
        ("used before", {"after": good}),
    ]
    ahead, behind = (
        gateway.ticket(iat=NOW + 4, exp=NOW + 19),
        gateway.ticket(iat=NOW - 19, exp=NOW - 4),
    )
    changed = gateway.ticket(spec="sha256:" + "00" * 32)
    cases: list[dict[str, Any]] = [
        {"name": "good", "ticket": good, "code": None},
        {"name": "good, by a clock that is ahead", "ticket": ahead, "code": None},
        {"name": "good, by a clock that is behind", "ticket": behind, "code": None},
        *({"name": n, "ticket": text, "code": "UNAUTHORIZED"} for n, text in refused),
        *({"name": n, "ticket": good, "code": "UNAUTHORIZED", **more} for n, more in elsewhere),
        {"name": "for the tool as it was before", "ticket": changed, "code": "UNAVAILABLE"},
    ]
    return {"now": NOW, "keys": [gateway.about], "call": CALL, "tickets": cases}


if __name__ == "__main__":
    text = json.dumps(tickets(), indent=1) + "\n"
    (HERE / "tickets.json").write_text(text, encoding="utf-8")
