"""One ``tools/call``, whichever way it came: from what a client wants to what it gets.

Above: ``fast.py`` and ``server.py``, which turn messages into :class:`Wanted`. Below: the runtime,
the approvals, and the calls that wait for an answer. Nothing here imports the SDK. What cannot be
answered with a result is a :class:`Refusal`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from secrets import token_hex
from typing import Any, Final, NamedTuple

import msgspec

from toolpost.approvals import Approvals, Decision, Request
from toolpost.approvals.values import principal
from toolpost.call import Call, Caller, Progress, new_call_id
from toolpost.codes import STATUS
from toolpost.contracts import Answer, Question
from toolpost.errors import CallError, MissingPart
from toolpost.failure import failure
from toolpost.gateway.inflight import InFlight, stopped, this_task
from toolpost.gateway.mcp.answers import answer_of, text_of
from toolpost.gateway.mcp.asking import (
    ASKING,
    UNASKED,
    Asked,
    Client,
    Conversation,
    answer_from,
    request_of,
)
from toolpost.gateway.mcp.definitions import Definition, Definitions
from toolpost.gateway.mcp.sealed import Broken, State, States, bound_to
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.mcp.tasks import EXTENSION, TASKS, Tasks, can_wait
from toolpost.result import Metadata, Result
from toolpost.runtime import Runtime
from toolpost.wording import shortened

_log = logging.getLogger("toolpost.mcp")
KEY: Final = "toolpost/key"
"""In ``_meta``: the idempotency key of a call."""
_TRACE: Final = ("traceparent", "tracestate")
_CANNOT: Final = -32021
_INVALID: Final = -32602
_APPROVAL: Final = "approval"
_LOOK: Final = 10.0
"""Seconds that a client's next round waits for somebody to approve."""
_MOST_SHOWN: Final = 2000
_GO_ON: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_YES: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve this call", "default": False},
    },
    "required": ["approve"],
}


class Refusal(Exception):
    """An error of the protocol: there is no call that could have a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one message asks for. ``put`` asks a client of the handshake something; ``note`` hears
    the id of the call that is made for it.
    """

    name: str
    arguments: dict[str, Any] | None
    caller: Caller
    client: Client
    meta: Mapping[str, Any] = {}
    answers: Mapping[str, Any] = {}
    state: str | None = None
    tell: Callable[[Progress], None] | None = None
    put: Callable[[Question], Awaitable[Answer]] | None = None
    note: Callable[[str], None] | None = None

    def noted(self, call_id: str) -> None:
        if self.note is not None:
            self.note(call_id)


class _Waiting(NamedTuple):
    """A call that waits for an answer, for so long, of ``who``."""

    call_id: str
    conversation: Conversation
    timer: asyncio.TimerHandle
    who: str


