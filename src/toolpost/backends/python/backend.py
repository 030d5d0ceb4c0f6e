"""Python tools: functions and ``Tool`` classes, in the loop, in a thread or in a worker process.

Where a tool runs is decided here, once, at bind. What cannot run as its spec asks is refused with
the reason; it never runs with less.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, cast

import msgspec

from toolpost.backends.python.calling import Function, function_from, function_of
from toolpost.backends.python.life import Life
from toolpost.backends.python.threads import Threads
from toolpost.backends.python.worker import Target, WorkerPool
from toolpost.call import Call, Progress
from toolpost.contracts import Declared, Health, Services
from toolpost.environ import for_child
from toolpost.errors import InvalidSpec, MissingPart
from toolpost.options import Options, options_from
from toolpost.spec import Isolation, ToolSpec

Run = Callable[[Call], Coroutine[Any, Any, Any]]
_log = logging.getLogger("toolpost.tools")


class PythonOptions(Options):
    """``[backends.python]``: worker processes a pool, calls a worker serves, threads in all."""

    workers: int = 4
    recycle_after: int = 1000
    threads: int = 64


class Binding(Options):
    """Where a spec's function is, and which variables of the environment a worker may see."""

    module: str
    function: str
    env: tuple[str, ...] = ()
    main: str | None = None


class PythonHandle:
    """One Python tool, ready: ``about`` says where it runs."""

    __slots__ = ("_life", "_run", "about")

    def __init__(self, run: Run, isolation: Isolation, life: Life | None = None) -> None:
        self._run = run
        self._life = life
        self.about = {"isolation": isolation}

    def __call__(self, call: Call) -> Coroutine[Any, Any, Any]:
        return self._run(call)

    async def health(self) -> Health:
        return Health(True) if self._life is None else await self._life.health()

    async def close(self) -> None:
        if self._life is not None:
            await self._life.close()


class PythonBackend:
    """Runs tools of kind ``python``."""

    def __init__(self, services: Services = Services()) -> None:
        self._services = services
        self._options = options_from(
            services.settings.get("python", {}), PythonOptions, "backend python"
        )
        self.threads = Threads(most=self._options.threads)
        self._pools: dict[tuple[object, ...], WorkerPool] = {}

    def bind(self, spec: ToolSpec, target: object | None) -> PythonHandle:
        if target is None or isinstance(target, Declared):
            return self._bind_reference(spec, () if target is None else (target.folder,))
        life = None if hasattr(target, "function") else Life(target, self._services)
        function = function_of(target, self._services) if life is None else life.function
        isolation = spec.isolation or _default(spec, function, stateful=life is not None)
        if isolation in ("inline", "thread"):
            run = _inline(function) if isolation == "inline" else _threaded(function, self.threads)
            return PythonHandle(run if life is None else life.around(run), isolation, life)
        if life is not None:
            raise InvalidSpec(
                f"{spec.name!r} is an object with a state, which cannot go to another process: "
                "use isolation: inline or thread, or a function"
            )
        if not spec.binding:
            raise InvalidSpec(_NOT_IMPORTABLE.format(spec.name, isolation))
        described = not (function.gives_data and function.takes_json)
        return self._bind_worker(spec, isolation, described=described, env=function.secrets)

    async def close(self) -> None:
        self.threads.close()
        for pool in self._pools.values():
            await pool.aclose()

    def _bind_reference(self, spec: ToolSpec, path: tuple[str, ...]) -> PythonHandle:
        """A tool that is all data: its module is imported only where it runs."""
        isolation = spec.isolation or ("sandbox" if spec.tier >= 3 else "process")
        if isolation in ("process", "sandbox"):
            return self._bind_worker(spec, isolation, described=True, path=path)
        found = _found(spec, _binding(spec), path)
        function = function_from(found, self._services)
        run = _inline(function) if isolation == "inline" else _threaded(function, self.threads)
        return PythonHandle(run, isolation)

    def _bind_worker(
        self,
        spec: ToolSpec,
        isolation: Isolation,
        *,
        described: bool,
        path: tuple[str, ...] = (),
        env: tuple[str, ...] = (),
    ) -> PythonHandle:
        if isolation == "sandbox":
            raise MissingPart(
                f"{spec.name!r} must run in a sandbox, and this installation has none: "
                "give it isolation: process if it may run unconfined"
            )
        binding = _binding(spec)
        where = Target(
            module=binding.module,
            qualname=binding.function,
            path=path,
            main_path=binding.main,
            described=described,
        )
        pool = self._pool(spec, (*binding.env, *env))

        async def run(call: Call) -> Any:
            return await pool.run(where, call.arguments, context=_context(call), on_event=_hear(call))

        return PythonHandle(run, isolation)

    def _pool(self, spec: ToolSpec, env: tuple[str, ...]) -> WorkerPool:
        """Tools that need the same surroundings share their workers."""
        key = (env, spec.limits.memory, spec.limits.output)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = WorkerPool(
                python_path=sys.path,
                env=for_child(env),
                memory=spec.limits.memory,
                size=self._options.workers,
                recycle_after=self._options.recycle_after,
                max_output=spec.limits.output,
            )
        return pool


