"""A call that failed, told to a person or a program, and its exit code.

Above: ``call.py`` and ``show.py``. Below: ``codes.py``, the one table of exit codes. It refuses to
know why anything failed: that is in the error itself.
"""

from __future__ import annotations

from typing import Final, NoReturn

import click

from toolpost.cli.options import Asked
from toolpost.cli.terminal import print_json, safe, say
from toolpost.codes import STATUS
from toolpost.errors import Code, Remedy
from toolpost.result import Failure, Result

APPROVALS: Final = "approvals"
"""Stands for a tool where it is approvals that are dealt with."""
KEYS: Final = "keys"
"""The same for API keys."""
JOBS: Final = "jobs"
"""The same for jobs."""
ARTIFACTS: Final = "artifacts"
"""The same for artifacts."""
WITH_A_KEY: Final = "give a key or a token of the gateway, as TOOLPOST_API_KEY or with --api-key"
_BY_CODE: Final[dict[Code, str]] = {
    "NOT_FOUND": "see what there is with: toolpost list",
    "INTERNAL_ERROR": "see the log and the traceback with: toolpost --debug call …",
    "EXECUTION_ERROR": "what the tool takes: toolpost show {tool}",
    "TIMEOUT": "the tool's own limit is in its spec, as timeout; --timeout can only lower it",
    "UNAVAILABLE": "see what is missing with: toolpost doctor",
    "CANCELLED": "the tool was stopped; what it did before that stays done",
}
_REMOTE: Final[dict[Code, str]] = {
    "UNAVAILABLE": "see whether the gateway of --url is there and ready: GET /readyz",
    "UNAUTHORIZED": WITH_A_KEY,
    "INTERNAL_ERROR": "the log of the gateway tells more",
    "TIMEOUT": "the tool's own limit is in its spec, as timeout; --timeout can only lower it",
}
"""Of a gateway, where others can look further than whoever sits here."""
_BY_REMEDY: Final[dict[Remedy, str]] = {
    "fix_args": "what the tool takes: toolpost show {tool}",
    "wait": "try again later",
    "reauth": "the caller has to identify itself",
    "ask_approval": "somebody has to approve this call first",
    "other_tool": "look for another tool with: toolpost list",
    "stop": "do not repeat this call as it is",
}


def explained(error: Failure, tool: str, *, known: bool = False) -> str:
    """What happened, what to do, and how, harmless to print. ``known``: a gateway knew who asked,
    and it is the call that was refused.
    """
    hint = _hint(error, tool, known=known)
    wait = "" if error.retry_after is None else f" (in {error.retry_after:g} s)"
    return safe(
        f"error: {error.code}: {error.message}\n"
        f"remedy: {error.remedy}{wait}; effects: {error.effects}\n"
        f"hint: {hint}"
    )


def _hint(error: Failure, tool: str, *, known: bool) -> str:
    asked = click.get_current_context().find_object(Asked)
    if asked is not None and asked.url is not None:
        if error.code in _REMOTE and not (known and error.code == "UNAUTHORIZED"):
            return _REMOTE[error.code]
        return _hint_of(error, tool).replace("toolpost ", f"{asked.program} ")
    return _hint_of(error, tool)


def _hint_of(error: Failure, tool: str) -> str:
    if tool == APPROVALS and error.code in ("NOT_FOUND", "CONFLICT"):
        return "see what there is with: toolpost approvals list --all; toolpost approvals standing"
    if tool == APPROVALS and error.code == "VALIDATION_ERROR":
        return "see what can be said with: toolpost approvals approve --help"
    if tool == KEYS and error.code in ("NOT_FOUND", "CONFLICT"):
        return "see what there is with: toolpost keys list --all"
    if tool == KEYS and error.code == "VALIDATION_ERROR":
        return "see what can be said with: toolpost keys create --help"
    if error.code == "NOT_FOUND" and "status" in (error.details or {}):
        return "the tool is there: what it asked another service for is not"
    if tool == JOBS and error.code == "NOT_FOUND":
        return "see what there is with: toolpost jobs list --all"
    if tool == ARTIFACTS and error.code == "NOT_FOUND":
        return "what is kept, and for how long, is said with the result that it was part of"
    if error.code == "APPROVAL_REQUIRED":
        handle = (error.details or {}).get("approval")
        return (
            f"somebody approves it with: toolpost approvals approve {handle}"
            if handle
            else "no guard asks anybody: put approval into the guards of the config"
        )
    return (_BY_CODE.get(error.code) or _BY_REMEDY[error.remedy]).format(tool=tool)


def fail(
    error: Failure,
    *,
    tool: str,
    as_json: bool,
    result: Result | None = None,
    silent: bool = False,
) -> NoReturn:
    """Say it, unless that has been done, and end with the exit code of the error."""
    if silent:
        pass
    elif as_json:
        print_json((result or Result(error=error)).to_dict())
    else:
        for warning in () if result is None else result.metadata.warnings:
            say(safe(f"warning: {warning}"))
        say(explained(error, tool, known=result is not None and bool(result.metadata.call_id)))
    click.get_current_context().exit(STATUS[error.code].exit)
