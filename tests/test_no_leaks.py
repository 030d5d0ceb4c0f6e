"""A secret planted anywhere in a call is in none of the places that something is written to.

Everything is on, as it is by default; each place gets a secret of its own, so that what leaks says
where from. Places that have to keep a value so that a call can be repeated are named at the end.
"""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.cli.program import toolpost
from tests.redact_corpus import made
from toolpost import Caller, InvalidArguments, Result, Runtime, known
from toolpost.approvals import Decision, Request
from toolpost.approvals.webhook import outgoing
from toolpost.call import Progress
from toolpost.extensions.approval import Approval
from toolpost.extensions.log import setup
from toolpost.extensions.metrics import Metrics
from toolpost.extensions.trace import Trace

pytestmark = pytest.mark.anyio

TOOLS = """
- name: work
  description: Do something, and talk about it.
  tier: 1
  effects: idempotent
  isolation: {isolation}
  tags: ["{tag}"]
  labels: {{external: "true", note: "{label}"}}
  input_schema:
    type: object
    properties:
      how: {{type: string}}
      text: {{type: string}}
      count: {{type: integer}}
      nested: {{type: object}}
    required: [how]
    additionalProperties: false
  binding: {{module: planted_{isolation}, function: work, env: [PLANTED_KEY]}}
- name: pay
  description: Pay somebody.
  tier: 1
  requires_approval: true
  isolation: inline
  input_schema:
    type: object
    properties: {{to: {{type: string}}, note: {{type: string}}}}
    required: [to]
  binding: {{module: planted_{isolation}, function: pay}}
"""
MODULE = """
import sys
from typing import Annotated
from toolpost import Call, Secret, ToolFailed

def work(call: Call, how: str, key: Annotated[str, Secret("PLANTED_KEY")],
         text: str = "", count: int = 0, nested: dict | None = None) -> object:
    print("stdout {stdout}", text, nested, key, flush=True)
    print("stderr {stderr}", text, nested, key, file=sys.stderr, flush=True)
    call.progress(1, 2, "half of {progress} " + key)
    call.warn("careful with {warning} " + key)
    if how == "fail":
        raise ToolFailed("failed with {failure} " + key, details={{"seen": "{details}", key: key}})
    if how == "raise":
        try:
            raise OSError("inner {inner} " + key)
        except OSError as exc:
            raise ValueError("outer {raised} " + key) from exc
    return {{"said": "output {output}", "{output_key}": [key], "text": text, "nested": nested}}

async def pay(to: str, note: str = "") -> str:
    return "paid"
"""


