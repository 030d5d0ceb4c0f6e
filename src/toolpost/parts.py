"""The parts that a config names, found, checked and made; what is wrong is said with its place.

Above: ``runtime.py`` and ``loading.py``, which bring them to life, and the command line. Below:
``plugins.py``. It refuses to open anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from toolpost.clock import SystemClock
from toolpost.config import GUARDS, OBSERVERS, Config, origin
from toolpost.contracts import Divided, Extension, Surroundings
from toolpost.environ import remembered, secret
from toolpost.errors import ConfigError, MissingPart
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox, load, verify_name
from toolpost.registry import Registry
from toolpost.stores.lazy import LazyStore
from toolpost.wording import short
from toolpost.writable import Writable

if TYPE_CHECKING:  # rings are loaded by their names
    from toolpost.extensions.audit import Audit


def verify_backends(config: Config, *, given: Collection[str] = ()) -> None:
    """Every ``[backends.…]`` table belongs to one that is installed, and says what that takes.

    A backend is made when a tool first needs it, which is too late to hear of a wrong setting.
    """
    for name, table in config.settings.backends.items():
        if name not in given:
            with placed(config, "backends", name):
                options = getattr(load("backends", name), "options", None)
                if isinstance(options, type) and issubclass(options, Options):
                    options_from(table, options, f"backend {name}")


def verify_extensions(config: Config) -> None:
    """Every ``[extensions.…]`` table is of a ring that is installed: of one that is misspelt nobody
    would ever hear.
    """
    for name in config.settings.extensions:
        with placed(config, "extensions", name):
            verify_name("extensions", name)


def idle(config: Config, name: str) -> str:
    """That a table changes nothing, for people."""
    return (
        f"{origin(config, ('extensions', name))}: [extensions.{name}] changes nothing: {name!r} "
        "stands neither in observers nor in guards"
    )


def sandbox_of(config: Config, registry: Registry | None = None) -> SharedSandbox:
    """The sandbox as a config wants it, not opened yet."""
    settings = config.settings
    if settings.sandbox.lower and settings.mode != "permissive":
        with placed(config, "sandbox", "lower"):
            raise ConfigError(
                'a lower level of isolation is accepted with mode = "permissive" only'
            )
    return SharedSandbox(
        mode=settings.mode,
        state=str(config.base / settings.state),
        lower=settings.sandbox.lower,
        grounds=Writable(config, Registry() if registry is None else registry),
    )


def store_of(config: Config) -> LazyStore:
    """The store that a config names, not opened yet."""
    options = dict(config.settings.store)
    with placed(config, "store"):
        kind = options.pop("kind", None)
        if not isinstance(kind, str):
            raise ConfigError('the store has no kind; say kind = "sqlite", for example')
        state = config.base / config.settings.state
        return LazyStore(load("stores", kind).from_config(options, state))


def audit_of(config: Config, store: LazyStore) -> Audit | None:
    """The audit of a config, for who decides without calling anything; close it."""
    if "audit" not in config.settings.observers:
        return None
    table = config.settings.extensions.get("audit", {})
    with placed(config, "extensions", "audit"):
        audit: Audit = load("extensions", "audit").from_config(table, around(config, store))
        return audit


def around(
    config: Config, store: LazyStore, secret: Callable[[str], str | None] = secret
) -> Surroundings:
    """What a ring is given to live on."""
    return Surroundings(
        records=store,
        journal=store,
        clock=SystemClock(),
        base=config.base,
        state=config.base / config.settings.state,
        mode=config.settings.mode,
        secret=remembered(secret),
    )


def extensions(
    listed: Literal["observers", "guards"], config: Config, surroundings: Surroundings
) -> Iterator[Extension]:
    """The rings of a list, made. One that stands at several places is made once."""
    names: Sequence[str] = getattr(config.settings, listed)
    made: dict[str, Extension] = {}
    for listed_name in names:
        name, _, part = listed_name.partition(".")
        if name not in made:
            with placed(config, listed):
                try:
                    kind = load("extensions", name)
                except MissingPart as fault:
                    if names in (OBSERVERS, GUARDS) and isinstance(
                        fault.__cause__, ModuleNotFoundError
                    ):
                        continue  # nobody has asked for it by name, and its extra is not installed
                    raise
            with placed(config, "extensions", name):
                table = config.settings.extensions.get(name, {})
                made[name] = kind.from_config(table, surroundings)
        with placed(config, listed):
            yield _part_of(made[name], part) if part else made[name]


def _part_of(extension: Extension, part: str) -> Extension:
    parts = extension.parts if isinstance(extension, Divided) else {}
    if part not in parts:
        known = ", ".join(f"{extension.name}.{one}" for one in parts) or "none"
        raise ConfigError(
            f"the extension {extension.name!r} has no part {short(part)!r} (it has: {known})"
        )
    return parts[part]


@contextmanager
def placed(config: Config, *at: str | int) -> Iterator[None]:
    """What is wrong with a part or its table is said with the place in the config."""
    try:
        yield
    except (ConfigError, MissingPart) as fault:
        where = (*at, *fault.at)
        raise type(fault)(f"{origin(config, where)}: {fault.message}", at=where) from fault
