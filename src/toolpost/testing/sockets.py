"""What a socket asks for, held against whatever is put into it: one suite for every occupant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolpost.authoring import FunctionTool, tool
from toolpost.call import Caller
from toolpost.chain import as_extension
from toolpost.contracts import Backend, Extension, Health, Ring, Sees
from toolpost.deadline import GRACE
from toolpost.executor import Executor
from toolpost.registry import Entry, Registry
from toolpost.result import Result
from toolpost.spec import ToolSpec
from toolpost.testing.report import NotApplicable, Report, must, reported

_SPECS = tuple(
    ToolSpec(name=f"t{tier}_{effects}", description="A tool.", tier=tier, effects=effects)
    for tier in range(5)
    for effects in ("read", "idempotent", "once")
)


async def check_extension(extension: Extension | Ring) -> Report:
    """Hold an extension against its socket, as a guard and as an observer.

    It may refuse calls, by raising; it may not lose, change or repeat what it does not refuse.
    """
    bench = _Ring(as_extension(extension))
    checks = {
        "name": bench.name,
        "bind": bench.bind,
        "sees": bench.sees,
        "guard": bench.as_guard,
        "observer": bench.as_observer,
        "bad calls": bench.bad_calls,
        "cancellation": bench.cancellation,
        "concurrency": bench.concurrency,
    }
    return await reported(bench.extension.name, checks)


class _Ring:
    def __init__(self, extension: Extension) -> None:
        self.extension = extension

    async def name(self) -> str:
        name = self.extension.name
        must(isinstance(name, str), "its name is not a text")
        must(name != "", "it has no name")
        return repr(name)

    async def bind(self) -> str:
        executor, counted = self._executor(), 0
        for spec in _SPECS:
            before = spec.digest
            first, second = (self.extension.bind(spec, executor) for _ in range(2))
            must(first is None or callable(first), "bind gives neither a ring nor None")
            must((first is None) == (second is None), "it applies to a tool only now and then")
            must(spec.digest == before, "it changes the spec")
            counted += first is not None
        return f"applies to {counted} of {len(_SPECS)} kinds of tool"

    async def sees(self) -> str:
        if not isinstance(self.extension, Sees):
            raise NotApplicable("it does not judge who may know of a tool")
        for spec in _SPECS:
            for caller in (Caller("owner", owner=True), Caller("somebody")):
                seen = self.extension.sees(caller, spec)
                must(isinstance(seen, bool), f"sees gives a {type(seen).__name__}")
        return "answers for every tool"

    async def as_guard(self) -> str:
        result, runs = await self._once(guards=[self.extension])
        bound = self.extension.name in result.metadata.trail
        applies = self.extension.bind(_counting([]).spec, self._executor()) is not None
        must(bound == applies, "the trail does not say that it was there")
        must(runs <= 1, f"the tool ran {runs} times")
        if result.error is None:
            return "lets a call pass"
        return f"refuses: {result.error.code}"

    async def as_observer(self) -> str:
        result, runs = await self._once(observers=[self.extension])
        if result.error is not None:
            must(runs == 0, "it refused a call that had run already")
            return f"refuses: {result.error.code}"
        must(runs == 1, f"the tool ran {runs} times")
        must(result.output == "said", "it changed the output")
        return "changes nothing"

    async def bad_calls(self) -> str:
        for executor in (
            self._executor(guards=[self.extension]),
            self._executor(observers=[self.extension]),
        ):
            async with executor:
                for name, arguments in (
                    ("counting", {"text": 5}),
                    ("no_such_tool", {}),
                    ("", None),
                ):
                    result = await executor.execute(name, arguments)
                    must(result.error is not None, f"{name!r} with {arguments} succeeded")
        return "stay bad calls"

    async def cancellation(self) -> str:
        for guards, observers in (([self.extension], []), ([], [self.extension])):
            begun = asyncio.Event()
            async with self._executor(guards=guards, observers=observers, begun=begun) as executor:
                run = asyncio.ensure_future(executor.execute("hanging"))
                entered = asyncio.ensure_future(begun.wait())
                await asyncio.wait((run, entered), return_when=asyncio.FIRST_COMPLETED)
                entered.cancel()
                run.cancel()
                done, _ = await asyncio.wait((run,), timeout=GRACE + 5)
                must(bool(done), "it keeps a cancelled call")
                must(run.cancelled() or not begun.is_set(), "it swallows a cancellation")
        return "passes through"

    async def concurrency(self) -> str:
        async with self._executor(guards=[self.extension]) as executor:
            calls = (executor.execute("counting", {"text": str(i)}) for i in range(50))
            results = await asyncio.gather(*calls)
        for i, result in enumerate(results):
            must(result.error is not None or result.output == str(i), "it mixes up calls")
        must(len({r.metadata.call_id for r in results}) == 50, "it mixes up calls")
        return "50 at once are kept apart"

    async def _once(
        self,
        *,
        guards: list[Extension] | None = None,
        observers: list[Extension] | None = None,
    ) -> tuple[Result, int]:
        runs: list[str] = []
        async with self._executor(runs, guards=guards, observers=observers) as executor:
            result = await executor.execute("counting", {"text": "said"})
        must(isinstance(result, Result), "what came back is not a result")
        must(result.metadata.call_id != "", "the result does not know its call")
        return result, len(runs)

    def _executor(
        self,
        runs: list[str] | None = None,
        *,
        guards: list[Extension] | None = None,
        observers: list[Extension] | None = None,
        begun: asyncio.Event | None = None,
    ) -> Executor:
        wrapped = [[_Kept(e) for e in given or ()] for given in (guards, observers)]
        runs = [] if runs is None else runs
        registry = Registry([_counting(runs), _hanging(begun or asyncio.Event())])
        return Executor(registry, guards=wrapped[0], observers=wrapped[1])


class _Kept:
    """The extension without its ``close``: it is tried in several executors."""

    def __init__(self, extension: Extension) -> None:
        self.name, self.bind = extension.name, extension.bind


def _counting(runs: list[str]) -> FunctionTool:
    @tool(tier=0, effects="read")
    async def counting(text: str) -> str:
        """Give back the text, and remember it."""
        runs.append(text)
        return text

    return counting


def _hanging(begun: asyncio.Event) -> FunctionTool:
    @tool(tier=0, effects="read", timeout=60)
    async def hanging() -> None:
        """Never come back."""
        begun.set()
        await asyncio.get_running_loop().create_future()

    return hanging


async def check_backend(
    backend: Backend,
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    expected: Any,
    *,
    target: object | None = None,
    slow: tuple[ToolSpec, Mapping[str, Any]] | None = None,
    slow_target: object | None = None,
) -> Report:
    """Hold a backend against its socket: a tool it runs, and what it is expected to give.

    ``slow`` is a tool with arguments that make it take at least some seconds. The backend is
    closed in the end.
    """
    bench = _Running(backend, Entry(spec, target), dict(arguments), expected)
    late = None if slow is None else (Entry(slow[0], slow_target), dict(slow[1]))
    checks = {
        "bind": bench.bind,
        "success": bench.success,
        "health": bench.health,
        "concurrency": bench.concurrency,
        "reload": bench.reload,
        "timeout": lambda: bench.timeout(late),
        "cancellation": lambda: bench.cancellation(late),
        "close": bench.close,
    }
    return await reported(spec.kind, checks, 60 + spec.time_limit)


class _Running:
    def __init__(
        self, backend: Backend, entry: Entry, arguments: dict[str, Any], expected: Any
    ) -> None:
        self.backend, self.entry = backend, entry
        self.arguments, self.expected = arguments, expected

    async def bind(self) -> str:
        handle = self.backend.bind(*self.entry)
        for member in ("run", "health", "close"):
            must(callable(getattr(handle, member, None)), f"a handle has no {member}()")
        await handle.close()
        return "gives a handle"

    async def success(self) -> str:
        async with self._executor(self.entry) as executor:
            self._same(await executor.execute(self.entry.spec.name, self.arguments))
        return f"gives {self.expected!r}"

    async def health(self) -> str:
        async with self._executor(self.entry) as executor:
            health = await executor.health(self.entry.spec.name)
        must(isinstance(health, Health), f"health gives a {type(health).__name__}")
        must(health.healthy, f"not healthy: {health.error}")
        return "healthy"

    async def concurrency(self) -> str:
        async with self._executor(self.entry) as executor:
            calls = (executor.execute(self.entry.spec.name, self.arguments) for _ in range(10))
            for result in await asyncio.gather(*calls):
                self._same(result)
        return "10 at once give the same"

    async def reload(self) -> str:
        """A tool may be bound twice for a while; the end of one is not the other's."""
        old, new = self.backend.bind(*self.entry), self.backend.bind(*self.entry)
        await old.close()
        registry = Registry([self.entry])
        async with Executor(registry, backends={self.entry.spec.kind: _Given(new)}) as executor:
            self._same(await executor.execute(self.entry.spec.name, self.arguments))
        return "a closed handle leaves its successor alone"

    async def timeout(self, slow: tuple[Entry, dict[str, Any]] | None) -> str:
        if slow is None:
            raise NotApplicable("give slow= with a tool that takes long")
        entry, arguments = slow
        async with self._executor(entry) as executor:
            run = asyncio.ensure_future(executor.execute(entry.spec.name, arguments, timeout=0.3))
            done, _ = await asyncio.wait((run,), timeout=GRACE + 10)
            must(bool(done), "it does not come back at the limit")
            error = run.result().error
        if error is None:
            raise AssertionError("it was not slow")
        must(error.code == "TIMEOUT", f"{error.code}: {error.message}")
        return f"comes back at the limit, effects {error.effects}"

    async def cancellation(self, slow: tuple[Entry, dict[str, Any]] | None) -> str:
        if slow is None:
            raise NotApplicable("give slow= with a tool that takes long")
        entry, arguments = slow
        async with self._executor(entry) as executor:
            run = asyncio.ensure_future(executor.execute(entry.spec.name, arguments))
            await asyncio.wait((run,), timeout=0.1)
            must(not run.done(), "it was not slow")
            run.cancel()
            done, _ = await asyncio.wait((run,), timeout=GRACE + 10)
            must(bool(done), "it keeps a cancelled call")
            must(run.cancelled(), "it swallows a cancellation")
        return "ends with its caller"

    async def close(self) -> str:
        await self.backend.close()
        return "closes"

    def _same(self, result: Result) -> None:
        if result.error is not None:
            raise AssertionError(f"{result.error.code}: {result.error.message}")
        must(result.output == self.expected, f"gives {result.output!r}, not {self.expected!r}")

    def _executor(self, entry: Entry) -> Executor:
        return Executor(Registry([entry]), backends={entry.spec.kind: _Open(self.backend)})


class _Open:
    """The backend without its end: it is tried in several executors."""

    def __init__(self, backend: Backend) -> None:
        self.bind = backend.bind

    async def close(self) -> None:
        """It is closed when everything has been tried."""


class _Given:
    """A backend with one handle to give."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def bind(self, spec: ToolSpec, target: object | None) -> Any:
        return self._handle

    async def close(self) -> None:
        """The handle closes with its tool."""
