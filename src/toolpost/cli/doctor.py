"""``toolpost doctor``: does everything work here, and if not, what is to be done?

Above: ``main.py``. Below: everything, used as a program would use it: tools are bound and asked how
they are, a tool runs in each kind of isolation, one that leaves a daemon behind is stopped, and the
sandbox is attacked from inside. Nothing is deduced from the presence of a file that could be tried
instead.
"""

from __future__ import annotations

import asyncio
import fcntl
import platform
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, get_args

import click

from toolpost import environ
from toolpost.cli.attacked import Which, sandbox
from toolpost.cli.findings import Finding, Verdict, show, show_attacks
from toolpost.cli.opening import asking, left_out, once, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.probe import leave_daemon, pid_namespace
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import counted, print_json
from toolpost.clock import SystemClock
from toolpost.config import FILE_NAME, Config, Settings, find, unlisted
from toolpost.contracts import Health
from toolpost.errors import CallError, SetupError
from toolpost.executor import Executor
from toolpost.gateway.identity.keys import Keys
from toolpost.gateway.identity.unmatched import unmatched
from toolpost.gateway.settings import settings_of
from toolpost.parts import idle, store_of
from toolpost.registry import Registry
from toolpost.runtime import Runtime
from toolpost.spec import Isolation, ToolSpec
from toolpost.stores.kept import REMEDIES

_PATIENCE: Final = 10.0
_MEND: Final = "mend the definition"
_REFUSED: Final = "till then calls that have to be on record are refused"
_TODO: Final = {"store": _REFUSED, "extension audit": f"see: toolpost audit verify; {_REFUSED}"}
_NOT_FOR_USERS: Final = frozenset(("dev",))
_NO_ISOLATION: Final = {
    "sandbox": "tools that need a sandbox are refused; `isolation: process` runs them unconfined",
    "process": "tools that need a process are refused; a tool that hangs cannot be killed",
}


@click.command("doctor")
@click.option(
    "--probe",
    "which",
    type=click.Choice(get_args(Which)),
    default="here",
    show_default=True,
    help="Attack the sandbox as it is here, at every level that can be had (all), or not at all.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Accept that the store lost data. Until then, health and every start say so.",
)
@json_option
@pass_asked
def command(asked: Asked, *, which: Which, accept_loss: bool, as_json: bool) -> None:
    """Check that everything here works.

    Loads every source, binds every tool, runs a tool in each kind of isolation, stops one that
    leaves a daemon behind, and attacks the sandbox from inside, which takes some seconds. Ends with
    1 if something fails: a tool that cannot be confined as it asks, an attack that gets out.
    """
    if accept_loss:
        store_of(find(asked.config)).accept_loss()
    findings = run(asked, _examined(asked, which))
    if as_json:
        print_json([one.to_dict() for one in findings])
    else:
        show(asked, findings)
        if which == "all":
            show_attacks(asked, findings)
    if any(one.verdict == "fail" for one in findings):
        click.get_current_context().exit(1)


async def _examined(asked: Asked, which: Which) -> list[Finding]:
    with Bar("checking", asked=asked) as bar:
        found = [_python(), _system()]
        config, finding = _config(asked)
        found.append(finding)
        if config is not None:
            found += [one async for one in _project(config, bar)]
        found += [one async for one in _isolation()]
        if platform.system() == "Linux":
            found += [one async for one in _sandbox(config, which, bar)]
        found += _extras()
    return found


def _python() -> Finding:
    return Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _system() -> Finding:
    name = platform.system()
    if name == "Linux":
        return Finding("system", "ok", f"Linux {platform.release()}")
    return Finding("system", "warn", name, "use Linux for tools that can be killed")


def _config(asked: Asked) -> tuple[Config | None, Finding]:
    try:
        config = find(asked.config)
    except SetupError as fault:
        return None, Finding("config", "fail", str(fault), "mend the file")
    if config.file is None:
        todo = "make a project with: toolpost init"
        return config, Finding("config", "warn", f"no {FILE_NAME} here", todo)
    return config, Finding("config", "ok", str(config.file))


async def _project(config: Config, bar: Bar) -> AsyncIterator[Finding]:
    """The config's own: its sources and its tools."""
    try:
        runtime = Runtime(once(config))
    except SetupError as fault:
        yield Finding("config", "fail", str(fault), "mend the file")
        return
    try:
        await runtime.reload()
        await runtime.open_sandbox()
        if runtime.lowered is not None:
            todo = "take it out, unless you cannot do without"
            yield Finding("isolation", "warn", runtime.lowered, todo)
        async for one in _parts(runtime):
            yield one
        for found in _rings(runtime):
            yield found
        async for one in _tools(runtime, bar):
            yield one
        for one in _secrets(runtime):
            yield one
        async for one in _callers(runtime):
            yield one
    finally:
        await runtime.close()


