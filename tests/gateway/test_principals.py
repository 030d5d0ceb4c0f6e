"""A caller is known by its name: the user, else the key's name. A new key keeps what is theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.gateway_tools import ALL, MARKS
from tests.gateway.program import CONFIG, program
from tests.gateway.running import Running, serving
from toolpost.clock import SystemClock
from toolpost.errors import Conflict
from toolpost.gateway.identity.keys import ApiKey, Keys
from toolpost.gateway.identity.settings import auth_from
from toolpost.gateway.identity.unmatched import unmatched

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    settings = {
        "extensions": {
            "rate": {"callers": {"slow": "2/h", "key:slower": "1/h", "agent:helper": "3/h"}},
            "access": {
                "default": {"call": ["echo", "wait", "count"], "tier": 1},
                "callers": {"payer": {"call": ["pay"], "tier": 1}, "wirer": {"call": ["wire"]}},
            },
            "approval": {"approvers": ["boss"]},
        }
    }
    folder = tmp_path_factory.mktemp("principals")
    async with serving(folder, *ALL, settings=settings, jobs=True, auth={"keys": True}) as running:
        yield running


def keys_of(served: Running) -> Keys:
    return Keys(served.runtime.store, clock=SystemClock())


async def made(served: Running, name: str, **more: object) -> tuple[ApiKey, dict[str, str]]:
    key, text = await keys_of(served).create(name, **more)  # type: ignore[arg-type]
    return key, {"authorization": f"Bearer {text}"}


async def rotated(served: Running, key: ApiKey) -> dict[str, str]:
    """A new key in the place of one, which is revoked."""
    _, text = await keys_of(served).rotate(key, seconds=None)
    await served.gateway._identity.revoke(key.id)  # type: ignore[attr-defined]
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    ("name", "agent", "calls"), [("slow", "x", 2), ("slower", "x", 1), ("any", "helper", 3)]
)
async def test_a_rate_is_that_of_the_keys_name_and_a_new_key_goes_on_with_it(
    served: Running, name: str, agent: str, calls: int
) -> None:
    key, header = await made(served, name, agent=agent)
    for _ in range(calls):
        assert (await served.call("echo", {}, header)).status == 200
    assert (await served.call("echo", {}, header)).status == 429
    anew = await served.call("echo", {}, await rotated(served, key))
    assert anew.status == 429
    assert f"key:{name}" in anew.data["details"]["of"]


async def test_rights_are_given_to_the_name_of_a_key(served: Running) -> None:
    _, payer = await made(served, "payer", agent="x")
    _, other = await made(served, "other", agent="x")
    assert (await served.call("pay", {"amount": 71}, payer)).status == 200
    assert (await served.call("pay", {"amount": 72}, other)).status in (403, 404)


async def test_an_idempotency_key_outlives_the_key_of_its_caller(served: Running) -> None:
    key, header = await made(served, "buyer", user="payer")
    once = {"idempotency-key": "order-1"}
    first = await served.call("pay", {"amount": 73}, {**header, **once})
    again = await served.call("pay", {"amount": 73}, {**await rotated(served, key), **once})
    assert first.data["output"] == again.data["output"] == "paid 73"
    assert MARKS.count("paid 73") == 1


async def test_a_job_is_its_principals_whatever_key_they_have(served: Running) -> None:
    key, header = await made(served, "worker")
    _, other = await made(served, "stranger")
    body = {"arguments": {"value": 5}}
    job = await served.post("/v1/tools/echo:call", body, {**header, "prefer": "respond-async"})
    place = job.headers["location"]
    anew = await rotated(served, key)
    assert (await served.get(place, anew)).status == 200
    assert (await served.get(place, other)).status == 404
    listed = (await served.get("/v1/jobs", anew)).data["jobs"]
    assert [one["id"] for one in listed] == [job.data["id"]]


async def test_a_new_key_may_use_a_yes_and_may_not_say_it(served: Running) -> None:
    key, header = await made(served, "wirer", user="wirer", agent=None, roles=["boss"])
    asked = await served.call("wire", {"amount": 75}, header)
    handle = asked.data["details"]["approval"]
    anew = await rotated(served, key)
    own = await served.post(f"/v1/approvals/{handle}:approve", {}, anew)
    assert own.status == 403, "it is the same person, on the way they asked"
    _, boss = await made(served, "boss", user="boss", roles=["boss"])
    assert (await served.post(f"/v1/approvals/{handle}:approve", {}, boss)).status == 200
    result = await served.call("wire", {"amount": 75}, anew, grant=handle)
    assert result.data["output"] == "wired 75"


async def test_a_name_is_taken_until_nothing_of_it_can_be_left(served: Running) -> None:
    key, _ = await made(served, "taken")
    await keys_of(served).revoke(key.id)
    with pytest.raises(Conflict, match=f"toolpost keys rotate {key.id}"):
        await made(served, "taken")


async def test_the_audit_has_the_name_of_the_key(tmp_path: Path) -> None:
    config = f"{CONFIG}\n[gateway.auth]\nkeys = true\n"
    config += '[extensions.rate]\ncallers = { "planer" = "5/min", "key:planner" = "9/min" }\n'
    async with program(tmp_path, config=config) as served:
        await served.call("echo", {}, await served.key("planner", agent="bot"))
    [call] = await served.audited()
    assert call.asked.caller is not None
    assert (call.asked.caller.key, call.asked.caller.agent) == ("planner", "bot")
    async with program(tmp_path, config=config):
        pass
    said = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert "no caller matches 'planer'; did you mean 'planner'?" in said
    assert "key:planner" not in said


async def test_names_that_an_issuer_may_vouch_for_are_not_called_unknown(served: Running) -> None:
    table = {"issuer": "https://login.example.com", "audience": "toolpost"}
    auth = auth_from({"keys": True, "issuers": {"corp": table}})
    told = await unmatched(served.runtime.config, auth, keys_of(served))
    assert [one for one in told if "'key:slower'" not in one] == []
