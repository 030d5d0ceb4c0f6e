"""The client that the official conformance suite starts: a config with one server, and its tools.

Called with the address of the suite's server, it takes in what is listed there and calls every tool
once, all at the same time. Whatever is asked is answered as its schema proposes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from toolpost import Call, Caller, Runtime
from toolpost.config import Config
from toolpost.contracts import Answer, Elicits, Question

ME = Caller("conformance", owner=True)
ECHO = "json_schema_echo"
"""The tool that wants to be told the schema of the other one."""
VALUES = {"string": "x", "integer": 1, "number": 1, "boolean": True, "object": {}, "array": []}


def proposed(schema: Any, *, every: bool) -> dict[str, Any]:
    """Values for an object of this schema: its defaults, or something of the right type."""
    wanted = {
        name: one
        for name, one in (schema or {}).get("properties", {}).items()
        if name in schema.get("required", ()) or (every and "default" in one)
    }
    return {
        name: one.get("default", one.get("enum", [VALUES.get(one.get("type"), "x")])[0])
        for name, one in wanted.items()
    }


async def answer(call: Call, question: Question) -> Answer:
    return Answer("accept", proposed(question.schema, every=True))


def calls(runtime: Runtime) -> list[tuple[str, dict[str, Any]]]:
    """Those that the scenario names; else every tool once, with what it cannot do without."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if named := context.get("toolCalls"):
        # no value is none: what is null there is not in the schema, and the road refuses it
        return [
            (one["name"], {key: v for key, v in one["arguments"].items() if v is not None})
            for one in named
        ]
    specs = {spec.name: spec for spec in runtime.list()}
    if ECHO in specs:
        (other,) = specs.keys() - {ECHO}
        return [(ECHO, {"schema": specs[other].input_schema})]
    return [(name, proposed(spec.input_schema, every=False)) for name, spec in specs.items()]


async def main(url: str, folder: Path) -> None:
    data = {
        "store": {"kind": "memory"},
        "observers": [],
        "guards": [],
        "sources": [{"kind": "mcp", "servers": ["suite"]}],
        "backends": {"mcp": {"servers": {"suite": {"url": url, "prefix": ""}}}},
    }
    async with Runtime(Config.of(data, base=folder), provide={Elicits: answer}) as runtime:
        assert not runtime.problems, runtime.problems
        todo = calls(runtime)
        results = await asyncio.gather(
            *(runtime.execute(name, given, caller=ME) for name, given in todo)
        )
    for (name, given), result in zip(todo, results, strict=True):
        print(name, given, result.output if result.error is None else result.error)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[-1], Path(made)))
