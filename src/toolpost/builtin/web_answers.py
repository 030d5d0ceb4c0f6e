"""What the tools of the web share: one request and its answer as a whole, and what a status means.

Above: the tools. Below: ``net``, which decides where a connection may lead and how much of an
answer is read. It refuses to know what stands in an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolpost import __version__
from toolpost.characters import stripped
from toolpost.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    RateLimited,
    ToolFailed,
    ToolNotFound,
    Unauthorized,
    Unavailable,
)
from toolpost.net.client import Client, Request
from toolpost.net.destination import Refused
from toolpost.net.url import Url, url_from
from toolpost.net.waiting import retry_after
from toolpost.redact import redact_text
from toolpost.wording import shortened

AGENT: Final = f"toolpost/{__version__}"
"""Who asks; services such as Wikipedia want to know whom to turn to."""
_PATIENCE: Final = 5.0
"""Seconds that connecting may take."""
_MOST_ERROR: Final = 64 * 1024
_MOST_QUOTED: Final = 300
_SAFE: Final = "".join(map(chr, range(33, 127)))
"""What stands in a URL as it is."""
_SAID: Final = ("message", "detail", "info", "error", "errors")
"""Where services say in JSON what is wrong."""


class Got(msgspec.Struct, frozen=True):
    """An answer, read to its end; of a failure only the beginning."""

    status: int
    url: Url
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return ", ".join(value for one, value in self.headers if one == name) or None

    @property
    def type(self) -> str:
        """The type of the content, in small letters, without its parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def data(self) -> Any:
        """The JSON in it, or ``None``."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None


async def got(
    client: Client, request: Request, *, most: int, seconds: float, redirects: int = 5
) -> Got:
    """The answer to a request; what takes longer than so many seconds is ``Unavailable``."""
    try:
        async with (
            asyncio.timeout(seconds),
            client.answered(request, redirects=redirects, patience=_PATIENCE) as answer,
        ):
            failed = answer.status >= 400
            body = await (answer.beginning(_MOST_ERROR) if failed else answer.read(most))
            return Got(answer.status, answer.url, tuple(answer.headers), body)
    except TimeoutError:
        raise Unavailable(
            f"{request.url.host} did not answer within {seconds:g} s. Try again later."
        ) from None


def with_query(base: str, values: Mapping[str, str | int]) -> str:
    """The URL with these parameters."""
    query = "&".join(
        f"{name}={quote(str(value), safe='', errors='replace')}" for name, value in values.items()
    )
    return f"{base}{'&' if '?' in base else '?'}{query}"


def url_given(text: str) -> Url:
    """A URL that a caller gave, or ``InvalidArguments``."""
    try:
        return url_from(_in_ascii(text))
    except Refused as fault:
        problem = f"{fault}"
    raise InvalidArguments(
        f"/url: {problem}",
        effects="none",
        details={"faults": [{"at": "/url", "problem": problem}]},
    )


def url_configured(text: str, owner: str) -> Url:
    """A URL that the config gives, or ``ConfigError``."""
    try:
        return url_from(text)
    except Refused as fault:
        raise ConfigError(f"{owner}: {fault}") from None


def _in_ascii(text: str) -> str:
    """Letters beyond ASCII as a browser would send them: encoded in the path, IDNA in the host."""
    text = text.strip()
    scheme, mark, rest = text.partition("://")
    end = min((rest.find(one) for one in "/?#" if one in rest), default=len(rest))
    host, target = rest[:end], rest[end:]
    if not host.isascii():
        try:
            plain = host.encode("idna").decode()
        except UnicodeError:
            plain = "/"
        if any(one in plain and one not in host for one in "/?#@:\\[]"):  # other signs, folded
            raise Refused("the name of its host is not a legal one")
        host = plain
    try:
        return scheme + mark + host + quote(target, safe=_SAFE)
    except UnicodeEncodeError:
        raise Refused("there is half a character in it") from None


def failure(answer: Got, *, who: str | None = None, hint: str = "") -> CallError:
    """The error that an answer of 400 or more amounts to; nothing was changed by asking."""
    who, status = who or answer.url.host, answer.status
    said = f"{who} answered {status}{_phrase(status)}"
    words = spoken(answer)
    said += f": {words}" if words else "."
    said += f" {hint}" if hint else ""
    details = {"status": status}
    if status == 429:
        return limited(who, retry_after(answer.header("retry-after")), words, details=details)
    kind: type[CallError] = ToolFailed
    wait = None
    if status in (404, 410):
        kind = ToolNotFound
    elif status in (401, 403, 407, 511):
        kind = Unauthorized
    elif status in (408, 425) or status >= 500:
        kind, wait = Unavailable, retry_after(answer.header("retry-after"))
    remedy = {ToolNotFound: "fix_args", Unavailable: "wait"}.get(kind, "other_tool")
    return kind(
        said,
        retry_after=wait,
        remedy=remedy,  # type: ignore[arg-type] # it is one of the words
        effects="none",
        details=details,
    )


def limited(
    who: str,
    wait: float | None,
    words: str = "",
    *,
    spent: bool = False,
    details: Mapping[str, Any] | None = None,
) -> RateLimited:
    """Too many requests. ``spent``: the quota is used up, and waiting a little does not help."""
    why = f" ({words.rstrip('.')})" if words else ""
    if spent:
        said = f"The quota at {who} is used up{why}. Use another tool."
    elif wait is None:
        said = f"{who} is asked too often{why}. Try again later."
    else:
        said = f"{who} is asked too often{why}. Retry after {ceil(wait)}s."
    return RateLimited(
        said,
        retryable=not spent,
        retry_after=None if spent else wait,
        remedy="other_tool" if spent else None,
        effects="none",
        details=details,
    )


def spoken(answer: Got) -> str:
    """What a service says of a failure, cut and cleaned: it may repeat what was sent."""
    text = _said(answer.data, 4)
    if text is None and answer.type == "text/plain":
        text = answer.body.decode("utf-8", "replace")
    clean = redact_text(stripped(shortened(text or "", 4 * _MOST_QUOTED)))
    return shortened(" ".join(clean.split()), _MOST_QUOTED)


def _said(data: Any, levels: int) -> str | None:
    if isinstance(data, str):
        return data
    if levels and isinstance(data, list):
        return next(filter(None, (_said(one, levels - 1) for one in data[:5])), None)
    if levels and isinstance(data, dict):
        return next(filter(None, (_said(data.get(key), levels - 1) for key in _SAID)), None)
    return None


def _phrase(status: int) -> str:
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""
