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
from toolpost.backends.python.module_file import (
    LoadedCode,
    file_of,
    located,
    ships_with_toolpost,
)
from toolpost.backends.python.pool import Target, WorkerPool
from toolpost.backends.python.threads import Threads
from toolpost.call import Call
from toolpost.contracts import Declared, Health, Services
from toolpost.digest import file_digest
from toolpost.environ import for_child
from toolpost.errors import CallError, InvalidArguments, InvalidSpec
from toolpost.options import Options, options_from
from toolpost.plugins import SharedSandbox
from toolpost.spec import Isolation, State, ToolSpec
from toolpost.wording import redacted_and_shortened

if TYPE_CHECKING:
    from toolpost.backends.python.confined import Confined

Check = Callable[[], Coroutine[Any, Any, Health]]
_log = logging.getLogger("toolpost.tools")
_MOST_LOGGED = 8 * 1024
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class PythonOptions(Options, frozen=True):
    """``[backends.python]``: worker processes a pool at most, how many more there may be for
    principals that have none while others hold all of them, how many calls may wait for one and for
    how many seconds, calls a worker serves, threads in all, and the folders that every tool in a
    sandbox may use.
    """

    workers: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 16
    extra_workers: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 8
    worker_queue: Annotated[int, msgspec.Meta(ge=0)] = 1000
    worker_wait: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    recycle_after: Annotated[int, msgspec.Meta(ge=1)] = 1000
    threads: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


class PythonHandle:
    """One Python tool, ready: ``about`` says where it runs."""

    __slots__ = ("_check", "_code", "_isolation", "_life", "_sandbox", "_state", "run")

    def __init__(
        self,
        run: Run,
        isolation: Isolation,
        life: Life | None = None,
        *,
        code: Callable[[], str | None],
        check: Check | None = None,
        sandbox: SharedSandbox | None = None,
        state: State | None = None,
    ) -> None:
        self.run = run
        self._code = code
        self._life = life
        self._check = check
        self._isolation, self._sandbox, self._state = isolation, sandbox, state

    @property
    def about(self) -> Mapping[str, Any]:
        inside = {} if self._sandbox is None else self._sandbox.about
        own = {} if self._life is None else self._life.about
        state = {} if self._state is None else {"state": self._state}
        return {"isolation": self._isolation, **state, **inside, **own}

    def code(self, call: Call) -> str | None:
        return self._code()

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
        self._slots: dict[tuple[object, ...], dict[str, int]] = {}
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
            _refuse_state(spec, isolation)
            run = inline(function) if isolation == "inline" else threaded(function, self.threads)
            loaded = LoadedCode(_defined(target))
            run = run if life is None else life.around(run)
            return PythonHandle(run, isolation, life, code=loaded.digest)
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

    def code_of(self, spec: ToolSpec, target: object | None) -> str | None:
        """The digest of the file with a tool's code; none for a built-in one, which changes with
        the version of toolpost.
        """
        if target is None or isinstance(target, Declared):
            file = _source_file(binding_of(spec), () if target is None else (target.folder,))
        else:
            file = file_of(_defined(target))
        return None if file is None or ships_with_toolpost(file) else file_digest(file)

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
        _refuse_state(spec, isolation)
        found = _found(spec, binding_of(spec), path)
        function = function_from(found, self._services)
        run = inline(function) if isolation == "inline" else threaded(function, self.threads)
        return PythonHandle(run, isolation, code=LoadedCode(function.function).digest)

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
        state: State = spec.state or "caller"
        confined = self._confined(spec, binding, secrets, path, state) if inside else None
        pool = self._pool(spec, where, binding.env, secrets, confined, state)
        unset = _unset_variables(binding.env)

        async def run(call: Call) -> Any:
            arguments = call.arguments if convert is None else convert(call.arguments)
            target = where
            if call.code is not None:  # it was approved: the worker verifies what it loads
                target = msgspec.structs.replace(where, code=call.code)
            try:
                return await pool.run(
                    target,
                    arguments,
                    principal=call.caller.principal,
                    call=call,
                    context=None if simple else partial(_context, call),
                    on_event=_hear(call),
                )
            except Exception:
                if unset:
                    call.warn(unset)
                raise

        def code() -> str | None:
            file = _source_file(binding, path) if function is None else file_of(function.function)
            return None if file is None else file_digest(file)

        async def check() -> Health:
            health = await _loadable(pool, where)
            return Health(False, unset) if health.healthy and unset else health

        sandbox = self._sandbox if inside else None
        return PythonHandle(run, isolation, code=code, check=check, sandbox=sandbox, state=state)

    def _pool(
        self,
        spec: ToolSpec,
        where: Target,
        env: tuple[str, ...],
        secrets: tuple[str, ...],
        confined: Confined | None,
        state: State,
    ) -> WorkerPool:
        """Tools of one package that need the same surroundings share their workers: in one process
        they could meddle with each other, so they must be of one trust. There are as many workers
        as these tools have slots, up to the limit.
        """
        package = where.module.partition(".")[0]
        bounds = spec.limits.memory, spec.limits.disk
        surroundings = bounds if confined is None else confined.shape
        key = (package, where.path, env, secrets, surroundings, spec.limits.output, state)
        slots = self._slots.setdefault(key, {})
        slots[spec.name] = spec.limits.concurrency
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = WorkerPool(
                python_path=sys.path if confined is None else confined.search_path,
                env={**for_child(env), **self._told(secrets)},
                memory=spec.limits.memory,
                disk=spec.limits.disk,
                files=spec.limits.files,
                extra=self._options.extra_workers,
                state=state,
                queue=self._options.worker_queue,
                patience=self._options.worker_wait,
                recycle_after=self._options.recycle_after,
                max_output=spec.limits.output,
                starter=confined,
            )
        pool.size = min(sum(slots.values()), self._options.workers)
        return pool

    def _confined(
        self,
        spec: ToolSpec,
        binding: Binding,
        secrets: tuple[str, ...],
        path: tuple[str, ...],
        state: State,
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
            templates=0 if state == "shared" else 1,
        )
        if (sandbox := self._sandbox.opened) is not None:
            sandbox.check(confinement)
        confined: Confined = confining.Confined(self._sandbox, confinement)
        return confined

    def _told(self, secrets: tuple[str, ...]) -> dict[str, str]:
        """Secrets as variables: that is where a worker finds them, whoever keeps them here."""
        found = {name: self._services.secret(name) for name in secrets}
        return {name: value for name, value in found.items() if value is not None}


