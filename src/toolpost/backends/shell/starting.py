"""Starting a program: inside a sandbox, or as a plain child where the spec asks for no more.

Above: ``backend.py``. Below: ``process.py``, and ``sandbox/``. What keeps a program from being
started is told apart here: the arguments, the moment, or the set-up.
"""

from __future__ import annotations

import errno
import logging
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from toolpost import process
from toolpost.backends.shell.grants import Folders
from toolpost.errors import (
    InvalidArguments,
    MissingPart,
    ResourceLimit,
    SetupError,
    Unavailable,
)
from toolpost.plugins import SharedSandbox
from toolpost.process import Child, Exit, Hearer
from toolpost.sandbox import Confinement
from toolpost.sandbox.confinement import within
from toolpost.sandbox.view import system
from toolpost.spec import ToolSpec

KILLED: Final = 128 + signal.SIGKILL
"""The status of what was killed, as a shell has it; a program may also end with it by itself."""
_log = logging.getLogger("toolpost.tools")
_NOT_NOW: Final = frozenset(
    (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETOOMANYREFS)
)
_EXCEEDED: Final = {
    "disk": "The program wrote more than its limit of {:,} bytes (limits.disk) and was stopped. "
    "What it wrote until then is still there. Ask for less at a time.",
    "files": "The program made more files than its limit of {:,} (limits.files) and was stopped. "
    "What it made until then is still there. Ask for less at a time.",
    "memory": "The program needed more memory than it may use. Try a smaller input.",
    "processes": "The program wanted to start more processes than it may.",
}


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One program to be started."""

    argv: Sequence[str]
    working_dir: str | None
    environment: Mapping[str, str]
    stdin: int | None
    on_stdout: Hearer
    on_stderr: Hearer


class Starter(Protocol):
    """Starts the program of one tool; ``ended`` says how it really ended, or which limit it met,
    ``problem`` why it could not be started, ``about`` what confines it.
    """

    @property
    def about(self) -> Mapping[str, Any]: ...

    async def start(self, wanted: Start) -> Child: ...

    async def ended(self, child: Child, ending: Exit) -> Exit: ...

    async def problem(self) -> str | None: ...


class Plain:
    """``isolation: process``: it can be killed, and nothing keeps it from anything."""

    about: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, spec: ToolSpec) -> None:
        self._memory, self._file_size = spec.limits.memory, spec.limits.disk

    async def start(self, wanted: Start) -> Child:
        return await process.spawn(
            wanted.argv,
            env=wanted.environment,
            cwd=wanted.working_dir or "/",
            memory=self._memory,
            file_size=self._file_size,
            stdin=wanted.stdin,
            on_stdout=wanted.on_stdout,
            on_stderr=wanted.on_stderr,
        )

    async def ended(self, child: Child, ending: Exit) -> Exit:
        return ending

    async def problem(self) -> str | None:
        return None


class Confined:
    """``isolation: sandbox``: what the spec does not grant, the program cannot do."""

    def __init__(
        self, spec: ToolSpec, program: str, *, folders: Folders, shared: SharedSandbox
    ) -> None:
        self._name, self._open = spec.name, shared
        shown = any(within(program, tree) for tree in (*system(), *folders.all))
        self._confinement = Confinement(
            read=folders.read if shown else (*folders.read, program),
            write=folders.write,
            egress=spec.egress,
            memory=spec.limits.memory,
            cpus=spec.limits.cpus,
            processes=spec.limits.processes,
            disk=spec.limits.disk,
            files=spec.limits.files,
            tier=spec.tier,
        )
        if shared.opened is not None:  # else it is refused when it is called
            shared.opened.check(self._confinement)

    @property
    def about(self) -> Mapping[str, Any]:
        return self._open.about

    async def start(self, wanted: Start) -> Child:
        confinement = msgspec.structs.replace(
            self._confinement,
            environment=wanted.environment,
            working_dir=wanted.working_dir,
        )
        try:
            sandbox = await self._open()
            return await sandbox.spawn(
                wanted.argv,
                confinement,
                stdin=wanted.stdin,
                on_stdout=wanted.on_stdout,
                on_stderr=wanted.on_stderr,
            )
        except SetupError as missing:
            _log.error("%s cannot be confined: %s", self._name, missing)
            raise Unavailable(
                missing.message, retryable=False, remedy="other_tool", effects="none"
            ) from missing

    async def ended(self, child: Child, ending: Exit) -> Exit:
        if child.quota is not None and (met := await child.quota.settle()) is not None:
            most = self._confinement.disk if met == "disk" else self._confinement.files
            raise ResourceLimit(_EXCEEDED[met].format(most), details={"limit": met})
        if ending.code == 0 or ending.killed:
            return ending
        sandbox = await self._open()
        for bound in sandbox.exceeded(child):
            raise ResourceLimit(_EXCEEDED[bound], details={"limit": bound})
        if ending.signal == signal.SIGKILL and "cgroup" in sandbox.about["layers"]:
            return replace(ending, code=KILLED, signal=None)  # by no bound: that would be known
        return ending

    async def problem(self) -> str | None:
        try:
            sandbox = await self._open()
            sandbox.check(self._confinement)
        except SetupError as missing:
            return missing.message
        return None


def not_started(exc: OSError, program: str) -> Exception:
    """What it means that the kernel would not start a program: nothing has happened."""
    if exc.errno == errno.E2BIG:
        return InvalidArguments(
            "The arguments, with the variables of the tool, are too long for a command line. Ask "
            "for less at a time.",
            effects="none",
        )
    if exc.errno in _NOT_NOW or isinstance(exc, ChildProcessError):
        return Unavailable(
            "The machine could not start another program just now. Try again later.",
            effects="none",
        )
    return MissingPart(f"{program} cannot be started: {exc}")
