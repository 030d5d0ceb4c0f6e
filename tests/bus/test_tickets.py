"""What a worker believes: a ticket is for one call, by one gateway, for a few seconds."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from toolpost import Caller
from toolpost.bus import ticket
from toolpost.bus.meeting import Half
from toolpost.bus.ticket import Inspector, Issuer, Ticket, new_nonce
from toolpost.errors import CallError, Unauthorized, Unavailable
from toolpost.seal import new_seal

SEAL = new_seal()
BODY = b'{"a": 1}'
ME = Caller(id="me", roles=frozenset(("ops",)), key="ci")
CALL = {"tool": "add", "spec": "sha256:1", "body": BODY, "reply": "_INBOX.1"}


def written(**more: Any) -> str:
    given = {**CALL, "nonce": new_nonce(), **more}
    return Issuer(more.pop("seal", SEAL)).write(
        ME, **{k: v for k, v in given.items() if k != "seal"}
    )


def inspector() -> Inspector:
    return Inspector(lambda: {SEAL.key: SEAL.verifier})


@pytest.mark.req("NA-6")
def test_a_ticket_says_who_calls_what() -> None:
    read = inspector().read(written(), **CALL)
    assert read.caller == ME
    assert (read.tool, read.spec, read.reply) == ("add", "sha256:1", "_INBOX.1")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"tool": "sub"}, "for another call"),
        ({"body": BODY + b" "}, "for another call"),
        ({"reply": "_INBOX.2"}, "for another call"),
    ],
)
def test_attack_a_ticket_is_for_no_other_call(other: dict[str, Any], says: str) -> None:
    with pytest.raises(Unauthorized, match=says) as refused:
        inspector().read(written(), **{**CALL, **other})
    assert refused.value.effects == "none"


def test_a_tool_that_has_changed_since_is_tried_again_and_not_run() -> None:
    with pytest.raises(Unavailable, match="has changed") as refused:
        inspector().read(written(), **{**CALL, "spec": "sha256:2"})
    assert refused.value.retryable
    assert refused.value.effects == "none"


def test_attack_a_ticket_is_used_once() -> None:
    eyes, text = inspector(), written()
    eyes.read(text, **CALL)
    with pytest.raises(Unauthorized, match="used before"):
        eyes.read(text, **CALL)


@pytest.mark.parametrize("passed", [25.0, -25.0])
def test_attack_a_ticket_of_another_time_is_stale(
    monkeypatch: pytest.MonkeyPatch, passed: float
) -> None:
    text, now = written(), ticket.time()
    monkeypatch.setattr(ticket, "time", lambda: now + passed)
    with pytest.raises(Unauthorized, match="stale"):
        inspector().read(text, **CALL)


def test_attack_no_ticket_no_known_key_no_right_signature() -> None:
    stranger = new_seal()
    head, said, signature = written().split(".")
    claims = json.loads(base64.urlsafe_b64decode(said + "=="))
    forged = base64.urlsafe_b64encode(json.dumps({**claims, "tool": "sub"}).encode()).decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    for text in (
        None, "", "x", ".", "..", "a.b.c", written(seal=stranger), f"{none}.{said}.",
        f"{head}.{forged.rstrip('=')}.{signature}", f"{head}.{said}.", f"{head}.{said}",
        f"{head}.{said}.{signature}=", f"{head}.{said}.{signature}A",
        f"{head}.{said}.{signature[:-2]}", f"{head}.{said}.é", f"{head}.é.{signature}", "é",
        f"{head}.{said}.{signature}." + "x" * 20_000,
    ):  # fmt: skip
        with pytest.raises(Unauthorized):
            inspector().read(text, **CALL)


def met(issuer: Issuer, eyes: Inspector, worker: str = "w1") -> bytes:
    """Both share a key now, each with its own half."""
    half = Half()
    one = issuer.half.with_other(half.public, gateway=issuer.gateway, worker=worker)
    two = half.with_other(issuer.half.public, gateway=issuer.gateway, worker=worker)
    assert one is not None
    assert one == two
    eyes.met[issuer.gateway] = one
    return one


def inside(issuer: Issuer, keys: dict[str, bytes], **more: Any) -> bytes:
    given = {**CALL, "nonce": new_nonce(), "met": keys, **more}
    return issuer.inside(given.pop("body"), ME, **given)


def read(eyes: Inspector, body: bytes, **more: Any) -> Ticket:
    given = {name: one for name, one in CALL.items() if name != "body"}
    return eyes.read_inside(body, **{**given, **more})[0]  # type: ignore[arg-type]


def test_those_who_have_met_do_without_signatures() -> None:
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    other = Inspector(dict, worker="w2")
    keys = {"w1": met(issuer, eyes), "w2": met(issuer, other, "w2")}
    body = inside(issuer, keys)
    assert json.loads(body)["a"] == 1  # what it was, and a ticket
    assert read(eyes, body).caller == ME
    assert read(other, body).caller == ME  # whichever takes it
    with pytest.raises(Unauthorized, match="used before"):
        read(eyes, body)
    with pytest.raises(Unavailable, match="has changed"):
        read(other, inside(issuer, keys), spec="sha256:2")
    for more in ({"tool": "sub"}, {"reply": "_INBOX.2"}):
        with pytest.raises(Unauthorized, match="for another call"):
            read(other, inside(issuer, keys), **more)


def test_attack_a_request_whose_ticket_is_in_it_cannot_be_altered() -> None:
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    keys = {"w1": met(issuer, eyes)}
    body = inside(issuer, keys, body=b'{"a": 1, "b": {"ticket": {"met":"x"}}}')
    place = body.rindex(b"w1:") + 3
    for altered in (
        body.replace(b'"a": 1', b'"a": 2'),
        body.replace(b'"id":"me"', b'"id":"he"'),
        body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :],
        b"{" + body[1:-1] + b',"c":1}',
        b'{"a":2,"x":' + body + b"}",
        body[:-1],
        b"",
        b"{}",
        b'{"met":"',
        b',"met":""}}',
        b'{"a": 1}',
    ):
        assert altered != body
        with pytest.raises((Unauthorized, Unavailable)):
            read(eyes, altered)
    assert read(eyes, body).jti


@pytest.mark.parametrize("passed", [25.0, -25.0])
def test_attack_a_ticket_inside_of_another_time_is_stale(
    monkeypatch: pytest.MonkeyPatch, passed: float
) -> None:
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    body, now = inside(issuer, {"w1": met(issuer, eyes)}), ticket.time()
    monkeypatch.setattr(ticket, "time", lambda: now + passed)
    with pytest.raises(Unauthorized, match="stale"):
        read(eyes, body)


def test_attack_a_worker_can_forge_no_ticket_for_another() -> None:
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    thief = Inspector(dict, worker="w2")
    key = met(issuer, thief, "w2")
    met(issuer, eyes)
    forged = inside(issuer, {"w1": key, "w2": key})
    assert read(thief, forged)
    with pytest.raises(Unauthorized, match="not as it was written"):
        read(eyes, forged)


def test_whoever_has_not_met_the_gateway_asks_for_a_signature() -> None:
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    with pytest.raises(Unavailable, match="has not met") as refused:
        read(eyes, inside(issuer, {"w1": b"k" * 32}))
    assert refused.value.effects == "none"
    met(issuer, eyes)
    with pytest.raises(Unavailable, match="has not met"):
        read(eyes, inside(issuer, {"w2": b"k" * 32}))


def test_attack_of_a_ticket_in_a_body_nothing_is_read_that_it_does_not_vouch_for() -> None:
    """Of two members of a name the last counts, and behind the digests anybody can write."""
    issuer, eyes = Issuer(SEAL), Inspector(dict, worker="w1")
    keys = {"w1": met(issuer, eyes)}
    body = inside(issuer, keys, body=b'{"payload":{"a":1}}', nonce="first")
    more = b',","caller":{"id":"root","owner":true},"jti":"fresh","z":"x"}'
    more += b',"payload":{"a":2},"q":{"a":"'
    given = {"tool": "add", "spec": "sha256:1", "reply": "_INBOX.1"}
    ticket, sure = eyes.read_inside(body[:-3] + more + b'"}}', **given)
    assert (ticket.caller, ticket.jti) == (ME, "first")
    assert json.loads(sure)["payload"] == {"a": 1}
    with pytest.raises(Unauthorized, match="used before"):
        eyes.read_inside(body, **given)


def test_attack_half_of_a_key_that_is_none_makes_no_key() -> None:
    half = Half()
    for public in ("", "x", "A" * 43 + "=", "é"):  # the third is all zeros
        assert half.with_other(public, gateway="g", worker="w") is None


def test_a_gateway_that_comes_later_is_believed_once_its_key_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: dict[str, Any] = {}
    eyes = Inspector(lambda: dict(keys))
    with pytest.raises(Unauthorized, match="nobody who is trusted"):
        eyes.read(written(), **CALL)
    keys[SEAL.key] = SEAL.verifier
    monkeypatch.setattr(ticket, "_ASK_AGAIN", -1.0)
    assert eyes.read(written(), **CALL).caller == ME


def test_attack_too_many_tickets_to_remember_are_refused_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ticket, "_MOST_SEEN", 3)
    eyes = inspector()
    first = written()
    eyes.read(first, **CALL)
    for _ in range(2):
        eyes.read(written(), **CALL)
    with pytest.raises(CallError, match="Too many"):
        eyes.read(written(), **CALL)
    with pytest.raises(Unauthorized, match="used before"):
        eyes.read(first, **CALL)
