"""The questions of running tools, and whom they are put to.

Above: the runtime is told of ``ask`` when it is made, ``provide={Elicits: ask}``, and ``calls.py``
says of each call who can be asked. Below: asyncio. A client of the handshake is asked while its
call runs. One of the later revision gets the questions as the result of its call, and brings the
answers with the next one: until then the call waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec

from toolpost.call import Call
from toolpost.contracts import Answer, Question
from toolpost.deadline import paused
from toolpost.result import Result
from toolpost.schema import Schema

ASKING: Final = "toolpost.asking"
"""In the metadata of a call: by which name it is known who can be asked."""
UNASKED: Final = Answer("cancel")


class Asked:
    """Who can be asked, by a name that goes with the call wherever it runs."""

    def __init__(
        self, put: Callable[[Call, Question], Awaitable[Answer]], *, name: str | None = None
    ) -> None:
        self.put = put
        self.name = name or uuid4().hex
        _asked[self.name] = self


# One for all runtimes of a process, for a backend is given ``ask`` before there is any server.
_asked: WeakValueDictionary[str, Asked] = WeakValueDictionary()


async def ask(call: Call, question: Question) -> Answer:
    """Put a question to who called; where nobody can be asked, nobody has answered."""
    name = str(call.metadata.get(ASKING, "")).partition(" ")[0]
    asked = _asked.get(name)
    if asked is None:
        return UNASKED
    with paused(call):
        return await asked.put(call, question)


class Client(msgspec.Struct, frozen=True):
    """What a client says that it can."""

    version: str
    can: Mapping[str, Any] = {}

    @property
    def forms(self) -> bool:
        """Said of nothing in particular, elicitation means forms."""
        modes = self.can.get("elicitation")
        return isinstance(modes, Mapping) and ("form" in modes or "url" not in modes)

    @property
    def pages(self) -> bool:
        modes = self.can.get("elicitation")
        return isinstance(modes, Mapping) and "url" in modes

    def can_show(self, question: Question) -> bool:
        return self.forms if question.url is None else self.pages


class Conversation:
    """A call that may ask: it runs in a task of its own, and ``turn`` waits until it has ended or
    wants to know something.
    """

    def __init__(self, client: Client, given: Mapping[str, Any]) -> None:
        self._client, self._given = client, given
        self._open: dict[str, tuple[Question, asyncio.Future[Answer]]] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[Result] | None = None
        self.asked = Asked(self._put)

    def begin(self, call: Coroutine[Any, Any, Result]) -> None:
        self._task = asyncio.create_task(call)
        self._task.add_done_callback(lambda _: self._news.set())

    async def turn(self) -> Result | Mapping[str, Question]:
        """Who waits and goes away takes the call along."""
        assert self._task is not None, "it was begun"
        try:
            await self._news.wait()
        except asyncio.CancelledError:
            await self.end()
            raise
        if self._task.done():
            return self._task.result()
        self._news.clear()
        return {key: question for key, (question, _) in self._open.items()}

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Hand over what answers there are; what is still open is asked again."""
        for key, (question, future) in list(self._open.items()):
            found = answer_from(answers.get(key), question)
            if found is not None and not future.done():
                del self._open[key]
                future.set_result(found)
        if self._open:
            self._news.set()

    async def end(self) -> None:
        """Stop the call, and whatever it has started."""
        assert self._task is not None, "it was begun"
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.gather(self._task, return_exceptions=True))

    async def _put(self, call: Call, question: Question) -> Answer:
        if not self._client.can_show(question):
            return UNASKED
        key = question.name or "question"
        if (found := answer_from(self._given.get(key), question)) is not None:
            self._given = {k: v for k, v in self._given.items() if k != key}
            return found
        while key in self._open:
            key += "_"
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[key] = question, future
        self._news.set()
        try:
            return await future
        finally:
            self._open.pop(key, None)


def answer_from(given: Any, question: Question) -> Answer | None:
    """What a client brought, if it is an answer to this question."""
    if not isinstance(given, Mapping) or given.get("action") not in ("accept", "decline", "cancel"):
        return None
    if given["action"] != "accept":
        return Answer(given["action"])
    if question.url is not None:
        return Answer("accept")
    content = given.get("content") or {}
    if not isinstance(content, dict) or (
        question.schema is not None and Schema(dict(question.schema)).faults(content)
    ):
        return None
    return Answer("accept", content)


def form_of(question: Question) -> dict[str, Any]:
    """What is to be filled in. Clients insist on fields, even if there are none."""
    return {"type": "object", "properties": {}, **(question.schema or {})}


def request_of(question: Question) -> dict[str, Any]:
    """A question as a client of the later revision gets it."""
    params: dict[str, Any]
    if question.url is not None:
        params = {"mode": "url", "message": question.message, "url": question.url}
    else:
        params = {
            "mode": "form", "message": question.message, "requestedSchema": form_of(question),
        }  # fmt: skip
    return {"method": "elicitation/create", "params": params}
