"""``toolpost approvals``: what waits for a yes, seen and answered by a person.

Above: ``main.py``. Below: ``approvals`` of the package, over the store that the config names. Tools
are loaded only to hold an edit or a lasting yes against them. Whoever sits at a terminal is the
user behind their own calls; the same program in a pipe is not, because an agent may hold that pipe.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import click

from toolpost.approvals import (
    Approvals,
    Decision,
    Lasting,
    Request,
    Settled,
    Standing,
)
from toolpost.approvals.terminal import described, widened
from toolpost.cli.arguments import from_words
from toolpost.cli.failing import APPROVALS, fail
from toolpost.cli.opening import loaded, run, stored, uncalled
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.recording import Keep, channel, me, recording
from toolpost.cli.remote import connected, spec_of
from toolpost.cli.remote_parts import RemoteDesk
from toolpost.cli.terminal import (
    console,
    err,
    json_text,
    lines,
    one_line,
    out,
    plain,
    print_json,
    row,
    safe,
    table,
)
from toolpost.cli.times import Duration, moment, span
from toolpost.cli.typed import chosen, confirmed
from toolpost.clock import SystemClock
from toolpost.config import Config, find
from toolpost.document.strict import strict_json
from toolpost.errors import CallError
from toolpost.extensions.approval import as_record
from toolpost.failure import failure
from toolpost.spec import ToolSpec
from toolpost.stores.lazy import LazyStore

T = TypeVar("T")
Desk = Approvals | RemoteDesk
_EVERY: Final = 1.0
"""Seconds between two looks of ``watch``."""
_ANSWERS: Final = {"y": "y", "n": "n", "skip": "skip", "": "skip"}


@click.group("approvals")
def command() -> None:
    """See what waits for a yes, and answer.

    A handle may be shortened as long as it is clear. Secrets in arguments are not shown.
    """


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are answered or expired.")
@json_option
@pass_asked
def list_(asked: Asked, *, every: bool, as_json: bool) -> None:
    """List the calls that wait for a yes."""

    async def listed(desk: Desk) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
        found = await (desk.all() if every else desk.waiting())
        return [request.to_dict(desk.now()) for request in found], desk.unreadable

    requests, unreadable = _asked(asked, listed)
    _name_unreadable(unreadable)
    if as_json:
        print_json(requests)
    elif requests:
        _print(asked, requests, every=every)
    else:
        err("Nothing waits for a yes.")


@command.command("show")
@click.argument("handle")
@json_option
@pass_asked
def show(asked: Asked, *, handle: str, as_json: bool) -> None:
    """Show one of them with its arguments."""
    data = _found(asked, handle).to_dict(time.time())
    if as_json:
        print_json(data)
    else:
        console(asked).print(lines(_pairs(data)))


@command.command("approve")
@click.argument("handle")
@click.option("--edit", metavar="JSON", help="With these arguments changed: '{\"amount\": 5}'.")
@click.option("--session", is_flag=True, help="And further calls of the tool in this session.")
@click.option(
    "--where",
    metavar="NAME=VALUE",
    multiple=True,
    help="And further calls with this argument; NAME:=SCHEMA for more than one value, as in "
    "'amount:={\"maximum\": 50}'.",
)
@click.option(
    "--for",
    "duration",
    type=Duration(),
    help="How long --session and --where hold: 30m, 2h.  [default: 1h]",
)
@click.option("--uses", type=click.IntRange(min=1), help="For how many calls they hold.")
@click.option("--reason", default="", help="A word to go with it.")
@click.option("--yes", is_flag=True, help="Do not ask whether this is meant.")
@json_option
@pass_asked
def approve(
    asked: Asked,
    *,
    handle: str,
    edit: str | None,
    session: bool,
    where: tuple[str, ...],
    duration: float | None,
    uses: int | None,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Say yes, to this call or to more.

    At a terminal you are shown what it is and asked whether you mean it. In a pipe you can approve
    the calls of others, not your own.
    """
    if not session and not where and (duration or uses):
        raise click.UsageError("--for and --uses go with --session or --where.")
    request = _found(asked, handle)
    spec = _spec(asked, request.tool) if edit is not None or where else None
    decision = Decision(
        approve=True,
        reason=reason,
        arguments=None if edit is None else _changes(edit),
        lasting=_lasting(
            session=session, where=_where(where, spec), seconds=duration or 3600.0, uses=uses
        ),
    )

    async def verified(desk: Desk) -> None:
        desk.verify(request, decision)

    _asked(asked, verified, spec)
    if not yes and sys.stdin.isatty():
        err(safe("\n".join(filter(None, (described(request), widened(request, decision))))))
        if not confirmed("Approve it?"):
            raise click.Abort
    _tell(_asked(asked, _deciding(request, decision), spec), as_json=as_json)


