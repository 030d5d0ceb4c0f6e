"""``system_command`` and ``system_command_change``: a program, its words, and what it said.

Above: ``toolpost.builtin``. Below: ``reading.py`` for what may be said, ``running.py`` for the run.
They are two tools, for they are two risks: a policy, an approval and the audit see which it was
without having to understand a command line. What a program may be told is decided here before
anything is started; what it can reach is the sandbox's business, whatever it was told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import msgspec
from annotated_types import MaxLen, MinLen

from toolpost import Call, Health, Injected, Limits, Tool
from toolpost.builtin.commands.reading import ready, refused, sub_commands
from toolpost.builtin.commands.rules import Program, leads_somewhere
from toolpost.builtin.commands.running import Ran, ran
from toolpost.builtin.commands.settings import Settings, chosen
from toolpost.contracts import Registered
from toolpost.errors import CallError, InvalidArguments, SetupError, Unavailable
from toolpost.net.destination import Refused, is_public, literal_from
from toolpost.net.url import url_from
from toolpost.plugins import SharedSandbox
from toolpost.registry import Entry
from toolpost.sandbox import Confinement
from toolpost.sandbox.confinement import within
from toolpost.sandbox.view import system
from toolpost.spec import ToolSpec
from toolpost.wording import short

_LIMITS: Final = Limits(memory=200_000_000, processes=20, output=8_000_000)
_ENVIRONMENT: Final = {"GOMAXPROCS": "2", "LANG": "C.UTF-8", "TERM": "dumb", "PAGER": "cat"}
_READS, _CHANGES = "system_command", "system_command_change"

Name = Annotated[str, MinLen(1), MaxLen(64), "The program."]
Words = Annotated[
    list[Annotated[str, MaxLen(4000)]],
    MaxLen(60),
    'Its arguments, one word each: ["get", "pods", "-n", "web"]. No shell reads them.',
]
Folder = Annotated[
    str | None, MaxLen(4000), "The folder to work in; one of those that programs may see."
]


class Ended(TypedDict):
    """How a program ended and what it wrote; ``truncated``: it wrote more, and was ended."""

    command: list[str]
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool


class Commands:
    """The programs that the config names, and how they are run."""

    def __init__(self, settings: Settings, base: Path, *, changes: bool) -> None:
        self._settings, self._changes = settings, changes
        self._programs = {
            name: program
            for name, program in chosen(settings).items()
            if sub_commands(program, changes=changes)
        }
        self._folders = tuple(os.path.normpath(base / one) for one in settings.read)
        self._hosts = frozenset(one.rpartition(":")[0].strip("[]") for one in settings.egress)
        self._own = SharedSandbox()
        self._shared = self._own

    @property
    def names(self) -> list[str]:
        return list(self._programs)

    @property
    def about(self) -> Mapping[str, Any]:
        return {"isolation": "sandbox", **self._shared.about}

    def described(self) -> str:
        """What can be called, for a model to read."""
        return "\n".join(self._line(name, one) for name, one in self._programs.items())

    def refuse(self, arguments: Mapping[str, Any]) -> None:
        """Raise what ``run`` would, as far as it can be known before anything is started."""
        command = arguments["command"]
        program = self._programs[command]
        self._words(command, program, arguments.get("args", ()))
        self._place(arguments.get("directory"))
        self._found(command, program)

    async def run(self, call: Call, command: str, args: Sequence[str], folder: str | None) -> Ran:
        """Run it; ``InvalidArguments`` says what would be allowed."""
        program = self._programs[command]
        words = self._words(command, program, args)
        confinement = self._confinement(program, call.spec, self._place(folder))
        where = self._found(command, program)
        if not any(within(where, tree) for tree in system()):
            read = (*confinement.read, where)
            confinement = msgspec.structs.replace(confinement, read=read)
        try:
            sandbox = await self._shared()
            done = await ran(
                sandbox,
                [where, *words],
                confinement,
                most=self._settings.max_bytes,
                begun=lambda: call.progress(message=f"{command} is running"),
            )
        except SetupError as missing:
            raise _unavailable(missing.message) from missing
        except OSError as fault:
            raise _unavailable(f"{command} could not be started: {fault.strerror}") from fault
        if done.truncated:
            call.warn(f"{command} wrote too much and was ended: this is the beginning of it.")
        return done

    def _words(self, command: str, program: Program, args: Sequence[str]) -> tuple[str, ...]:
        for word in args:
            if not _is_word(word):
                raise refused(f"{short(word)!r} has characters in it that no word has")
        made = ready(command, program, args, self._check)
        if made.changes and not self._changes:
            raise refused(f"this {command} changes something: use {_CHANGES}, if it is there")
        if self._changes and not made.changes:
            raise refused(f"this {command} only reads: use {_READS}")
        return made.words

    def use(self, sandbox: SharedSandbox | None) -> None:
        if sandbox is not None:
            self._shared = sandbox

    async def health(self, spec: ToolSpec) -> Health:
        """Whether each program is here, and can be confined."""
        problems = []
        try:
            sandbox = await self._shared()
            for name, program in self._programs.items():
                try:
                    self._found(name, program)
                    sandbox.check(self._confinement(program, spec, None))
                except CallError as missing:
                    problems.append(missing.message)
        except SetupError as missing:
            problems.append(missing.message)
        return Health(not problems, " ".join(problems) or None)

    async def close(self) -> None:
        await self._own.close()

    def _found(self, name: str, program: Program) -> str:
        path = os.pathsep.join(self._settings.path)
        found = shutil.which(program.path or name, path=path)
        if found is None:
            looked = program.path or ", ".join(self._settings.path)
            raise _unavailable(
                f"The program {name!r} is not on this machine (looked in {looked}): install it, or "
                "take it out of `programs`."
            )
        return found

    def _place(self, folder: str | None) -> str | None:
        if folder is None:
            return self._folders[0] if self._folders else None
        start = self._folders[0] if self._folders else "/"
        path = os.path.normpath(Path(start, folder)) if _is_word(folder) else ""
        if not any(within(path, one) for one in self._folders) or not Path(path).is_dir():
            there = ", ".join(self._folders) or "none: name some in `read`"
            said = (
                f"/directory: {short(folder)!r} is no folder that programs see. They see {there}."
            )
            raise InvalidArguments(said, effects="none")
        return path

    def _confinement(self, program: Program, spec: ToolSpec, place: str | None) -> Confinement:
        more = tuple(one for one in program.read if Path(one).exists())
        return Confinement(
            read=tuple(dict.fromkeys((*self._folders, *more))),
            egress=self._settings.egress if program.network else (),
            host=program.host,
            memory=spec.limits.memory,
            processes=spec.limits.processes,
            tier=spec.tier,
            environment={
                **_ENVIRONMENT,
                "PATH": os.pathsep.join(self._settings.path),
                **program.environment,
                **self._settings.environment,
            },
            working_dir=place,
        )

    def _check(self, kind: str, value: str) -> str | None:
        """Where it goes is in the settings."""
        if not leads_somewhere(kind):
            return None
        try:
            host = url_from(value).host if kind == "url" else value.removeprefix("@")
            host = host.strip("[]").lower().rstrip(".")
            literal = literal_from(host)
        except Refused as fault:
            return f"cannot be used ({fault})"
        if host in self._hosts:
            return None
        public = not f".{host}".endswith(".localhost") and (literal is None or is_public(literal))
        if "*" in self._settings.egress and public:
            return None
        there = ", ".join(self._settings.egress) or "nothing"
        return f"has to lead to what `egress` of the settings names, which is {there}"

    def _line(self, name: str, program: Program) -> str:
        words = [one for one in sub_commands(program, changes=self._changes) if one]
        told = f" ({', '.join(words)})" if words else ""
        return f"- {name}{told}: {program.about}" if program.about else f"- {name}{told}"


def _unavailable(said: str) -> Unavailable:
    return Unavailable(said, retryable=False, remedy="other_tool", effects="none")


def _is_word(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # half of a pair, which is no character
        return False


class SystemCommand(
    Tool,
    name=_READS,
    title="Run a command that reads",
    category="system",
    tags=("command", "troubleshooting"),
    tier=1,
    effects="read",
    timeout=30,
    limits=_LIMITS,
    labels={"external": "true"},
):
    """Run a program of this machine that only looks, and get what it prints and its exit code.

    Only the programs below can be run, with the options that they are allowed: what is refused
    says what would do. There is no shell: no pipes, no wildcards, no variables.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    @property
    def about(self) -> Mapping[str, Any]:
        return self._commands.about

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Nobody is asked about a command that would be refused."""
        self._commands.refuse(arguments)
        return ()

    async def run(
        self,
        command: Name,
        args: Words = [],  # noqa: B006 - read only, and part of the schema
        directory: Folder = None,
        *,
        call: Call,
        sandbox: Injected[SharedSandbox | None] = None,
    ) -> Ended:
        self._commands.use(sandbox)
        return _told(command, args, await self._commands.run(call, command, args, directory))

    async def health(self, *, sandbox: Injected[SharedSandbox | None] = None) -> Health:
        self._commands.use(sandbox)
        return await self._commands.health(self.spec)

    async def close(self) -> None:
        await self._commands.close()


class SystemCommandChange(
    SystemCommand,
    name=_CHANGES,
    title="Run a command that changes something",
    category="system",
    tags=("command",),
    tier=3,
    effects="once",
    timeout=30,
    requires_approval=True,
    limits=_LIMITS,
    labels={"external": "true"},
):
    """Run a program of this machine that changes something, once a person has agreed to it.

    Only the programs below can be run, with the options that they are allowed: what is refused
    says what would do. There is no shell. To look at things, use system_command.
    """


def tools(settings: Settings, base: Path) -> Iterable[Registered]:
    reads, changes = (Commands(settings, base, changes=one) for one in (False, True))
    if reads.names:
        yield _entry(SystemCommand(reads), reads, settings)
    if changes.names:
        yield _entry(SystemCommandChange(changes), changes, settings)


def _entry(
    tool: SystemCommand | SystemCommandChange, commands: Commands, settings: Settings
) -> Entry:
    """The tool, and a spec that tells which programs there are and where they go."""
    spec = tool.spec
    schema = spec.input_schema
    properties = schema["properties"]
    command = {**properties["command"], "enum": commands.names}
    examples = tuple(one for one in _EXAMPLES[spec.name] if one["command"] in commands.names)
    made: ToolSpec = msgspec.structs.replace(
        spec,
        description=f"{spec.description}\n\n{commands.described()}",
        input_schema={**schema, "properties": {**properties, "command": command}},
        egress=settings.egress,
        examples=examples,
    )
    return Entry(made, tool)


_EXAMPLES: Final[Mapping[str, Sequence[dict[str, Any]]]] = {
    _READS: (
        {"command": "df", "args": ["-h"]},
        {"command": "ps", "args": ["aux", "--sort=-%mem"]},
        {"command": "kubectl", "args": ["get", "pods", "-n", "web", "-o", "wide"]},
        {"command": "git", "args": ["log", "--oneline", "-n", "5"]},
    ),
    _CHANGES: (
        {"command": "kubectl", "args": ["rollout", "restart", "deployment/web", "-n", "web"]},
        {"command": "curl", "args": ["-X", "POST", "-d", "{}", "https://api.example.com/jobs"]},
    ),
}


def _told(command: str, args: Sequence[str], done: Ran) -> Ended:
    return {
        "command": [command, *args],
        "exit_code": done.exit_code,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "truncated": done.truncated,
    }
