"""``[worker]``: what a worker serves, to whom, and where."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from toolpost.bus.settings import BusOptions
from toolpost.config import Config
from toolpost.options import options_from
from toolpost.spec import ToolSpec

OBSERVERS: Final = ("log", "metrics")
GUARDS: Final = ("slots",)


class WorkerSettings(BusOptions, frozen=True, kw_only=True):
    """``trust``: folders and files of public keys; who holds one of them may send calls.
    ``confine``: Python tools of spec files run in a sandbox, by what their spec grants. ``drain``:
    seconds that calls may take to end when the worker is to stop.
    """

    trust: tuple[str, ...] = (".toolpost/keys",)
    group: str = "workers"
    confine: bool = True
    drain: float = 30.0
    announce: float = 2.0
    observers: tuple[str, ...] = OBSERVERS
    guards: tuple[str, ...] = GUARDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.1 <= self.announce <= 300:
            raise ValueError("announce is a number of seconds, 0.1 to 300")
        if not 0 <= self.drain <= 86_400:
            raise ValueError("drain is a number of seconds, up to a day")


def settings_of(config: Config, **given: Any) -> WorkerSettings:
    """The table, with what the command line says on top."""
    table = {**config.settings.worker, **{k: v for k, v in given.items() if v is not None}}
    return options_from(table, WorkerSettings, "worker")


def serving(config: Config, settings: WorkerSettings) -> Config:
    """The config as a worker runs it: whether a call may be made was decided at the gateway."""
    chain = {"observers": settings.observers, "guards": settings.guards}
    return msgspec.structs.replace(
        config, settings=msgspec.structs.replace(config.settings, **chain)
    )


def as_served(spec: ToolSpec, settings: WorkerSettings, *, declared: bool) -> ToolSpec:
    """The tool as it runs here: a person was asked at the gateway, and a Python tool that was
    ``declared`` in a spec file has a sandbox of its own.
    """
    confined = declared and settings.confine and spec.kind == "python" and spec.isolation is None
    isolation = "sandbox" if confined else spec.isolation
    return msgspec.structs.replace(spec, requires_approval=False, isolation=isolation)