@command.command("deny")
@click.argument("handle")
@click.option("--reason", default="", help="Why not; the agent is told.")
@json_option
@pass_asked
def deny(asked: Asked, *, handle: str, reason: str, as_json: bool) -> None:
    """Say no, or take back a yes that is not used yet.

    The call does not run, and is not asked for again until it would have expired.
    """
    request = _found(asked, handle)
    if request.state(time.time()) == "approved":
        answer = _taking_back(request, reason)
    else:
        answer = _deciding(request, Decision(approve=False, reason=reason))
    _tell(_asked(asked, answer), as_json=as_json)


@command.command("watch")
@json_option
@pass_asked
def watch(asked: Asked, *, as_json: bool) -> None:
    """Wait for calls that need a yes; at a terminal, answer each. Ctrl-C ends it.

    With --json each is printed as a line, and nothing is asked.
    """
    seen: set[str] = set()
    waiting = _asked(asked, _waiting)
    err("Waiting for calls that need a yes. Ctrl-C ends it.")
    while True:
        for request in waiting:
            if request.handle not in seen:
                seen.add(request.handle)
                _shown(asked, request, as_json=as_json)
        time.sleep(_EVERY)
        waiting = asyncio.run(_at_desk(asked, _waiting))


@command.command("standing")
@json_option
@pass_asked
def standing(asked: Asked, *, as_json: bool) -> None:
    """List every yes that lasts, for a session or certain arguments."""

    async def listed(desk: Desk) -> tuple[list[Standing], Mapping[str, str]]:
        return await desk.standing(), desk.unreadable

    lasting, unreadable = _asked(asked, listed)
    _name_unreadable(unreadable)
    found = [_plain(one) for one in lasting]
    if as_json:
        print_json(found)
        return
    if not found:
        err("No yes lasts beyond its call.")
        return
    listing = table("handle", "tool", "caller", "where", "left", "until", wide=["where"])
    for one in found:
        where = json_text(one["where"], indent=None) if one["where"] else "this session"
        left = "any" if one["left"] is None else str(one["left"])
        row(listing, one["handle"], one["tool"], one["caller"], where, left, moment(one["expires"]))
    console(asked).print(listing)


@command.command("revoke")
@click.argument("handle")
@json_option
@pass_asked
def revoke(asked: Asked, *, handle: str, as_json: bool) -> None:
    """End a yes that lasts (st-…), or one not used yet (ap-…)."""
    if handle.startswith("ap-"):
        _tell(_asked(asked, _taking_back(_found(asked, handle), "")), as_json=as_json)
        return
    ended = _asked(asked, lambda desk: desk.revoke(handle, by=me(), channel=channel()))
    if as_json:
        print_json(_plain(ended))
    else:
        out(safe(f"{ended.handle} has ended: {ended.tool} is asked for again."))


async def _waiting(desk: Desk) -> Sequence[Request]:
    return await desk.waiting()


def _shown(asked: Asked, request: Request, *, as_json: bool) -> None:
    data = json_text(request.to_dict(time.time()), indent=None) if as_json else ""
    out(data or safe(described(request)))
    sys.stdout.flush()
    if sys.stdin.isatty() and not as_json:
        _offered(asked, request)


def _offered(asked: Asked, request: Request) -> None:
    """The question; what goes wrong with the answer does not end the watch."""
    answer = chosen("approve? (y, n, skip) [skip]: ", _ANSWERS)
    if answer == "skip":
        return
    decide = _deciding(request, Decision(approve=answer == "y"))
    try:
        _say(asyncio.run(_at_desk(asked, decide)))
    except CallError as fault:
        err(safe(fault.message))


def _deciding(request: Request, decision: Decision) -> Callable[[Desk], Awaitable[Request]]:
    return lambda desk: desk.decide(
        request.handle, decision, by=me(), channel=channel(), seen=request.seen
    )


def _taking_back(request: Request, reason: str) -> Callable[[Desk], Awaitable[Request]]:
    return lambda desk: desk.take_back(request.handle, by=me(), channel=channel(), reason=reason)


def _found(asked: Asked, handle: str) -> Request:
    return _asked(asked, lambda desk: desk.like(handle))


def _spec(asked: Asked, tool: str) -> ToolSpec | None:
    """The tool as it is now, if there is one of this name."""

    async def found() -> ToolSpec | None:
        if asked.url is not None:
            async with connected(asked) as client:
                return await spec_of(client, tool)
        async with loaded(uncalled(find(asked.config)), asked) as runtime:
            return runtime.registry.get(tool)

    return run(asked, found())


def _name_unreadable(unreadable: Mapping[str, str]) -> None:
    for handle, why in unreadable.items():
        err(safe(f"{handle} cannot be read, and is left out: {why}"))


def _asked(asked: Asked, work: Callable[[Desk], Awaitable[T]], spec: ToolSpec | None = None) -> T:
    """Do it, or end with the exit code of what is in the way."""
    try:
        return run(asked, _at_desk(asked, work, spec))
    except CallError as fault:
        error = failure(fault, tool=APPROVALS, call_id="", effects="once")
        as_json = click.get_current_context().params.get("as_json", False)
        fail(error, tool=APPROVALS, as_json=as_json)


