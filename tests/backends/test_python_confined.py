"""Python tools in their sandbox: what a spec does not grant, its function cannot do."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from tests.backends import confined_tools
from tests.processes import descendants
from tests.sandbox.elsewhere import (
    IS_ROOT,
    as_ordinary_user,
    in_a_container,
    need_a_sandbox,
    open_the_way,
)
from toolpost import Executor, Registry, Runtime, ToolSpec, tool
from toolpost.backends.python.backend import PythonBackend
from toolpost.contracts import Declared, Services
from toolpost.plugins import SharedSandbox
from toolpost.spec import Limits
from toolpost.testing import check_backend

pytestmark = pytest.mark.anyio
MODULE = confined_tools.__name__
ANYTHING = {"type": "object"}


@pytest.fixture(autouse=True, scope="module")
def sandbox() -> None:
    need_a_sandbox()


def spec(
    function: str, *, name: str | None = None, module: str = MODULE, **options: Any
) -> ToolSpec:
    """What is no field of a spec goes into its binding."""
    fields = {k: options.pop(k) for k in tuple(options) if k in ToolSpec.__struct_fields__}
    return ToolSpec(
        name=name or function,
        description="It.",
        input_schema=ANYTHING,
        binding={"module": module, "function": function, **options},
        **{"isolation": "sandbox", "timeout": 30, **fields},
    )


def executor(*specs: Any, **settings: Any) -> Executor:
    return Executor(Registry(list(specs)), settings={"python": {"workers": 2, **settings}})


async def call(one: Any, arguments: Any = None, **settings: Any) -> Any:
    """What one call gives: its output, or its error."""
    async with executor(one, **settings) as tools, asyncio.timeout(60):
        [only] = tools.registry
        result = await tools.execute(only.name, arguments)
        return result.output if result.error is None else result.error


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "secret"


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made.getsockname()[1]


# Where it runs


@pytest.mark.req("NA-7", "UX-5")
@pytest.mark.parametrize("function", ["add", "add_slowly"])
async def test_a_function_runs_confined_by_its_module_path(function: str) -> None:
    assert await call(spec(function), {"a": 1, "b": 2}) == 3


@pytest.mark.req("NA-7", "NA-2")
async def test_a_declared_tool_is_confined_from_tier_three_on(secret: Path) -> None:
    beside = secret.parent / "specs"
    beside.mkdir()
    outputs = {
        tier: await call(
            Declared(spec("read", isolation=None, tier=tier, limits=BOUNDED), str(beside)),
            {"path": str(secret)},
        )
        for tier in (2, 3)
    }
    assert outputs == {2: "secret", 3: "FileNotFoundError"}


BOUNDED = Limits(memory=256 << 20, processes=16)


@tool(isolation="sandbox", tier=0, effects="read", timeout=30)
def registered(path: str) -> list[str]:
    """List a folder."""
    return confined_tools.listing(path)


async def test_a_tool_registered_in_code_runs_confined_if_it_asks_for_it(secret: Path) -> None:
    assert await call(registered, {"path": "/"}) != []
    assert await call(registered, {"path": str(secret.parent)}) == []


@tool(tier=3)
def dangerous(path: str) -> list[str]:
    """List a folder."""
    return confined_tools.listing(path)


async def test_a_tool_registered_in_code_is_not_confined_unasked(secret: Path) -> None:
    async with executor(dangerous) as tools:
        assert (await tools.execute("dangerous", {"path": str(secret.parent)})).output == ["secret"]
        handle: Any = tools.bound("dangerous").handle
        assert handle.about == {"isolation": "process", "state": "caller"}


async def test_it_is_another_user_in_a_house_of_its_own() -> None:
    found = await call(spec("who"))
    assert found["uid"] == 1000
    assert found["pid"] < 20
    assert found["cwd"] == "/tmp"
    assert found["prefix"] == sys.prefix


async def test_our_packages_are_there_for_what_it_starts_too() -> None:
    assert await call(spec("packages")) == "msgspec"


SCRIPT = """
import asyncio
from toolpost import Executor, Registry, tool

@tool(isolation="sandbox", timeout=30)
def look() -> list[str]:
    "Look around."
    import os
    return sorted(os.listdir("/"))

