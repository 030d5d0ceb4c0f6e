"""Tools of the Forge contract as items of a ``Registry``: those you have, and those of a module.

Above: whoever brings a project. Below: ``item.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolpost.bridges.forge.base import BaseTool
from toolpost.bridges.forge.item import item_of
from toolpost.bridges.instances import instances_in
from toolpost.registry import Item


def tools(*given: BaseTool, module: str | None = None) -> list[Item]:
    """The same tools as tools of ours, for a ``Registry``, an ``Executor`` or a ``Runtime``.

    A source of kind ``modules`` finds them by their names in the module that their classes are in,
    or in the one that is named: ``read, write = tools(Read(), Write(), module=__name__)``.
    """
    return [item_of(tool, module=module) for tool in given]


def tools_in(namespace: Mapping[str, object]) -> list[Item]:
    """The tools that a module holds: instances, what ``tools`` has made of some, and the classes
    that it defines itself. Of a class that there is an instance of, the instance counts.
    """
    items, found = instances_in(namespace, BaseTool)  # type: ignore[type-abstract]
    return [*items, *tools(*found)]
