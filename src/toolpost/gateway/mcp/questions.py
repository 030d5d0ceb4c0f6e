"""Questions of running tasks: put down in the store, shown and answered at whichever process.

Above: ``tasks.py``. Below: ``Records``. A question belongs to one call of a job, by the call's id:
when a job is run anew, what its last run asked is nobody's question any more. It refuses to know
what a task is, and who may see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from toolpost.call import Call
from toolpost.contracts import Answer, Question, Records
from toolpost.digest import digest
from toolpost.gateway.mcp.asking import ASKING, UNASKED, Asked, Client, answer_from

_SPACE: Final = "mcp.questions"
_LOOK: Final = 0.25
"""Seconds between two looks whether it was answered at another process."""


class _Put(msgspec.Struct, frozen=True):
    """A question as it is kept, and what was said to it."""

    question: Question
    answer: Answer | None = None


class Questions:
    """``house`` names whose tools these are, alike in every process that serves them."""

    def __init__(self, records: Records, *, house: str, patience: float) -> None:
        self._records, self._patience = records, patience
        self._asked = Asked(self._put, name=digest(house))
        self._news: dict[str, asyncio.Event] = {}

    def marks(self, client: Client) -> dict[str, str] | None:
        """What goes with a call so that its questions come here, if the client can be asked."""
        able = {"form": client.forms, "url": client.pages}
        modes = ",".join(mode for mode, can in able.items() if can)
        return {ASKING: f"{self._asked.name} {modes}"} if modes else None

    async def open(self, call_id: str) -> dict[str, Question]:
        """What the call waits for."""
        found = await self._records.scan(_SPACE, prefix=f"{call_id}/")
        kept = {key.partition("/")[2]: _kept(record.value) for key, record in found}
        return {key: one.question for key, one in kept.items() if one.answer is None}

    async def answer(self, call_id: str, answers: Mapping[str, Any]) -> None:
        """Hand over what answers there are; what answers nothing that was asked is left out."""
        for key in (await self.open(call_id)).keys() & answers.keys():
            place = f"{call_id}/{key}"
            record = await self._records.get(_SPACE, place)
            if record is None or (one := _kept(record.value)).answer is not None:
                continue
            if (found := answer_from(answers[key], one.question)) is not None:
                told = msgspec.to_builtins(_Put(one.question, found))
                version = record.version
                await self._records.put(_SPACE, place, told, version=version, ttl=self._patience)
                if (news := self._news.get(place)) is not None:
                    news.set()

    async def _put(self, call: Call, question: Question) -> Answer:
        modes = str(call.metadata[ASKING]).partition(" ")[2]
        if ("form" if question.url is None else "url") not in modes:
            return UNASKED
        told, key = msgspec.to_builtins(_Put(question)), question.name or "question"
        put, ttl = self._records.put, self._patience
        while not await put(_SPACE, f"{call.call_id}/{key}", told, version=0, ttl=ttl):
            key += "_"
        place = f"{call.call_id}/{key}"
        try:
            return await self._answered(place)
        finally:
            await put(_SPACE, place, None)

    async def _answered(self, place: str) -> Answer:
        """Until it is; a question that has outlived its time is answered by nobody."""
        news = self._news[place] = asyncio.Event()
        try:
            while (record := await self._records.get(_SPACE, place)) is not None:
                if (answer := _kept(record.value).answer) is not None:
                    return answer
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await news.wait()
            return UNASKED
        finally:
            del self._news[place]


def _kept(value: Any) -> _Put:
    return msgspec.convert(value, _Put)
