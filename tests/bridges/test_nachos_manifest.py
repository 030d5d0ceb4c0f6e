"""The manifest of the Nachos contract: what it does not grant, the tool cannot do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.http.service import Reply, serving
from tests.bridges.test_nachos import Echo
from tests.sandbox.elsewhere import need_a_sandbox, open_the_way
from toolpost import Executor, InvalidSpec, Registry
from toolpost.bridges.nachos import (
    CalculatorTool,
    Manifest,
    SecurityTier,
    ToolConfig,
    ToolLimits,
    tools,
)
from toolpost.errors import ConfigError

pytestmark = pytest.mark.anyio
KEY = "sesame-0123456789"
PROBE = """
import os, socket, urllib.request
from toolpost.bridges.nachos import SecurityTier, ToolError, ToolResult, ValidationResult


class Probe:
    tool_id, name, description = "probe", "Probe", "Try what a tool might try."
    security_tier = SecurityTier.STANDARD
    parameters = {
        "type": "object",
        "properties": {"do": {"type": "string"}, "at": {"type": "string"}},
        "required": ["do"],
    }

    async def initialize(self, config):
        self.config, self.times = config, 0

    def validate(self, params):
        return ValidationResult(params["do"] != "nonsense", ["that is nonsense"])

    async def health_check(self):
        return {"healthy": True}

    async def execute(self, params):
        self.times += 1
        return getattr(self, params["do"])(params)

    def ids(self, params):
        return ToolResult(True, [params["sessionId"], params["callId"], self.times])

    def told(self, params):
        key = self.config.secrets["PROBE_KEY"]
        return ToolResult(True, [self.config.config, self.config.security_mode, len(key), key])

    def variables(self, params):
        return ToolResult(True, [name for name in os.environ if "PROBE" in name])

    def read(self, params):
        return ToolResult(True, open(params["at"]).read())

    def write(self, params):
        with open(params["at"], "w") as file:
            file.write("x")
        return {"success": True, "result": "written"}

    def connect(self, params):
        host, port = params["at"].rsplit(":", 1)
        socket.create_connection((host, int(port)), 5).close()
        return ToolResult(True, "connected")

    def fetch(self, params):
        with urllib.request.urlopen(f"http://{params['at']}/", timeout=5) as answer:
            return ToolResult(True, answer.read().decode())

    def eat(self, params):
        return ToolResult(True, len(bytearray(2**31)))

    def fail(self, params):
        return ToolResult(False, error=ToolError("PAGE_TOO_BIG", "Big.", [1]))
