"""Specs from a web address: ``[[sources]] kind = "http", url = "https://…/tools.json"``.

The document is what a spec file would be, and is held to the same. It is asked for again after a
while, and sent only if it has changed. One that cannot be had, is not the pinned one or is wrong
changes nothing: the runtime keeps what there was, and says so. What its tools may ask of this
machine is in ``afar.py``.

Above: the runtime. Below: ``net``, which connects nowhere but there. It refuses to know what a tool
does. It needs the extra ``http``.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec

from toolpost.contracts import Tell
from toolpost.document import MAX_BYTES, Format, parse
from toolpost.environ import secret
from toolpost.errors import CallError, ConfigError, SourceError
from toolpost.net.client import Answer, Client, Credentials, Request
from toolpost.net.destination import Granted, Refused, is_public, literal_from
from toolpost.net.url import Url, url_from
from toolpost.net.words import plainly
from toolpost.options import Options, options_from
from toolpost.sources.afar import KINDS, Grants, sifted
from toolpost.sources.specs import gathered
from toolpost.spec import ToolSpec
from toolpost.wording import short

_OK: Final = 200
_UNCHANGED: Final = 304
_SOON: Final = 5.0
"""Seconds until another try, where the last one failed and the interval is longer."""
_LEAST: Final = 0.1
_LONGEST: Final = 1000
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SENDABLE: Final = re.compile(r"[\x20-\x7e]+")
_ACCEPT: Final = "application/json, application/yaml;q=0.9, application/toml;q=0.8, */*;q=0.1"
_TYPES: Final[Mapping[str, Format]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "application/toml": "toml",
}
_UNTOLD: Final = frozenset(("", "text/plain", "application/octet-stream", "binary/octet-stream"))
"""Types that say nothing: then the address tells, as the name of a file would."""
_SUFFIXES: Final[Mapping[str, Format]] = {".json": "json", ".toml": "toml"}
_HINTS: Final = {401: "name the secret in token", 403: "name the secret in token"}


class HttpSourceOptions(Options, frozen=True):
    """What a source of kind ``http`` may say."""

    url: str
    token: str | None = None
    digest: str | None = None
    interval: float = 60.0
    timeout: float = 30.0
    max_bytes: int = MAX_BYTES
    required: bool = False
    kinds: tuple[str, ...] = KINDS
    secrets: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    insecure: bool = False
    ca_file: str | None = None


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was sent: its tools, or what is wrong with it."""

    digest: str
    etag: str | None
    modified: str | None
    specs: tuple[ToolSpec, ...] = ()
    left_out: Mapping[str, str] = {}
    fault: str | None = None


