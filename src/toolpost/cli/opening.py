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
from toolpost.config import Config, find
from toolpost.extensions.log import setup
from toolpost.runtime import Runtime

T = TypeVar("T")


def run(asked: Asked, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels the work, waits for that and is then raised."""
    _hear_the_log(asked)
    with redirect_stdout(sys.stderr):
        return asyncio.run(work)


@asynccontextmanager
async def opened(asked: Asked) -> AsyncIterator[Runtime]:
    """Everything the config names, loaded."""
    runtime = Runtime(once(find(asked.config)))
    try:
        with Bar("loading tools", asked=asked) as bar:
            await runtime.start(bar.tell)
        yield runtime
    finally:
        await runtime.close()


def once(config: Config) -> Config:
    """The config for one command: nobody will be there to see a file change."""
    settings = msgspec.structs.replace(config.settings, watch=False)
    return msgspec.structs.replace(config, settings=settings)


def _hear_the_log(asked: Asked) -> None:
    if not asked.debug:
        # else Python shows tracebacks of its own accord
        logging.getLogger().addHandler(logging.NullHandler())
        return
    setup(sys.stderr, form="people", logger="")
