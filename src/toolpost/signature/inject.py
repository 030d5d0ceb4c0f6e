"""What a function is given besides its arguments: not in the schema, never sent by a model.

    async def search(query: str, db: Injected[Db], key: Annotated[str, Secret("API_KEY")]): ...
    def read_file(path: str, *, files: Given[Settings]): ...

Above: ``describe.py`` finds these markers, the backend fills them in. Below: nothing. A class with
``__toolpost_injected__ = True``, such as ``Call``, needs no marker.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")


class Inject(msgspec.Struct, frozen=True):
    """A dependency, found by its type. ``optional``: the function does without it if need be."""

    type: Any = None
    optional: bool = False


class Secret(msgspec.Struct, frozen=True):
    """A secret, found by its name; the model never sees it."""

    name: str
    optional: bool = False


class FromSpec(msgspec.Struct, frozen=True):
    """What the tool's own spec says of a parameter, in ``given`` of its binding: settings, which
    go with the spec to whatever process runs it.
    """

    type: Any = None
    optional: bool = False


Injected = Annotated[T, Inject()]
Given = Annotated[T, FromSpec()]
