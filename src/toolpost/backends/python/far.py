"""A tool and its call as they are in a worker's process: made of what came over the wire.

Above: ``child.py``, which imports this for the first tool whose signature is to be followed. Below:
``calling.py``. It refuses to know the wire: what a tool reports goes to a function it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import msgspec

from toolpost.backends.python.calling import Function, function_from, taking_a_mapping
from toolpost.call import Call, Caller, Progress
from toolpost.contracts import Services
from toolpost.result import Metadata
from toolpost.spec import ToolSpec

Send = Callable[[dict[str, Any]], None]
_PROGRESS_EVERY: Final = 0.02
"""More often than fifty times a second is not passed on."""


class FarTool:
    """One tool in a worker: how its function is called, and the calls it is called with."""

    def __init__(self, found: Any, *, mapping: bool, spec: str | None) -> None:
        function = getattr(found, "function", found)
        self.function: Function = (
            taking_a_mapping(function, Services()) if mapping else function_from(found)
        )
        self._spec = (
            ToolSpec(name="tool", description="A tool in a worker.")
            if spec is None
            else msgspec.json.decode(spec, type=ToolSpec)
        )

    def call(self, context: dict[str, Any], arguments: dict[str, Any], send: Send) -> Call:
        """The call that is served; ``context`` is what the other side said of it."""
        known = {key: value for key, value in context.items() if key not in ("caller", "left")}
        left = context.get("left")
        return Call(
            **{"tool": self._spec.name, "call_id": "", **known},
            spec=self._spec,
            arguments=arguments,
            caller=msgspec.convert(context.get("caller") or {"id": "owner"}, Caller),
            about=Metadata(warnings=_Warnings(send)),
            on_progress=_reporting(send),
            deadline=None if left is None else monotonic() + left,
        )


class _Warnings(list[str]):
    """Warnings are heard on the other side as they come."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def append(self, text: str) -> None:
        super().append(text)
        self._send({"type": "warning", "text": str(text)})


def _reporting(send: Send) -> Callable[[Progress], None]:
    told = 0.0

    def report(progress: Progress) -> None:
        nonlocal told
        if progress.partial is not None:
            send({"type": "partial", "output": progress.partial})
            return
        now = monotonic()
        done, total = progress.done, progress.total
        if now - told >= _PROGRESS_EVERY or (done is not None and done == total):
            told = now
            send({"type": "progress", "done": done, "total": total, "message": progress.message})

    return report
