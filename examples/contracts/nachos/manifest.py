"""The manifest of the Nachos contract: what it does not grant, the tool cannot do.

The tool, its manifest and ``nachos.toml`` are in the folder ``project``.
"""

import asyncio
import os
import sys
from pathlib import Path

from toolpost import Executor, Registry
from toolpost.bridges.nachos import Manifest, ToolConfig, tools

PROJECT = Path(__file__).parent / "project"
sys.path.insert(0, str(PROJECT))

from forecast import ForecastTool  # noqa: E402 - it is found there

BROWSER = {
    "name": "nachos-tool-browser",
    "version": "1.0.0",
    "type": "tool",
    "capabilities": {
        "network": {"egress": ["*"]},
        "resources": {"memory": "1GB", "cpus": 1.0},
    },
    "provides": {"tool": "browser", "securityTier": 1},
}


async def main() -> None:
    assert Manifest.of(BROWSER).capabilities.network.egress == ("*",)

    os.environ["FORECAST_KEY"] = "only-an-example-0123456789"
    config = ToolConfig.from_toml(PROJECT / "nachos.toml", "forecast")
    manifest = Manifest.read(PROJECT / "manifest.json")
    async with Executor(Registry(tools(ForecastTool, config=config, manifest=manifest))) as road:
        spec = road.registry.list()[0]
        assert (spec.isolation, spec.egress) == ("sandbox", ("api.example.com:443",))
        result = await road.execute("forecast", {"city": "Oslo"})
        if result.error is not None and result.error.code == "UNAVAILABLE":
            print("there is no sandbox here, so it does not run: toolpost doctor says why")
            return
        assert result.output == {"city": "Oslo", "units": "metric", "conditions": "fog"}
        elsewhere = Path(__file__).parents[2] / "demo.py"
        peeped = await road.execute("forecast", {"city": str(elsewhere)})
        assert peeped.error is not None, "nobody has granted it that file"
        assert peeped.error.message == "There is no such city."
        print(result.output)


asyncio.run(main())
