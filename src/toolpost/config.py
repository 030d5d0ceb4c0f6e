"""``toolpost.toml`` and the environment, parsed once at the start.

The file wins over the defaults, the environment over the file: ``TOOLPOST_WATCH=false``,
``TOOLPOST_BACKENDS__PYTHON__WORKERS=8`` (two underscores go one table down). ``Config.origins``
remembers where each value came from, for messages and for ``toolpost config``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.contracts import Mode
from toolpost.document import read
from toolpost.environ import variables
from toolpost.errors import ConfigError, SourceError
from toolpost.wording import explained, nearest, short

FILE_NAME = "toolpost.toml"
PREFIX = "TOOLPOST_"
_NO_SETTINGS = ("TOOLPOST_API_KEY", "TOOLPOST_CONFIG")
OBSERVERS: Final = ("trace", "log", "metrics", "audit")
GUARDS: Final = (
    "artifacts",
    "access",
    "sanitize",
    "policy",
    "once.lookup",
    "rate",
    "approval",
    "cache",
    "once",
    "retry",
    "slots",
)
"""The default chain, outermost first: who may comes before what is allowed, a known key answers
before anybody is asked, waiting for a person comes before a slot, a retry takes a fresh slot each
time, and what is kept of a large output is what the others have left in it. ``once.lookup`` is a
part of ``once`` that stands at a place of its own."""
GIVEN: Final = "the given settings"
"""The origin of what a program says itself, in a dict."""
Place = tuple[str | int, ...]


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[sandbox]``. ``lower``: in permissive mode, one level of isolation less will do."""

    lower: bool = False


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[jobs]``. ``ttl``: seconds that a job which has ended is kept, with its result;
    ``running``: how many run at once in a process; ``most``: how many of one caller may be open.
    """

    ttl: float = 86_400.0
    running: int = 16
    most: int = 1000

    def __post_init__(self) -> None:
        if not 0 < self.ttl <= 365 * 86_400:
            raise ValueError("ttl is a number of seconds, up to a year")
        if self.running < 1 or self.most < 1:
            raise ValueError("running and most are at least 1")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a config file may say. What is inside a source's, an extension's or a backend's table is
    that part's own business.
    """

    sources: tuple[dict[str, Any], ...] = ()
    observers: tuple[str, ...] = OBSERVERS
    guards: tuple[str, ...] = GUARDS
    extensions: dict[str, dict[str, Any]] = {}
    backends: dict[str, dict[str, Any]] = {}
    sandbox: SandboxSettings = SandboxSettings()
    jobs: JobSettings = JobSettings()
    gateway: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    store: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "sqlite"})
    state: str = ".toolpost"
    mode: Mode = "standard"
    watch: bool = True
    lock: str = "tools.lock"


class Config(msgspec.Struct, frozen=True):
    """The settings in force, the folder that paths start from, and where each value came from."""

    settings: Settings
    base: Path
    file: Path | None = None
    origins: Mapping[str, str] = {}

    @classmethod
    def of(cls, data: Mapping[str, Any], *, base: str | Path | None = None) -> Config:
        """From what a file would say, as a dict; paths start at ``base``, or in this folder. The
        environment wins here, too.
        """
        origins = {_dotted(at): GIVEN for at in _leaves(dict(data)) if at}
        return _made(dict(data), origins, _here() if base is None else Path(base).resolve(), None)


def find(path: str | Path | None = None) -> Config:
    """The config at a path, at ``TOOLPOST_CONFIG``, or in this folder; else the defaults."""
    named = path or variables(PREFIX).get("TOOLPOST_CONFIG")
    if named is None and not Path(FILE_NAME).exists():
        return _made({}, {}, _here(), None)
    file = Path(named or FILE_NAME)
    if not file.exists():
        raise ConfigError(f"{file}: there is no such file. Make one with: toolpost init")
    try:
        document = read(file, format="toml")
    except SourceError as fault:
        raise ConfigError(fault.message) from fault
    origins = {_dotted(at): document.where(at) for at in _leaves(document.data) if at}
    return _made(document.data, origins, file.resolve().parent, file)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder has been deleted: go to another one") from None


def origin(config: Config, at: Place) -> str:
    """Where a value came from, for a message: a variable, or a place in the file.

    Of a table it is where the first of its values is, of an item of a list where the list is.
    """
    path = f"{_dotted(at)}."
    below = (place for name, place in config.origins.items() if f"{name}.".startswith(path))
    above = (place for name, place in config.origins.items() if path.startswith(f"{name}."))
    return next(below, None) or next(above, None) or str(config.file or FILE_NAME)


def _made(data: dict[str, Any], origins: dict[str, str], base: Path, file: Path | None) -> Config:
    data = _overlaid(data, origins)
    config = Config(Settings(), base, file, origins)
    for key in data:
        if key not in Settings.__struct_fields__:
            hint = nearest(key, Settings.__struct_fields__)
            raise ConfigError(
                f"{origin(config, (key,))}: unknown setting {short(key)!r}{hint}", at=(key,)
            )
    try:
        settings = msgspec.convert(data, Settings)
    except msgspec.ValidationError as fault:
        what, at = explained(fault, Settings)
        raise ConfigError(f"{origin(config, at)}: {_dotted(at)}: {what}", at=at) from None
    _verify_lists(settings, config)
    return msgspec.structs.replace(config, settings=settings)


def unlisted(settings: Settings) -> list[str]:
    """The tables of rings that stand in neither list: they change nothing."""
    listed = {name.partition(".")[0] for name in (*settings.observers, *settings.guards)}
    return [name for name in settings.extensions if name not in listed]


def _verify_lists(settings: Settings, config: Config) -> None:
    """A ring stands once in its list, and one of ours in the list that it is made for: a guard
    among the observers would be told of calls, and refuse none.
    """
    for listed, foreign, other in (
        ("observers", GUARDS, "guards"),
        ("guards", OBSERVERS, "observers"),
    ):
        names: tuple[str, ...] = getattr(settings, listed)
        for place, name in enumerate(names):
            if name in names[:place]:
                raise _misplaced(config, listed, f"{short(name)!r} stands there twice")
            if name in foreign:
                raise _misplaced(config, listed, f"{name!r} belongs to the {other}")


def _misplaced(config: Config, listed: str, what: str) -> ConfigError:
    return ConfigError(f"{origin(config, (listed,))}: {listed}: {what}", at=(listed,))


def _leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    """The path of every value that is no table; an empty table is one too."""
    inside: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        inside = enumerate(value)
    if not inside:
        yield at
    for key, one in inside:
        yield from _leaves(one, (*at, key))


def _overlaid(data: dict[str, Any], origins: dict[str, str]) -> dict[str, Any]:
    """The data with what the environment says put on top."""
    for name, text in variables(PREFIX).items():
        if name in _NO_SETTINGS:
            continue
        path = name.removeprefix(PREFIX).lower().split("__")
        table = data = {**data}
        for step in path[:-1]:
            if not isinstance(below := table.get(step, {}), dict):
                raise ConfigError(f"environment {name}: {step} is a value, not a table")
            table[step] = table = {**below}
        table[path[-1]] = _value(text)
        for old in [key for key in origins if key.startswith(f"{'.'.join(path)}.")]:
            del origins[old]
        origins[".".join(path)] = f"environment {name}"
    return data


def _value(text: str) -> Any:
    """As TOML would read it; what TOML does not know is a plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _dotted(at: Place) -> str:
    return ".".join(map(str, at))