class Calls:
    """Answers calls, and keeps those that wait: ``mark`` names them so that others find them."""

    def __init__(
        self,
        runtime: Runtime,
        settings: McpSettings,
        definitions: Definitions,
        *,
        tasks: Tasks | None = None,
        mark: Callable[[str], str] = str,
        inflight: InFlight | None = None,
    ) -> None:
        self._runtime, self._settings, self._definitions = runtime, settings, definitions
        config = runtime.config
        self._execute = runtime.execute
        self._inflight = InFlight() if inflight is None else inflight
        self._states = States(config.base / config.settings.state)
        self._tasks, self._mark = tasks, mark
        self._waiting: dict[str, _Waiting] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def answer(self, wanted: Wanted) -> dict[str, Any]:
        """What the client gets; raises ``Refusal``."""
        definition = self._definitions.named(wanted.name)
        if definition is not None and definition.needs:
            _demand(definition.needs, wanted.client)
        if wanted.state is not None:
            return await self._resumed(wanted, definition, wanted.state)
        return await self._begun(wanted, definition)

    async def close(self) -> None:
        """End the calls that wait."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.timer.cancel()
            await one.conversation.end()
        await asyncio.gather(*self._ending)

    async def _begun(
        self, wanted: Wanted, definition: Definition | None, *, grant: str | None = None
    ) -> dict[str, Any]:
        """A call that may ask something of a client of the later revision runs on by itself."""
        if grant is None and definition is not None and self._is_task(definition, wanted):
            return await self._task(wanted, definition)
        if wanted.put is None and "elicitation" in wanted.client.can:
            conversation, call_id = Conversation(wanted.client, wanted.answers), new_call_id()
            conversation.begin(self._run(wanted, call_id, asked=conversation.asked, grant=grant))
            return await self._turn(wanted, definition, conversation, call_id)
        result = await self._run(wanted, new_call_id(), grant=grant)
        return await self.told(wanted, definition, result)

    def _is_task(self, definition: Definition, wanted: Wanted) -> bool:
        """Those of the handshake know of no such thing."""
        return (
            self._tasks is not None
            and wanted.put is None
            and definition.spec.time_limit >= self._settings.task
            and can_wait(wanted.client)
        )

    async def _task(self, wanted: Wanted, definition: Definition) -> dict[str, Any]:
        assert self._tasks is not None, "else nothing is a task"
        key = wanted.meta.get(KEY)
        try:
            return await self._tasks.begin(
                wanted.name,
                wanted.arguments,
                caller=wanted.caller,
                client=wanted.client,
                key=key,
            )
        except CallError as refused:
            error = failure(refused, tool=wanted.name, call_id="", effects=definition.spec.effects)
            return await self.told(wanted, definition, Result(error=error))

    # --- on the road ------------------------------------------------------------------------

    async def plain(
        self, name: str, arguments: dict[str, Any] | None, caller: Caller, call_id: str
    ) -> Result:
        """The result of a call of which there is no more to say; raises ``CallError`` if the caller
        has too many. As ``InFlight.carried`` does it, in one piece: this is where most come by.
        """
        inflight, task = self._inflight, this_task()
        inflight.enter(call_id, name, caller, task)
        try:
            return await self._execute(name, arguments, caller, call_id=call_id)
        except asyncio.CancelledError:
            if not inflight.was_stopped(call_id, task):
                raise
            return stopped(name, call_id)
        finally:
            inflight.leave(call_id, caller)

    async def _run(
        self,
        wanted: Wanted,
        call_id: str,
        *,
        asked: Asked | None = None,
        grant: str | None = None,
    ) -> Result:
        wanted.noted(call_id)
        meta, metadata = wanted.meta, None
        if asked is None and (put := wanted.put) is not None:
            asked = Asked(partial(_patiently, put, self._settings.patience))
        if asked is not None:
            metadata = {ASKING: asked.name}
        if "traceparent" in meta:
            metadata = {**(metadata or {}), **{key: meta[key] for key in _TRACE if key in meta}}

        def execute() -> Awaitable[Result]:
            return self._execute(
                wanted.name,
                wanted.arguments,
                wanted.caller,
                metadata=metadata,
                key=meta.get(KEY),
                grant=grant,
                on_progress=wanted.tell,
                call_id=call_id,
            )

        name, caller = wanted.name, wanted.caller
        try:
            return await self._inflight.carried(call_id, name, caller, this_task(), execute)
        except CallError as many:
            return refusal(many, name, call_id)

    async def told(
        self, wanted: Wanted, definition: Definition | None, result: Result
    ) -> dict[str, Any]:
        """A result, for the client; where it is that a person has to be asked, that is done."""
        error = result.error
        if error is not None:
            if error.code == "NOT_FOUND" and not self._known(definition, wanted.caller):
                raise Refusal(STATUS["NOT_FOUND"].rpc, error.message, msgspec.to_builtins(error))
            if error.code == "APPROVAL_REQUIRED" and wanted.client.forms:
                handle = (error.details or {}).get("approval")
                if isinstance(handle, str):
                    return await self._approval(wanted, definition, result, handle)
        return answer_of(result, definition, wanted.client.version)

    def _known(self, definition: Definition | None, caller: Caller) -> bool:
        return definition is not None and definition.spec in self._runtime.list(caller)

    # --- rounds -----------------------------------------------------------------------------

    async def _resumed(
        self, wanted: Wanted, definition: Definition | None, text: str
    ) -> dict[str, Any]:
        bound = bound_to(wanted.caller, wanted.name, wanted.arguments or {})
        try:
            state = await self._states.opened(text, bound=bound)
        except Broken as why:
            _log.warning("a state of %s for %s is refused: %s", wanted.caller.id, wanted.name, why)
            raise _stale() from None
        if state.kind == "approval":
            return await self._approved(wanted, definition, state)
        found = self._waiting.pop(state.leads, None)
        if found is None:
            _log.warning("a state of %s for %s leads nowhere", wanted.caller.id, wanted.name)
            raise _stale()
        found.timer.cancel()
        found.conversation.answer(wanted.answers)
        wanted.noted(found.call_id)
        return await self._turn(wanted, definition, found.conversation, found.call_id)

    async def _turn(
        self,
        wanted: Wanted,
        definition: Definition | None,
        conversation: Conversation,
        call_id: str,
    ) -> dict[str, Any]:
        """The result of a call that may ask, or its questions: then the call waits."""
        turn = await conversation.turn()
        if isinstance(turn, Result):
            return await self.told(wanted, definition, turn)
        who = principal(wanted.caller)
        if (full := self._full(who)) is not None:
            await conversation.end()
            raise Refusal(STATUS["QUEUE_FULL"].rpc, full)
        number, patience = self._mark(token_hex(16)), self._settings.patience
        timer = asyncio.get_running_loop().call_later(patience, self._given_up, number)
        self._waiting[number] = _Waiting(call_id, conversation, timer, who)
        state = State(
            "question",
            number,
            time.time() + patience,
            bound_to(wanted.caller, wanted.name, wanted.arguments or {}),
        )
        return await self._required(state, turn)

    def _full(self, who: str) -> str | None:
        """Why no more calls may wait, if so."""
        if len(self._waiting) >= self._settings.questions:
            return "Too many calls wait for answers. Try again."
        of_theirs = sum(one.who == who for one in self._waiting.values())
        if of_theirs >= self._settings.questions_each:
            return "Too many calls of yours wait for answers. Answer some of them first."
        return None

    def _given_up(self, number: str) -> None:
        ending = asyncio.create_task(self._waiting.pop(number).conversation.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _required(self, state: State, questions: Mapping[str, Question]) -> dict[str, Any]:
        return {
            "resultType": "input_required",
            "inputRequests": {key: request_of(one) for key, one in questions.items()},
            "requestState": await self._states.sealed(state),
        }

    # --- approvals --------------------------------------------------------------------------

    async def _approval(
        self, wanted: Wanted, definition: Definition | None, result: Result, handle: str
    ) -> dict[str, Any]:
        """Show the client's user what waits; ``result`` says it to who cannot be shown."""
        desk = self._desk()
        if desk is None:
            return answer_of(result, definition, wanted.client.version)
        request = await desk.find(handle)
        question = self._question(request)
        if wanted.put is not None:
            answer = await wanted.put(question)
            if answer.action == "cancel":
                return answer_of(result, definition, wanted.client.version)
            await self._decide(desk, wanted.caller, request.handle, request.seen, answer)
            again = await self._run(wanted, new_call_id(), grant=handle)
            return answer_of(again, definition, wanted.client.version)
        bound = bound_to(wanted.caller, wanted.name, wanted.arguments or {})
        state = State("approval", handle, request.expires, bound, request.seen)
        return await self._required(state, {_APPROVAL: question})

    async def _approved(
        self, wanted: Wanted, definition: Definition | None, state: State
    ) -> dict[str, Any]:
        """The client comes back: with what its user said, or only to see whether it is approved."""
        desk = self._desk()
        if desk is None:
            raise _stale()
        question = Question(message="", schema=_YES if self._settings.approve else _GO_ON)
        answer = answer_from(wanted.answers.get(_APPROVAL), question)
        if answer is not None:
            await self._decide(desk, wanted.caller, state.leads, state.seen, answer)
        if answer is not None and answer.action == "cancel":
            result = await self._run(wanted, new_call_id(), grant=state.leads)
            return answer_of(result, definition, wanted.client.version)
        return await self._begun(wanted, definition, grant=state.leads)

    async def _decide(
        self, desk: Approvals, caller: Caller, handle: str, seen: str, answer: Answer
    ) -> None:
        """A no takes the request back, which whoever asked may always do. A yes counts where the
        config trusts the client's dialog; else it means that somebody has approved elsewhere, or
        is about to.
        """
        yes = answer.action == "accept" and (answer.content or {}).get("approve") is True
        try:
            if answer.action == "decline" or (
                self._settings.approve and answer.action == "accept" and not yes
            ):
                no = Decision(approve=False, reason="declined in the client.")
                await desk.decide(handle, no, by=caller, channel="api")
            elif self._settings.approve and yes:
                person = Caller(caller.user or caller.id, user=caller.user, key=caller.key)
                decision = Decision(approve=True, reason="approved in the client")
                await desk.decide(handle, decision, by=person, channel="callback", seen=seen)
            elif answer.action == "accept":
                await desk.wait(handle, seconds=min(_LOOK, self._settings.patience))
        except CallError as late:  # somebody else has answered, or it has expired: the road says so
            _log.info("an answer to %s does not count: %s", handle, late)

    def _question(self, request: Request) -> Question:
        shown = shortened(text_of(request.shown()), _MOST_SHOWN)
        what = f"{request.tool} is to be called with {shown}. {request.reason}"
        if self._settings.approve:
            return Question(message=f"{what} Approve it?", schema=_YES, name=_APPROVAL)
        where = f"toolpost approvals approve {request.handle}"
        return Question(
            message=f"{what} A person has to approve it, with: {where}. Accept here when that is "
            "done; decline to take the call back.",
            schema=_GO_ON,
            name=_APPROVAL,
        )

    def _desk(self) -> Approvals | None:
        try:
            return self._runtime.extension("approval").approvals
        except MissingPart:
            return None


async def _patiently(
    put: Callable[[Question], Awaitable[Answer]], seconds: float, _: Call, question: Question
) -> Answer:
    """A question that is not answered in time is answered by nobody."""
    try:
        async with asyncio.timeout(seconds):
            return await put(question)
    except TimeoutError:
        return UNASKED


def refusal(fault: CallError, tool: str, call_id: str) -> Result:
    """The result of a call that was not made."""
    error = failure(fault, tool=tool, call_id=call_id, effects="once")
    return Result(error=error, metadata=Metadata(call_id))


def _demand(needs: tuple[str, ...], client: Client) -> None:
    missing: dict[str, Any] = {one: {} for one in needs if one != TASKS and one not in client.can}
    names = list(missing)
    if TASKS in needs and not can_wait(client):
        missing["extensions"] = {EXTENSION: {}}
        names.append(TASKS)
    if missing:
        raise Refusal(
            _CANNOT,
            f"This tool needs a client that can: {', '.join(names)}.",
            {"requiredCapabilities": missing},
        )


def _stale() -> Refusal:
    return Refusal(
        _INVALID,
        "This requestState is not valid, or not any more. Make the call anew, without it.",
        {"reason": "invalid_request_state"},
    )
