"""Tokens: who is let in, who is not, and what an issuer that fails does to either."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import nullcontext
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.http.service import Reply, forever
from tests.gateway.identity.issuing import (
    NOW,
    Issuing,
    identifying,
    issuing,
    jwk,
    pem,
    private,
    segment,
)
from toolpost import Caller
from toolpost.errors import CallError, ConfigError, Unavailable
from toolpost.gateway.identity import AuthSettings, Identity, Unidentified, auth_from
from toolpost.stores.memory import MemoryStore
from toolpost.testing import Clock

pytestmark = pytest.mark.anyio


async def refused(identity: Identity, header: bytes) -> Unidentified:
    with pytest.raises(Unidentified) as caught:
        await identity.caller(header)
    assert caught.value.code == "UNAUTHORIZED" and caught.value.remedy == "reauth"
    assert identity.known(header) is None
    return caught.value


# Who it is


async def test_a_token_names_the_user_the_agent_and_the_roles() -> None:
    async with issuing() as issuer, identifying(issuer.settings()) as identity:
        header = issuer.token(azp="planner", roles=["operator"])
        expected = Caller(
            "corp+planner:alice", user="alice", agent="planner", roles=frozenset(["operator"])
        )
        assert await identity.caller(header) == expected
        assert identity.known(header) == expected


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, Caller("corp:alice", user="alice")),
        (
            {"act": {"sub": "bot", "act": {"sub": "older"}}, "azp": "app"},
            Caller("corp+bot:alice", user="alice", agent="bot"),
        ),
        ({"client_id": "a:b/c"}, Caller("corp+a%3Ab%2Fc:alice", user="alice", agent="a:b/c")),
        ({"sub": "job", "client_id": "job"}, Caller("corp:job", agent="job")),
        ({"azp": "console"}, Caller("corp:alice", user="alice")),
        (
            {"realm": {"roles": ["a"]}, "scope": "b c", "roles": ["unread"]},
            Caller("corp:alice", user="alice", roles=frozenset("abc")),
        ),
    ],
)
async def test_claims_mean_what_the_config_says(claims: dict[str, Any], expected: Caller) -> None:
    more = {"apps": ["console"], "roles": ["/realm/roles", "scope"]}
    async with issuing() as issuer, identifying(issuer.settings(**more)) as identity:
        assert await identity.caller(issuer.token(**claims)) == expected


@pytest.mark.parametrize("alg", ["RS256", "PS384", "ES256", "EdDSA"])
async def test_every_sort_of_public_key_will_do(alg: str) -> None:
    async with issuing() as issuer:
        issuer.keys = [jwk("one", alg)]
        async with identifying(issuer.settings(algorithms=[alg])) as identity:
            assert (await identity.caller(issuer.token(alg=alg))).user == "alice"
            assert (await identity.caller(issuer.token(alg=alg, kid=None))).user == "alice"


async def test_an_address_of_the_keys_takes_the_place_of_discovery() -> None:
    async with issuing() as issuer:
        settings = issuer.settings(issuer="https://login.invalid/", jwks=f"{issuer.url}/jwks")
        async with identifying(settings) as identity:
            header = issuer.token(iss="https://login.invalid/")
            assert (await identity.caller(header)).user == "alice"
            assert [one.target for one in issuer.service.asked] == ["/jwks"]


# Attack 29: who it is not


def forged(issuer: Issuing) -> dict[str, tuple[bytes, str]]:
    """What is wrong with it → the header, and what the log says of it."""
    claims = {"iss": issuer.url, "aud": "toolpost", "sub": "root", "exp": NOW + 600, "tenant": "t"}
    body = segment(claims)
    shared = f"{segment({'alg': 'HS256', 'kid': 'one'})}.{body}"
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    made = partial(issuer.token, tenant="t")
    head, _, signature = made().split(b" ")[1].decode().split(".")
    other = {"headers": {"jwk": jwk("x", which=1), "jku": f"{issuer.url}/evil", "x5u": issuer.url}}
    raw = {
        "no algorithm": f"{segment({'alg': 'none'})}.{body}.",
        "no algorithm, spelt otherwise": f"{segment({'alg': 'nOnE', 'kid': 'one'})}.{body}.",
        "the public key as a password": f"{shared}.{segment(mac.sign(shared.encode(), pem()))}",
        "changed claims": f"{head}.{body}.{signature}",
    }
    algorithm, nobody, name = "algorithm is not one", "signed by nobody", "is no name"
    return {
        **{
            what: (f"Bearer {text}".encode(), nobody if what == "changed claims" else algorithm)
            for what, text in raw.items()
        },
        "another audience": (made(aud="billing"), "InvalidAudienceError"),
        "no audience": (made(aud=...), "MissingRequiredClaimError"),
        "audiences that are none": (made(aud=["toolpost", 7]), "InvalidAudienceError"),
        "another issuer": (made(iss="https://evil.invalid"), "issuer that is not known"),
        "another's key": (made(key=private("ES256", 1)), nobody),
        "another's key, sent along": (made(key=private("ES256", 1), **other), nobody),
        "another's key without a name": (made(key=private("ES256", 1), kid=None), nobody),
        "another algorithm": (made(alg="ES384", key=p384()), algorithm),
        "expired": (made(exp=NOW - 31), "has expired"),
        "never expiring": (made(exp=...), "has expired"),
        "expiring at a text": (made(exp=str(NOW + 600)), "exp is no time"),
        "not valid yet": (made(nbf=NOW + 31), "not valid yet (nbf)"),
        "made in the future": (made(iat=NOW + 31), "not valid yet (iat)"),
        "a time that is none": (made(nbf=True), "nbf is no time"),
        "no subject": (made(sub=...), "MissingRequiredClaimError"),
        "a subject that is a list": (made(sub=["x"]), "InvalidSubjectError"),
        "a subject with a line break": (made(sub="alice\nroot"), name),
        "an actor that is no text": (made(act={"sub": {"id": 1}}), name),
        "roles that are none": (made(roles={"admin": True}), "are no roles"),
        "of another type": (made(headers={"typ": "logout+jwt"}), "another type"),
        "an extension that is critical": (made(headers={"crit": ["x"], "x": 1}), "InvalidToken"),
        "huge": (made(padding="x" * 9000), "too long"),
        "a required claim missing": (made(tenant=...), "MissingRequiredClaimError"),
    }


def p384() -> Any:
    return ec.generate_private_key(ec.SECP384R1())


async def test_whatever_is_forged_is_refused_in_the_same_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "toolpost.gateway")
    async with issuing() as issuer, identifying(issuer.settings(required=["tenant"])) as identity:
        assert (await identity.caller(issuer.token(tenant="t"))).user == "alice"
        said, fetched = set(), issuer.fetches
        for what, (header, reason) in forged(issuer).items():
            fault = await refused(identity, header)
            said.add((fault.message, fault.challenge))
            assert reason in caplog.records[-1].getMessage(), what
            assert header.split(b" ")[1].decode()[:40] not in caplog.text + fault.message
        ((_, challenge),) = said
        assert challenge == 'Bearer realm="toolpost", error="invalid_token"'
        assert issuer.fetches == fetched, "nothing that a token says of keys is fetched"


async def test_a_key_that_anybody_may_have_is_no_key() -> None:
    async with issuing() as issuer:
        shared = {"kty": "oct", "k": segment(b"x" * 32), "kid": "oct"}
        maker = jwt.algorithms.get_default_algorithms()["ES256"]
        leaked = {**maker.to_jwk(private("ES256", 2), as_dict=True), "kid": "leaked"}
        leaked.pop("key_ops", None)
        issuer.keys = [
            shared,
            leaked,
            jwk("short", "RS256", 9),
            jwk("enc", "ES256", 3, use="enc"),
            jwk("ops", "ES256", 4, key_ops=["encrypt"]),
            jwk("bound", "RS256", 5, alg="RS512"),
            "no object",  # type: ignore[list-item]
            jwk("bad", "ES256", 6, x="!"),
            jwk("one"),
        ]
        async with identifying(issuer.settings()) as identity:
            assert (await identity.caller(issuer.token())).user == "alice"
            for kid, alg, which in (
                ("leaked", "ES256", 2),
                ("short", "RS256", 9),
                ("enc", "ES256", 3),
                ("ops", "ES256", 4),
                ("bound", "RS256", 5),
            ):
                with pytest.warns() if which == 9 else nullcontext():
                    header = issuer.token(kid=kid, alg=alg, key=private(alg, which))
                await refused(identity, header)


async def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    clock = Clock(NOW)
    async with issuing() as issuer, identifying(issuer.settings(), clock=clock) as identity:
        header = issuer.token(exp=NOW + 10, nbf=NOW + 29)
        assert (await identity.caller(header)).user == "alice"
        clock.advance(39)
        assert (await identity.caller(header)).user == "alice"
        assert identity.known(header) is None, "it is about to end"
        clock.advance(1)
        assert identity.known(header) is None
        await refused(identity, header)


# Keys that rotate, and issuers that fail


async def test_a_new_key_is_fetched_once_and_floods_of_others_fetch_nothing() -> None:
    clock = Clock(NOW)
    async with issuing() as issuer, identifying(issuer.settings(), clock=clock) as identity:
        assert issuer.fetches == 2
        issuer.keys = [jwk("two", which=1)]
        rotated = issuer.token(kid="two", key=private("ES256", 1))
        clock.advance(31)
        assert (await identity.caller(rotated)).user == "alice"
        assert issuer.fetches == 4
        for number in range(50):
            await refused_from(identity, issuer.token(kid=f"x{number}"), f"10.0.0.{number}")
        assert issuer.fetches == 4, "within the floor nothing is fetched"
        await refused(identity, issuer.token())  # the old key is gone
        clock.advance(31)
        together = (refused(identity, issuer.token(kid=f"y{n}")) for n in range(20))
        await asyncio.gather(*together)
        assert issuer.fetches == 6, "and those who come at once share one fetch"


async def refused_from(identity: Identity, header: bytes, peer: str) -> None:
    with pytest.raises(Unidentified):
        await identity.caller(header, peer=peer)


@pytest.mark.parametrize("kid", ["../../etc/passwd", "' OR 1=1 --", "x" * 201, "\u0000", ""])
async def test_a_key_id_is_only_ever_compared(kid: str) -> None:
    async with issuing() as issuer, identifying(issuer.settings()) as identity:
        await refused(identity, issuer.token(kid=kid))


@pytest.mark.parametrize(
    "answer",
    [
        Reply("no", status=503),
        Reply("", status=302, headers={"Location": "http://169.254.169.254/"}),
        Reply("<html>"),
        Reply("[]"),
        Reply("[" * 100_000),
        Reply('{"issuer": "https://evil.invalid", "jwks_uri": "https://evil.invalid"}'),
        Reply(json.dumps({"keys": []})),
        Reply(json.dumps({"keys": {"one": 1}})),
        Reply("x" * 600_000),
    ],
    ids=lambda reply: f"{reply.status} {reply.body[:20]!r}",
)
async def test_an_outage_leaves_the_keys_that_there_were(answer: Reply) -> None:
    clock = Clock(NOW)
    async with issuing() as issuer, identifying(issuer.settings(), clock=clock) as identity:
        issuer.answers = lambda asked: answer
        clock.advance(31)
        await refused(identity, issuer.token(kid="unknown"))
        assert "corp" in identity.problems["issuer corp"]
        assert (await identity.caller(issuer.token())).user == "alice"
        clock.advance(6)
        issuer.answers = None
        await refused(identity, issuer.token(kid="unknown"))
        assert identity.problems == {}


async def test_an_issuer_that_does_not_answer_holds_up_nobody_whose_key_is_known() -> None:
    clock = Clock(NOW)
    async with (
        issuing() as issuer,
        identifying(issuer.settings(timeout=0.3), clock=clock) as identity,
    ):
        issuer.answers = lambda asked: forever
        clock.advance(31)
        waits = asyncio.ensure_future(refused(identity, issuer.token(kid="unknown")))
        async with asyncio.timeout(10):
            while not issuer.service.open:
                await asyncio.sleep(0)
            assert (await identity.caller(issuer.token())).user == "alice"
            assert not waits.done()
            await waits
        assert "no answer within" in identity.problems["issuer corp"]


async def test_without_any_key_nobody_is_called_a_forger() -> None:
    clock = Clock(NOW)
    async with issuing() as issuer:
        issuer.answers = lambda asked: Reply("", status=500)
        async with identifying(issuer.settings(), clock=clock) as identity:
            for _ in range(3):
                with pytest.raises(Unavailable) as caught:
                    await identity.caller(issuer.token())
                assert caught.value.retry_after
            assert issuer.fetches == 1
            issuer.answers = None
            clock.advance(6)
            assert (await identity.caller(issuer.token())).user == "alice"


async def test_keys_are_fetched_again_in_time_and_at_once_after_a_long_silence() -> None:
    clock = Clock(NOW)
    async with issuing() as issuer, identifying(issuer.settings(), clock=clock) as identity:
        issuer.keys = [jwk("two", which=1)]
        clock.advance(601)
        forever_ = {"exp": NOW + 9999}
        assert await identity.caller(issuer.token(**forever_)), "nobody waits for the fetch"
        (published,) = [one.published for one in identity._issuers.values()]
        assert await published.renewed()
        await refused(identity, issuer.token(**forever_))
        issuer.keys = [jwk("three", which=2)]
        clock.advance(1201)
        await refused(identity, issuer.token(kid="two", key=private("ES256", 1), **forever_))


async def test_keys_elsewhere_than_at_the_issuer_must_be_public() -> None:
    async with issuing() as issuer, issuing() as inside:
        issuer.discovery = {"jwks_uri": f"{inside.url}/jwks"}
        async with identifying(issuer.settings()) as identity:
            with pytest.raises(Unavailable):
                await identity.caller(issuer.token())
            assert inside.fetches == 0


# Whatever is sent

TEXTS = st.text(max_size=60) | st.sampled_from(["alg", "none", "ES256", "..", "eyJ"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "iss", "aud", "sub", "exp", "act"])
OBJECTS = st.dictionaries(NAMES, JSONS, max_size=6)


@given(st.binary(max_size=200) | st.builds(lambda b: b"Bearer " + b, st.binary(max_size=200)))
def test_any_header_at_all_is_refused_and_breaks_nothing(header: bytes) -> None:
    identity = Identity.of(
        auth_from({"keys": True, "issuers": {"corp": SOMEBODY}}),
        records=MemoryStore(),
        clock=Clock(NOW),
    )
    asyncio.run(refused(identity, header))


SOMEBODY = {"issuer": "http://127.0.0.1:9", "audience": "toolpost"}


@given(OBJECTS, OBJECTS, st.binary(max_size=80), st.booleans())
def test_any_token_at_all_is_refused_and_breaks_nothing(
    header: dict[str, Any], claims: dict[str, Any], signature: bytes, fits: bool
) -> None:
    if fits:  # then it comes as far as the signature
        header = {**header, "alg": "ES256", "typ": "JWT", "kid": "one"}
        claims = {**claims, "iss": "http://127.0.0.1:9", "exp": NOW + 1}
        claims |= {"nbf": NOW, "iat": NOW}
    identity = Identity.of(
        auth_from({"issuers": {"corp": SOMEBODY}}), records=MemoryStore(), clock=Clock(NOW)
    )
    keys = {("one", "ES256"): [private("ES256").public_key()]}
    (issuer,) = identity._issuers.values()
    issuer.published._keys = keys
    text = f"{segment(header)}.{segment(claims)}.{segment(signature)}"
    asyncio.run(refused(identity, f"Bearer {text}".encode()))


@given(OBJECTS)
def test_any_claims_that_are_signed_are_a_caller_or_refused(claims: dict[str, Any]) -> None:
    identity = Identity.of(
        auth_from({"issuers": {"corp": SOMEBODY}}), records=MemoryStore(), clock=Clock(NOW)
    )
    (issuer,) = identity._issuers.values()
    issuer.published._keys = {(None, "ES256"): [private("ES256").public_key()]}
    said = {"aud": "toolpost", "sub": "alice", "exp": NOW + 9, **claims, "iss": SOMEBODY["issuer"]}
    payload = json.dumps(said).encode()
    token = jwt.PyJWS().encode(payload, private("ES256"), "ES256")

    async def asked() -> Caller | None:
        try:
            return await identity.caller(f"Bearer {token}".encode())
        except CallError as fault:
            assert fault.code == "UNAUTHORIZED"
            return None

    caller = asyncio.run(asked())
    assert caller is None or (caller.id.startswith("corp") and not caller.owner)


# Settings


@pytest.mark.parametrize(
    ("table", "said", "at"),
    [
        ({"issuer": "login", "audience": "x"}, "begins with https://", ("issuer",)),
        ({"issuer": "http://login.example.com", "audience": "x"}, "insecure = true", ("issuer",)),
        ({"issuer": "https://a.example", "audience": ""}, "not empty", ()),
        ({"issuer": "https://a.example", "audience": []}, "not empty", ()),
        ({"issuer": "https://a.example"}, "audience", ()),
        ({"issuer": "https://a.example", "audience": "x", "algorithms": ["HS256"]}, "RS256", ...),
        ({"issuer": "https://a.example", "audience": "x", "algorithms": ["none"]}, "RS256", ...),
        ({"issuer": "https://a.example", "audience": "x", "algorithms": []}, "names none", ()),
        ({"issuer": "https://a.example", "audience": "x", "leeway": 9999}, "0 to 360", ()),
        ({"issuer": "https://a.example", "audience": "x", "ca_file": "no.pem"}, "no file", ...),
        ({"issuer": "https://a.example", "audience": "x", "jwsk": "y"}, "did you mean", ("jwsk",)),
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_its_place(
    table: dict[str, Any], said: str, at: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        auth_from({"issuers": {"corp": table}})
    assert said in caught.value.message
    assert caught.value.at[:2] == ("issuers", "corp")
    assert at is ... or caught.value.at[2:] == at


def test_names_of_issuers_are_told_from_keys() -> None:
    for name in ("key", "local", "a:b", "A", "a+b", ""):
        with pytest.raises(ConfigError):
            auth_from({"issuers": {name: SOMEBODY}})
    assert auth_from({}) == AuthSettings()
    with pytest.raises(ConfigError, match="accepts nothing"):
        auth_from({"resource": "https://tools.example.com"})


async def test_a_client_without_a_token_is_told_where_to_get_one() -> None:
    table = {"issuers": {"corp": SOMEBODY}, "resource": "https://tools.example.com/mcp"}
    identity = Identity.of(auth_from(table), records=MemoryStore(), clock=Clock(NOW))
    assert identity.metadata == {
        "resource": "https://tools.example.com/mcp",
        "authorization_servers": ["http://127.0.0.1:9"],
        "bearer_methods_supported": ["header"],
    }
    with pytest.raises(Unidentified) as caught:
        await identity.caller(None)
    assert caught.value.challenge == (
        'Bearer realm="toolpost", resource_metadata='
        '"https://tools.example.com/.well-known/oauth-protected-resource/mcp"'
    )
