"""Tools on other hosts, over NATS: whoever serves one answers.

Above: the road, and ``source.py``. Below: the bus. Policy has decided before anything is sent; what
is sent carries a ticket. No more is sent than the workers that are there can take.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from toolpost import incarnation
from toolpost.backends.nats.binding import NatsBinding, binding_of, verify
from toolpost.backends.nats.calling import Calling
from toolpost.backends.nats.carrying import Carrying
from toolpost.backends.nats.directory import Directory
from toolpost.bus.connection import Bus
from toolpost.bus.settings import BusOptions
from toolpost.bus.ticket import Issuer
from toolpost.call import Call, Progress
from toolpost.contracts import PARCEL, Health, Home, Parcel, Services
from toolpost.errors import CallError, ConfigError, QueueFull
from toolpost.options import Options, options_from
from toolpost.result import Result
from toolpost.seal import Seal, can_sign_publicly, new_seal, open_seal
from toolpost.spec import ToolSpec

_NAME: Final = "bus"
"""The key that tickets are signed with: ``.toolpost/keys/bus.key``."""


class NatsOptions(BusOptions, frozen=True, kw_only=True):
    """``[backends.nats]``. ``patience``: seconds that the start waits for workers to say that they
    are there. ``keys``: the folder of the key that tickets are signed with.
    """

    patience: float = 1.0
    keys: str = ".toolpost/keys"


class NatsBackend:
    """Runs tools of kind ``nats``."""

    options: ClassVar[type[Options]] = NatsOptions

    def __init__(self, services: Services | None = None) -> None:
        services = services or Services()
        options = options_from(services.settings.get("nats", {}), NatsOptions, "backend nats")
        home: Home | None = services.provide.get(Home)  # type: ignore[assignment]
        folder = Path() if home is None else home.folder
        self.patience = options.patience
        self.bus = Bus(
            options,
            role="gateway",
            name=f"gateway-{socket.gethostname()}-{incarnation.mine()}"[:200],
            folder=folder,
            secret=services.secret,
        )
        self._seal = _seal(folder / options.keys, kept=home is not None)
        issuer = Issuer(self._seal)
        self.calling = Calling(self.bus, issuer)
        self.directory = Directory(self.bus, issuer)
        self.carrying = Carrying(self.bus, issuer)
        self._running: Counter[str] = Counter()

    def bind(self, spec: ToolSpec, target: object | None) -> NatsHandle:
        return NatsHandle(binding_of(spec), max(spec.time_limit - 1.0, spec.time_limit / 2), self)

    def carries(self, spec: ToolSpec) -> bool:
        """Where another tool may step in, what is done is decided here, call by call."""
        return spec.fallback is None and self.directory.takes_jobs(binding_of(spec).tool)

    @property
    def problem(self) -> str | None:
        """Why no worker can be reached."""
        return self.bus.problem

    async def collect(
        self, parcel: str, on_progress: Callable[[Progress], None] | None
    ) -> Result | None:
        return await self.carrying.collect(parcel, on_progress)

    async def recall(self, parcel: str) -> Result | None:
        return await self.carrying.recall(parcel)

    async def call(self, binding: NatsBinding, call: Call, seconds: float) -> Any:
        tool, running = binding.tool, self._running
        if isinstance(parcel := call.metadata.get(PARCEL), Parcel):
            return await self.carrying.carry(
                call, parcel, tool=tool, digest=binding.digest, seconds=seconds
            )
        if (room := self.directory.room(tool)) and running[tool] >= room:
            raise QueueFull(
                f"The workers of this tool take {room} calls at once, and have them. "
                "Try again in a moment.",
                retry_after=1.0,
                effects="none",
            )
        running[tool] += 1
        try:
            return await self.calling.call(
                call,
                tool=tool,
                digest=binding.digest,
                seconds=seconds,
                met=self.directory.met(tool),
            )
        except CallError as error:
            if error.code == "UNAVAILABLE":
                self.directory.lost(tool)
            raise
        finally:
            running[tool] -= 1

    async def close(self) -> None:
        await self.directory.close()
        await self.carrying.close()
        await self.bus.close()


class NatsHandle:
    """One tool of workers."""

    def __init__(self, binding: NatsBinding, seconds: float, backend: NatsBackend) -> None:
        self._binding, self._seconds, self._backend = binding, seconds, backend

    @property
    def about(self) -> Mapping[str, Any]:
        return {"subject": self._backend.bus.subjects.request(self._binding.tool)}

    def run(self, call: Call) -> Coroutine[Any, Any, Any]:
        return self._backend.call(self._binding, call, self._seconds)

    async def health(self) -> Health:
        problem = self._backend.bus.problem
        if problem is None and not self._backend.directory.room(self._binding.tool):
            problem = "no worker is there for it"
        return Health(problem is None, problem)

    async def close(self) -> None:
        """The connection is the others' too."""


def _seal(folder: Path, *, kept: bool) -> Seal:
    if not can_sign_publicly():
        raise ConfigError(
            'tickets on the bus are signed with Ed25519: pip install "toolpost[nats]"'
        )
    return open_seal(folder, _NAME) if kept else new_seal()


__all__ = ["NatsBackend", "NatsBinding", "NatsHandle", "NatsOptions", "verify"]