def _unset_variables(names: tuple[str, ...]) -> str:
    """What to tell people about variables under ``env`` that are not set; empty if all are."""
    there = for_child(names)
    missing = [name for name in names if name not in there]
    if not missing:
        return ""
    what = (
        f"variable {missing[0]} is" if len(missing) == 1 else f"variables {', '.join(missing)} are"
    )
    return f"The environment {what} not set, but listed under env in the spec: set it and restart."


_NOT_IMPORTABLE = (
    "{!r} asks for isolation: {}, and another process cannot import it: move the function to the "
    "top level of a module, or set isolation='thread' (which cannot be killed)"
)


def _defined(target: Any) -> Any:
    """What the code of a live tool is in: its function, or the method of its class."""
    if hasattr(target, "function"):
        return target.function
    return target.run


def _source_file(binding: Binding, path: tuple[str, ...]) -> str | None:
    return binding.main or located(binding.module, (*path, *sys.path))


_PROBE = "health"
"""The principal of health checks, which no caller can be."""


def _refuse_state(spec: ToolSpec, isolation: Isolation) -> None:
    if spec.state in ("caller", "call"):
        raise InvalidSpec(
            f"{spec.name!r} asks for state: {spec.state}, and with isolation: {isolation} all "
            "callers share this program's process: set isolation: process or sandbox"
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
        problem = await pool.run(
            probe, {"module": where.module, "function": where.qualname}, principal=_PROBE
        )
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
