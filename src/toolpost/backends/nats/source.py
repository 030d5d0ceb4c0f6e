"""The tools of workers on the bus: ``[[sources]] kind = "nats"``.

Above: the runtime. Below: the backend ``nats``, which has the connection and knows who is there. A
new worker's tools are there without a restart; they go with the last who offers them. Where the bus
is down the tools stay as they were, and who calls one is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec

from toolpost.backends.nats.backend import NatsBackend
from toolpost.bus.connection import Bus
from toolpost.bus.wire import Offered
from toolpost.characters import stripped
from toolpost.contracts import Backend, Tell
from toolpost.errors import CallError, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.patterns import glob
from toolpost.spec import Limits, ToolSpec, spec_from
from toolpost.verified import verified
from toolpost.wording import short

_log = logging.getLogger("toolpost.bus")
_SETTLE: Final = 0.1
_AGAIN: Final = 2.0
_MOST: Final = 10_000
GRACE: Final = 1.0
"""Seconds that the answer may be on its way: the worker's own limit is to be the first."""


class _Options(Options, frozen=True):
    tools: tuple[str, ...] = ("*",)
    tier: int = 0
    """None of the tools is below it, whatever the worker says."""


class NatsSource:
    """``problem`` says why nobody can be heard, ``left_out`` which tools have no spec."""

    gives_way = True
    """Whoever starts a worker somewhere does not know what names there are here."""
    when_empty: ClassVar = "no worker offers one yet; start a worker with: toolpost worker"

    def __init__(self, options: _Options, *, backend: NatsBackend | None = None) -> None:
        self._tier, self._wanted = options.tier, glob(options.tools)
        self._backend: Callable[[str], Backend] | None = None
        if backend is not None:
            self.draw(lambda _: backend)
        self._good: tuple[ToolSpec, ...] = ()
        self._down: str | None = None
        self._bus: Bus | None = None
        """Once somebody was heard over it."""
        self._wake = asyncio.Event()
        self._listens = False
        self.left_out: Mapping[str, str] = {}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        return cls(options_from(options, _Options, "source nats"))

    def draw(self, backend: Callable[[str], Backend]) -> None:
        self._backend = backend

    @property
    def problem(self) -> str | None:
        return self._down or (None if self._bus is None else self._bus.problem)

    async def load(self, tell: Tell) -> Iterable[ToolSpec]:
        backend = self._found()
        try:
            await backend.directory.open(patience=backend.patience)
        except CallError as fault:
            self._down = backend.bus.problem or fault.message
            return self._good
        self._down, self._bus = None, backend.bus
        kept, left_out = [], {}
        for name, offered in sorted(backend.directory.offers().items()):
            if not self._wanted(name):
                continue
            try:
                kept.append(verified(spec_of(name, offered, tier=self._tier)))
            except InvalidSpec as fault:
                left_out[name] = fault.message
                if self.left_out.get(name) != fault.message:
                    _log.warning("the tool %s is left out: %s", short(name), fault.message)
        self._good, self.left_out = tuple(kept), left_out
        return self._good

    async def changes(self) -> AsyncIterator[None]:
        backend = self._found()
        while True:
            try:
                async with asyncio.timeout(_AGAIN if self._down or backend.bus.problem else None):
                    await self._wake.wait()
                await asyncio.sleep(_SETTLE)  # several changes are one
            except TimeoutError:
                if not self._down:
                    continue
            self._wake.clear()
            yield

    def _found(self) -> NatsBackend:
        backend = NatsBackend() if self._backend is None else self._backend("nats")
        assert isinstance(backend, NatsBackend)
        if not self._listens:
            self._listens = True
            backend.directory.listeners.append(self._wake.set)
        return backend


def spec_of(name: str, offered: Offered, *, tier: int = 0) -> ToolSpec:
    """A worker's tool, as a tool of this house."""
    given = spec_from({k: v for k, v in offered.spec.items() if k not in ("binding", "isolation")})
    if given.name != name:
        raise InvalidSpec(
            f"it is offered as {short(name)!r} and calls itself {short(given.name)!r}"
        )
    return msgspec.structs.replace(
        given,
        kind="nats",
        description=stripped(given.description),
        tier=max(given.tier, tier),
        timeout=given.time_limit + GRACE,
        total_timeout=None if given.total_timeout is None else given.total_timeout + GRACE,
        limits=Limits(concurrency=_MOST, queue=_MOST, output=given.limits.output),
        binding={"tool": name, "digest": offered.digest},
    )
