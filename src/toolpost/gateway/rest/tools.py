"""``/v1/tools``: what tools there are for this caller, in our form or a vendor's, one of them, and
what a call would do.

Above: ``routes.py``. Below: the registry, by way of the runtime. Another's tools are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.errors import ToolNotFound
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.bodies import Receive, Scope, Send
from toolpost.gateway.rest.asked import MOST, queried, reply, whole
from toolpost.gateway.rest.calls import Calls
from toolpost.gateway.rest.exported import Exports, form_of
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_PAGE: Final = 100
_FILTERS: Final = ("kind", "category", "tag", "tier")
_KEPT: Final = 20_000


def routes(behind: Behind, calls: Calls) -> list[Route]:
    listed = _Listed(behind)
    return [
        Route("/v1/tools", listed.list, methods=["GET"]),
        Route("/v1/tools/{name:word}:plan", _Plan(calls), methods=["POST"]),
        Route("/v1/tools/{name:word}:call", _never, methods=["POST"]),
        Route("/v1/tools/{name:word}", listed.show, methods=["GET"]),
    ]


async def _never(request: Request) -> Response:
    raise AssertionError("a call has a way of its own; here it is only known not to be a GET")


class _Plan:
    """A dry run, in raw ASGI as a call is."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["name"]
        headers = dict(scope["headers"])
        await self._calls.plan(name, headers, receive, send, caller_of(scope))


class _Listed:
    """Specs as JSON, made once for each."""

    def __init__(self, behind: Behind) -> None:
        self._runtime = behind.runtime
        self._made: dict[str, tuple[ToolSpec, msgspec.Raw]] = {}
        self._exports = Exports()

    async def list(self, request: Request) -> Response:
        query = queried(request, *_FILTERS, "search", "format", "strict", "limit", "after")
        form, strict = form_of(query)
        most = whole(query, "limit", _PAGE, most=MOST) or _PAGE
        tier = whole(query, "tier", None, most=4)
        after = query.get("after", "")
        found: Sequence[ToolSpec] = [
            spec
            for spec in self._runtime.list(caller_of(request.scope))
            if spec.name > after
            and query.get("kind", spec.kind) == spec.kind
            and query.get("category", spec.category) == spec.category
            and ("tag" not in query or query["tag"] in spec.tags)
            and (tier is None or spec.tier <= tier)
        ]
        scores: Sequence[float] | None = None
        if "search" in query:
            found, scores = await self._searched(query["search"], found, most)
        if form is not None:
            wanted = found[:most] if "limit" in query else found
            return reply(await self._exports.of(wanted, form, strict=strict))
        if scores is not None:
            return reply({"tools": [self._said(spec) for spec in found], "scores": scores})
        page = found[:most]
        more = {"next": page[-1].name} if len(found) > most else {}
        return reply({"tools": [self._said(spec) for spec in page], **more})

    async def _searched(
        self, query: str, among: Sequence[ToolSpec], most: int
    ) -> tuple[Sequence[ToolSpec], Sequence[float]]:
        search = self._runtime.registry.search
        found = await asyncio.to_thread(search, query, most, among=among)
        return [one.spec for one in found], [one.score for one in found]

    async def show(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        queried(request)
        specs = self._runtime.list(caller_of(request.scope))
        for spec in specs:
            if spec.name == name:
                return reply(bytes(self._said(spec)))
        hint = nearest(name, [spec.name for spec in specs]) or "; list them with GET /v1/tools"
        raise ToolNotFound(f"There is no tool {short(name)!r}{hint}")

    def _said(self, spec: ToolSpec) -> msgspec.Raw:
        known = self._made.get(spec.name)
        if known is None or known[0] is not spec:
            if len(self._made) >= _KEPT:
                self._made.clear()
            body = {**spec.public(), "public_digest": spec.public_digest}
            known = self._made[spec.name] = (spec, msgspec.Raw(msgspec.json.encode(body)))
        return known[1]
