"""An OpenAPI document: what it is, which operations it has, and where its references lead.

Above: everything else of this folder. Below: ``document``, which has read it. References are
followed inside the document and nowhere else: nothing is ever fetched or opened because a document
names it. It refuses to know what an operation becomes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from toolpost.document import Document
from toolpost.errors import SourceError
from toolpost.plain import pointer
from toolpost.wording import short

METHODS: Final = ("get", "head", "options", "post", "put", "patch", "delete")
_OTHER_METHODS: Final = ("trace", "query")
_VERSIONS: Final = re.compile(r"3\.[012](?:\.\d+)?(?:-.*)?")
_MOST_HOPS: Final = 64

Place = tuple[str | int, ...]
Object = Mapping[str, Any]


class Unfit(Exception):
    """Something in the document cannot be used: why, and where that is."""

    def __init__(self, why: str, at: Place) -> None:
        super().__init__(why)
        self.why = why
        self.at = at


class Operation(NamedTuple):
    """One method of one path, as it is written; ``around`` is the path with what it says for all
    of its methods.
    """

    method: str
    path: str
    written: Any
    around: Object
    at: Place

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.method.upper()} {self.path}"

    @property
    def id(self) -> str | None:
        given = self.written.get("operationId") if isinstance(self.written, Mapping) else None
        return given if isinstance(given, str) and given.strip() else None

    @property
    def tags(self) -> tuple[str, ...]:
        given = self.written.get("tags") if isinstance(self.written, Mapping) else None
        return tuple(texts_in(given))


class Description:
    """A document that says it is OpenAPI 3, and its operations."""

    def __init__(self, document: Document) -> None:
        data = document.data
        if not isinstance(data, Mapping) or not ({"openapi", "swagger"} & set(data)):
            raise SourceError(
                f"{document.where()}: this is no OpenAPI document: it has no field 'openapi'"
            )
        version = data.get("openapi")
        if not isinstance(version, str) or not _VERSIONS.fullmatch(version):
            said = short(data.get("swagger") if version is None else version)
            raise SourceError(
                f"{document.where(('openapi',))}: OpenAPI {said} is not read, but 3.0, 3.1 and "
                "3.2 are: convert the document first"
            )
        paths = data.get("paths", {})
        if not isinstance(paths, Mapping):
            raise SourceError(f"{document.where(('paths',))}: paths are a mapping")
        self.data: Object = data
        self.name = document.name
        self.is_old = version.startswith("3.0")
        """Schemas are those of 3.0, which is a dialect of its own."""
        self._paths = paths

    def operations(self) -> Iterator[Operation]:
        """Everything that looks like an operation, whatever is wrong with it."""
        for path, item in self._paths.items():
            at: Place = ("paths", path)
            if path.startswith("x-"):
                continue
            try:
                around = self._path_item(item, at)
            except Unfit as fault:
                yield Operation("*", path, fault, {}, fault.at)
                continue
            for method in (*METHODS, *_OTHER_METHODS):
                if method in around:
                    yield Operation(method, path, around[method], around, (*at, method))

    def followed(self, value: Any, at: Place) -> tuple[Object, Place]:
        """The object itself, or the one that its ``$ref`` leads to, and where that stands."""
        seen: set[str] = set()
        while isinstance(value, Mapping) and "$ref" in value:
            reference = value["$ref"]
            if not isinstance(reference, str) or reference in seen or len(seen) == _MOST_HOPS:
                raise Unfit("this reference leads in a circle, or is none", at)
            seen.add(reference)
            value, at = self.target(reference, at)
        if not isinstance(value, Mapping):
            raise Unfit("expected a mapping", at)
        return value, at

    def target(self, reference: str, at: Place) -> tuple[Any, Place]:
        """What a reference names, and where that stands."""
        if not reference.startswith("#/"):
            raise Unfit(
                f"it refers to {short(reference)!r}, outside of the document, which is not "
                "fetched: bundle the documents into one first",
                at,
            )
        node: Any = self.data
        there: Place = ()
        for escaped in reference[2:].split("/"):
            step: str | int = unquote(escaped).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and re.fullmatch(r"\d{1,6}", str(step)):
                step = int(step)
            known = step in node if isinstance(node, Mapping) else isinstance(step, int)
            if not known or (isinstance(node, list) and int(step) >= len(node)):
                raise Unfit(f"there is nothing at {short(reference)!r}", at)
            node, there = node[step], (*there, step)
        return node, there

    def _path_item(self, item: Any, at: Place) -> Object:
        """A path with what it takes from another one: what it says itself comes first."""
        if isinstance(item, Mapping) and "$ref" in item:
            taken, _ = self.followed(item, at)
            return {**taken, **{key: one for key, one in item.items() if key != "$ref"}}
        if not isinstance(item, Mapping):
            raise Unfit("expected a mapping", at)
        return item


def texts_in(value: Any) -> Iterator[str]:
    """The texts of a list, if it is one."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))


def mapping_in(value: Object, key: str, at: Place) -> Object:
    """A mapping inside of another one; what is not there is empty."""
    found = value.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise Unfit(f"{key} is a mapping", (*at, key))
    return found


def said(at: Place) -> str:
    """A place for people: a JSON pointer."""
    return f"#{pointer(at)}"
