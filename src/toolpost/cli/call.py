"""``toolpost call``: one call, its progress while it runs, its output for people or programs.

Above: ``main.py``. Below: ``opening.py`` opens the tools, ``arguments.py`` reads the words,
``failing.py`` tells what went wrong, ``saving.py`` writes parts to files. Ctrl-C cancels the call:
the tool is stopped before the program ends.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from toolpost.call import OWNER, Progress
from toolpost.cli import typed
from toolpost.cli.arguments import from_words
from toolpost.cli.completing import parameter_names, tool_names
from toolpost.cli.detached import see_to
from toolpost.cli.failing import fail
from toolpost.cli.opening import opened, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.remote import connected, spec_of
from toolpost.cli.saving import described, saved
from toolpost.cli.terminal import err, json_text, out, print_json, safe, say
from toolpost.cli.times import Duration
from toolpost.config import find
from toolpost.document import MAX_BYTES
from toolpost.errors import CallError, Cancelled
from toolpost.failure import failure
from toolpost.jobs import Job, Jobs
from toolpost.result import Notice, Part, Resource, Result, Text
from toolpost.spec import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be called, as the words said it."""

    name: str
    words: tuple[str, ...]
    stdin: str
    args_file: Path | None
    dry_run: bool
    timeout: float | None
    session: str | None
    key: str | None


@click.command("call")
@click.argument("name", shell_complete=tool_names)
@click.argument("words", metavar="[ARGUMENTS]...", nargs=-1, shell_complete=parameter_names)
@click.option(
    "--args-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the arguments from a JSON, YAML or TOML file.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be done.")
@click.option(
    "--timeout",
    type=Duration(),
    metavar="DURATION",
    help="Give up after 5 (seconds), 30s or 2m, even if the tool may take longer.",
)
@click.option("--session", metavar="ID", help="The session that the call belongs to.")
@click.option(
    "--key",
    help="An idempotency key: where the guard once is in force, the same call with it runs once.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Do not wait: keep the call as a job, and say its id. See `toolpost jobs`.",
)
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write images, sounds and resources of the result into this folder.",
)
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    name: str,
    words: tuple[str, ...],
    args_file: Path | None,
    dry_run: bool,
    timeout: float | None,
    session: str | None,
    key: str | None,
    detach: bool,
    save: Path | None,
    as_json: bool,
) -> None:
    """Call a tool.

    ARGUMENTS are name=value (read as the tool's schema says), name:=JSON, a JSON object, or - for a
    JSON object from standard input. A name given several times makes an array.

    Ctrl-C stops the tool.
    """
    wanted = Wanted(
        name=name,
        words=words,
        stdin=_standard_input() if "-" in words else "",
        args_file=args_file,
        dry_run=dry_run,
        timeout=timeout,
        session=session,
        key=key,
    )
    if detach:
        _say_job(asked, _detached(asked, wanted, as_json=as_json, save=save), as_json=as_json)
        return
    pieces = _Pieces()
    try:
        result, problems = run(asked, _called(asked, wanted, pieces))
    except KeyboardInterrupt:
        gone = Cancelled("The call was cancelled.")
        result = Result(error=failure(gone, tool=name, call_id="", effects="once"))
        problems = {}
    pieces.print_held(result)
    for problem, part in {problem: part for part, problem in problems.items()}.items():
        err(safe(f"warning: {part}: {problem}"))
    if result.error is not None:
        fail(result.error, tool=name, as_json=as_json, result=result)
    files = saved(result.parts, save, name) if save is not None else {}
    if as_json:
        print_json(result.to_dict())
    else:
        print_result(result, files, seen=pieces.seen)


def _detached(asked: Asked, wanted: Wanted, *, as_json: bool, save: Path | None) -> Job:
    if wanted.dry_run or save is not None:
        raise click.UsageError("--detach does not go with --dry-run or --save.")
    if asked.url is None and find(asked.config).settings.store.get("kind") == "memory":
        raise click.UsageError("The store is in memory: a job would end with this command.")
    try:
        if asked.url is not None:
            return run(asked, _put_down_there(asked, wanted))
        return run(asked, _put_down(asked, wanted))
    except CallError as fault:
        error = failure(fault, tool=wanted.name, call_id="", effects="once")
        fail(error, tool=wanted.name, as_json=as_json)


async def _put_down(asked: Asked, wanted: Wanted) -> Job:
    """The job, in the store, and somebody to run it."""
    async with opened(asked) as runtime:
        await runtime.open_sandbox(wanted.name)
        jobs = Jobs(runtime)
        job = await jobs.submit(
            wanted.name,
            _arguments(runtime.registry.get(wanted.name), wanted),
            caller=OWNER,
            session_id=wanted.session,
            timeout=wanted.timeout,
            working_dir=str(Path.cwd()),
            key=wanted.key,
        )
        await see_to(jobs.board, runtime.config)
        return job


async def _put_down_there(asked: Asked, wanted: Wanted) -> Job:
    async with connected(asked) as client:
        return await client.jobs.submit(
            wanted.name,
            _arguments(await spec_of(client, wanted.name), wanted),
            session_id=wanted.session,
            timeout=wanted.timeout,
            key=wanted.key,
        )


