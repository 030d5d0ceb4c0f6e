"""The eight security practices hold for a tool whose author heeds none of them: it runs whatever
it is sent, and the road around it does the rest.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import need_a_sandbox
from toolpost import Runtime
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
SPEC = """
- name: careless
  description: Run what it is sent.
  tier: 1
  isolation: sandbox
  timeout: 5
  limits: {memory: 268435456}
  input_schema:
    type: object
    properties: {code: {type: string}}
    required: [code]
    additionalProperties: false
  binding: {module: careless_of_the_test, function: careless}
"""
CODE = "def careless(code):\n    return eval(code)\n"
CONFIG = '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'


@pytest.fixture(autouse=True, scope="module")
def sandbox() -> None:
    need_a_sandbox()


@pytest.mark.req("NA-10", "NA-12")
async def test_a_careless_tool_keeps_the_eight_practices(tmp_path: Path) -> None:
    house, private = tmp_path / "house", tmp_path / "private.txt"
    house.mkdir()
    private.write_text("the-private-text", encoding="utf-8")
    for name, text in (
        ("toolpost.toml", CONFIG),
        ("tools.yaml", SPEC),
        ("careless_of_the_test.py", CODE),
    ):
        (house / name).write_text(text, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = {
            "works": ("1 + 1", "OK"),
            "validates": (None, "VALIDATION_ERROR"),
            "times out": ("__import__('time').sleep(60)", "TIMEOUT"),
            "is confined": (f"open({str(private)!r}).read()", "INTERNAL_ERROR"),
            "has no network": (
                f"__import__('socket').create_connection(('127.0.0.1', {port}), 2)",
                "UNAVAILABLE",
            ),
            "is bounded": ("len(bytearray(2**32))", "RESOURCE_LIMIT"),
            "leaves no folder": (f"open('{'../' * 20}{private}').read()", "INTERNAL_ERROR"),
            "runs code in a box": (f"open({str(private)!r}, 'w').write('x')", "OK"),  # there
            "tells no internals": ("1 / 0", "INTERNAL_ERROR"),
        }
        async with Runtime.open(house / "toolpost.toml") as tools:
            results = {
                name: await tools.execute("careless", {"code": code} if code else {"cod": "1"})
                for name, (code, _) in said.items()
            }
    got = {name: r.error.code if r.error else "OK" for name, r in results.items()}
    assert got == {name: code for name, (_, code) in said.items()}
    told = str([result.to_dict() for result in results.values()])
    assert private.read_text(encoding="utf-8") == "the-private-text" not in told
    assert "division" not in told and "Traceback" not in told
    async with Runtime.open(house / "toolpost.toml") as tools:
        kept = [one.code async for one in calls(lines_of(tools.store))]
    assert kept == list(got.values()), "and all of it is on record"
