"""The tools every contender runs, their arguments and the answers they must give.

Plain functions at module level: a worker process finds them by module and name. Annotations are
real types, not strings, because some peers read ``__annotations__`` as they stand.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypedDict

Function = Callable[..., Any]


class Item(TypedDict):
    sku: str
    name: str
    quantity: int
    price: float
    in_stock: bool


class ItemModel(BaseModel):
    sku: str
    name: str
    quantity: int
    price: float
    in_stock: bool


async def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first addend
        b: second addend
    """
    return a + b


def add_sync(a: int, b: int) -> int:
    """Add two integers in a plain function.

    Args:
        a: first addend
        b: second addend
    """
    return a + b


async def batch(items: list[Item]) -> int:
    """Count the items of an order.

    Args:
        items: the order lines
    """
    return len(items)


async def batch_model(items: list[ItemModel]) -> int:
    """Count the items of an order, from the last one's own quantity.

    Args:
        items: the order lines
    """
    return items[-1].quantity


async def sleep0(a: int) -> int:
    """Give way to the event loop once.

    Args:
        a: comes back
    """
    await asyncio.sleep(0)
    return a


async def search(query: str, limit: int = 10, tags: list[str] | None = None) -> dict[str, str]:
    """Search one catalogue.

    Args:
        query: what to look for
        limit: how many records at most
        tags: only records with these tags
    """
    return {"query": query}


ADD: dict[str, Any] = {"a": 2, "b": 3}
BATCH: dict[str, Any] = {
    "items": [
        {
            "sku": f"SKU-{number:05d}",
            "name": f"Widget number {number}",
            "quantity": number + 1,
            "price": 9.99 + number,
            "in_stock": number % 2 == 0,
        }
        for number in range(20)
    ]
}
SEARCH: dict[str, Any] = {"query": "x", "limit": 3, "tags": ["a"]}

FUNCTIONS: dict[str, Function] = {
    "add": add,
    "batch": batch,
    "batch_model": batch_model,
    "add_sync": add_sync,
    "sleep0": sleep0,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "add": ADD,
    "batch": BATCH,
    "batch_model": BATCH,
    "add_sync": ADD,
    "sleep0": {"a": 1},
}
ANSWERS: dict[str, Any] = {"add": 5, "batch": 20, "batch_model": 20, "add_sync": 5, "sleep0": 1}
TITLES: dict[str, str] = {
    "add": "async `add(a, b)`",
    "batch": "async, 20 objects × 5 fields",
    "batch_model": "async, 20 pydantic models × 5 fields",
    "add_sync": "sync `add(a, b)`, off the event loop",
}

_SEARCH_SOURCE = '''
async def search_{number}(
    query: str, limit: int = 10, tags: list[str] | None = None
) -> dict[str, str]:
    """Search catalogue number {number}.

    Args:
        query: what to look for
        limit: how many records at most
        tags: only records with these tags
    """
    return {{"query": query}}
'''


def many_functions(count: int) -> dict[str, Function]:
    """So many functions, each with its own code, signature and docstring."""
    space: dict[str, Any] = {"__name__": __name__}
    for number in range(count):
        exec(_SEARCH_SOURCE.format(number=number), space)
    return {f"search_{number}": space[f"search_{number}"] for number in range(count)}


def spec_data(number: int) -> dict[str, Any]:
    """The same tool as data, as a source would hand it over."""
    return {
        "name": f"search_{number}",
        "description": f"Search catalogue number {number}.",
        "kind": "python",
        "binding": {"module": search.__module__, "function": "search"},
        "isolation": "inline",
        "tier": 0,
        "effects": "read",
        "input_schema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what to look for"},
                "limit": {"type": "integer", "default": 10, "description": "how many at most"},
                "tags": {"type": "array", "items": {"type": "string"}, "description": "only these"},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "object", "additionalProperties": {"type": "string"}},
    }
