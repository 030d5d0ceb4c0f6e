"""From what a server says of its tools to specs: legal names, one each, and nothing taken on trust.

Above: ``server.py`` lists, ``source.py`` and ``toolpost import mcp`` take the specs. Below:
specs and schemas. Annotations are hints of a stranger's: every tool is of tier 2 and has effects
``once``, until somebody who knows it says otherwise in a spec file of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from toolpost.backends.mcp.launching import TIER
from toolpost.backends.mcp.settings import ServerOptions
from toolpost.characters import stripped
from toolpost.digest import digest
from toolpost.errors import InvalidSpec
from toolpost.redact.places import MARKS
from toolpost.registry import folded
from toolpost.spec import ToolSpec
from toolpost.verified import verified
from toolpost.wording import short

_PINNED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST: Final = 128
_MARK: Final = 8


class Listing(msgspec.Struct, frozen=True):
    """What a server offers: the definition of each tool as it gave it, the digest of that, and
    what was left out, with the reason.
    """

    definitions: Mapping[str, Mapping[str, Any]]
    pins: Mapping[str, str]
    left_out: Mapping[str, str]


class Offered(msgspec.Struct, frozen=True):
    """Specs, and why some tools have none: (server, tool) → reason."""

    specs: tuple[ToolSpec, ...]
    left_out: Mapping[tuple[str, str], str]


def listing_of(definitions: Iterable[Mapping[str, Any]], *, left_out: Mapping[str, str]) -> Listing:
    """What was listed, each name once."""
    kept: dict[str, Mapping[str, Any]] = {}
    pins: dict[str, str] = {}
    out = dict(left_out)
    for one in definitions:
        name = str(one["name"])
        if name in kept:
            out[name] = "the server lists the name twice: it means the first"
            continue
        try:
            pins[name] = digest({key: one[key] for key in _PINNED if key in one})
        except ValueError:
            out[name] = "its definition is no JSON: a number in it is not finite"
            continue
        kept[name] = one
    return Listing(kept, pins, out)


Names = Mapping[tuple[str, str], str]
"""(server, tool) → the name that the tool has here."""


def specs_of(
    servers: Iterable[tuple[str, ServerOptions, Listing]], known: Names | None = None
) -> Offered:
    """The specs of several servers' tools, in a fixed order; no two have names that look alike.

    A tool that is ``known`` keeps its name, and nobody else gets one that looks like it. Of those
    that are new, a tool whose name is in small letters and underscores goes first.
    """
    known = known or {}
    specs: list[ToolSpec] = []
    taken = {folded(name) for name in known.values()}
    left_out: dict[tuple[str, str], str] = {}
    for server, options, listing in servers:
        left_out |= {(server, tool): why for tool, why in listing.left_out.items()}
        for tool in sorted(listing.definitions, key=lambda tool: (folded(tool) != tool, tool)):
            own = _names(server, options, tool)
            name = known.get((server, tool), "")
            if name not in own:  # it is new, or the prefix of its server has changed
                name = own[0] if own[0] and folded(own[0]) not in taken else own[1]
            try:
                spec = _spec(name, server, options, listing, tool)
                specs.append(verified(spec))
            except InvalidSpec as fault:
                left_out[server, tool] = fault.message
                continue
            taken.add(folded(name))
    return Offered(tuple(specs), left_out)


def _spec(name: str, server: str, options: ServerOptions, listing: Listing, tool: str) -> ToolSpec:
    given = listing.definitions[tool]
    title = given.get("title") or (given.get("annotations") or {}).get("title")
    description = stripped(given.get("description") or "").strip()
    if (given.get("execution") or {}).get("taskSupport") == "required":
        raise InvalidSpec("it can be called as a task only, which is not done here")
    return ToolSpec(
        name=name,
        description=description or f"The tool {short(tool)} of the MCP server {server}.",
        kind="mcp",
        title=stripped(title) if title else None,
        category="mcp",
        tags=(server,),
        input_schema=_clean(given["inputSchema"]),
        output_schema=_clean(given.get("outputSchema")),
        binding={"server": server, "tool": tool, "pin": listing.pins[tool]},
        tier=TIER,
        effects="once",
        timeout=options.timeout,
        limits=options.tool_limits(),
    )


def _clean(schema: Any) -> Any:
    """Without the characters that a person would not see and a model reads; and without our own
    words for what may pass unredacted, which are not a stranger's to say.
    """
    if isinstance(schema, dict):
        return {
            key: stripped(value)
            if key in ("description", "title") and isinstance(value, str)
            else _clean(value)
            for key, value in schema.items()
            if key not in MARKS or value is not True
        }
    return [_clean(one) for one in schema] if isinstance(schema, list) else schema


def _names(server: str, options: ServerOptions, tool: str) -> tuple[str, str]:
    """The two names that a tool may have: its own, empty if that is too long, and one with a mark
    that no other tool has.
    """
    prefix = server if options.prefix is None else options.prefix
    legal = _ILLEGAL.sub("_", f"{prefix}.{tool}" if prefix else tool)
    legal = f"_{legal}" if legal[:1] in ("", ".", "-") else legal
    mark = digest([server, tool]).removeprefix("sha256:")[:_MARK]
    marked = f"{legal[: _LONGEST - _MARK - 1]}_{mark}"
    return legal if len(legal) <= _LONGEST else "", marked
