"""The wire contract of ``docs/reference/wire.md``, held against workers of two languages.

What is sent here is made by hand, as a gateway of any language would: a worker that passes is one
that a gateway can use.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import servers
from tests.bus.house import ROOT, bus, gateway, until
from toolpost import Caller
from toolpost.bus import ticket as tickets
from toolpost.bus import wire
from toolpost.bus.connection import Bus, Waiting
from toolpost.bus.embedded import Embedded
from toolpost.bus.ticket import Issuer, new_nonce
from toolpost.bus.wire import ALIVE, GONE, PROGRESS, REQUEST, RESPONSE, SPECS, TICKET, WORKER, said
from toolpost.call import Progress
from toolpost.result import Failure, Result
from toolpost.seal import new_seal, open_seal

pytestmark = pytest.mark.anyio
LANGUAGES = ["python", pytest.param("javascript", marks=servers.needed)]
ME = Caller(id="me", roles=frozenset(("ops",)))
GREETED = "Hello, Ada!"


class Side:
    """The side of a gateway: what a worker hears from, and what it is asked with."""

    def __init__(self, made: Bus, base: Path) -> None:
        self.bus, self.base, self.heard = made, base, list[Any]()
        self.issuer = Issuer(open_seal(base / ".toolpost/keys", "bus"))
        self.offered: dict[str, Any] = {}

    async def hear(self) -> None:
        async def put(message: Any) -> None:
            self.heard.append(json.loads(message.data))

        await self.bus.listen(self.bus.subjects.workers, put)
        await (await self.bus.client()).flush()

    async def meet(self) -> None:
        """Ask who is there, and then what it offers."""
        client = await self.bus.client()
        await client.publish(self.bus.subjects.roll_call)
        await until(lambda: self.heard)
        subject = self.bus.subjects.specs(self.heard[-1]["payload"]["worker"])
        asked = said(SPECS, {"from": 0}, source="test", number="1")
        told = json.loads((await client.request(subject, asked, timeout=10)).data)
        assert told["type"] == SPECS
        self.offered = told["payload"]

    @property
    def digest(self) -> str:
        digest: str = self.offered["tools"]["greet"]["digest"]
        return digest

    def body(self, arguments: Any = None, **more: Any) -> bytes:
        request = {"tool": "greet", "callId": "call-1", "timeout": 30.0, **more}
        request["arguments"] = {"name": "Ada"} if arguments is None else arguments
        return said(REQUEST, request, source="test", number="call-1")

    async def expect(self) -> Waiting:
        return (await self.bus.replies()).expect()

    def ticket(self, body: bytes, reply: str, **other: Any) -> str:
        issuer = other.pop("issuer", self.issuer)
        given = {"tool": "greet", "spec": self.digest, "body": body, "reply": reply}
        text: str = issuer.write(ME, **{"nonce": new_nonce(), **given, **other})
        return text

    async def send(self, body: bytes, reply: str, ticket: str | None, tool: str = "greet") -> None:
        headers = None if ticket is None else {TICKET: ticket}
        subject = self.bus.subjects.request(tool)
        await (await self.bus.client()).publish(subject, body, reply=reply, headers=headers)

    async def called(self, arguments: Any = None, **more: Any) -> Result:
        body, waiting = self.body(arguments, **more), await self.expect()
        await self.send(body, waiting.subject, self.ticket(body, waiting.subject))
        return result_of((await answers(waiting))[-1])


async def answers(waiting: Waiting) -> list[Any]:
    """What is said of a call up to its result, but for that it runs still."""
    heard: list[Any] = []
    while not heard or heard[-1]["type"] != RESPONSE:
        message = await waiting.next(20)
        assert message is not None, f"silence after {heard}"
        assert message.data, message.headers
        told = json.loads(message.data)
        if told["type"] != ALIVE:
            heard.append(told)
    return heard


def result_of(told: Any) -> Result:
    assert told["type"] == RESPONSE
    return Result.from_dict(told["payload"])


@asynccontextmanager
async def started(
    language: str, server: Embedded, prefix: str, base: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker as people run it."""
    variables = {"PREFIX": prefix, "NATS": server.url, "EVERY": "0.5", "DRAIN": "10"}
    words: list[str | Path]
    if language == "javascript":
        for file in (ROOT / "examples/workers/javascript").glob("*.mjs"):
            (base / file.name).write_bytes(file.read_bytes())
        if not (base / "node_modules").exists():
            (base / "node_modules").symlink_to(servers.INSTALLED / "node_modules")
        words = [f"{servers.node()}/node", base / "worker.mjs"]
    else:
        config = base / "worker.toml"
        config.write_text(
            '[[sources]]\nkind = "modules"\nmodules = ["tests.bus.wire_tools"]\n'
            "[worker]\nannounce = 0.5\n"
        )
        words = [sys.executable, "-m", "toolpost.cli.main", "--config", config, "worker",
                 "--nats", server.url, "--prefix", prefix, "--json"]  # fmt: skip
        variables = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = await asyncio.create_subprocess_exec(
        *words, cwd=base, stdout=asyncio.subprocess.PIPE, env={**os.environ, **variables}
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert json.loads(await child.stdout.readline())["tools"] == ["greet"]
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@asynccontextmanager
async def met(server: Embedded, prefix: str, base: Path) -> AsyncIterator[Side]:
    async with bus(server, prefix) as made:
        side = Side(made, base)
        await side.hear()
        yield side


@pytest.fixture(scope="module", params=LANGUAGES)
async def side(
    request: pytest.FixtureRequest, nats: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Side]:
    """One worker of each language, for all tests that leave it as it was."""
    base = tmp_path_factory.mktemp(request.param)
    async with (
        met(nats, request.param, base) as made,
        started(request.param, nats, request.param, base),
    ):
        await made.meet()
        yield made


async def test_a_worker_says_that_it_is_there_and_what_it_offers(side: Side) -> None:
    here = side.heard[-1]
    assert here["type"] == WORKER
    assert set(here) == {"id", "timestamp", "source", "type", "correlationId", "payload"}
    assert here["payload"]["offers"] == side.offered["offers"]
    assert here["payload"]["tools"] == len(side.offered["tools"]) == 1
    many = len(side.heard)
    await until(lambda: len(side.heard) > many, seconds=30)
    offer = side.offered["tools"]["greet"]
    assert offer["most"] >= 1
    assert offer["spec"]["input_schema"]["required"] == ["name"]


@pytest.mark.req("NA-6")
async def test_a_call_is_answered_in_the_envelope(side: Side) -> None:
    body, waiting = side.body(), await side.expect()
    await side.send(body, waiting.subject, side.ticket(body, waiting.subject))
    (told,) = await answers(waiting)
    assert told["correlationId"] == "call-1"
    assert told["timestamp"].endswith("Z")
    assert result_of(told).output == GREETED


async def test_a_gateway_uses_it_as_any_tool(side: Side, nats: Embedded) -> None:
    heard: list[Any] = []
    async with gateway(nats, side.bus.subjects.prefix, side.base) as tools:
        (spec,) = tools.list()
        assert (spec.name, spec.effects) == ("greet", "read")
        told = await tools.execute(
            "greet", {"name": "Ada", "seconds": 0.1}, on_progress=heard.append
        )
        assert told.output == GREETED
        assert [one.message for one in heard] == ["thinking"]


@pytest.mark.parametrize(
    "wrong",
    ["missing", "empty", "stale", "early", "altered", "another reply", "another body", "stranger"],
)
async def test_attack_a_call_with_such_a_ticket_is_refused(
    side: Side, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, waiting = side.body(), await side.expect()
    moved = {"stale": -25.0, "early": 25.0}.get(wrong, 0.0)
    monkeypatch.setattr(tickets, "time", lambda: time.time() + moved)
    other: dict[str, Any] = {
        "another reply": {"reply": "_INBOX.somebody.1"},
        "another body": {"body": body + b" "},
        "stranger": {"issuer": Issuer(new_seal())},
    }.get(wrong, {})
    text: str | None = side.ticket(**{"body": body, "reply": waiting.subject, **other})
    if wrong == "altered":
        assert text is not None
        head, _, signature = text.split(".")
        claims = side.ticket(body, waiting.subject).split(".")[1]
        text = f"{head}.{claims}.{signature}"
    await side.send(body, waiting.subject, {"missing": None, "empty": ""}.get(wrong, text))
    result = result_of((await answers(waiting))[-1])
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAUTHORIZED", "none")


async def test_attack_a_ticket_is_used_once(side: Side) -> None:
    body, waiting = side.body(), await side.expect()
    text = side.ticket(body, waiting.subject)
    codes = []
    for _ in range(3):
        await side.send(body, waiting.subject, text)
        error = result_of((await answers(waiting))[-1]).error
        codes.append(error and error.code)
    assert codes == [None, "UNAUTHORIZED", "UNAUTHORIZED"]


async def test_a_tool_that_has_changed_is_not_run_and_can_be_tried_again(side: Side) -> None:
    body, waiting = side.body(), await side.expect()
    await side.send(body, waiting.subject, side.ticket(body, waiting.subject, spec="sha256:0"))
    error = result_of((await answers(waiting))[-1]).error
    assert error is not None
    assert (error.code, error.effects, error.retryable) == ("UNAVAILABLE", "none", True)
    assert error.message == tickets.CHANGED


@pytest.mark.parametrize(
    "arguments", [{}, {"name": 5}, {"name": "Ada", "more": 1}, {"name": "Ada", "seconds": -1}]
)
async def test_arguments_that_do_not_fit_are_told_so(side: Side, arguments: Any) -> None:
    error = (await side.called(arguments)).error
    assert error is not None
    assert (error.code, error.remedy) == ("VALIDATION_ERROR", "fix_args")


async def test_a_request_that_names_another_tool_is_refused(side: Side) -> None:
    error = (await side.called(tool="other")).error
    assert error is not None
    assert error.code == "VALIDATION_ERROR"


async def test_for_a_tool_that_nobody_has_the_bus_itself_answers_at_once(side: Side) -> None:
    waiting = await side.expect()
    await side.send(side.body(), waiting.subject, None, "nobody")
    message = await waiting.next(10)
    assert message is not None
    assert (message.headers or {})["Status"] == "503"


@pytest.mark.parametrize("wanted", [True, False])
async def test_progress_is_told_before_the_result_if_somebody_listens(
    side: Side, wanted: bool
) -> None:
    body, waiting = (
        side.body({"name": "Ada", "seconds": 0.05}, progress=wanted),
        await side.expect(),
    )
    await side.send(body, waiting.subject, side.ticket(body, waiting.subject))
    heard = await answers(waiting)
    assert [one["type"] for one in heard] == [PROGRESS] * wanted + [RESPONSE]
    assert {one["correlationId"] for one in heard} == {"call-1"}
    if wanted:
        assert heard[0]["payload"]["message"] == "thinking"


async def test_it_says_that_a_call_runs_until_it_is_cancelled(side: Side) -> None:
    body, waiting = side.body({"name": "Ada", "seconds": 60}), await side.expect()
    nonce = new_nonce()
    await side.send(body, waiting.subject, side.ticket(body, waiting.subject, nonce=nonce))
    message = await waiting.next(20)
    assert message is not None
    told = json.loads(message.data)
    assert (told["type"], told["payload"]) == (ALIVE, None)
    await (await side.bus.client()).publish(side.bus.subjects.cancel(nonce))
    last = await waiting.next(0.8)
    if last is not None:  # it was on its way
        assert json.loads(last.data)["type"] == ALIVE
        assert await waiting.next(0.8) is None
    assert (await side.called()).output == GREETED


async def test_it_keeps_to_the_time_that_is_left(side: Side) -> None:
    error = (await side.called({"name": "Ada", "seconds": 30}, timeout=0.3)).error
    assert error is not None
    assert error.code == "TIMEOUT"


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_call_outlives_a_bus_that_is_away_for_a_moment_and_a_worker_ends_without_one(
    language: str, tmp_path: Path
) -> None:
    server = Embedded(tmp_path / "nats")
    await server.start()
    async with (
        gateway(server, "p", tmp_path) as tools,
        started(language, server, "p", tmp_path) as child,
    ):
        await until(tools.list)
        bus = tools.executor.backends["nats"].bus  # type: ignore[attr-defined]
        heard: list[Progress] = []
        given = {"name": "Ada", "seconds": 3}
        call = asyncio.create_task(tools.execute("greet", given, on_progress=heard.append))
        await until(lambda: heard)
        await server.stop()
        await until(lambda: bus.problem)
        await server.start()
        assert (await call).output == "Hello, Ada!"
        await server.stop()
        await until(lambda: bus.problem)
        child.terminate()
        async with asyncio.timeout(60):
            assert await child.wait() == 0


@pytest.mark.parametrize("language", LANGUAGES)
async def test_told_to_stop_it_says_that_it_goes_takes_no_more_and_ends_what_it_runs(
    nats: Embedded, prefix: str, tmp_path: Path, language: str
) -> None:
    async with (
        met(nats, prefix, tmp_path) as side,
        started(language, nats, prefix, tmp_path) as child,
    ):
        await side.meet()
        body, waiting = side.body({"name": "Ada", "seconds": 1}, progress=True), await side.expect()
        await side.send(body, waiting.subject, side.ticket(body, waiting.subject))
        kind = ""
        while kind != PROGRESS:
            message = await waiting.next(10)
            assert message is not None
            kind = json.loads(message.data)["type"]
        child.terminate()
        await until(lambda: side.heard[-1]["type"] == GONE, seconds=10)
        status = ""
        async with asyncio.timeout(20):
            while status != "503":
                refused = await side.expect()
                await side.send(b"", refused.subject, None)
                said_no = await refused.next(1)
                status = "" if said_no is None else (said_no.headers or {}).get("Status", "")
        assert result_of((await answers(waiting))[-1]).output == GREETED
        async with asyncio.timeout(20):
            assert await child.wait() == 0


def test_the_page_tells_of_every_field() -> None:
    """What is on the wire is in the tables of the page, and nothing else is."""
    page = (ROOT / "docs/reference/wire.md").read_text(encoding="utf-8")
    tables = {
        "Envelope": wire.Envelope, "Request": wire.Request, "Announcements": wire.Here,
        "Specs": wire.Page, "A tool that is offered": wire.Offered, "Progress": Progress,
        "Failures": Failure, "Claims": tickets.Ticket, "Caller": Caller,
    }  # fmt: skip
    for heading, kind in tables.items():
        _, found, rest = page.partition(f"# {heading}\n")
        assert found, heading
        section = re.split(r"^#", rest, maxsplit=1, flags=re.M)[0]
        told = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.M))
        assert told == {one.encode_name for one in msgspec.structs.fields(kind)}, heading
