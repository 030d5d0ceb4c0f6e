"""``toolpost import mcp``: ask a server once what it offers, and write that down.

Above: ``importing.py``. Below: the backend ``mcp``, confined as ever, and ``bringing.py``. The
server is started with what is granted here, and the config remembers it so.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from toolpost.backends.mcp.backend import McpBackend
from toolpost.backends.mcp.launching import SYSTEM
from toolpost.backends.mcp.settings import McpOptions
from toolpost.backends.mcp.tools import Listing, Offered, specs_of
from toolpost.cli.bringing import Brought, bring_in
from toolpost.cli.opening import run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import counted, err, out, print_json, safe
from toolpost.config import Config, find
from toolpost.contracts import Home, Services
from toolpost.environ import remembered, secret, variables
from toolpost.errors import CallError, SourceError
from toolpost.options import options_from
from toolpost.parts import sandbox_of
from toolpost.plugins import SharedSandbox

F = TypeVar("F", bound=Callable[..., Any])
_GENERIC: Final = re.compile(r"(?:^|[-_])(?:mcp|server|index|main|dist)(?=[-_.]|$)|\.\w+$")


def grants(command: F) -> F:
    """The options that say what a server is sent, and what its program may see and do."""
    options = (
        click.option("--bearer", metavar="SECRET", help="For a URL: the secret to send."),
        click.option("--read", multiple=True, metavar="PATH", help="What the server may read."),
        click.option("--write", multiple=True, metavar="PATH", help="What it may read and write."),
        click.option(
            "--egress", multiple=True, metavar="HOST:PORT", help="Where it may connect to."
        ),
        click.option("--path", multiple=True, metavar="DIR", help="More folders of programs."),
        click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable that it gets."),
        click.option(
            "--secret", multiple=True, metavar="NAME", help="A secret that it gets, as NAME."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("mcp")
@click.option("--name", help="What the config calls the server; else made from the program's name.")
@click.option("--file", help="The spec file to write; else NAME.json beside the config.")
@click.option("--url", help="A server that speaks streamable HTTP, in the place of a command.")
@grants
@click.option("--prefix", help="What the tools' names begin with; else the server's name.")
@click.option("--replace", is_flag=True, help="Write over the spec file.")
@json_option
@click.argument("words", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED)
@pass_asked
def command(
    asked: Asked,
    /,
    *,
    name: str | None,
    file: str | None,
    replace: bool,
    as_json: bool,
    **given: Any,  # what describes the server, by the names of its options
) -> None:
    """Make a spec file of an MCP server's tools, and pin them.

    COMMAND is the server's program with its words, behind a --. It is started in a sandbox, with
    the grants of these options and no others. Without COMMAND and --url it is the server NAME of
    the config that is asked again.
    """
    config = find(asked.config)
    known = config.settings.backends.get("mcp", {}).get("servers", {})
    about = described(config.base, **given)
    if about and name is None:
        name = name_of(given["words"], given["url"])
    if name is None:
        raise click.UsageError("Say how the server is started: toolpost import mcp -- COMMAND…")
    if about and known.get(name) not in (None, about):
        raise click.UsageError(f"The config has another server {name!r}: choose a --name.")
    if not about and name not in known:
        raise click.UsageError(f"The config has no server {name!r}: say how it is started.")
    target = Path(file or config.base / f"{name}.json").resolve()
    offered, brought = run(
        asked,
        _imported(asked, config, name, known.get(name) or about, file=target, replace=replace),
    )
    if as_json:
        print_json(_data(name, offered, brought))
    else:
        _print(name, offered, brought)


async def _imported(
    asked: Asked, config: Config, name: str, about: dict[str, Any], *, file: Path, replace: bool
) -> tuple[Offered, Brought]:
    with Bar(f"asking {name}", asked=asked):
        offered = await _asked(config, name, about)
    if not offered.specs:
        raise SourceError(f"the MCP server {name!r} offers no tool that can be used")
    known = config.settings.backends.get("mcp", {}).get("servers", {})
    tables = {} if name in known else {f"backends.mcp.servers.{name}": about}
    return offered, await bring_in(config, offered.specs, file=file, replace=replace, tables=tables)


async def _asked(config: Config, name: str, about: dict[str, Any]) -> Offered:
    async with reached(config, name, about) as backend:
        listing = await listed(backend, name)
        return specs_of([(name, backend.server(name).options, listing)])


@asynccontextmanager
async def reached(config: Config, name: str, about: dict[str, Any]) -> AsyncIterator[McpBackend]:
    """One server, with nothing else of the config around it."""
    settings = {"mcp": {"servers": {name: about}}}
    sandbox = sandbox_of(config)
    provide: Mapping[type, object] = {SharedSandbox: sandbox, Home: Home(config.base)}
    backend = McpBackend(Services(provide, remembered(secret), settings))
    try:
        yield backend
    finally:
        await backend.close()
        await sandbox.close()


async def listed(backend: McpBackend, name: str) -> Listing:
    """What the server offers, as it says it."""
    server = backend.server(name)
    try:
        return await server.list()
    except CallError as fault:
        raise SourceError(f"the MCP server {name!r}: {server.problem or fault}") from fault


def described(
    base: Path, *, words: tuple[str, ...], url: str | None, prefix: str | None, **given: Any
) -> dict[str, Any]:
    """The server as a table of the config; nothing if it was not described."""
    if words and url:
        raise click.UsageError("A server has a COMMAND or a --url.")
    if words and words[0].startswith(("http://", "https://")):
        raise click.UsageError("A URL is no COMMAND: say --url URL.")
    about: dict[str, Any] = {}
    if words:
        about["command"] = [_program(words[0], base, given["path"]), *words[1:]]
    elif url:
        about["url"] = url
    for grant in ("read", "write", "path"):
        about[grant] = [_from_base(base, one) for one in given[grant]]
    about["egress"] = list(given["egress"])
    about["environment"] = dict(_pair(one) for one in given["env"])
    about["secrets"] = {one: one for one in given["secret"]}
    about["bearer"], about["prefix"] = given["bearer"], prefix
    said = {key: value for key, value in about.items() if value not in (None, [], {})}
    if said and not (words or url):
        raise click.UsageError("Grants go with a COMMAND, behind a --.")
    if said:
        options_from({"servers": {"server": said}}, McpOptions, "toolpost import mcp")
    return said


def _program(first: str, base: Path, path: Sequence[str]) -> str:
    """As the config is to have it: what only this shell finds is named by its whole path."""
    if "/" in first:
        return _from_base(base, first)
    if shutil.which(first, path=os.pathsep.join((*path, *SYSTEM))):
        return first
    found = shutil.which(first, path=variables("PATH").get("PATH"))
    return first if found is None else _from_base(base, found)


def _from_base(base: Path, path: str) -> str:
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    return f"./{whole.relative_to(base)}" if whole.is_relative_to(base) else str(whole)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--env {text}: write NAME=VALUE")
    return name, value


def name_of(words: Sequence[str], url: str | None) -> str:
    """A short name: ``mcp-server-git`` is git."""
    if url is not None:
        stem = (urlsplit(url).hostname or "server").removeprefix("www.").partition(".")[0]
    else:
        files = [Path(word).name for word in words if not word.startswith("-")]
        stem = files[0]
        if stem.startswith(("python", "node")) and len(files) > 1:
            stem = files[1]
    stem = _GENERIC.sub("", stem)
    return re.sub(r"[^A-Za-z0-9]+", "_", stem).strip("_").lower() or "server"


def _print(name: str, offered: Offered, brought: Brought) -> None:
    out(safe(f"{counted(len(offered.specs), 'tool')} of {name} in {brought.file.name}"))
    out(safe(f"{counted(len(brought.pinned), 'tool')} pinned in {brought.lock.name}"))
    if brought.added:
        out(safe(f"added to {brought.config.name}:\n{brought.added.strip()}"))
    for (_, tool), why in offered.left_out.items():
        err(safe(f"left out: {tool}: {why}"))
    if brought.quarantined:
        names = ", ".join(brought.quarantined)
        err(safe(f"not as pinned, and quarantined: {names}. Look at it with: toolpost lock"))


def _data(name: str, offered: Offered, brought: Brought) -> dict[str, Any]:
    return {
        "server": name,
        "file": str(brought.file),
        "tools": [spec.name for spec in offered.specs],
        "left_out": [{"tool": t, "why": why} for (_, t), why in offered.left_out.items()],
        "config": {"file": str(brought.config), "added": brought.added},
        "lock": str(brought.lock),
        "pinned": list(brought.pinned),
        "quarantined": list(brought.quarantined),
    }
