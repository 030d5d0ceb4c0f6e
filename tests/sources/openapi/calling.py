"""Calls that a description asks for, and what arrives of them: both read from the document alone.

Nothing here is taken from the importer. ``Plan`` chooses values for an operation as its description
allows them, ``received`` reads a request as the description says it is written. A tool is right if
the one is the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email import message_from_bytes
from random import Random
from typing import Any
from urllib.parse import unquote, unquote_plus

from tests.backends.http.service import Asked

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
FORMATS = {
    "date-time": "2024-01-02T03:04:05Z",
    "date": "2024-01-02",
    "uri": "https://example.com/a?b=c",
    "email": "ada@example.com",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "192.0.2.7",
    "byte": "AAEC",
}
FREE = "abcXYZ019-_.~ é/?&=%+#'\""
PLAIN = "abcXYZ019"


class Cannot(Exception):
    """This description is beyond what is needed here."""


class Operation:
    def __init__(self, document: Any, path: str, method: str) -> None:
        self.document, self.path, self.method = document, path, method
        self.about = document["paths"][path][method]
        shared = document["paths"][path].get("parameters", [])
        listed = [self.deref(one) for one in (*shared, *self.about.get("parameters", []))]
        self.parameters = {(one["in"], one["name"]): one for one in listed}
        self.content = self.deref(self.about.get("requestBody") or {}).get("content", {})

    def deref(self, value: Any) -> Any:
        while isinstance(value, dict) and "$ref" in value:
            node = self.document
            for step in value["$ref"].removeprefix("#/").split("/"):
                node = node[unquote(step).replace("~1", "/").replace("~0", "~")]
            value = node
        return value

    @property
    def media(self) -> tuple[str, Any] | None:
        for kind in (
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ):
            if kind in self.content:
                return kind, self.content[kind]
        return next(iter(self.content.items()), None)


class Plan:
    """Values for every required parameter and for some of the others."""

    def __init__(self, operation: Operation, random: Random) -> None:
        self.operation, self.random = operation, random
        self.values: dict[tuple[str, str], Any] = {}
        for key, one in operation.parameters.items():
            where, name = key
            skipped = where == "header" and name.lower() in (
                "accept",
                "content-type",
                "authorization",
            )
            wanted = one.get("required") or where == "path" or random.random() < 0.5
            if wanted and not skipped and (where != "path" or f"{{{name}}}" in operation.path):
                if "content" in one:
                    raise Cannot("a parameter with content")
                letters = FREE if where in ("path", "query") else PLAIN
                try:
                    self.values[key] = self.parameter(one, letters)
                except Cannot:
                    if one.get("required") or where == "path":
                        raise
        self.body: Any = None
        if operation.media is not None:
            kind, media = operation.media
            if kind not in ("application/json", "application/x-www-form-urlencoded"):
                raise Cannot(kind)
            self.body = self.value(media.get("schema", {}), letters=FREE)
            if kind != "application/json" and not isinstance(self.body, dict):
                raise Cannot("a form that is no object")

    def parameter(self, one: Any, letters: str) -> Any:
        value = self.value(one.get("schema", one), letters=letters)
        listed = value.values() if isinstance(value, dict) else value
        inner = listed if not isinstance(listed, str | int | float) else ()
        if "style" not in one and any(isinstance(item, dict | list) for item in inner):
            raise Cannot("a parameter that OpenAPI has no way to write")
        if isinstance(value, dict) and {name for _, name in self.operation.parameters} & set(value):
            raise Cannot("a field that cannot be told from another parameter")
        return value

    def value(self, schema: Any, *, letters: str, depth: int = 0) -> Any:
        schema = self.operation.deref(schema)
        if depth > 5:
            raise Cannot("deep")
        if "enum" in schema:
            return self.random.choice([one for one in schema["enum"] if one is not None])
        if "allOf" in schema:
            parts = [self.value(one, letters=letters, depth=depth + 1) for one in schema["allOf"]]
            own = {k: v for k, v in schema.items() if k != "allOf"}
            parts += [self.value(own, letters=letters, depth=depth)] if "properties" in own else []
            if len(parts) == 1:
                return parts[0]
            if not all(isinstance(one, dict) for one in parts):
                raise Cannot("allOf of what is no object")
            return {key: one for part in parts for key, one in part.items()}
        for key in ("oneOf", "anyOf"):
            if key in schema:
                own = {one: about for one, about in schema.items() if one != key}
                branch = self.operation.deref(schema[key][0])
                joined = {**own, **branch}
                for kept in ("properties", "required"):
                    if kept in own and kept in branch:
                        both = (own[kept], branch[kept])
                        joined[kept] = (
                            {**both[0], **both[1]} if kept == "properties" else [*both[0], *both[1]]
                        )
                return self.value(joined, letters=letters, depth=depth + 1)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        made: Any = getattr(self, f"_{kind}")(schema, letters, depth)
        return made

    def _string(self, schema: Any, letters: str, depth: int) -> str:
        form, low = schema.get("format"), schema.get("minLength", 1)
        if form == "binary":
            raise Cannot("a file")
        text = FORMATS.get(form) if form in FORMATS else None
        if text is None:
            size = max(low, min(schema.get("maxLength", 12), self.random.randint(1, 12)))
            text = (
                "x" + "".join(self.random.choices(letters, k=max(0, size - 2))) + "y" * (size > 1)
            )
        for one in (text, "abc", "a1", "12", "2024", "arn:aws:x"):
            fits = low <= len(one) <= schema.get("maxLength", 10**9)
            if fits and re.search(schema.get("pattern", ""), one):
                return one
        raise Cannot(f"no text for {schema}")

    def _integer(self, schema: Any, letters: str, depth: int) -> int:
        low = int(schema.get("minimum", 0)) + bool(schema.get("exclusiveMinimum"))
        return self.random.randint(low, int(min(schema.get("maximum", low + 50), low + 50)))

    def _number(self, schema: Any, letters: str, depth: int) -> float:
        return self._integer(schema, letters, depth) + 0.5 * ("maximum" not in schema)

    def _boolean(self, schema: Any, letters: str, depth: int) -> bool:
        return self.random.random() < 0.5

    def _array(self, schema: Any, letters: str, depth: int) -> list[Any]:
        inner = PLAIN if depth == 0 else letters  # delimiters are another test's business
        size = max(schema.get("minItems", 1), self.random.randint(1, 2))
        size = min(size, schema.get("maxItems", size))
        if schema.get("uniqueItems"):
            size = 1
        items = schema.get("items", {"type": "string"})
        return [self.value(items, letters=inner, depth=depth + 1) for _ in range(size)]

    def _object(self, schema: Any, letters: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        required = schema.get("required", [])
        for name, one in schema.get("properties", {}).items():
            about = self.operation.deref(one)
            if about.get("readOnly") or (name not in required and self.random.random() > 0.5):
                continue
            try:
                made[name] = self.value(one, letters=letters, depth=depth + 1)
            except Cannot:
                if name in required:
                    raise
        return made


def texts(value: Any) -> Any:
    """Values as they look on the wire: all are texts."""
    if isinstance(value, dict):
        return {key: texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [texts(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


def told(value: Any) -> Any:
    """As much as a form can tell: nothing of what is empty, and no list of one from its item."""
    if isinstance(value, dict):
        inner = {key: told(one) for key, one in value.items()}
        inner = {key: one for key, one in inner.items() if one not in ({}, [], None)}
        if inner and all(str(key).isdecimal() for key in inner):  # a list, by its numbers
            return told([inner[key] for key in sorted(inner, key=int)])
        return inner
    if isinstance(value, list):
        listed = [one for one in map(told, value) if one not in ({}, [], None)]
        return listed[0] if len(listed) == 1 else listed
    return value


def received(
    asked: Asked, operation: Operation, base: str
) -> tuple[dict[tuple[str, str], Any], Any]:
    """The parameters and the body of a request."""
    assert asked.method == operation.method.upper()
    target, _, query = asked.target.partition("?")
    found = dict(_path(target.removeprefix(base), operation))
    pairs = [tuple(one.partition("=")[::2]) for one in query.split("&") if one]
    for key, one in operation.parameters.items():
        where, name = key
        value: Any = None
        if where == "query":
            value = _taken(pairs, name, one, operation)
        elif where == "header" and name.lower() not in ("accept", "content-type", "authorization"):
            value = asked.header(name)
            if value is not None and _kind(one, operation) == "array":
                value = value.split(",")
        if value is not None:
            found[key] = value
    assert not pairs, f"in the query, and not in the description: {pairs}"
    return found, _body(asked, operation)


def _kind(parameter: Any, operation: Operation) -> str:
    schema = operation.deref(parameter.get("schema", parameter))
    while "type" not in schema and ("anyOf" in schema or "oneOf" in schema or "allOf" in schema):
        schema = operation.deref(
            next(schema[k] for k in ("anyOf", "oneOf", "allOf") if k in schema)[0]
        )
    kind: str = schema.get("type", "object" if "properties" in schema else "string")
    return kind


def _path(target: str, operation: Operation) -> Iterator[tuple[tuple[str, str], Any]]:
    written = operation.path.partition("#")[0].partition("?")[0]
    pattern = re.sub(r"\\{([^{}]+)\\}", r"([^/]+?)", re.escape(written))
    match = re.fullmatch(pattern, target)
    assert match, f"{target} is not {written}"
    for name, value in zip(re.findall(r"{([^{}]+)}", written), match.groups(), strict=True):
        one = operation.parameters.get(("path", name), {})
        listed = _kind(one, operation) == "array" if one else False
        yield ("path", name), [unquote(v) for v in value.split(",")] if listed else unquote(value)


def _taken(pairs: list[Any], name: str, parameter: Any, operation: Operation) -> Any:
    """A parameter out of the query: what it consists of is gone from the pairs."""
    style = parameter.get("style", "form")
    explode = parameter.get("explode", style == "form")
    kind = _kind(parameter, operation)
    if style == "deepObject":
        return _deep(pairs, name)
    if kind == "object" and explode:
        others = {one for _, one in operation.parameters}
        keys = operation.deref(parameter["schema"]).get("properties", {}).keys() - others
        made = {unquote(wire): unquote(value) for wire, value in pairs if unquote(wire) in keys}
        pairs[:] = [one for one in pairs if unquote(one[0]) not in keys]
        return made or None
    own = [value for wire, value in pairs if unquote(wire) == name]
    pairs[:] = [one for one in pairs if unquote(one[0]) != name]
    if not own:
        return None
    if kind == "array" and explode:
        return [unquote(one) for one in own]
    assert len(own) == 1, f"{name} is there {len(own)} times"
    if kind == "array":
        delimiter = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}[style]
        return [unquote(one) for one in own[0].split(delimiter)]
    return unquote(own[0])


def _deep(pairs: list[Any], name: str) -> Any:
    own = [(unquote(wire), value) for wire, value in pairs]
    mine = [one for one in own if re.match(re.escape(name) + r"(?:\[|$)", one[0])]
    pairs[:] = [one for one, shown in zip(pairs, own, strict=True) if shown not in mine]
    if not mine:
        return None
    made: Any = {}
    for wire, value in mine:
        steps = re.findall(r"\[([^\]]*)\]", wire)
        if not steps:  # a list, or a value where an object may stand as well
            made = [*made, unquote(value)] if isinstance(made, list) else [unquote(value)]
            continue
        into = made
        for step in steps[:-1]:
            into = into.setdefault(step, {})
        if steps[-1] in into:
            before = into[steps[-1]]
            into[steps[-1]] = [*(before if isinstance(before, list) else [before]), unquote(value)]
        else:
            into[steps[-1]] = unquote(value)
    return made


def _body(asked: Asked, operation: Operation) -> Any:
    if operation.media is None or not asked.body:
        assert not asked.body
        return None
    kind, media = operation.media
    sent = asked.header("Content-Type") or ""
    assert sent.partition(";")[0] == kind
    if kind == "application/json":
        return json.loads(asked.body)
    if kind == "multipart/form-data":
        return _parts(asked.body, sent)
    return _fields(asked.body.decode("ascii"), media, operation)


def _fields(text: str, media: Any, operation: Operation) -> dict[str, Any]:
    schema = operation.deref(media["schema"])
    encoding = media.get("encoding", {})
    pairs: list[Any] = [
        tuple(one.replace("+", "%20").partition("=")[::2]) for one in text.split("&")
    ]
    made: dict[str, Any] = {}
    for name, one in schema.get("properties", {}).items():
        about = {"schema": one, **encoding.get(name, {})}
        if "style" not in about and _kind(about, operation) == "object":
            own = [value for wire, value in pairs if unquote_plus(wire) == name]
            value = texts(json.loads(unquote(own[0]))) if own else None
            pairs = [pair for pair in pairs if unquote_plus(pair[0]) != name]
        else:
            value = _taken(pairs, name, about, operation)
        if value is not None:
            made[name] = value
    assert not pairs, f"in the form, and not in the description: {pairs}"
    return made


def _parts(data: bytes, kind: str) -> dict[str, Any]:
    message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + data)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
        for part in message.walk()
        if not part.is_multipart()
    }


def arguments(plan: Plan, binding: Any) -> dict[str, Any]:
    """The values under the names that the tool has for them, as its binding says."""

    def name_of(entry: Any) -> str:
        text: str = entry["value"] if isinstance(entry, dict) else entry
        return text.removeprefix("{").removesuffix("}")

    sections = {"query": "query", "header": "headers", "cookie": "cookies"}
    made: dict[str, Any] = {}
    for (where, name), value in plan.values.items():
        if where == "path":
            made[name_of(binding.get("path", {}).get(name, f"{{{name}}}"))] = value
        else:
            made[name_of(binding[sections[where]][name])] = value
    if plan.body is not None:
        body = binding.get("body", {})
        written = next((body[one] for one in ("json", "form") if one in body), {})
        if isinstance(written, str):
            made[name_of(written)] = plan.body
        else:
            made |= {name_of(written[name]): one for name, one in plan.body.items()}
    return made