async def main():
    async with Executor(Registry([look])) as tools:
        result = await tools.execute("look")
        print("home" in result.output, "usr" in result.output, result.error)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_function_of_the_script_that_runs_goes_there_too(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    # its folder is the home here, which is not shown: the script itself is
    assert done.stdout == "False True None\n", done.stderr


# What it sees


@pytest.mark.req("NA-11", "NA-10")
async def test_what_is_not_granted_cannot_be_read(secret: Path) -> None:
    open_the_way(secret)
    arguments = {"path": str(secret)}
    assert await call(spec("read", isolation="process"), arguments) == "secret"
    assert await call(spec("read"), arguments) == "FileNotFoundError"
    assert await call(spec("read", read=[str(secret)]), arguments) == "secret"


@pytest.mark.req("NA-11", "NA-10")
async def test_what_is_not_granted_cannot_be_written(tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path / "file"), "text": "new"}
    assert await call(spec("write"), arguments) == "FileNotFoundError"
    assert await call(spec("write", read=[str(tmp_path)]), arguments) == "OSError"
    assert not (tmp_path / "file").exists()
    assert await call(spec("write", write=[str(tmp_path)]), arguments) == "written"
    assert (tmp_path / "file").stat().st_uid == tmp_path.stat().st_uid


async def test_the_config_may_grant_folders_to_every_tool(tmp_path: Path, secret: Path) -> None:
    found = await call(spec("read"), {"path": str(secret)}, read=[str(tmp_path)])
    assert found == "secret"
    arguments = {"path": str(tmp_path / "file"), "text": "new"}
    assert await call(spec("write"), arguments, write=[str(tmp_path)]) == "written"


@pytest.mark.req("NA-11")
async def test_relative_folders_start_at_the_spec_file(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "specs").mkdir()
    granted = Declared(spec("read", read=["../secret"]), str(tmp_path / "specs"))
    assert await call(granted, {"path": str(secret)}) == "secret"


async def test_a_module_beside_its_spec_file_is_seen_and_cannot_be_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "beside.py").write_text(
        "from pathlib import Path\n"
        "def change():\n"
        "    try:\n        Path(__file__).write_text('')\n"
        "    except OSError as error:\n        return error.strerror\n"
    )
    found = await call(Declared(spec("change", module="beside"), str(tmp_path)))
    assert found == "Read-only file system"


