"""Whether a tool of the Forge contract looks at ``context.dry_run`` itself.

Such a tool is called on a dry run, because the contract leaves the preview to it; every other tool
is not. ``PREVIEWS`` of its class decides; where it is ``None``, the code of the class does.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

_OURS: Final = "toolpost.bridges.forge."


def handles_dry_run(tool: Any) -> bool:
    """Whether a method of the tool's class reads the attribute ``dry_run`` of its context."""
    if tool.PREVIEWS is not None:
        return bool(tool.PREVIEWS)
    own = [kind for kind in type(tool).__mro__[:-1] if not kind.__module__.startswith(_OURS)]
    methods = [method for kind in own for method in vars(kind).values()]
    return any(_reads_it(code) for method in methods for code in _codes(method))


def _codes(method: object) -> Iterator[CodeType]:
    plain = inspect.unwrap(getattr(method, "__func__", method))  # type: ignore[arg-type]
    if inspect.isfunction(plain):
        yield from _nested(plain.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _reads_it(code: CodeType) -> bool:
    """``context.dry_run``, but not ``self.dry_run``, which is a setting of the tool's own."""
    before: object = None
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_ATTR" and step.argval == "dry_run" and before != "self":
            return True
        if step.opname.startswith("LOAD_"):
            before = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return False
