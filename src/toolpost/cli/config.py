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
from toolpost.config import Config, find, unlisted
from toolpost.errors import MissingPart
from toolpost.options import Options
from toolpost.parts import idle, verify_backends, verify_extensions
from toolpost.plugins import BUILT_IN, load
from toolpost.redact import Rules, replaced

_SECRET: Final = re.compile(r"secret|token|password|passwd|credential|api_?key|private_?key", re.I)
_IN_ADDRESS: Final = re.compile(r"(?<=://)([^/?#@\s:]*):\S*(?=@)")
_IN_WORDS: Final = re.compile(r"\b((?:ssl)?pass(?:word|wd)\s*=\s*)('[^']*'|[^\s&;]+)", re.I)
"""Where a DSN has its password: before the host, or as a word of its own."""
_SECRETS: Final = Rules(personal=False)
DEFAULT: Final = "default"


class Setting(NamedTuple):
    name: str
    value: Any
    origin: str


@click.command("config")
@json_option
@pass_asked
def command(asked: Asked, *, as_json: bool) -> None:
    """Show every setting in force and where it comes from.

    The environment wins over the file, the file over the defaults: TOOLPOST_WATCH=false,
    TOOLPOST_BACKENDS__PYTHON__WORKERS=8 (two underscores go one table down).
    """
    config = find(asked.config)
    verify_backends(config)
    verify_extensions(config)
    settings = list(in_force(config))
    for name in unlisted(config.settings):
        err(safe(f"warning: {idle(config, name)}"))
    if as_json:
        file = None if config.file is None else str(config.file)
        print_json({"file": file, "settings": [s._asdict() for s in settings]})
        return
    listing = table("setting", "value", "from", wide=["value", "from"])
    for setting in settings:
        shown = json_text(setting.value, indent=None)
        row(listing, setting.name, shown, setting.origin)
    screen = console(asked)
    screen.print(plain(f"file: {config.file or 'none; these are the defaults'}"))
    screen.print(listing)


def in_force(config: Config) -> Iterator[Setting]:
    """Every setting, what a backend takes included."""
    known: dict[str, Any] = msgspec.to_builtins(config.settings)
    known["backends"] = {**_defaults(), **known["backends"]}
    for name, options in _defaults().items():
        known["backends"][name] = {**options, **known["backends"][name]}
    for name, value in _leaves(known):
        origin = config.origins.get(name) or _origin_below(config, name)
        yield Setting(name, _hidden(name, value), origin)


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _origin_below(config: Config, name: str) -> str:
    """The origin of a value that was written as part of a larger one."""
    return next((o for n, o in config.origins.items() if n.startswith(f"{name}.")), DEFAULT)


def _defaults() -> dict[str, dict[str, Any]]:
    """What the built-in backends take, as far as they say so."""
    found: dict[str, dict[str, Any]] = {}
    for socket, name in BUILT_IN:
        if socket == "backends":
            try:
                options = getattr(load(socket, name), "options", None)
            except MissingPart:  # an extra that is not installed: `doctor` speaks of those
                continue
            if isinstance(options, type) and issubclass(options, Options):
                found[name] = _initial(options)
    return found


def _initial(options: type[Options]) -> dict[str, Any]:
    fields = msgspec.structs.fields(options)
    given = {f.name: f.default for f in fields if f.default is not msgspec.NODEFAULT}
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
