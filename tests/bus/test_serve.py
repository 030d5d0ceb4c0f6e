"""Two terminals: a gateway with a bus of its own, and a worker whose tools it serves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import ROOT, until
from tests.processes import descendants
from toolpost.bus.embedded import free_port

pytestmark = pytest.mark.anyio


async def started(folder: Path, *words: str) -> tuple[asyncio.subprocess.Process, dict[str, Any]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolpost.cli.main", *words, "--json",
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert child.stdout is not None
    async with asyncio.timeout(60):
        return child, json.loads(await child.stdout.readline())


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.req("NA-6")
async def test_a_call_to_the_gateway_runs_in_the_workers_process(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "worker.toml").write_text(
        '[[sources]]\nkind = "modules"\nmodules = ["tests.bus.served_tools"]\n'
    )
    serving, told = await started(tmp_path, "serve", "--port", "0", "--nats", f"embedded:{port}")
    working = None
    try:
        tools = f"{told['address']}/v1/tools"
        assert "calculator" in json.dumps(asked(tools))  # what can do no harm is there as well
        working, _ = await started(
            tmp_path, "--config", "worker.toml", "worker", "--nats", f"nats://127.0.0.1:{port}"
        )
        await until(lambda: '"name": "where"' in json.dumps(asked(tools)))
        answer = await asyncio.to_thread(asked, f"{tools}/where:call", {"arguments": {}})
        assert answer["output"] == working.pid
        (nats,) = (pid for pid in descendants(serving.pid) if "nats-server" in name_of(pid))
        os.kill(nats, signal.SIGKILL)  # it is started again, and both come back

        def runs_again() -> bool:
            try:
                return bool(
                    asked(f"{tools}/where:call", {"arguments": {}})["output"] == working.pid
                )
            except OSError:
                return False

        await until(lambda: nats not in descendants(serving.pid))
        await until(runs_again, 60)
        working.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await working.wait() == 0
        await until(lambda: '"name": "where"' not in json.dumps(asked(tools)))
    finally:
        for child in (working, serving):
            if child is not None and child.returncode is None:
                child.terminate()
                async with asyncio.timeout(30):
                    await child.wait()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)  # its bus has gone with it
