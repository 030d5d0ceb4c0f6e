"""Plain requests to services on the web, governed by the list of where they may go.

Above: ``web.py``, which makes these tools with their settings. Below: ``web_answers.py``. Reading
and changing are two tools, since they are two risks. They refuse to carry credentials: a service
that needs some is better described as a tool of kind ``http``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
from annotated_types import MaxLen

from toolpost import Tool
from toolpost.builtin.web_answers import AGENT, Got, got, url_given
from toolpost.builtin.web_settings import Settings
from toolpost.document import parse
from toolpost.errors import InvalidArguments, SourceError
from toolpost.net.client import Client, Request
from toolpost.net.destination import Granted

_SECONDS: Final = 25.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]{0,8000}")
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json|text/json")
_TEXT: Final = re.compile(
    r"text/.*|application/(?:.*\+)?xml|application/(?:javascript|yaml|x-yaml|toml|graphql|x-ndjson"
    r"|x-www-form-urlencoded)|"
)
_CREDENTIALS: Final = frozenset(("authorization", "proxy-authorization", "cookie", "cookie2"))
_CONNECTION: Final = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade "  # noqa: SIM905 - words
    "proxy-connection expect accept-encoding".split()
)

Location = Annotated[str, MaxLen(8000), "The whole URL, with its query."]
Method = Annotated[
    Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"],
    "The method of the request.",
]
Headers = Annotated[dict[str, str] | None, "Headers to send; no credentials."]


class Answered(TypedDict):
    """What came back. JSON is data, other text is text, anything else is base64."""

    status: int
    url: str
    headers: dict[str, str]
    body: Any
    encoding: Literal["json", "text", "base64"]


class HttpGet(
    Tool,
    name="http_get",
    title="Get from a web service",
    category="web",
    tags=("http", "web"),
    tier=1,
    effects="read",
    timeout=30,
    labels={"external": "true"},
    examples=(
        {"url": "https://api.example.com/status"},
        {"url": "https://api.example.com/items?page=2", "headers": {"Accept": "application/json"}},
    ),
):
    """Send a GET request to a web service and get its status, headers and body.

    Use it for APIs and files. To read a web page, use web_scraper. Only hosts that the
    configuration names can be reached.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = Client(Granted(settings.egress))
        self._most = settings.max_bytes

    async def run(self, url: Location, headers: Headers = None) -> Answered:
        request = Request(method="GET", url=url_given(url), headers=_headers(headers or {}))
        return _told(await got(self._client, request, most=self._most, seconds=_SECONDS))

    async def close(self) -> None:
        await self._client.close()


class HttpRequest(
    Tool,
    name="http_request",
    title="Send a request to a web service",
    category="web",
    tags=("http", "web"),
    tier=2,
    effects="once",
    timeout=30,
    labels={"external": "true"},
    examples=(
        {"url": "https://api.example.com/items", "method": "POST", "body": {"name": "tea"}},
        {"url": "https://api.example.com/items/7", "method": "DELETE"},
    ),
):
    """Send any request to a web service and get its status, headers and body.

    It may change things there. If you only want to read, use http_get. Only hosts that the
    configuration names can be reached.
    """

    def __init__(self, settings: Settings) -> None:
        self._client = Client(Granted(settings.egress))
        self._most = settings.max_bytes

    async def run(
        self,
        url: Location,
        method: Method = "POST",
        *,
        headers: Headers = None,
        body: Annotated[
            str | dict[str, Any] | list[Any] | None,
            "A text is sent as it is; an object or a list is sent as JSON.",
        ] = None,
    ) -> Answered:
        given = dict(headers or {})
        named = [given.pop(name) for name in tuple(given) if name.lower() == "content-type"]
        data, kind = _body(body)
        if named and not _VALUE.fullmatch(named[0]):
            raise _refused("its value cannot be sent: Content-Type")
        request = Request(
            method=method,
            url=url_given(url),
            headers=_headers(given),
            body=data,
            type=named[0] if named else kind,
        )
        return _told(await got(self._client, request, most=self._most, seconds=_SECONDS))

    async def close(self) -> None:
        await self._client.close()


def _body(body: Any) -> tuple[bytes | None, str | None]:
    if body is None:
        return None, None
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(body), "application/json"


def _headers(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    for name, value in given.items():
        if not _TOKEN.fullmatch(name):
            raise _refused("the name of a header is made of letters, digits and '-'")
        if name.lower() in _CONNECTION:
            raise _refused(f"{name} belongs to the connection: leave it out")
        if name.lower() in _CREDENTIALS:
            raise _refused(
                f"{name} is not sent: a service that needs credentials has to be described as a "
                "tool of its own"
            )
        if not _VALUE.fullmatch(value):
            raise _refused(f"the value of {name} has line breaks in it, or is too long")
    said = {name.lower() for name in given}
    more = (("User-Agent", AGENT), ("Accept", "*/*"))
    return (*given.items(), *(pair for pair in more if pair[0].lower() not in said))


def _refused(problem: str) -> InvalidArguments:
    return InvalidArguments(
        f"/headers: {problem}",
        effects="none",
        details={"faults": [{"at": "/headers", "problem": problem}]},
    )


def _told(answer: Got) -> Answered:
    """The answer, whatever its status: who asked knows what to make of it."""
    body, encoding = _read(answer)
    headers = {name: answer.header(name) or "" for name, _ in answer.headers}
    headers.pop("set-cookie", None)
    return Answered(
        status=answer.status,
        url=str(answer.url),
        headers=headers,
        body=body,
        encoding=encoding,
    )


def _read(answer: Got) -> tuple[Any, Literal["json", "text", "base64"]]:
    kind = answer.type
    if not _JSON.fullmatch(kind) and not _TEXT.fullmatch(kind):
        return base64.b64encode(answer.body).decode(), "base64"
    found = re.search(r"(?i)charset=\"?([\w.:-]+)", answer.header("content-type") or "")
    try:
        text = answer.body.decode(found[1] if found else "utf-8-sig")
    except (LookupError, ValueError):
        text = answer.body.decode("utf-8", "replace")
    if _JSON.fullmatch(kind):
        try:
            return parse(text, format="json", name="answer").data, "json"
        except SourceError:
            pass  # not what it says it is
    return text, "text"
