"""Tool objects of other contracts: made with what their constructors name, found in modules, let go
when nobody is inside any more.

Above: the factory of ``forge`` and the container of ``faultmaven``. What a tool does is not known
here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from toolpost import FunctionTool, InvalidSpec, Unavailable
from toolpost.registry import Item

_log = logging.getLogger("toolpost.tools")
T = TypeVar("T")
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_GONE: Final = "This tool has been removed. Use another tool."


def made(kind: type[T], offered: Mapping[str, object]) -> T:
    """An instance. What the constructor names it gets; the rest only if it takes ``**kwargs``."""
    if kind.__init__ is object.__init__:
        return kind()
    parameters = inspect.signature(kind).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return kind(**offered)
    named = {one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY}
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if missing := [name for name in needed if name not in offered]:
        raise InvalidSpec(
            f"{kind.__name__} wants {', '.join(missing)}, which nobody provides: "
            "give it a default, or make the instance yourself"
        )
    return kind(**{name: value for name, value in offered.items() if name in named})


def marked(running: Callable[..., Any], tool: object, module: str | None) -> Callable[..., Any]:
    """What runs a foreign tool says whose it is, and where it is to be found."""
    running.__module__ = module or type(tool).__module__
    running.brought = type(tool)  # type: ignore[attr-defined]
    return running


def instances_in(
    namespace: Mapping[str, object], base: type[T], offered: Mapping[str, object] = _NOTHING
) -> tuple[list[Item], list[T]]:
    """What a module holds of a contract: items that were made of its tools, and tools that were
    not. Of the classes that it defines itself each has an instance, there or made here with what
    its constructor names of ``offered``.
    """
    everything = {id(value): value for value in tuple(namespace.values())}.values()
    functions = [value for value in everything if isinstance(value, FunctionTool)]
    kinds = {id(one): getattr(one.function, "brought", None) for one in functions}
    items: list[Item] = [
        one
        for one in functions
        if isinstance(kind := kinds[id(one)], type) and issubclass(kind, base)
    ]
    found = [value for value in everything if isinstance(value, base)]
    there = {*kinds.values(), *map(type, found)}
    for value in everything:
        if inspect.isclass(value) and issubclass(value, base) and value not in there:
            own = namespace.get("__name__", value.__module__) == value.__module__
            if own and not inspect.isabstract(value):
                found.append(made(value, offered))
    return items, found


class Living(Generic[T]):
    """An instance, who is inside, and its end: the first of the methods ``last`` that it has, async
    or not, is called once, when the last call has left. ``once``: it lives for one call.

    ``async with`` gives the tool for the time of a call; ``run`` does so in a thread.
    """

    def __init__(self, tool: T, *, last: Sequence[str], once: bool = False) -> None:
        self._tool: T | None = tool
        self._last, self._once = last, once
        self._inside, self._ending = 0, False
        self._home: asyncio.AbstractEventLoop | None = None
        self._lock = Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def tool(self) -> T:
        if self._tool is None:
            raise Unavailable(_GONE, retryable=False, remedy="other_tool", effects="none")
        return self._tool

    async def end(self) -> None:
        """From now on nobody comes in; what is inside may finish."""
        with self._lock:
            self._ending, self._home = True, asyncio.get_running_loop()
            empty = not self._inside
        if empty:
            await self._over()

    def __enter__(self) -> T:
        with self._lock:
            tool = self.tool
            if self._ending:
                raise Unavailable(_GONE, retryable=False, remedy="other_tool", effects="none")
            self._inside += 1
            self._ending = self._once
            return tool

    def __exit__(self, *exc: object) -> None:
        if not self._leave():
            return
        if self._home is None or self._home.is_closed():
            asyncio.run(self._over())
        else:
            self._home.call_soon_threadsafe(self._begin)

    async def __aenter__(self) -> T:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        if self._leave():
            await self._over()

    def run(self, work: Callable[[T], Any]) -> Any:
        """In a thread: what ``work`` gives; if that is still to come, the tool stays until then."""
        tool, later = self.__enter__(), False
        try:
            given = work(tool)
            later = inspect.isawaitable(given)
            return self._awaited(given) if later else given
        finally:
            if not later:
                self.__exit__()

    async def _awaited(self, given: Awaitable[Any]) -> Any:
        try:
            return await given
        finally:
            await self.__aexit__()

    def _leave(self) -> bool:
        with self._lock:
            self._inside -= 1
            return self._ending and not self._inside

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._over())

    async def _over(self) -> None:
        with self._lock:
            tool, self._tool = self._tool, None
        methods = (getattr(tool, name, None) for name in self._last)
        method = next((one for one in methods if callable(one)), None)
        if tool is None or method is None:
            return
        try:
            answer = method()
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # noqa: BLE001 - foreign code, and there is nobody to tell but the log
            _log.exception("a %s did not close", type(tool).__name__)
