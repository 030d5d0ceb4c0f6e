"""Words of the command line → a tool's arguments.

``a=1`` is read by the tool's input schema: text where the schema says string, JSON elsewhere.
``a:=[1]`` is JSON whatever the schema says. A key given several times makes an array where the
schema has one. ``{"a": 1}`` and ``-`` (standard input) are whole objects, which ``a=1`` completes.

Whether the arguments *fit* is not judged here: what is not JSON goes on as text, and the tool's
own check names every fault at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from toolpost.document import parse, read
from toolpost.errors import SourceError
from toolpost.schema.parameters import followed, parameters, types


def from_words(
    words: Iterable[str], schema: Mapping[str, Any], *, file: Path | None = None, stdin: str = ""
) -> dict[str, Any]:
    """The arguments; raises click's usage error for a word that cannot be one.

    ``stdin`` is what ``-`` stands for.
    """
    found: dict[str, Any] = {} if file is None else _object_in_file(file)
    texts: dict[str, list[str]] = {}
    for word in words:
        if word == "-":
            found |= _object(stdin, "standard input")
        elif word.lstrip().startswith("{"):
            found |= _object(word, "the JSON argument")
        elif (key := word.partition("=")[0]).endswith(":") and "=" in word:
            name = key.removesuffix(":")
            found[name] = _json(word.partition("=")[2], name)
        elif key and "=" in word:
            texts.setdefault(key, []).append(word.partition("=")[2])
        else:
            raise click.UsageError(
                f"{word!r} is not an argument. Write name=value, name:=JSON, a JSON object, or - "
                "for JSON from standard input."
            )
    known = parameters(schema)
    for key, given in texts.items():
        inner = known[key].schema if key in known else {}
        found[key] = _value(key, given, schema=inner, root=schema)
    return found


def _value(
    key: str, texts: list[str], *, schema: Mapping[str, Any], root: Mapping[str, Any]
) -> Any:
    allowed = types(schema, root)
    if "array" in allowed and (len(texts) > 1 or "string" not in allowed):
        return _array(key, texts, schema=_with_items(schema, root), root=root)
    if len(texts) > 1:
        raise click.UsageError(f"{key} is given {len(texts)} times, and it is not an array.")
    text = texts[0]
    if "string" in allowed:
        return text
    try:
        return parse(text, format="json", name=key).data
    except SourceError as fault:
        meant = text.strip()
        if meant[:1] in ("{", "[") or meant.lstrip("-").isdecimal():  # its own fault says more
            raise click.UsageError(f"{fault}") from None
        return text


def _array(
    key: str, texts: list[str], *, schema: Mapping[str, Any], root: Mapping[str, Any]
) -> list[Any]:
    if len(texts) == 1 and texts[0].lstrip().startswith("["):
        whole = _json(texts[0], key)
        if isinstance(whole, list):
            return whole
    items = followed(schema.get("items"), root)
    return [_value(key, [text], schema=items, root=root) for text in texts]


def _with_items(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a choice that is the array."""
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(word) or ():
            if "array" in types(inner, root):
                return _with_items(followed(inner, root), root)
    return schema


def _json(text: str, name: str) -> Any:
    try:
        return parse(text, format="json", name=name).data
    except SourceError as fault:
        raise click.UsageError(f"{fault}") from None


def _object(text: str, name: str) -> dict[str, Any]:
    return _checked(_json(text, name), name)


def _object_in_file(file: Path) -> dict[str, Any]:
    try:
        return _checked(read(file).data, str(file))
    except SourceError as fault:
        raise click.UsageError(f"{fault}") from None


def _checked(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise click.UsageError(f'{name}: arguments are a JSON object, such as {{"a": 1}}.')
    return data
