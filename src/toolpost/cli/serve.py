"""``toolpost serve``: the gateway, REST and MCP over HTTP, until a signal.

Above: ``main.py``. Below: ``gateway`` of the package, imported when it is wanted: a server takes a
second to load. Where there is no config it serves what is harmless: the built-in calculator and
clock.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

import click
import msgspec

from toolpost.cli.aside import written_aside
from toolpost.cli.looping import run, settled
from toolpost.cli.opening import warnings
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import err, out, safe
from toolpost.config import Config, find, origin
from toolpost.errors import ConfigError, MissingPart
from toolpost.extensions.log import setup_all
from toolpost.spec import ToolSpec
from toolpost.wording import short

T = TypeVar("T")
_BUS_PORT: Final = 4222
"""Where workers look for a bus if nobody tells them."""
_HARMLESS: Final[tuple[dict[str, Any], ...]] = ({"kind": "builtin"},)


@click.command("serve")
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port; 0 for any.  [default: 8080]"
)
@click.option("--processes", type=click.IntRange(1, 256), help="Server processes.  [default: 1]")
@click.option(
    "--nats",
    metavar="URL|embedded[:PORT]",
    help="Take in the tools of workers on this bus; 'embedded' starts one here, for development.",
)
@click.option("--inherit", hidden=True)
@click.option("--line", type=int, hidden=True)
@click.option("--number", type=int, default=0, hidden=True)
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    host: str | None,
    port: int | None,
    processes: int | None,
    nats: str | None,
    inherit: str | None,
    line: int | None,
    number: int,
    as_json: bool,
) -> int:
    """Serve the tools over HTTP: a REST API, and MCP at /mcp.

    It listens on this machine only, unless [gateway] in the config says how callers are known.
    Ctrl-C or SIGTERM ends it, once the calls in flight have ended.
    """
    click.get_current_context().with_resource(written_aside())
    _log_here(asked)
    settings_of = _loaded("toolpost.gateway.settings").settings_of
    config = _served(find(asked.config))
    embedded = None
    if nats is not None:
        embedded = _bus_of_our_own(nats, config)
        nats = nats if embedded is None else embedded.url
        config = _on_the_bus(config, nats)
    settings = _with(settings_of(config), host=host, port=port, processes=processes)
    _demand_one_store(config, settings)
    if inherit is not None and line is not None:
        return _one_of_several(config, settings, inherit, line, number)
    serving = _loaded("toolpost.gateway.serving")
    sockets = _bound(serving, settings)
    address = serving.address_of(sockets)
    everywhere = serving.everywhere(sockets)
    told = (
        _telling_programs(address) if as_json else _telling(address, everywhere, config, settings)
    )
    if settings.processes == 1:
        run(_beside(embedded, _alone(config, settings, sockets, told)))
        return 0
    words = _words(asked, {"host": host, "port": port, "processes": processes, "nats": nats})
    watcher = _loaded("toolpost.gateway.processes").Watcher
    watching = _watching(watcher, words, sockets, settings.processes, settings.drain_time, told)
    return asyncio.run(_beside(embedded, watching))


def _with(settings: Any, **given: Any) -> Any:
    """What was said on the command line counts more than what the config says."""
    said = {name: one for name, one in given.items() if one is not None}
    try:
        return msgspec.structs.replace(settings, **said)
    except ValueError as fault:
        raise click.UsageError(f"{fault}.") from None


def _bound(serving: Any, settings: Any) -> Any:
    try:
        return serving.bind(settings)
    except UnicodeError:  # a name that cannot even be asked for
        raise click.UsageError(f"{short(settings.host)!r} is no host.") from None


def _demand_one_store(config: Config, settings: Any) -> None:
    if settings.processes > 1 and _in_memory(config):
        raise ConfigError(
            f"{origin(config, ('store', 'kind'))}: the store is in memory, and each of "
            f"{settings.processes} server processes would have its own: keys, jobs, approvals and "
            'what runs once would not be the same in them. Say [store] kind = "sqlite", or '
            "serve with one process",
            at=("store", "kind"),
        )


def _in_memory(config: Config) -> bool:
    return config.settings.store.get("kind") == "memory"


async def _beside(embedded: Any, work: Coroutine[Any, Any, T]) -> T:
    """With a bus of its own, if it is to have one."""
    if embedded is None:
        return await work
    try:
        await embedded.start()
    except BaseException:
        work.close()
        raise
    keeping = asyncio.create_task(embedded.keep())
    try:
        return await work
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await embedded.stop()


async def _alone(config: Config, settings: Any, sockets: Any, told: Callable[[Any], None]) -> None:
    serving = _loaded("toolpost.gateway.serving")
    async with serving.opened(config, settings) as gateway:
        settled()
        await serving.warn_of_callers(gateway)
        await serving.serve(gateway, sockets, ready=told)


async def _watching(
    watcher: Any,
    words: Callable[[str, str, int], Sequence[str]],
    sockets: Any,
    count: int,
    drain: float,
    told: Callable[[Any], None],
) -> int:
    made = watcher(words, sockets, count=count, drain=drain)
    code: int = await made.run(lambda: told(None))
    return code


def _one_of_several(config: Config, settings: Any, inherit: str, line: int, number: int) -> int:
    serving = _loaded("toolpost.gateway.serving")
    processes = _loaded("toolpost.gateway.processes")

    async def served() -> None:
        sockets, end = processes.inherited(inherit), processes.Line(line)
        async with serving.opened(config, settings) as gateway:
            gateway.behind.siblings.number = number
            settled()
            if number == 0:
                await serving.warn_of_callers(gateway)
            server = serving.server_of(gateway, ready=lambda _: end.tell_ready())
            end.watch(server.stop)
            await server.serve(sockets)

    run(served())
    return 0


def _words(asked: Asked, given: dict[str, Any]) -> Callable[[str, str, int], Sequence[str]]:
    """The command of one of several server processes."""
    before = ["--config", asked.config] if asked.config is not None else []
    before += ["--debug"] if asked.debug else []
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]

    def words(inherit: str, line: str, number: int) -> Sequence[str]:
        own = ["serve", *options, f"--inherit={inherit}", f"--line={line}", f"--number={number}"]
        return ["-m", "toolpost.cli.main", *before, *own]

    return words


def _bus_of_our_own(nats: str, config: Config) -> Any:
    word, _, port = nats.partition(":")
    if word != "embedded":
        return None
    if not (port or str(_BUS_PORT)).isdigit():
        raise click.BadParameter("write embedded, or embedded:PORT", param_hint="--nats")
    embedded = _loaded("toolpost.bus.embedded").Embedded
    folder = config.base / config.settings.state / "nats"
    return embedded(folder, port=int(port or _BUS_PORT))


def _on_the_bus(config: Config, url: str) -> Config:
    """With the tools of workers there, beside those of the config."""
    settings = config.settings
    bus = {**settings.backends.get("nats", {}), "servers": [url]}
    backends = {**settings.backends, "nats": bus}
    sources = settings.sources
    if not any(one.get("kind") == "nats" for one in sources):
        sources = (*sources, {"kind": "nats"})
    changed = msgspec.structs.replace(settings, backends=backends, sources=sources)
    return msgspec.structs.replace(config, settings=changed)


def _served(config: Config) -> Config:
    """Where nobody has said what to serve, it is what can do no harm."""
    if config.file is not None or config.settings.sources:
        return config
    settings = msgspec.structs.replace(config.settings, sources=_HARMLESS)
    return msgspec.structs.replace(config, settings=settings)


def _telling_programs(address: str) -> Callable[[Any], None]:
    """A line of JSON, once it serves."""

    def told(gateway: Any) -> None:
        out(msgspec.json.encode({"address": address, "mcp": f"{address}/mcp"}).decode())
        sys.stdout.flush()

    return told


def _telling(address: str, everywhere: str, config: Config, settings: Any) -> Callable[[Any], None]:
    """What whoever has started it needs to know next."""

    def told(gateway: Any) -> None:
        key = "" if settings.auth.anonymous else " -H 'Authorization: Bearer YOUR_KEY'"
        out(f"toolpost serves on {address}{everywhere}  (Ctrl-C ends it)\n")
        if config.settings.sources == _HARMLESS and config.file is None:
            out("There is no toolpost.toml here: these are the built-in tools that do no harm.")
            out("To serve your own tools: toolpost init\n")
        out(f"  REST       {address}/v1/tools      described at {address}/openapi.json")
        out(f"  MCP        {address}/mcp           streamable HTTP")
        out(f"  health     {address}/readyz\n")
        out("Call a tool:\n")
        out(safe(f"  curl -s {address}{_first_call(config, gateway, key)}\n"))
        out("Add it to an MCP client:\n")
        server: dict[str, Any] = {"type": "http", "url": f"{address}/mcp"}
        if key:
            server["headers"] = {"Authorization": "Bearer YOUR_KEY"}
            err("Make a key with: toolpost keys create NAME")
        text = msgspec.json.encode({"mcpServers": {"toolpost": server}}).decode()
        out(safe(f"  {text}\n"))
        sys.stdout.flush()
        if gateway is not None:
            for part, problem in warnings(gateway.behind.runtime).items():
                err(safe(f"warning: {part}: {problem}"))
        if _in_memory(config):
            err("warning: the store is in memory: jobs, keys and approvals end with this process")
        if any(one.get("kind") == "nats" for one in config.settings.sources):
            out("Tools of workers come and go with them; start one with: toolpost worker\n")
        elif not (config.settings.sources if gateway is None else gateway.behind.runtime.list()):
            err("warning: there are no tools: say in the config where they are, with [[sources]]")

    return told


def _first_call(config: Config, gateway: Any, key: str) -> str:
    """A call that works, and does nothing; where there is none, what there is to call. Where others
    have loaded the tools, only of one config it is known what they are.
    """
    if gateway is None:
        tools = {"calculator"} if config.settings.sources == _HARMLESS else set()
    else:
        tools = {spec.name for spec in gateway.behind.runtime.list() if _is_harmless(spec)}
    if not tools:
        return f"/v1/tools{key}"
    name = "calculator" if "calculator" in tools else min(tools)
    given = '{"expression": "6 * 7"}' if name == "calculator" else "{}"
    data = f"-H 'Content-Type: application/json' -d '{{\"arguments\": {given}}}'"
    return f"/v1/tools/{name}:call{key} {data}"


def _is_harmless(spec: ToolSpec) -> bool:
    """Whether anybody may call it, just to see it: with nothing, or with a sum."""
    wanted = [] if spec.name != "calculator" else ["expression"]
    needs = list(spec.input_schema.get("required", ()))
    harmless = spec.effects == "read" and spec.tier == 0 and not spec.requires_approval
    return harmless and needs == wanted


def _loaded(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise MissingPart(
            f'the gateway needs {exc.name!r}. Install it with: pip install "toolpost[server]"'
        ) from exc


def _log_here(asked: Asked) -> None:
    """What the server and its tools have to say goes to standard error, redacted. Calls are in the
    access log already.
    """
    setup_all(sys.stderr, level=logging.DEBUG if asked.debug else logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # of bad requests it warns each time
    if not asked.debug:
        logging.getLogger("toolpost.calls").setLevel(logging.WARNING)
