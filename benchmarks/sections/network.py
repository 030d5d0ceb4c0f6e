"""``tools/call`` over HTTP: servers in processes of their own on loopback, and one that asks them.

Every server is one process under uvicorn, with uvloop and httptools. The clients are another, plain
sockets that are kept, one request at a time on each. All servers stand while all are measured, a
slice of each in every round. What is compared is answers a second inside a round; beside it stands
what a server's process spent on one answer, which depends less on who else wants a processor.

toolpost is `toolpost serve` with all that it has by default: the default chain, the checks of Host
and Origin, strict JSON, limits of sizes and times, the access log, here into a file.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.cases import ANSWERS
from benchmarks.contender import one_line
from benchmarks.network import gateway
from benchmarks.network.processes import LOAD, START_SECONDS, Child, started
from benchmarks.network.wire import Headers, Writes, asked, modern, of_a_session, rest
from benchmarks.report import Cell, Outcome, Table, Target, at_least, broken, figure, times
from benchmarks.rounds import Effort, Series, turn

NAME = "network"
TITLE = "A call over HTTP"

CONNECTIONS = 32
SLICES = 25  # of those of an in-process call: a server needs longer to show its pace
WARM_UP_SECONDS = 0.2
FIXED = "bare ASGI, a fixed answer"
LIMIT = "the limit: bare ASGI, header checks, a governed call"
FUSED = "the same around the bare road, hand-fused: nothing is governed"
OURS, OURS_KEY = "**toolpost** MCP `tools/call`", "**toolpost** MCP `tools/call`, with an API key"
REST, REST_KEY = "**toolpost** REST `:call`", "**toolpost** REST `:call`, with an API key"
SDK, SDK_SESSIONS = "mcp SDK, stateless, JSON", "mcp SDK as it comes: sessions, earlier revision"
FAST = "FastMCP, stateless, JSON"
FAST_SESSIONS = "FastMCP as it comes: sessions, earlier revision"

CONTENDERS: dict[str, tuple[tuple[str, str], Writes]] = {
    FIXED: (("bare", "fixed"), modern),
    FUSED: (("limit", "fused"), modern),
    LIMIT: (("limit", "governed"), modern),
    OURS: (("toolpost", "open"), modern),
    OURS_KEY: (("toolpost", "keys"), modern),
    REST: (("toolpost", "open"), rest),
    REST_KEY: (("toolpost", "keys"), rest),
    SDK: (("mcp_sdk", "stateless"), modern),
    SDK_SESSIONS: (("mcp_sdk", "sessions"), of_a_session),
    FAST: (("fastmcp", "stateless"), modern),
    FAST_SESSIONS: (("fastmcp", "sessions"), of_a_session),
}
"""Who serves, and how it is asked."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs: its process, its port, and what it wants to be told with each request."""

    child: Child
    port: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds an answer, by rounds: until it came, of the server's processor, of the clients'."""

    took: dict[str, Series] = field(default_factory=dict)
    spent: dict[str, Series] = field(default_factory=dict)
    asking: dict[str, Series] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


def measure(effort: Effort) -> Outcome:
    found = Found()
    with TemporaryDirectory(prefix="toolpost-bench-") as folder, ExitStack() as stack:
        load = stack.enter_context(started(LOAD, Path(folder, "load.log")))
        serving = Serving(Path(folder), stack)
        ready: dict[str, Served] = {}
        for label, (server, writes) in CONTENDERS.items():
            try:
                ready[label] = _asked_first(load, label, serving.by(server), writes)
            except Exception as exc:  # one that cannot run must not stop the others
                found.faults[label] = one_line(exc)
        for number in range(effort.rounds):
            for label in turn(tuple(ready), number):
                _slice(load, label, ready[label], found, seconds=effort.slice_seconds * SLICES)
    return Outcome(tables=[_table(found)], targets=_targets(found))


class Serving:
    """The servers, each started when it is first wanted, and stopped with the stack."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._served: dict[tuple[str, str], Served] = {}

    def by(self, server: tuple[str, str]) -> Served:
        if server not in self._served:
            self._served[server] = self._begun(*server)
        return self._served[server]

    def _begun(self, module: str, app: str) -> Served:
        folder, headers = self._folder / app, {}
        if module == "toolpost":
            command = gateway.command(folder, keys=app == "keys")
            headers = {"authorization": f"Bearer {gateway.key(folder)}"} if app == "keys" else {}
        else:
            command = [sys.executable, "-m", "benchmarks.network.servers", module, app]
        log = self._folder / f"{module}-{app}.log"
        child = self._stack.enter_context(started(command, log))
        said = child.line(START_SECONDS)
        port = urlsplit(said["address"]).port if "address" in said else said["port"]
        return Served(child, port, headers)


