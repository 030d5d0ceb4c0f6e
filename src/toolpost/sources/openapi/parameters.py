"""The parameters of an operation: arguments, and their places in path, query, headers, cookies.

Above: ``converting.py``. Below: ``arguments.py``, ``schemas.py``. A parameter that the protocol or
the security of the operation has a place for is nobody's argument.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from toolpost.sources.openapi.arguments import Arguments, entry
from toolpost.sources.openapi.description import (
    Description,
    Object,
    Operation,
    Place,
    Unfit,
    mapping_in,
)
from toolpost.sources.openapi.schemas import Schemas
from toolpost.sources.openapi.translating import Schema
from toolpost.wording import short

_WHERE: Final = ("path", "query", "header", "cookie")
_STYLES: Final[Mapping[str, Collection[str]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_NOT_ARGUMENTS: Final = frozenset(
    (
        "accept", "content-type", "authorization", "proxy-authorization", "cookie", "cookie2",
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
        "upgrade", "proxy-connection", "expect", "accept-encoding",
    )
)  # fmt: skip
"""Headers that the description, the credentials or the connection decide."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HOLE: Final = re.compile(r"\{([^{}]+)\}")
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)

Key = tuple[str, str]


class Parameter(NamedTuple):
    """One parameter as it is written."""

    name: str
    where: str
    written: Object
    at: Place


def parameters_of(description: Description, operation: Operation) -> dict[Key, Parameter]:
    """Those of the path and those of the operation, which replace them."""
    found: dict[Key, Parameter] = {}
    at: Place = operation.at[:-1]
    for holder, place in ((operation.around, at), (operation.written, operation.at)):
        listed = holder.get("parameters") or []
        if not isinstance(listed, list):
            raise Unfit("parameters are a list", (*place, "parameters"))
        for number, given in enumerate(listed):
            written, there = description.followed(given, (*place, "parameters", number))
            name, where = written.get("name"), written.get("in")
            if not isinstance(name, str) or where not in _WHERE:
                raise Unfit(
                    f"a parameter has a name and is in {', '.join(_WHERE)}, not {short(where)!r}",
                    there,
                )
            key = (where, name.lower() if where == "header" else name)
            found[key] = Parameter(name, where, written, there)
    return found


class Placing:
    """Puts the parameters of one operation into its binding."""

    def __init__(self, schemas: Schemas, arguments: Arguments, taken: Collection[Key]) -> None:
        """``taken``: what is sent as a credential."""
        self._schemas = schemas
        self._arguments = arguments
        self._taken = taken
        self.path: dict[str, Any] = {}
        self.binding: dict[str, dict[str, Any]] = {"query": {}, "headers": {}, "cookies": {}}

    def place(self, operation: Operation, parameters: Mapping[Key, Parameter]) -> str:
        """The path with its holes; the rest goes into ``binding``."""
        path = self._placed_path(operation, parameters)
        for (where, _), one in parameters.items():
            if where != "path" and self._is_argument(one):
                self._put(one)
        return path

    def _placed_path(self, operation: Operation, parameters: Mapping[Key, Parameter]) -> str:
        written, _, query = operation.path.partition("#")[0].partition("?")
        if re.search(r"[{}]", _HOLE.sub("", written)):
            raise Unfit("the braces of the path do not name its parameters", operation.at[:-1])
        self._put_written(query, operation, parameters)
        for name in dict.fromkeys(_HOLE.findall(written)):
            given = parameters.get(("path", name))
            if given is None:  # many a document forgets to say what is plain to see
                given = Parameter(name, "path", {"schema": {"type": "string"}}, operation.at)
            hole = re.sub(r"[/?#]", "_", name)
            style, schema = self._style(given), self._schema(given)
            argument = self._arguments.add(name, "path", schema, required=True)
            explode = _flag(given.written.get("explode"))
            made = entry(argument, "path", style=style, explode=explode)
            if made != f"{{{hole}}}":
                self.path[hole] = made
            written = written.replace(f"{{{name}}}", f"{{{hole}}}")
        return written

    def _put_written(
        self, query: str, operation: Operation, parameters: Mapping[Key, Parameter]
    ) -> None:
        """A query in the path itself: fixed values, unless a parameter has the name."""
        for name, value in parse_qsl(query, keep_blank_values=True):
            hole = _HOLE.fullmatch(value)
            if ("query", name) in parameters:
                continue
            if hole is None:
                self.binding["query"][name] = value.replace("{", "{{").replace("}", "}}")
            else:
                given = parameters.get(("path", hole[1])) or parameters.get(("query", hole[1]))
                if given is None:
                    raise Unfit("the braces of the path do not name its parameters", operation.at)
                self._put(Parameter(name, "query", given.written, given.at))

    def _is_argument(self, one: Parameter) -> bool:
        if (one.where, one.name.lower()) in self._taken:
            return False
        if one.where == "header" and one.name.lower() in _NOT_ARGUMENTS:
            return False
        if one.where in ("header", "cookie") and not _TOKEN.fullmatch(one.name):
            if one.written.get("required") is True:
                raise Unfit(f"{short(one.name)!r} is no name for a {one.where}", one.at)
            return False
        return True

    def _put(self, one: Parameter) -> None:
        written = one.written
        required = written.get("required") is True
        name = self._arguments.add(one.name, one.where, self._schema(one), required=required)
        section = {"query": "query", "header": "headers", "cookie": "cookies"}[one.where]
        self.binding[section][one.name] = entry(
            name,
            one.where,
            style=self._style(one),
            explode=_flag(written.get("explode")),
            allow_reserved=one.where == "query" and written.get("allowReserved") is True,
        )

    def _style(self, one: Parameter) -> str | None:
        if self._content(one) is not None:
            return "json"
        style = one.written.get("style")
        if style is not None and style not in _STYLES[one.where]:
            raise Unfit(f"{short(style)!r} is no style for a parameter in {one.where}", one.at)
        return style

    def _schema(self, one: Parameter) -> Schema:
        written, at = one.written, one.at
        content = self._content(one)
        if content is not None:
            schema, at = content
        elif "schema" in written:
            schema, at = written["schema"], (*at, "schema")
        else:  # as it was written before there was an OpenAPI 3
            schema = {
                key: written[key] for key in ("type", "format", "enum", "items") if key in written
            }
        if isinstance(schema, Mapping) and isinstance(written.get("description"), str):
            schema = {**schema, "description": written["description"]}
        made = dict(self._schemas.translated(schema, at))
        if written.get("deprecated") is True:
            made["deprecated"] = True
        return made

    def _content(self, one: Parameter) -> tuple[Any, Place] | None:
        """The schema of a parameter that is written as a document of its own, which is JSON."""
        content = mapping_in(one.written, "content", one.at)
        if not content:
            return None
        kind, media = next(iter(content.items()))
        if not _JSON.fullmatch(kind) or not isinstance(media, Mapping):
            raise Unfit(f"a parameter cannot be written as {short(kind)!r} here", one.at)
        return media.get("schema", {}), (*one.at, "content", kind, "schema")


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
