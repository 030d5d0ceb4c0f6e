"""Who acts through a framework, and what their yes there is worth here.

Above: the bridges to frameworks. Below: ``loop``, which calls whatever has the tools. Frameworks
know who asks when a call is made, from a context of theirs: a caller, or a session, may be a
function of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from toolpost.call import Caller
from toolpost.loop import Called, Tools, called, verify_caller
from toolpost.result import Result

_log = logging.getLogger("toolpost.loop")
C = TypeVar("C")
Approve = Callable[[str], Awaitable[object]]
"""Gets the handle of a call to which a person has said yes in the framework: it tells the desk."""


class Acting(Generic[C]):
    """Tools, as those who act through a framework call them; ``C`` is its context."""

    def __init__(
        self,
        tools: Tools,
        *,
        caller: Caller | Callable[[C], Caller] | None = None,
        session_id: str | Callable[[C], str | None] | None = None,
        approve: Approve | None = None,
    ) -> None:
        verify_caller(tools, given=caller is not None)
        self.tools, self.approve = tools, approve
        self._caller, self._session_id = caller, session_id

    @property
    def known(self) -> Caller | None:
        """Who asks, if that is known before there is a context."""
        return None if callable(self._caller) else self._caller

    def caller(self, context: C) -> Caller | None:
        return self._caller(context) if callable(self._caller) else self._caller

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        context: C,
        *,
        grant: str | None = None,
        dry_run: bool = False,
    ) -> Result:
        session_id = self._session_id
        return await called(
            self.tools,
            tool,
            arguments,
            caller=self.caller(context),
            session_id=session_id(context) if callable(session_id) else session_id,
            grant=grant,
            dry_run=dry_run,
        )

    async def approved(self, tool: str, arguments: dict[str, Any], context: C) -> Result:
        """A call to which a person has said yes: if nobody has told the desk, that is done now."""
        result = await self.call(tool, arguments, context)
        handle = waits(result)
        if handle is None or self.approve is None:
            return result
        try:
            await self.approve(handle)
        except Exception:  # noqa: BLE001 - foreign code: the call waits, which the model is told
            _log.exception("the yes to %s could not be laid down", handle)
            return result
        return await self.call(tool, arguments, context, grant=handle)


def waits(result: Result) -> str | None:
    """The handle of a call that waits for a person, if it does."""
    return Called("", "", {}, result).handle


def misfit(exc: Any) -> str:
    """What pydantic has against arguments, without the arguments themselves."""
    faults = [f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in exc.errors()]
    return "The arguments do not fit: " + "; ".join(faults)
