"""``toolpost mcp``: the tools of a config, for an MCP client that starts this program.

Above: ``main.py``. Below: the runtime, and the gateway's MCP server, which speaks on standard input
and output. It ends when the client closes its end, and at SIGTERM, both in good order.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, Final

import click
import msgspec

from toolpost.cli.opening import run, warnings
from toolpost.cli.options import Asked, pass_asked
from toolpost.cli.terminal import err, safe, say
from toolpost.config import find
from toolpost.contracts import Elicits
from toolpost.errors import MissingPart
from toolpost.gateway.mcp.asking import ask
from toolpost.gateway.settings import settings_of
from toolpost.runtime import Runtime

_ON_A_TERMINAL: Final = (
    "This speaks MCP on standard input and output: an MCP client starts it, with the command "
    "`toolpost --config /path/to/toolpost.toml mcp`. It now waits for JSON-RPC messages; Ctrl-D "
    "ends it. To call a tool from here, use `toolpost call`; to serve MCP over HTTP, `toolpost "
    "serve`."
)


@click.command("mcp")
@click.option(
    "--approve",
    is_flag=True,
    help="A yes in the client's own dialog approves a call. Only where a person answers there.",
)
@pass_asked
def command(asked: Asked, *, approve: bool) -> None:
    """Serve the tools to an MCP client, on standard input and output.

    Name this as the command in the client's settings, with the config: toolpost --config
    /path/to/toolpost.toml mcp
    """
    if sys.stdin.isatty():
        say(_ON_A_TERMINAL)
    run(asked, _served(asked, approve=approve))


async def _served(asked: Asked, *, approve: bool) -> None:
    try:
        stdio = import_module("toolpost.gateway.mcp.stdio")  # it takes a second
    except ModuleNotFoundError as exc:
        raise MissingPart(
            f'an MCP server needs {exc.name!r}. Install it with: pip install "toolpost[server]"'
        ) from exc
    config = find(asked.config)
    settings = settings_of(config).mcp
    settings = msgspec.structs.replace(settings, approve=approve or settings.approve)

    async def serve() -> None:
        async with Runtime(config, provide={Elicits: ask}) as runtime:
            for part, problem in warnings(runtime).items():
                err(safe(f"warning: {part}: {problem}"))
            await stdio.serve_stdio(runtime, settings=settings)

    await _until_told(serve())


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end, or until SIGTERM has cancelled it: that is how a client ends a server."""
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