def _asked_first(load: Child, label: str, served: Served, writes: Writes) -> Served:
    """One answer is looked at; then the clients connect and warm it up."""
    first = writes(served.port, served.headers, CONNECTIONS)
    if (answer := asked(served.port, first)) != ANSWERS["add"]:
        raise ValueError(f"answered {answer!r} instead of {ANSWERS['add']!r}")
    requests = [writes(served.port, served.headers, one) for one in range(CONNECTIONS)]
    texts = [one.decode("latin-1") for one in requests]
    order = {"name": label, "port": served.port, "requests": texts, "seconds": WARM_UP_SECONDS}
    load.told(order, START_SECONDS)
    return served


def _slice(load: Child, label: str, served: Served, found: Found, *, seconds: float) -> None:
    before = served.child.spent()
    told = load.told({"name": label, "seconds": seconds}, seconds + START_SECONDS)
    figures = (
        (found.took, told["seconds"]),
        (found.spent, served.child.spent() - before),
        (found.asking, told["own"]),
    )
    for series, total in figures:
        series.setdefault(label, Series()).rounds.append(total / told["count"])


def _table(found: Found) -> Table:
    took, spent = found.took, found.spent
    rows: list[list[Cell]] = [
        [
            label,
            1 / one.median,
            1 / one.best,
            times(took[LIMIT].ratio(one)) if LIMIT in took else None,
            times(one.ratio(took[OURS])) if OURS in took else None,
            spent[label].median * 1e6,
            times(spent[label].ratio(spent[LIMIT])) if LIMIT in took else None,
        ]
        for label, one in sorted(took.items(), key=lambda pair: pair[1].median)
    ]
    for label, reason in found.faults.items():
        rows.append([label, f"not available: {reason}", *[None] * 5])
    columns = (
        "",
        "answers a second",
        "best round",
        "× the limit's",
        "toolpost is faster by",
        "server's processor, µs an answer",
        "× the limit's",
    )
    title = f"`add(a, b)`, {CONNECTIONS} connections, one server process"
    return Table(title=title, columns=columns, rows=rows, note=_note(found))


def _note(found: Found) -> str:
    if FIXED not in found.asking:
        return ""
    own = found.asking[FIXED]
    share = own.ratio(found.took[FIXED])
    return (
        f"The clients themselves need {figure(own.median * 1e6)} µs an answer; against the fastest "
        f"server that keeps them busy for {share:.0%} of the time."
    )


def _targets(found: Found) -> list[Target]:
    return [
        _times_the_pace(found, OURS, of=SDK, least=5),
        _times_the_pace(found, OURS_KEY, of=SDK, least=5),
        _times_the_pace(found, OURS, of=LIMIT, least=0.5),
        _times_the_pace(found, OURS_KEY, of=LIMIT, least=0.5),
    ]


def _times_the_pace(found: Found, ours: str, *, of: str, least: float) -> Target:
    claim = f"{ours.replace('*', '')}: ≥ {least:g} × the answers of {of}"
    if ours not in found.took:
        return broken("4", claim)
    ratio = found.took[of].ratio(found.took[ours]) if of in found.took else None
    return at_least("4", claim, measured=ratio, limit=least, unit="×")
