"""``toolpost.toml`` and the environment, parsed once at the start.

The file wins over the defaults, the environment over the file: ``TOOLPOST_WATCH=false``,
``TOOLPOST_BACKENDS__PYTHON__WORKERS=8`` (two underscores go one table down). ``Config.origins`` remembers
where each value came from, for ``toolpost config``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolpost.document import Document, read
from toolpost.environ import variables
from toolpost.errors import ConfigError
from toolpost.spec import nearest, short

FILE_NAME = "toolpost.toml"
PREFIX = "TOOLPOST_"


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Settings(_Table):
    """What a config file may say. What is inside a source's, an extension's or a backend's table is
    that part's own business.
    """

    sources: tuple[dict[str, Any], ...] = ()
    observers: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    extensions: dict[str, dict[str, Any]] = {}
    backends: dict[str, dict[str, Any]] = {}
    watch: bool = True


class Config(msgspec.Struct, frozen=True):
    """The settings in force, the folder that paths start from, and where each value came from."""

    settings: Settings
    base: Path
    file: Path | None = None
    origins: Mapping[str, str] = {}


def find(path: str | Path | None = None) -> Config:
    """The config at a path, at ``TOOLPOST_CONFIG``, or in this folder; else the defaults."""
    named = path or variables(PREFIX).get("TOOLPOST_CONFIG")
    if named is None and not Path(FILE_NAME).exists():
        return _made({}, None, Path.cwd())
    file = Path(named or FILE_NAME)
    if not file.exists():
        raise ConfigError(f"{file}: there is no such file. Make one with: toolpost init")
    document = read(file)
    return _made(document.data, document, file.resolve().parent, file)


def _made(
    data: dict[str, Any], document: Document | None, base: Path, file: Path | None = None
) -> Config:
    origins = {} if document is None else {k: document.where(p) for k, p in _leaves(data)}
    data = _overlaid(data, origins)
    try:
        settings = msgspec.convert(data, Settings)
    except msgspec.ValidationError as fault:
        raise ConfigError(_explained(str(fault), document)) from None
    return Config(settings, base, file, origins)


def _leaves(data: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*at, key))
        else:
            yield ".".join((*at, key)), (*at, key)


def _overlaid(data: dict[str, Any], origins: dict[str, str]) -> dict[str, Any]:
    """The data with what the environment says put on top."""
    for name, text in variables(PREFIX).items():
        if name == "TOOLPOST_CONFIG":
            continue
        path = name.removeprefix(PREFIX).lower().split("__")
        table = data = {**data}
        for step in path[:-1]:
            table[step] = {**table.get(step, {})}
            table = table[step]
        table[path[-1]] = _value(text)
        origins[".".join(path)] = f"environment {name}"
    return data


def _value(text: str) -> Any:
    """As TOML would read it; what TOML does not know is a plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explained(fault: str, document: Document | None) -> str:
    what, _, path = fault.partition(" - at `")
    steps = tuple(s for s in path.rstrip("`").removeprefix("$").replace("[...]", "").split(".") if s)
    if "unknown field `" in what:
        field = what.split("`")[1]
        what = f"unknown setting {short(field)!r}{nearest(field, Settings.__struct_fields__)}"
        steps = (*steps, field)
    place = FILE_NAME if document is None else document.where(steps)
    return f"{place}: {what[:1].lower()}{what[1:]}" + (f" (at {'.'.join(steps)})" if steps else "")
