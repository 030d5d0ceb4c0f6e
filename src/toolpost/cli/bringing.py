"""What an import writes: a spec file, what the config lacks, and the pins of what is new.

Above: the commands of ``toolpost import``. Below: the config, the lock and the file system. Nothing
that is there is written over unless that was asked for, and a tool that was pinned otherwise stays
quarantined: an import is no acceptance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.characters import visible_json
from toolpost.cli.opening import once
from toolpost.cli.terminal import safe
from toolpost.config import FILE_NAME, Config, find
from toolpost.document import as_yaml
from toolpost.errors import ConfigError
from toolpost.lock import Lock, accepted, differences, read_lock, write_lock
from toolpost.runtime import Runtime
from toolpost.spec import ToolSpec

_FRESH: Final = ("new", "unpinned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What was written where; ``quarantined`` are tools that were pinned as something else."""

    file: Path
    config: Path
    added: str
    lock: Path
    pinned: Sequence[str]
    quarantined: Sequence[str] = field(default=())


async def bring_in(
    config: Config,
    specs: Sequence[ToolSpec],
    *,
    file: Path,
    replace: bool,
    tables: Mapping[str, Mapping[str, Any]],
) -> Brought:
    """``tables`` go into the config as they are, by their headings; then the source of the file, if
    none reads it yet.
    """
    _write_specs(file, specs, replace=replace)
    source = _reader_of(config, file)
    added = "".join(_table(f"[{heading}]", table) for heading, table in tables.items())
    if source is None:
        source = {"kind": "files", "paths": [_from(config.base, file)]}
        added += _table("[[sources]]", source)
    config = _appended(config, added)
    return await _pinned(config, source, specs, file=file, added=added)


def _write_specs(file: Path, specs: Sequence[ToolSpec], *, replace: bool) -> None:
    text = _text_of(file, {"tools": [spec.to_dict() for spec in specs]})
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    try:
        with file.open("w" if replace else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.ClickException(
            f"{safe(str(file))} is there already, and says something else. Write over it with "
            "--replace, or choose another with --file."
        ) from None


def _text_of(file: Path, data: Any) -> str:
    """In the format that the file is named for."""
    if file.suffix == ".json":
        return visible_json(data) + "\n"
    if file.suffix in (".yaml", ".yml"):
        return as_yaml(data)
    raise click.ClickException(f"{safe(file.name)}: a spec file is written as .yaml or .json.")


def _reader_of(config: Config, file: Path) -> dict[str, Any] | None:
    """The source that reads the file."""
    for table in config.settings.sources:
        if table.get("kind") == "files":
            for path in table.get("paths", ()):
                relative = not Path(path).is_absolute()
                found = config.base.glob(path) if relative else [Path(path)]
                if file in found:
                    return table
    return None


def _from(base: Path, file: Path) -> str:
    return str(file.relative_to(base) if file.is_relative_to(base) else file)


def _table(heading: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(["", heading, *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = (f"{_text(key)} = {_value(one)}" for key, one in value.items())
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # what JSON says of a text, TOML understands


def _appended(config: Config, added: str) -> Config:
    """The config with more at its end. If that is not what comes of it, nothing is changed."""
    file = config.file or config.base / FILE_NAME
    if not added:
        return config
    before = file.read_bytes() if file.exists() else None
    text = added.lstrip("\n") if not before else added
    end = b"\n" if before and not before.endswith(b"\n") else b""
    try:
        with file.open("ab") as opened:  # what is there is not written again: a full disk leaves it
            opened.write(end + text.encode())
        return find(file)
    except BaseException as fault:
        if before is None:
            file.unlink(missing_ok=True)
        else:
            os.truncate(file, len(before))
        if not isinstance(fault, ConfigError):
            raise
        raise click.ClickException(
            f"{safe(str(file))} cannot be added to ({safe(fault.message)}). Put this into it by "
            f"hand:\n{safe(added)}"
        ) from fault


async def _pinned(
    config: Config, source: dict[str, Any], specs: Sequence[ToolSpec], *, file: Path, added: str
) -> Brought:
    """Pin what is new; the source as well, if nothing of it is left unpinned."""
    alone = {"sources": (source,), "observers": (), "guards": (), "store": {"kind": "memory"}}
    settings = msgspec.structs.replace(config.settings, **alone)
    runtime = Runtime(once(msgspec.structs.replace(config, settings=settings)))
    try:
        await runtime.load()
        (name,), offers, path = runtime.sources, runtime.offers, runtime.pins.file
    finally:
        await runtime.close()
    lock, names = read_lock(path) or Lock(), {spec.name for spec in specs}
    differ = [one for one in differences(lock, offers) if one.name in names]
    fresh = [one for one in differ if one.what in _FRESH]
    after = accepted(lock, fresh)
    if all(offer.spec.name in after.tools for offer in offers):
        after = accepted(after, (), sources=after.sources | {name})
    if after != lock:
        write_lock(path, after)
    return Brought(
        file=file,
        config=config.file or config.base / FILE_NAME,
        added=added,
        lock=path,
        pinned=[one.name for one in fresh],
        quarantined=[one.name for one in differ if one.what not in _FRESH],
    )
