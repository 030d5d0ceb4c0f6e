"""``toolpost call``: one call, its progress while it runs, its output for people or programs.

Above: ``main.py``. Below: ``opening.py`` opens the tools, ``arguments.py`` reads the words,
``failing.py`` tells what went wrong, ``saving.py`` writes parts to files. Ctrl-C cancels the call:
the tool is stopped before the program ends.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from toolpost.call import Progress
from toolpost.cli.arguments import from_words
from toolpost.cli.completing import parameter_names, tool_names
from toolpost.cli.failing import fail
from toolpost.cli.opening import opened, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.saving import described, saved
from toolpost.cli.terminal import err, json_text, out, print_json, safe, say
from toolpost.document import MAX_BYTES
from toolpost.errors import Cancelled
from toolpost.result import Part, Resource, Result, Text, failure
from toolpost.runtime import Runtime


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
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after so many seconds, even if the tool may take longer.",
)
@click.option("--session", metavar="ID", help="The session that the call belongs to.")
@click.option(
    "--key",
    help="An idempotency key: where the guard once is in force, the same call with it runs once.",
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
    try:
        result, problems = run(asked, _called(asked, wanted))
    except KeyboardInterrupt:
        gone = Cancelled("The call was cancelled.")
        result = Result(error=failure(gone, tool=name, call_id="", effects="once"))
        problems = {}
    for problem, part in {problem: part for part, problem in problems.items()}.items():
        err(safe(f"warning: {part}: {problem}"))
    if result.error is not None:
        fail(result.error, tool=name, as_json=as_json, result=result)
    files = saved(result.parts, save, name) if save is not None else {}
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result, files)


def _standard_input() -> str:
    if sys.stdin.isatty():
        err("Type a JSON object, then Ctrl-D.")
    return sys.stdin.read(MAX_BYTES + 1)  # one more than can be arguments, and it is refused


async def _called(asked: Asked, wanted: Wanted) -> tuple[Result, Mapping[str, str]]:
    """The result, and what is wrong here as known when everything is closed: the last records of
    the audit are written then.
    """
    async with opened(asked) as runtime:
        await runtime.open_sandbox(wanted.name)
        if runtime.lowered is not None:
            say(f"warning: {runtime.lowered}")
        spec = runtime.registry.get(wanted.name)
        schema = {} if spec is None else spec.input_schema
        arguments = from_words(wanted.words, schema, file=wanted.args_file, stdin=wanted.stdin)
        with Bar(wanted.name, asked=asked) as bar:
            result = await _watched(runtime, wanted, arguments, bar)
    return result, runtime.problems


async def _watched(runtime: Runtime, wanted: Wanted, arguments: dict[str, Any], bar: Bar) -> Result:
    pieces = _Pieces(bar)
    try:
        return await runtime.execute(
            wanted.name,
            arguments,
            session_id=wanted.session,
            timeout=wanted.timeout,
            working_dir=str(Path.cwd()),
            dry_run=wanted.dry_run,
            key=wanted.key,
            on_progress=pieces.hear,
        )
    finally:
        pieces.end()


class _Pieces:
    """What a running tool reports: progress to the bar, pieces of output as they come."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._open = False

    def hear(self, report: Progress) -> None:
        if report.partial is None:
            self._bar.tell(report.done, report.total, report.message)
            return
        self._bar.stop()  # a line in the making and a bar cannot share a terminal
        piece = report.partial
        text = piece if isinstance(piece, str) else f"{json_text(piece)}\n"
        sys.stderr.write(safe(text))
        sys.stderr.flush()
        self._open = not text.endswith("\n")

    def end(self) -> None:
        if self._open:
            err("")


def _print(result: Result, files: dict[int, Path]) -> None:
    for warning in result.metadata.warnings:
        say(safe(f"warning: {warning}"))
    if result.metadata.plan is not None:
        err("This was a dry run. What would have been done:")
        print_json(result.metadata.plan)
        return
    if isinstance(result.output, str):
        out(safe(result.output))
    elif result.output is not None or not result.parts:
        print_json(result.output)
    for index, part in enumerate(result.parts):
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
