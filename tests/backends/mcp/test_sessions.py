"""What becomes of a call when a server crashes, hangs, floods, asks back or changes its mind."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.backends.mcp.running import processes, serving, until
from toolpost import Call, Caller, Progress, Registry, Runtime, ToolSpec
from toolpost.backends.mcp import kept
from toolpost.backends.mcp import session as sessions
from toolpost.backends.mcp.launching import launch_of
from toolpost.backends.mcp.session import Session
from toolpost.backends.mcp.settings import McpOptions
from toolpost.backends.mcp.stdio import child_streams
from toolpost.call import new_call_id
from toolpost.config import GUARDS
from toolpost.contracts import Answer, Elicits, Question
from toolpost.executor import Executor
from toolpost.options import options_from
from toolpost.plugins import SharedSandbox
from toolpost.result import Audio, Image, Metadata, Resource, Text

pytestmark = [pytest.mark.anyio, servers.needed]

ODD = "odd.py"
ERAS = pytest.mark.parametrize("legacy", [False, True], ids=["2026-07-28", "handshake"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("guards", [(), GUARDS], ids=["no rings", "the default ones"])
async def test_every_kind_of_content_is_kept(
    guards: tuple[str, ...], place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path, guards=guards) as runtime:
        result = await runtime.execute("odd.pieces", {})
    assert result.parts == (
        Text("Look:"),
        Image(b"\x89PNG", "image/png"),
        Audio(b"RIFF", "audio/wav"),
        Resource("memo://1", "text/plain", "a memo"),
        Resource("memo://2", None, None, b"\0\1"),
        Resource("file:///far", "text/html", name="far", description="Far away."),
    )
    assert result.output is None


@pytest.mark.req("UX-6")
async def test_a_call_that_crashes_the_server_is_a_typed_error_and_the_next_one_works(
    place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        crashed = await runtime.execute("odd.crash", {})
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert crashed.error is not None
    assert (crashed.error.code, crashed.error.effects) == ("UNAVAILABLE", "unknown")
    assert crashed.error.remedy == "stop", "it may have been done"
    assert after.output == "3"


async def test_a_server_that_keeps_crashing_is_left_alone_for_longer_and_longer(
    place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        results = [await runtime.execute("odd.crash", {}) for _ in range(4)]
    errors = [result.error for result in results if result.error is not None]
    assert [(error.code, error.effects) for error in errors[:2]] == [("UNAVAILABLE", "unknown")] * 2
    assert [(error.code, error.effects) for error in errors[2:]] == [("UNAVAILABLE", "none")] * 2
    assert all(error.retry_after for error in errors[2:])


async def test_one_endless_line_ends_the_server_and_not_us(place: Path, tmp_path: Path) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        flooded = await runtime.execute("odd.flood", {}, timeout=30)
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert flooded.error is not None
    assert (flooded.error.code, flooded.error.effects) == ("OUTPUT_TOO_LARGE", "unknown")
    assert after.output == "3"


async def test_how_far_a_server_is_reaches_who_called(place: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        result = await runtime.execute("odd.steps", {}, on_progress=told.append)
    assert result.success
    assert told == [Progress(float(step), 3.0, f"step {step}") for step in range(3)]


@pytest.mark.parametrize("how", ["limit", "caller"])
async def test_a_call_that_is_given_up_is_cancelled_at_the_server(
    how: str, place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        limit = 1.0 if how == "limit" else 30.0
        calling = asyncio.create_task(runtime.execute("odd.wait", {}, timeout=limit))
        await until((place / "waiting").exists)
        if how == "caller":
            calling.cancel()
        (result,) = await asyncio.gather(calling, return_exceptions=True)
        await until((place / "cancelled").exists)
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
    if how == "caller":
        assert isinstance(result, asyncio.CancelledError)
    else:
        assert not isinstance(result, BaseException)
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("TIMEOUT", "unknown")
    assert after.output == "3"


async def test_the_pattern_of_a_stranger_is_not_run_by_the_sdk(place: Path, tmp_path: Path) -> None:
    """Python's own engine would take ages for it: the test would not end in time."""
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        slow = await runtime.execute("odd.slow_pattern", {})
        lie = await runtime.execute("odd.liar", {})
    assert slow.error is not None
    assert lie.error is not None
    assert slow.error.code == lie.error.code == "OUTPUT_INVALID"


async def test_only_who_may_be_asked_is_asked(place: Path, tmp_path: Path) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        result = await runtime.execute("odd.ask", {})
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("EXECUTION_ERROR", "other_tool")
    assert "nobody can be asked" in result.error.message


