"""One of the other servers: ``python -m benchmarks.network.servers MODULE APP`` prints its port.

All of them run under the same uvicorn, with uvloop and httptools and the settings that toolpost's
gateway has. That one is not among them: it is started as anybody starts it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import sys

import uvicorn
import uvloop

from benchmarks.network.asgi import Opens

IDLE_SECONDS = 600  # a connection waits while the others have their turn


async def serve(opens: Opens) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    async with opens() as app:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
        )
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        await uvicorn.Server(config).serve([listening])


def main(module: str, name: str) -> None:
    opens: Opens = importlib.import_module(f"benchmarks.network.{module}").APPS[name]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(opens))


if __name__ == "__main__":
    main(*sys.argv[1:])
