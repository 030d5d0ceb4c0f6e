"""The same, blocking: for programs that have no event loop.

``with toolpost.sync.open("toolpost.toml") as tools: tools.execute("add", {"a": 1, "b": 2})``

One event loop in a thread of its own serves all callers; it ends with the ``with`` block. Inside a
running event loop use the async API: blocking there would stop everything else, so it is refused;
so is a forked child, which has no such thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.blocking import blocking, serving
from toolpost.config import Config
from toolpost.contracts import Backend, Extension, Ring
from toolpost.environ import secret
from toolpost.executor import Executor
from toolpost.registry import Item
from toolpost.runtime import Runtime

if TYPE_CHECKING:
    from toolpost.extensions.approval import Ask


class Tools:
    """What an executor or a runtime can do, blocking."""

    def __init__(self, opened: Executor | Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = opened.registry
        self.list = opened.list
        self.execute = blocking(opened.execute, loop)


class RuntimeTools(Tools):
    """What a runtime can do besides: load its sources anew, and say how it is."""

    def __init__(self, opened: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(opened, loop)
        self.reload = blocking(opened.reload, loop)
        self.health = blocking(opened.health, loop)
        self.extension = opened.extension
        self._opened = opened

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong right now, by the part that has it."""
        return self._opened.problems


@contextmanager
def open(  # noqa: A001 - as Runtime.open
    config: str | Path | Config | None = None,
    *,
    tools: Iterable[Item] = (),
    observers: Iterable[Extension | Ring] = (),
    guards: Iterable[Extension | Ring] = (),
    backends: Mapping[str, Backend] | None = None,
    provide: Mapping[type, object] | None = None,
    secret: Callable[[str], str | None] = secret,
    ask: Ask | None = None,
) -> Iterator[RuntimeTools]:
    """The tools of a config, blocking. ``ask`` is awaited on the loop of the tools."""

    def make() -> Runtime:
        return Runtime.open(
            config,
            tools=tools,
            observers=observers,
            guards=guards,
            backends=backends,
            provide=provide,
            secret=secret,
            ask=ask,
        )

    with serving(make) as (opened, loop):
        yield RuntimeTools(opened, loop)


@contextmanager
def over(make: Callable[[], Executor]) -> Iterator[Tools]:
    """The tools of an executor of your own, which is made on the loop: ``over(lambda: …)``."""
    with serving(make) as (opened, loop):
        yield Tools(opened, loop)
