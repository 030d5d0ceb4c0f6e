"""Workers in a sandbox: what they see of Python, what their tool was granted, and how one starts.

Above: ``backend.py``, which loads this when the first tool wants a sandbox. Below: the sandbox. It
refuses to know what a worker does: it starts one, and says which bounds it ran into.

A worker sees the interpreter, the packages of this program and the folder of the spec file, none of
which it can change; the folders that its spec names; a ``/tmp`` of its own; and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from toolpost.backends.python.binding import Binding
from toolpost.backends.python.starting import Bound
from toolpost.errors import InvalidSpec
from toolpost.plugins import SharedSandbox
from toolpost.process import Child
from toolpost.sandbox import Confinement
from toolpost.sandbox.confinement import homes, within
from toolpost.sandbox.view import interpreter, system
from toolpost.spec import MOST_PROCESSES, ToolSpec

_WIRE: Final = 3
"""The number of a worker's end of the wire, inside."""
_SCRATCH: Final = "/tmp:/dev/shm"  # noqa: S108 - the worker's own
_EVERYBODYS: Final = ("/tmp", "/var/tmp", "/dev", "/etc", "/run")  # noqa: S108 - to be kept out
_PACKAGE: Final = str(Path(__file__).parents[2])


class Confined:
    """``isolation: sandbox``: what the spec does not grant, the tool cannot do."""

    def __init__(self, shared: SharedSandbox, confinement: Confinement) -> None:
        self._shared, self._confinement = shared, confinement
        self.shape = confinement.shape
        self.search_path = search_path()

    async def start(self, script: str, words: Sequence[str], *, wire: int) -> Child:
        sandbox = await self._shared()
        own = _SCRATCH if "namespaces" in sandbox.about["layers"] else ""
        argv = [_program(self._confinement.read), "-I", "-S", "-X", "utf8", script]
        return await sandbox.spawn(
            [*argv, str(_WIRE), own, *words], self._confinement, pass_fds={wire: _WIRE}
        )

    def ran_into(self, bound: Bound, child: Child) -> bool | None:
        sandbox = self._shared.opened
        if sandbox is None or "cgroup" not in sandbox.about["layers"]:
            return None
        return bound in sandbox.exceeded(child)


def confinement_of(
    spec: ToolSpec,
    binding: Binding,
    *,
    beside: Sequence[str],
    environment: Mapping[str, str],
    read: Sequence[str],
    write: Sequence[str],
    templates: int = 0,
) -> Confinement:
    """What a tool may do; ``beside`` is the folder of its spec file, where relative paths start,
    ``read`` and ``write`` are for every tool. ``templates`` are processes of ours beside it.
    """
    for folder in beside:
        if _shows_too_much(folder):
            raise InvalidSpec(
                f"{spec.name!r} would see everything in {folder}, which is or holds a home or "
                "everybody's folder: put its spec file and its module into a folder of their own"
            )
    base = beside[0] if beside else "/"
    seen = [*beside, *search_path(), *([binding.main] if binding.main else [])]
    granted = [_absolute(base, path) for path in (*binding.read, *read)]
    return Confinement(
        read=tuple(dict.fromkeys((*_trees(seen), *granted))),
        write=tuple(dict.fromkeys(_absolute(base, path) for path in (*binding.write, *write))),
        egress=spec.egress,
        memory=spec.limits.memory,
        cpus=spec.limits.cpus,
        processes=min(spec.limits.processes + templates, MOST_PROCESSES),
        disk=spec.limits.disk,
        files=spec.limits.files,
        environment=environment,
        tier=spec.tier,
    )


def search_path() -> list[str]:
    """Where this program finds its modules, as a sandbox can show it."""
    return [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - links stay as they are


def _trees(seen: Iterable[str]) -> tuple[str, ...]:
    """The outermost of what is to be seen, but for what every sandbox shows. What would show a home
    or everybody's temporary files is left out: nobody has granted those.
    """
    there = (*system(), *interpreter()[1])
    wanted = [
        path
        for path in dict.fromkeys((sys.prefix, *seen, _PACKAGE))
        if Path(path).exists()
        and not any(within(path, tree) for tree in there)
        and not _shows_too_much(path)
    ]
    return tuple(p for p in wanted if not any(within(p, o) for o in wanted if o != p))


def _program(read: Sequence[str]) -> str:
    """The interpreter of this program, with its virtual environment if that can be seen."""
    seen = any(within(sys.executable, tree) for tree in (*system(), *read))
    return sys.executable if seen else interpreter()[0]


def _shows_too_much(path: str) -> bool:
    real = os.path.realpath(path)
    return real == "/" or any(within(one, real) for one in (*homes(), *_EVERYBODYS))


def _absolute(base: str, path: str) -> str:
    return os.path.normpath(Path(base, path))
