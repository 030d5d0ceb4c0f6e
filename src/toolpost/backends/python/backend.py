"""Python tools: functions and ``Tool`` classes, in the loop, in a thread or in a worker process.

Where a tool runs is decided here, once, at bind. What cannot run as its spec asks is refused with
the reason; it never runs with less.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from toolpost.backends.python import loading
from toolpost.backends.python.binding import (
    Binding,
    binding_of,
    isolation_of,
    verify,
)
from toolpost.backends.python.calling import Function, function_from, function_of
from toolpost.backends.python.here import Run, inline, threaded
from toolpost.backends.python.life import Life
from toolpost.backends.python.pool import Target, WorkerPool
from toolpost.backends.python.threads import Threads
from toolpost.call import Call
from toolpost.contracts import Declared, Health, Services
from toolpost.environ import for_child
from toolpost.errors import CallError, InvalidArguments, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox
from toolpost.spec import Isolation, ToolSpec
from toolpost.wording import redacted_and_shortened

if TYPE_CHECKING:
    from toolpost.backends.python.confined import Confined

Check = Callable[[], Coroutine[Any, Any, Health]]
_log = logging.getLogger("toolpost.tools")
_MOST_LOGGED = 8 * 1024
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class PythonOptions(Options, frozen=True):
    """``[backends.python]``: worker processes a pool, calls a worker serves, threads in all, and
    the folders that every tool in a sandbox may use.
    """

    workers: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    recycle_after: Annotated[int, msgspec.Meta(ge=1)] = 1000
    threads: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


class PythonHandle:
    """One Python tool, ready: ``about`` says where it runs."""

    __slots__ = ("_check", "_isolation", "_life", "_sandbox", "run")

    def __init__(
        self,
        run: Run,
        isolation: Isolation,
        life: Life | None = None,
        *,
        check: Check | None = None,
        sandbox: SharedSandbox | None = None,
    ) -> None:
        self.run = run
        self._life = life
        self._check = check
        self._isolation, self._sandbox = isolation, sandbox

    @property
    def about(self) -> Mapping[str, Any]:
        inside = {} if self._sandbox is None else self._sandbox.about
        own = {} if self._life is None else self._life.about
        return {"isolation": self._isolation, **inside, **own}

    def plan(self, call: Call) -> Mapping[str, Any]:
        if self._life is not None:
            self._life.refuse(call)
        return {}

    async def health(self) -> Health:
        if self._life is not None:
            return await self._life.health()
        return Health(True) if self._check is None else await self._check()

    async def close(self) -> None:
        if self._life is not None:
            await self._life.close()


class PythonBackend:
    """Runs tools of kind ``python``."""

    options: ClassVar[type[Options]] = PythonOptions
    verify = staticmethod(verify)

    def __init__(self, services: Services | None = None) -> None:
        services = services or Services()
        self._services = services
        self._options = options_from(
            services.settings.get("python", {}), PythonOptions, "backend python"
        )
        self.threads = Threads(most=self._options.threads)
        self._pools: dict[tuple[object, ...], WorkerPool] = {}
        given = services.provide.get(SharedSandbox)
        self._own = SharedSandbox()
        self._sandbox = given if isinstance(given, SharedSandbox) else self._own

    def bind(self, spec: ToolSpec, target: object | None) -> PythonHandle:
        if target is None or isinstance(target, Declared):
            return self._bind_reference(spec, () if target is None else (target.folder,))
        life = None if hasattr(target, "function") else Life(target, self._services)
        function = function_of(target, self._services) if life is None else life.function
        isolation = spec.isolation or _default(spec, function, stateful=life is not None)
        if isolation in ("inline", "thread"):
            run = inline(function) if isolation == "inline" else threaded(function, self.threads)
            return PythonHandle(run if life is None else life.around(run), isolation, life)
        if life is not None:
            raise InvalidSpec(
                f"{spec.name!r} is an object with a state, which cannot go to another process: "
                "use isolation: inline or thread, or a function"
            )
        if function.provided:
            raise InvalidSpec(
                f"{spec.name!r} has {function.provided[0]!r} injected, which cannot go to another "
                "process: make it async, or set isolation='thread' (which cannot be killed)"
            )
        if not spec.binding:
            raise InvalidSpec(_NOT_IMPORTABLE.format(spec.name, isolation))
        return self._bind_worker(spec, isolation, function)

    def gauges(self) -> dict[str, tuple[str, dict[str, float]]]:
        return {"stranded_threads": ("", {"": self.threads.stranded})}

    async def close(self) -> None:
        self.threads.close()
        for pool in self._pools.values():
            await pool.aclose()
        await self._own.close()

    def _bind_reference(self, spec: ToolSpec, path: tuple[str, ...]) -> PythonHandle:
        """A tool that is all data: its module is imported only where it runs."""
        isolation = isolation_of(spec)
        if isolation in ("process", "sandbox"):
            return self._bind_worker(spec, isolation, None, path)
        found = _found(spec, binding_of(spec), path)
        function = function_from(found, self._services)
        run = inline(function) if isolation == "inline" else threaded(function, self.threads)
        return PythonHandle(run, isolation)

    def _bind_worker(
        self,
        spec: ToolSpec,
        isolation: Isolation,
        function: Function | None,
        path: tuple[str, ...] = (),
    ) -> PythonHandle:
        """``function`` is what is known of it here; of a tool that is all data, nothing."""
        binding = binding_of(spec)
        simple = function is not None and function.takes_json and function.gives_data
        convert = function.convert if function is not None and simple else None
        where = Target(
            module=binding.module,
            qualname=binding.function,
            path=path,
            main_path=binding.main,
            described=not simple,
            mapping=function is not None and function.mapping,
            spec=None if simple else msgspec.json.encode(spec).decode(),
        )
        secrets = function.secrets if function else ()
        inside = isolation == "sandbox"
        confined = self._confined(spec, binding, secrets, path) if inside else None
        pool = self._pool(spec, where, binding.env, secrets, confined)

        async def run(call: Call) -> Any:
            arguments = call.arguments if convert is None else convert(call.arguments)
            context = None if simple else partial(_context, call)
            return await pool.run(where, arguments, context=context, on_event=_hear(call))

        async def check() -> Health:
            return await _loadable(pool, where)

        sandbox = self._sandbox if inside else None
        return PythonHandle(run, isolation, check=check, sandbox=sandbox)

    def _pool(
        self,
        spec: ToolSpec,
        where: Target,
        env: tuple[str, ...],
        secrets: tuple[str, ...],
        confined: Confined | None,
    ) -> WorkerPool:
        """Tools of one package that need the same surroundings share their workers: in one process
        they could meddle with each other, so they must be of one trust.
        """
        package = where.module.partition(".")[0]
        surroundings = spec.limits.memory if confined is None else confined.shape
        key = (package, where.path, env, secrets, surroundings, spec.limits.output)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = WorkerPool(
                python_path=sys.path if confined is None else confined.search_path,
                env={**for_child(env), **self._told(secrets)},
                memory=spec.limits.memory,
                size=self._options.workers,
                recycle_after=self._options.recycle_after,
                max_output=spec.limits.output,
                starter=confined,
            )
        return pool

    def _confined(
        self, spec: ToolSpec, binding: Binding, secrets: tuple[str, ...], path: tuple[str, ...]
    ) -> Confined:
        """What cannot be confined is refused here if the sandbox is open, else when it is called.

        Nothing of our environment goes inside but what the tool names.
        """
        confining: Any = import_module(
            "toolpost.backends.python.confined"
        )  # 12 ms, and not for all
        named = {
            name: value for name, value in for_child(binding.env).items() if name in binding.env
        }
        confinement = confining.confinement_of(
            spec,
            binding,
            beside=path,
            environment={**named, **self._told(secrets)},
            read=self._options.read,
            write=self._options.write,
        )
        if (sandbox := self._sandbox.opened) is not None:
            sandbox.check(confinement)
        confined: Confined = confining.Confined(self._sandbox, confinement)
        return confined

    def _told(self, secrets: tuple[str, ...]) -> dict[str, str]:
        """Secrets as variables: that is where a worker finds them, whoever keeps them here."""
        found = {name: self._services.secret(name) for name in secrets}
        return {name: value for name, value in found.items() if value is not None}


_NOT_IMPORTABLE = (
    "{!r} asks for isolation: {}, and another process cannot import it: move the function to the "
    "top level of a module, or set isolation='thread' (which cannot be killed)"
)


def _default(spec: ToolSpec, function: Function, *, stateful: bool) -> Isolation:
    if function.is_async:
        return "inline"
    return "thread" if stateful or spec.tier < 2 else "process"


def _found(spec: ToolSpec, binding: Binding, path: tuple[str, ...]) -> Any:
    for folder in reversed(path):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        found: Any = import_module(binding.module)
    except (Exception, SystemExit) as exc:  # a module may raise anything while it is imported
        raise InvalidSpec(
            f"{spec.name!r}: the module {binding.module!r} cannot be imported: "
            f"{type(exc).__name__}: {exc}"
        ) from exc
    _refuse_namesake(spec, binding.module.partition(".")[0], path)
    for name in binding.function.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise InvalidSpec(
            f"{spec.name!r}: the module {binding.module!r} has no function {binding.function!r}"
        )
    return found


def _refuse_namesake(spec: ToolSpec, module: str, path: tuple[str, ...]) -> None:
    """In one process there is one module of a name, which may come from elsewhere."""
    beside = PathFinder.find_spec(module, path)
    if beside is not None and beside.origin != getattr(sys.modules[module], "__file__", None):
        raise InvalidSpec(
            f"{spec.name!r}: another module {module!r} is loaded already: rename one of them, or "
            "use isolation: process"
        )


async def _loadable(pool: WorkerPool, where: Target) -> Health:
    """Whether a worker finds the function; the script that is running now is known to load."""
    if where.main_path is not None:
        return Health(True)
    probe = Target(module=loading.__name__, qualname=loading.problem.__name__, path=where.path)
    try:
        problem = await pool.run(probe, {"module": where.module, "function": where.qualname})
    except CallError as error:
        return Health(False, error.message)
    return Health(problem is None, problem)


def _context(call: Call) -> dict[str, Any]:
    """What of a call goes along to another process; asked for when that is about to begin, for
    time passes until a worker is free.
    """
    if call.metadata:
        _refuse_unless_json(call.metadata)
    return {
        "tool": call.tool,
        "call_id": call.call_id,
        "session_id": call.session_id,
        "caller": {**msgspec.structs.asdict(call.caller), "roles": sorted(call.caller.roles)},
        "working_dir": call.working_dir,
        "phase": call.phase,
        "metadata": dict(call.metadata),
        "key": call.key,
        "left": None if call.deadline is None else call.deadline - monotonic(),
    }


def _refuse_unless_json(metadata: Mapping[str, Any]) -> None:
    try:
        msgspec.json.encode(dict(metadata))
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidArguments(
            "The metadata of this call is not plain JSON data, and the tool is in another process."
        ) from exc


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
                level = _LEVELS.get(str(event.get("level")), logging.INFO)
                source = event.get("logger") or event.get("stream")
                cut = " …" if event.get("truncated") else ""
                text = redacted_and_shortened(str(event.get("text")).rstrip("\n"), _MOST_LOGGED)
                _log.log(level, "%s (%s): %s%s", call.tool, source, text, cut)

    return hear
