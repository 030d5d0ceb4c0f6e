"""Long calls as tasks (SEP-2663), for clients that say they can: jobs, as MCP shows them.

Above: ``calls.py`` begins one in a call's place, ``server.py`` has the methods. Below: ``jobs``,
where they are kept: a task is in the store before its client hears of it, outlives the connection
and the process, and is its caller's alone. Nothing here imports the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from toolpost.call import Caller
from toolpost.gateway.mcp.answers import answer_of
from toolpost.gateway.mcp.asking import Client
from toolpost.gateway.mcp.definitions import Definitions
from toolpost.jobs import Job, Jobs

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_POLL: Final = 500
_STATUS: Final = {"succeeded": "completed", "failed": "completed", "unknown": "completed"}
"""What a tool failed with is a result; only a task that was cancelled has none."""


def can_wait(client: Client) -> bool:
    """Whether the client says, with this very request, that it can do with a task."""
    extensions = client.can.get("extensions")
    return isinstance(extensions, Mapping) and EXTENSION in extensions


class Tasks:
    """``ttl``: seconds that one is kept when it has ended."""

    def __init__(self, jobs: Jobs, definitions: Definitions, *, ttl: float) -> None:
        self._jobs, self._definitions, self._ttl = jobs, definitions, ttl

    async def begin(
        self, name: str, arguments: dict[str, Any] | None, *, caller: Caller, key: str | None
    ) -> dict[str, Any]:
        """Raises ``CallError`` for what would be refused."""
        job = await self._jobs.submit(name, arguments, caller=caller, key=key)
        return {"resultType": "task", **self._shown(job)}

    async def get(self, task: str, *, caller: Caller, version: str) -> dict[str, Any]:
        """As it is, with its result if it has ended; raises ``CallError`` if it is not there."""
        job = await self._jobs.get(task, caller=caller)
        shown = {"resultType": "complete", **self._shown(job)}
        if job.over and job.state != "cancelled" and job.result is not None:
            definition = self._definitions.named(job.tool)
            shown["result"] = answer_of(job.result, definition, version)
        return shown

    async def cancel(self, task: str, *, caller: Caller) -> None:
        await self._jobs.cancel(task, caller=caller)

    async def update(self, task: str, *, caller: Caller) -> None:
        """Nobody has asked anything: that it is there is all there is to say."""
        await self._jobs.get(task, caller=caller)

    def _shown(self, job: Job) -> dict[str, Any]:
        status = job.state if job.state == "cancelled" else _STATUS.get(job.state, "working")
        shown = {
            "taskId": job.id,
            "status": status,
            "createdAt": _moment(job.created),
            "lastUpdatedAt": _moment(job.ended or job.started or job.created),
            "ttlMs": int(self._ttl * 1000),
            "pollIntervalMs": _POLL,
        }
        if job.approval is not None and not job.over:
            shown["statusMessage"] = f"It waits for a person's yes, as {job.approval}."
        elif job.progress is not None and job.progress.message:
            shown["statusMessage"] = job.progress.message
        return shown


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
