"""Programs that have jobs: tools whose effects are lines in a file, and processes to be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolpost import Call, Caller, Runtime, tool
from toolpost.config import Config
from toolpost.jobs import Jobs

ANN, EVE, ROOT = Caller("ann", user="ann"), Caller("eve"), Caller("owner", owner=True)


def written(file: Path, line: str) -> None:
    """In the file before the next step is made; a kill does not take it back."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{line}\n".encode())
    os.close(out)


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def tools_of(folder: Path, *, hangs: bool = False) -> list[Any]:
    """``pay`` has effects, ``put`` may be done again, ``look`` only reads; ``slowly`` and its like
    hold on until they are told to go on, or for good.
    """

    async def held(call: Call) -> None:
        call.progress(1, 2, "half way")
        call.partial("a piece")
        if hangs:
            print("running", flush=True)
            await asyncio.get_running_loop().create_future()
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)

    @tool(tier=1, effects="once", timeout=60)
    async def pay(to: str) -> str:
        """Pay somebody."""
        written(folder / "done", to)
        return f"paid {to}"

    @tool(tier=1, effects="once", timeout=60)
    async def pay_slowly(to: str, call: Call) -> str:
        """Pay somebody, and take your time."""
        written(folder / "done", to)
        await held(call)
        return f"paid {to}"

    @tool(tier=1, effects="idempotent", timeout=60)
    async def put_slowly(to: str, call: Call) -> str:
        """Put something somewhere, and take your time."""
        written(folder / "done", to)
        await held(call)
        return f"put {to}"

    @tool(tier=0, effects="read", timeout=60)
    async def look_slowly(to: str, call: Call) -> str:
        """Look at something, and take your time."""
        written(folder / "done", to)
        await held(call)
        return f"seen {to}"

    @tool(tier=1, effects="once", requires_approval=True)
    async def ask(to: str) -> str:
        """Pay somebody, if a person says so."""
        written(folder / "done", to)
        return f"paid {to}"

    return [pay, pay_slowly, put_slowly, look_slowly, ask]


def config_of(folder: Path, **settings: Any) -> Config:
    return Config.of({"watch": False, **settings}, base=folder)


@asynccontextmanager
async def working(
    folder: Path, *more: Any, hangs: bool = False, **settings: Any
) -> AsyncIterator[tuple[Runtime, Jobs]]:
    """A program with jobs, open."""
    runtime = Runtime(config_of(folder, **settings), tools=[*tools_of(folder, hangs=hangs), *more])
    async with runtime, Jobs(runtime) as jobs:
        yield runtime, jobs


async def main(folder: Path, name: str, guards: str, key: str) -> None:
    """Submit one job, say its id, and hang in it until killed."""
    settings = {"guards": guards.split(",")} if guards else {}
    async with working(folder, hangs=True, **settings) as (_, jobs):
        job = await jobs.submit(name, {"to": "bob"}, caller=ANN, key=key or None)
        print(job.id, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
