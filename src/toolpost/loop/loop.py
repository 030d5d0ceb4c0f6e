"""``Loop``: tools for a model that is asked with the vendor's own SDK, or with plain JSON.

    agent = Loop(tools, "anthropic", caller=bot)
    said = await client.messages.create(tools=await agent.tools(), messages=messages, …)
    turn = await agent.answer(said)
    messages += turn.messages

Above: programs. Below: the dialects, by name, and whatever has the tools. No vendor's package is
imported here or below; how a model is reached is the program's business.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from toolpost.call import Caller
from toolpost.deadline import passes
from toolpost.errors import InvalidArguments, MissingPart
from toolpost.loop.anthropic import ANTHROPIC
from toolpost.loop.calling import Listing, Tools, called, specs_of, verify_caller, written
from toolpost.loop.content import parse, refused
from toolpost.loop.openai_chat import CHAT
from toolpost.loop.openai_responses import RESPONSES
from toolpost.loop.values import Asked, Called, Dialect, Turn
from toolpost.wording import nearest

_log = logging.getLogger("toolpost.loop")
_CUT: Final = (
    "The message ended before this call was whole, so it was not made. Call it again, with less "
    "text before it or less in it."
)
DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
}
Approve = Callable[[Called], Awaitable[bool] | bool]
"""Gets a call that waits; true once somebody has answered it, with a yes or with a no."""
Ask = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Any]
"""Puts a conversation and the tools to a model, at once or when awaited: returns its message."""


class Ended(msgspec.Struct, frozen=True):
    """How a run ended: ``done``; ``pending``, if ``turn`` waits for a person; ``rounds``, if the
    model would have gone on.
    """

    why: Literal["done", "pending", "rounds"]
    messages: list[dict[str, Any]]
    """The conversation; a turn that waits is not yet in it."""
    message: Any
    """The model's last message, as it was given."""
    turn: Turn


class Loop:
    """The tools of one caller, in the words of one vendor.

    ``approve`` is asked about calls that wait for a person; when it says that they are answered,
    they are made again. Without it, or if nobody has answered, they are ``Turn.pending``.
    """

    def __init__(
        self,
        tools: Tools,
        form: str,
        *,
        caller: Caller | None = None,
        session_id: str | None = None,
        strict: bool = False,
        approve: Approve | None = None,
    ) -> None:
        if form not in DIALECTS:
            raise MissingPart(
                f"there is no loop for {form!r}{nearest(form, DIALECTS)} "
                f"(there are: {', '.join(DIALECTS)})"
            )
        verify_caller(tools, given=caller is not None)
        self._tools, self._form, self._strict = tools, form, strict
        self._caller, self._session_id, self._approve = caller, session_id, approve
        self._dialect = DIALECTS[form]
        self._listing: Listing | None = None

    async def tools(self) -> list[dict[str, Any]]:
        """The tools as they are now, for the next request."""
        specs = await specs_of(self._tools, self._caller)
        if self._listing is None or not self._listing.is_of(specs):
            self._listing = written(specs, self._form, strict=self._strict)
        return list(self._listing.exported.tools)

    async def answer(self, message: Any) -> Turn:
        """Make the calls that are in a message, all at once. Whatever goes wrong with one is its
        result, for the model to read.
        """
        said = self._dialect.read(message)
        if said.asked and self._listing is None:
            await self.tools()
        calls = await _at_once([self._call(one) for one in said.asked])
        return Turn(said.messages, self._dialect.results(calls), tuple(calls), said.paused)

    async def resume(self, turn: Turn) -> Turn:
        """Make the calls again that waited, now that somebody may have answered."""
        calls = await _at_once([self._again(call) for call in turn.calls])
        results = self._dialect.results(calls)
        return msgspec.structs.replace(turn, calls=tuple(calls), results=results)

    async def run(
        self, ask: Ask, messages: Sequence[Mapping[str, Any]], *, rounds: int = 20
    ) -> Ended:
        """Ask the model and answer it, until it is done, somebody has to be waited for, or it has
        been asked so many times.
        """
        if rounds < 1:
            raise ValueError("rounds is at least 1")
        said = [dict(message) for message in messages]
        for _ in range(rounds):
            message = await _asked(ask, list(said), await self.tools())
            turn = await self.answer(message)
            if turn.pending:
                return Ended("pending", said, message, turn)
            said += turn.messages
            if turn.over:
                return Ended("done", said, message, turn)
        return Ended("rounds", said, message, turn)

    async def _call(self, asked: Asked) -> Called:
        assert self._listing is not None, "it is made before the first call"
        exported = self._listing.exported
        tool = exported.name_of(asked.name)
        try:
            if asked.cut:
                raise InvalidArguments(_CUT)
            arguments = exported.arguments_of(asked.name, parse(asked.arguments))
        except InvalidArguments as fault:
            return Called(asked.id, tool, {}, refused(fault, tool))
        made = await self._made(asked.id, tool, arguments)
        return await self._again(made) if await self._is_answered(made) else made

    async def _is_answered(self, call: Called) -> bool:
        if call.handle is None or self._approve is None:
            return False
        try:
            said = self._approve(call)
            return bool(await said if inspect.isawaitable(said) else said)
        except (Exception, asyncio.CancelledError) as exc:  # foreign code: the call waits,
            if isinstance(exc, asyncio.CancelledError) and passes(exc):
                raise
            _log.exception("nobody could be asked about %s", call.handle)
            return False  # and the others go on

    async def _again(self, call: Called) -> Called:
        if call.handle is None:
            return call
        return await self._made(call.id, call.tool, call.arguments, grant=call.handle)

    async def _made(
        self, number: str, tool: str, arguments: dict[str, Any], *, grant: str | None = None
    ) -> Called:
        result = await called(
            self._tools,
            tool,
            arguments,
            caller=self._caller,
            session_id=self._session_id,
            grant=grant,
        )
        return Called(number, tool, arguments, result)


async def _at_once(calls: Sequence[Any]) -> list[Called]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [task.result() for task in tasks]


async def _asked(ask: Ask, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
    """A function that blocks does so in a thread."""
    if inspect.iscoroutinefunction(ask):
        return await ask(messages, tools)
    said = await asyncio.to_thread(ask, messages, tools)
    return await said if inspect.isawaitable(said) else said
