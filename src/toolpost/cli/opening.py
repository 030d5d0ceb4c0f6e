"""The tools of a config, open for the length of one command.

Above: the commands that need tools. Below: ``runtime.py``. While tools are loaded and called,
what they print goes to standard error, so that standard output is the command's own; what they
log is shown with ``--debug`` only, redacted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any, TypeVar

import msgspec

from toolpost.cli.options import Asked
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import counted, err, safe
from toolpost.config import Config, find
from toolpost.extensions.log import setup
from toolpost.parts import store_of
from toolpost.runtime import Runtime
from toolpost.stores.lazy import LazyStore
from toolpost.wording import short

T = TypeVar("T")


def run(asked: Asked, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work, waits for that and is then raised."""
    _hear_the_log(asked)
    with redirect_stdout(sys.stderr):
        return asyncio.run(work)


@asynccontextmanager
async def opened(asked: Asked, *, whole: bool = True) -> AsyncIterator[Runtime]:
    """Everything the config names, ready to be called. ``whole``: who sits here gets outputs of
    any size as they are.
    """
    config = find(asked.config)
    async with loaded(_handing_over(config) if whole else config, asked) as runtime:
        await runtime.open_rings()
        yield runtime


@asynccontextmanager
async def loaded(config: Config, asked: Asked) -> AsyncIterator[Runtime]:
    """The tools of a config, to be looked at: nothing is made or opened that only calls need."""
    runtime = Runtime(once(config))
    try:
        with Bar("loading tools", asked=asked) as bar:
            await runtime.load(bar.tell)
        yield runtime
    finally:
        await runtime.close()


@asynccontextmanager
async def stored(config: Config) -> AsyncIterator[LazyStore]:
    """The store of a config, and nothing else of it. One that can only be read will do for who
    only looks, and is told of.
    """
    store = store_of(config)
    try:
        if why := await store.open_to_read():
            err(safe(f"warning: the store can only be read now: {why}"))
        yield store
    finally:
        await store.close()


def uncalled(config: Config) -> Config:
    """The config where nothing is called: no observers and no store, but the guards, which may hide
    tools.
    """
    settings = msgspec.structs.replace(config.settings, observers=(), store={"kind": "memory"})
    return msgspec.structs.replace(config, settings=settings)


def _handing_over(config: Config) -> Config:
    guards = tuple(name for name in config.settings.guards if name != "artifacts")
    tables = {k: v for k, v in config.settings.extensions.items() if k != "artifacts"}
    settings = msgspec.structs.replace(config.settings, guards=guards, extensions=tables)
    return msgspec.structs.replace(config, settings=settings)


def once(config: Config) -> Config:
    """The config for one command: nobody will be there to see a file change."""
    settings = msgspec.structs.replace(config.settings, watch=False)
    return msgspec.structs.replace(config, settings=settings)


def asking(runtime: Runtime) -> str | None:
    """The mode of the guard that asks people; ``None``: nobody is asked, and nobody can say yes."""
    for guard in runtime.executor.guards:
        if guard.name == "approval":
            return str(getattr(guard, "mode", "policy"))
    return None


def warnings(runtime: Runtime) -> dict[str, str]:
    """What is wrong with a part right now, or that a source has no tools."""
    return {**runtime.problems, **runtime.empty_sources}


def left_out(runtime: Runtime) -> dict[str, str]:
    """Source → how many of its tools were not taken, and why the first of them was not."""
    told = {}
    for label, tools in runtime.left_out.items():
        name, why = next(iter(tools.items()))
        told[label] = f"{counted(len(tools), 'tool')} left out; {short(name)}: {why}"
    return told


def _hear_the_log(asked: Asked) -> None:
    if not asked.debug:
        # else Python shows tracebacks of its own accord
        logging.getLogger().addHandler(logging.NullHandler())
        return
    setup(sys.stderr, form="people", logger="")
