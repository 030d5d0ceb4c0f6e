"""Long calls as tasks (SEP-2663), for clients that say they can: jobs, as MCP shows them.

Above: ``calls.py`` begins one in a call's place, ``server.py`` has the methods. Below: ``jobs``,
where they are kept: a task is in the store before its client hears of it, outlives the connection
and the process, and is its caller's alone. Nothing here imports the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from toolpost.call import Caller
from toolpost.codes import STATUS
from toolpost.gateway.mcp.answers import answer_of
from toolpost.gateway.mcp.asking import Client, request_of
from toolpost.gateway.mcp.definitions import Definitions
from toolpost.gateway.mcp.questions import Questions
from toolpost.jobs import Job, Jobs
from toolpost.result import Failure

EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASKS: Final = "tasks"
"""In the label that names what a client must be able to do: it can only be called as a task."""
_POLL: Final = 500
_STATUS: Final = {"succeeded": "completed", "failed": "completed", "unknown": "failed"}
"""What a tool failed with is a result. What failed around it is an error of the protocol: a fault
of ours, or a process that has ended so that nobody knows.
"""


def can_wait(client: Client) -> bool:
    """Whether the client says, with this very request, that it can do with a task."""
    extensions = client.can.get("extensions")
    return isinstance(extensions, Mapping) and EXTENSION in extensions


class Tasks:
    """``ttl``: seconds that one is kept when it has ended."""

    def __init__(
        self, jobs: Jobs, definitions: Definitions, questions: Questions, *, ttl: float
    ) -> None:
        self._jobs, self._definitions, self._ttl = jobs, definitions, ttl
        self._questions = questions

    async def begin(
        self,
        name: str,
        arguments: dict[str, Any] | None,
        *,
        caller: Caller,
        client: Client,
        key: str | None,
    ) -> dict[str, Any]:
        """Raises ``CallError`` for what would be refused."""
        marks = self._questions.marks(client)
        job = await self._jobs.submit(name, arguments, caller=caller, metadata=marks, key=key)
        return {"resultType": "task", **self._shown(job)}

    async def get(self, task: str, *, caller: Caller, version: str) -> dict[str, Any]:
        """As it is, with its result if it has ended; raises ``CallError`` if it is not there."""
        job = await self._jobs.get(task, caller=caller)
        shown = {"resultType": "complete", **self._shown(job)}
        result = job.result
        if job.state == "running" and job.call_id is not None:
            if asked := await self._questions.open(job.call_id):
                requests = {key: request_of(one) for key, one in asked.items()}
                return {**shown, "status": "input_required", "inputRequests": requests}
        elif result is None or not job.over or job.state == "cancelled":
            pass
        elif result.error is not None and _is_broken(job):
            return {**shown, "status": "failed", "error": _error(result.error)}
        else:
            definition = self._definitions.named(job.tool)
            shown["result"] = answer_of(result, definition, version)
        return shown

    async def cancel(self, task: str, *, caller: Caller) -> None:
        await self._jobs.cancel(task, caller=caller)

    async def update(self, task: str, answers: Mapping[str, Any], *, caller: Caller) -> None:
        """Answers to what the task asks; those to anything else are nobody's."""
        job = await self._jobs.get(task, caller=caller)
        if job.state == "running" and job.call_id is not None:
            await self._questions.answer(job.call_id, answers)

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


def _is_broken(job: Job) -> bool:
    error = None if job.result is None else job.result.error
    return job.state == "unknown" or (error is not None and error.code == "INTERNAL_ERROR")


def _error(error: Failure) -> dict[str, Any]:
    data = msgspec.to_builtins(error)
    return {"code": STATUS[error.code].rpc, "message": error.message, "data": data}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