class Places:
    """A secret for each place; what has none yet gets one."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}

    def __getitem__(self, place: str) -> str:
        if place not in self.secrets:
            self.secrets[place] = "gh" + "p_" + made(36)
        return self.secrets[place]

    def leaks(self, sinks: dict[str, bytes]) -> list[str]:
        return sorted(
            f"{place} in {sink}"
            for place, secret in self.secrets.items()
            for sink, written in sinks.items()
            if secret.encode() in written
        )


@pytest.fixture(params=["thread", "process"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Places]:
    """A folder with a config that says nothing of rings, and tools that cannot keep a secret."""
    at = Places()
    (tmp_path / "toolpost.toml").write_text(
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
        '[extensions.sanitize]\narguments = {secrets = "redact"}\n',  # else nothing would run
        encoding="utf-8",
    )
    tools = TOOLS.format(isolation=request.param, tag=at["tag"], label=at["label"])
    (tmp_path / "tools.yaml").write_text(tools, encoding="utf-8")
    said = ("stdout", "stderr", "progress", "warning", "failure", "details", "inner", "raised")
    names = (*said, "output", "output_key")
    module = MODULE.format(**{name: at[name] for name in names})
    (tmp_path / f"planted_{request.param}.py").write_text(module, encoding="utf-8")
    return tmp_path, at


@pytest.fixture
def logs() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    people, machines = io.StringIO(), io.StringIO()
    logger = logging.getLogger("toolpost")
    before = logger.level
    handlers = [
        setup(people, form="people", level=logging.DEBUG),
        setup(machines, form="machines", level=logging.DEBUG),
    ]
    yield people, machines
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(before)


def arguments(at: Places) -> dict[str, Any]:
    url = f"https://user:{at['url password']}@example.com/a?token={at['url query']}"
    wrapped = base64.b64encode(f"user:{at['basic']}".encode()).decode()
    at.secrets["basic, wrapped"] = wrapped
    return {
        "text": f"{at['text']} and {url} and Authorization: Basic {wrapped}",
        "nested": {
            "deep": [{"deeper": [f"it is {at['nested']}", {"api_key": f"it is {at['named']}"}]}],
            f"of {at['name']}": 1,
        },
    }


async def all_calls(tools: Runtime, at: Places, said: list[Any]) -> list[Result]:
    """Every way that a call can end, with something planted in all of it."""
    bot = Caller(at["caller"], user=at["user"], agent=at["agent"], roles=frozenset({at["role"]}))

    def heard(progress: Progress) -> None:
        said.append(progress)

    results = []
    for number, how in enumerate(("return", "fail", "raise")):
        for who in (bot, Caller("owner", owner=True)):
            results.append(
                await tools.execute(
                    "work",
                    {"how": how, **arguments(at)},
                    caller=who,
                    session_id=at["session"],
                    key=f"{at['key']} {number} {who.owner}",
                    metadata={"note": at["metadata"]},
                    on_progress=heard,
                )
            )
    for wrong in (
        {"how": "return", "count": at["wrong type"]},
        {"how": "return", at["extra name"]: 1},
        {"how": at["wrong"], "text": {"a": at["wrong inside"]}},
        {"how": "return", "text": at["whole"], "nested": {at["whole name"]: [at["whole inside"]]}},
        {"how": "return", "text": f"{at['hidden'][:9]}\u200b{at['hidden'][9:]}"},
    ):
        results.append(await tools.execute("work", wrong, session_id="wrong"))
    results.append(await tools.execute(at["tool"], {"a": at["argument of no tool"]}))
    results.append(await tools.execute("pay", {"to": "bob"}, grant=at["grant"]))
    return results


async def approvals(
    tools: Runtime, at: Places, bodies: list[bytes]
) -> tuple[list[Result], list[Request]]:
    """A call that is denied, and one that is edited; with words of the people who answer."""
    guard = next(g for g in tools.executor.guards if isinstance(g, Approval))
    desk = guard.approvals
    bot = Caller(at["asker"], user="ann", agent=at["asking agent"])
    results, requests = [], []
    for to, no in (("bob", True), ("eve", False)):
        given = {"to": to, "note": f"{at['note']} {to}"}
        first = await tools.execute("pay", given, caller=bot, session_id=at["asking session"])
        assert first.error is not None
        handle = (first.error.details or {})["approval"]
        request = await desk.find(handle)
        bodies.append(outgoing(request, now=desk.now()))
        decision = Decision(
            approve=not no,
            reason=f"because {at['reason']}",
            arguments=None if no else {"to": to, "note": f"better {at['edit']}"},
        )
        by = Caller(at["approver"], user="ann")
        if not no:
            with pytest.raises(InvalidArguments):
                await desk.decide(handle, decision, by=by, channel="console")
            decision = Decision(approve=True, reason=decision.reason, arguments={"to": to})
        await desk.decide(handle, decision, by=by, channel="console")
        results += [first, await tools.execute("pay", given, caller=bot, grant=handle)]
        requests.append(await desk.find(handle))
    return results, requests


def files(folder: Path) -> dict[str, bytes]:
    """Every byte of what is kept, what is not yet written back included."""
    return {
        f"file {path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def printed(folder: Path, requests: list[Request]) -> dict[str, bytes]:
    """What the commands that people use say."""
    said = {}
    for words in (
        ("approvals", "list", "--all"),
        ("approvals", "list", "--all", "--json"),
        *(("approvals", "show", request.handle) for request in requests),
        *(("approvals", "show", request.handle, "--json") for request in requests),
        ("audit", "tail"),
        ("audit", "export", "--format", "jsonl"),
        ("audit", "export", "--format", "csv"),
        ("audit", "search", "--json"),
    ):
        done = toolpost(*words, cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        assert len(done.stdout) > 100, words
        said[f"toolpost {' '.join(words[:2])}"] = (done.stdout + done.stderr).encode()
    return said


@pytest.mark.req("NA-3", "NA-10", "FM-5")
async def test_a_secret_planted_anywhere_in_a_call_is_in_no_sink(
    house: tuple[Path, Places],
    logs: tuple[io.StringIO, io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, at = house
    monkeypatch.setenv("PLANTED_KEY", at["environment"])
    monkeypatch.setattr(known, "values", set())
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    heard: list[Any] = []
    bodies: list[bytes] = []
    async with Runtime.open(folder / "toolpost.toml", observers=[Trace(provider)]) as tools:
        assert len(tools.executor.guards) == 11
        results = await all_calls(tools, at, heard)
        answered, requests = await approvals(tools, at, bodies)
        metrics = next(o for o in tools.executor.observers if isinstance(o, Metrics))
        sinks = {
            "metrics": (await metrics.scrape()).encode(),
            "spans": "".join(span.to_json() for span in spans.get_finished_spans()).encode(),
            "progress": repr(heard).encode(),
            "webhook": b"".join(bodies),
            **files(folder / ".toolpost"),
        }
    people, machines = logs
    sinks |= {
        "results": json.dumps([r.to_dict() for r in (*results, *answered)]).encode(),
        "log for people": people.getvalue().encode(),
        "log for machines": machines.getvalue().encode(),
        **{f"{name}, closed": data for name, data in files(folder / ".toolpost").items()},
        **printed(folder, requests),
    }
    codes = {r.error.code if r.error else "ok" for r in (*results, *answered)}
    assert codes >= {"ok", "EXECUTION_ERROR", "INTERNAL_ERROR", "VALIDATION_ERROR", "NOT_FOUND"}
    assert codes >= {"APPROVAL_REQUIRED", "APPROVAL_DENIED", "POLICY_DENIED"}
    assert "Traceback" in people.getvalue()
    if "isolation: process" in (folder / "tools.yaml").read_text(encoding="utf-8"):
        assert "stdout" in people.getvalue(), "what a worker prints is in the log"
    assert all(map(len, sinks.values()))
    assert at.leaks(sinks) == []