async def _at_desk(
    asked: Asked, work: Callable[[Desk], Awaitable[T]], spec: ToolSpec | None = None
) -> T:
    if asked.url is not None:
        async with connected(asked) as client:
            return await work(RemoteDesk(client))
    config = find(asked.config)
    async with _store(config) as store, recording(config, store) as keep:
        tell = _telling(keep)
        desk = Approvals(store, clock=SystemClock(), spec_of=lambda tool: spec, tell=tell)
        return await work(desk)


def _telling(keep: Keep | None) -> Callable[[Settled], Awaitable[None]] | None:
    if keep is None:
        return None

    async def tell(settled: Settled) -> None:
        await keep(as_record(settled))

    return tell


@asynccontextmanager
async def _store(config: Config) -> AsyncIterator[LazyStore]:
    if config.settings.store.get("kind") == "memory":
        err("The store is in memory: what waits in another process cannot be seen from here.")
    async with stored(config) as store:
        yield store


def _lasting(
    *, session: bool, where: Mapping[str, Any], seconds: float, uses: int | None
) -> Lasting | None:
    if not session and not where:
        return None
    return Lasting(session=session, where=where, seconds=seconds, uses=uses)


def _where(words: tuple[str, ...], spec: ToolSpec | None) -> dict[str, Any]:
    """Argument → what it must fit; values are read as the tool's schema says, as in a call."""
    wanted: dict[str, Any] = {}
    schema = {} if spec is None else spec.input_schema
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip(":{"):
            raise click.UsageError(f"{word!r}: write NAME=VALUE or NAME:=SCHEMA.")
        if not name.endswith(":"):
            wanted[name] = {"const": from_words([word], schema)[name]}
            continue
        made, name = _json(value), name[:-1]
        if not isinstance(made, dict):
            raise click.UsageError(
                f"--where {word!r}: behind := stands a JSON Schema, such as "
                f'{name}:={{"maximum": 50}}. For one value write {name}={value}'
            )
        wanted[name] = made
    return wanted


def _changes(text: str) -> dict[str, Any]:
    made = _json(text)
    if not isinstance(made, dict):
        raise click.UsageError('--edit takes a JSON object, such as {"amount": 5}.')
    return made


def _json(text: str) -> Any:
    try:
        return strict_json(text.encode(), "text")
    except ValueError:
        return None


def _tell(request: Request, *, as_json: bool) -> None:
    if as_json:
        print_json(request.to_dict(time.time()))
    else:
        _say(request)


def _say(request: Request) -> None:
    have = sum(vote.approve for vote in request.votes)
    more = f" by {have} of {request.need}" if request.status == "waiting" else ""
    status = "approved" if more else request.status
    out(safe(f"{request.handle} is {status}{more}."))


def _print(asked: Asked, requests: list[dict[str, Any]], *, every: bool) -> None:
    """As narrow as it can be but for the reason: without ``every`` all of them are waiting."""
    last = "status" if every else "left"
    listing = table("handle", "tool", "caller", last, "reason", wide=["reason"])
    for one in requests:
        caller = one["caller"].get("user") or one["caller"]["id"]
        ends = one["status"] if every else span(one["expires"] - time.time())
        row(listing, one["handle"], one["tool"], caller, ends, one_line(one["reason"]))
    screen = console(asked)
    screen.print(listing)
    screen.print(plain("toolpost approvals show HANDLE tells more", "dim"))


def _pairs(data: dict[str, Any]) -> list[tuple[str, str]]:
    caller = ", ".join(f"{k} {v}" for k, v in data["caller"].items() if isinstance(v, str))
    votes = [f"{_vote(one)}" for one in data.get("votes", ())]
    pairs = [
        ("handle", data["handle"]),
        ("tool", data["tool"]),
        ("arguments", json_text(data["arguments"])),
        ("edited", "yes" if data["edited"] else "no"),
        ("caller", caller),
        ("session", data.get("session") or "-"),
        ("because", data["reason"]),
        ("status", data["status"]),
        ("needs", f"{data.get('need', 1)}"),
        ("asked", moment(data["asked"])),
        ("expires", moment(data["expires"])),
    ]
    return [*pairs, *(("said", vote) for vote in votes)]


def _vote(one: dict[str, Any]) -> str:
    word = "yes" if one["approve"] else "no"
    why = f": {one['reason']}" if one.get("reason") else ""
    return f"{word}, by {one.get('user') or one['by']} ({one['channel']}){why}"


def _plain(one: Standing) -> dict[str, Any]:
    return {
        "handle": one.handle,
        "tool": one.tool,
        "caller": one.caller.user or one.caller.key or one.caller.id,
        "session": one.session,
        "where": one.where,
        "left": one.left,
        "expires": one.expires,
        "by": one.by,
    }
