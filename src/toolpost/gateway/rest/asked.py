"""What a request's query and body say, checked: the means of the routes.

Above: the routes. A parameter that is not known is refused: whoever misspells a filter must not
get everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from toolpost.errors import InvalidArguments
from toolpost.gateway.behind import Behind
from toolpost.gateway.bodies import body_of, json_of
from toolpost.gateway.problems import Refused
from toolpost.wording import nearest, short

LONGEST: Final = 255


class _Word(Convertor[str]):
    """A name in a path: behind a colon stands what to do with it."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("word", _Word())
_TEXT: Final = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{LONGEST}}}")
MOST: Final = 1000
"""Items on a page."""


def queried(request: Request, *known: str) -> Mapping[str, str]:
    """The query, each of its names known and there once."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            hint = nearest(name, known) or f"; there are: {', '.join(known) or 'none'}."
            raise Refused(400, f"The query has no {short(name)!r}{hint}")
        if name in found:
            raise Refused(400, f"{name} is in the query twice: give one.")
        if not _TEXT.fullmatch(value):
            raise Refused(400, f"{name}: must have 1 to {LONGEST} characters that can be seen.")
        found[name] = value
    return found


def whole(query: Mapping[str, str], name: str, default: int | None, *, most: int) -> int | None:
    """A whole number of the query, from 0 or 1 to the most."""
    if name not in query:
        return default
    text = query[name]
    least = 0 if default is None else 1
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise Refused(400, f"{name}: must be a whole number, {least} to {most}.")
    number = int(text)
    if not least <= number <= most:
        raise Refused(400, f"{name}: must be {least} to {most}.")
    return number


async def sent(request: Request, behind: Behind, *known: str) -> dict[str, Any]:
    """The JSON object of the body, each of its names known; no body is an empty one."""
    headers = dict(request.scope["headers"])
    body = await body_of(headers, request.receive, behind.settings.body)
    if not body:
        return {}
    data = json_of(headers, body)
    if type(data) is not dict:
        raise Refused(400, "The body is a JSON object.")
    for name in data:
        if name not in known:
            hint = nearest(name, known) or f"; there are: {', '.join(known) or 'none'}."
            raise InvalidArguments(f"/{short(name)}: is not known here{hint}")
    return data


def text_in(data: Mapping[str, Any], name: str, most: int = 2000) -> str | None:
    value = data.get(name)
    if name in data and (type(value) is not str or len(value) > most):
        raise InvalidArguments(f"/{name}: must be a text of at most {most} characters.")
    return value


def reply(data: Any, *, status: int = 200) -> Response:
    body = data if isinstance(data, bytes) else msgspec.json.encode(data)
    headers = {"cache-control": "no-store"}
    return Response(body, status, headers, media_type="application/json")