async def _parts(runtime: Runtime) -> AsyncIterator[Finding]:
    """The sources, the lock, the store, and the rings that can say how they are."""
    await runtime.store.verify()
    with suppress(SetupError):  # of the store, which tells it below
        await runtime.open_rings()
    health = await runtime.health()
    for part, one in health.items():
        if not one.healthy:
            yield Finding(part, "fail", one.error or "not healthy", _todo(part, one))
        elif one.error and part.startswith("source "):
            yield Finding(part, "warn", one.error, "look into the log of the server")
    for part, told in left_out(runtime).items():
        yield Finding(
            part, "warn", told, "mend it there, grant it to the source, or leave it at that"
        )
    for part, told in runtime.empty_sources.items():
        found, _, todo = told.partition(": ")
        yield Finding(part, "warn", found, todo)
    if health["store"].healthy:
        yield Finding("store", "ok", _kept(runtime))
    full = [part for part in health if part.startswith("source ")]
    well = sum(health[part].healthy and part not in runtime.empty_sources for part in full)
    found = f"{well} loaded, {counted(len(runtime.registry), 'tool')}"
    if len(runtime.registry):
        yield Finding("sources", "ok", found)
    else:
        yield Finding("sources", "warn", found, "name a source of tools in [[sources]]")


def _todo(part: str, health: Health) -> str:
    """What helps against what a store says; else what is to be done about such a part."""
    helps = [todo for reason, todo in REMEDIES.items() if reason in (health.error or "")]
    return f"{helps[0]}; {_REFUSED}" if helps else _TODO.get(part, _MEND)


def _rings(runtime: Runtime) -> Iterator[Finding]:
    """What the lists of rings leave undone: a table of one that is in neither, a yes that nobody
    is asked for.
    """
    for name in unlisted(runtime.config.settings):
        todo = "put it into its list, or take the table out"
        yield Finding(f"extension {name}", "warn", idle(runtime.config, name), todo)
    guards = runtime.config.settings.guards
    if "once" in guards and "once.lookup" not in guards:
        found = "a repeat with a known idempotency key asks for approval again"
        yield Finding("extension once", "warn", found, 'put "once.lookup" before "rate" in guards')
    wanting = [spec.name for spec in runtime.registry if spec.requires_approval]
    mode = asking(runtime)
    if wanting and mode in (None, "never"):
        verb = "run unasked" if mode else "are refused"
        found = f"tools that want a person's yes {verb}: {_named(wanting)}"
        guard = "put approval into the guards"
        todo = guard if mode is None else 'unless that is meant, give it mode = "policy"'
        yield Finding("approval", "warn", found, todo)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _kept(runtime: Runtime) -> str:
    kind, store = runtime.config.settings.store["kind"], runtime.store
    if store.path is None:
        return f"{kind}: forgets when the program ends" if store.volatile else str(kind)
    return f"{kind}: {store.path}{'' if store.there else ', made when it is first needed'}"


async def _tools(runtime: Runtime, bar: Bar) -> AsyncIterator[Finding]:
    ill = 0
    for done, spec in enumerate(runtime.registry):
        bar.tell(done, len(runtime.registry))
        health = await _health(runtime, spec.name)
        if not health.healthy:
            ill += 1
            todo = f"see: toolpost show {spec.name} --binding"
            yield Finding(f"tool {spec.name}", "fail", health.error or "not healthy", todo)
    if well := len(runtime.registry) - ill:
        yield Finding("tools", "ok", f"{counted(well, 'tool')} ready to be called")


def _secrets(runtime: Runtime) -> Iterator[Finding]:
    """What specs name, and what was asked for while tools were bound."""
    for spec in runtime.registry:
        for name in spec.binding.get("secrets") or ():
            environ.secret(str(name))
    for name in sorted(environ.unprotected):
        found = "too simple to be told from ordinary words: it is not redacted"
        yield Finding(f"secret {name}", "warn", found, "use one of 12 characters or more")


