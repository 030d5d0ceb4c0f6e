"""``toolpost``, the command line: one group, each command in a file of its own.

A command's file is imported when the command is named, so that ``toolpost --help`` costs little
more than click itself. Whatever a command raises ends here: people see what is wrong and what to
do, never a traceback unless they ask for one with ``--debug``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from errno import ENOSPC
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, Final, NoReturn

import click

from toolpost.cli.options import Asked, only_here
from toolpost.codes import STATUS, setup_exit
from toolpost.environ import variables
from toolpost.errors import CallError, SetupError

PROGRAM: Final = "toolpost"
COMMANDS: Final = {
    "init": "Make a small project that works.",
    "new": "Write a tool that works, and tests of it that pass.",
    "list": "List the tools.",
    "search": "Find a tool by what it does.",
    "show": "Show one tool: its parameters, limits and the road of a call.",
    "call": "Call a tool.",
    "export": "Write the tools in the form of a vendor.",
    "import": "Make a spec file of tools that others describe, and pin them.",
    "push": "Write specs into a table of a database.",
    "serve": "Serve the tools over HTTP: a REST API, and MCP at /mcp.",
    "mcp": "Serve the tools to an MCP client, on standard input and output.",
    "nats": "Set up a NATS bus for gateways and workers.",
    "worker": "Serve the tools of this host on a NATS bus, to gateways on others.",
    "check": "Score tools item by item: the compliance checklist, and a linter.",
    "lock": "Pin the definitions of the tools, and show what has changed.",
    "jobs": "See, watch and stop detached calls.",
    "artifacts": "Read outputs that were too large to be handed over whole.",
    "approvals": "See what waits for a yes, and answer.",
    "policy": "Try, explain and check the rules of the policy.",
    "keys": "Make, list and revoke the API keys of the gateway.",
    "audit": "Read, search, verify and export the audit.",
    "docs": "Write a page about each tool, as Markdown.",
    "parity": "Compare old tools with new ones, call by call.",
    "doctor": "Check that everything here works.",
    "config": "Show every setting in force, its default and where it comes from.",
    "plugins": "List the installed parts: backends, sources, extensions.",
    "completion": "Print the script that completes words in your shell.",
}
"""What the list of commands says; the command itself is ``command`` in ``cli/<name>.py``."""
_REMOTE: Final = frozenset((
    "list", "search", "show", "call", "export", "jobs", "artifacts", "approvals", "audit",
    "completion",
))  # fmt: skip
"""What a gateway can be asked for with ``--url``."""
_FILES: Final = {"import": "importing"}
"""Where the name of a command is no name for a file."""

UNEXPECTED: Final = 70
PIPE_CLOSED: Final = 141
NO_FOLDER: Final = 78
"""As for a config, which is looked for there."""


class LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is wanted."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end the program with 1
            raise click.exceptions.Exit(PIPE_CLOSED) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(
            f"toolpost.cli.{_FILES.get(cmd_name, cmd_name)}"
        ).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and args[0] not in COMMANDS:
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)


def _unknown(word: str) -> str:
    if word.startswith("-"):
        return f"No such option: {word!r}."
    from difflib import get_close_matches  # only a typo pays for it

    close = get_close_matches(word, COMMANDS, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(COMMANDS)}."
    return f"No such command: {word!r}. {hint}"


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {import_module('toolpost').__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="PATH", help="The config file; without it ./toolpost.toml.")
@click.option("--url", metavar="URL", help="The tools of the gateway there, not those of a config.")
@click.option(
    "--api-key",
    metavar="KEY",
    help="The key or token for --url. Others here can read it: TOOLPOST_API_KEY is better.",
)
@click.option("--no-color", is_flag=True, help="No colours; as NO_COLOR in the environment.")
@click.option("--debug", is_flag=True, help="Show the log, and tracebacks of failures.")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version.",
)
@click.pass_context
def cli(
    ctx: click.Context,
    *,
    config: str | None,
    url: str | None,
    api_key: str | None,
    no_color: bool,
    debug: bool,
) -> None:
    """Tools for AI agents: described once, governed everywhere, stoppable.

    Begin with `toolpost init`. Each command explains itself with --help.
    """
    color = not (no_color or variables("NO_COLOR").get("NO_COLOR"))
    ctx.color = None if color else False
    if url is not None:
        _demand_remote(ctx.invoked_subcommand, config)
    elif api_key is not None:
        raise click.UsageError("--api-key goes with --url.")
    ctx.obj = Asked(config=config, color=color, debug=debug, url=url, api_key=api_key)


def _demand_remote(command: str | None, config: str | None) -> None:
    if config is not None:
        raise click.UsageError("--url and --config name two different places: give one.")
    if command is not None and command not in _REMOTE:
        raise only_here(f"{PROGRAM} {command}")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The program: ends with the exit code of what was asked."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character the terminal lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    code = status(sys.argv[1:] if args is None else list(args))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is said: who presses it again just ends
    sys.exit(code)


def _open_streams() -> None:
    """A stream that the shell has closed (``>&-``) leads nowhere: else the next file that is opened
    would stand in its place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
            setattr(sys, name, nowhere)


