"""An OpenAPI document, read from a file or asked for on the web.

Above: ``source.py`` and ``toolpost import openapi``. Below: ``document``, which bounds what is
read, and ``net``, which connects to the host that is named and checks every hop. One document is
read: what it refers to elsewhere is not.
"""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from toolpost.document import MAX_BYTES, Document, parse, read
from toolpost.errors import CallError, SourceError
from toolpost.net.client import Client, Request
from toolpost.net.destination import Granted, Refused, is_public, literal_from
from toolpost.net.url import Url, url_from
from toolpost.net.words import plainly
from toolpost.wording import short

PATIENCE: Final = 60.0
"""Seconds that a document may take to come."""
_OK: Final = 200
_UNCHANGED: Final = 304
_ACCEPT: Final = "application/json, application/yaml;q=0.9, */*;q=0.1"
_SENDABLE: Final = re.compile(r"[\x20-\x7e]{1,1000}")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A document and where it was: ``home`` is the address that sent it, ``named`` the host and
    port that somebody asked. ``etag`` and ``digest`` tell one version from another.
    """

    document: Document
    home: str | None = None
    named: str | None = None
    etag: str | None = None
    digest: str | None = None


def is_address(where: str) -> bool:
    """Whether it is on the web; else it is a file."""
    return "://" in where


def file_in(base: Path, where: str) -> Path:
    """A file; a relative path starts at the folder and stays beneath it."""
    if Path(where).is_absolute():
        return Path(where)
    found = base / where
    try:
        strays = not found.resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError, ValueError) as exc:  # a loop of links, a NUL
        raise SourceError(f"{short(where)}: not a path of a document: {exc}") from exc
    if ".." in Path(where).parts or strays:
        raise SourceError(f"{short(where)}: this path leads out of {base}: copy the file instead")
    return found


def read_file(file: Path) -> Found:
    """The document in a file, JSON or YAML."""
    known = "json" if file.suffix.lower() == ".json" else "yaml"
    return Found(document=read(file, format=known, lenient=True))  # type: ignore[arg-type]


def address_of(where: str) -> Url:
    """An address that a document may come from: over http it could be changed on the way."""
    try:
        url = url_from(where)
    except Refused as fault:
        raise SourceError(f"{short(where)}: {fault}") from None
    literal = literal_from(url.host)
    here = url.host == "localhost" if literal is None else not is_public(literal)
    if url.scheme == "http" and not here:
        raise SourceError(
            f"{_name(url)}: over http:// it could be changed on the way: use https://"
        )
    return url


async def fetch(url: Url, *, etag: str | None = None) -> Found | None:
    """The document at an address, or nothing if it is still the same version."""
    client = Client(Granted((url.authority, "*")))
    headers = [("Accept", _ACCEPT), ("User-Agent", "toolpost")]
    if etag is not None:
        headers.append(("If-None-Match", etag))
    request = Request(method="GET", url=url, headers=tuple(headers))
    try:
        async with asyncio.timeout(PATIENCE), client.answered(request) as answer:
            if answer.status == _UNCHANGED and etag is not None:
                return None
            if answer.status != _OK:
                raise SourceError(f"{_name(url)}: answered {answer.status}; expected a document")
            body = await answer.read(MAX_BYTES)
            home, sent = str(answer.url), answer.header("etag")
    except TimeoutError:
        raise SourceError(f"{_name(url)}: no answer within {PATIENCE:g} s") from None
    except CallError as fault:
        raise SourceError(f"{_name(url)}: {plainly(fault)}") from None
    finally:
        await client.close()
    return Found(
        document=await asyncio.to_thread(_parsed, body, _name(url)),
        home=home,
        named=url.authority,
        etag=sent if sent and _SENDABLE.fullmatch(sent) else None,
        digest=sha256(body).hexdigest(),
    )


def _parsed(body: bytes, name: str) -> Document:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise SourceError(f"{name}: not UTF-8, at byte {exc.start}") from None
    known = "json" if text.lstrip()[:1] in ("{", "[") else "yaml"
    return parse(text, format=known, name=name, lenient=True)  # type: ignore[arg-type]


def _name(url: Url) -> str:
    """The address in messages and places; what stands behind a ``?`` may be a secret."""
    return f"{url.scheme}://{url.header}{url.target.partition('?')[0]}"