async def test_what_a_server_wants_to_know_is_put_to_who_called(
    place: Path, tmp_path: Path
) -> None:
    heard: list[tuple[str, Question]] = []

    async def ask(call: Call, question: Question) -> Answer:
        heard.append((call.caller.id, question))
        return Answer("accept", {"name": "Ada"})

    about = {"odd": servers.odd(place), "everything": servers.of_npm("everything")}
    async with serving(about, tmp_path, provide={Elicits: ask}) as runtime:
        modern = await runtime.execute("odd.ask", {}, caller=Caller("ada"))
        earlier = await runtime.execute("everything.trigger-elicitation-request", {})
    assert modern.output == "accept: Ada"
    assert "Ada" in str(earlier.parts)
    assert [caller for caller, _ in heard] == ["ada", "owner"]
    assert heard[0][1].message == "Who are you?"
    assert heard[0][1].schema == {"type": "object", "properties": {"name": {"type": "string"}}}


def _call(tool: str, caller: str = "ada") -> Call:
    spec = ToolSpec(name=tool, description="x", kind="mcp")
    about = Metadata()
    return Call(tool, spec, {}, Caller(caller), new_call_id(), about)


class _Live:
    """A session with the odd server, in an era of choice."""

    def __init__(self, place: Path, *, legacy: bool, **more: Any) -> None:
        options = options_from({"servers": {"odd": servers.odd(place)}}, McpOptions, "test")
        launch = launch_of("odd", options.servers["odd"], None)
        self.changes = 0
        self._sandbox, self._legacy = SharedSandbox(), legacy
        wire = partial(child_streams, partial(launch.start, self._sandbox, {}))
        about = {"idle": 600.0, "elicits": None, **more}
        self.session = Session(wire, changed=self._changed, **about)

    def _changed(self) -> None:
        self.changes += 1

    async def __aenter__(self) -> _Live:
        await self.session.open(legacy=self._legacy)
        assert self.session.modern is not self._legacy
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self._sandbox.close()


@ERAS
async def test_both_eras_list_call_and_answer_when_asked_whether_they_are_there(
    legacy: bool, place: Path
) -> None:
    async with asyncio.timeout(60), _Live(place, legacy=legacy) as live:
        listing = await live.session.tools()
        await live.session.ping()
        done = await live.session.call("steps", _call("steps"))
    assert {"add", "greet", "bomb"} <= listing.pins.keys(), "from several pages"
    assert done == "done"


@ERAS
async def test_both_eras_tell_of_a_list_that_has_changed(legacy: bool, place: Path) -> None:
    async with asyncio.timeout(60), _Live(place, legacy=legacy) as live:
        before = await live.session.tools()
        await until(lambda: legacy or live.session.listening)
        await live.session.call("change", _call("change"))
        await until(lambda: live.changes)
        after = await live.session.tools()
    assert before.pins["greet"] != after.pins["greet"]
    assert before.pins["add"] == after.pins["add"]


@ERAS
async def test_a_question_that_may_be_anothers_is_put_to_nobody(legacy: bool, place: Path) -> None:
    heard: list[str] = []

    async def ask(call: Call, question: Question) -> Answer:
        heard.append(call.caller.id)
        return Answer("decline")

    async with asyncio.timeout(60), _Live(place, legacy=legacy, elicits=ask) as live:
        waiting = asyncio.create_task(live.session.call("wait", _call("wait", "bob")))
        await until((place / "waiting").exists)
        answer = await live.session.call("ask", _call("ask", "ada"))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    # only the later era says to which call a question belongs
    assert (answer, heard) == (("cancel: None", []) if legacy else ("decline: None", ["ada"]))


async def test_a_server_that_is_idle_goes_and_comes_back_for_the_next_call(
    place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place, idle=0.5)}, tmp_path) as runtime:
        first = await runtime.execute("odd.who", {})
        assert processes(ODD)
        await until(lambda: not processes(ODD))
        second = await runtime.execute("odd.who", {})
    assert first.success
    assert second.success


async def test_a_server_that_is_listed_and_never_called_goes_idle_as_often_as_it_likes(
    tmp_path: Path,
) -> None:
    about = {"plain": servers.plain(idle=0.3)}
    async with serving(about, tmp_path, watch=False) as runtime:
        for _ in range(4):
            await until(lambda: not processes("plain.py"))
            assert await runtime.reload() == {}
        called = await runtime.execute("plain.read", {"path": "/nowhere"})
    assert called.output == "FileNotFoundError"


async def test_a_server_that_answers_when_asked_whether_it_is_there_has_answered(
    tmp_path: Path,
) -> None:
    async with serving({"plain": servers.plain()}, tmp_path, watch=False) as runtime:
        for _ in range(4):
            assert (await runtime.executor.health("plain.read")).healthy
            for one in processes("plain.py"):
                one.kill()
            await until(lambda: not processes("plain.py"))


