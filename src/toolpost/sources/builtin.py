"""The tools that come with toolpost: none is there unless the config names it or it is harmless.

    [[sources]]
    kind = "builtin"
    tools = ["files", "calculator", "web_search"]
    [sources.files]
    roots = ["workspace"]

A name is that of a set, and means all of its tools, or that of one tool. Above: the runtime. Below:
the modules of ``toolpost.builtin``, imported by name when they are wanted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from toolpost.contracts import Registered, Tell
from toolpost.errors import ConfigError, MissingPart, SourceError
from toolpost.options import Options, options_from
from toolpost.wording import nearest, short


class Set(NamedTuple):
    """Tools that belong together, and have one table of settings."""

    module: str
    tools: tuple[str, ...]


SETS: Final[Mapping[str, Set]] = MappingProxyType(
    {
        "browser": Set(
            "browser",
            (
                "browser_navigate",
                "browser_snapshot",
                "browser_extract",
                "browser_screenshot",
                "browser_click",
                "browser_fill",
            ),
        ),
        "calculator": Set("calculator", ("calculator",)),
        "classify": Set("classify", ("classify_data",)),
        "commands": Set("commands", ("system_command", "system_command_change")),
        "files": Set(
            "files",
            (
                "read_file",
                "write_file",
                "edit_file",
                "list_directory",
                "search_files",
                "delete_file",
            ),
        ),
        "filesystem": Set("filesystem", ("filesystem",)),
        "knowledge": Set("knowledge", ("ingest_knowledge", "search_knowledge")),
        "logs": Set("logs", ("analyze_logs",)),
        "scraper": Set("scraper", ("web_scraper",)),
        "time": Set("clock", ("time",)),
        "web": Set("web", ("web_search", "http_get", "http_request")),
        "wikipedia": Set("wikipedia", ("wikipedia",)),
    }
)
"""Name → its module in ``toolpost.builtin`` and its tools; a test holds it against the modules."""
_SET_OF: Final = {tool: name for name, one in SETS.items() for tool in one.tools}
_NAMES: Final = tuple(sorted({*SETS, *_SET_OF}))


class BuiltinOptions(Options, frozen=True):
    """Beside it a set may have a table of its own: ``[sources.files]``."""

    tools: tuple[str, ...] = ("calculator", "time")


class BuiltinSource:
    """``[[sources]] kind = "builtin", tools = ["files", "calculator", "time"]``."""

    def __init__(
        self,
        tools: Iterable[str] = BuiltinOptions().tools,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        base: Path | None = None,
    ) -> None:
        """``settings`` are by set, as the config has them."""
        tools = tuple(tools)
        try:
            self._wanted = by_set(tools)
        except SourceError as fault:
            raise ConfigError(fault.message, at=("tools",)) from None
        self._named = frozenset(tools) - SETS.keys()
        self._base = base or Path.cwd()
        tables = settings or {}
        for name in tables.keys() - self._wanted.keys():
            raise ConfigError(
                f"source builtin {name}: there are settings for it, but none of its tools: "
                f'add "{name}" to tools',
                at=(name,),
            )
        self._settings = {name: _settings(name, tables.get(name, {})) for name in self._wanted}

    @classmethod
    def from_config(cls, options: Mapping[str, Any], base: Path) -> Self:
        plain = {name: options[name] for name in options if name not in SETS}
        given = options_from(plain, BuiltinOptions, "source builtin")
        tables = {name: options[name] for name in options if name in SETS}
        return cls(given.tools, settings=tables, base=base)

    async def load(self, tell: Tell) -> Iterable[Registered]:
        found: list[Registered] = []
        for done, (name, tools) in enumerate(self._wanted.items()):
            tell(done, len(self._wanted))
            with _of(name):
                made = list(_module(name).tools(self._settings[name], self._base))
            there = {one.spec.name: one for one in made}
            for missing in sorted(self._named & tools - there.keys()):
                needs = getattr(_module(name), "NEEDS", {}).get(missing, "they leave it out")
                raise SourceError(
                    f"the tool {missing!r} is not there as [sources.{name}] stands: {needs}"
                )
            found += (one for tool, one in there.items() if tool in tools)
        return found

    async def changes(self) -> AsyncIterator[None]:
        """What is installed does not change under a running process."""
        never: tuple[None, ...] = ()
        for change in never:
            yield change


def sample(name: str) -> str:
    """The table of a set as a new config has it, or nothing if it needs none."""
    lines: str = getattr(_module(name), "SAMPLE", "")
    return f"\n[sources.{name}]\n{lines}" if lines else ""


def _module(name: str) -> Any:
    module = f"toolpost.builtin.{SETS[name].module}"
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise MissingPart(f"the built-in tools {name!r} need {exc.name!r}, not installed") from exc


def _settings(name: str, table: Any) -> Options:
    if not isinstance(table, Mapping):
        raise ConfigError(f"source builtin {name}: expected a table", at=(name,))
    kind: type[Options] = getattr(_module(name), "Settings", Options)
    with _of(name):
        return options_from(table, kind, f"source builtin {name}")


@contextmanager
def _of(name: str) -> Iterator[None]:
    """What is wrong is in the table of this set."""
    try:
        yield
    except ConfigError as fault:
        raise ConfigError(fault.message, at=(name, *fault.at)) from None


def by_set(names: Iterable[str]) -> dict[str, set[str]]:
    """Set → those of its tools that were named, by its name or by theirs; else a ``SourceError``
    that says which there are.
    """
    wanted: dict[str, set[str]] = {}
    for name in names:
        owner = name if name in SETS else _SET_OF.get(name)
        if owner is None:
            raise SourceError(
                f"no tool {short(name)!r} comes with toolpost{nearest(name, _NAMES)} "
                f"(there are: {', '.join(_NAMES)})"
            )
        wanted.setdefault(owner, set()).update(SETS[name].tools if name in SETS else (name,))
    return wanted
