"""How a program ended, and what it wrote, made into an output or an error.

Above: ``backend.py``. Below: ``hearing.py``, ``starting.py`` and the binding. It refuses to
start anything.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from toolpost.backends.shell.binding import Command, ExitCode
from toolpost.backends.shell.starting import KILLED
from toolpost.call import Call
from toolpost.characters import stripped
from toolpost.document import parse
from toolpost.errors import (
    SAYABLE,
    CallError,
    InvalidOutput,
    OutputTooLarge,
    ResourceLimit,
    SourceError,
    ToolFailed,
    ToolNotFound,
)
from toolpost.plain import MAX_NODES
from toolpost.process import Exit
from toolpost.sandbox.hearing import Heard

_MOST_LINES: Final = MAX_NODES - 1
"""With the list itself, as many values as an output may have."""
_MOST_WORDS: Final = 2000
"""Characters of what a program said last, for a model to read."""
_LIMITS: Final = {
    signal.SIGKILL: "The program was killed, most likely because it ran out of memory.",
    signal.SIGXCPU: "The program used up its processor time.",
    signal.SIGXFSZ: "The program wrote a file that is larger than it may (limits.disk). Ask "
    "for less at a time.",
}


def output_of(command: Command, heard: Heard, ending: Exit, *, call: Call) -> Any:
    """The output, or the error that the end of the program amounts to."""
    binding, most = command.binding, call.spec.limits.output
    if heard.flooded is not None:
        if not binding.truncate:
            raise _too_large(heard.flooded, most)
        call.warn(f"The output was cut off: {heard.flooded} went over {most:,} bytes.")
    else:
        _raise_if_failed(command, heard, ending)
    text = _text(bytes(heard.stdout), call)
    if binding.output == "json":
        return _json(text)
    shape = _lines if binding.output == "lines" else _whole
    if not binding.truncate:
        return shape(text)
    if shape is _lines and text.count("\n") > _MOST_LINES:
        text = "\n".join((*text.split("\n", _MOST_LINES)[:_MOST_LINES], ""))
        call.warn(f"The output was cut off: it has more than {_MOST_LINES:,} lines.")
    if len(msgspec.json.encode(shape(text))) <= most:
        return shape(text)
    if heard.flooded is None:
        call.warn(f"The output was cut off: as JSON, it goes over {most:,} bytes.")
    return _cut(text, most, shape)


def _raise_if_failed(command: Command, heard: Heard, ending: Exit) -> None:
    status = ending.code if ending.signal is None else 128 + ending.signal  # as a shell has it
    assert status is not None, "it ended by itself or by a signal"
    meaning = command.endings.get(status)
    if status == 0 or (meaning is not None and meaning.ok):
        return
    words = _readable(heard.last_words)
    if ending.signal is not None and meaning is None:
        raise _ended_by(ending.signal, words)
    raise _error(status, meaning or ExitCode(), words)


def _error(status: int, meaning: ExitCode, words: str) -> CallError:
    kind = SAYABLE[meaning.error]
    how = "was killed, or ended" if status == KILLED else "ended"
    said = f"The program {how} with exit status {status}" + (f": {words}" if words else ".")
    return kind(
        said if meaning.message is None else meaning.message,
        details={"exit_status": status, **({"said": words} if meaning.message and words else {})},
        effects=meaning.effects,
        retryable=meaning.retryable,
        remedy="fix_args" if kind is ToolNotFound else None,  # not the tool is missing
    )


def _ended_by(number: int, words: str) -> CallError:
    details = {"signal": number}
    if number in _LIMITS:
        return ResourceLimit(_LIMITS[signal.Signals(number)], details=details)
    name = signal.strsignal(number) or f"signal {number}"
    return ToolFailed(f"The program broke off ({name}). {words}".rstrip(), details=details)


def _readable(words: bytes) -> str:
    text = stripped(words.decode("utf-8", "replace")).strip()
    return text if len(text) <= _MOST_WORDS else "…" + text[1 - _MOST_WORDS :]


def _text(data: bytes, call: Call) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        call.warn("The output is not all UTF-8: what is not stands as \ufffd.")
        return data.decode("utf-8", "replace")


def _json(text: str) -> Any:
    try:
        return parse(text, format="json", name="output").data
    except SourceError as fault:
        raise InvalidOutput(f"The program did not print JSON ({fault.message}).") from None


def _whole(text: str) -> str:
    return text.removesuffix("\n")


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _cut(text: str, most: int, shape: Callable[[str], Any]) -> Any:
    """As much of it as fits, written as JSON, where a character may take six bytes."""
    while text and (size := len(msgspec.json.encode(shape(text)))) > most:
        text = text[: min(len(text) * most // size, len(text) - 1)]
    return shape(text)


def _too_large(stream: str, most: int) -> OutputTooLarge:
    return OutputTooLarge(
        f"The program wrote more than {most:,} bytes to {stream} and was ended. Ask for less at a "
        "time.",
        details={"limit": most},
        effects="unknown",
    )
