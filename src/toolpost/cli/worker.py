"""``toolpost worker``: serve tools of this host on the bus, until a signal.

Above: ``main.py``. Below: ``worker`` of the package, imported when it is wanted.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from toolpost.bus.connection import without_password
from toolpost.cli.looping import run, settled
from toolpost.cli.opening import warnings
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import err, out, safe
from toolpost.config import Config, find
from toolpost.errors import SetupError
from toolpost.extensions.log import setup_all
from toolpost.runtime import Runtime
from toolpost.worker import Worker, WorkerSettings, settings_of
from toolpost.worker.settings import serving


@click.command("worker")
@click.option(
    "--tools", multiple=True, type=click.Path(exists=True), help="A spec file; may be repeated."
)
@click.option("--nats", multiple=True, help="The address of a server; may be repeated.")
@click.option("--prefix", help="The first word of all subjects.  [default: toolpost]")
@click.option(
    "--trust", multiple=True, help="Public keys of gateways: a file or a folder; may be repeated."
)
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    tools: Sequence[str],
    nats: Sequence[str],
    prefix: str | None,
    trust: Sequence[str],
    as_json: bool,
) -> int:
    """Serve the tools of this host on a NATS bus, to gateways on others.

    Calls are run if they carry a ticket of a gateway that is trusted. SIGTERM or Ctrl-C ends it,
    once the calls in flight have ended.
    """
    setup_all(sys.stderr, level=logging.DEBUG if asked.debug else logging.INFO)
    if not asked.debug:
        logging.getLogger("toolpost.calls").setLevel(logging.WARNING)
    config = _with_tools(find(asked.config), tools)
    settings = settings_of(
        config,
        servers=nats or None,
        prefix=prefix,
        trust=[str(Path(t).resolve()) for t in trust] or None,
    )
    run(_served(config, settings, as_json=as_json))
    return 0


def _with_tools(config: Config, files: Sequence[str]) -> Config:
    if not files:
        return config
    paths = [str(Path(file).resolve()) for file in files]
    sources = (*config.settings.sources, {"kind": "files", "paths": paths})
    return msgspec.structs.replace(
        config, settings=msgspec.structs.replace(config.settings, sources=sources)
    )


async def _served(config: Config, settings: WorkerSettings, *, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Runtime(serving(config, settings)) as runtime:
        if not runtime.list():
            raise SetupError(
                "there is nothing to serve: name a spec file with --tools, or sources in the config"
            )
        async with Worker(runtime, settings, folder=config.base) as worker:
            settled()
            _told(worker, settings, as_json=as_json)
            for part, problem in warnings(runtime).items():
                err(safe(f"warning: {part}: {problem}"))
            await stop.wait()
            if worker.running:
                err(f"{worker.running} calls still run: they may end within {settings.drain:g} s")


def _told(worker: Worker, settings: WorkerSettings, *, as_json: bool) -> None:
    servers = [without_password(one) for one in settings.servers]
    if as_json:
        told = {"worker": worker.id, "tools": worker.tools, "servers": servers}
        out(msgspec.json.encode(told).decode())
    else:
        many = f"{len(worker.tools)} tool{'s' if len(worker.tools) != 1 else ''}"
        out(safe(f"worker {worker.id} serves {many} on {', '.join(servers)}"))
        for name in worker.tools:
            out(safe(f"  {worker.bus.subjects.request(name)}"))
        out("Ctrl-C ends it, once the calls in flight have ended.")
    sys.stdout.flush()
