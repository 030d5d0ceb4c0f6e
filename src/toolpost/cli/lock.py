"""``toolpost lock``: pin what every tool is, and see what has become of it.

Above: ``main.py``. Below: ``lock.py`` of the package, and the runtime for what the sources offer.
Nothing is called. What was not looked at is never accepted along the way: the differences that are
shown are those that are written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import UNSET

from toolpost.cli.opening import once, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import console, err, json_text, out, plain, print_json
from toolpost.cli.typed import confirmed
from toolpost.config import find
from toolpost.errors import SourceError
from toolpost.lock import (
    Change,
    Difference,
    Lock,
    Offer,
    What,
    accepted,
    changes,
    differences,
    hides,
    pin,
    write_lock,
)
from toolpost.runtime import Runtime
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_MOST_LINES: Final = 500
"""Comparing longer texts line by line takes time that a stranger would decide on."""

_SAYS: Final[dict[What, str]] = {
    "changed": "changed, quarantined",
    "code": "code changed, quarantined",
    "new": "new, quarantined",
    "taken": "takes a name that was pinned for another source, quarantined",
    "unpinned": "of a source that is not pinned",
    "gone": "gone",
}
_DEFAULTS: Final = {
    f.name: f.default
    for f in msgspec.structs.fields(ToolSpec)
    if isinstance(f.default, str | int | float | bool)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The lock, and what there is now."""

    file: Path
    lock: Lock | None
    sources: frozenset[str]
    offers: Sequence[Offer]


