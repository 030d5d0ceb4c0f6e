"""Names for operations: legal, short, each once, and the same whichever operations are chosen.

Above: ``converting.py``. Below: nothing. The name is the ``operationId``, else method and path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from toolpost.digest import digest
from toolpost.sources.openapi.description import Operation

LONGEST: Final = 64
"""What every model's vendor takes."""
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MARK: Final = 8


def names_of(operations: Iterable[Operation], prefix: str) -> list[str]:
    """A name for each, in their order. The first keeps the name that two of them would have."""
    taken: set[str] = set()
    names = []
    for operation in operations:
        name = _unique(_legal(operation, prefix), operation, taken)
        taken.add(_folded(name))
        names.append(name)
    return names


def _legal(operation: Operation, prefix: str) -> str:
    path = re.sub(r"[{}]", "", operation.path.partition("#")[0])
    given = operation.id or f"{operation.method}_{path}"
    name = re.sub(r"_{2,}", "_", _ILLEGAL.sub("_", given)).strip("_.-")
    name = name or operation.method.strip("*") or "operation"
    return f"{prefix}.{name}" if prefix else name


def _unique(name: str, operation: Operation, taken: set[str]) -> str:
    if len(name) <= LONGEST and _folded(name) not in taken:
        return name
    mark = digest([operation.method, operation.path]).removeprefix("sha256:")
    for length in range(_MARK, LONGEST // 2):
        marked = f"{name[: LONGEST - length - 1]}_{mark[:length]}"
        if _folded(marked) not in taken:
            break
    return marked


def _folded(name: str) -> str:
    """As the registry compares names: by what a reader in a hurry sees."""
    return name.casefold().replace("-", "_").replace(".", "_")
