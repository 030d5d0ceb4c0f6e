"""API keys: made once, kept as a digest, scoped, ended; and how they become callers."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.identity.issuing import NOW, identifying
from toolpost import Caller, Executor, Registry, tool
from toolpost.contracts import Record
from toolpost.errors import ConfigError, Conflict, InvalidArguments, RateLimited, ToolNotFound
from toolpost.extensions.access import Access, Grant
from toolpost.gateway.identity import AuthSettings, Identity, Unidentified, auth_from
from toolpost.gateway.identity import callers as callers_module
from toolpost.gateway.identity.keys import KEPT, SPACE, Keys
from toolpost.redact import redact_text
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio
WITH_KEYS = AuthSettings(keys=True)


def bearer(text: str) -> bytes:
    return f"Bearer {text}".encode()


async def refused(identity: Identity, header: bytes | None, **more: Any) -> Unidentified:
    with pytest.raises(Unidentified) as caught:
        await identity.caller(header, **more)
    return caught.value


# One key


@pytest.mark.parametrize(("user", "principal"), [(None, "key:ci"), ("alice", "user:alice")])
async def test_a_key_that_is_rotated_keeps_its_principal(user: str | None, principal: str) -> None:
    keys = Keys(MemoryStore(), clock=Clock(NOW))
    old, _ = await keys.create("ci", user=user)
    await keys.revoke(old.id)
    new, _ = await keys.rotate(old, seconds=None)
    assert old.id != new.id
    assert old.caller.principal == new.caller.principal == principal


async def test_a_key_is_the_agent_the_user_the_roles_and_the_tools_it_was_made_for() -> None:
    store, clock = MemoryStore(), Clock(NOW)
    keys = Keys(store, clock=clock)
    key, text = await keys.create(
        "ci", user="alice", agent="bot", roles=["operator"], tools=["kb.*"], seconds=60
    )
    async with identifying(WITH_KEYS, store=store, clock=clock) as identity:
        expected = Caller(
            f"key:{key.id}",
            user="alice",
            agent="bot",
            roles=frozenset(["operator"]),
            tools=("kb.*",),
            key="ci",
        )
        assert identity.known(bearer(text)) is None
        assert await identity.caller(bearer(text), agent="somebody else") == expected
        assert await identity.caller(f"bEaReR   {text}".encode()) == expected
        assert identity.known(bearer(text)) == expected
    assert (await keys.create("planner"))[0].caller.agent == "planner"


async def test_what_is_kept_is_no_key_and_a_key_is_a_secret_wherever_it_turns_up() -> None:
    store = MemoryStore()
    key, text = await Keys(store, clock=Clock(NOW)).create("ci")
    ((_, record),) = await store.scan(SPACE)
    assert text not in str(record.value) and text[-64:] not in str(record.value)
    assert "digest" not in key.to_dict(NOW)
    for said in (text, f"key={text}", f"x{text}"[1:], f'{{"a":"{text}"}}', f"({text})"):
        assert text[-64:] not in redact_text(said)


@pytest.mark.parametrize("place", [0, 5, 20, -1])
async def test_a_key_that_differs_in_one_character_is_another(place: int) -> None:
    store = MemoryStore()
    _, text = await Keys(store, clock=Clock(NOW)).create("ci")
    other = "0" if text[place] != "0" else "1"
    wrong = text[:place] + other + (text[place + 1 :] if place != -1 else "")
    async with identifying(WITH_KEYS, store=store) as identity:
        await refused(identity, bearer(wrong))
        await refused(identity, bearer(text + "0"))
        assert await identity.caller(bearer(text))


async def test_a_key_ends_when_it_expires_and_is_listed_for_a_while() -> None:
    store, clock = MemoryStore(), Clock(NOW)
    keys = Keys(store, clock=clock)
    key, text = await keys.create("ci", seconds=2)
    async with identifying(WITH_KEYS, store=store, clock=clock) as identity:
        assert await identity.caller(bearer(text))
        clock.advance(1.9)
        assert await identity.caller(bearer(text)) and identity.known(bearer(text)) is None
        clock.advance(0.1)
        assert identity.known(bearer(text)) is None, "never beyond the end"
        await refused(identity, bearer(text))
    assert [one.state(clock.time()) for one in await keys.all()] == ["expired"]
    assert KEPT > 86400 and (await keys.like(key.id[:4])).id == key.id


async def test_a_revoked_key_ends_here_at_once_and_elsewhere_within_five_seconds() -> None:
    store, clock = MemoryStore(), Clock(NOW)
    key, text = await Keys(store, clock=clock).create("ci")
    async with (
        identifying(WITH_KEYS, store=store, clock=clock) as here,
        identifying(WITH_KEYS, store=store, clock=clock) as there,
    ):
        assert await here.caller(bearer(text)) and await there.caller(bearer(text))
        assert (await here.revoke(key.id)).revoked == NOW
        assert here.known(bearer(text)) is None
        await refused(here, bearer(text))
        clock.advance(5)
        assert there.known(bearer(text)) is None
        await refused(there, bearer(text))
        assert (await here.revoke(key.id)).revoked == NOW, "it stays ended as it was"


class Raced(MemoryStore):
    """Between what is read and who reads it, something else may be done once."""

    then: Callable[[], Awaitable[object]] | None = None

    async def get(self, space: str, key: str) -> Record | None:
        found = await super().get(space, key)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return found


async def test_a_key_that_is_revoked_while_it_is_verified_is_not_remembered() -> None:
    store = Raced()
    key, text = await Keys(store, clock=Clock(NOW)).create("ci")
    async with identifying(WITH_KEYS, store=store) as identity:
        store.then = lambda: identity.revoke(key.id)
        assert await identity.caller(bearer(text)), "it was valid when it was read"
        assert identity.known(bearer(text)) is None
        await refused(identity, bearer(text))


async def test_of_many_requests_one_verifies_anew_and_the_others_do_not_wait() -> None:
    store, clock = MemoryStore(), Clock(NOW)
    _, text = await Keys(store, clock=clock).create("ci")
    async with identifying(WITH_KEYS, store=store, clock=clock) as identity:
        await identity.caller(bearer(text))
        clock.advance(3.5)
        looks = [identity.known(bearer(text)) for _ in range(20)]
        assert looks[0] is None and all(looks[1:])
        await identity.caller(bearer(text))
        clock.advance(2)
        assert identity.known(bearer(text)) is not None


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_module, "_MOST", 3)
    store = MemoryStore()
    keys = Keys(store, clock=Clock(NOW))
    texts = [(await keys.create(f"k{number}"))[1] for number in range(5)]
    async with identifying(WITH_KEYS, store=store) as identity:
        for number, text in enumerate(texts):
            await identity.caller(bearer(text))
            await refused(identity, b"Bearer x", peer=f"10.0.0.{number}")
        assert [identity.known(bearer(text)) is not None for text in texts] == [
            False, False, True, True, True,
        ]  # fmt: skip
        assert len(identity._failures) == 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"name": ""}, InvalidArguments),
        ({"name": "a\nb"}, InvalidArguments),
        ({"name": "a", "roles": ["x" * 201]}, InvalidArguments),
        ({"name": "a", "user": "\ud800"}, InvalidArguments),
        ({"name": "a", "seconds": 0}, InvalidArguments),
        ({"name": "a", "tools": ["no tool!"]}, ConfigError),
    ],
)
async def test_a_key_for_nobody_or_for_no_tool_is_not_made(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    store = MemoryStore()
    with pytest.raises(error):
        await Keys(store, clock=Clock(NOW)).create(**wrong)
    assert await store.scan(SPACE) == []


async def test_a_shortened_id_must_be_clear_and_a_whole_key_is_never_repeated() -> None:
    store = MemoryStore()
    keys = Keys(store, clock=Clock(NOW))
    key, text = await keys.create("ci")
    assert (await keys.like(text)).id == key.id
    value = (await store.scan(SPACE))[0][1].value
    await store.put(SPACE, key.id[:6] + "zzzzzz", value)
    with pytest.raises(Conflict):
        await keys.like(key.id[:6])
    unknown = f"tpk_000000000000_{'f' * 64}"
    for wrong in (unknown, "ffffff", "", "ap-1"):
        with pytest.raises(ToolNotFound) as caught:
            await keys.like(wrong)
        assert "f" * 64 not in caught.value.message
    with pytest.raises(ToolNotFound):
        await keys.revoke("no id")


async def test_what_is_kept_and_is_no_key_lets_nobody_in() -> None:
    store = MemoryStore()
    keys = Keys(store, clock=Clock(NOW))
    key, text = await keys.create("ci")
    await store.put(SPACE, key.id, {"id": key.id, "digest": 1})
    async with identifying(WITH_KEYS, store=store) as identity:
        await refused(identity, bearer(text))
    assert await keys.all() == []
    with pytest.raises(Conflict):
        await keys.like(key.id)


# Who is refused, and what they are told


async def test_whoever_presents_nothing_is_told_what_to_present() -> None:
    async with identifying(WITH_KEYS) as identity:
        fault = await refused(identity, None)
        assert "toolpost keys create" in fault.message
        assert fault.challenge == 'Bearer realm="toolpost"'
        assert identity.metadata is None and not identity.anonymous


async def test_refusals_differ_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolpost.gateway")
    store, clock = MemoryStore(), Clock(NOW)
    keys = Keys(store, clock=clock)
    revoked, first = await keys.create("one")
    await keys.revoke(revoked.id)
    _, second = await keys.create("two", seconds=1)
    live, third = await keys.create("three")
    clock.advance(1)
    wrong = {
        f"the key {revoked.id} is revoked": first,
        "is expired": second,
        f"not the key {live.id}": third[:-64] + "0" * 64,
        "there is no key 0": f"tpk_{'0' * 12}_{'0' * 64}",
        "no key that was made here": "tpk_short",
        "tokens are not accepted": "a.b.c",
        "Bearer CREDENTIAL": "two words",
    }
    async with identifying(WITH_KEYS, store=store, clock=clock) as identity:
        told = set()
        for reason, text in wrong.items():
            fault = await refused(identity, bearer(text), peer="10.0.0.1")
            told.add((fault.message, fault.challenge, fault.details))
            message = caplog.records[-1].getMessage()
            assert reason in message and "10.0.0.1" in message
            assert text[-64:] not in caplog.text + fault.message
        assert len(told) == 1


async def test_who_keeps_failing_is_told_to_wait_and_keeps_nobody_out() -> None:
    store, clock = MemoryStore(), Clock(NOW)
    _, text = await Keys(store, clock=clock).create("ci")
    async with identifying(WITH_KEYS, store=store, clock=clock) as identity:
        for number in range(60):
            await refused(identity, f"Bearer {number}".encode(), peer="10.0.0.1")
        with pytest.raises(RateLimited) as caught:
            await identity.caller(b"Bearer x", peer="10.0.0.1")
        assert 0 < (caught.value.retry_after or 0) <= 60.1
        assert await identity.caller(bearer(text), peer="10.0.0.1"), "from behind the same proxy"
        clock.advance(61)
        await refused(identity, b"Bearer x", peer="10.0.0.1")


@given(st.binary(max_size=100), st.sampled_from([b"", b"Bearer ", b"bearer tpk_", b"Basic "]))
def test_any_header_at_all_is_refused(rest: bytes, start: bytes) -> None:
    identity = Identity.of(WITH_KEYS, records=MemoryStore(), clock=Clock(NOW))
    asyncio.run(refused(identity, start + rest))


# Where nobody is asked


async def test_without_settings_it_is_the_owner_and_a_key_still_narrows() -> None:
    store = MemoryStore()
    key, text = await Keys(store, clock=Clock(NOW)).create("ci", tools=["add"])
    async with identifying(AuthSettings(), store=store) as identity:
        assert identity.anonymous
        assert identity.known(None) == Caller("local", owner=True) == await identity.caller(None)
        named = await identity.caller(None, agent="inspector")
        assert named == Caller("local", agent="inspector", owner=True)
        assert await identity.caller(None, agent="a\nb") == Caller("local", owner=True)
        assert (await identity.caller(bearer(text))).id == f"key:{key.id}"
        await refused(identity, b"Bearer eyJhbGciOi.eyJpc3Mi.x")


async def test_where_only_tokens_are_accepted_a_key_is_not() -> None:
    store = MemoryStore()
    _, text = await Keys(store, clock=Clock(NOW)).create("ci")
    settings = auth_from({"issuers": {"corp": {"issuer": "http://127.0.0.1:9", "audience": "x"}}})
    identity = Identity.of(settings, records=store, clock=Clock(NOW))
    await refused(identity, bearer(text))


# The road keeps a key to its tools


@tool(name="kb.search", tier=0, effects="read", tags=["safe"])
async def search(query: str) -> str:
    """Search."""
    return query


@tool(name="mail.send", tier=0)
async def send(query: str) -> str:
    """Send."""
    return query


@pytest.mark.parametrize(
    "guards", [[], [Access(default=Grant(call=("*",)))]], ids=["bare", "access"]
)
async def test_a_key_for_some_tools_finds_no_others(guards: list[Any]) -> None:
    async with Executor(Registry([search, send]), guards=guards) as tools:

        async def tried(name: str, *patterns: str, **more: Any) -> str:
            caller = Caller("key:1", tools=patterns, **more)
            result = await tools.execute(name, {"query": "x"}, caller=caller)
            return result.error.code if result.error else "ran"

        assert await tried("kb.search", "kb.*") == "ran"
        assert await tried("kb.search", "tag:safe") == "ran"
        assert await tried("mail.send", "kb.*") == "NOT_FOUND"
        assert await tried("mail.send", "kb.*", owner=True) == "NOT_FOUND"
        assert await tried("kb.search") == "NOT_FOUND", "for no tools at all"
        assert await tried("kb.search", "no pattern!") == "NOT_FOUND"
        names = [spec.name for spec in tools.list(Caller("key:1", tools=("mail.*",)))]
        assert names == ["mail.send"]
        scoped = Caller("key:1", tools=("mail.*",))
        unknown = await tools.execute("kb.searc", caller=scoped)
        hidden = await tools.execute("kb.search", {"query": 7}, caller=scoped)
        assert unknown.error is not None and "kb.search" not in unknown.error.message
        assert hidden.error is not None and hidden.error.code == "NOT_FOUND"


@pytest.mark.parametrize("tools", [["a"], "a", ("a", 1), 7])
async def test_tools_of_a_caller_that_are_none_end_the_call(tools: Any) -> None:
    async with Executor(Registry([search])) as executor:
        caller = Caller("key:1", tools=tools)
        result = await executor.execute("kb.search", {"query": "x"}, caller=caller)
        assert result.error is not None and result.error.code == "VALIDATION_ERROR"


# What is not installed


def test_an_extra_that_is_missing_is_named_and_keys_do_without() -> None:
    program = """
import sys
sys.modules["jwt"] = None
from toolpost.clock import SystemClock
from toolpost.errors import MissingPart
from toolpost.gateway.identity import Identity, auth_from
from toolpost.stores.memory import MemoryStore
around = {"records": MemoryStore(), "clock": SystemClock()}
Identity.of(auth_from({"keys": True}), **around)
table = {"issuer": "https://login.example.com", "audience": "toolpost"}
try:
    Identity.of(auth_from({"issuers": {"corp": table}}), **around)
except MissingPart as fault:
    print(fault)
print("httpcore2" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert 'pip install "toolpost[server]"' in done.stdout and "'jwt'" in done.stdout
