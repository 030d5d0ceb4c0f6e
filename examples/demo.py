"""A guided tour: four calls that show what toolpost does with a tool. Run it with ``make run``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax

from toolpost import Call, Denied, Executor, Registry, Result, tool
from toolpost.contracts import Walk

console = Console(width=min(80, Console().width))


@tool(tier=0, effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(isolation="process", timeout=0.5)
def write_later(path: str) -> str:
    """Sleep for three seconds, then write a file. Its limit is half a second."""
    time.sleep(3)
    Path(path).write_text("too late", encoding="utf-8")
    return "written"


@tool(tier=4)
async def wipe_disk() -> None:
    """Delete everything."""
    raise AssertionError("this never runs")


async def no_dangerous_tools(call: Call, call_next: Walk) -> Result:
    """A guard is a function: raise to refuse, call on to allow."""
    if call.spec.tier == 4:
        raise Denied(f"{call.tool} is a tier 4 tool, and this demo runs none of those.")
    return await call_next(call)


async def main() -> int:
    registry = Registry([add, write_later, wipe_disk])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file.txt"
        async with Executor(registry, guards=[no_dangerous_tools]) as executor:
            await executor.execute("write_later", {"path": str(file)}, dry_run=True)
            step("1  A call that works", 'execute("add", {"a": 1, "b": 2})')
            show(good := await executor.execute("add", {"a": 1, "b": 2}))
            step("2  Wrong arguments: every fault, and what to do", 'execute("add", {"a": "one"})')
            show(bad := await executor.execute("add", {"a": "one"}))
            step(
                "3  A blocking tool is stopped: it sleeps 3 s, its limit is 0.5 s",
                'execute("write_later", {"path": "file.txt"})',
            )
            show(late := await executor.execute("write_later", {"path": str(file)}))
            console.print("  Waiting until the tool would have written its file …", style="dim")
            await asyncio.sleep(3)
            written = file.exists()
            console.print(f"  Was the file written? [bold]{'yes' if written else 'no'}[/bold]\n")
            step("4  A guard refuses, the tool never starts", 'execute("wipe_disk")')
            show(refused := await executor.execute("wipe_disk"))
    console.print("Next: [bold]docs/tutorial.md[/bold]\n")
    as_promised = (
        good.success
        and [r.error.code for r in (bad, late, refused) if r.error]
        == ["VALIDATION_ERROR", "TIMEOUT", "POLICY_DENIED"]
        and not written
    )
    return 0 if as_promised else 1


def step(title: str, code: str) -> None:
    shown = Syntax(code, "python", background_color="default")
    console.print(Panel(shown, title=title, title_align="left"))


def show(result: Result) -> None:
    took = f"[dim]({result.metadata.duration_ms:.1f} ms)[/dim]"
    if result.error is None:
        console.print(f"  [green]output[/green]  {result.output}  {took}\n")
        return
    error = result.error
    console.print(f"  [red]{error.code}[/red]  {took}")
    console.print(f"  {error.message}", highlight=False)
    console.print(f"  remedy: {error.remedy}   effects: {error.effects}\n", highlight=False)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
