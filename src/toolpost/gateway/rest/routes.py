"""The routes of the REST door, but for calls: Starlette finds them, problems answer for them.

Above: the application. Below: a file for each resource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.errors import CallError, MissingPart, ToolNotFound, Unavailable
from toolpost.gateway.behind import Behind
from toolpost.gateway.bodies import Receive, Scope, Send
from toolpost.gateway.problems import Refused, answer_to
from toolpost.gateway.rest import (
    approvals,
    artifacts,
    audit,
    health,
    jobs,
    openapi,
    running,
    tools,
)
from toolpost.gateway.rest.calls import Calls
from toolpost.wording import short

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def rest(behind: Behind, calls: Calls, identity: object) -> App:
    """An application of all routes; the scope says who asks, as ``identity`` has told it."""
    routes: list[Route] = [
        *tools.routes(behind, calls),
        *running.routes(behind),
        *approvals.routes(behind, calls),
        *jobs.routes(behind),
        *artifacts.routes(behind),
        *audit.routes(behind),
        *health.routes(behind, identity),
        *openapi.routes(behind),
    ]
    handlers = {HTTPException: _http, CallError: _failed, MissingPart: _missing}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


async def _http(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException), "it is registered for these"
    if fault.status_code == 404:
        path = short(request.scope["path"])
        nothing = f"There is nothing at {path!r}: see /openapi.json."
        return as_response(ToolNotFound(nothing, remedy="stop"))
    allow = (fault.headers or {}).get("Allow")
    said = f"{request.method} is not for this address." if allow else fault.detail
    headers = [(b"allow", allow.encode())] if allow else []
    return as_response(Refused(fault.status_code, said, *headers))


async def _failed(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, CallError), "it is registered for these"
    return as_response(fault)


async def _missing(request: Request, fault: Exception) -> Response:
    return as_response(Unavailable(f"{fault}.", retryable=False, remedy="stop"))


def as_response(fault: CallError) -> Response:
    status, headers, body = answer_to(fault)
    made = Response(body, status)
    made.raw_headers += headers
    return made
