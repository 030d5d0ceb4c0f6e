"""Who may say what on the bus: the users of a NATS server, with the subjects that each needs.

Above: ``toolpost nats setup``. Below: ``wire.py``, which knows the subjects. A worker can be asked
and can answer; it can call nobody, and reads no answer that is for a gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from toolpost.bus.wire import Subjects

Role = Literal["gateway", "worker", "client"]
ROLES: tuple[Role, ...] = ("gateway", "worker", "client")


class Permissions(msgspec.Struct, frozen=True):
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    respond: bool = False
    """May answer where it was asked, wherever that is."""


def inbox(subjects: Subjects, role: Role) -> str:
    """Answers to each role come in under a name of its own."""
    return f"_INBOX.{subjects.prefix.replace('.', '-')}.{role}"


def permissions(prefix: str, role: Role) -> Permissions:
    to, mine = Subjects(prefix), f"{inbox(Subjects(prefix), role)}.>"
    if role == "client":
        # no part in the object store: whoever may read from it reads everybody's bodies
        return Permissions((to.call,), (mine,))
    kept = (*_bodies(prefix), *_jetstream(f"KV_{_bucket(prefix)}-claims"), "$JS.API.INFO")
    claims = f"$KV.{_bucket(prefix)}-claims.>"
    asked = (f"{prefix}.tool.>", to.cancel("*"), to.roll_call, to.specs("*"), to.meet("*"))
    if role == "gateway":
        return Permissions(
            (*asked, claims, *kept, to.job(">"), *_jobs(prefix)),
            (mine, to.workers, to.call, to.progress("*")),
            respond=True,
        )
    answers = f"{inbox(to, 'gateway')}.>"
    running, queue = to.running("*"), f"{_bucket(prefix)}-jobs"
    return Permissions(
        (
            *(answers, to.workers, claims, *kept, *_jobs(prefix), *_taking(queue)),
            *(to.progress("*"), to.dead(">"), running),
        ),
        (mine, *asked, running, "$SRV.>"),
        respond=True,
    )


def _bucket(prefix: str) -> str:
    return prefix.replace(".", "-")


def _bodies(prefix: str) -> tuple[str, ...]:
    """Large bodies go through an object store."""
    bucket = f"{_bucket(prefix)}-bodies"
    return (f"$O.{bucket}.>", "$JS.API.STREAM.NAMES", *_jetstream(f"OBJ_{bucket}"))


def _jobs(prefix: str) -> tuple[str, ...]:
    """How jobs stand, their large bodies, and the streams; to put one there is a gateway's."""
    word = _bucket(prefix)
    streams = (f"{word}-jobs", f"{word}-dead")
    return (
        *(f"$JS.API.STREAM.{verb}.{one}" for verb in ("CREATE", "MSG.GET") for one in streams),
        *(f"$KV.{word}-parcels.>", *_jetstream(f"KV_{word}-parcels")),
        *(f"$O.{word}-parcel-bodies.>", *_jetstream(f"OBJ_{word}-parcel-bodies")),
    )


def _taking(queue: str) -> tuple[str, ...]:
    """From a queue, by those who run what is in it."""
    verbs = ("CREATE", "DURABLE.CREATE", "INFO", "MSG.NEXT")
    return (*(f"$JS.API.CONSUMER.{verb}.{queue}.>" for verb in verbs), f"$JS.ACK.{queue}.>")


def _jetstream(stream: str) -> tuple[str, ...]:
    verbs = ("CREATE", "INFO", "PURGE", "MSG.GET")
    return (
        *(f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs),
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.CONSUMER.*.{stream}",
        f"$JS.API.CONSUMER.*.{stream}.>",
        f"$JS.API.CONSUMER.*.*.{stream}.>",
        f"$JS.ACK.{stream}.>",
        f"$JS.FC.{stream}.>",
    )


def server_config(prefix: str, keys: Sequence[tuple[Role, str]], *, store: str) -> str:
    """The config of a NATS server on which only these users are known, by their public keys."""
    users = "".join(_user(role, key, permissions(prefix, role)) for role, key in keys)
    return (
        "# Who may say what on the bus; made by: toolpost nats setup\n"
        f"jetstream {{ store_dir: {_quoted(store)} }}\n"
        f"authorization {{\n  users: [\n{users}  ]\n}}\n"
    )


def _user(role: Role, key: str, may: Permissions) -> str:
    lines = [f"    {{ # {role}", f"      nkey: {key}", "      permissions: {"]
    for verb, subjects in (("publish", may.publish), ("subscribe", may.subscribe)):
        lines += [f"        {verb}: [", *(f"          {_quoted(s)}" for s in subjects), "        ]"]
    if may.respond:
        lines.append('        allow_responses: { max: 1000000, expires: "1h" }')
    return "\n".join([*lines, "      }", "    }", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
