"""``tools.lock``: what every tool was when somebody looked at it, and what to do when it is not.

Above: the runtime, which holds each load of a source against the lock, and ``cli/lock.py``. Below:
specs, documents, the registry's entries. It pins definitions, and the files with the code behind
them where there are any. Who may accept a change is not known here; that a change is not accepted
by itself is.

A tool that is not as it was pinned, that is new under a pinned source, or whose name was pinned for
another source is *quarantined*: its place in the registry is taken by a spec that says so in our
own words, because those of the new definition are what must not reach a model unseen.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec import UNSET

from toolpost.characters import visible_json
from toolpost.contracts import Handle
from toolpost.digest import canonical, digest
from toolpost.document import Document, parse, read
from toolpost.errors import ConfigError, Denied, InvalidSpec, SourceError
from toolpost.redact import redact
from toolpost.registry import Entry
from toolpost.spec import ToolSpec, spec_from
from toolpost.wording import explained, short

T = TypeVar("T")

QUARANTINED: Final = "quarantined"
"""The kind of what stands in the place of a quarantined tool."""

VERSION: Final = 1
LOOK_EVERY: Final = 0.5
_KEPT: Final = ("tier", "permissions", "tags", "category", "labels")
"""Of the pinned spec: who may see the tool does not change because it is quarantined."""

What = Literal["changed", "code", "new", "taken", "unpinned", "gone"]
_WHY: Final[Mapping[What, str]] = {
    "changed": "its definition is not the one that was pinned",
    "code": "its code is not the code that was pinned",
    "new": "it is new, and its source is pinned",
    "taken": "its name was pinned for another source",
}


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as it was accepted. ``spec`` has no binding; ``binding`` is kept for the reader of
    a difference, without its secrets: what counts is the digest.
    """

    source: str
    digest: str
    public_digest: str
    spec: ToolSpec
    binding: dict[str, Any] = {}
    code: str | None = None
    """The digest of the file with its code; ``None`` where there is none, or it was not pinned."""


class Lock(msgspec.Struct, frozen=True):
    """The sources that were pinned, and the tools by name."""

    sources: frozenset[str] = frozenset()
    tools: Mapping[str, Pinned] = {}


