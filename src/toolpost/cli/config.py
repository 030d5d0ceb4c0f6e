"""``toolpost config``: every setting in force, its value and where it comes from.

Above: ``main.py``. Below: ``config.py`` of the package, which remembers the origins. What looks
like a secret is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec

from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import console, err, json_text, plain, print_json, row, safe, table
from toolpost.config import Config, Settings, find, unlisted
from toolpost.errors import MissingPart
from toolpost.gateway.settings import GatewaySettings
from toolpost.options import Options
from toolpost.parts import idle, verify_backends, verify_extensions
from toolpost.plugins import BUILT_IN, load
from toolpost.redact import Rules, replaced
from toolpost.worker.settings import WorkerSettings

_SECRET: Final = re.compile(r"secret|token|password|passwd|credential|api_?key|private_?key", re.I)
_IN_ADDRESS: Final = re.compile(r"(?<=://)([^/?#@\s:]*):\S*(?=@)")
_IN_WORDS: Final = re.compile(r"\b((?:ssl)?pass(?:word|wd)\s*=\s*)('[^']*'|[^\s&;]+)", re.I)
"""Where a DSN has its password: before the host, or as a word of its own."""
_SECRETS: Final = Rules(personal=False)
DEFAULT: Final = "default"


class Setting(NamedTuple):
    name: str
    value: Any
    default: Any
    origin: str


@click.command("config")
@click.option("--changed", is_flag=True, help="Only settings that do not have their default.")
@json_option
@pass_asked
def command(asked: Asked, *, changed: bool, as_json: bool) -> None:
    """Show every setting in force, its default and where it comes from.

    The environment wins over the file, the file over the defaults: TOOLPOST_WATCH=false,
    TOOLPOST_BACKENDS__PYTHON__WORKERS=8 (two underscores go one table down).
    """
    config = find(asked.config)
    verify_backends(config)
    verify_extensions(config)
    settings = [one for one in in_force(config) if not changed or one.origin != DEFAULT]
    for name in unlisted(config.settings):
        err(safe(f"warning: {idle(config, name)}"))
    if as_json:
        file = None if config.file is None else str(config.file)
        print_json({"file": file, "settings": [s._asdict() for s in settings]})
        return
    listing = table("setting", "value", "from", wide=["value", "from"])
    for setting in settings:
        shown = json_text(setting.value, indent=None)
        default = "" if setting.default in (None, setting.value) else _default_note(setting)
        row(listing, setting.name, shown, f"{setting.origin}{default}")
    screen = console(asked)
    screen.print(plain(f"file: {config.file or 'none; these are the defaults'}"))
    screen.print(listing)


def _default_note(setting: Setting) -> str:
    return f" (default: {json_text(setting.default, indent=None)})"


def in_force(config: Config) -> Iterator[Setting]:
    """Every setting, with those of every built-in backend, extension, store and interface."""
    kind = str(config.settings.store.get("kind", ""))
    initial = _merge(msgspec.to_builtins(Settings()), _part_defaults(kind))
    defaults = dict(_leaves(initial))
    for name, value in _leaves(_merge(initial, msgspec.to_builtins(config.settings))):
        default = defaults.get(name)
        origin = config.origins.get(name) or _origin_below(config, name)
        is_choice = bool(default)  # a password has no default
        yield Setting(name, value if is_choice else _hidden(name, value), default, origin)


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both tables as one, deeply; ``over`` wins."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = _merge(below, value)
        merged[key] = value
    return merged


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _origin_below(config: Config, name: str) -> str:
    """The origin of a value that was written as part of a larger one."""
    return next((o for n, o in config.origins.items() if n.startswith(f"{name}.")), DEFAULT)


def _part_defaults(store: str) -> dict[str, Any]:
    """The defaults of every table whose owner says what it takes."""
    return {
        "extensions": _defaults_of("extensions"),
        "backends": _defaults_of("backends"),
        "store": _defaults_of("stores").get(store, {}),
        "gateway": _initial(GatewaySettings),
        "worker": _initial(WorkerSettings),
    }


def _defaults_of(socket: str) -> dict[str, dict[str, Any]]:
    """Name → defaults, of the built-in parts of one kind."""
    found: dict[str, dict[str, Any]] = {}
    for name in (name for kind, name in BUILT_IN if kind == socket):
        try:
            options = getattr(load(socket, name), "options", None)
        except MissingPart:  # an extra that is not installed: `doctor` speaks of those
            continue
        if isinstance(options, type) and issubclass(options, Options):
            found[name] = _initial(options)
    return found


def _initial(options: type[Options]) -> dict[str, Any]:
    """The defaults of a table as a config file would write them."""
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(options):
        if field.default is not msgspec.NODEFAULT:
            given[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            given[field.name] = field.default_factory()
    plain_values: dict[str, Any] = msgspec.to_builtins(given)
    return plain_values


def _hidden(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden("", inner) for inner in value]
    if not isinstance(value, str):
        return value
    if value and _SECRET.search(name.rpartition(".")[2]):
        return "(hidden)"
    return _harmless(value)


def _harmless(text: str) -> str:
    text = replaced(text, _SECRETS.find(text))
    return _IN_WORDS.sub(r"\1…", _IN_ADDRESS.sub(r"\1:…", text))
