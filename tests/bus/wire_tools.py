"""The tool of ``examples/workers/javascript``, in Python: the contract is the same for both."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from toolpost import Call, tool


@tool(tier=0, effects="read", timeout=60)
async def greet(call: Call, name: str, seconds: Annotated[float, Field(ge=0, le=60)] = 0) -> str:
    """Greet somebody, at once or slowly."""
    done = 0.0
    while done < seconds:
        call.progress(done, seconds, "thinking")
        await asyncio.sleep(min(1.0, seconds - done))
        done += 1
    return f"Hello, {name}!"
