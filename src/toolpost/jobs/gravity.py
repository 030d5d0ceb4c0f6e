"""What repeating a call may do: the effects of its tool, or of the gravest that it may come to.

Above: ``desk``, and the doors, which have to say it of calls that they cut off. Below: the
registry. It refuses to know what has been done.
"""

from __future__ import annotations

from typing import Final

from toolpost.registry import Registry
from toolpost.spec import Effects

_GRAVITY: Final[tuple[Effects, ...]] = ("read", "idempotent", "once")


def gravest(registry: Registry, name: str) -> Effects:
    """Of a tool and those that it may hand over to; of one that is not there, the gravest."""
    found, seen = list[Effects](), set[str]()
    spec = registry.get(name)
    while spec is not None and spec.name not in seen:
        seen.add(spec.name)
        found.append(spec.effects)
        spec = None if spec.fallback is None else registry.get(spec.fallback)
    return max(found, key=_GRAVITY.index, default="once")
