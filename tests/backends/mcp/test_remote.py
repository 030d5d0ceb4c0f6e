"""Servers behind a URL: streamable HTTP in both eras, over connections that lead nowhere else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests import servers
from tests.backends.http.service import Reply
from tests.backends.http.service import serving as answering
from tests.backends.mcp.running import serving, until
from toolpost import Call, Caller
from toolpost.contracts import Answer, Elicits, Question

pytestmark = [pytest.mark.anyio, servers.needed]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def listening(
    words: Sequence[str], port: int, folder: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server of its own, that listens; killed at the end."""
    env = {"PATH": f"{servers.node()}:/usr/bin:/bin", "ODD": str(folder), **environment}
    with subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL, stdout=-3) as running:
        try:
            for _ in range(300):
                with socket.socket() as trying:
                    trying.settimeout(1)
                    if trying.connect_ex(("127.0.0.1", port)) == 0:
                        break
                try:
                    running.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            yield running
        finally:
            running.kill()


def odd(port: int, *tokens: str) -> list[str]:
    return [servers.PYTHON, servers.ODD, "http", str(port), *tokens]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.mark.req("UX-6")
async def test_a_server_of_the_later_era_is_called_over_http(port: int, tmp_path: Path) -> None:
    async def ask(call: Call, question: Question) -> Answer:
        return Answer("accept", {"name": call.caller.id})

    url = f"http://127.0.0.1:{port}/mcp"
    with listening(odd(port), port, tmp_path):
        async with serving({"odd": {"url": url}}, tmp_path, provide={Elicits: ask}) as runtime:
            added = await runtime.execute("odd.add", {"a": 1, "b": 2})
            asked = await runtime.execute("odd.ask", {}, caller=Caller("ada"))
            told: list[object] = []
            await runtime.execute("odd.steps", {}, on_progress=told.append)
            await runtime.execute("odd.wait", {}, timeout=1.0)
            await until((tmp_path / "cancelled").exists)
            await runtime.execute("odd.change", {})
            await until(lambda: "secrets" in str(runtime.registry.get("odd.greet")))
    assert added.output == "3"
    assert asked.output == "accept: ada"
    assert len(told) == 3


@pytest.mark.req("UX-6")
async def test_a_server_of_the_earlier_era_is_called_over_http(port: int, tmp_path: Path) -> None:
    everything = str(servers.INSTALLED / "node_modules/.bin/mcp-server-everything")
    url = f"http://127.0.0.1:{port}/mcp"
    with listening([everything, "streamableHttp"], port, tmp_path, PORT=str(port)):
        async with serving({"all": {"url": url}}, tmp_path) as runtime:
            told: list[object] = []
            echoed = await runtime.execute("all.echo", {"message": "hi"})
            picture = await runtime.execute("all.get-tiny-image", {})
            long = await runtime.execute(
                "all.trigger-long-running-operation",
                {"duration": 0.3, "steps": 3},
                on_progress=told.append,
            )
    assert echoed.output == "Echo: hi"
    assert len(picture.parts) == 3
    assert long.success
    assert len(told) == 3


@pytest.mark.req("UX-6")
async def test_a_server_that_was_restarted_has_forgotten_us_and_is_met_anew(
    port: int, tmp_path: Path
) -> None:
    everything = str(servers.INSTALLED / "node_modules/.bin/mcp-server-everything")
    url = f"http://127.0.0.1:{port}/mcp"
    words = [everything, "streamableHttp"]
    with listening(words, port, tmp_path, PORT=str(port)) as first:
        async with serving({"all": {"url": url}}, tmp_path) as runtime:
            before = await runtime.execute("all.echo", {"message": "hi"})
            first.kill()
            await asyncio.to_thread(first.wait, 10)
            away = await runtime.execute("all.echo", {"message": "hi"})
            with listening(words, port, tmp_path, PORT=str(port)):
                await until_well(runtime, "all.echo", {"message": "hi"})
    assert before.success
    assert away.error is not None
    assert away.error.code == "UNAVAILABLE"


async def until_well(runtime: object, tool: str, arguments: dict[str, object]) -> None:
    async with asyncio.timeout(30):
        while not (await runtime.execute(tool, arguments)).success:  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)


async def test_credentials_belong_to_their_caller(port: int, tmp_path: Path) -> None:
    secrets = {"TOKEN_owner": "owners-token", "TOKEN_ada": "adas-token", "TOKEN_eve": "stolen"}
    about = {"odd": {"url": f"http://127.0.0.1:{port}/mcp", "bearer": "TOKEN_{caller}"}}
    with listening(odd(port, "owners-token", "adas-token"), port, tmp_path):
        async with serving(about, tmp_path, secret=secrets.get) as runtime:
            ada = await runtime.execute("odd.who", {}, caller=Caller("ada"))
            eve = await runtime.execute("odd.who", {}, caller=Caller("eve"))
            bob = await runtime.execute("odd.who", {}, caller=Caller("bob"))
    assert ada.output.endswith("Bearer adas-token")
    assert eve.error is not None
    assert bob.error is not None
    assert (eve.error.code, bob.error.code) == ("UNAUTHORIZED", "UNAUTHORIZED")


async def test_a_page_that_is_no_server_is_told_of_without_the_words_of_the_sdk(
    tmp_path: Path,
) -> None:
    async with answering(lambda asked: Reply("<html>hi</html>")) as web:
        url = f"http://127.0.0.1:{web.port}/mcp"
        async with serving({"page": {"url": url}}, tmp_path) as runtime:
            (problem,) = runtime.problems.values()
    assert problem == "page: it answered with something that is not in the protocol"


class _Elsewhere(BaseHTTPRequestHandler):
    """Sends everybody to another place, where somebody counts who comes."""

    target = ""
    seen: list[str]

    def do_POST(self) -> None:
        self.seen.append(self.headers.get("authorization", ""))
        self.send_response(307)
        self.send_header("location", self.target)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def redirecting(target: str) -> Iterator[tuple[int, list[str]]]:
    seen: list[str] = []
    handler = type("Handler", (_Elsewhere,), {"target": target, "seen": seen})
    web = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield web.server_port, seen
    finally:
        web.shutdown()
        web.server_close()
        thread.join(10)


async def test_a_redirect_to_another_place_is_not_followed(tmp_path: Path) -> None:
    with (
        redirecting("http://127.0.0.1:1/") as (there, came),
        redirecting(f"http://127.0.0.1:{there}/mcp") as (here, asked),
    ):
        about = {"odd": {"url": f"http://127.0.0.1:{here}/mcp", "bearer": "TOKEN"}}
        async with serving(about, tmp_path, secret={"TOKEN": "secret"}.get) as runtime:
            assert runtime.problems
    assert set(asked) == {"Bearer secret"}
    assert came == []


async def test_a_name_that_leads_to_this_machine_is_refused(tmp_path: Path) -> None:
    """Only what the config spells as such may be private; a name that turns out so is a trick."""
    about = {
        "decimal": {"url": "http://2130706433/mcp"},
        "metadata": {"url": "http://169.254.169.254.nip.invalid/mcp"},
    }
    async with serving(about, tmp_path) as runtime:
        (problem,) = runtime.problems.values()
    assert "neither a name nor an ordinary address" in problem
