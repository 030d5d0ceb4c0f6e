"""Asking at the terminal that this process was started from.

Above: the ring, if the config says so. Below: standard input and error. It asks one thing at a
time, shows arguments as people may see them, and gives up when it is cancelled; whatever is not a
clear yes or no is no answer.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Mapping
from typing import Any, Final

from toolpost.approvals.values import Decision, Request
from toolpost.call import Caller
from toolpost.digest import canonical
from toolpost.redact import redact, redact_text, visible
from toolpost.wording import short

_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False}
_LINE: Final = 4096
_SHOWN: Final = 2000


class Prompt:
    """``await Prompt()(request)`` asks; ``None`` is no answer, also where there is no terminal."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, request: Request) -> Decision | None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        async with self._one_at_a_time:
            _say(described(request))
            _say("approve? [y/n] ", end="")
            answer = _ANSWERS.get((await _line()).strip().lower())
        return None if answer is None else Decision(approve=answer)


def local_person() -> Caller:
    """Who runs this process, by the number that the kernel knows, not by what the environment
    says: the same at every terminal.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return Caller(f"local:{name}", user=name, owner=True)


def described(request: Request) -> str:
    """One request in a few lines, with nothing in it that a terminal obeys."""
    caller = request.caller
    who = ", ".join(filter(None, (caller.user, caller.agent))) or caller.key or caller.id
    return (
        f"{request.handle}: {short(who)} wants {request.tool}\n"
        f"  arguments  {_shown(request.shown())}\n"
        f"  because    {visible(redact_text(request.reason))}"
    )


def widened(request: Request, decision: Decision) -> str:
    """What a yes would be for besides the call that was asked for, line by line; or nothing."""
    lines = []
    if decision.arguments is not None:
        lines.append(f"  instead    {_shown(redact(request.exact() | dict(decision.arguments)))}")
    if (lasting := decision.lasting) is not None:
        often = "any number of calls" if lasting.uses is None else f"at most {lasting.uses} calls"
        session = " in the same session" if lasting.session else ""
        lines.append(
            f"  and then   {often} of {request.tool} by the same caller{session}, unasked, "
            f"for {lasting.seconds / 60:g} minutes"
        )
        lines += [
            f"    where    {short(name)} {_wanted(wanted)}"
            for name, wanted in lasting.where.items()
        ] or ["             with any arguments"]
    return "\n".join(lines)


def _wanted(wanted: Any) -> str:
    if isinstance(wanted, Mapping) and wanted.keys() == {"const"}:
        return f"is {_shown(redact(wanted['const']))}"
    return f"fits {_shown(redact(wanted))}"


def _shown(value: Any) -> str:
    text = visible(canonical(value).decode())
    if (more := len(text) - _SHOWN) > 0:  # nobody approves what they were not told of
        return f"{text[:_SHOWN]} … AND {more} CHARACTERS MORE"
    return text


async def _line() -> str:
    """A line from the terminal; a cancellation leaves nothing behind that reads."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(file, _LINE).decode(errors="replace"))

    loop.add_reader(file, read)
    try:
        return await typed
    finally:
        loop.remove_reader(file)


def _say(text: str, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()