async def _callers(runtime: Runtime) -> AsyncIterator[Finding]:
    """Names of callers in the config that nobody has, where the gateway asks for keys."""
    with suppress(SetupError, CallError):  # of the settings or the store, which are told elsewhere
        auth = settings_of(runtime.config).auth
        if auth.keys and runtime.store.there:
            keys = Keys(runtime.store, clock=SystemClock())
            for told in await unmatched(runtime.config, auth, keys):
                todo = "correct the name, or make the key: toolpost keys create NAME"
                yield Finding("callers", "warn", told, todo)


async def _health(runtime: Runtime, name: str) -> Health:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await runtime.executor.health(name)
    except TimeoutError:
        return Health(False, f"did not say how it is within {_PATIENCE:g} s")


async def _isolation() -> AsyncIterator[Finding]:
    """Run a tool in each way there is; see whether the one that can be killed can be."""
    ways: tuple[Isolation, ...] = get_args(Isolation)
    probes = Registry([_probe(way, pid_namespace.__name__) for way in ways])
    async with Executor(probes) as executor:
        for way in ways:
            yield await _runs(executor, way)
    yield await _kills()


async def _runs(executor: Executor, way: Isolation) -> Finding:
    name = f"{way}_probe"
    result = await executor.execute(name)
    if result.error is None:
        return Finding(f"isolation {way}", "ok", "a tool ran")
    verdict: Verdict = "warn" if way == "sandbox" else "fail"
    found = executor.bound(name).problem or result.error.message
    return Finding(f"isolation {way}", verdict, found, _NO_ISOLATION.get(way, ""))


async def _kills() -> Finding:
    """Stop a tool that has left a daemon behind: its lock is free if nothing survived."""
    spec = _probe("process", leave_daemon.__name__, "lock")
    where = _probe("process", pid_namespace.__name__)
    with NamedTemporaryFile() as lock:
        async with Executor(Registry([spec, where])) as executor:
            inside = (await executor.execute(where.name)).output
            problem = await _stopped_holding(executor, spec.name, lock.name)
        if problem is None and not _is_free(lock):
            problem = "a process survived its tool"
    if problem is not None:
        return Finding("stopping", "fail", problem, _NO_ISOLATION["process"])
    kept = "a pid namespace" if inside != pid_namespace() else "a child subreaper"
    found = f"a tool was killed with the daemon it left, by {kept}"
    return Finding("stopping", "ok", found)


async def _stopped_holding(executor: Executor, name: str, lock: str) -> str | None:
    """Cancel the tool once its daemon holds the lock; why that did not come about."""
    held = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(
            executor.execute(name, {"lock": lock}, on_progress=lambda _: held.set())
        )
        watch = group.create_task(held.wait())
        await asyncio.wait((call, watch), return_when=asyncio.FIRST_COMPLETED)
        call.cancel()
        watch.cancel()
    if call.cancelled():
        return None
    error = call.result().error
    return "the tool ended by itself" if error is None else error.message


def _is_free(lock: IO[Any]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _probe(way: Isolation, function: str, *texts: str) -> ToolSpec:
    return ToolSpec(
        name=f"{way}_probe" if function == pid_namespace.__name__ else function,
        description="Tried by the doctor.",
        input_schema={
            "type": "object",
            "properties": {name: {"type": "string"} for name in texts},
            "additionalProperties": False,
        },
        binding={"module": "toolpost.cli.probe", "function": function},
        effects="read",
        isolation=way,
        timeout=_PATIENCE,
    )


def _sandbox(config: Config | None, which: Which, bar: Bar) -> AsyncIterator[Finding]:
    settings = Settings() if config is None else config.settings
    state = str((Path() if config is None else config.base) / settings.state)
    return sandbox(settings, state, which, lambda what: bar.tell(None, None, what))


def _extras() -> Iterator[Finding]:
    """What is optional, and whether it is there."""
    try:
        about = metadata("toolpost")
    except PackageNotFoundError:
        todo = "install it with: pip install toolpost"
        yield Finding("extras", "info", "toolpost runs from its source", todo)
        return
    required = about.get_all("Requires-Dist") or []
    for extra in about.get_all("Provides-Extra") or []:
        if extra not in _NOT_FOR_USERS:
            needs = [r for r in required if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", r)]
            yield _extra(extra, [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs])


def _extra(name: str, packages: list[str]) -> Finding:
    there = []
    for package in packages:
        try:
            there.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            todo = f'if wanted: pip install "toolpost[{name}]"'
            return Finding(f"extra {name}", "info", f"{package} is not installed", todo)
    return Finding(f"extra {name}", "ok", ", ".join(there))
