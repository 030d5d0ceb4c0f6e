"""Starting the process of a worker: a plain child, kept by its keeper.

Above: ``worker.py``. Below: ``process.py``. In a sandbox it is started by ``confined.py``, which is
loaded only where a tool asks for it. It refuses to know what the process does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from toolpost.process import Child, spawn_script

Bound = Literal["memory", "processes"]


class Starter(Protocol):
    """Runs a Python file that is told the number of its end of the ``wire``, which folders are its
    own to litter, and ``words``; ``ran_into`` says whether it has met the bound of its ``memory``
    or its ``processes``, or None where that cannot be known.
    """

    async def start(self, script: str, words: Sequence[str], *, wire: int) -> Child: ...

    def ran_into(self, bound: Bound, child: Child) -> bool | None: ...


class Plain(msgspec.Struct, frozen=True):
    """``isolation: process``: it can be killed, and nothing keeps it from anything."""

    env: Mapping[str, str]
    memory: int | None
    file_size: int | None
    cwd: str | None
    namespace: bool

    async def start(self, script: str, words: Sequence[str], *, wire: int) -> Child:
        return await spawn_script(
            [script, str(wire), "", *words],
            env=self.env,
            cwd=self.cwd,
            memory=self.memory,
            file_size=self.file_size,
            pass_fds=[wire],
            namespace=self.namespace,
        )

    def ran_into(self, bound: Bound, child: Child) -> bool | None:
        return None if bound == "memory" else False  # there is no other
