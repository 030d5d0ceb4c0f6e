"""What a client carries from one round of a call to the next: state that only we can have made.

Above: ``calls.py``. Below: ``seal.py``; the key is kept beside the store, so that every process of
one gateway knows the others' states. A state is bound to the caller, the tool and the arguments.
That it is used once is seen to by what it leads to: an approval, or a call that waits.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from toolpost.approvals.values import principal
from toolpost.call import Caller
from toolpost.digest import digest
from toolpost.seal import Seal, from_text, open_seal, to_text

KEY: Final = "gateway-mcp"
_MOST: Final = 4096


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """``leads``: the handle of an approval, or the number of a call that waits."""

    kind: Literal["approval", "question"]
    leads: str
    expires: float
    bound: str
    seen: str = ""


class Broken(Exception):
    """It is not ours, not for this call, or too old. Which of these is for the log."""


class States:
    """Seals states and opens them again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seal: Seal | None = None

    async def sealed(self, state: State) -> str:
        seal, body = await self._key(), msgspec.json.encode(state)
        return f"{to_text(body)}.{seal.sign(body)}"

    async def opened(self, text: str, *, bound: str) -> State:
        """Raises ``Broken``."""
        seal = await self._key()
        body, _, signature = text.partition(".")
        try:
            data = from_text(body) if len(text) <= _MOST else b""
        except ValueError:
            data = b""
        if not data:
            raise Broken("it is not in the form of one")
        if not seal.verifier.check(data, signature):
            raise Broken("the seal is wrong")
        state = msgspec.json.decode(data, type=State)
        if state.bound != bound:
            raise Broken("it is of another call")
        if time.time() >= state.expires:
            raise Broken("it has expired")
        return state

    async def _key(self) -> Seal:
        if self._seal is None:
            self._seal = await asyncio.to_thread(open_seal, self._folder, KEY)
        return self._seal


def leads_to(message: Any) -> str:
    """Where the state in a message says that it leads, unverified: good for finding who can tell
    whether that is so, and for nothing else.
    """
    try:
        body = message["params"]["requestState"].partition(".")[0]
        return msgspec.json.decode(from_text(body), type=State).leads if len(body) < _MOST else ""
    except (TypeError, KeyError, AttributeError, ValueError, msgspec.MsgspecError):
        return ""


def bound_to(caller: Caller, tool: str, arguments: Any) -> str:
    """What pins a state to one call."""
    return digest([principal(caller), tool, arguments])