def status(words: list[str]) -> int:
    """Do what the words say; whatever happens, an exit code comes back."""
    try:
        code = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        return _say("cancelled", STATUS["CANCELLED"].exit)
    except click.ClickException as fault:
        shown = StringIO()
        _misplaced(fault).show(shown)
        return _say(shown.getvalue(), fault.exit_code)
    except BrokenPipeError:  # the reader has gone, as `| head` does
        from toolpost.cli.terminal import drop  # as in _say

        drop(sys.stdout)
        return PIPE_CLOSED
    except Exception as exc:  # noqa: BLE001 - the end of the line: the user gets a sentence, not a traceback
        return _explain(exc, words)
    return code if isinstance(code, int) else 0


def _misplaced(fault: click.ClickException) -> click.ClickException:
    """The same, but for an option of ours behind the command it says where that goes."""
    ours = {name for param in cli.params for name in param.opts}
    if isinstance(fault, click.NoSuchOption) and fault.option_name in ours:
        return click.UsageError(f"{fault.option_name} goes before the command.", fault.ctx)
    return fault


def _hint(exc: CallError, words: Sequence[str]) -> str:
    """How a key is given, for who has to."""
    far = any(word.partition("=")[0] == "--url" for word in words)
    if not far or exc.code != "UNAUTHORIZED" or exc.remedy != "reauth":
        return ""
    from toolpost.cli.failing import WITH_A_KEY  # as in _say

    return f"\nhint: {WITH_A_KEY}"


def _explain(exc: Exception, words: Sequence[str]) -> int:
    from toolpost.cli.terminal import drop, err, safe  # as in _say

    debug = "--debug" in words
    if debug:
        from traceback import format_exception  # only a failure pays for it

        err(safe("".join(format_exception(exc))))
    if isinstance(exc, CallError) and isinstance(exc.__cause__, SetupError):
        exc = exc.__cause__  # a person may read what a model need not know
    if isinstance(exc, CallError):
        return _say(f"error: {exc.code}: {exc}{_hint(exc, words)}", STATUS[exc.code].exit)
    if isinstance(exc, SetupError):
        return _say(f"error: {exc}", setup_exit(exc))
    if isinstance(exc, FileNotFoundError) and _is_nowhere():
        return _say("error: the current folder has been deleted: go to another one", NO_FOLDER)
    if isinstance(exc, OSError) and exc.filename is not None:
        return _say(f"error: {exc.filename}: {exc.strerror}", 1)
    if isinstance(exc, OSError) and exc.errno == ENOSPC:
        drop(sys.stdout)
        return _say("error: the output cannot be written: no space is left", 1)
    sorry = f"Sorry, this is a fault in {PROGRAM} ({type(exc).__name__})."
    hint = "" if debug else f" See the traceback with: {PROGRAM} --debug …"
    return _say(sorry + hint, UNEXPECTED)


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is the same with more around it
    except FileNotFoundError:
        return True
    return False


def _say(text: str, code: int) -> int:
    from toolpost.cli.terminal import safe, say  # only a failure pays for it

    say(safe(text))
    return code


if __name__ == "__main__":
    main()