class HttpSource:
    """``left_out`` says which tools were not taken, and why."""

    gives_way: ClassVar = True
    """A name that is taken here costs one tool, and not the others."""
    tuning: ClassVar = frozenset(("digest", "interval", "timeout", "max_bytes", "required"))

    def __init__(self, options: HttpSourceOptions, *, base: Path | None = None) -> None:
        self._options = options
        self._url = _verified(options)
        self._grants = Grants(kinds=options.kinds, secrets=options.secrets, egress=options.egress)
        trusted = None if options.ca_file is None else _file((base or Path()) / options.ca_file)
        self._client = Client(Granted((self._url.authority, "*")), trusted=trusted)
        self._secret: Callable[[str], str | None] = secret
        self._last: _Version | None = None
        self._found: _Version | str | None = None
        """What watching has found, until it is loaded."""
        self._told: str | None = None
        """The digest of what was loaded, or why nothing was."""
        self._down = False
        self.required = options.required
        self.left_out: Mapping[str, str] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, HttpSourceOptions, "source http"), base=base)

    def authenticate(self, secret: Callable[[str], str | None]) -> None:
        self._secret = secret

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        found, self._found = self._found, None
        if found is None:
            found = await self._look(tell)
        self._told = _mark(found)
        if isinstance(found, str):
            raise SourceError(found)
        if found.fault is not None:
            raise SourceError(found.fault)
        self.left_out = found.left_out
        return found.specs

    async def changes(self) -> AsyncIterator[None]:
        while True:
            interval = self._options.interval
            await asyncio.sleep(min(interval, _SOON) if self._down else interval)
            found = await self._look(lambda done, total: None)
            if _mark(found) != self._told:
                self._found = found
                yield

    async def close(self) -> None:
        await self._client.close()

    async def _look(self, tell: Tell) -> _Version | str:
        """The document as it is now, or why it cannot be had."""
        self._down = True
        try:
            async with asyncio.timeout(self._options.timeout):
                answer, body = await self._fetched()
        except TimeoutError:
            return f"{self._name}: no answer within {self._options.timeout:g} s"
        except CallError as fault:
            return f"{self._name}: {plainly(fault)}"
        except SourceError as fault:
            return fault.message
        self._down = False
        if answer.status != _UNCHANGED or self._last is None:
            self._last = await asyncio.to_thread(self._understood, answer, body, tell)
        return self._last

    async def _fetched(self) -> tuple[Answer, bytes]:
        last = self._last
        headers = [("Accept", _ACCEPT), ("User-Agent", "toolpost")]
        if last is not None and last.etag is not None:
            headers.append(("If-None-Match", last.etag))
        if last is not None and last.modified is not None:
            headers.append(("If-Modified-Since", last.modified))
        request = Request(
            method="GET", url=self._url, headers=tuple(headers), credentials=self._credentials()
        )
        async with self._client.answered(request) as answer:
            if answer.status == _UNCHANGED and last is not None:
                return answer, b""
            if answer.status != _OK:
                hint = _HINTS.get(answer.status, "expected a document")
                raise SourceError(f"{self._name}: answered {answer.status}; {hint}")
            return answer, await answer.read(self._options.max_bytes)

    def _credentials(self) -> Credentials:
        name = self._options.token
        if name is None:
            return Credentials()
        token = (self._secret(name) or "").strip()
        if not _SENDABLE.fullmatch(token):
            raise SourceError(
                f"{self._name}: the secret {name} is not set: set the variable {name}"
            )
        return Credentials(headers=(("Authorization", f"Bearer {token}"),))

    def _understood(self, answer: Answer, body: bytes, tell: Tell) -> _Version:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        etag, modified = (_sendable(answer.header(one)) for one in ("etag", "last-modified"))
        last = self._last
        if last is not None and last.digest == digest:
            return msgspec.structs.replace(last, etag=etag, modified=modified)
        version = _Version(digest=digest, etag=etag, modified=modified)
        try:
            specs, left_out = self._specs(answer, body, digest, tell)
        except SourceError as fault:
            return msgspec.structs.replace(version, fault=fault.message)
        return msgspec.structs.replace(version, specs=tuple(specs), left_out=left_out)

    def _specs(
        self, answer: Answer, body: bytes, digest: str, tell: Tell
    ) -> tuple[list[ToolSpec], dict[str, str]]:
        pinned = self._options.digest
        if pinned not in (None, digest):
            raise SourceError(
                f"{self._name}: this is not the pinned document: it has the digest {digest}. If "
                "you have looked at it and it is right, pin that one"
            )
        try:
            text = body.decode()
        except UnicodeDecodeError as exc:
            raise SourceError(
                f"{self._name}: not UTF-8: byte 0x{body[exc.start]:02x} at offset {exc.start}"
            ) from None
        document = parse(text, format=self._format(answer), name=self._name, progress=tell)
        ((_, specs),) = gathered((document,))
        return sifted(specs, self._grants, self._name)

    def _format(self, answer: Answer) -> Format:
        told = (answer.header("content-type") or "").partition(";")[0].strip().lower()
        if told in _TYPES or told.endswith("+json"):
            return _TYPES.get(told, "json")
        if told not in _UNTOLD:
            raise SourceError(
                f"{self._name}: expected JSON, YAML or TOML, and this is {short(told)!r}"
            )
        return _SUFFIXES.get(Path(self._name).suffix.lower(), "yaml")  # which JSON is, too

    @property
    def _name(self) -> str:
        """The address in messages and places; what stands behind a ``?`` may be a secret."""
        url = self._url
        return f"{url.scheme}://{url.header}{url.target.partition('?')[0]}"


def _mark(found: _Version | str) -> str:
    return found if isinstance(found, str) else found.digest


def _verified(options: HttpSourceOptions) -> Url:
    try:
        url = url_from(options.url)
    except Refused as fault:
        raise ConfigError(f"source http: {fault}", at=("url",)) from None
    if not options.interval >= _LEAST or not options.timeout >= _LEAST:
        at = "timeout" if options.interval >= _LEAST else "interval"
        raise ConfigError(f"source http: {at} is at least {_LEAST:g} seconds", at=(at,))
    if not 0 < options.max_bytes <= MAX_BYTES:
        raise ConfigError(f"source http: max_bytes is 1 to {MAX_BYTES}", at=("max_bytes",))
    if options.digest is not None and not _DIGEST.fullmatch(options.digest):
        raise ConfigError(
            "source http: a digest is sha256: and 64 hexadecimal digits", at=("digest",)
        )
    safe = options.digest is not None and options.token is None
    if url.scheme == "http" and not (safe or options.insecure or _is_here(url.host)):
        raise ConfigError(
            "source http: over http:// the tools, and a token, can be read and changed on the way: "
            "use https://, pin the document with digest, or say insecure = true",
            at=("url",),
        )
    return url


def _is_here(host: str) -> bool:
    """This machine, or an address of the inner network."""
    literal = literal_from(host)
    return host == "localhost" if literal is None else not is_public(literal)


def _file(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"source http: there is no file {str(path)!r}", at=("ca_file",))
    return str(path)


def _sendable(value: str | None) -> str | None:
    """What a server says of its version, if it can be said back."""
    return value if value and len(value) <= _LONGEST and _SENDABLE.fullmatch(value) else None
