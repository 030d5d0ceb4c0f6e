"""What a person types at the terminal.

Above: the commands that ask. Below: standard input, a terminal. A signal that comes the moment
before a read begins does not end it: so nothing is read before it is there, and the wait for it
wakes now and then, to hear Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from select import select
from typing import Final

import click

_AWAKE: Final = 0.5
"""Seconds that it sleeps at a time."""
_PIECE: Final = 65_536
_YES_OR_NO: Final = {"": "n", "y": "y", "yes": "y", "n": "n", "no": "n"}


def text(most: int) -> str:
    """Everything up to Ctrl-D; what is longer than ``most`` is cut, soon after."""
    typed = bytearray()
    while len(typed) <= most and (piece := _piece()):
        typed += piece
    return _decoded(typed)


def confirmed(question: str) -> bool:
    """Whether the answer is yes; none is no."""
    return chosen(f"{question} [y/N]: ", _YES_OR_NO) == "y"


def chosen(question: str, answers: Mapping[str, str]) -> str:
    """What the answer stands for; it is asked for until it is one of them."""
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        line = _piece()
        if not line:  # Ctrl-D
            raise click.Abort
        answer = _decoded(line).strip().lower()
        if answer in answers:
            return answers[answer]
        sys.stderr.write(f"Answer one of: {', '.join(filter(None, answers))}.\n")


def _piece() -> bytes:
    """A line, as the terminal gives it; nothing at the end."""
    file = sys.stdin.fileno()
    while not select([file], [], [], _AWAKE)[0]:
        pass
    return os.read(file, _PIECE)


def _decoded(typed: bytes | bytearray) -> str:
    return typed.decode(sys.stdin.encoding, sys.stdin.errors or "strict")
