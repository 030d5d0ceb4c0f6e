"""From a header to a ``Caller``.

Above: the routes. Below: ``keys.py``, ``tokens.py``. What was verified is remembered for seconds,
so that most requests cost a look into a dict; a key that is revoked elsewhere ends with that, and
``watch.py`` ends the requests that are still being answered for it.
Whoever is refused is told that and what to do, and not why; the log is. A credential is in no
message, in no log and in no ``Caller``: nothing behind this can pass it on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from toolpost.call import Caller
from toolpost.contracts import Clock, Records
from toolpost.errors import MissingPart, Outcome, RateLimited, Unauthorized
from toolpost.gateway.identity.credential import PREFIX, Rejected, presented
from toolpost.gateway.identity.keys import ApiKey, Keys
from toolpost.gateway.identity.settings import AuthSettings
from toolpost.gateway.identity.watch import CredentialWatch
from toolpost.pace import Pace, Window
from toolpost.spec import Effects

if TYPE_CHECKING:
    from toolpost.gateway.identity.tokens import Issuer

_log = logging.getLogger("toolpost.gateway")
LOCAL: Final = Caller("local", owner=True)
"""Whoever reaches a gateway that asks nobody: it listens on loopback only."""
KEPT: Final = 4.0
"""Seconds that what was verified is believed; so a revocation counts everywhere within five."""
_AHEAD: Final = 1.0
"""So many seconds before that, one request verifies it anew, and the others do not wait for it."""
_MOST: Final = 10_000
"""Credentials, and peers that failed, that are remembered."""
_FAILURES: Final = Pace("60/min", 60, 60.0)
"""Credentials that are refused, of one peer; beyond, each is told to wait."""
_WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class Unidentified(Unauthorized):
    """Nobody knows who asks; ``challenge`` is the header ``WWW-Authenticate``."""

    def __init__(self, message: str, *, challenge: str, effects: Outcome = "none") -> None:
        super().__init__(message, effects=effects)
        self.challenge = challenge


class _Known:
    """A credential that was verified: whose it is, and how long that is believed."""

    __slots__ = ("caller", "renew", "until")

    def __init__(self, caller: Caller, until: float) -> None:
        self.caller, self.until, self.renew = caller, until, until - _AHEAD


class Identity:
    """Says who asks; made once for a server, opened before it serves."""

    def __init__(
        self,
        settings: AuthSettings,
        *,
        keys: Keys | None,
        issuers: Sequence[Issuer],
        clock: Clock,
    ) -> None:
        self.anonymous = settings.anonymous
        self._nobody = LOCAL if self.anonymous else None
        self._keys, self._clock = keys, clock
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._resource = settings.resource
        self._monotonic = clock.monotonic
        self._known: dict[bytes, _Known] = {}
        self._failures: dict[str, Window] = {}
        self._revoked = 0
        self.watch = CredentialWatch(self._is_fresh, self._is_good)

    @classmethod
    def of(cls, settings: AuthSettings, *, records: Records, clock: Clock) -> Self:
        """``MissingPart`` where tokens are to be verified, and what that takes is not installed."""
        keys = Keys(records, clock=clock) if settings.keys or settings.anonymous else None
        make = _issuer_kind() if settings.issuers else None
        alone = len(settings.issuers) < 2
        issuers = (
            [make(n, s, clock=clock, alone=alone) for n, s in settings.issuers.items()]
            if make
            else []
        )
        return cls(settings, keys=keys, issuers=issuers, clock=clock)

    async def open(self) -> None:
        """Fetch what is needed to verify tokens; what cannot be had now is tried again later."""
        for issuer in self._issuers.values():
            await issuer.published.renewed()

    async def close(self) -> None:
        await self.watch.close()
        self._known.clear()
        for issuer in self._issuers.values():
            await issuer.published.close()

    def known(self, authorization: bytes | None) -> Caller | None:
        """Who presented this within the last seconds; ``None``: ask ``caller``."""
        if authorization is None:
            return self._nobody
        known = self._known.get(authorization)
        if known is None:
            return None
        now = self._monotonic()
        if now < known.renew:
            return known.caller
        if now < known.until:
            known.renew = known.until  # who asks first verifies it anew
        else:
            del self._known[authorization]
        return None

    async def caller(
        self, authorization: bytes | None, *, agent: str | None = None, peer: str | None = None
    ) -> Caller:
        """Who asks, or :class:`Unidentified`. ``agent`` is what the program says of itself: where
        nobody is asked it is taken down, elsewhere what is presented tells. ``peer`` is the address
        that it comes from.
        """
        if authorization is None:
            return self._unasked(agent)
        try:
            return await self._verify(authorization)
        except Rejected as why:
            self._note_failure(peer or "", why)  # who has a good one is not kept out by others
            raise self._unidentified(
                "This credential is not accepted. Send Authorization: Bearer with a key or a token "
                "that is valid now.",
                error="invalid_token",
            ) from None

    async def revoke(self, key_id: str) -> ApiKey:
        """End a key, here at once and everywhere within five seconds."""
        assert self._keys is not None, "keys are accepted here"
        ended = await self._keys.revoke(key_id)
        self._revoked += 1  # what is being verified now may have been read before
        gone = [text for text, one in self._known.items() if one.caller.id == f"key:{key_id}"]
        for text in gone:
            del self._known[text]
            self.watch.end(text)
        return ended

    def ended(self, *, effects: Effects) -> Unidentified:
        """What the client of a request is told whose credential has ended meanwhile; ``effects``:
        what the tool that was called for it may do.
        """
        message = (
            "The credential of this request has been revoked or has expired, and the request was "
            "ended. Send one that is valid now."
        )
        if effects == "once":
            message += " A call may have been done all the same: find out before you repeat it."
        outcome: Outcome = "none" if effects == "read" else "unknown"
        return self._unidentified(message, error="invalid_token", effects=outcome)

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong right now, by the issuer that has it."""
        told = {f"issuer {one.name}": one.published.problem for one in self._issuers.values()}
        return {part: problem for part, problem in told.items() if problem}

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """What clients are told that look for an issuer (RFC 9728); ``None``: there is none."""
        if self._resource is None or not self._issuers:
            return None
        return {
            "resource": self._resource,
            "authorization_servers": list(self._issuers),
            "bearer_methods_supported": ["header"],
        }

    def _unasked(self, agent: str | None) -> Caller:
        if self._nobody is None:
            raise self._unidentified(
                "Say who you are: send Authorization: Bearer with a key or a token. A key is made "
                "with: toolpost keys create"
            )
        if agent is None or not (1 <= len(agent) <= 200 and agent.isprintable()):
            return self._nobody
        return Caller(LOCAL.id, agent=agent, owner=True)

    async def _verify(self, authorization: bytes) -> Caller:
        """Who presents this, which is then believed for some seconds; or ``Rejected``."""
        now, revoked = self._monotonic(), self._revoked
        try:
            caller, ends = await self._verified(authorization)
        except Rejected:
            self._known.pop(authorization, None)
            raise
        until = now + KEPT
        if ends is not None:
            until = min(until, now + ends - self._clock.time())
        if revoked == self._revoked:
            self._remember(authorization, _Known(caller, until))
        return caller

    def _is_fresh(self, authorization: bytes) -> bool:
        known = self._known.get(authorization)
        return known is not None and self._monotonic() < known.until - _AHEAD

    async def _is_good(self, authorization: bytes) -> bool:
        try:
            await self._verify(authorization)
        except Rejected as why:
            _log.info("requests in flight are ended: %s", why)
            return False
        return True

    async def _verified(self, authorization: bytes) -> tuple[Caller, float | None]:
        text = presented(authorization)
        if text.startswith(PREFIX):
            if self._keys is None:
                raise Rejected("keys are not accepted here")
            key = await self._keys.verified(text)
            return key.caller, key.expires
        if not self._issuers:
            raise Rejected("it is no key, and tokens are not accepted here")
        look = import_module(_TOKENS).looked_at(text)
        issuer = self._issuers.get(look.issuer)
        if issuer is None:
            raise Rejected("the token is of an issuer that is not known")
        return await issuer.verified(text, look)

    def _remember(self, authorization: bytes, known: _Known) -> None:
        self._known.pop(authorization, None)
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[authorization] = known

    def _note_failure(self, peer: str, why: Rejected) -> None:
        """Whoever has failed too often is told to wait, and fills the log no more."""
        now, window = self._monotonic(), self._failures.get(peer)
        if window is None:
            if len(self._failures) >= _MOST:
                del self._failures[next(iter(self._failures))]
            window = self._failures[peer] = Window(_FAILURES)
        if wait := window.wait(now):
            raise RateLimited(
                "Too many credentials from there were refused. Try again later.", retry_after=wait
            )
        window.take(now)
        _log.warning("a credential of %s is refused: %s", peer or "somebody", why)

    def _unidentified(
        self, message: str, *, error: str | None = None, effects: Outcome = "none"
    ) -> Unidentified:
        said = ['realm="toolpost"']
        if error is not None:
            said.append(f'error="{error}"')
        if self.metadata is not None and self._resource is not None:
            said.append(f'resource_metadata="{_document(self._resource)}"')
        return Unidentified(message, challenge=f"Bearer {', '.join(said)}", effects=effects)


_TOKENS: Final = "toolpost.gateway.identity.tokens"


def _issuer_kind() -> type[Issuer]:
    """PyJWT and an HTTP client take a while to import: for who verifies tokens only."""
    try:
        kind: type[Issuer] = import_module(_TOKENS).Issuer
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        raise MissingPart(
            f"the issuers of [gateway.auth] need {missing!r}. "
            'Install it with: pip install "toolpost[server]"'
        ) from exc
    return kind


def _document(resource: str) -> str:
    """Where a client finds what this gateway says of itself."""
    scheme, _, rest = resource.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{_WELL_KNOWN}{slash}{path}".rstrip("/")
