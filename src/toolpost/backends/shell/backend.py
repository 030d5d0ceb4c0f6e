"""Shell tools: programs of this machine, run without a shell, confined unless the spec says not.

Above: the road. Below: ``binding`` (what the spec says), ``filling`` (values into words),
``grants`` (folders, environment), ``starting``, ``ending`` (what its end means), and
``sandbox/hearing.py`` for what the program writes. A program runs if the config lists it, with the
words of its template and no others. What cannot be confined as the spec asks is refused with the
reason; it never runs with less.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from toolpost.backends.shell.binding import Command, command_of
from toolpost.backends.shell.ending import output_of
from toolpost.backends.shell.filling import argv_from, text_from
from toolpost.backends.shell.grants import Folders, Variables
from toolpost.backends.shell.script import files_digest, is_script, script_of
from toolpost.backends.shell.starting import Confined, Plain, Start, Starter, not_started
from toolpost.call import Call
from toolpost.contracts import Declared, Health, Services
from toolpost.errors import ConfigError, Conflict, InvalidSpec, MissingPart
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox
from toolpost.sandbox.hearing import Heard, Stream
from toolpost.spec import Isolation, ToolSpec
from toolpost.telling import Telling
from toolpost.wording import shortened

_HOMES: Final = {"process": "/nonexistent", "sandbox": "/tmp"}  # noqa: S108 - the sandbox's own
_MOST_SHOWN: Final = 1000
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class ShellOptions(Options, frozen=True):
    """``[backends.shell]``: the programs that tools may run, the folders in which these are found,
    and the folders that every tool may use.
    """

    programs: tuple[str, ...] = ()
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


class ShellBackend:
    """Runs tools of kind ``shell``."""

    options: ClassVar[type[Options]] = ShellOptions

    def __init__(self, services: Services | None = None) -> None:
        self._services = services or Services()
        self._options = options_from(
            self._services.settings.get("shell", {}), ShellOptions, "backend shell"
        )
        for folder in self._options.path:
            if not folder.startswith("/"):  # else it would depend on where one stands
                raise ConfigError(
                    f"backend shell: {folder!r} in path has to be an absolute path", at=("path",)
                )
        given = self._services.provide.get(SharedSandbox)
        self._own = SharedSandbox()
        self._sandbox = given if isinstance(given, SharedSandbox) else self._own

    def bind(self, spec: ToolSpec, target: object | None) -> ShellHandle:
        command = command_of(spec)
        base = target.folder if isinstance(target, Declared) else None
        isolation = spec.isolation or "sandbox"
        given = self._options
        folders = Folders(command, base=base, read=given.read, write=given.write)
        basis = {
            "PATH": os.pathsep.join(self._options.path),
            "LANG": "C.UTF-8",
            "HOME": _HOMES[isolation],
        }
        program = self._program(spec, command.program, base)
        return ShellHandle(
            command,
            isolation=isolation,
            program=program,
            folders=folders,
            variables=Variables(command, self._services.secret, basis),
            starter=Plain(spec)
            if isolation == "process"
            else Confined(spec, program, folders=folders, shared=self._sandbox),
        )

    def code_of(self, spec: ToolSpec, target: object | None) -> str | None:
        """The digest of the script that a tool runs, if the spec names one by its path. A program
        of the system is another one on every machine.
        """
        command = command_of(spec)
        base = target.folder if isinstance(target, Declared) else None
        options = self._options
        folders = Folders(command, base=base, read=options.read, write=options.write)
        program = command.program
        if "/" in program and not program.startswith("/") and base is not None:
            program = os.path.normpath(Path(base, program))
        own = program if is_script(program) else None
        script = script_of(command.template, folders.default)
        return files_digest(*(file for file in (own, script) if file is not None))

    async def close(self) -> None:
        await self._own.close()

    def _program(self, spec: ToolSpec, name: str, base: str | None) -> str:
        """The file behind a name, which is looked up in fixed folders and never in the caller's."""
        if "/" in name and not name.startswith("/"):
            if base is None:
                raise InvalidSpec(f"{spec.name!r}: name the program {name!r} by its whole path")
            name = os.path.normpath(Path(base, name))
        if name not in self._options.programs:
            raise ConfigError(
                f"{spec.name!r} runs {name!r}, which is not allowed here: add {name!r} to "
                "'programs' in [backends.shell] of toolpost.toml, or in Python to "
                f'settings={{"shell": {{"programs": ["{name}"]}}}}; what it may change goes into '
                "'write' there, a list of folders"
            )
        found = shutil.which(name, path=os.pathsep.join(self._options.path))
        if found is None and "/" in name and Path(name).is_file():
            raise MissingPart(f"{spec.name!r}: {name} may not be executed: chmod +x {name}")
        if found is None:
            looked = "" if "/" in name else f" (looked in {', '.join(self._options.path)})"
            raise MissingPart(f"{spec.name!r}: there is no program {name!r}{looked}")
        return found


