"""``toolpost --url``: the same commands, over the tools of a gateway.

Above: each command, where it opens what it works on. Below: ``toolpost.client``, imported when a
URL is given. What is seen and done there is what the key's caller may; who sits here is not asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from toolpost.cli.options import Asked
from toolpost.errors import MissingPart, ToolNotFound
from toolpost.spec import ToolSpec

if TYPE_CHECKING:
    from toolpost.client import Client


def connected(asked: Asked) -> Client:
    """A client of the gateway that was asked for: ``async with connected(asked) as client``."""
    assert asked.url is not None, "whoever has no URL works here"
    try:
        client: Client = import_module("toolpost.client").Client(asked.url, key=asked.api_key)
    except ModuleNotFoundError as exc:
        raise MissingPart(
            f'--url needs {exc.name!r}. Install it with: pip install "toolpost[http]"'
        ) from exc
    return client


async def spec_of(client: Client, name: str) -> ToolSpec | None:
    """The tool, if there is one of this name."""
    try:
        return await client.show(name)
    except ToolNotFound:
        return None
