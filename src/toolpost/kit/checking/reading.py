"""Tools in files, to be checked: spec files, Python files, and lists of tools as MCP has them.

Above: ``toolpost check PATH``. Below: documents and sources. A tool of a spec file that is wrong
does not keep the others from being looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.contracts import Declared
from toolpost.document import Document, read
from toolpost.errors import InvalidSpec, SourceError
from toolpost.kit.checking.subject import (
    Subject,
    faulty,
    subject_of,
    subject_of_definition,
)
from toolpost.kit.modules import entries_in, imported
from toolpost.sources.specs import own_spelling, spec_at
from toolpost.spec import spec_from
from toolpost.wording import short

SUFFIXES: Final = (".py", ".yaml", ".yml", ".json", ".toml")
_NAMED: Final = {"tier": "tier", "is_dangerous": "tier", "effects": "effects", "timeout": "timeout"}


def subjects_in(path: Path) -> list[Subject]:
    """The tools of a file; a file that cannot be read at all is a ``SourceError``."""
    if path.suffix == ".py":
        found = [subject_of(one, origin=str(path)) for one in entries_in(imported(path))]
        if not found:
            raise SourceError(f"{path}: there is no @tool and no Tool class in it")
        return found
    return list(_declared(read(path), path))


def _declared(document: Document, path: Path) -> Iterator[Subject]:
    data: Any = document.data
    listed = data.get("tools") if isinstance(data, Mapping) else data
    if not isinstance(listed, list):
        hint = " (for an OpenAPI document: --openapi)" if "openapi" in (data or ()) else ""
        raise SourceError(f"{path}: expected a list of tools, or a mapping with 'tools'{hint}")
    within = ("tools",) if isinstance(data, Mapping) else ()
    for index, item in enumerate(listed):
        if isinstance(item, Mapping) and "inputSchema" in item:
            yield subject_of_definition(item, origin=str(path))
        else:
            yield _of_spec(document, (*within, index), item, origin=str(path))


def _of_spec(
    document: Document, place: tuple[str | int, ...], item: Any, *, origin: str
) -> Subject:
    written = item if isinstance(item, Mapping) else {}
    try:
        spec = spec_at(document, place, item)
    except SourceError as fault:
        name = short(written.get("name", f"number {place[-1]}"))
        return faulty(name, InvalidSpec(fault.message), written=written, origin=origin)
    folder = str(Path(document.name).resolve().parent)
    inner = written.get("metadata")
    keys = {*written, *(inner if isinstance(inner, Mapping) else ())}
    said = frozenset(_NAMED[key] for key in keys if key in _NAMED)
    made = subject_of(Declared(spec, folder), origin=origin)
    as_written = spec_from(own_spelling(item)).to_dict()  # with what was taken out when it was read
    return msgspec.structs.replace(made, written=as_written, said=said)