_NOT_IMPORTABLE = (
    "{!r} asks for isolation: {}, and another process cannot import it: move the function to the "
    "top level of a module, or set isolation='thread' (which cannot be killed)"
)


def _default(spec: ToolSpec, function: Function, *, stateful: bool) -> Isolation:
    if function.is_async:
        return "inline"
    return "thread" if stateful or spec.tier < 2 else "process"


def _inline(function: Function) -> Run:
    call_it, finish = function.call, function.finish
    if not function.is_async:

        async def run_sync(call: Call) -> Any:
            return finish(call_it(call))

        return run_sync
    if function.gives_data:
        return call_it

    async def run(call: Call) -> Any:
        return finish(await call_it(call))

    return run


def _threaded(function: Function, threads: Threads) -> Run:
    call_it, finish = function.call, function.finish

    async def run(call: Call) -> Any:
        stopped = False

        def work() -> Any:
            if function.is_async:
                return finish(asyncio.run(call_it(heard)))
            return finish(call_it(heard))

        heard = _from_thread(call, lambda: stopped)
        try:
            return await threads.run(work)
        except asyncio.CancelledError:
            stopped = True
            raise

    return run


def _from_thread(call: Call, stopped: Callable[[], bool]) -> Call:
    """The call as a thread sees it: what it reports is heard in the loop."""
    loop, hear = asyncio.get_running_loop(), call.on_progress

    def report(progress: Progress) -> None:
        if hear is not None:
            loop.call_soon_threadsafe(hear, progress)

    return cast(
        Call,
        msgspec.structs.replace(
            call, on_progress=None if hear is None else report, stopped=stopped
        ),
    )


def _binding(spec: ToolSpec) -> Binding:
    return options_from(spec.binding, Binding, f"the binding of {spec.name!r}")


def _found(spec: ToolSpec, binding: Binding, path: tuple[str, ...]) -> Any:
    for folder in reversed(path):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    found: Any = import_module(binding.module)
    for name in binding.function.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise InvalidSpec(
            f"{spec.name!r}: the module {binding.module!r} has no function {binding.function!r}"
        )
    return found


def _context(call: Call) -> dict[str, Any]:
    """What of a call goes along to another process."""
    return {
        "tool": call.tool,
        "call_id": call.call_id,
        "session_id": call.session_id,
        "caller": {**msgspec.structs.asdict(call.caller), "roles": sorted(call.caller.roles)},
        "working_dir": call.working_dir,
        "phase": call.phase,
        "metadata": dict(call.metadata),
        "key": call.key,
    }


def _hear(call: Call) -> Callable[[dict[str, Any]], None]:
    def hear(event: dict[str, Any]) -> None:
        match event:
            case {"type": "progress"}:
                call.progress(event.get("done"), event.get("total"), event.get("message"))
            case {"type": "partial"}:
                call.partial(event.get("output"))
            case {"type": "warning"}:
                call.warn(str(event.get("text")))
            case _:
                _log.info("%s: %s", call.tool, event.get("text"), extra={"call_id": call.call_id})

    return hear
