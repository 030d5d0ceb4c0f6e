"""The bare end of a bus: answers with what it was asked, and knows nothing else."""

from __future__ import annotations

import asyncio
import sys

import nats
import uvloop


async def main(url: str) -> None:
    client = await nats.connect(url)

    async def heard(message: nats.aio.msg.Msg) -> None:
        await client.publish(message.reply, message.data)

    await client.subscribe("bare", queue="answering", cb=heard)
    await client.flush()
    print('{"ready": true}', flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
