"""Installed packages, as pip would leave them: modules and their metadata in a folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TOOLS = '''
from toolpost import Tool, tool

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

class Greeter(Tool, name="greet"):
    """Greet somebody."""

    async def run(self, name: str) -> str:
        return f"hello {name}"
'''


def install(
    folder: Path, package: str, *, points: Mapping[str, Mapping[str, str]], **modules: str
) -> None:
    """``points``: group → name → reference; ``modules``: name → source."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """What is imported from the folder meanwhile is forgotten afterwards, and so is the folder."""
    path = list(sys.path)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]
