"""A tool ready to be called: its chain, its handle, how many calls are inside, and its end.

Above: the executor. Below: the handle that a backend made. It refuses to know what is around it:
a tool that was replaced takes no new calls, and its handle closes when the last one has left.
"""

from __future__ import annotations

import asyncio
import logging

from toolpost.contracts import Closes, Handle, Health, Walk
from toolpost.errors import ToolpostError
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost")


class Bound:
    """``rings`` are the names of the extensions around it, outermost first; ``problem`` is why it
    cannot be called, for who looks after it: callers are not told; ``ask`` is why each of its
    calls needs a person's yes, whether or not a ring asks for it.
    """

    __slots__ = (
        "_ending", "_leaving", "_loop", "active", "ask", "handle", "problem", "retired", "rings",
        "spec", "walk",
    )  # fmt: skip

    def __init__(self, spec: ToolSpec, leaving: set[Bound] | None = None) -> None:
        self.spec = spec
        self.ask = (
            f"A person has to confirm {spec.name} before it runs."
            if spec.requires_approval
            else None
        )
        self.handle: Handle | None = None
        self.walk: Walk
        self.rings: tuple[str, ...] = ()
        self.problem: str | None = None
        self.active, self.retired = 0, False
        self._leaving: set[Bound] = set() if leaving is None else leaving
        self._ending: asyncio.Task[None] | None = None
        self._loop = running_loop()

    def refuse(self, why: Exception) -> None:
        """It cannot be called, and what there is of it closes."""
        ours = isinstance(why, ToolpostError)
        self.problem = str(why) if ours else f"{type(why).__name__}: {why}"
        self.retire()

    def retire(self) -> None:
        """Close as soon as nobody is inside; called from any thread, with a loop or without."""
        self.retired = True
        if self.handle is None:
            return
        self._leaving.add(self)
        if self._loop is None:
            return  # made outside a loop: closed with the executor
        try:
            self._loop.call_soon_threadsafe(self.release)
        except RuntimeError:  # its loop is closed, and whatever it had open went with it
            self._leaving.discard(self)

    def release(self) -> asyncio.Task[None] | None:
        """The closing of the handle, begun here if the last call has left."""
        if self.handle is not None and not self.active:
            loop = asyncio.get_running_loop()
            self._ending = loop.create_task(closed(self.handle, self.spec.name))
            self._ending.add_done_callback(lambda _: self._leaving.discard(self))
            self.handle = None
        return self._ending

    async def health(self) -> Health:
        if self.handle is None:
            return Health(False, self.problem or "it cannot be run")
        try:
            return await self.handle.health()
        except Exception as exc:  # noqa: BLE001 - what keeps it from answering is the answer
            return Health(False, f"{type(exc).__name__}: {exc}")


async def closed(part: Closes, name: str) -> None:
    """Close a part; what it cannot close must not keep the others open."""
    try:
        await part.close()
    except Exception:  # noqa: BLE001 - foreign code, and there is nobody to tell but the log
        _log.exception("%s did not close", name)


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
