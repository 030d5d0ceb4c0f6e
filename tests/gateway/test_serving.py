"""The server's life: it starts, says where it is, serves from several processes, and ends well."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.program import inside
from tests.gateway import program as programs
from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Running, answer_from, events, request, serving
from toolpost.config import Config
from toolpost.errors import ConfigError
from toolpost.gateway.access_log import AccessLog
from toolpost.gateway.settings import settings_of

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
SLEEPS = """\
from toolpost import tool
import subprocess

@tool(tier=0, effects="read", isolation="process", timeout=60)
def sleep(seconds: float) -> str:
    "Sleep in a child of a child."
    subprocess.run(["sleep", str(seconds)], check=True)
    return "slept"
"""
CONFIG = """\
[[sources]]
kind = "modules"
modules = ["sleeps"]
[gateway]
port = 0
drain_time = {drain}
"""


@asynccontextmanager
async def program(
    folder: Path, *words: str, drain: float = 20.0, config: str = ""
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, str]]:
    """``toolpost serve`` in a process of its own: it, its port, and what it said."""
    (folder / "sleeps.py").write_text(SLEEPS, encoding="utf-8")
    text = config or CONFIG.format(drain=drain)
    (folder / "toolpost.toml").write_text(text, encoding="utf-8")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolpost.cli.main", "serve", *words),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
    )
    assert child.stdout is not None
    try:
        said = b""
        async with asyncio.timeout(90):
            while b"mcpServers" not in said:
                line = await child.stdout.readline()
                assert line, (await child.stderr.read()).decode()  # type: ignore[union-attr]
                said += line
        port = re.search(rb"http://127\.0\.0\.1:(\d+)", said)
        assert port is not None
        yield child, int(port[1]), said.decode()
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                async with asyncio.timeout(40):
                    await child.wait()
            except TimeoutError:
                child.kill()
        await child.communicate()


def sleeping(seconds: float) -> bytes:
    return json.dumps({"arguments": {"seconds": seconds}}).encode()


async def ask(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        headers = {"host": f"127.0.0.1:{port}", "content-type": "application/json"}
        writer.write(request("GET" if body is None else "POST", path, body, headers))
        async with asyncio.timeout(60):
            answer = await answer_from(reader)
        return answer.status, answer.body
    finally:
        writer.close()


def sleepers(seconds: float) -> bool:
    """Whether a child of a tool sleeps for so long, in whatever namespace."""
    words = b"sleep\0%b\0" % str(seconds).encode()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == words:
                return True
    return False


async def until_sleeping(seconds: float, *, there: bool = True) -> None:
    async with asyncio.timeout(30):
        while sleepers(seconds) is not there:
            await asyncio.sleep(0.01)


async def test_what_make_run_serves_says_a_first_call_that_works_by_copy_and_paste(
    tmp_path: Path,
) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "toolpost --config examples/gateway/toolpost.toml serve" in makefile
    config = (ROOT / "examples/gateway/toolpost.toml").read_text(encoding="utf-8")
    async with program(tmp_path, "--port", "0", config=config) as (_, port, said):
        [curl] = [line.strip() for line in said.splitlines() if line.strip().startswith("curl")]
        pasted = await asyncio.create_subprocess_exec(
            "bash", "-euc", curl, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(30):
            answer, _ = await pasted.communicate()
        assert json.loads(answer)["output"]["result"] == 42
        client = json.loads(said.splitlines()[-1])
        assert client["mcpServers"]["toolpost"]["url"] == f"http://127.0.0.1:{port}/mcp"
        status, listed = await ask(port, "/v1/tools")
        assert status == 200
        assert all(one["tier"] <= 1 for one in json.loads(listed)["tools"] if "tier" in one)


async def test_the_first_call_that_it_says_is_of_a_tool_that_is_there(tmp_path: Path) -> None:
    config = '[gateway]\nport = 0\n[store]\nkind = "memory"\n'
    config += '[[sources]]\nkind = "builtin"\nnamespace = "mine"\n'
    async with program(tmp_path, config=config) as (child, port, said):
        assert f"http://127.0.0.1:{port}/v1/tools/mine.time:call" in said
        status, answer = await ask(port, "/v1/tools/mine.time:call", b'{"arguments": {}}')
        assert (status, json.loads(answer)["success"]) == (200, True)
        child.terminate()
        _, err = await child.communicate()
        assert b"warning: the store is in memory: jobs, keys and approvals end with" in err


@pytest.mark.parametrize("host", ["", "x" * 64 + ".example"])
def test_a_host_that_is_none_is_said_to_be_none(tmp_path: Path, host: str) -> None:
    (tmp_path / "toolpost.toml").write_text("[gateway.auth]\nkeys = true\n", encoding="utf-8")
    ended = inside("serve", "--port=0", f"--host={host}", cwd=tmp_path)
    assert ended.returncode == 2 and "host" in ended.stderr and "Sorry" not in ended.stderr


async def test_a_call_in_flight_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    async with program(tmp_path) as (child, port, said):
        assert f"http://127.0.0.1:{port}/mcp" in said
        call = asyncio.create_task(ask(port, "/v1/tools/sleep:call", sleeping(1.0625)))
        await until_sleeping(1.0625)
        child.send_signal(signal.SIGTERM)
        status, answer = await call
        assert (status, json.loads(answer)["output"]) == (200, "slept")
        assert await child.wait() == 0
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_call_that_does_not_end_in_time_is_cancelled_down_to_its_processes(
    tmp_path: Path,
) -> None:
    async with program(tmp_path, drain=0.3) as (child, port, _):
        call = asyncio.create_task(ask(port, "/v1/tools/sleep:call", sleeping(51.0625)))
        await until_sleeping(51.0625)
        child.send_signal(signal.SIGTERM)
        status, answer = await call
        assert (status, json.loads(answer)["code"]) == (503, "UNAVAILABLE")
        await until_sleeping(51.0625, there=False)
        assert await child.wait() == 0
        assert child.stderr is not None
        said = (await child.stderr.read()).decode()
        assert "calls in flight: 1; they have 0.3 s to end, and Ctrl-C again cancels them" in said
        assert "calls cancelled after 0.3 s: 1" in said
        [logged] = [json.loads(line) for line in said.splitlines() if '"toolpost.access"' in line]
        assert logged["status"] == 503 and logged["call_id"]


CUT_OFF = {
    "nap": ({"seconds": 50, "mark": "n"}, (True, "wait", "none")),
    "put": ({"to": "x", "seconds": 50}, (True, "wait", "unknown")),
    "pay": ({"to": "y", "seconds": 50}, (False, "stop", "unknown")),
}


async def test_a_call_that_the_end_cuts_off_is_said_to_be_worth_repeating_if_it_is(
    tmp_path: Path,
) -> None:
    async with programs.program(tmp_path, drain_time=0.2) as served:
        asked = {
            (name, accept): asyncio.create_task(served.call(name, given, {"accept": accept}))
            for name, (given, _) in CUT_OFF.items()
            for accept in ("application/json", "text/event-stream")
        }
        await served.until_done("n began")
        await served.until_done("paid y")
        async with asyncio.timeout(30):
            while (await served.get("/readyz")).data["calls"] < len(asked):
                await asyncio.sleep(0.01)
        assert await served.ended(signal.SIGTERM) == 0
        for (name, _), asking in asked.items():
            answer = await asking
            said = answer.data if answer.status == 503 else events(answer.body)[-1][1]["error"]
            assert (said["retryable"], said["remedy"], said["effects"]) == CUT_OFF[name][1]


async def test_a_second_ctrl_c_does_not_wait_for_the_calls(tmp_path: Path) -> None:
    async with program(tmp_path) as (child, port, _):
        call = asyncio.create_task(ask(port, "/v1/tools/sleep:call", sleeping(53.0625)))
        await until_sleeping(53.0625)
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        async with asyncio.timeout(20):
            while b"Ctrl-C again" not in await child.stderr.readline():
                pass
            child.send_signal(signal.SIGINT)
            assert (await call)[0] == 503
            assert b"calls cancelled at a second signal: 1" in await child.stderr.read()
            assert await child.wait() == 0


async def test_a_process_that_is_killed_while_it_starts_is_named(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import os; os.kill(os.getpid(), 9)\n", encoding="utf-8")
    config = '[[sources]]\nkind = "modules"\nmodules = ["slow"]\n'
    (tmp_path / "toolpost.toml").write_text(config, encoding="utf-8")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolpost.cli.main", "serve", "--port=0", "--processes=2"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )
    async with asyncio.timeout(60):
        _, err = await child.communicate()
    assert re.search(rb"server process \d+ was ended by SIGKILL while it was starting", err)
    assert child.returncode == 128 + signal.SIGKILL


KEYS = """\
[gateway]
host = "0.0.0.0"
port = 0
[gateway.auth]
keys = true
"""


async def test_what_listens_everywhere_and_has_no_tools_says_so_and_waits_for_no_reader(
    tmp_path: Path,
) -> None:
    async with program(tmp_path, config=KEYS) as (child, port, said):
        assert f"{port}, and at every address of this machine, port {port}  (Ctrl-C" in said
        headers = {"host": f"127.0.0.1:{port}", "authorization": "Bearer nobody's"}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            for _ in range(1500):  # each of them is told of, and nobody reads it
                writer.write(request("GET", "/v1/tools", None, headers, close=False))
                assert (await answer_from(reader)).status in (401, 429)
        writer.close()
        child.terminate()
        _, err = await child.communicate()
        assert b"warning: there are no tools" in err and b"[[sources]]" in err


async def test_a_source_without_tools_is_warned_of_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "nothing_here.py").write_text("number = 5\n", encoding="utf-8")
    empty = '[gateway]\nport = 0\n[[sources]]\nkind = "modules"\nmodules = ["nothing_here"]\n'
    async with program(tmp_path, config=empty) as (child, _, _):
        child.terminate()
        _, err = await child.communicate()
    assert b"warning: source 1 (modules): it has no tools: the module nothing_here" in err


async def test_several_processes_serve_one_address_and_one_store(tmp_path: Path) -> None:
    async with program(tmp_path, "--processes", "2") as (child, port, _):
        ids = set()
        async with asyncio.timeout(60):
            while len({one.partition("-")[0] for one in ids}) < 2:
                status, answer = await ask(port, "/v1/tools/sleep:call", sleeping(0.0))
                assert status == 200
                ids.add(json.loads(answer)["metadata"]["call_id"])
        async with asyncio.timeout(60):
            while True:
                _, answer = await ask(port, "/v1/audit?limit=1000")
                if ids <= {one["call_id"] for one in json.loads(answer)["calls"]}:
                    break
                await asyncio.sleep(0.05)
        _, answer = await ask(port, "/v1/audit:verify", b"")
        assert json.loads(answer)["ok"] is True
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0


async def test_a_disconnect_reaches_the_process_tree(tmp_path: Path) -> None:
    async with program(tmp_path) as (_, port, _said):
        call = asyncio.create_task(ask(port, "/v1/tools/sleep:call", sleeping(52.0625)))
        await until_sleeping(52.0625)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until_sleeping(52.0625, there=False)


async def test_whoever_only_listens_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path, *ALL, jobs=True, drain_time=30.0) as served:
        job = await served.call("wait", {"mark": "watched"}, {"prefer": "respond-async"})
        where = job.headers["location"]
        watching = asyncio.create_task(served.get(where, {"accept": "text/event-stream"}))
        await until("watched began")
        async with asyncio.timeout(20):
            while len(served.server.server_state.tasks) < 1:
                await asyncio.sleep(0.01)
        served.server.stop()
        async with asyncio.timeout(15):
            await asyncio.gather(watching, return_exceptions=True)
        served.server.force_exit = True  # the job itself would be waited for


async def test_the_access_log_has_a_line_of_json_for_each_request(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    async with serving(tmp_path, *ALL, access_log=log) as served:
        call = await served.call("add", {"a": 1, "b": 2})
        await served.get("/v1/tools?tag=ghp_0123456789abcdefghijABCDEFGHIJ012345")
        await served.get("/ghp_0123456789abcdefghijABCDEFGHIJ012345")
        await served.get("/%0a%1b[31mred")
        await served.post("/v1/tools/add:call", b"nonsense")
        leaving = asyncio.create_task(served.call("wait", {"mark": "logged"}))
        await until("logged began")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await until("logged was cancelled")
    await log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(one["method"], one["path"], one["status"]) for one in lines]
    assert told[0] == ("POST", "/v1/tools/add:call", 200)
    assert lines[0]["call_id"] == call.data["metadata"]["call_id"]
    assert lines[0]["caller"] == "local"
    assert told[1] == ("GET", "/v1/tools", 200)
    assert told[4] == ("POST", "/v1/tools/add:call", 400)
    assert told[5] == ("POST", "/v1/tools/wait:call", 499)
    assert lines[5]["call_id"]
    assert "ghp_" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


class Stuck(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("before", range(260, 300, 8))
async def test_a_secret_is_not_cut_in_the_access_log_before_it_is_found(before: int) -> None:
    stream = io.StringIO()
    log = AccessLog(stream)
    path = f"/{'x/' * (before // 2)}ghp_0123456789abcdefghijABCDEFGHIJ012345/{'y/' * 5000}"
    log.note("GET", path, status=404, began=0.0, peer=None, caller=None, call_id=None)
    await log.close()
    assert "ghp_" not in stream.getvalue()
    assert len(json.loads(stream.getvalue())["path"]) == 300


async def test_a_log_that_nobody_reads_keeps_nobody_waiting(tmp_path: Path) -> None:
    log = AccessLog(Stuck())
    async with serving(tmp_path, *ALL, access_log=log) as served:
        for _ in range(3):
            assert (await served.call("add", {"a": 1, "b": 2})).status == 200
            await asyncio.sleep(0.11)
    await log.close()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"prt": 1}, "gateway has no setting 'prt'; did you mean 'port'?"),
        ({"port": 70_000}, "port must be 0 to 65535"),
        ({"port": "x"}, "gateway port: expected `int`, got `str`"),
        ({"body": 5}, "body must be 1024 to"),
        ({"calls_each": 0}, "calls_each must be 1 to"),
        ({"half_open": 0}, "half_open must be 1 to"),
        ({"head_time": 0}, "head_time must be 0.1 to 86400"),
        ({"host": ""}, "host is an address or a name"),
        ({"auth": 5}, "gateway auth is a table: [gateway.auth]"),
        ({"auth": {"key": True}}, "did you mean 'keys'?"),
        ({"mcp": {"pages": 5}}, "did you mean 'page'?"),
        ({"hosts": ["http://x"]}, "is no name of a host"),
        ({"origins": ["x"]}, "is no origin"),
    ],
)
async def test_a_setting_that_is_wrong_is_said_with_its_place(
    table: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(Config.of({"gateway": table}))
    assert told in caught.value.message
    assert caught.value.message.startswith("the given settings: ")
    assert caught.value.at[0] == "gateway"


async def test_an_app_of_ours_runs_under_another_server_too(tmp_path: Path) -> None:
    """Without the task in the scope the call itself watches for the client's end."""
    async with serving(tmp_path, *ALL) as served:
        leave = asyncio.Event()
        answered: list[dict[str, object]] = []
        body = json.dumps({"arguments": {"mark": "elsewhere"}}).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, object]:
            for message in messages:
                return message
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            answered.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/tools/wait:call",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
        }
        call = asyncio.create_task(_under(served, scope, receive, send))
        await until("elsewhere began")
        leave.set()
        async with asyncio.timeout(20):
            await call
        assert "elsewhere was cancelled" in MARKS
        assert answered == []


async def _under(served: Running, scope: object, receive: object, send: object) -> None:
    await served.gateway(scope, receive, send)  # type: ignore[arg-type]
