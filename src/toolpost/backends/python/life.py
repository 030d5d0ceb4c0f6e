"""The life of a ``Tool`` object: made on first use, initialized once, asked, closed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from toolpost.authoring import Tool
from toolpost.backends.python.calling import (
    Function,
    constructor_arguments,
    defaults,
    described,
    health_arguments,
)
from toolpost.call import Call
from toolpost.contracts import Health, Services
from toolpost.errors import InvalidArguments

Run = Callable[[Call], Coroutine[Any, Any, Any]]


class Life:
    """``target`` is an instance or a class; a class is instantiated with what is provided."""

    def __init__(self, target: Any, services: Services) -> None:
        self._class: Any = target if inspect.isclass(target) else type(target)
        self._instance: Any = None if inspect.isclass(target) else target
        self._services = services
        self._ready = False
        self._once = asyncio.Lock()

    @property
    def function(self) -> Function:
        """``run`` of an instance that may not be there yet."""

        def run(**arguments: Any) -> Any:
            return self._instance.run(**arguments)

        return msgspec.structs.replace(
            described(run, self._class.signature, self._services, defaults(self._class.run)),
            is_async=inspect.iscoroutinefunction(self._class.run),
        )

    def around(self, run: Run) -> Run:
        """The same run, with the instance ready and the arguments to its liking."""

        async def alive(call: Call) -> Any:
            _refuse(await self._get_ready(), call)
            return await run(call)

        return alive

    def refuse(self, call: Call) -> None:
        """Raise what its ``validate`` says of a call that is not to run now; nothing before it is
        ready, for ``validate`` may count on that.
        """
        unprepared = self._class.initialize is Tool.initialize
        if self._ready or (unprepared and self._instance is not None):
            _refuse(self._instance, call)

    @property
    def about(self) -> Mapping[str, Any]:
        """What the tool itself says of where its work is done."""
        about: Mapping[str, Any] = getattr(self._instance, "about", {})
        return about

    async def health(self) -> Health:
        try:
            instance = await self._get_ready()
            health: Health = await instance.health(
                **health_arguments(instance.health, self._services)
            )
            return health
        except Exception as exc:  # noqa: BLE001 - whatever keeps it from answering is why it is not healthy
            return Health(False, f"{type(exc).__name__}: {exc}")

    async def close(self) -> None:
        if self._ready:
            self._ready = False
            await self._instance.close()

    async def _get_ready(self) -> Any:
        if not self._ready:
            async with self._once:
                if not self._ready:
                    if self._instance is None:
                        self._instance = self._class(
                            **constructor_arguments(self._class, self._services)
                        )
                    await self._instance.initialize()
                    self._ready = True
        return self._instance


def _refuse(instance: Tool, call: Call) -> None:
    problems = instance.validate(call.arguments) or ()
    problems = (problems,) if isinstance(problems, str) else tuple(problems)
    if problems:
        faults = [{"at": "", "problem": problem} for problem in problems]
        raise InvalidArguments("; ".join(problems), effects="none", details={"faults": faults})
