"""Tools that are given settings, where another process can import them."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from toolpost import Call, Given, tool


class Limits(msgspec.Struct, frozen=True):
    """Settings, as a set of tools has them."""

    most: int
    names: tuple[str, ...] = ()


@tool(tier=0, effects="read")
def limited(text: str, *, limits: Given[Limits]) -> dict[str, Any]:
    """Tell the limits of a text.

    :param text: The text.
    """
    return {"text": text, "most": limits.most, "names": list(limits.names), "pid": os.getpid()}


@tool(tier=0, effects="read")
async def limited_async(text: str, *, limits: Given[Limits]) -> int:
    """Tell the limit of a text, in the loop."""
    return limits.most


@tool(tier=0, effects="read")
async def same(call: Call, *, limits: Given[Limits], other: Given[Limits | None] = None) -> Any:
    """Tell which object the limits are, and whether there are others."""
    return [id(limits), other is None]
