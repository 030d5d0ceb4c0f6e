"""Durable calls: what a call costs whose intent must be on the disk before its tool runs.

One `toolpost serve` for each store, with the default chain, is asked over REST for two tools that
do the same: one only reads (tier 0), the other acts (tier 2, `effects: once`). What is compared is
the processor time of the server, because a disk and its waiting say nothing about toolpost.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.contender import one_line
from benchmarks.network.processes import LOAD, START_SECONDS, Child, started
from benchmarks.network.wire import asked, rest_call
from benchmarks.report import Cell, Outcome, Table, Target, at_most, broken, times
from benchmarks.rounds import Effort, Series, turn

NAME = "durable"
TITLE = "Durable calls"

CONNECTIONS = 128
SLICES = 25
WARM_UP_SECONDS = 0.5
MOST = 1.6
TOOLPOST = str(Path(sys.executable).parent / "toolpost")
STORES = ("sqlite", "postgres")
TOOLS = {"look": "a tool that reads, tier 0", "act": "a tool that acts, tier 2, `effects: once`"}
MODULE = '''\
from toolpost import Limits, tool

MANY = Limits(concurrency=500)


@tool(tier=0, effects="read", limits=MANY)
async def look(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool(tier=2, effects="once", limits=MANY)
async def act(a: int, b: int) -> int:
    """Add two integers, and say that it was done."""
    return a + b
'''
CONFIG = """\
[[sources]]
kind = "modules"
modules = ["tools_of_two_kinds"]
[gateway]
calls_each = 1000
"""


@dataclass(frozen=True, slots=True)
class Served:
    child: Child
    port: int


def measure(effort: Effort) -> Outcome:
    spent: dict[tuple[str, str], Series] = {}
    took: dict[tuple[str, str], Series] = {}
    faults: dict[str, str] = {}
    with TemporaryDirectory(prefix="toolpost-bench-") as folder, ExitStack() as stack:
        load = stack.enter_context(started(LOAD, Path(folder, "load.log")))
        served: dict[str, Served] = {}
        for store in STORES:
            try:
                served[store] = _serve(store, Path(folder), stack, load)
            except Exception as exc:  # one that cannot run must not stop the other
                faults[store] = one_line(exc)
        for number in range(effort.rounds):
            for store in turn(tuple(served), number):
                for tool in turn(tuple(TOOLS), number):
                    seconds = effort.slice_seconds * SLICES
                    before = served[store].child.spent()
                    told = load.told({"name": f"{store} {tool}", "seconds": seconds}, seconds + 60)
                    used = served[store].child.spent() - before
                    spent.setdefault((store, tool), Series()).rounds.append(used / told["count"])
                    took.setdefault((store, tool), Series()).rounds.append(
                        told["seconds"] / told["count"]
                    )
    return Outcome(tables=[_table(spent, took, faults)], targets=_targets(spent))


def _serve(store: str, folder: Path, stack: ExitStack, load: Child) -> Served:
    home = folder / store
    home.mkdir()
    (home / "tools_of_two_kinds.py").write_text(MODULE)
    settings = ""
    if store == "postgres":
        dsn = stack.enter_context(_postgres(folder / "pg"))
        settings = f'[store]\nkind = "postgres"\ndsn = "{dsn}"\n'
    (home / "toolpost.toml").write_text(CONFIG + settings)
    command = [TOOLPOST, "--config", str(home / "toolpost.toml"), "serve", "--port", "0", "--json"]
    child = stack.enter_context(started(command, folder / f"{store}.log"))
    port = urlsplit(child.line(START_SECONDS)["address"]).port
    assert port is not None
    for tool in TOOLS:
        requests = [rest_call(port, tool, {"a": 1, "b": 2}) for _ in range(CONNECTIONS)]
        if (answer := asked(port, requests[0])) != 3:
            raise ValueError(f"{tool} answered {answer!r}")
        texts = [one.decode("latin-1") for one in requests]
        order = {
            "name": f"{store} {tool}", "port": port, "requests": texts, "seconds": WARM_UP_SECONDS,
        }  # fmt: skip
        load.told(order, START_SECONDS)
    return Served(child, port)


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """The address of a server of our own, which listens in its folder and nowhere else."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *_on_path("initdb")]
    if not found:
        raise FileNotFoundError("PostgreSQL is not installed")
    programs, user = found[-1].parent, []
    folder.mkdir()
    if os.geteuid() == 0:  # it refuses to run as root
        account = pwd.getpwnam("postgres")
        for place in (folder.parent, folder):
            os.chmod(place, 0o755)
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = [
            "setpriv",
            f"--reuid={account.pw_uid}",
            f"--regid={account.pw_gid}",
            "--clear-groups",
        ]
    data = str(folder / "data")
    made = [*user, str(programs / "initdb"), "-D", data, "-U", "toolpost", "-A", "trust"]
    subprocess.run(made, check=True, cwd="/", stdout=subprocess.DEVNULL)
    settings = ["-k", str(folder), "-c", "listen_addresses="]
    process = subprocess.Popen(
        [*user, str(programs / "postgres"), "-D", data, *settings],
        cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        asks = [str(programs / "pg_isready"), "-q", "-h", str(folder)]
        end = time.monotonic() + START_SECONDS
        while subprocess.run(asks).returncode and time.monotonic() < end:
            time.sleep(0.1)
        yield f"postgresql://toolpost@/postgres?host={folder}"
    finally:
        process.terminate()
        process.wait()


def _on_path(name: str) -> list[Path]:
    found = shutil.which(name)
    return [] if found is None else [Path(found).resolve()]


def _table(
    spent: dict[tuple[str, str], Series],
    took: dict[tuple[str, str], Series],
    faults: dict[str, str],
) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{store}: {TOOLS[tool]}",
            one.median * 1e6,
            times(one.ratio(spent[store, "look"])),
            1 / took[store, tool].median,
        ]
        for (store, tool), one in spent.items()
    ]
    rows += [[store, f"not available: {why}", None, None] for store, why in faults.items()]
    columns = ("", "server's processor, µs a call", "× a read", "answers a second")
    title = f"REST `:call`, {CONNECTIONS} connections, one server process"
    return Table(title=title, columns=columns, rows=rows, note="")


def _targets(spent: dict[tuple[str, str], Series]) -> list[Target]:
    targets = []
    for store in STORES:
        claim = f"a durable call on {store}: ≤ {MOST:g} × the processor time of a read"
        if (store, "act") not in spent:
            targets.append(broken("durable", claim))
            continue
        ratio = spent[store, "act"].ratio(spent[store, "look"])
        targets.append(at_most("durable", claim, measured=ratio, limit=MOST, unit="×"))
    return targets
