"""What may be said to a program, as data: its sub-commands, its options, and what their values are.

    [df]
    flags = ["-h", "-T"]
    options = { "-t" = "name" }
    arguments = ["path*"]

Above: ``programs.toml`` and the config, which are read into these; ``reading.py`` holds a command
against them. Below: nothing. It refuses to know any program.

The kinds of values are in ``KINDS``; ``a|b`` is one of these words (``a|`` this one), ``a|b,``
several of them with commas, ``a|b/`` one with ``/name`` behind it. Behind the kind of an argument,
``?`` says that it may be missing, ``*`` that there may be any number, ``+`` one or more. What
stands behind ``--`` among the arguments, the caller has to put behind one, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from toolpost.errors import ConfigError
from toolpost.options import Options
from toolpost.wording import nearest, short

KINDS: Final[Mapping[str, str]] = {
    "number": r"-?[0-9]{1,9}(?:\.[0-9]{1,6})?",
    "duration": r"[0-9]{1,9}(?:ms|s|m|h|d)?",
    "name": r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,252}",
    "list": r"[A-Za-z0-9_%][A-Za-z0-9_%.:/+,-]{0,499}",
    "order": r"[-+]?[a-z_%]{1,30}(?:,[-+]?[a-z_%]{1,30}){0,9}",
    "revision": r"[A-Za-z0-9_][A-Za-z0-9_.:@/+^~{}-]{0,252}",
    "line": r"[^-@\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,3999}",
    "text": r"[^-@\x00][^\x00]{0,3999}",
    "path": r"[^-@\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,3999}",
    "host": r"[A-Za-z0-9_\[:][A-Za-z0-9_.:\]-]{0,253}",
    "server": r"@[A-Za-z0-9_\[:][A-Za-z0-9_.:\]-]{0,253}",
    "url": r"(?i:https?)://[!-~]{1,3990}",
}
"""Kind → how its values are written. None begins as an option, or as the name of a file to read."""
_MOST_TOLD: Final = 100
_HOST: Final = ("host", "server", "url")
_PATTERNS: Final = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}
_OPTION: Final = re.compile(r"[-+]{0,2}[A-Za-z0-9][\w.%-]*")
_BEHIND: Final = re.compile(r"/[A-Za-z0-9][A-Za-z0-9_.:-]{0,252}")


class Form(Options, frozen=True, forbid_unknown_fields=True):
    """One way of calling a program: the sub-commands that can be said so, and what goes with them.
    ``fixed`` is put behind them in any case. ``changes``: it does more than read.
    """

    words: tuple[str, ...] = ("",)
    flags: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    changes: bool = False


class Program(Options, frozen=True, forbid_unknown_fields=True):
    """A program. ``flags``, ``options`` and ``fixed`` here stand before the sub-command."""

    about: str = ""
    """What it tells, for the model."""
    path: str | None = None
    """Where it is, if not in one of the system's folders."""
    flags: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    fixed: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()
    """The ways in which it may be called; without any, with its flags and options alone."""
    network: bool = False
    """It goes where ``egress`` of the settings leads; all others have no network at all."""
    host: tuple[Literal["network", "processes"], ...] = ()
    """What of the machine it has to see, from inside its sandbox."""
    read: tuple[str, ...] = ()
    """Files and folders it sees, where they exist."""
    environment: Mapping[str, str] = {}

    @property
    def ways(self) -> tuple[Form, ...]:
        return self.forms or (Form(),)


class Argument(msgspec.Struct, frozen=True):
    """One argument of a form: what it is, and how many there may be."""

    kind: str
    least: int
    most: int | None


def arguments(form: Form) -> tuple[list[Argument], list[Argument]]:
    """Those before ``--``, and those behind it."""
    before: list[Argument] = []
    behind: list[Argument] = []
    into = before
    for written in form.arguments:
        if written == "--":
            into = behind
            continue
        count = written[-1:] if written[-1:] in ("?", "*", "+") else ""
        kind = written.removesuffix(count)
        into.append(Argument(kind, count in ("", "+"), None if count in ("*", "+") else 1))
    return before, behind


def problem(kind: str, value: str) -> str | None:
    """Why a text is no value of this kind, in words for a model."""
    if (pattern := _PATTERNS.get(kind)) is not None:
        return None if pattern.fullmatch(value) else _MEANT.get(kind, f"has to be a {kind}")
    choices, several, named = _choices(kind)
    for one in value.split(",") if several else [value]:
        word, slash, _ = one.partition("/")
        fits = word in choices if named else one in choices
        if not fits or (named and slash and not _BEHIND.fullmatch(one[len(word) :])):
            told = ", ".join(choices[:_MOST_TOLD]) + (" …" if len(choices) > _MOST_TOLD else "")
            return f"has to be one of {told}"
    return None


def leads_somewhere(kind: str) -> bool:
    """Whether a value of this kind says where to go."""
    return kind in _HOST


def verify(name: str, program: Program) -> None:
    """Refuse rules that cannot be meant; a ``ConfigError`` that says which."""
    for at, kind in _kinds(program):
        if "|" not in kind and kind not in KINDS:
            hint = nearest(kind, KINDS) or f"; there are {', '.join(KINDS)}, and a|b for words"
            raise ConfigError(f"the rules of {name!r}: {at}: no kind {short(kind)!r}{hint}")
    tables = [(program.flags, program.options), *((f.flags, f.options) for f in program.ways)]
    for option in (one for flags, options in tables for one in (*flags, *options)):
        if not _OPTION.fullmatch(option):
            raise ConfigError(f"the rules of {name!r}: {short(option)!r} is not an option")
    if program.network and program.host:
        raise ConfigError(f"the rules of {name!r}: network and host do not go together")


def _kinds(program: Program) -> Iterator[tuple[str, str]]:
    yield from program.options.items()
    for form in program.ways:
        yield from form.options.items()
        for part in arguments(form):
            yield from (("arguments", one.kind) for one in part)


def _choices(kind: str) -> tuple[list[str], bool, bool]:
    bare = kind.rstrip(",/")
    marks = kind[len(bare) :]
    return [word for word in bare.split("|") if word], "," in marks, "/" in marks


_MEANT: Final = {
    "number": "has to be a number",
    "duration": "has to be a duration: 90s, 10m, 2h",
    "name": "has to be a name: letters, digits and . _ - : / @",
    "list": "has to be names with commas between them",
    "order": "has to be names with commas between them, with - before one to turn it round",
    "revision": "has to name a revision: HEAD~3, main, a1b2c3..main",
    "line": "has to be one line that begins with neither '-' nor '@'",
    "text": "has to be a text that begins with neither '-' nor '@'",
    "path": "has to be a path; one that begins with '-' or '@' is written ./-x",
    "host": "has to be the name or the address of a host",
    "server": "has to be @ and the name or the address of a server",
    "url": "has to be a URL that begins with http:// or https://",
}
