"""``/v1/approvals``: what waits for a yes, the answers to it, and the call that it was for.

Above: ``routes.py``. Below: the desk of the guard ``approval``, which says who may answer: never
the agent or the key that asked, which hold this door too. Others' requests are not there, but for
who may answer for others.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from toolpost.approvals import Approvals, Decision, Request
from toolpost.approvals.values import Lasting, asker, principal
from toolpost.call import Caller, new_call_id
from toolpost.errors import InvalidArguments, ToolNotFound
from toolpost.gateway.answers import send_result
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.bodies import Receive, Scope, Send, body_of
from toolpost.gateway.problems import Refused
from toolpost.gateway.rest.asked import MOST, queried, reply, sent, text_in, whole
from toolpost.gateway.rest.calls import Calls
from toolpost.gateway.rest.resources import APPROVAL
from toolpost.gateway.rest.wanted import Wanted, key_of
from toolpost.wording import explained, short

_PAGE: Final = 100
_HANDLE: Final = re.compile(APPROVAL)
_STATES: Final = ("waiting", "approved", "denied", "used", "expired")


def routes(behind: Behind, calls: Calls) -> list[Route]:
    desk = _Desk(behind)
    one = "/v1/approvals/{handle:word}"
    return [
        Route("/v1/approvals", desk.list, methods=["GET"]),
        Route(f"{one}:approve", desk.approve, methods=["POST"]),
        Route(f"{one}:deny", desk.deny, methods=["POST"]),
        Route(f"{one}:resume", _Resume(behind, desk, calls), methods=["POST"]),
        Route(one, desk.show, methods=["GET"]),
    ]


class _Desk:
    """The requests that a caller may know of, and the answers that they may give."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind

    @property
    def approvals(self) -> Approvals:
        return self._behind.runtime.extension("approval").approvals

    async def list(self, http: HttpRequest) -> Response:
        query = queried(http, "status", "limit", "after")
        if (wanted := query.get("status", "waiting")) not in (*_STATES, "all"):
            raise Refused(400, f"status: must be one of {', '.join((*_STATES, 'all'))}.")
        most = whole(query, "limit", _PAGE, most=MOST) or _PAGE
        approvals, caller = self.approvals, caller_of(http.scope)
        now = approvals.now()
        found = [
            request
            for request in await approvals.all()
            if (wanted == "all" or request.state(now) == wanted) and self._may_see(request, caller)
        ]
        after = query.get("after")
        if after is not None and not _HANDLE.fullmatch(after):
            raise Refused(400, "after: must be the handle of an approval.")
        if after is not None:
            places = [place for place, one in enumerate(found) if one.handle == after]
            found = found[places[0] + 1 :] if places else []
        page = found[:most]
        more = {"next": page[-1].handle} if len(found) > most else {}
        return reply({"approvals": [one.to_dict(now) for one in page], **more})

    async def show(self, http: HttpRequest) -> Response:
        queried(http)
        request = await self.found(http.path_params["handle"], caller_of(http.scope))
        return self._said(request)

    async def approve(self, http: HttpRequest) -> Response:
        queried(http)
        given = await sent(http, self._behind, "reason", "arguments", "lasting", "seen")
        edit = given.get("arguments")
        if "arguments" in given and type(edit) is not dict:
            raise InvalidArguments("/arguments: must be an object with the arguments that change.")
        decision = Decision(
            approve=True,
            reason=text_in(given, "reason") or "",
            arguments=edit,
            lasting=_lasting(given),
        )
        return await self._decided(http, decision, seen=text_in(given, "seen"))

    async def deny(self, http: HttpRequest) -> Response:
        """A no, or the end of a yes that nobody has used."""
        queried(http)
        given = await sent(http, self._behind, "reason", "seen")
        reason = text_in(given, "reason") or ""
        caller, approvals = caller_of(http.scope), self.approvals
        request = await self.found(http.path_params["handle"], caller)
        if request.state(approvals.now()) == "approved":
            taken = await approvals.take_back(
                request.handle, by=caller, channel="api", reason=reason
            )
            return self._said(taken)
        no = Decision(approve=False, reason=reason)
        return await self._decided(http, no, seen=text_in(given, "seen"))

    async def found(self, handle: str, caller: Caller) -> Request:
        request = await self.approvals.find(handle)
        if not self._may_see(request, caller):
            await self._trespassed(request, caller)
            raise ToolNotFound(f"There is no approval {short(handle)!r}.", remedy="stop")
        return request

    async def found_own(self, handle: str, caller: Caller) -> Request:
        """The request, for who asked: whoever may see it may not make the call for that."""
        request = await self.found(handle, caller)
        if asker(request.caller) != asker(caller):
            await self._trespassed(request, caller)
            raise ToolNotFound(f"{request.handle} was not given to you.", remedy="stop")
        return request

    async def _trespassed(self, request: Request, caller: Caller) -> None:
        await self._behind.note_trespass(
            caller, request.caller, what=request.handle, tool=request.tool
        )

    async def _decided(
        self, http: HttpRequest, decision: Decision, *, seen: str | None
    ) -> Response:
        caller = caller_of(http.scope)
        request = await self.found(http.path_params["handle"], caller)
        decided = await self.approvals.decide(
            request.handle, decision, by=caller, channel="api", seen=seen
        )
        return self._said(decided)

    def _said(self, request: Request) -> Response:
        return reply(request.to_dict(self.approvals.now()))

    def _may_see(self, request: Request, caller: Caller) -> bool:
        by = request.caller
        return (
            self._behind.is_admin(caller)
            or self.approvals.may_answer(caller)
            or principal(by) == principal(caller)
            or (caller.user is not None and caller.user == by.user)
        )


class _Resume:
    """Makes the call that a yes was given for, as it was asked: in raw ASGI as a call is."""

    def __init__(self, behind: Behind, desk: _Desk, calls: Calls) -> None:
        self._behind, self._desk, self._calls = behind, desk, calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if await body_of(headers, receive, self._behind.settings.body) not in _EMPTY:
            raise Refused(400, "There is nothing to say: the call is the one that was asked for.")
        caller = caller_of(scope)
        request = await self._desk.found_own(scope["path_params"]["handle"], caller)
        wanted = Wanted(request.exact(), request.session, None, None, request.handle)
        call_id = new_call_id()
        key = key_of(headers)
        result = await self._calls.resumed(request.tool, wanted, caller, call_id, key=key)
        await send_result(send, result, call_id)


_EMPTY: Final = (b"", b"{}")


def _lasting(given: dict[str, Any]) -> Lasting | None:
    if "lasting" not in given:
        return None
    try:
        return msgspec.convert(given["lasting"], Lasting)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, Lasting)
        path = "/".join(("lasting", *map(str, at)))
        fields = ", ".join(Lasting.__struct_fields__)
        raise InvalidArguments(f"/{path}: {what}; a lasting yes may say {fields}.") from None
