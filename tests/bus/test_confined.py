"""A tool that a worker was given in a spec file can do what its spec grants, and no more."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.bus.house import gateway, until
from toolpost import Runtime
from toolpost.bus.embedded import Embedded
from toolpost.config import Config
from toolpost.contracts import Declared
from toolpost.worker import Worker, settings_of
from toolpost.worker.settings import serving

pytestmark = pytest.mark.anyio
MODULE = """
import socket
from pathlib import Path

def reach(file: str, port: int) -> dict:
    found = {}
    try:
        found["file"] = Path(file).read_text()
    except OSError:
        found["file"] = None
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        found["network"] = True
    except OSError:
        found["network"] = False
    return found
"""
SPEC = """
tools:
  - name: reach
    description: Reach for what is outside.
    tier: 0
    effects: read
    timeout: 20
    limits: {memory: 200MB}
    input_schema:
      type: object
      properties: {file: {type: string}, port: {type: integer}}
    binding: {module: reaching, function: reach}
"""


@pytest.mark.req("NA-7", "NA-11")
@pytest.mark.parametrize("confine", [True, False])
async def test_what_is_not_granted_cannot_be_reached(
    nats: Embedded, prefix: str, tmp_path: Path, confine: bool
) -> None:
    house, secret = tmp_path / "house", tmp_path / "secret"
    house.mkdir()
    secret.write_text("sesame")
    (house / "reaching.py").write_text(MODULE)
    (house / "tools.yaml").write_text(SPEC)
    given = {"store": {"kind": "memory"}, "sources": [{"kind": "files", "paths": ["tools.yaml"]}]}
    config = Config.of(given, base=house)
    keys = str(tmp_path / ".toolpost/keys")
    settings = settings_of(config, servers=[nats.url], prefix=prefix, trust=[keys], confine=confine)
    port = int(nats.url.rpartition(":")[2])
    async with (
        gateway(nats, prefix, tmp_path) as tools,
        Runtime(serving(config, settings)) as runtime,
        Worker(runtime, settings, folder=house),
    ):
        await until(lambda: tools.list())
        result = await tools.execute("reach", {"file": str(secret), "port": port})
    found = {"file": None, "network": False} if confine else {"file": "sesame", "network": True}
    assert result.output == found, result


async def test_a_tool_that_changes_is_confined_before_it_can_be_called(
    nats: Embedded, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "reaching.py").write_text(MODULE)
    (tmp_path / "tools.yaml").write_text(SPEC)
    given = {"store": {"kind": "memory"}, "sources": [{"kind": "files", "paths": ["tools.yaml"]}]}
    config = Config.of(given, base=tmp_path)
    settings = settings_of(config, servers=[nats.url], prefix=prefix)
    async with (
        Runtime(serving(config, settings)) as runtime,
        Worker(runtime, settings, folder=tmp_path) as made,
    ):
        registry = runtime.registry
        spec = registry.get("reach")
        assert spec is not None
        assert spec.isolation == "sandbox"
        changed = msgspec.structs.replace(spec, description="Changed.", isolation=None)
        registry.replace(Declared(changed, str(tmp_path)))
        assert made._offered()["reach"].digest == changed.digest  # asked for before it runs
        found = registry.get("reach")
        assert found is not None
        assert (found.description, found.isolation) == ("Changed.", "sandbox")
