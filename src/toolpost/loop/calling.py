"""Anything that has tools, called in one way: an executor, a runtime, a client of a gateway.

Above: the loop, and the bridges to frameworks. Below: specs, results, exports. What a model said,
and in which vendor's words, is not known here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from toolpost.call import Caller
from toolpost.exporters import Export, export
from toolpost.result import Result
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost.loop")


class Tools(Protocol):
    """``list`` tells the specs, at once or when it is awaited; ``execute`` runs one tool, and has
    whatever goes wrong in its result. One that takes no ``caller`` knows by itself who asks.
    """

    @property
    def list(self) -> Callable[..., Sequence[ToolSpec] | Awaitable[Sequence[ToolSpec]]]: ...

    @property
    def execute(self) -> Callable[..., Awaitable[Result]]: ...


class Listing(msgspec.Struct, frozen=True):
    """The tools of a caller, and how they are said to a vendor."""

    specs: tuple[ToolSpec, ...]
    exported: Export

    def is_of(self, specs: Sequence[ToolSpec]) -> bool:
        """Whether it is of these very specs."""
        return len(specs) == len(self.specs) and all(map(_is, specs, self.specs))

    def written(self) -> list[tuple[ToolSpec, str, dict[str, Any]]]:
        """Every tool that could be said: its spec, its name there, what is said of it."""
        known = {spec.name: spec for spec in self.specs}
        names, tools = self.exported.names.items(), self.exported.tools
        return [
            (known[name], there, tool) for (there, name), tool in zip(names, tools, strict=True)
        ]


def verify_caller(tools: Tools, *, given: bool) -> None:
    """A caller can be named only to who asks for one."""
    if given and "caller" not in inspect.signature(tools.execute).parameters:
        raise TypeError(
            f"a {type(tools).__name__} knows by itself who asks (a client, by its key): "
            "leave caller out"
        )


async def specs_of(tools: Tools, caller: Caller | None = None) -> tuple[ToolSpec, ...]:
    """The tools that there are for this caller."""
    found = tools.list() if caller is None else tools.list(caller)
    return tuple(await found if inspect.isawaitable(found) else found)


async def listed(
    tools: Tools, form: str, *, caller: Caller | None = None, strict: bool = False
) -> Listing:
    """The tools of this caller in a vendor's form; of those that are left out, the log tells."""
    return written(await specs_of(tools, caller), form, strict=strict)


def written(specs: Sequence[ToolSpec], form: str, *, strict: bool = False) -> Listing:
    exported = export(specs, form, strict=strict)
    for note in exported.left_out:
        _log.warning("%s is left out for %s: %s", note.tool, form, note.what)
    return Listing(tuple(specs), exported)


async def called(
    tools: Tools,
    name: str,
    arguments: Mapping[str, Any],
    *,
    caller: Caller | None = None,
    session_id: str | None = None,
    grant: str | None = None,
    dry_run: bool = False,
) -> Result:
    """Run one tool; what is not said is left to who runs it."""
    more: dict[str, Any] = {"caller": caller, "session_id": session_id, "grant": grant}
    said = {key: value for key, value in more.items() if value is not None}
    if dry_run:
        said["dry_run"] = True
    return await tools.execute(name, arguments, **said)


def _is(one: object, other: object) -> bool:
    return one is other