def _say_job(asked: Asked, job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job.to_dict())
    else:
        out(safe(job.id))
        say(f"It is kept, and runs on its own. See it with: {asked.program} jobs watch {job.id}")


def _standard_input() -> str:
    if sys.stdin.isatty():
        err("Type a JSON object, then Ctrl-D.")
        return typed.text(MAX_BYTES)
    return sys.stdin.read(MAX_BYTES + 1)  # one more than can be arguments, and it is refused


async def _called(
    asked: Asked, wanted: Wanted, pieces: _Pieces
) -> tuple[Result, Mapping[str, str]]:
    """The result, and what is wrong here as known when everything is closed: the last records of
    the audit are written then.
    """
    if asked.url is not None:
        return await _called_there(asked, wanted, pieces), {}
    async with opened(asked) as runtime:
        await runtime.open_sandbox(wanted.name)
        if runtime.lowered is not None:
            say(f"warning: {runtime.lowered}")
        arguments = _arguments(runtime.registry.get(wanted.name), wanted)
        execute = partial(runtime.execute, working_dir=str(Path.cwd()))
        with Bar(wanted.name, asked=asked) as pieces.bar:
            result = await _watched(execute, wanted, arguments, pieces)
    return result, runtime.problems


async def _called_there(asked: Asked, wanted: Wanted, pieces: _Pieces) -> Result:
    async with connected(asked) as client:
        try:
            arguments = _arguments(await spec_of(client, wanted.name), wanted)
        except CallError as fault:
            return Result(error=failure(fault, tool=wanted.name, call_id="", effects="read"))
        with Bar(wanted.name, asked=asked) as pieces.bar:
            return await _watched(client.execute, wanted, arguments, pieces)


def _arguments(spec: ToolSpec | None, wanted: Wanted) -> dict[str, Any]:
    schema = {} if spec is None else spec.input_schema
    return from_words(wanted.words, schema, file=wanted.args_file, stdin=wanted.stdin)


async def _watched(
    execute: Callable[..., Awaitable[Result]],
    wanted: Wanted,
    arguments: dict[str, Any],
    pieces: _Pieces,
) -> Result:
    try:
        return await execute(
            wanted.name,
            arguments,
            session_id=wanted.session,
            timeout=wanted.timeout,
            dry_run=wanted.dry_run,
            key=wanted.key,
            on_progress=pieces.hear,
        )
    finally:
        pieces.end()


class _Pieces:
    """What a running tool reports: progress to the bar, pieces of output as they come."""

    bar: Bar

    def __init__(self) -> None:
        self._open = False
        self._is_watched = sys.stderr.isatty()
        self._is_one_screen = self._is_watched and sys.stdout.isatty()
        self._texts: list[str] = []

    @property
    def seen(self) -> str:
        """What whoever sits at the terminal, where the output goes as well, has read already."""
        return "".join(self._texts) if self._is_one_screen else ""

    def print_held(self, result: Result) -> None:
        """Off a terminal pieces are held back until the output is known: most often they are the
        output, which would stand twice in a log.
        """
        held = "" if self._is_watched else "".join(self._texts)
        if held and not _is_same(held, result.output):
            err(safe(held))

    def hear(self, report: Progress) -> None:
        if report.partial is None:
            self.bar.tell(report.done, report.total, report.message)
            return
        piece = report.partial
        text = piece if isinstance(piece, str) else f"{json_text(piece)}\n"
        self._texts.append(text)
        if not self._is_watched:
            return
        self.bar.stop()  # a line in the making and a bar cannot share a terminal
        sys.stderr.write(safe(text))
        sys.stderr.flush()
        self._open = not text.endswith("\n")

    def end(self) -> None:
        if self._open:
            err("")


def _is_same(pieces: str, output: Any) -> bool:
    """Whether the reported pieces are the output: as text, or as the JSON it came from."""
    if isinstance(output, str):
        return pieces.rstrip("\n") == output.rstrip("\n")
    try:
        return bool(msgspec.json.decode(pieces) == output)
    except msgspec.DecodeError:
        return False


def print_result(result: Result, files: dict[int, Path], *, seen: str = "") -> None:
    """For a person, or for a pipe. What was ``seen`` as it came is not shown once more: it would
    look as if it had been done twice.
    """
    for warning in result.metadata.warnings:
        say(safe(f"warning: {warning}"))
    if result.metadata.plan is not None:
        err("This was a dry run. What would have been done:")
        print_json(result.metadata.plan)
        return
    if isinstance(result.output, str):
        if not seen or not _is_same(seen, result.output):
            out(safe(result.output))
    elif result.output is not None or not result.own_parts:
        print_json(result.output)
    for index, part in enumerate(result.parts):
        if not isinstance(part, Notice):  # a warning has said it, on standard error
            out(safe(_part(part, files.get(index))))


def _part(part: Part, file: Path | None) -> str:
    if isinstance(part, Text):
        return part.text
    if file is not None:
        return f"[{described(part)}, written to {file}]"
    if isinstance(part, Resource) and part.text is not None:
        return part.text
    if isinstance(part, Resource) and part.data is None:
        return f"[{described(part)}]"
    return f"[{described(part)}; --save DIR writes it to a file]"