@click.command("lock")
@click.argument("names", nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 if something differs.")
@click.option("--accept", is_flag=True, help="Pin what differs: these NAMES, or everything.")
@click.option("--yes", is_flag=True, help="With --accept at a terminal: do not ask.")
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    names: tuple[str, ...],
    check: bool,
    accept: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Pin the definitions of the tools, and show what has changed.

    The first time it pins every tool of every source in tools.lock, beside the config. From then
    on a tool that is not as it was pinned is quarantined: it cannot be called until somebody has
    looked at the difference and says --accept. It ends with 1 while something differs.
    """
    if names and not accept:
        raise click.UsageError("NAMES go with --accept.")
    if check and accept:
        raise click.UsageError("--check writes nothing, --accept does: say one of them.")
    found = run(asked, _found(asked))
    if found.lock is None:
        _first(found, check=check, accept=accept, as_json=as_json)
        return
    differ = _wanted(found, names)
    told = _told(found, differ, all_of_it=not names)
    if not as_json:
        _print(asked, differ)
    written = accept and told and (as_json or yes or _agreed(differ))
    if written:
        sources = None if names else found.sources
        write_lock(found.file, accepted(found.lock, differ, sources=sources))
    _end(found, differ, told, written=written, as_json=as_json)


async def _found(asked: Asked) -> Found:
    """What the sources offer, with nothing around it: no call is made."""
    config = once(find(asked.config))
    bare = {"observers": (), "guards": (), "store": {"kind": "memory"}}
    settings = msgspec.structs.replace(config.settings, **bare)
    async with Runtime(msgspec.structs.replace(config, settings=settings)) as runtime:
        for part, problem in runtime.problems.items():  # what cannot be had now is not gone
            raise SourceError(f"{part}: {problem}")
        return Found(
            file=runtime.pins.file,
            lock=runtime.pins.lock,
            sources=frozenset(runtime.sources),
            offers=runtime.offers,
        )


def _first(found: Found, *, check: bool, accept: bool, as_json: bool) -> None:
    """There is no lock yet."""
    if check or accept:
        raise click.ClickException(f"{found.file.name} is not there. Make it with: toolpost lock")
    write_lock(found.file, pin(found.sources, found.offers))
    if as_json:
        print_json(_data(found, [], written=True))
    else:
        tools = _counted(len(found.offers), "tool")
        sources = _counted(len(found.sources), "source")
        out(f"{tools} of {sources} pinned in {found.file.name}")


def _wanted(found: Found, names: Sequence[str]) -> list[Difference]:
    assert found.lock is not None, "it was looked at"
    every = differences(found.lock, found.offers)
    if not names:
        return every
    known = found.lock.tools.keys() | {offer.spec.name for offer in found.offers}
    for name in names:
        if name not in known:
            raise click.UsageError(f"There is no tool {short(name)!r}{nearest(name, known)}")
    return [one for one in every if one.name in names]


def _told(found: Found, differ: Sequence[Difference], *, all_of_it: bool) -> str:
    """What differs, in a few words; nothing if nothing does."""
    if differ:
        return f"{_counted(len(differ), 'tool')} not as pinned in {found.file.name}"
    if all_of_it and found.lock is not None and found.lock.sources != found.sources:
        return f"the sources of the config are not those of {found.file.name}"
    return ""


def _agreed(differ: Sequence[Difference]) -> bool:
    """Without a terminal, --accept is the yes."""
    if not sys.stdin.isatty():
        return True
    return confirmed(f"Accept {_counted(len(differ), 'difference')}?")


def _end(
    found: Found, differ: Sequence[Difference], told: str, *, written: object, as_json: bool
) -> None:
    if as_json:
        print_json(_data(found, differ, written=bool(written)))
    elif written:
        out(f"{_counted(len(differ), 'difference')} accepted in {found.file.name}")
    elif told:
        err(f"{told}. Accept what is right with: toolpost lock --accept [NAME…]")
    else:
        out(f"every tool is as pinned in {found.file.name}")
    if told and not written:
        click.get_current_context().exit(1)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _data(found: Found, differ: Sequence[Difference], *, written: bool) -> dict[str, Any]:
    return {
        "file": str(found.file),
        "sources": sorted(found.sources),
        "tools": len(found.offers),
        "written": written,
        "differences": [
            {
                "name": one.name,
                "what": one.what,
                "source": one.source,
                "changes": [_change(each) for each in changes(one)],
            }
            for one in differ
        ],
    }


def _change(each: Change) -> dict[str, Any]:
    sides = {"before": each.before, "after": each.after}
    return {"at": list(each.at)} | {k: v for k, v in sides.items() if v is not UNSET}


def _print(asked: Asked, differ: Sequence[Difference]) -> None:
    screen = console(asked)
    for one in differ:
        screen.print(plain(f"{one.name}: {_SAYS[one.what]}", "bold"), soft_wrap=True)
        screen.print(plain(f"  from {one.source}", "dim"), soft_wrap=True)
        for mark, text in _lines(one):
            style = {"-": "red", "+": "green"}.get(mark, "")
            screen.print(plain(f"    {mark} {text}".rstrip(), style), soft_wrap=True)


def _lines(one: Difference) -> Iterator[tuple[str, str]]:
    """The difference of one tool, line by line with its mark; a line without a mark is a path."""
    if one.what == "gone":
        return
    for each in changes(one):
        yield "@", ".".join(map(_step, each.at))
        yield from _sides(each)
    if hides(one):
        yield "@", "binding: it has changed, and what looks like a secret in it is not shown"


def _step(key: str) -> str:
    """A key of a stranger's schema may be any text, even one that looks like a line of ours."""
    return key if key.isidentifier() else json_text(key, indent=None)


def _sides(each: Change) -> Iterator[tuple[str, str]]:
    before, after = _shown(each.before, each.at), _shown(each.after, each.at)
    if 1 < len(before) <= _MOST_LINES and 1 < len(after) <= _MOST_LINES:
        for line in list(unified_diff(before, after, n=1, lineterm=""))[2:]:
            if not line.startswith("@@"):
                yield line[0], line[1:]
        return
    yield from (("-", line) for line in before)
    yield from (("+", line) for line in after)


def _shown(value: Any, at: tuple[str, ...]) -> list[str]:
    """A value as lines; texts are quoted, so that a space at the end is one that can be seen."""
    if value is UNSET:
        default = _DEFAULTS.get(at[0]) if len(at) == 1 else None
        return [] if default is None else [f"{json_text(default)} (the default)"]
    if isinstance(value, str) and value:
        return [json_text(line, indent=None) for line in value.splitlines(keepends=True)]
    return [json_text(value, indent=None)]
