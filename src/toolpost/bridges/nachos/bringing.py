"""Tools of the Nachos contract, brought into a registry: ``tools`` and ``tools_in``.

Without a manifest a tool runs in this process, as it is. With one it runs in a sandbox that grants
what the manifest grants: it is given as a class, which another process can import.

Above: whoever fills a registry. Below: ``calling.py``, ``inside.py``, the public API. It refuses to
know transports.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost import (
    Call,
    Denied,
    Health,
    InvalidSpec,
    ToolSpec,
    create_tool,
)
from toolpost import Tool as OurTool
from toolpost.bridges.nachos.builtin import Builtin
from toolpost.bridges.nachos.calling import (
    executed,
    health_of,
    judged,
    params_of,
    prepared,
    refuse,
)
from toolpost.bridges.nachos.config import ToolConfig, limited
from toolpost.bridges.nachos.contract import IDS, SecurityTier, Tool
from toolpost.bridges.nachos.manifest import Manifest
from toolpost.contracts import Declared
from toolpost.environ import secret
from toolpost.registry import Entry, Item
from toolpost.rules import by_mode
from toolpost.spec import spec_from

_SAYS: Final = ("tool_id", "name", "description", "security_tier", "parameters")
_DOES: Final = ("initialize", "execute", "validate", "health_check")
_INSIDE: Final = {"module": "toolpost.bridges.nachos.inside", "function": "execute"}


def tools(
    *given: Tool | type[Any],
    config: ToolConfig | None = None,
    manifest: Manifest | Mapping[str, Any] | None = None,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
) -> list[Item]:
    """The tools as items of a registry.

    A ``config`` is theirs: its limits are held, and its mode decides, whatever else decides. With
    a ``manifest`` there is one, given as a class, and it runs in a sandbox; ``read`` and ``write``
    are folders that it may use there beside what its manifest grants.
    """
    if manifest is None:
        if tuple(read) or tuple(write):
            raise InvalidSpec("folders are granted to a tool with a manifest: it has a sandbox")
        return [_brought(_instance(one), config) for one in given]
    if len(given) != 1:
        raise InvalidSpec("a manifest is that of one tool: give one tool with each")
    return [_confined(given[0], config, Manifest.of(manifest), (tuple(read), tuple(write)))]


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools that a module holds: objects, and classes of its own that need no arguments. Of a
    class that there is an object of, the object counts.
    """
    everything = {id(one): one for one in namespace.values()}.values()
    objects = [one for one in everything if not inspect.isclass(one) and _is_tool(one)]
    there = {type(one) for one in objects}
    home = namespace.get("__name__")
    kinds = [
        one
        for one in everything
        if inspect.isclass(one) and one.__module__ == home and one not in there and _is_kind(one)
    ]
    made: list[Any] = [*objects, *filter(_is_tool, (kind() for kind in kinds))]
    return tools(*made)


def _is_tool(value: object) -> bool:
    try:
        return isinstance(value, Tool)
    except Exception:  # noqa: BLE001 - an object of somebody else's may do anything when it is asked
        return False


def _is_kind(kind: type[Any]) -> bool:
    """Whether it has what a tool does, and can be made as it is."""
    if not all(callable(getattr(kind, name, None)) for name in _DOES) or inspect.isabstract(kind):
        return False
    parameters = inspect.signature(kind).parameters.values()
    return all(
        one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        for one in parameters
    )


def _instance(given: Any) -> Any:
    tool = given() if inspect.isclass(given) else given
    if not isinstance(tool, Tool):
        missing = [name for name in (*_SAYS, *_DOES) if not hasattr(tool, name)]
        raise InvalidSpec(
            f"a {type(tool).__name__} is no tool of the Nachos contract: it has no "
            f"{', '.join(missing)}"
        )
    return tool


def _brought(tool: Any, config: ToolConfig | None) -> Item:
    if isinstance(tool, Builtin):
        entry = tool.entry(config or ToolConfig())
        entry = entry._replace(spec=limited(entry.spec, config))
    else:
        is_async = inspect.iscoroutinefunction(tool.execute)
        spec = _spec(tool, config, {"isolation": "inline" if is_async else "thread"})
        entry = Entry(spec, _Foreign(tool, config or ToolConfig()))
    return _ruled(entry, config)


