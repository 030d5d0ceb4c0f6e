"""``toolpost --url``: the commands over the tools of a gateway, which runs in this process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from tests.cli.program import PROGRAM, environment
from tests.gateway.gateway_tools import ALL, MARKS, until
from tests.gateway.running import Running, serving
from toolpost import create_tool
from toolpost.cli.completing import tool_names
from toolpost.cli.main import cli, status
from toolpost.clock import SystemClock
from toolpost.gateway.identity.keys import Keys

pytestmark = pytest.mark.anyio


class Done(NamedTuple):
    code: int
    out: str
    err: str


def _written(arguments: dict[str, Any]) -> str:
    return f"{arguments['text']} to {arguments['address']}"


write = create_tool(
    "write",
    "Write to somebody; somebody else has to say yes first.",
    _written,
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}, "address": {"type": "string", "x-raw": True}},
    },
    requires_approval=True,
)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("remote"), *ALL, write, jobs=True) as running:
        yield running


@pytest.fixture
def there(served: Running) -> There:
    return There(served.url)


class There:
    """The program with the URL of a gateway, in a thread: it reads nothing from this folder."""

    def __init__(self, url: str, key: str = "") -> None:
        self._before = ["--url", url, *(("--api-key", key) if key else ())]

    async def __call__(self, *words: str) -> Done:
        return await asyncio.to_thread(self._run, [*self._before, *words])

    async def json(self, *words: str) -> Any:
        done = await self(*words, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    @staticmethod
    def _run(words: list[str]) -> Done:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = status(words)
        return Done(code, out.getvalue(), err.getvalue())


async def test_tools_are_listed_and_shown(served: Running, there: There) -> None:
    listed = await there.json("list", "--tier", "0")
    assert [one["name"] for one in listed] == ["add", "count", "echo", "fail", "wait"]
    shown = await there.json("show", "add")
    spec = served.runtime.registry.get("add")
    assert spec is not None
    assert (shown["spec"], shown["public_digest"]) == (spec.public(), spec.public_digest)
    told = (await there("show", "wire")).out
    assert "a person is asked first" in told
    assert "road" not in told
    missing = await there("show", "ad")
    assert (missing.code, "did you mean 'add'" in missing.err) == (4, True)


async def test_a_tool_is_called_with_words_that_its_schema_reads(there: There) -> None:
    done = await there("call", "add", "a=1", "b=2")
    assert (done.code, done.out) == (0, "3\n")
    told = await there("call", "count", "to=2")
    assert (told.out, told.err) == ("done\n", "0 1 \n")
    failed = await there("call", "fail")
    assert failed.code == 1
    assert "The dog has eaten it." in failed.err
    assert "toolpost --url http://127.0.0.1" in failed.err
    plan = await there.json("call", "pay", "amount=99", "--dry-run")
    assert plan["metadata"]["plan"]
    assert "paid 99" not in MARKS


async def test_ctrl_c_stops_the_tool_there(served: Running, tmp_path: Path) -> None:
    words = ("--url", served.url, "call", "wait", "mark=interrupted")
    call = await asyncio.create_subprocess_exec(
        *PROGRAM, *words, cwd=tmp_path, env=environment(), stderr=asyncio.subprocess.PIPE
    )
    await until("interrupted began")
    call.send_signal(signal.SIGINT)
    await until("interrupted was cancelled")
    async with asyncio.timeout(30):
        assert "CANCELLED" in (await call.communicate())[1].decode()
    assert call.returncode == 130


async def test_a_detached_call_is_a_job_of_the_gateway(there: There) -> None:
    done = await there("call", "add", "a=1", "b=2", "--detach")
    job_id = done.out.strip()
    assert done.code == 0
    assert f"jobs watch {job_id}" in done.err
    assert "toolpost --url http" in done.err
    assert (await there("jobs", "watch", job_id)).out == "3\n"
    assert (await there.json("jobs", "show", job_id))["state"] == "succeeded"
    assert job_id in [one["id"] for one in await there.json("jobs", "list")]

    waiting = (await there.json("call", "wait", "mark=remote job", "--detach"))["id"]
    await until("remote job began")
    assert (await there("jobs", "cancel", waiting)).out == f"{waiting} is cancelled.\n"
    assert (await there("jobs", "show", "jb-000")).code == 4


async def test_what_is_too_large_is_read_there(there: There) -> None:
    text = "abcdefghij" * 60_000
    result = await there.json("call", "echo", json.dumps({"value": text}))
    handle = result["metadata"]["artifacts"][0]["handle"]
    piece = await there.json("artifacts", "read", handle, "--offset", "5", "--length", "10")
    assert piece["text"] == text[5:15]
    assert (await there.json("artifacts", "show", handle))["size"] == len(text)


async def test_calls_are_approved_and_found_in_the_audit(tmp_path: Path) -> None:
    roles = {"all": {"call": ["*"], "tier": 4}}
    settings = {"extensions": {"access": {"roles": roles}, "approval": {"approvers": ["boss"]}}}
    async with serving(
        tmp_path, *ALL, write, settings=settings, auth={"keys": True}, jobs=True
    ) as served:
        keys = Keys(served.runtime.store, clock=SystemClock())
        _, bot = await keys.create("bot", agent="bot", roles=["all"])
        _, boss = await keys.create("eve", user="eve", roles=["boss", "admin"])
        agent = There(served.url, bot)
        person = There(served.url, boss)
        asked = await agent("call", "wire", "amount=5")
        assert asked.code == 7
        (waiting,) = await person.json("approvals", "list")
        handle = waiting["handle"]
        assert f"approvals approve {handle}" in asked.err
        refused = await agent("approvals", "approve", handle)
        assert (refused.code, "An agent does not approve" in refused.err) == (6, True)
        yes = await person("approvals", "approve", handle, "--edit", '{"amount": 4}')
        assert (yes.code, yes.out) == (0, f"{handle} is approved.\n")
        shown = await person.json("approvals", "show", handle[:9])
        assert (shown["status"], shown["arguments"]) == ("approved", {"amount": 4})
        no = await person("approvals", "deny", handle)
        assert (no.code, no.out) == (0, f"{handle} is denied.\n")

        await _secrets_stay_there(agent, person)
        (call,) = await person.json(
            "audit", "search", "--code", "APPROVAL_REQUIRED", "--text", "wire"
        )
        assert (await person.json("audit", "show", call["call_id"]))["tool"] == "wire"
        assert "as they were written" in (await person("audit", "verify")).out
        stranger = await agent("audit", "tail")
        assert (stranger.code, "role admin" in stranger.err) == (6, True)


async def _secrets_stay_there(agent: There, person: There) -> None:
    """An edit made from what is shown must not put the mark of a secret in its place."""
    asked = await agent("call", "write", "text=a", "address=a.person@example.org")
    assert asked.code == 7, asked.err
    (waiting,) = await person.json("approvals", "list")
    assert waiting["arguments"]["address"] == "[redacted:email]"
    shown = json.dumps({**waiting["arguments"], "text": "b"})
    edited = await person("approvals", "approve", waiting["handle"], "--edit", shown)
    assert edited.code == 3
    assert "/address: [redacted:email] stands for a value that is not shown" in edited.err
    edited = await person("approvals", "approve", waiting["handle"], "--edit", '{"text": "b"}')
    assert edited.code == 0, edited.err


async def test_a_shell_completes_the_names_of_tools_there(served: Running) -> None:
    root = click.Context(cli, info_name="toolpost")
    root.params = {"url": served.url}
    inner = click.Context(click.Command("call"), parent=root)
    found = await asyncio.to_thread(tool_names, inner, click.Argument(["name"]), "ad")
    assert [one.value for one in found] == ["add"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("keys", "list"), "`toolpost keys` works where the gateway runs"),
        (("jobs", "run"), "`jobs run` works where the gateway runs"),
        (("approvals", "standing"), "`approvals standing` works where"),
        (("audit", "export"), "`audit export` works where"),
        (("show", "add", "--binding"), "`show --binding` works where"),
        (("--config", "x.toml", "list"), "name two different places"),
    ],
)
async def test_what_a_gateway_does_not_offer_is_said_to_be_elsewhere(
    there: There, words: tuple[str, ...], why: str
) -> None:
    done = await there(*words)
    assert (done.code, why in done.err) == (2, True)


async def test_no_gateway_and_a_wrong_key_end_with_their_codes(
    served: Running,
) -> None:
    nobody = There("http://127.0.0.1:9")
    for words in (("list",), ("call", "add", "a=1"), ("show", "add"), ("jobs", "list")):
        done = await nobody(*words)
        assert (done.code, "http://127.0.0.1:9 cannot be used" in done.err) == (16, True)
    wrong = "tpk_" + "x7" * 30
    for words in (("call", "add", "a=1", "b=2"), ("list",), ("jobs", "list")):
        done = await There(served.url, wrong)(*words)
        assert done.code == 5
        assert "TOOLPOST_API_KEY" in done.err
        assert wrong not in done.out + done.err
    bad = await There("nonsense")("list")
    assert (bad.code, "URL of the gateway" in bad.err) == (78, True)


async def test_a_key_that_is_good_and_lacks_a_right_is_not_asked_for_again(tmp_path: Path) -> None:
    settings = {"extensions": {"access": {"default": {"see": ["*"]}}}}
    async with serving(tmp_path, *ALL, settings=settings, auth={"keys": True}) as running:
        _, text = await Keys(running.runtime.store, clock=SystemClock()).create("ci")
        done = await There(running.url, text)("call", "add", "a=1", "b=2")
        assert (done.code, "look for another tool" in done.err) == (5, True)
        assert "API_KEY" not in done.err
        nobody = await There(running.url)("list")
        assert (nobody.code, "TOOLPOST_API_KEY" in nobody.err) == (5, True)
