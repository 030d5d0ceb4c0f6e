"""``Extension`` with its two hooks, its priority and its manager: an adapter onto rings.

Above: the extensions that come with this contract, and anybody's own. Below: the chain, where each
becomes a ring of its own; those of a higher priority stand further out, so that they are asked
earlier and hear of the end later. It refuses to know what an extension decides.

A hook before the call that raises means that the tool does not run. The hook behind it hears of
every call that the one before it let pass, however that ended, and has the last word on its result:
if it breaks, there is none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, NamedTuple

import msgspec

from toolpost.bridges.unified.context import ToolContext, context_of
from toolpost.bridges.unified.specs import ToolSpec, from_spec
from toolpost.call import Call
from toolpost.contracts import Extension as OwnExtension
from toolpost.contracts import Ring, Road, Walk
from toolpost.errors import (
    CallError,
    Cancelled,
    ConfigError,
    Denied,
    InternalError,
    Outcome,
    Unavailable,
)
from toolpost.failure import failure
from toolpost.result import Result
from toolpost.spec import ToolSpec as OwnSpec
from toolpost.wording import nearest, short

_log = logging.getLogger("toolpost.extensions")
_encode = msgspec.json.Encoder(order="deterministic").encode


class ExtensionPriority(IntEnum):
    """The higher, the further out: asked first, told last. Of equals, in the order they came."""

    LOWEST = 0
    LOW = 25
    NORMAL = 50
    HIGH = 75
    HIGHEST = 100


class Extension:
    """Subclass it, and write one of the hooks or both; plain functions will do as well."""

    name: str = "Extension"
    priority: int = ExtensionPriority.NORMAL
    observers: Sequence[OwnExtension] = ()
    """Rings of ours that this one is made of; they are told of every call, refused ones too."""
    guards: Sequence[OwnExtension] = ()

    hooks: ClassVar[tuple[str, ...]] = ()
    """Which of the two a class has written."""

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        cls.hooks = tuple(
            hook
            for hook in ("before_execute", "after_execute")
            if getattr(cls, hook) is not getattr(Extension, hook)
        )

    def __init__(self, *, priority: int | None = None, name: str | None = None) -> None:
        if priority is not None:
            self.priority = priority
        if name is not None:
            self.name = name

    async def before_execute(self, ctx: ToolContext) -> None:
        """Raise to refuse the call; change ``ctx.args`` to have the tool called with others."""

    async def after_execute(self, ctx: ToolContext, result: Result) -> Result:
        """The result as the caller gets it."""
        return result

    async def close(self) -> None:
        """Called once, with the executor."""


class Rings(NamedTuple):
    """For an ``Executor`` or a ``Runtime`` of your own."""

    observers: tuple[OwnExtension, ...]
    guards: tuple[OwnExtension, ...]


class ExtensionManager:
    """The extensions of an executor. What is registered after its first call would not count, and
    is refused.
    """

    def __init__(self, extensions: Sequence[Extension] = ()) -> None:
        self._extensions: list[Extension] = []
        self._sealed = False
        self._states: dict[int, dict[str, Any]] = {}
        for extension in extensions:
            self.register(extension)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Outermost first."""
        return tuple(sorted(self._extensions, key=lambda one: -one.priority))

    def register(self, extension: Extension) -> None:
        self._refuse_late()
        _verify(extension)
        if any(one.name == extension.name for one in self._extensions):
            raise ConfigError(
                f"there is an extension {short(extension.name)!r} already: give one a name=…"
            )
        self._extensions.append(extension)

    def unregister(self, name: str) -> None:
        self._refuse_late()
        self._extensions.remove(self.get(name))

    def get(self, name: str) -> Extension:
        """By its name, which is that of its class unless it has another."""
        for one in self._extensions:
            if one.name == name:
                return one
        known = [one.name for one in self._extensions]
        raise ConfigError(f"there is no extension {short(name)!r}{nearest(name, known)}")

    def rings(self) -> Rings:
        """All of them as our own extensions; from here on they stay as they are."""
        self._sealed = True
        observers: list[OwnExtension] = []
        guards: list[OwnExtension] = []
        for one in self.extensions:
            observers += one.observers
            guards += one.guards
            if one.hooks:
                guards.append(_Hooked(one, self._states))
        return Rings(tuple(observers), tuple(guards))

    def _refuse_late(self) -> None:
        if self._sealed:
            raise ConfigError("the extensions are in use: register them before the first call")


