"""The code behind the tools of these examples. Nothing here knows of toolpost."""

from pathlib import Path


def add(a: float, b: float) -> float:
    return a + b


def read_note(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
