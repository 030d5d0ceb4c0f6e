"""``toolpost artifacts``: what was too large to be handed over, read by its handle.

Above: ``main.py``. Below: ``extensions/artifacts.py``, over the store that the config names.
Whoever sits here owns the store, and may read everybody's.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from toolpost.call import OWNER
from toolpost.cli.failing import ARTIFACTS, fail
from toolpost.cli.opening import run, stored
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.remote_parts import RemoteArtifacts
from toolpost.cli.terminal import at_once, console, lines, print_json, safe
from toolpost.config import find
from toolpost.errors import CallError
from toolpost.extensions.artifacts import MOST_READ, Artifacts
from toolpost.failure import failure

T = TypeVar("T")


@click.group("artifacts")
def command() -> None:
    """Read outputs that were too large to be handed over whole."""


@command.command("show")
@click.argument("handle")
@json_option
@pass_asked
def show(asked: Asked, *, handle: str, as_json: bool) -> None:
    """Show what it is: its size, its type, how long it is kept."""
    about = _asked(asked, lambda artifacts: artifacts.about(handle, caller=OWNER)).to_dict()
    if as_json:
        print_json(about)
    else:
        console(asked).print(lines([(name, str(value)) for name, value in about.items()]))


@command.command("read")
@click.argument("handle")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="From this byte on.")
@click.option("--length", type=click.IntRange(min=1), help="So many bytes; else to the end.")
@json_option
@pass_asked
def read(asked: Asked, *, handle: str, offset: int, length: int | None, as_json: bool) -> None:
    """Write its bytes to standard output.

    At a terminal there is nothing in them that it obeys. With --json a text is in `text`, anything
    else in `data`, as base64.
    """

    at_terminal = sys.stdout.isatty()

    async def written(artifacts: Artifacts | RemoteArtifacts) -> bytes:
        place, about = offset, await artifacts.about(handle, caller=OWNER)
        end, pieces = about.size if length is None else min(about.size, offset + length), b""
        while place < end:
            most = min(MOST_READ, end - place)
            piece = await artifacts.read(handle, caller=OWNER, offset=place, length=most)
            place += len(piece)
            if as_json:
                pieces += piece
            else:
                at_once(safe(piece.decode(errors="replace")) if at_terminal else piece)
        return pieces

    read = _asked(asked, written)
    if as_json:
        print_json({"handle": handle, "offset": offset, **_told(read)})


def _told(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"data": b64encode(data).decode()}


def _asked(asked: Asked, work: Callable[[Artifacts | RemoteArtifacts], Awaitable[T]]) -> T:
    async def looked() -> T:
        if asked.url is not None:
            async with connected(asked) as client:
                return await work(RemoteArtifacts(client))
        async with stored(find(asked.config)) as store:
            return await work(Artifacts(store))

    try:
        return run(asked, looked())
    except CallError as fault:
        error = failure(fault, tool=ARTIFACTS, call_id="", effects="read")
        as_json = click.get_current_context().params.get("as_json", False)
        fail(error, tool=ARTIFACTS, as_json=as_json)
