"""The specs of a document, wherever it was read from.

A document holds ``tools:`` with a list, or just the list. Two spellings of a tool are understood:
our own, which is ``ToolSpec`` field by field, and the one with ``tool_type``,
``implementation_config`` and ``metadata``. A fault is reported as ``name:line:column: what is wrong
and how to mend it``.

Above: the sources that read documents, and whoever pushes them. Below: ``document``, ``spec``. It
refuses to know where a document comes from, and what its tools may do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolpost.document import Document
from toolpost.errors import InvalidSpec, SourceError
from toolpost.plugins import verify_binding
from toolpost.spec import ToolSpec, spec_from
from toolpost.verified import verified
from toolpost.wording import nearest, short

Place = tuple[str | int, ...]


def gathered(documents: Iterable[Document]) -> Iterator[tuple[Document, list[ToolSpec]]]:
    """The specs of each; a name that is there twice is refused, with both places."""
    places: dict[str, tuple[Document, Place]] = {}
    for document in documents:
        specs = []
        for place, spec in _specs_in(document):
            first = places.setdefault(spec.name, (document, place))
            if first != (document, place):
                raise SourceError(
                    f"{document.where(place)}: there is a tool {spec.name!r} already, at "
                    f"{first[0].where(first[1])}: rename one of them"
                )
            specs.append(spec)
        yield document, specs


def spec_at(document: Document, place: Place, item: Any) -> ToolSpec:
    """The spec that stands at a place, or a ``SourceError`` that names the line."""

    def where(at: Place) -> str:
        return document.where((*place, *_as_written(at, item)))

    try:
        spec = verified(spec_from(own_spelling(item)), where=where)
        verify_binding(spec)
    except InvalidSpec as fault:
        raise SourceError(f"{where(fault.at)}: {fault.message}") from None
    return spec


def _specs_in(document: Document) -> Iterator[tuple[Place, ToolSpec]]:
    data: Any = document.data
    at: Place = ()
    if isinstance(data, Mapping) and "tools" in data:
        for key in data:
            if key != "tools":
                raise SourceError(
                    f"{document.where((key,), key=True)}: unknown key {short(key)!r} beside 'tools'"
                )
        data, at = data["tools"], ("tools",)
    if not isinstance(data, list):
        raise SourceError(
            f"{document.where(at)}: expected a list of tools, or a mapping with the key 'tools'"
        )
    for index, item in enumerate(data):
        yield (*at, index), spec_at(document, (*at, index), item)


# The other spelling: where its fields go in ours.
_FOREIGN: Final = {"tool_type": "kind", "implementation_config": "binding"}
_METADATA: Final = (
    "version",
    "category",
    "permissions",
    "tags",
    "timeout",
    "is_dangerous",
    "requires_approval",
)
_KINDS: Final = {"sandbox": "shell"}


def own_spelling(item: Any) -> Any:
    """A tool in our own spelling. What is said twice is refused: one of the two would not count."""
    if not isinstance(item, Mapping) or not ({*_FOREIGN, "metadata"} & set(item)):
        return item
    own: dict[str, Any] = {}
    for key, value in item.items():
        if key != "metadata":
            _say(own, _FOREIGN.get(key) or key, value, at=(key,))
    if isinstance(kind := own.get("kind"), str):
        own["kind"] = _KINDS.get(kind, kind)
    binding = own.get("binding")
    if isinstance(binding, Mapping) and "function_name" in binding:
        own["binding"] = {
            ("function" if k == "function_name" else k): v for k, v in binding.items()
        }
    metadata = item.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidSpec("metadata is a mapping", at=("metadata",))
    for key, value in metadata.items():
        _say_metadata(own, key, value)
    return own


def _say_metadata(own: dict[str, Any], key: str, value: Any) -> None:
    at = ("metadata", key)
    if key not in _METADATA:
        raise InvalidSpec(f"unknown metadata {short(key)!r}{nearest(key, _METADATA)}", at=at)
    if key == "is_dangerous":
        if not isinstance(value, bool):
            raise InvalidSpec("is_dangerous is true or false", at=at)
        if value and own.setdefault("tier", 3) in (0, 1, 2):
            raise InvalidSpec("is_dangerous means tier 3 or 4, and the tier here is lower", at=at)
    elif key == "permissions" and isinstance(value, list):
        _say(own, key, {"roles": value}, at=at)
    else:
        _say(own, key, value, at=at)


def _say(own: dict[str, Any], field: str, value: Any, *, at: Place) -> None:
    if field in own:
        raise InvalidSpec(f"{field!r} is said twice, once as {'.'.join(map(str, at))!r}", at=at)
    own[field] = value


def _as_written(at: Place, item: Any) -> Place:
    """The path of a fault as the file spells it."""
    if not at or not isinstance(item, Mapping) or at[0] in item:
        return at
    for theirs, ours in _FOREIGN.items():
        if at[0] == ours and theirs in item:
            return (theirs, *at[1:])
    return ("metadata", *at)
