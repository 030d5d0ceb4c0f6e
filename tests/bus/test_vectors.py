"""The vectors of the wire contract, and both sides held against them: this one and JavaScript."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import servers
from tests.bus.vectors import HERE, read
from tests.bus.vectors import __main__ as writing
from toolpost.backends.nats.source import spec_of
from toolpost.bridges.nachos import Manifest
from toolpost.bus import ticket, wire
from toolpost.bus.ticket import Inspector
from toolpost.call import Progress
from toolpost.errors import CallError, InvalidSpec
from toolpost.result import Result
from toolpost.seal import open_seal, verifiers
from toolpost.worker import WorkerSettings
from toolpost.worker.worker import trusting

TICKETS = read("tickets")
ENVELOPES = read("envelopes")
EXAMPLE = HERE.parents[2] / "examples/workers/javascript"
CODES = {one["name"]: one["code"] for one in TICKETS["tickets"]}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for key in TICKETS["keys"]:
        (tmp_path / f"{key['id']}.pub").write_text(key["file"])
    return tmp_path


def test_the_tickets_are_as_they_were_written() -> None:
    assert writing.tickets() == TICKETS


def test_a_worker_takes_every_ticket_as_the_vectors_say(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket, "time", lambda: TICKETS["now"])
    codes: dict[str, str | None] = {}
    for one in TICKETS["tickets"]:
        eyes = Inspector(lambda: verifiers(keys, "bus"))
        if "after" in one:
            _read(eyes, one["after"], TICKETS["call"])
        try:
            _read(eyes, one["ticket"], {**TICKETS["call"], **one.get("call", {})})
            codes[one["name"]] = None
        except CallError as refused:
            codes[one["name"]] = refused.code
    assert codes == CODES


def test_a_folder_of_keys_and_a_key_alone_are_trusted_and_nothing_else_beside_it(
    keys: Path,
) -> None:
    (key,) = TICKETS["keys"]
    (keys / "other").mkdir()
    stranger = open_seal(keys / "other", "bus")
    for named, known in (
        (f"{key['id']}.pub", {key["id"]}),
        (".", {key["id"]}),
        ("other", {stranger.key}),
        ("nowhere", set()),
        ("nothing.pub", set()),
    ):
        assert set(trusting(WorkerSettings(trust=(named,)), keys)()) == known, named


def _read(eyes: Inspector, text: str | None, call: dict[str, str]) -> None:
    read = eyes.read(text, **{**call, "body": call["body"].encode()})  # type: ignore[arg-type]
    assert read.caller.id == "ada"
    assert read.caller.roles == {"ops"}


@servers.needed
def test_a_worker_in_javascript_takes_every_ticket_as_the_vectors_say(keys: Path) -> None:
    done = subprocess.run(
        [f"{servers.node()}/node", HERE / "check.mjs", EXAMPLE / "ticket.mjs",
         HERE / "tickets.json", keys],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == CODES


@pytest.mark.parametrize(
    ("name", "kind", "payload"),
    [
        ("request", wire.REQUEST, wire.Request),
        ("alive", wire.ALIVE, None),
        ("progress", wire.PROGRESS, Progress),
        ("response", wire.RESPONSE, Result),
        ("failed", wire.RESPONSE, Result),
        ("here", wire.WORKER, wire.Here),
        ("gone", wire.GONE, wire.Here),
        ("specs", wire.SPECS, wire.Page),
    ],
)
@pytest.mark.req("NA-6")
def test_every_envelope_is_read_and_said_again_the_same(name: str, kind: str, payload: Any) -> None:
    given = dict(ENVELOPES[name])
    told = msgspec.convert(given, wire.Envelope[payload])
    assert told.type == kind
    again = json.loads(msgspec.json.encode(told))
    for side in (given, again):
        side["payload"] = side["payload"] or {}
    # a worker need not say what has a default
    again["payload"] = {k: v for k, v in again["payload"].items() if k in given["payload"]}
    assert again == given


def test_an_offered_spec_becomes_a_tool() -> None:
    page = msgspec.convert(ENVELOPES["specs"]["payload"], wire.Page)
    spec = spec_of("greet", page.tools["greet"])
    assert (spec.kind, spec.binding["digest"]) == ("nats", page.tools["greet"].digest)


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("one", read("manifests"), ids=lambda one: one["name"])
def test_a_manifest_grants_what_it_says_and_what_is_not_understood_is_refused(one: Any) -> None:
    if one["grants"] is None:
        with pytest.raises(InvalidSpec):
            Manifest.of(one["manifest"])
        return
    manifest = Manifest.of(one["manifest"])
    resources = manifest.capabilities.resources
    assert one["grants"] == {
        "egress": list(manifest.capabilities.network.places),
        "memory": resources.memory,
        "cpus": resources.cpus,
        "tier": manifest.provides.security_tier,
    }