class ShellHandle:
    """One program, ready: ``about`` says which, ``plan`` what a call would start."""

    def __init__(
        self,
        command: Command,
        *,
        isolation: Isolation,
        program: str,
        folders: Folders,
        variables: Variables,
        starter: Starter,
    ) -> None:
        self._command = command
        self._program = program
        self._folders = folders
        self._variables = variables
        self._starter = starter
        self._isolation = isolation

    @property
    def about(self) -> Mapping[str, Any]:
        return {"isolation": self._isolation, "program": self._program, **self._starter.about}

    def code(self, call: Call) -> str | None:
        """Of the program's file and, where that is an interpreter, of the script it is given."""
        return self._code_in(self._folders.working_dir(call))

    def _code_in(self, place: str | None) -> str | None:
        return files_digest(self._program, script_of(self._command.template, place))

    async def run(self, call: Call) -> Any:
        argv, stdin = self._argv(call), self._stdin(call)
        place, environment = self._folders.working_dir(call), self._variables()
        if call.code is not None and self._code_in(place) != call.code:
            raise Conflict(
                f"The code of {call.tool} has changed since the call was approved, and was not "
                "run. Ask again, without a grant.",
                remedy="ask_approval",
                effects="none",
            )
        with _readable(stdin) as fd, _telling(call) as tell:
            heard = Heard(most=call.spec.limits.output, tell=tell)
            wanted = Start(
                argv=argv,
                working_dir=place,
                environment=environment,
                stdin=fd,
                on_stdout=heard.on_stdout,
                on_stderr=heard.on_stderr,
            )
            try:
                child = await self._starter.start(wanted)
                ending = await heard.out(child)
            except OSError as exc:
                if place is not None and exc.filename == place:
                    raise self._folders.closed(place, exc) from exc
                raise not_started(exc, self._program) from exc
            ending = await self._starter.ended(child, ending)
            if call.code is not None and self._code_in(place) != call.code:
                call.warn(f"The code of {call.tool} was changed while it ran.")
            return output_of(self._command, heard, ending, call=call)

    def plan(self, call: Call) -> Mapping[str, Any]:
        stdin = self._stdin(call)
        plan = {
            "argv": self._argv(call),
            "working_dir": self._folders.working_dir(call),
            "environment": self._variables.names,
        }
        return plan if stdin is None else {**plan, "stdin": shortened(stdin, _MOST_SHOWN)}

    async def health(self) -> Health:
        if not os.access(self._program, os.X_OK):
            return Health(False, f"{self._program} cannot be run any more")
        if (named := _missing_interpreter(Path(self._program))) is not None:
            return Health(False, f"{self._program} is to be run by {named}, which does not exist")
        if (path := self._folders.missing()) is not None:
            return Health(False, f"{path}, which the tool may use, does not exist")
        problem = self._variables.problem() or await self._starter.problem()
        return Health(problem is None, problem)

    async def close(self) -> None: ...

    def _argv(self, call: Call) -> list[str]:
        return [self._program, *argv_from(self._command.template[1:], call.arguments)]

    def _stdin(self, call: Call) -> str | None:
        word = self._command.stdin
        return None if word is None else text_from(word, call.arguments)


def _missing_interpreter(program: Path) -> str | None:
    """What the first line of a script names, if it is not there."""
    with contextlib.suppress(OSError), program.open("rb") as file:  # not everybody may read it
        first, _, _ = file.read(256).partition(b"\n")
        words = first.removeprefix(b"#!").split()
        if first.startswith(b"#!") and words and not Path(os.fsdecode(words[0])).exists():
            return os.fsdecode(words[0])
    return None


@contextlib.contextmanager
def _telling(call: Call) -> Iterator[Callable[[Stream, bytes], None] | None]:
    """Who is told what it writes, if anybody wants to know; nobody is once the call is over."""
    if call.on_progress is None:
        yield None
        return
    telling = Telling(call)
    try:
        yield lambda stream, data: telling.hear(data, is_output=stream == "stdout")
    finally:
        telling.close()


@contextlib.contextmanager
def _readable(text: str | None) -> Iterator[int | None]:
    """A descriptor with the text behind it: a file in memory, which nobody has to go on feeding."""
    if text is None:
        yield None
        return
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(text.encode())
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)  # or it could be filled with anything
        yield fd
    finally:
        os.close(fd)
