"""API keys: made once, shown once, kept as a digest.

Above: ``callers.py`` and ``toolpost keys``. Below: ``Records``. A key is ``tpk_``, its id, and 256
random bits: nobody guesses one, so that a plain SHA-256 of it is all that has to be kept, and who
reads the store has no key. What its roles and its tools mean is the road's to know.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from toolpost.call import Caller, new_call_id
from toolpost.contracts import Clock, Record, Records
from toolpost.errors import Conflict, InvalidArguments, ToolNotFound
from toolpost.gateway.identity.credential import PREFIX, Rejected
from toolpost.ledger.record import AuditRecord, Who
from toolpost.patterns import selector
from toolpost.redact import redact, redact_text
from toolpost.wording import short

SPACE: Final = "keys"
KEPT: Final = 30 * 86400.0
"""Seconds that one is listed after its end."""
_ID: Final = re.compile(r"[0-9a-f]{12}")
_BEGINNING: Final = re.compile(r"[0-9a-f]{3,12}")
_KEY: Final = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}")
_LONGEST: Final = 200
State = Literal["live", "expired", "revoked"]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of a key, and not the key. Times are seconds since 1970."""

    id: str
    name: str
    digest: str
    created: float
    user: str | None = None
    agent: str | None = None
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    expires: float | None = None
    revoked: float | None = None

    def state(self, now: float) -> State:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "live"

    @property
    def caller(self) -> Caller:
        return Caller(
            f"key:{self.id}",
            user=self.user,
            agent=self.agent,
            roles=frozenset(self.roles),
            tools=self.tools,
            key=self.name,
        )

    def to_dict(self, now: float) -> dict[str, Any]:
        """For people and programs: without the digest."""
        told: dict[str, Any] = msgspec.structs.asdict(self)
        del told["digest"]
        return {**told, "state": self.state(now)}


class Keys:
    """The keys of one store."""

    def __init__(self, records: Records, *, clock: Clock) -> None:
        self._records, self._clock = records, clock

    async def create(
        self,
        name: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        roles: Iterable[str] = (),
        tools: Iterable[str] | None = None,
        seconds: float | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key, and the text that is never seen again. Unless it says whom it stands for, that
        is an agent of its name.
        """
        if user is None and agent is None:
            agent = name
        roles, tools = tuple(roles), None if tools is None else tuple(tools)
        for text in (name, user, agent, *roles):
            _verify_name(text)
        selector(tools or ())  # a ConfigError for what is no pattern
        if seconds is not None and not 0 < seconds <= 1e10:
            raise InvalidArguments("A key expires after some time, or never.")
        now = self._clock.time()
        while True:
            key_id = secrets.token_hex(6)
            text = f"{PREFIX}{key_id}_{secrets.token_hex(32)}"
            made = ApiKey(
                id=key_id, name=name, digest=_digest(text), created=now, user=user, agent=agent,
                roles=roles, tools=tools, expires=None if seconds is None else now + seconds,
            )  # fmt: skip
            ttl = None if seconds is None else seconds + KEPT
            value = msgspec.to_builtins(made)
            if await self._records.put(SPACE, key_id, value, version=0, ttl=ttl) is not None:
                return made, text

    async def verified(self, text: str) -> ApiKey:
        """The key whose text this is, if it may still be used; else ``Rejected``."""
        match = _KEY.fullmatch(text)
        if match is None:
            raise Rejected("it is no key that was made here")
        record = await self._records.get(SPACE, match[1])
        key = None if record is None else _read(record)
        same = hmac.compare_digest(_digest(text), "-" * 64 if key is None else key.digest)
        if key is None:
            raise Rejected(f"there is no key {match[1]}")
        if not same:
            raise Rejected(f"it is not the key {match[1]}, which it says it is")
        if (state := key.state(self._clock.time())) != "live":
            raise Rejected(f"the key {key.id} is {state}")
        return key

    async def all(self) -> list[ApiKey]:
        """Every key that is still listed, the oldest first."""
        return sorted([key async for key in self._each()], key=lambda key: (key.created, key.id))

    async def like(self, beginning: str) -> ApiKey:
        """The only key whose id begins so: for people, who type, or paste a whole key."""
        beginning = beginning.removeprefix(PREFIX).partition("_")[0]
        found: list[tuple[str, Record]] = []
        if _BEGINNING.fullmatch(beginning):
            found = list(await self._records.scan(SPACE, prefix=beginning, limit=2))
        if not found:
            raise _unknown(beginning)
        if len(found) > 1:
            raise Conflict(f"Several keys begin with {beginning}: write more of it.")
        key = _read(found[0][1])
        if key is None:
            raise Conflict(f"What is kept of the key {found[0][0]} cannot be read.")
        return key

    async def revoke(self, key_id: str) -> ApiKey:
        """End it for good; one that has ended stays as it is."""
        while True:
            record = await self._records.get(SPACE, key_id) if _ID.fullmatch(key_id) else None
            key = None if record is None else _read(record)
            if record is None or key is None:
                raise _unknown(key_id)
            if key.revoked is not None:
                return key
            ended: ApiKey = msgspec.structs.replace(key, revoked=self._clock.time())
            value = msgspec.to_builtins(ended)
            put = self._records.put(SPACE, key_id, value, version=record.version, ttl=KEPT)
            if await put is not None:
                return ended

    async def _each(self) -> AsyncIterator[ApiKey]:
        after = ""
        while page := await self._records.scan(SPACE, after=after, limit=200):
            for _, record in page:
                if (key := _read(record)) is not None:
                    yield key
            after = page[-1][0]


def as_record(key: ApiKey, code: str, *, by: Caller, channel: str, at: float) -> AuditRecord:
    """Who made or ended which key, and what it is for: never what it is."""
    who = redact_text(by.user or by.id)
    return AuditRecord(
        kind="decision",
        time=at,
        call_id=new_call_id(),
        caller=Who(
            redact_text(by.id), *(name and redact_text(name) for name in (by.user, by.agent))
        ),
        tool=SPACE,
        code=code,
        outcome="done",
        message=f"The key {key.id} of {redact_text(key.name)}.",
        approver=f"{who} ({channel})",
        details={"key": redact(key.to_dict(at))},
    )


def _digest(text: str) -> str:
    return sha256(text.encode("ascii")).hexdigest()


def _read(record: Record) -> ApiKey | None:
    """``None``: what is kept is no key; then there is none."""
    try:
        return msgspec.convert(record.value, ApiKey)
    except msgspec.ValidationError:
        return None


def _verify_name(text: str | None) -> None:
    if text is not None and not (1 <= len(text) <= _LONGEST and text.isprintable()):
        raise InvalidArguments(
            f"{short(text)!r} is no name: write 1 to {_LONGEST} printable characters."
        )


def _unknown(key_id: str) -> ToolNotFound:
    return ToolNotFound(f"There is no key {short(key_id)!r}.", remedy="stop")
