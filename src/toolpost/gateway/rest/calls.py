"""``POST /v1/tools/{name}:call`` and ``:plan``: the way of every call, so it is raw ASGI.

Above: the application, which knows who asks. Below: the road. The answer is JSON, a stream of
events, or the address of a job, as the headers want it. When the client goes away the server
cancels the request's task, and with it the call; under a server that does not, ``_watched`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from toolpost.call import Caller, Progress, new_call_id
from toolpost.gateway.answers import result_bytes, send_bytes, send_result, send_whole
from toolpost.gateway.behind import Behind
from toolpost.gateway.bodies import Gone, Receive, Scope, Send, body_of, json_of
from toolpost.gateway.inflight import this_task
from toolpost.gateway.rest.streaming import stream
from toolpost.gateway.rest.wanted import (
    Wanted,
    key_of,
    prefers,
    trace_of,
    wanted_of,
    wants_events,
)
from toolpost.jobs import Jobs
from toolpost.jobs.gravity import gravest
from toolpost.result import Result

WORK: Final = "toolpost.work"
"""Where the scope has the task of a request, under a server that cancels it if the client goes."""
CALL: Final = "toolpost.call"
"""Where it has the id of the call that it made: for the access log, if it comes to no answer."""
TOOL: Final = "toolpost.tool"
"""Where it has the name of its tool."""
Hear = Callable[[Progress], None]
Answered = tuple[int, str | None]
"""The status, and the id of the call: for the access log."""


class Calls:
    """Calls tools for whoever asks."""

    def __init__(self, behind: Behind) -> None:
        self._most, self._jobs = behind.settings.body, behind.jobs
        self._execute, self._inflight = behind.runtime.execute, behind.inflight
        self._effects = partial(gravest, behind.runtime.registry)
        self._list = behind.runtime.list

    def _parameters(self, name: str, caller: Caller) -> Container[str]:
        """What a tool takes, if this caller may know of it."""
        for spec in self._list(caller):
            if spec.name == name:
                return frozenset(spec.input_schema.get("properties", ()))
        return ()

    async def call(
        self,
        name: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        caller: Caller,
    ) -> Answered:
        """Call a tool."""
        data = json_of(headers, await body_of(headers, receive, self._most))
        wanted = wanted_of(data, partial(self._parameters, name, caller))
        key, trace = key_of(headers), trace_of(headers)
        if self._jobs is not None and prefers(headers, b"respond-async"):
            return await _detached(self._jobs, name, wanted, send, caller, key=key), None
        call_id = scope[CALL] = new_call_id()
        scope[TOOL] = name
        task = scope.get(WORK)
        if task is not None and not wants_events(headers):
            result = await self.executed(name, wanted, caller, call_id, task, key, trace)
            if result.error is None:
                return await send_whole(scope, send, result_bytes(result)), call_id
            return await send_result(send, result, call_id), call_id

        def run(hear: Hear | None) -> asyncio.Task[Result]:
            return asyncio.create_task(work(hear))

        async def work(hear: Hear | None) -> Result:
            own = this_task()
            return await self.executed(name, wanted, caller, call_id, own, key, trace, hear)

        if wants_events(headers):
            status = await stream(run, scope, send, call_id, effects=self._effects(name))
            return status, call_id
        return await send_result(send, await _watched(run(None), receive), call_id), call_id

    async def plan(
        self,
        name: str,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        caller: Caller,
    ) -> Answered:
        """What a call would do: everything but the tool itself."""
        data = json_of(headers, await body_of(headers, receive, self._most))
        wanted = wanted_of(data, partial(self._parameters, name, caller))
        call_id = new_call_id()
        result = await self.executed(name, wanted, caller, call_id, this_task(), dry_run=True)
        return await send_result(send, result, call_id), call_id

    async def resumed(
        self, name: str, wanted: Wanted, caller: Caller, call_id: str, *, key: str | None
    ) -> Result:
        """A call that was asked for before, and waited for a yes."""
        return await self.executed(name, wanted, caller, call_id, this_task(), key=key)

    def executed(
        self,
        name: str,
        wanted: Wanted,
        caller: Caller,
        call_id: str,
        task: asyncio.Task[Any],
        key: str | None = None,
        trace: Mapping[str, str] | None = None,
        hear: Hear | None = None,
        dry_run: bool = False,
    ) -> Coroutine[Any, Any, Result]:
        """The result, also of a call that its caller has stopped by its id; ``task`` is what then
        is cancelled.
        """
        return self._inflight.carried(
            call_id,
            name,
            caller,
            task,
            lambda: self._execute(
                name, wanted.arguments, caller, wanted.session_id, wanted.timeout, None, dry_run,
                wanted.phase, trace, key, wanted.grant, hear, call_id,
            ),
        )  # fmt: skip


async def _detached(
    jobs: Jobs, name: str, wanted: Wanted, send: Send, caller: Caller, *, key: str | None
) -> int:
    """A job: it is in the store before anybody hears of it."""
    job = await jobs.submit(
        name,
        wanted.arguments,
        caller=caller,
        session_id=wanted.session_id,
        timeout=wanted.timeout,
        phase=wanted.phase,
        key=key,
        grant=wanted.grant,
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"location", f"/v1/jobs/{job.id}".encode()),
        (b"preference-applied", b"respond-async"),
    ]
    return await send_bytes(send, 202, headers, msgspec.json.encode(job.to_dict()))


async def _watched(call: asyncio.Task[Result], receive: Receive) -> Result:
    """The result, unless the client goes first: then the call is cancelled, and gone."""
    gone = asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait((call, gone), return_when=asyncio.FIRST_COMPLETED)
        if call.done():
            return call.result()
        raise Gone
    finally:
        gone.cancel()
        call.cancel()
        await asyncio.gather(call, gone, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
