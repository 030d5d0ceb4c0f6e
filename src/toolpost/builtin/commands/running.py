"""One program in a sandbox, heard to its end: what it wrote, up to a bound, and how it ended.

Above: ``tools.py``. Below: the sandbox, and ``sandbox/hearing.py``, which hears it out. It
refuses to know which program it is, and why.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from toolpost.contracts import Confines
from toolpost.errors import ResourceLimit
from toolpost.sandbox import Confinement
from toolpost.sandbox.hearing import Heard

_EXCEEDED: Final = {
    "memory": "The program needed more memory than it may use. Ask for less at a time.",
    "processes": "The program wanted to start more processes than it may.",
}


class Ran(msgspec.Struct, frozen=True):
    """A signal that ended it is told as a shell does: 128 and its number."""

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool


async def ran(
    sandbox: Confines,
    argv: Sequence[str],
    confinement: Confinement,
    *,
    most: int,
    begun: Callable[[], None],
) -> Ran:
    """Run it to its end, or to ``most`` bytes of output; a cancellation ends it with all it began.
    ``begun`` is called once it runs.

    ``OSError`` says that it could not be started, ``SetupError`` that it cannot be confined.
    """
    heard = Heard(most=most)
    child = await sandbox.spawn(
        argv, confinement, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr
    )
    begun()
    ending = await heard.out(child)
    flooded = heard.flooded is not None
    if ending.code != 0 and not flooded:
        for bound in sandbox.exceeded(child):
            raise ResourceLimit(_EXCEEDED[bound], details={"limit": bound})
        if ending.signal == signal.SIGKILL:
            raise ResourceLimit("The program was killed from outside.")
    status = ending.code if ending.signal is None else 128 + ending.signal
    return Ran(status or 0, _text(heard.stdout), _text(heard.stderr), flooded)


def _text(written: bytearray) -> str:
    return written.decode("utf-8", "replace")
