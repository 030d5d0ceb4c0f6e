"""Running something in a sandbox, to its end."""

from __future__ import annotations

import asyncio

from toolpost.process import Child
from toolpost.sandbox import Confinement, Sandbox

FENCE = 30


def said(child: Child) -> str:
    assert child.stdout is not None
    assert child.stderr is not None
    return (child.stdout.tail + child.stderr.tail).decode()


async def run(sandbox: Sandbox, argv: list[str], confinement: Confinement) -> tuple[int, str]:
    child = await sandbox.spawn(argv, confinement)
    async with asyncio.timeout(FENCE):
        ending = await child.wait()
    assert ending.code is not None
    return ending.code, said(child)


async def shell(sandbox: Sandbox, script: str, confinement: Confinement) -> tuple[int, str]:
    return await run(sandbox, ["sh", "-c", script], confinement)