async def test_a_server_that_does_not_answer_any_more_is_replaced(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PING_EVERY", 0.2)
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        (server,) = [one for one in processes(ODD) if not one.children()]
        server.suspend()
        with monkeypatch.context() as hasty:  # whoever is well has time to answer
            hasty.setattr(sessions, "_PING_WITHIN", 0.5)
            await until(lambda: not server.is_running())
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert after.output == "3"


@pytest.mark.req("UX-6")
@pytest.mark.parametrize("how", ["block", "stop", "deaf"])
async def test_a_server_that_hangs_is_killed_and_restarted_after_a_call_has_timed_out(
    how: str, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    about = servers.odd(place, timeout=50, isolation="process" if how == "stop" else "sandbox")
    async with serving({"odd": about}, tmp_path) as runtime:
        (server,) = [one for one in processes(ODD) if not one.children()]
        hung = await runtime.execute(f"odd.{how}", {}, timeout=1)
        await until(lambda: not server.is_running())
        await until(lambda: "hangs and is restarted" in caplog.text)
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
        again = await runtime.execute("odd.add", {"a": 1, "b": 2})
        health = await runtime.health()
        of_tool = await runtime.executor.health("odd.add")
    assert hung.error is not None
    assert (hung.error.code, hung.error.effects) == ("TIMEOUT", "unknown")
    assert after.output == "3"
    assert [*after.metadata.warnings] == [
        "The server behind this tool had stopped answering and was restarted."
    ]
    assert not again.metadata.warnings, "it is told once"
    (source,) = [one for part, one in health.items() if part.startswith("source")]
    for told in (source, of_tool):
        assert told.healthy
        assert "it hung and was restarted once" in (told.error or "")


async def test_calls_on_a_server_that_is_killed_for_hanging_may_have_been_done(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BUSY_WITHIN", 1.0)
    async with serving({"odd": servers.odd(place, timeout=50)}, tmp_path) as runtime:
        waiting = asyncio.create_task(runtime.execute("odd.block", {}))
        await until((place / "blocked").exists)
        impatient = await runtime.execute("odd.greet", {}, timeout=1)
        result = await waiting
    assert impatient.error is not None
    assert impatient.error.code == "TIMEOUT"
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "unknown")
    assert "stopped answering" in result.error.message


async def test_a_ping_that_the_sdk_gave_up_is_no_answer(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.2)
    async with serving({"odd": servers.odd(place, timeout=50)}, tmp_path) as runtime:
        (server,) = [one for one in processes(ODD) if not one.children()]
        await runtime.execute("odd.block", {}, timeout=1)
        await until(lambda: not server.is_running())


async def test_a_server_that_answers_a_ping_is_not_restarted_and_it_is_told(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving({"odd": servers.odd(place, timeout=50)}, tmp_path) as runtime:
        before = (await runtime.execute("odd.who", {})).output
        waited = await runtime.execute("odd.wait", {}, timeout=1)
        await until(lambda: "is not restarted" in caplog.text)
        told = await runtime.executor.health("odd.add")
        after = (await runtime.execute("odd.who", {})).output
        well = await runtime.executor.health("odd.add")
    assert waited.error is not None
    assert waited.error.code == "TIMEOUT"
    assert before == after, "the same process"
    assert told.healthy
    assert told.error == "it answers a ping, and not its calls: 1 were given up"
    assert well.error is None


async def test_a_server_that_hangs_again_and_again_is_left_alone_for_longer_and_longer(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PROBE_WITHIN", 0.5)
    monkeypatch.setattr(kept, "FIRST_WAIT", 5.0)
    async with serving({"odd": servers.odd(place, timeout=50)}, tmp_path, watch=False) as runtime:
        errors = []
        async with asyncio.timeout(50):
            while not errors or errors[-1].code == "TIMEOUT":
                if not runtime.problems:
                    await runtime.executor.health("odd.add")  # it is there, and answers a ping
                running = processes(ODD)
                (place / "blocked").unlink(missing_ok=True)
                result = await runtime.execute("odd.block", {}, timeout=3)
                assert result.error is not None
                errors.append(result.error)
                if (place / "blocked").exists():  # else the machine was too busy to get there
                    for one in running:
                        await until(lambda one=one: not one.is_running())
        problems = dict(runtime.problems)
    assert errors[-1].retry_after
    assert errors[-1].effects == "none"
    assert "it did not answer a ping" in str(problems)


async def test_a_server_that_fills_the_disk_is_stopped_and_the_call_says_why(
    place: Path, tmp_path: Path
) -> None:
    limits = {"disk": 8_000_000, "files": 200}
    async with serving({"odd": servers.odd(place, timeout=40, limits=limits)}, tmp_path) as runtime:
        filled = await runtime.execute("odd.fill", {})
        after = await runtime.execute("odd.add", {"a": 1, "b": 2})
    assert filled.error is not None
    assert (filled.error.code, filled.error.effects) == ("RESOURCE_LIMIT", "unknown")
    assert filled.error.details == {"limit": "disk"}
    assert "limits.disk" in filled.error.message
    assert after.output == "3", "it is started again"
    assert sum(file.stat().st_size for file in place.iterdir()) < 1_000_000_000


async def test_a_server_that_does_not_introduce_itself_is_given_up_and_ended(
    tmp_path: Path,
) -> None:
    about = {"silent": {"command": ["sleep", "1234567"], "start": 1.0}}
    async with serving(about, tmp_path) as runtime:
        (problem,) = runtime.problems.values()
        await until(lambda: not processes("1234567"))
    assert problem == "silent: it did not introduce itself and list its tools within 1 s"


async def test_the_health_of_a_tool_is_its_servers(place: Path, tmp_path: Path) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        well = await runtime.executor.health("odd.add")
        (server,) = [one for one in processes(ODD) if not one.children()]
        server.kill()
        await until(lambda: not server.is_running())
        again = await runtime.executor.health("odd.add")
    assert well.healthy
    assert again.healthy, "it was started for it"


async def test_nothing_of_a_server_is_left_when_all_is_closed(place: Path, tmp_path: Path) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        calling = asyncio.create_task(runtime.execute("odd.wait", {}, timeout=30))
        await until((place / "waiting").exists)
    await asyncio.gather(calling, return_exceptions=True)
    assert not processes(ODD)


@pytest.mark.parametrize("how", ["by the secret", "by the config"])
async def test_sessions_that_belong_to_a_caller_are_no_one_elses(
    how: str, place: Path, tmp_path: Path
) -> None:
    secrets = {f"TOKEN_{name}": f"token of {name}" for name in ("owner", "ada", "bob")}
    secrets["TOKEN"] = "token of the house"
    name = "TOKEN_{caller}" if how == "by the secret" else "TOKEN"
    more = {} if how == "by the secret" else {"per_caller": True}
    about = servers.odd(place, secrets={"TOKEN": name}, **more)
    async with serving({"odd": about}, tmp_path, secret=secrets.get) as runtime:
        ada, bob = [
            [await runtime.execute("odd.who", {}, caller=Caller(caller)) for _ in range(2)]
            for caller in ("ada", "bob")
        ]
        # two callers, and the one who looked at the list
        assert len([one for one in processes(ODD) if not one.children()]) == 3
        eve = await runtime.execute("odd.who", {}, caller=Caller("eve"))
    assert ada[0].output == ada[1].output
    if how == "by the secret":
        assert ("token of ada" in ada[0].output, "token of bob" in bob[0].output) == (True, True)
        assert eve.error is not None
        assert (eve.error.code, eve.error.effects) == ("UNAUTHORIZED", "none")
    else:
        assert all("token of the house" in one.output for one in (*ada, *bob, eve))


async def test_one_session_serves_all_where_nothing_belongs_to_a_caller(
    place: Path, tmp_path: Path
) -> None:
    async with serving({"odd": servers.odd(place)}, tmp_path) as runtime:
        results = await asyncio.gather(
            *(
                runtime.execute("odd.add", {"a": n, "b": n}, caller=Caller(f"c{n}"))
                for n in range(50)
            )
        )
        count = len([one for one in processes(ODD) if not one.children()])
    assert [result.output for result in results] == [str(2 * n) for n in range(50)]
    assert count == 1


async def test_a_tool_that_is_not_as_it_was_taken_in_is_not_called(
    place: Path, tmp_path: Path
) -> None:
    """The definition came from a spec file; what the server says of the tool now is another."""
    async with serving({"odd": servers.odd(place)}, tmp_path, watch=False) as runtime:
        taken = runtime.registry.get("odd.greet")
        assert taken is not None
        await runtime.execute("odd.change", {})
        await until(lambda: _listed_anew(runtime, taken))
        async with Executor(Registry([taken]), backends=_backends(runtime)) as executor:
            refused = await executor.execute("odd.greet", {"name": "Ada"})
    assert refused.error is not None
    assert (refused.error.code, refused.error.effects) == ("POLICY_DENIED", "none")


def _backends(runtime: Runtime) -> dict[str, Any]:
    return {"mcp": runtime.executor.backends["mcp"]}


def _listed_anew(runtime: Runtime, taken: ToolSpec) -> bool:
    (kept,) = _backends(runtime)["mcp"].server("odd")._kept.values()
    return bool(kept.listing.pins["greet"] != taken.binding["pin"])
