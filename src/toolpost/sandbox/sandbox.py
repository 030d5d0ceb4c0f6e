"""The sandbox: what a description grants and no more, or a refusal.

Above: whoever runs a program that is not to be trusted (shell tools, Python workers, MCP servers
over stdio). Below: ``finding.py`` for what this machine can do, ``refusals.py`` for what it cannot,
``plan.py`` for how, ``ready.py`` for speed, ``egress.py`` for the way out. It refuses to know what
a tool or a call is.

::

    async with await Sandbox.open(mode="standard", state=".toolpost") as sandbox:
        sandbox.check(confinement)                      # once; says which layer is missing
        child = await sandbox.spawn(["sort", "data.txt"], confinement)
        ending = await child.wait()

That a signal ended a program is told where the signal is one that breaks programs (KILL, SEGV, TERM
and their like); any other reads as exit code 128 + its number, as in a shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from toolpost.errors import ConfigError
from toolpost.process import Child, Hearer, unhurried
from toolpost.sandbox import cold, egress, finding, plan
from toolpost.sandbox.confinement import Confinement, Level, Mode, are_words, check_variables
from toolpost.sandbox.finding import Found, Missing
from toolpost.sandbox.grounds import Grounds
from toolpost.sandbox.quota import Watch
from toolpost.sandbox.ready import Ready
from toolpost.sandbox.refusals import Refusals
from toolpost.sandbox.stem import Lost
from toolpost.sandbox.warm import Warm

_Places = Sequence[tuple[int, int]]
"""Which of our descriptors gets which number inside."""
_Hearers = tuple[Hearer | None, Hearer | None]
_OPEN: Final = 16_384
"""Files that this process may have open, where it is free to: twice what any sandbox may."""
_TRIES: Final = 8
"""More than there are stems that wait: all of them may be dead."""


class Sandbox:
    """Confines children. One for a process; opened once, closed at the end."""

    def __init__(
        self,
        found: Found,
        *,
        mode: Mode,
        state: str | None,
        lowered: bool,
        grounds: Grounds | None = None,
    ) -> None:
        self.mode = mode
        self.lowered = lowered
        self._machine = found.machine
        self._missing = found.missing
        self._state, self._grounds = state, grounds
        self._checked = Refusals(found, mode=mode, state=state, lowered=lowered, grounds=grounds)
        self._ready = Ready(found.machine, found.groups, self._checked)
        self._watch = Watch()

    @classmethod
    async def open(
        cls,
        *,
        mode: Mode = "standard",
        state: str | None = None,
        lower: bool = False,
        grounds: Grounds | None = None,
    ) -> Self:
        """Find out what can be had here. ``lower`` accepts one level less, in permissive mode;
        ``grounds`` knows what no tool may write to, and where others may.
        """
        if lower and mode != "permissive":
            raise ConfigError("a lower level of isolation is accepted in permissive mode only")
        _make_room()
        state = None if state is None else await asyncio.to_thread(os.path.realpath, state)
        found = await finding.look(state)
        made = cls(found, mode=mode, state=state, lowered=lower, grounds=grounds)
        await asyncio.to_thread(egress.sweep)
        made._ready.fill()
        return made

    async def lesser(self, level: Level) -> Self | None:
        """This one with fewer layers, to see what they are worth; None if that cannot be had."""
        machine = await finding.lesser(self._machine, level)
        if machine is None:
            return None
        found = Found(machine, None, self._missing)
        return type(self)(
            found,
            mode=self.mode,
            state=self._state,
            lowered=self.lowered,
            grounds=self._grounds,
        )

    async def close(self) -> None:
        """Let go of what waits; children that run are their callers' to end."""
        await self._ready.close()
        self._watch.close()
        if self._machine.maps is not None:
            self._machine.maps.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def level(self) -> Level:
        return self._machine.level

    @property
    def missing(self) -> tuple[Missing, ...]:
        return self._missing

    @property
    def about(self) -> Mapping[str, Any]:
        """For the audit, the health and the dry run: what confines here, and whether it is less."""
        machine = self._machine
        layers = {
            "namespaces": machine.bwrap is not None,
            "seccomp": machine.seccomp and machine.level != "I0",
            "landlock": machine.bwrap is None and machine.level == "I1",
            "cgroup": machine.grouped,
            "user": machine.user is not None,
        }
        return {
            "level": machine.level,
            "layers": tuple(name for name, there in layers.items() if there),
            "missing": tuple(one.layer for one in self._missing),
            "lowered": self.lowered,
        }

    def check(self, confinement: Confinement) -> None:
        """Refuse what cannot be provided as described; for bind time."""
        self._checked(confinement)

    async def spawn(
        self,
        argv: Sequence[str],
        confinement: Confinement,
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        on_stdout: Hearer | None = None,
        on_stderr: Hearer | None = None,
        pass_fds: Sequence[int] | Mapping[int, int] = (),
    ) -> Child:
        """Start a program in a sandbox; what cannot be provided is refused here too.

        Descriptors and hearers are as with ``process.spawn``; ``pass_fds`` may say which number
        each gets inside, where there is no room for high ones. ``OSError`` says that it could not
        be started; where nothing waited, that may be known only at the end: see ``hearing.py``.
        """
        if not argv or not argv[0] or not are_words(argv):
            raise OSError(errno.EINVAL, "a word of the command is empty, or none that can be said")
        check_variables(confinement)
        streams = ((stdin, 0), (stdout, 1), (stderr, 2))
        fds = [(ours, theirs) for ours, theirs in streams if ours is not None]
        if pass_fds:
            fds += _passed(pass_fds)
        child = await self._started(argv, confinement, fds, (on_stdout, on_stderr))
        scratch = self._machine.bwrap is not None and not self._machine.grouped
        if confinement.write or scratch:
            self._watch.add(
                child,
                confinement.write,
                disk=confinement.disk,
                files=confinement.files,
                scratch=scratch,
            )
        self._ready.refill_behind(child)
        _leave_alone(child, stdout=stdout, stderr=stderr)
        return child

    def exceeded(self, child: Child) -> tuple[str, ...]:
        """Which bounds an ended child ran into: ``disk``, ``files``, ``memory``, ``processes``;
        where that is known.
        """
        if child.quota is not None and child.quota.exceeded is not None:
            return (child.quota.exceeded,)
        return self._ready.exceeded(child)

    async def warm_up(self, confinement: Confinement) -> None:
        """Have a sandbox waiting before the first call; for bind time, where it is worth it."""
        self.check(confinement)
        await self._ready.keep(confinement)

    async def settled(self) -> None:
        """Wait until everything that is started ahead is there."""
        await self._ready.settled()

    async def _started(
        self, argv: Sequence[str], confinement: Confinement, fds: _Places, hear: _Hearers
    ) -> Child:
        while (warm := self._ready.take(confinement)) is not None:
            try:
                return await self._become(warm, argv, confinement, fds, hear)
            except Lost:
                continue
        for _ in range(_TRIES):
            with contextlib.suppress(Lost):
                return await self._cold(argv, confinement, fds, hear)
        raise Lost("whatever is started here has ended before it had its program")

    async def _become(
        self,
        warm: Warm,
        argv: Sequence[str],
        confinement: Confinement,
        fds: _Places,
        hear: _Hearers,
    ) -> Child:
        warm.child.hear(*hear)
        env = plan.environment(confinement)
        try:
            return await warm.become(argv, env=env, folder=confinement.folder, fds=fds)
        except BaseException:
            warm.child.hear(None, None)  # its last words are not the program's
            await unhurried(warm.child.exited)
            raise

    async def _cold(
        self, argv: Sequence[str], confinement: Confinement, fds: _Places, hear: _Hearers
    ) -> Child:
        if self._machine.bwrap is not None and not plan.can_be_direct(self._machine, confinement):
            new = await self._ready.new(confinement)
            return await self._become(new, argv, confinement, fds, hear)
        make = plan.direct if self._machine.bwrap is not None else plan.unwalled
        real = self._checked(confinement)
        targets = [theirs for _, theirs in fds]
        planned = make(self._machine, confinement, argv, fds=targets, real=real)
        stem = await self._ready.stem(confinement)
        stem.child.hear(*hear)
        if self._machine.bwrap is not None:
            return await cold.become(stem, planned, [ours for ours, _ in fds])
        try:
            await stem.follow(planned, [ours for ours, _ in fds])
        except BaseException:
            await stem.discard()
            raise
        return stem.child


def _make_room() -> None:
    """Descriptors on their way in messages are counted for a user, and held against what the sender
    may have open. We have to be able to pass some on when a tool has used up what it may.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN if hard == resource.RLIM_INFINITY else min(hard, _OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _passed(given: Sequence[int] | Mapping[int, int]) -> list[tuple[int, int]]:
    pairs = [*given.items()] if isinstance(given, Mapping) else [(fd, fd) for fd in given]
    if any(theirs >= plan.TALK for _, theirs in pairs):
        raise ValueError(f"inside, descriptors have numbers below {plan.TALK}: map them")
    return pairs


def _leave_alone(child: Child, *, stdout: int | None, stderr: int | None) -> None:
    """Where the caller gave a descriptor of its own, there is nothing to drain."""
    if stdout is not None and child.stdout is not None:
        child.stdout.close()
        child.stdout = None
    if stderr is not None and child.stderr is not None:
        child.stderr.close()
        child.stderr = None