@pytest.mark.parametrize("folder", ["/", "/tmp", "home"])
async def test_a_folder_that_holds_everything_is_not_shown_for_one_spec_file(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    place = str(tmp_path) if folder == "home" else folder
    error = await call(Declared(spec("add"), place), {"a": 1, "b": 2})
    assert (error.code, error.effects) == ("UNAVAILABLE", "none")
    assert f"everything in {place}" in error.message


async def test_a_search_path_that_holds_a_home_does_not_show_it(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(secret.parent))
    monkeypatch.setattr(sys, "path", [*sys.path, str(secret.parent)])
    assert await call(spec("read"), {"path": str(secret)}) == "FileNotFoundError"


async def test_the_state_folder_is_hidden_even_beside_the_spec_file(tmp_path: Path) -> None:
    (tmp_path / ".toolpost").mkdir()
    (tmp_path / ".toolpost" / "audit.key").write_text("key")
    (tmp_path / "tools.json").write_bytes(
        msgspec.json.encode([spec("listing").to_dict(), spec("add").to_dict()])
    )
    (tmp_path / "toolpost.toml").write_text(
        "watch = false\nguards = []\nobservers = []\n"
        '[[sources]]\nkind = "files"\npaths = ["tools.json"]\n'
    )
    async with Runtime.open(tmp_path / "toolpost.toml") as tools, asyncio.timeout(60):
        beside = await tools.execute("listing", {"path": str(tmp_path)})
        inside = await tools.execute("listing", {"path": str(tmp_path / ".toolpost")})
    assert "tools.json" in beside.output
    assert inside.output == []


@pytest.mark.req("NA-3", "NA-10")
async def test_its_environment_is_what_its_binding_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFINED_KEY", "k")
    monkeypatch.setenv("CONFINED_OTHER", "o")
    found = await call(spec("environment", env=["CONFINED_KEY"]))
    assert found["CONFINED_KEY"] == "k"
    assert set(found) - {"CONFINED_KEY", "PWD"} == {"PATH", "HOME", "LANG", "USER"}
    assert found["HOME"] == "/tmp"


async def test_a_secret_that_the_signature_names_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONFINED_SECRET", "12345")
    assert await call(confined_tools.told_secret) == 5


# What it reaches


@pytest.mark.req("NA-7", "NA-11")
async def test_it_has_no_network(listener: int) -> None:
    assert await call(spec("connect", isolation="process"), {"port": listener}) == "connected"
    assert await call(spec("connect"), {"port": listener}) == "not connected"


@pytest.fixture
def web() -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.req("NA-7", "NA-11")
async def test_a_granted_host_is_reached_and_no_other(web: int, listener: int) -> None:
    granted = spec("fetch", egress=(f"127.0.0.1:{web}",))
    async with executor(granted) as tools, asyncio.timeout(60):
        reached = await tools.execute("fetch", {"url": f"http://127.0.0.1:{web}/"})
        other = await tools.execute("fetch", {"url": f"http://127.0.0.1:{listener}/"})
    assert reached.output == "hello"
    assert "403" in other.output


# What it takes


@pytest.mark.req("FM-9", "NA-7")
async def test_memory_beyond_the_limit_ends_the_call_and_the_next_one_runs() -> None:
    limits = Limits(memory=128 << 20)
    one, other = spec("take_memory", limits=limits), spec("add", limits=limits)
    async with executor(one, other) as tools, asyncio.timeout(60):
        assert (await tools.execute("take_memory", {"megabytes": 20})).output == 20 << 20
        error = (await tools.execute("take_memory", {"megabytes": 400})).error
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
    assert error is not None
    assert (error.code, error.effects) == ("RESOURCE_LIMIT", "unknown")


@pytest.mark.req("FM-9", "NA-7")
@pytest.mark.parametrize(
    ("bound", "files", "size"), [("disk", 300, 5_000_000), ("files", 200_000, 0)]
)
async def test_a_call_that_fills_its_folder_is_ended_and_the_next_one_runs(
    tmp_path: Path, bound: str, files: int, size: int
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    limits = Limits(disk=8_000_000, files=200)
    one = spec("fill", write=[str(folder)], limits=limits, timeout=60)
    async with executor(one) as tools, asyncio.timeout(100):
        small = {"folder": str(folder), "files": 2, "size": 1_000_000}
        for _ in range(12):  # a quota is of one call, in the same worker
            assert (await tools.execute("fill", small)).output == "done"
        large = {"folder": str(folder), "files": files, "size": size}
        error = (await tools.execute("fill", large)).error
        assert (await tools.execute("fill", small)).output == "done"
    assert error is not None
    assert (error.code, error.effects, error.details) == (
        "RESOURCE_LIMIT",
        "unknown",
        {"limit": bound},
    )
    assert f"(limits.{bound})" in error.message
    assert len([*folder.iterdir()]) < files


@pytest.mark.req("FM-9")
@pytest.mark.parametrize("isolation", ["process", "sandbox"])
async def test_no_file_is_larger_than_the_disk_limit(tmp_path: Path, isolation: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    grant = {"write": [str(folder)]} if isolation == "sandbox" else {}
    one = spec("fill", isolation=isolation, limits=Limits(disk=1_000_000), **grant)
    async with executor(one) as tools, asyncio.timeout(60):
        result = await tools.execute(
            "fill", {"folder": str(folder), "files": 1, "size": 20_000_000}
        )
    assert result.error is not None
    assert (result.error.code, result.error.details) == ("RESOURCE_LIMIT", {"limit": "disk"})
    assert "limit of 1,000,000 bytes (limits.disk)" in result.error.message
    assert (folder / "0").stat().st_size <= 1_000_000


@pytest.mark.req("FM-9", "NA-7")
async def test_processes_beyond_the_limit_cannot_be_started() -> None:
    started = await call(spec("fork_without_end", limits=Limits(processes=8)), {"most": 50})
    assert 1 <= started <= 16


@pytest.mark.req("FM-9", "NA-7")
@pytest.mark.parametrize("level", ["as it is", "I2"])
@pytest.mark.parametrize(
    ("function", "bound"),
    [
        ("map_memory", "memory"),
        ("fork_too_often", "processes"),
        ("start_too_many_programs", "processes"),
        ("start_too_many_threads", "processes"),
    ],
)
async def test_a_bound_that_a_tool_meets_is_told_as_one(
    function: str, bound: str, level: str
) -> None:
    shared = SharedSandbox()
    opened: Any = await shared()
    if level == "I2":
        shared._sandbox = await opened.lesser("I2") or opened
    registry = Registry([spec(function, limits=Limits(memory=128 << 20, processes=8))])
    async with Executor(registry, provide={SharedSandbox: shared}) as tools, asyncio.timeout(60):
        error = (await tools.execute(function)).error
    await opened.close()
    await shared.close()
    assert error is not None
    assert (error.code, error.effects) == ("RESOURCE_LIMIT", "unknown")
    assert bound in error.message


async def test_to_be_told_to_try_again_is_no_bound() -> None:
    """A process too many has the same number; where there is no cgroup, nobody counts them."""
    shared = SharedSandbox()
    opened: Any = await shared()
    shared._sandbox = await opened.lesser("I2") or opened
    registry = Registry([spec("read_what_is_not_there_yet")])
    async with Executor(registry, provide={SharedSandbox: shared}) as tools, asyncio.timeout(60):
        error = (await tools.execute("read_what_is_not_there_yet")).error
    await opened.close()
    await shared.close()
    assert error is not None
    assert (error.code, error.effects) == ("INTERNAL_ERROR", "unknown")


async def test_what_only_looks_like_a_bound_that_was_met_is_told_as_none() -> None:
    shared = SharedSandbox()
    known = "cgroup" in (await shared()).about["layers"]
    names = ["be_killed", "read_what_is_not_there_yet"]
    registry = Registry([spec(name, limits=Limits(memory=100 << 20)) for name in names])
    async with Executor(registry, provide={SharedSandbox: shared}) as tools, asyncio.timeout(60):
        errors = [(await tools.execute(name)).error for name in names]
    await shared.close()
    if not known:
        pytest.skip("without a cgroup nobody knows")
    assert [error and error.code for error in errors] == ["UNAVAILABLE", "INTERNAL_ERROR"]


# From call to call


async def test_a_worker_serves_many_calls_and_is_replaced_after_its_last() -> None:
    async with executor(spec("serve"), workers=1, recycle_after=3) as tools, asyncio.timeout(60):
        counts = [(await tools.execute("serve")).output for _ in range(6)]
    assert counts == [1, 2, 3, 1, 2, 3]


async def test_a_file_that_a_call_leaves_is_not_there_for_the_next() -> None:
    async with executor(spec("keep_a_file"), workers=1) as tools, asyncio.timeout(60):
        first = await tools.execute("keep_a_file", {"name": "one"})
        second = await tools.execute("keep_a_file", {"name": "two"})
    assert first.error is None
    assert "one" not in second.output
    assert first.output == second.output


async def test_a_tool_that_locks_its_worker_out_harms_no_other_call() -> None:
    async with executor(spec("lock_out"), spec("add"), workers=1) as tools, asyncio.timeout(60):
        assert (await tools.execute("lock_out")).error is None
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3


async def test_tools_that_may_do_different_things_do_not_share_a_worker(tmp_path: Path) -> None:
    plain, granted = (
        spec("serve", name="plain"),
        spec("serve", name="granted", read=[str(tmp_path)]),
    )
    async with executor(plain, granted, spec("serve")) as tools, asyncio.timeout(60):
        counts = [(await tools.execute(n)).output for n in ("plain", "granted", "serve")]
    assert counts == [1, 1, 2]


async def test_closing_leaves_nothing_behind() -> None:
    before = descendants(os.getpid())
    await call(spec("add"), {"a": 1, "b": 2})
    assert descendants(os.getpid()) <= before


async def test_a_call_that_is_given_up_while_the_sandbox_opens_leaves_nothing_behind() -> None:
    before = descendants(os.getpid())
    async with executor(spec("add"), spec("add_slowly")) as tools, asyncio.timeout(60):
        first = asyncio.create_task(tools.execute("add", {"a": 1, "b": 2}))
        while descendants(os.getpid()) <= before:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    assert descendants(os.getpid()) <= before


# What is refused, and what is told


@pytest.mark.parametrize("grant", [{"write": ["/"]}, {"read": ["/proc"]}, {"read": ["/no/where"]}])
async def test_what_cannot_be_confined_is_refused_with_the_reason(grant: Any) -> None:
    one = spec("add", **grant)
    error = await call(one, {"a": 1, "b": 2})
    assert (error.code, error.effects, error.retryable) == ("UNAVAILABLE", "none", False)
    assert grant.popitem()[1][0] in error.message
    async with executor(one) as tools:
        health = await tools.health("add")
    assert not health.healthy
    assert health.error == error.message


@pytest.mark.req("NA-11")
async def test_it_is_refused_when_it_is_bound_if_the_sandbox_is_open() -> None:
    shared = SharedSandbox()
    await shared()
    tools = Executor(Registry([spec("add", write=["/"])]), provide={SharedSandbox: shared})
    async with tools:
        assert "/" in (tools.bound("add").problem or "")
    assert shared.opened is not None, "it is not the backend's own"
    await shared.close()


async def test_a_tool_is_healthy_if_it_can_be_loaded_inside() -> None:
    async with executor(spec("add"), spec("nothing_there")) as tools, asyncio.timeout(60):
        assert (await tools.health("add")).healthy
        assert "nothing_there" in ((await tools.health("nothing_there")).error or "")


async def test_a_dry_run_tells_the_level_and_the_layers(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_bytes(msgspec.json.encode([spec("add").to_dict()]))
    (tmp_path / "toolpost.toml").write_text(
        "watch = false\nguards = []\nobservers = []\n"
        '[[sources]]\nkind = "files"\npaths = ["tools.json"]\n'
    )
    async with Runtime.open(tmp_path / "toolpost.toml") as tools, asyncio.timeout(60):
        result = await tools.execute("add", {"a": 1, "b": 2}, dry_run=True)
    plan = result.metadata.plan
    assert plan is not None
    assert plan["isolation"] == "sandbox"
    assert plan["level"] in ("I1", "I2", "I3")
    assert "seccomp" in plan["layers"]


@pytest.mark.req("UX-3", "UX-10")
async def test_python_in_the_sandbox_keeps_the_contract_of_backends() -> None:
    report = await check_backend(
        PythonBackend(Services()),
        spec("add"),
        {"a": 1, "b": 2},
        3,
        slow=(spec("report_and_wait", name="slow"), {}),
    )
    report.raise_if_failed()
    assert report.outcome("timeout") == report.outcome("cancellation") == "passed"


# As somebody else

AS_SOMEBODY = """
import asyncio, json, os, sys
from pathlib import Path
from toolpost import Executor, Registry, ToolSpec
from toolpost.contracts import Declared

home = Path(sys.argv[1])
(home / "secret").write_text("secret")
folder = home / "tools"
folder.mkdir()
(folder / "own.py").write_text(
    "from pathlib import Path\\n"
    "def look(path):\\n"
    "    try:\\n        return Path(path).read_text()\\n"
    "    except OSError as error:\\n        return error.strerror\\n"
)
spec = ToolSpec(
    name="look", description="Look.", input_schema={"type": "object"}, tier=2, isolation="sandbox",
    timeout=30, binding={"module": "own", "function": "look"},
)

async def main():
    async with Executor(Registry([Declared(spec, str(folder))])) as tools:
        for path in (home / "secret", folder / "own.py", "/etc/shadow"):
            result = await tools.execute("look", {"path": str(path)})
            print(json.dumps(result.output if result.error is None else result.error.message))

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_an_ordinary_users_tools_are_confined_in_his_home(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=mode)
    secret, module, shadow = as_ordinary_user(AS_SOMEBODY, str(home), home=home).splitlines()
    assert secret == shadow == '"No such file or directory"'
    assert "def look" in module


@pytest.mark.skipif(not IS_ROOT, reason="it is about root")
def test_the_tools_of_root_are_confined_in_its_closed_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "HOME": str(home),
    }
    argv = [sys.executable, "-c", AS_SOMEBODY, str(home)]
    done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=60)
    secret, module, shadow = done.stdout.splitlines()
    assert secret == shadow == '"No such file or directory"', done.stderr
    assert "def look" in module


@pytest.mark.skipif(not IS_ROOT, reason="it is about root")
def test_tools_are_confined_in_a_container() -> None:
    secret, module, shadow = in_a_container(AS_SOMEBODY, "/data").splitlines()
    assert secret == shadow == '"No such file or directory"'
    assert "def look" in module
