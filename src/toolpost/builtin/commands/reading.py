"""A command held against the rules of its program: what comes out are the words it is run with.

Above: ``tools.py``. Below: ``rules.py``. Every word that a program gets was written in its rules,
or is a value of the kind that they name: nothing is handed through unread. What does not fit is
refused with what would. It refuses to run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from toolpost.builtin.commands.rules import Argument, Form, Program, arguments, problem
from toolpost.errors import InvalidArguments
from toolpost.wording import nearest, short

Check = Callable[[str, str], str | None]
"""Kind and value → what else is wrong with it."""
_MOST_TOLD: Final = 60


class Ready(msgspec.Struct, frozen=True):
    """The words behind the program's own name, and whether they change something."""

    words: tuple[str, ...]
    changes: bool


class _Misfit(Exception):
    """Why a command does not fit a form."""


def ready(name: str, program: Program, args: Sequence[str], check: Check) -> Ready:
    """The first form that the command fits; else what is wrong with it by the nearest one."""
    faults: list[str] = []
    for words, form in _forms(program):
        read = _Reading(program, form, check)
        read.words(args)
        if tuple(read.plain[: len(words)]) != words:
            continue
        try:
            return Ready(read.finished(words), form.changes)
        except _Misfit as fault:
            said = " ".join((name, *words))
            faults.append(f"{said}: {fault}")
    raise refused(faults[0] if faults else _no_form(name, program, args))


def refused(said: str) -> InvalidArguments:
    faults = [{"at": "/args", "problem": said}]
    return InvalidArguments(f"/args: {said}", effects="none", details={"faults": faults})


def sub_commands(program: Program, *, changes: bool) -> list[str]:
    """What can be said behind the program's name, of one sort."""
    found = [one for form in program.ways if form.changes is changes for one in form.words]
    return list(dict.fromkeys(found))


def _forms(program: Program) -> list[tuple[tuple[str, ...], Form]]:
    """With the longest sub-commands first: ``rollout status`` is not ``rollout`` of something."""
    found = [(tuple(words.split()), form) for form in program.ways for words in form.words]
    return sorted(found, key=lambda one: -len(one[0]))


def _no_form(name: str, program: Program, args: Sequence[str]) -> str:
    known = [one for form in program.ways for one in form.words]
    first = args[0] if args else ""
    if first.startswith("-") and first not in (*program.flags, *program.options):
        there = ", ".join(sorted((*program.flags, *program.options))) or "none"
        return f"{name}: the option {short(first)!r} is not allowed here; allowed are {there}"
    said = next((one for one in args if not one.startswith("-")), "")
    hint = nearest(said, known)
    what = f"{name} {short(said)}" if said else f"{name} without a sub-command"
    return f"{what} is not allowed{hint}; allowed are {', '.join(known)}"


class _Reading:
    """The words of a command by one form: options with their values, and what is left."""

    def __init__(self, program: Program, form: Form, check: Check) -> None:
        self._program, self._form, self._check = program, form, check
        self._kinds: Mapping[str, str] = {**program.options, **form.options}
        self._flags = frozenset((*program.flags, *form.flags))
        self._first = frozenset((*program.flags, *program.options))
        self._leading: list[str] = []
        self._options: list[str] = []
        self._fault: str | None = None
        self.plain: list[str] = []
        self._behind: list[str] | None = None

    def words(self, args: Sequence[str]) -> None:
        """Take all of them in; what is wrong is kept till it is known that this form is meant."""
        rest = iter(args)
        for word in rest:
            if self._behind is not None:
                self._behind.append(word)
            elif word == "--":
                self._behind = []
            else:
                self._word(word, rest)

    def finished(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """All of it in order: everything that is an option, then everything that is not."""
        if self._fault is not None:
            raise _Misfit(self._fault)
        before, behind = arguments(self._form)
        if self._behind and not behind:
            raise _Misfit("nothing may stand behind --")
        plain = self._fitting(self.plain[len(words) :], before)
        last = self._fitting(self._behind or [], behind)
        return (
            *self._program.fixed,
            *self._leading,
            *words,
            *self._form.fixed,
            *self._options,
            *plain,
            *(("--", *last) if last else ()),
        )

    def _word(self, word: str, rest: Iterator[str]) -> None:
        option, equals, value = word.partition("=")
        if word in self._flags:
            self._add(word)
        elif word in self._kinds:
            self._valued(word, next(rest, None))
        elif equals and option in self._kinds and len(option) > 2:
            self._valued(option, value)
        elif word.startswith("-") and word[1:2] != "-" and len(word) > 2:
            self._bundle(word, rest)
        elif word.startswith(("-", "+")):
            self._unknown(word)
        else:
            self.plain.append(word)

    def _bundle(self, word: str, rest: Iterator[str]) -> None:
        """``-tln`` is three flags, ``-n5`` an option and its value."""
        for place, letter in enumerate(word[1:], 2):
            option = f"-{letter}"
            if option in self._flags:
                self._add(option)
            elif option in self._kinds:
                self._valued(option, word[place:] or next(rest, None))
                return
            else:
                self._unknown(word)
                return

    def _valued(self, option: str, value: str | None) -> None:
        kind = self._kinds[option]
        if value is None:
            self._note(f"{option} needs a value")
            return
        if (wrong := problem(kind, value) or self._check(kind, value)) is not None:
            self._note(f"the value of {option} {wrong}, not {short(value)!r}")
            return
        if len(option) > 2 and option[0] in "-+":
            self._add(option, f"{option}={value}")
        else:
            self._add(option, option, value)

    def _add(self, option: str, *words: str) -> None:
        into = self._leading if option in self._first else self._options
        into.extend(words or (option,))

    def _unknown(self, word: str) -> None:
        known = sorted({*self._flags, *self._kinds})
        told = ", ".join(known[:_MOST_TOLD]) or "none"
        self._note(f"the option {short(word)!r} is not allowed; allowed are {told}")

    def _note(self, fault: str) -> None:
        self._fault = self._fault or fault

    def _fitting(self, values: Sequence[str], wanted: Sequence[Argument]) -> list[str]:
        """The values, each of them held against the argument whose place it takes."""
        left = list(values)
        why: str | None = None
        for place, one in enumerate(wanted):
            needed = sum(later.least for later in wanted[place + 1 :])
            most = len(left) - needed if one.most is None else one.most
            taken = 0
            while left and taken < most and (taken < one.least or len(left) > needed):
                if (wrong := self._wrong(one, left[0])) is not None:
                    if problem(one.kind, left[0]) is None:
                        why = wrong  # it is what is meant, and may not be
                    if taken < one.least or place + 1 == len(wanted):
                        raise _Misfit(f"the argument {short(left[0])!r} {why or wrong}")
                    break
                left.pop(0)
                taken += 1
            if taken < one.least:
                raise _Misfit(f"an argument is missing: {one.kind}")
        if left:
            raise _Misfit(f"there is no place for the argument {short(left[0])!r}")
        return list(values)

    def _wrong(self, argument: Argument, value: str) -> str | None:
        if value.startswith("-"):  # behind --, where the pattern is not asked
            return "must not begin with '-'"
        return problem(argument.kind, value) or self._check(argument.kind, value)