class Offer(NamedTuple):
    """A tool as a source offers it now."""

    source: str
    spec: ToolSpec
    code: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Between a tool as it was pinned (``None``: it was not) and as it is offered (``None``: it is
    not). One that is ``unpinned`` or ``gone`` is no reason for a quarantine.
    """

    name: str
    what: What
    source: str
    pinned: Pinned | None = None
    spec: ToolSpec | None = None
    code: str | None = None

    @property
    def quarantines(self) -> bool:
        return self.what in _WHY

    @property
    def reason(self) -> str:
        """Why the tool is quarantined and what to do about it, for people and for models."""
        return (
            f"The tool {self.name!r} is quarantined: {_WHY[self.what]}. Do not call it again; a "
            f"person can look at the difference and accept it with: toolpost lock --accept "
            f"{self.name}"
        )


class Change(NamedTuple):
    """One value that differs; ``UNSET`` where there is none."""

    at: tuple[str, ...]
    before: Any
    after: Any


def source_name(kind: str, options: Mapping[str, Any]) -> str:
    """What a source is called in the lock: by its settings, so that their order is free."""
    shown = redact(dict(options))
    settings = (f"{key}={json.dumps(shown[key], default=str)}" for key in sorted(shown))
    mark = "" if shown == options else f" #{_short_digest(options)}"  # two secrets are two sources
    return " ".join((kind, *settings)) + mark


def pin(sources: Iterable[str], offers: Iterable[Offer]) -> Lock:
    """A lock that says what there is now."""
    return Lock(frozenset(sources), {offer.spec.name: pinned(offer) for offer in offers})


def pinned(offer: Offer) -> Pinned:
    spec = offer.spec
    return Pinned(
        source=offer.source,
        digest=spec.digest,
        public_digest=spec.public_digest,
        spec=msgspec.structs.replace(spec, binding={}),
        binding=redact(spec.to_dict().get("binding", {})),
        code=offer.code,
    )


def difference(lock: Lock, offer: Offer) -> Difference | None:
    """What is different about a tool that a source offers."""
    source, spec, code = offer
    was = lock.tools.get(spec.name)
    what: What
    if was is None:
        what = "new" if source in lock.sources else "unpinned"
    elif was.source != source:
        what = "taken"
    elif (was.digest, was.public_digest) != (spec.digest, spec.public_digest):
        what = "changed"
    elif was.code is not None and was.code != code:  # a lock that is older than this pins no code
        what = "code"
    else:
        return None
    return Difference(name=spec.name, what=what, source=source, pinned=was, spec=spec, code=code)


def differences(lock: Lock, offers: Sequence[Offer]) -> list[Difference]:
    """Everything that is different, by name."""
    found = [one for offer in offers if (one := difference(lock, offer)) is not None]
    offered = {offer.spec.name for offer in offers}
    found += [
        Difference(name=name, what="gone", source=was.source, pinned=was)
        for name, was in lock.tools.items()
        if name not in offered
    ]
    return sorted(found, key=lambda one: (one.name, one.source))


def accepted(
    lock: Lock, wanted: Iterable[Difference], *, sources: Iterable[str] | None = None
) -> Lock:
    """The lock with these differences in it, and these sources as the pinned ones. To pin a source
    along with one of its tools would quarantine the others.
    """
    tools = dict(lock.tools)
    for one in wanted:
        if one.spec is None:
            tools.pop(one.name, None)
        else:
            tools[one.name] = pinned(Offer(one.source, one.spec, one.code))
    return Lock(lock.sources if sources is None else frozenset(sources), tools)


def changes(one: Difference) -> list[Change]:
    """Value by value what is different, the binding last and without its secrets."""
    before = {} if one.pinned is None else one.pinned.spec.public()
    after = {} if one.spec is None else one.spec.public()
    found = list(_changes(before, after))
    before = {} if one.pinned is None else one.pinned.binding
    after = {} if one.spec is None else redact(one.spec.to_dict().get("binding", {}))
    found += _changes(before, after, ("binding",))
    if one.pinned is not None and one.spec is not None and one.pinned.source != one.source:
        found.insert(0, Change(("source",), one.pinned.source, one.source))
    if one.pinned is not None and one.pinned.code != one.code and one.spec is not None:
        found.append(Change(("code",), _set(one.pinned.code), _set(one.code)))
    return found


def _set(value: str | None) -> Any:
    return UNSET if value is None else value


def hides(one: Difference) -> bool:
    """Whether the binding changed where its difference does not show it: in what looks like a
    secret. The digest tells, because the public part that it covers as well is known.
    """
    if one.pinned is None or one.spec is None:
        return False
    now = one.spec.to_dict().get("binding", {})
    then = one.pinned.spec.public() | ({"binding": now} if now else {})
    return digest(then) != one.pinned.digest and (
        redact(now) != now or redact(now) == one.pinned.binding
    )


def _changes(before: Any, after: Any, at: tuple[str, ...] = ()) -> Iterator[Change]:
    if before is UNSET and isinstance(after, dict) and after:
        before = {}
    elif after is UNSET and isinstance(before, dict) and before:
        after = {}
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _changes(before.get(key, UNSET), after.get(key, UNSET), (*at, key))
    elif UNSET in (before, after) or canonical(before) != canonical(after):  # 1 is not true
        yield Change(at, before, after)


# --- the file -----------------------------------------------------------------------------------


class _Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    source: str
    digest: str
    public_digest: str
    spec: dict[str, Any]
    binding: dict[str, Any] = {}
    code: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    sources: tuple[str, ...]
    tools: dict[str, Any]


def read_lock(path: Path) -> Lock | None:
    """The lock in a file; ``None`` if there is no file. A broken one is a ``ConfigError``."""
    if not os.path.lexists(path):  # a link that leads nowhere is no missing lock
        return None
    try:
        return _lock_in(read(path, format="json"))
    except SourceError as fault:
        raise ConfigError(f"{fault.message}. Mend the lock, or remove it and pin anew") from fault


def write_lock(path: Path, lock: Lock) -> None:
    """Sorted, one value a line, nothing invisible in it; the file changes as a whole."""
    text = _text(lock)
    _lock_in(parse(text, format="json", name=str(path)))  # what cannot be read is not written
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _text(lock: Lock) -> str:
    tools = {
        name: {
            "source": was.source,
            "digest": was.digest,
            "public_digest": was.public_digest,
            "spec": _ordered(was.spec.public()),
            "binding": _ordered(was.binding),
            **({} if was.code is None else {"code": was.code}),
        }
        for name, was in sorted(lock.tools.items())
    }
    data = {"version": VERSION, "sources": sorted(lock.sources), "tools": tools}
    return visible_json(data) + "\n"


def _ordered(value: dict[str, Any]) -> Any:
    return json.loads(canonical(value))


def _lock_in(document: Document) -> Lock:
    data = document.data
    if not isinstance(data, dict):
        _refuse(document, (), "not a lock file")
    if data.get("version") != VERSION:
        _refuse(document, ("version",), f"only version {VERSION} of the lock file is known here")
    file = _converted(document, (), _File)
    return Lock(
        frozenset(file.sources), {name: _tool_in(document, name) for name in sorted(file.tools)}
    )


def _tool_in(document: Document, name: str) -> Pinned:
    at = ("tools", name)
    tool = _converted(document, at, _Tool)
    try:
        spec = spec_from(tool.spec)
    except InvalidSpec as fault:
        _refuse(document, (*at, "spec", *fault.at), fault.message)
    if spec.name != name:
        _refuse(document, (*at, "spec", "name"), f"this is pinned as {short(name)!r}")
    if spec.binding or spec.public_digest != tool.public_digest:
        _refuse(document, (*at, "public_digest"), "this is not the digest of the spec beside it")
    return Pinned(
        source=tool.source,
        digest=tool.digest,
        public_digest=tool.public_digest,
        spec=spec,
        binding=tool.binding,
        code=tool.code,
    )


def _converted(document: Document, at: tuple[str, ...], kind: type[T]) -> T:
    data = document.data
    for step in at:
        data = data[step]
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as fault:
        what, below = explained(fault, kind)
        _refuse(document, (*at, *below), what)


def _refuse(document: Document, at: tuple[str | int, ...], message: str) -> NoReturn:
    raise SourceError(f"{document.where(at)}: {message}")


def _short_digest(options: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(dict(options), default=str))
    return digest(plain).removeprefix("sha256:")[:8]


# --- in force -----------------------------------------------------------------------------------


class Pins:
    """The lock file of one config, in force: read at the start and again when it changes.

    A lock that breaks or goes away while things run changes nothing: the one that was read holds.
    ``code_of`` tells the digest of the code of a tool, if it has one.
    """

    def __init__(
        self, file: Path, *, code_of: Callable[[Entry], str | None] = lambda entry: None
    ) -> None:
        self.file, self._code_of = file, code_of
        self.lock: Lock | None = None
        self._fault: str | None = None
        self._seen: object = None

    def read(self) -> None:
        """Take what the file says now, or raise ``ConfigError`` and keep what it said before."""
        self._seen = self._look()  # before reading: what changes meanwhile is seen later
        try:
            lock = read_lock(self.file)
            if lock is None and self.lock is not None:
                raise ConfigError(f"{self.file}: the lock is gone; what it pinned still holds")
        except ConfigError as fault:
            self._fault = fault.message
            raise
        self.lock, self._fault = lock, None

    def owner(self, name: str) -> str | None:
        """The source that a name was pinned for."""
        was = None if self.lock is None else self.lock.tools.get(name)
        return None if was is None else was.source

    async def changes(self) -> AsyncIterator[None]:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._look() != self._seen:
                yield

    def judge(self, source: str, offered: Sequence[Entry]) -> dict[str, Difference]:
        """Which of the tools that a source offers are to be quarantined."""
        if self.lock is None:
            if self._fault is not None:  # nobody knows what it pins: nothing new comes in
                raise ConfigError(self._fault)
            return {}
        found = (difference(self.lock, self.offer(source, entry)) for entry in offered)
        return {one.name: one for one in found if one is not None and one.quarantines}

    def offer(self, source: str, entry: Entry) -> Offer:
        """A tool as a source offers it, with the digest of its code as it is now."""
        return Offer(source, entry.spec, self._code_of(entry))

    def _look(self) -> object:
        try:
            stat = self.file.stat()
        except OSError as exc:
            return str(exc)
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def placeholder(one: Difference) -> Entry:
    """What stands in the registry for a quarantined tool: nothing of its new definition but its
    name, and who may see it.
    """
    known = {} if one.pinned is None else one.pinned.spec.public()
    spec = spec_from(
        {key: known[key] for key in _KEPT if key in known}
        | {
            "name": one.name,
            "kind": QUARANTINED,
            "description": f"Quarantined, not to be called: {_WHY[one.what]}.",
            "input_schema": {"type": "object"},
            "binding": {"reason": one.reason, "what": one.what},
        }
    )
    return Entry(spec, None)


class Quarantine:
    """The backend of what is quarantined: it binds nothing, so that every call is refused."""

    def bind(self, spec: ToolSpec, target: object | None) -> Handle:
        reason = spec.binding.get("reason", f"The tool {spec.name!r} is quarantined.")
        raise Denied(str(reason), details={"quarantined": spec.binding.get("what")})

    async def close(self) -> None:
        """There is nothing to close."""
