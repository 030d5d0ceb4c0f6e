"""``toolpost keys``: the API keys of a gateway, made, listed and ended.

Above: ``main.py``. Below: ``gateway/identity/keys.py``, over the store that the config names; no
tool is loaded and no server is needed. A key is printed when it is made, and never again. Who made
or ended one is in the audit.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

import click

from toolpost.cli.failing import KEYS, fail
from toolpost.cli.opening import run, stored
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.recording import channel, me, recording
from toolpost.cli.terminal import console, err, lines, out, print_json, row, safe, table
from toolpost.cli.times import NEVER, Duration, span
from toolpost.clock import SystemClock
from toolpost.config import Config, find
from toolpost.errors import CallError, ConfigError, Unavailable
from toolpost.failure import failure
from toolpost.gateway.identity.keys import ApiKey, Keys, as_record
from toolpost.gateway.identity.unmatched import listed, ruled
from toolpost.gateway.settings import settings_of
from toolpost.ledger.record import KEY_CREATED, KEY_REVOKED
from toolpost.patterns import glob
from toolpost.wording import nearest, short

T = TypeVar("T")
Tell = Callable[[ApiKey, str], Awaitable[bool]]


@click.group("keys")
def command() -> None:
    """Make, list and revoke the API keys of the gateway.

    An id may be shortened as long as it is clear, and a name will do where one live key has it.
    """


@command.command("create")
@click.argument("name")
@click.option("--user", help="The person it stands for.")
@click.option("--agent", help="The agent it stands for.  [default: NAME, if there is no user]")
@click.option("--role", "roles", multiple=True, help="A role that it has; may be repeated.")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    help="A tool that it is for, or a pattern as kb.* or tag:safe; may be repeated. Without it, "
    "for all.",
)
@click.option(
    "--expires",
    type=Duration(never=True),
    default="90d",
    metavar="DURATION",
    show_default=True,
    help="How long it is valid: 30m, 12h, 90d, or never.",
)
@json_option
@pass_asked
def create(
    asked: Asked,
    *,
    name: str,
    user: str | None,
    agent: str | None,
    roles: tuple[str, ...],
    tools: tuple[str, ...],
    expires: float | str,
    as_json: bool,
) -> None:
    """Make a key, and print it: this once.

    With --user and --agent it stands for an agent that acts for a person; the audit has both.
    """
    seconds = None if isinstance(expires, str) else expires
    _warn_of_roles(find(asked.config), roles)

    async def made(keys: Keys, tell: Tell) -> tuple[ApiKey, str]:
        key, text = await keys.create(
            name, user=user, agent=agent, roles=roles, tools=tools or None, seconds=seconds
        )
        if not await tell(key, KEY_CREATED):
            await keys.revoke(key.id)
            raise Unavailable("The audit cannot be written, and there is no key without a record.")
        return key, text

    key, text = _asked(asked, made, lasting=True)
    _hand_over(key, text, as_json=as_json)


@command.command("rotate")
@click.argument("key_id", metavar="ID")
@click.option(
    "--expires",
    type=Duration(never=True),
    metavar="DURATION",
    help="How long the new one is valid: 30m, 12h, 90d, or never.  [default: as the old one]",
)
@click.option("--revoke", "end_old", is_flag=True, help="End the old one at once.")
@json_option
@pass_asked
def rotate(
    asked: Asked, *, key_id: str, expires: float | str | None, end_old: bool, as_json: bool
) -> None:
    """Make a new key in place of one, and print it: this once.

    The new key is the same caller: it has the name, user, agent, roles and tools of the old one,
    and what belongs to that. The old one works until it is revoked.
    """

    async def made(keys: Keys, tell: Tell) -> tuple[ApiKey, str, str]:
        old = await keys.like(key_id)
        seconds = None if old.expires is None else old.expires - old.created
        if expires is not None:
            seconds = None if isinstance(expires, str) else expires
        key, text = await keys.rotate(old, seconds=seconds)
        if not await tell(key, KEY_CREATED):
            await keys.revoke(key.id)
            raise Unavailable("The audit cannot be written, and there is no key without a record.")
        if end_old and old.revoked is None:
            await tell(await keys.revoke(old.id), KEY_REVOKED)
        return key, text, old.id

    key, text, old = _asked(asked, made, lasting=True)
    _hand_over(key, text, as_json=as_json)
    if not end_old and not as_json:
        err(safe(f"The old one works until you end it: toolpost keys revoke {old}"))


def _hand_over(key: ApiKey, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": text, **key.to_dict(time.time())})
        return
    err(safe(f"Key {key.id} of {_whom(key)}; {_ends(key)}. It is shown this once:"))
    out(text)


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that have expired or are revoked.")
@json_option
@pass_asked
def list_(asked: Asked, *, every: bool, as_json: bool) -> None:
    """List the keys; what they are is not known here."""
    now = time.time()
    found = _asked(asked, lambda keys, _: keys.all())
    keys = [key for key in found if every or key.state(now) == "live"]
    if as_json:
        print_json([key.to_dict(now) for key in keys])
        return
    if not keys:
        err("There are no keys. Make one with: toolpost keys create NAME")
        return
    listing = table("id", "name", "for", "roles", "tools", "ends", wide=["tools"])
    for key in keys:
        state = key.state(now)
        ends = _left(key, now) if state == "live" else state
        row(
            listing,
            key.id,
            key.name,
            _whom(key),
            ", ".join(key.roles),
            _tools(key),
            ends,
            style=None if state == "live" else "dim",
        )
    console(asked).print(listing)


@command.command("show")
@click.argument("key_id", metavar="ID")
@json_option
@pass_asked
def show(asked: Asked, *, key_id: str, as_json: bool) -> None:
    """Show what is known of one of them."""
    _tell(asked, _asked(asked, lambda keys, _: keys.like(key_id)), as_json=as_json)


@command.command("revoke")
@click.argument("key_id", metavar="ID")
@json_option
@pass_asked
def revoke(asked: Asked, *, key_id: str, as_json: bool) -> None:
    """End a key.

    Within five seconds no gateway on this store accepts it, and requests that are open end.
    """

    async def ended(keys: Keys, tell: Tell) -> ApiKey:
        found = await keys.like(key_id)
        ended = await keys.revoke(found.id)
        if found.revoked is None:
            await tell(ended, KEY_REVOKED)
        return ended

    key = _asked(asked, ended)
    if as_json:
        print_json(key.to_dict(time.time()))
    else:
        out(safe(f"The key {key.id} ({key.name}) is revoked."))


def _asked(asked: Asked, work: Callable[[Keys, Tell], Awaitable[T]], *, lasting: bool = False) -> T:
    """Do it, or end with the exit code of what is in the way."""

    async def done() -> T:
        config = find(asked.config)
        if lasting and config.settings.store.get("kind") == "memory":
            raise ConfigError(
                "the store is in memory, and a key would be gone at once: say in the config "
                'store = { kind = "sqlite" }'
            )
        async with stored(config) as store, recording(config, store) as keep:

            async def tell(key: ApiKey, code: str) -> bool:
                """Whether it is on record, or nothing is here."""
                at, by = time.time(), me()
                record = as_record(key, code, by=by, channel=channel(), at=at)
                return keep is None or await keep(record)

            return await work(Keys(store, clock=SystemClock()), tell)

    try:
        return run(asked, done())
    except CallError as fault:
        error = failure(fault, tool=KEYS, call_id="", effects="once")
        as_json = click.get_current_context().params.get("as_json", False)
        fail(error, tool=KEYS, as_json=as_json)


def _warn_of_roles(config: Config, roles: Iterable[str]) -> None:
    """A role that nothing names gives nothing; where nothing names any, it may be for later."""
    giving = [*listed(config, "access", "roles"), *ruled(config, "role")]
    known = (*giving, *settings_of(config).admins, *listed(config, "approval", "approvers"))
    is_known = glob(known)
    for role in roles if giving else ():
        if not is_known(role):
            hint = nearest(role, known) or f"; there are {', '.join(giving)}"
            err(safe(f"warning: neither access nor policy names the role {short(role)!r}{hint}"))


def _tell(asked: Asked, key: ApiKey, *, as_json: bool) -> None:
    now = time.time()
    if as_json:
        print_json(key.to_dict(now))
        return
    pairs: list[tuple[str, Any]] = [
        ("id", key.id),
        ("name", key.name),
        ("state", key.state(now)),
        ("user", key.user),
        ("agent", key.agent),
        ("roles", ", ".join(key.roles)),
        ("tools", _tools(key)),
        ("created", _at(key.created)),
        ("ends", None if key.expires is None else _at(key.expires)),
        ("revoked", None if key.revoked is None else _at(key.revoked)),
    ]
    console(asked).print(lines([(name, str(value)) for name, value in pairs if value]))


def _whom(key: ApiKey) -> str:
    told = (key.agent and f"agent {key.agent}", key.user and f"user {key.user}")
    return " for ".join(filter(None, told))


def _tools(key: ApiKey) -> str:
    return "all" if key.tools is None else ", ".join(key.tools)


def _ends(key: ApiKey) -> str:
    return "never ends" if key.expires is None else f"ends {_at(key.expires)}"


def _left(key: ApiKey, now: float) -> str:
    return NEVER if key.expires is None else span(key.expires - now)


def _at(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M}"
