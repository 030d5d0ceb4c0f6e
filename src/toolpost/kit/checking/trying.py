"""Tools run for real, by the test kit: what only that can tell.

Above: ``toolpost check --run``. Below: ``check_tool``. A tool that changes something is run only if
that is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping

from toolpost.contracts import Backend, Handle
from toolpost.kit.checking.subject import Subject
from toolpost.plugins import Backends
from toolpost.spec import ToolSpec
from toolpost.testing import Report, check_tool


class Lent:
    """A backend that its owner closes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def bind(self, spec: ToolSpec, target: object | None) -> Handle:
        return self._backend.bind(spec, target)

    async def close(self) -> None:
        """Whoever made it closes it."""


async def tried(
    subjects: Iterable[Subject],
    *,
    backends: Backends | Mapping[str, Backend] | None = None,
    whatever_it_does: bool = False,
) -> AsyncIterator[tuple[str, Report]]:
    """The reports of those that can be run, one after the other; ``backends`` stay open."""
    for one in subjects:
        if one.entry is None or not (whatever_it_does or one.effects == "read"):
            continue
        backend = None if backends is None else backends[one.entry.spec.kind]
        lent = None if backend is None else {one.entry.spec.kind: Lent(backend)}
        yield one.name, await check_tool(one.entry, backends=lent)