"""


def manifest(**capabilities: Any) -> dict[str, Any]:
    return {
        "name": "nachos-tool-probe",
        "version": "1.2.3",
        "type": "tool",
        "capabilities": {"resources": {"memory": "256MB", "cpus": 1.0}, **capabilities},
        "provides": {"tool": "probe", "securityTier": 1},
    }


@pytest.fixture(scope="module")
def sandbox() -> None:
    need_a_sandbox()


@pytest.fixture
def probe(sandbox: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    home = tmp_path / "project"
    home.mkdir()
    (home / "probe_of_nachos.py").write_text(PROBE, encoding="utf-8")
    open_the_way(home / "x")
    monkeypatch.syspath_prepend(home)
    monkeypatch.setenv("PROBE_KEY", KEY)
    monkeypatch.setenv("PROBE_OTHER", "not for it")
    monkeypatch.delitem(__import__("sys").modules, "probe_of_nachos", raising=False)
    from probe_of_nachos import Probe  # type: ignore[import-not-found]

    return Probe  # type: ignore[no-any-return]


async def outcome(executor: Executor, do: str, at: str = "") -> Any:
    result = await executor.execute(
        "probe", {"do": do, "at": at}, session_id="s", metadata={"callId": "c"}
    )
    return result.output if result.error is None else result.error.code


@pytest.mark.req("NA-11", "NA-10", "NA-7")
async def test_what_a_manifest_grants_the_tool_can_do_and_no_more(
    probe: type[Any], tmp_path: Path
) -> None:
    private, house = tmp_path / "private.txt", tmp_path / "house"
    private.write_text("the-private-text", encoding="utf-8")
    house.mkdir()
    config = ToolConfig({"units": 1}, {"PROBE_KEY": KEY}, limits=ToolLimits(timeout=20_000))
    async with serving(lambda _: Reply("tea")) as site, serving(lambda _: Reply("oil")) as other:
        granted = manifest(network={"egress": [site.authority]})
        items = tools(probe, config=config, manifest=granted, write=[str(house)])
        async with Executor(Registry(items)) as executor:
            (spec,) = executor.registry.list()
            assert (spec.isolation, spec.version) == ("sandbox", "1.2.3")
            assert (spec.egress, spec.labels) == ((site.authority,), {"external": "true"})
            assert (spec.limits.memory, spec.limits.cpus) == (256_000_000, 1.0)
            assert KEY not in str(spec.to_dict())
            got = {
                "ids": await outcome(executor, "ids"),
                "told": await outcome(executor, "told"),
                "variables": await outcome(executor, "variables"),
                "nonsense": await outcome(executor, "nonsense"),
                "fail": await outcome(executor, "fail"),
                "read": await outcome(executor, "read", str(private)),
                "its own code": await outcome(executor, "write", probe.__module__ + ".py"),
                "its project": await outcome(executor, "write", str(tmp_path / "project/x")),
                "write": await outcome(executor, "write", str(house / "x")),
                "fetch": await outcome(executor, "fetch", site.authority),
                "fetch elsewhere": await outcome(executor, "fetch", other.authority),
                "connect": await outcome(executor, "connect", other.authority),
                "again": await outcome(executor, "ids"),
                "eat": await outcome(executor, "eat"),
            }
            assert (await executor.health("probe")).healthy
    assert got == {
        "ids": ["s", "c", 1],
        "told": [{"units": 1}, "standard", len(KEY), "[redacted:known_secret]"],
        "variables": ["PROBE_KEY"],
        "nonsense": "VALIDATION_ERROR",
        "fail": "EXECUTION_ERROR",
        "read": "INTERNAL_ERROR",
        "its own code": "written",  # in its working folder, which is not its project
        "its project": "INTERNAL_ERROR",
        "write": "written",
        "fetch": "tea",
        "fetch elsewhere": "INTERNAL_ERROR",
        "connect": "UNAVAILABLE",
        "again": got["again"],
        "eat": "RESOURCE_LIMIT",
    }
    assert got["again"][:2] == ["s", "c"]
    assert private.read_text(encoding="utf-8") == "the-private-text"
    assert not (tmp_path / "project/x").exists()
    assert other.asked == []


@pytest.mark.req("NA-11", "NA-3")
async def test_a_denied_tool_is_not_run_in_its_sandbox_either(
    probe: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "security_tier", SecurityTier.DANGEROUS)
    given = {**manifest(), "provides": {"tool": "probe", "securityTier": 4}}
    async with Executor(Registry(tools(probe, config=ToolConfig(), manifest=given))) as executor:
        result = await executor.execute("probe", {"do": "ids"})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("POLICY_DENIED", "none")


DOCUMENTED = {
    "name": "nachos-tool-browser",
    "version": "1.0.0",
    "type": "tool",
    "capabilities": {
        "network": {"egress": ["*"]},
        "resources": {"memory": "1GB", "cpus": 1.0},
    },
    "provides": {"tool": "browser", "securityTier": 1},
}


@pytest.mark.req("NA-11")
def test_the_documented_manifest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(DOCUMENTED), encoding="utf-8")
    read = Manifest.read(file)
    assert (read.name, read.version, read.provides.tool) == (
        "nachos-tool-browser",
        "1.0.0",
        "browser",
    )
    assert read.capabilities.network.places == ("*",)
    assert Manifest.of({**DOCUMENTED, "author": "somebody"}) == read
    bare = Manifest.of({**DOCUMENTED, "capabilities": {"network": {"egress": ["a.example"]}}})
    assert bare.capabilities.network.places == ("a.example:443",)


def changed(at: str, value: Any) -> dict[str, Any]:
    """The documented one with another value at a place; with ``None``, without it."""
    data: dict[str, Any] = json.loads(json.dumps(DOCUMENTED))
    *path, last = at.split(".")
    inner = data
    for step in path:
        inner = inner[step]
    inner[last] = value
    if value is None:
        del inner[last]
    return data


@pytest.mark.req("NA-11")
@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("name", None),
        ("version", 1),
        ("type", "channel"),
        ("provides", None),
        ("provides.tool", None),
        ("provides.securityTier", "1"),
        ("provides.securityTier", True),
        ("provides.alias", "x"),
        ("capabilities", []),
        ("capabilities.filesystem", {"write": ["/"]}),
        ("capabilities.network.ingress", ["*"]),
        ("capabilities.network.egress", "*"),
        ("capabilities.network.egress", ["*.example.com"]),
        ("capabilities.network.egress", ["http://example.com/"]),
        ("capabilities.network.egress", ["example.com:0"]),
        ("capabilities.network.egress", ["example.com:99999"]),
        ("capabilities.network.egress", [""]),
        ("capabilities.network.egress", ["a b"]),
        ("capabilities.resources.gpus", 1),
    ],
)
def test_a_manifest_that_cannot_be_kept_to_is_refused_with_its_place(
    at: str, value: Any, tmp_path: Path
) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(changed(at, value), indent=1), encoding="utf-8")
    with pytest.raises(InvalidSpec, match=r"manifest\.json"):
        Manifest.read(file)


def with_provides(data: Mapping[str, Any], tool: str, tier: int) -> dict[str, Any]:
    return {**data, "provides": {"tool": tool, "securityTier": tier}}


@pytest.mark.req("NA-11")
def test_a_manifest_and_its_tool_have_to_agree() -> None:
    class Local(Echo):
        pass

    right = with_provides(DOCUMENTED, "echo", 1)
    for wrong in (DOCUMENTED, with_provides(DOCUMENTED, "echo", 0)):
        with pytest.raises(InvalidSpec, match="make them agree"):
            tools(Echo, manifest=wrong)
    with pytest.raises(InvalidSpec, match="give the class"):
        tools(Echo(), manifest=right)
    with pytest.raises(InvalidSpec, match="top level of a module"):
        tools(Local, manifest=right)
    with pytest.raises(InvalidSpec, match="one tool"):
        tools(Echo, Local, manifest=right)
    with pytest.raises(InvalidSpec, match="comes with toolpost"):
        tools(CalculatorTool(), manifest=with_provides(DOCUMENTED, "calculator", 0))
    with pytest.raises(InvalidSpec, match="has a sandbox"):
        tools(Echo(), write=["/srv"])
    with pytest.raises(InvalidSpec, match="is not a size"):
        resources = {"resources": {"memory": "a lot"}}
        tools(Echo, manifest={**right, "capabilities": resources})
    with pytest.raises(InvalidSpec, match="plain data"):
        tools(Echo, config=ToolConfig({"live": object()}), manifest=right)
    with pytest.raises(ConfigError, match="not a text"):
        ToolConfig({}, {"KEY": 5})  # type: ignore[dict-item]
    with pytest.raises(InvalidSpec, match="NO_SUCH_KEY"):
        tools(Echo, config=ToolConfig({}, {"NO_SUCH_KEY": "given-literally"}), manifest=right)