def _verify(extension: Any) -> None:
    if not isinstance(extension, Extension):
        hint = ": register an instance, not the class" if inspect.isclass(extension) else ""
        said = extension.__name__ if inspect.isclass(extension) else type(extension).__name__
        raise ConfigError(f"{said} is no Extension{hint}")
    if not (extension.hooks or extension.observers or extension.guards):
        raise ConfigError(
            f"{type(extension).__name__} does nothing: write before_execute or after_execute"
        )
    if isinstance(extension.priority, bool) or not isinstance(extension.priority, int):
        raise ConfigError(
            f"the priority of {extension.name} is an ExtensionPriority, or a number between them"
        )


class _Hooked:
    """The hooks of one extension as a guard."""

    def __init__(self, extension: Extension, states: dict[int, dict[str, Any]]) -> None:
        self.name = extension.name
        self._extension, self._states = extension, states

    def bind(self, spec: OwnSpec, road: Road) -> Ring:
        return partial(self._ring, from_spec(spec))

    async def _ring(self, spec: ToolSpec, call: Call, call_next: Walk) -> Result:
        # of one call there may be several copies; what its result will say is shared by all
        key = id(call.about)
        outermost = key not in self._states
        ctx = context_of(call, spec, self._states.setdefault(key, {}))
        try:
            await self._before(ctx)
            try:
                result = await call_next(self._changed(call, ctx))
            except asyncio.CancelledError:
                gone = Cancelled("The caller went away.")
                error = failure(
                    gone, tool=call.tool, call_id=call.call_id, effects=call.spec.effects
                )
                with suppress(Exception):  # it is in the log, and the cancellation goes on
                    await self._after(ctx, Result(error=error, metadata=call.about))
                raise
            return await self._after(ctx, result)
        finally:
            if outermost:
                del self._states[key]

    async def _before(self, ctx: ToolContext) -> None:
        try:
            said = await _awaited(self._extension.before_execute, ctx)
            if said is not None and said is not ctx:
                raise TypeError(f"before_execute returned {said!r}: raise to refuse a call")
        except CallError:
            raise
        except PermissionError as exc:
            _log.info("%s refuses %s: %s", self.name, ctx.tool_name, exc)
            raise Denied(f"{self.name} does not allow this call.") from exc
        except (ConnectionError, TimeoutError) as exc:
            _log.warning("%s, before %s", self.name, ctx.tool_name, exc_info=exc)
            raise Unavailable(
                f"{self.name} cannot decide on this call right now. Try again later.",
                effects="none",
            ) from exc
        except Exception as exc:  # foreign code, which may raise anything
            _log.exception("%s failed before %s", self.name, ctx.tool_name)
            raise _broken(self.name, "none") from exc

    def _changed(self, call: Call, ctx: ToolContext) -> Call:
        """The call with the arguments as the hook has left them."""
        if _same(call.arguments, ctx.args):
            return call
        if call.about.approved is not None:
            raise Denied(
                f"{self.name} would change arguments that a person has approved. Whoever runs "
                "this system has to give it a higher priority than the approval."
            )
        call.note(self.name, "changed the arguments")
        return call.with_arguments(ctx.args)

    async def _after(self, ctx: ToolContext, result: Result) -> Result:
        try:
            said = await _awaited(self._extension.after_execute, ctx, result)
            if not isinstance(said, Result):
                raise TypeError(f"after_execute returned a {type(said).__name__}, not the result")
        except CallError as error:
            ran = result.error is None or result.error.effects != "none"
            raise (error.of_a_run() if ran else error) from error.__cause__
        except Exception as exc:  # foreign code, which may raise anything
            _log.exception("%s failed after %s", self.name, ctx.tool_name)
            effects = "done" if result.error is None else result.error.effects
            raise _broken(self.name, effects) from exc
        return said


async def _awaited(hook: Callable[..., Any], *args: Any) -> Any:
    said = hook(*args)
    return await said if inspect.isawaitable(said) else said


def _broken(name: str, effects: Outcome) -> InternalError:
    return InternalError(f"The extension {name} failed. See logs for details.", effects=effects)


def _same(before: Any, after: Any) -> bool:
    """Exactly: 1 is neither 1.0 nor true."""
    try:
        return _encode(before) == _encode(after)
    except (TypeError, ValueError, RecursionError):  # not JSON: for the check to say
        return False
