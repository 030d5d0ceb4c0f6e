"""A guided tour: a few calls that show what toolpost does with a tool. Run it with
``.venv/bin/python examples/demo.py``."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax

from toolpost import Result, Runtime, tool
from toolpost.config import Config, Settings
from toolpost.ledger.reading import AuditedCall, last_calls

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


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file.txt"
        async with Runtime(Config(Settings(), Path(folder))) as tools:  # the default chain
            tools.registry.add(add, write_later, wipe_disk)
            await tools.execute("write_later", {"path": str(file)}, dry_run=True)
            step("1  A call that works", 'execute("add", {"a": 1, "b": 2})')
            show(good := await tools.execute("add", {"a": 1, "b": 2}))
            step("2  Wrong arguments: every fault, and what to do", 'execute("add", {"a": "one"})')
            show(bad := await tools.execute("add", {"a": "one"}))
            step(
                "3  A blocking tool is stopped: it sleeps 3 s, its limit is 0.5 s",
                'execute("write_later", {"path": "file.txt"})',
            )
            show(late := await tools.execute("write_later", {"path": str(file)}))
            console.print("  Waiting until the tool would have written its file …", style="dim")
            await asyncio.sleep(3)
            written = file.exists()
            console.print(f"  Was the file written? [bold]{'yes' if written else 'no'}[/bold]\n")
            step("4  A dangerous tool is refused, it never starts", 'execute("wipe_disk")')
            show(refused := await tools.execute("wipe_disk"))
            calls = await on_record(tools)
        step("5  Every call is on record, and can be proved", "toolpost audit verify")
        show_record(calls)
        proved = await verified(folder)
    console.print("Next: [bold]docs/tutorial.md[/bold]\n")
    as_promised = (
        good.success
        and [r.error.code for r in (bad, late, refused) if r.error]
        == ["VALIDATION_ERROR", "TIMEOUT", "POLICY_DENIED"]
        and not written
        and proved
        and [call.code for call in calls][-3:] == ["VALIDATION_ERROR", "TIMEOUT", "POLICY_DENIED"]
    )
    return 0 if as_promised else 1


async def on_record(tools: Runtime) -> list[AuditedCall]:
    """The audit writes harmless calls in batches: wait for the last one."""
    async with asyncio.timeout(30):
        while len(calls := await last_calls(tools.store, 10)) < 5 or calls[-1].code == "OPEN":
            await asyncio.sleep(0.05)
    return calls


async def verified(folder: str) -> bool:
    """What the command says about the audit in a folder, and whether it is content."""
    command = (sys.executable, "-m", "toolpost.cli.main", "audit", "verify")
    program = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await program.communicate()
    for line in said.decode().splitlines():
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print()
    return program.returncode == 0


def show_record(calls: list[AuditedCall]) -> None:
    for call in calls:
        console.print(f"  {call.asked.tool:12} {call.code}", highlight=False)
    console.print()


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
    logging.getLogger("toolpost").addHandler(logging.NullHandler())  # what it says is shown here
    sys.exit(asyncio.run(main()))
