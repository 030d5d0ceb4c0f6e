"""Serves a tool to whatever carries messages: a request in its envelope in, the answer in its own
out.

A bus subscribes to ``runner.subject`` and hands every message to ``handle``; nothing here knows
how messages travel, nor who may send them: a transport that knows says so with ``caller``. The name
in the envelope proves nothing.

Above: a transport. Below: an executor or a runtime, whose road every call takes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from toolpost import Caller, Config, Executor, Failure, Result, Runtime
from toolpost.bridges.nachos.bringing import tools
from toolpost.bridges.nachos.config import ToolConfig
from toolpost.bridges.nachos.contract import (
    CALL,
    IDS,
    HealthStatus,
    Tool,
    ToolError,
    ToolResult,
    arguments_of,
    result_of,
)
from toolpost.bridges.nachos.manifest import Manifest
from toolpost.document.strict import NotStrictJson, strict_json
from toolpost.plain import is_text
from toolpost.rules import by_mode
from toolpost.wording import short

_log = logging.getLogger("toolpost.nachos")
_MOST: Final = 4 * 1024 * 1024
"""Bytes of a request."""
_MOST_ID: Final = 256
REQUEST: Final = "tool.request"
RESPONSE: Final = "tool.response"
ANYBODY: Final = Caller("bus")
"""Whoever sends a request, where nobody says who that is: not the owner of the house."""
_EVERY_TIER: Final = {"see": ["*"], "call": ["*"], "tier": 4}
Envelope = dict[str, Any]


_DENIED: Final = Failure(
    code="POLICY_DENIED",
    message="The policy does not allow this tool in this mode. Use another tool.",
    remedy="stop",
    retryable=False,
    effects="none",
)


class ToolRunner:
    """One tool of an executor or a runtime, which stay their owner's to close."""

    def __init__(self, tool: Tool | str, tools: Executor | Runtime) -> None:
        self.tool_id = tool if isinstance(tool, str) else tool.tool_id
        self._tools = tools

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        tool: Tool | type[Any],
        config: ToolConfig | None = None,
        *,
        manifest: Manifest | Mapping[str, Any] | None = None,
    ) -> AsyncIterator[ToolRunner]:
        """With a runtime of its own: the whole chain in the mode of the config, and its records
        in ``.toolpost`` in the folder of that. Mode and tier decide for every caller: who may send
        a request is for the transport to say.
        """
        config = config or ToolConfig()
        (item,) = tools(tool, config=config, manifest=manifest)
        plain = {"mode": config.security_mode, "extensions": {"access": {"default": _EVERY_TIER}}}
        settings = Config.of(plain, base=config.base)
        async with Runtime(settings, tools=[item]) as runtime:
            (spec,) = runtime.registry.list()
            yield cls(spec.name, runtime)

    @property
    def subject(self) -> str:
        """Where requests for this tool are published."""
        return f"nachos.tool.{self.tool_id}.request"

    async def handle(
        self, request: bytes | str | Mapping[str, Any], caller: Caller = ANYBODY
    ) -> Envelope:
        """The answer to one request, whatever it is; only a cancellation is raised."""
        sent = ""
        try:
            message = _message(request)
            sent = _id(message, "id")
            result = await self._executed(message, sent, caller)
        except _Unfit as fault:
            error = ToolError("VALIDATION_ERROR", str(fault))
            result = ToolResult(success=False, error=error)
        except Exception:  # noqa: BLE001 - a mapping of the sender's own may do anything
            _log.exception("a request for %s broke", self.tool_id)
            error = ToolError("INTERNAL_ERROR", "Internal tool error. See logs for details.")
            result = ToolResult(success=False, error=error)
        return {
            "id": str(uuid4()),
            "timestamp": _now(),
            "source": self.tool_id,
            "type": RESPONSE,
            "correlationId": sent or None,
            "payload": result.to_dict(),
        }

    async def health(self) -> HealthStatus:
        said = await (
            self._tools.executor if isinstance(self._tools, Runtime) else self._tools
        ).health(self.tool_id)
        return HealthStatus(said.healthy, said.error)

    async def _executed(self, message: Mapping[str, Any], sent: str, caller: Caller) -> ToolResult:
        kind = message.get("type", REQUEST)
        if kind != REQUEST:
            raise _Unfit(f"type: {short(str(kind))!r} is not {REQUEST!r}")
        payload = message.get("payload")
        if not isinstance(payload, Mapping):
            raise _Unfit("payload: an object with the parameters is missing")
        session, call = (_id(payload, name, "payload.") for name in IDS)
        result = await self._tools.execute(
            self.tool_id,
            arguments_of(payload),
            caller=caller,
            session_id=session,
            metadata={CALL: call, "requestId": sent},
        )
        if result.error is not None and result.error.code == "UNAUTHORIZED" and self._is_denied():
            return result_of(Result(error=_DENIED, metadata=result.metadata))
        return result_of(result)

    def _is_denied(self) -> bool:
        """Whether mode and tier deny the tool, so that no role could call it."""
        spec = self._tools.registry.get(self.tool_id)
        if spec is None or not isinstance(self._tools, Runtime):
            return False
        return by_mode(spec, self._tools.config.settings.mode).verdict == "deny"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Unfit(Exception):
    """What is wrong with a message, in words for who sent it."""


def _message(request: object) -> Mapping[str, Any]:
    if isinstance(request, bytes | bytearray | memoryview | str):
        if len(request) > _MOST:
            raise _Unfit(f"the request has more than {_MOST:,} bytes")
        try:
            text = request.encode() if isinstance(request, str) else bytes(request)
            request = strict_json(text, "request")
        except UnicodeEncodeError:
            raise _Unfit("the request has half of a surrogate pair in it") from None
        except NotStrictJson as fault:
            raise _Unfit(str(fault)) from None
    if not isinstance(request, Mapping):
        raise _Unfit("a request is an object with id and payload")
    return request


def _id(holder: Mapping[str, Any], name: str, where: str = "") -> str:
    found = holder.get(name)
    if isinstance(found, str) and 0 < len(found) <= _MOST_ID and is_text(found):
        return found
    raise _Unfit(f"{where}{name}: a text of 1 to {_MOST_ID} characters is missing")
