"""The runner of the Nachos contract: messages in, messages out, the policy before the tool.

A bus would subscribe to ``runner.subject`` and hand every message to ``runner.handle``.
"""

import asyncio
import json
import tempfile
from typing import Any

from toolpost import Caller
from toolpost.bridges.nachos import (
    CalculatorTool,
    FilesystemTool,
    ToolConfig,
    ToolRunner,
)

ME = Caller("me", owner=True)
"""Who sends a message, the transport knows; if nothing is said it is anybody, who may do little."""


def request(**parameters: Any) -> bytes:
    payload = {"sessionId": "s-1", "callId": "c-1", **parameters}
    return json.dumps({"id": "request-1", "type": "tool.request", "payload": payload}).encode()


async def main(base: str) -> None:
    async with ToolRunner.open(CalculatorTool(), ToolConfig(base=base)) as runner:
        assert runner.subject == "nachos.tool.calculator.request"
        answer = await runner.handle(request(expression="10 * 5"))
        assert (answer["type"], answer["source"]) == ("tool.response", "calculator")
        assert answer["correlationId"] == "request-1"
        assert answer["payload"]["result"] == {"expression": "10 * 5", "answer": 50}
        print(json.dumps(answer["payload"]["result"]))
        broken = await runner.handle(b"no JSON at all")
        assert broken["payload"]["error"]["code"] == "VALIDATION_ERROR"
        assert (await runner.health()).healthy

    # In strict mode what writes is not run before a person has been asked.
    strict = ToolConfig(security_mode="strict", base=base)
    async with ToolRunner.open(FilesystemTool(), strict) as runner:
        answer = await runner.handle(request(action="list", path="./workspace"), ME)
        assert answer["payload"]["error"]["code"] == "APPROVAL_REQUIRED"
        print(answer["payload"]["error"]["code"])


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