class _Foreign(OurTool, name="nachos_tool", description="A tool of the Nachos contract."):
    """A tool as the road wants it. Each has a spec of its own, which is beside it in the entry."""

    def __init__(self, tool: Any, config: ToolConfig) -> None:
        self._tool, self._config = tool, config

    async def initialize(self) -> None:
        await prepared(self._tool, self._config)

    def validate(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        refuse(self._tool, arguments)
        return ()

    async def health(self) -> Health:
        return await health_of(self._tool)

    async def close(self) -> None:
        close = getattr(self._tool, "close", None)
        if close is not None:
            closing = close()
            if inspect.isawaitable(closing):
                await closing

    def run(self, arguments: dict[str, Any], *, call: Call) -> Any:
        begun = self._tool.execute(params_of(arguments, call))
        if inspect.isawaitable(begun):
            return executed(begun, call, self._config)
        return judged(begun, call, self._config)


_Foreign.signature = msgspec.structs.replace(
    _Foreign.signature, convert=lambda arguments: {"arguments": arguments}
)  # whatever a tool calls its parameters, they go in as one mapping


def _confined(
    given: Any,
    config: ToolConfig | None,
    manifest: Manifest,
    folders: tuple[tuple[str, ...], tuple[str, ...]],
) -> Item:
    tool = _instance(given)
    _agree(tool, manifest)
    if isinstance(tool, Builtin):
        raise InvalidSpec(
            f"{tool.tool_id!r} comes with toolpost, and confines itself: leave the manifest out"
        )
    if not inspect.isclass(given):
        raise InvalidSpec(
            f"{tool.tool_id!r} is an object of this process, and its sandbox is another one: give "
            f"the class, {type(tool).__name__}"
        )
    resources = manifest.capabilities.resources
    grants = {
        "version": manifest.version,
        "isolation": "sandbox",
        "egress": (egress := manifest.capabilities.network.places),
        "labels": {"external": "true"} if egress else {},
        "limits": {"memory": resources.memory, "cpus": resources.cpus},
        "binding": _binding(given, config or ToolConfig(), folders),
    }
    spec = _spec(tool, config, grants)
    return _ruled(Entry(spec, Declared(spec, _home(given))), config)


def _agree(tool: Any, manifest: Manifest) -> None:
    provides, tier = manifest.provides, _tier(tool)
    if (provides.tool, provides.security_tier) != (tool.tool_id, tier):
        raise InvalidSpec(
            f"the manifest {manifest.name!r} provides the tool {provides.tool!r} of tier "
            f"{provides.security_tier}, and this is {tool.tool_id!r} of tier {tier}: "
            "make them agree"
        )


def _binding(
    kind: type[Any], config: ToolConfig, folders: tuple[tuple[str, ...], tuple[str, ...]]
) -> dict[str, Any]:
    if kind.__module__ == "__main__" or "<" in kind.__qualname__:
        raise InvalidSpec(
            f"a sandbox cannot import {kind.__qualname__}: move it to the top level of a module"
        )
    for name, value in config.secrets.items():
        if secret(name) != value:
            raise InvalidSpec(
                f"the secret {name} is not a variable of the environment, which is the only way "
                "for it into a sandbox: set the variable, or use ToolConfig.from_toml"
            )
    try:
        msgspec.json.encode(config.config)
    except (TypeError, ValueError) as fault:
        raise InvalidSpec(f"the config of a tool in a sandbox is plain data: {fault}") from None
    read, write = folders
    brought = {
        "module": kind.__module__,
        "kind": kind.__qualname__,
        "config": config.config,
        "limits": config.limits.to_dict(),
        "mode": config.security_mode,
        "secrets": sorted(config.secrets),
        "base": str(config.base),
    }
    return {
        **_INSIDE,
        "env": sorted(config.secrets),
        "read": [str(Path(one).absolute()) for one in read],
        "write": [str(Path(one).absolute()) for one in write],
        "given": {"brought": brought},
    }


def _home(kind: type[Any]) -> str:
    """The folder that another process has to have on its path to import a class."""
    package = sys.modules[kind.__module__.partition(".")[0]]
    if package.__file__ is None:  # a package of several folders
        return str(Path(next(iter(package.__path__))).absolute().parent)
    file = Path(package.__file__).absolute()
    return str(file.parent.parent if hasattr(package, "__path__") else file.parent)


def _spec(tool: Any, config: ToolConfig | None, more: Mapping[str, Any]) -> ToolSpec:
    schema = tool.parameters
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    for name in IDS:
        if name in properties:
            raise InvalidSpec(
                f"{tool.tool_id!r} has a parameter {name!r}: every call has one already, which no "
                "model sets; take it out of parameters"
            )
    limits = {name: one for name, one in more.get("limits", {}).items() if one is not None}
    spec = spec_from(
        {
            "name": tool.tool_id,
            "title": tool.name,
            "description": tool.description,
            "tier": _tier(tool),
            "effects": "read" if tool.security_tier == SecurityTier.SAFE else "once",
            "input_schema": _plain(schema),
            **more,
            "limits": limits,
        }
    )
    return limited(spec, config)


def _tier(tool: Any) -> int:
    tier = tool.security_tier
    if isinstance(tier, int) and not isinstance(tier, bool) and 0 <= tier <= 4:
        return int(tier)
    raise InvalidSpec(f"the security tier of {tool.tool_id!r} is 0 (safe) to 4 (dangerous)")


def _plain(schema: Any) -> Any:
    """A schema may be written with mappings that cannot be changed, and with tuples."""
    if isinstance(schema, Mapping):
        return {name: _plain(one) for name, one in schema.items()}
    return [_plain(one) for one in schema] if isinstance(schema, list | tuple) else schema


def _ruled(entry: Entry, config: ToolConfig | None) -> Entry:
    """What the mode of a config says of a tier holds on every road, with a policy or without."""
    if config is None:
        return entry
    spec = entry.spec
    verdict = by_mode(spec, config.security_mode).verdict
    if verdict == "ask":
        return entry._replace(spec=msgspec.structs.replace(spec, requires_approval=True))
    return entry if verdict == "allow" else _denied(spec, config.security_mode)


def _denied(spec: ToolSpec, mode: str) -> Entry:
    """In its place something that only says so, and of which nothing leads to it."""
    tier = SecurityTier(spec.tier).name.lower()

    async def refuse(arguments: dict[str, Any]) -> None:
        raise Denied(f"{spec.name} is {tier}, which {mode} mode does not allow.", effects="none")

    told = create_tool(spec.name, spec.description, refuse, input_schema=spec.input_schema)
    return Entry(msgspec.structs.replace(spec, isolation="inline", binding={}), told)
