"""What a sandbox refuses: grants that give away the house, and what this machine cannot provide.

Above: ``sandbox.py`` asks before anything is made, and at bind time. Below: the checks that look at
a description alone (``confinement.py``, ``grounds.py``, ``landlock.py``). It weakens nothing in
silence: a refusal names the layer that is missing and how to get it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolpost.destinations import is_destination, not_a_destination
from toolpost.errors import MissingPart, SetupError
from toolpost.sandbox import landlock
from toolpost.sandbox.confinement import (
    LEAST_OPEN,
    LEVELS,
    Confinement,
    Mode,
    check_bounds,
    check_paths,
    check_variables,
    homes,
    least_level,
    within,
)
from toolpost.sandbox.finding import Found
from toolpost.sandbox.grounds import Grounds, check_grounds
from toolpost.sandbox.nesting import placed


class Refusals:
    """``Refusals(…)(confinement)`` raises ``SetupError``, or says which host paths are behind it.

    ``lowered`` accepts one level less; ``state`` is the folder that no tool may write to.
    """

    def __init__(
        self,
        found: Found,
        *,
        mode: Mode,
        state: str | None,
        lowered: bool,
        grounds: Grounds | None,
    ) -> None:
        self._machine = found.machine
        self._missing = found.missing
        self._mode: Mode = mode
        self._state = state
        self._lowered = lowered
        self._grounds = grounds
        self._written: set[str] = set()

    def __call__(self, confinement: Confinement) -> Mapping[str, str]:
        """Refuse, or give the real path behind each that is granted: they are looked up once, and
        what was checked is what is used.
        """
        check_bounds(confinement)
        _check_open_files()
        real = check_paths(confinement, precious=self._precious())
        self._check_state(confinement, real)
        check_grounds(confinement, real, self._grounds, self._written.union(confinement.write))
        self._written.update(confinement.write)  # what was refused, nobody can write to
        self._check_nesting(confinement, real)
        if self._machine.bwrap is None and self._machine.level == "I1":
            landlock.check(confinement, real)
        for one in confinement.egress:
            if not is_destination(one):
                raise SetupError(not_a_destination(one), at=("egress",))
        check_variables(confinement)
        if confinement.egress and self._machine.bwrap is None:
            raise self._lacking(
                "egress needs a network namespace", ("bubblewrap", "user namespaces")
            )
        self._check_host(confinement)
        if os.geteuid() == 0 and self._machine.user is None:
            raise self._lacking("a sandbox of root has to become another user", ("user",))
        self._check_level(confinement)
        self._check_ownership(confinement, real)
        return real

    def _check_state(self, confinement: Confinement, real: Mapping[str, str]) -> None:
        """What the audit and the keys are in is not for tools, nor is a part of it."""
        for path, where in real.items():
            if self._state is not None and within(where, self._state):
                raise SetupError(
                    f"{path} lies in the state folder ({self._state}), which is for no tool: "
                    "grant another folder",
                    at=("write" if path in confinement.write else "read",),
                )

    def _check_nesting(self, confinement: Confinement, real: Mapping[str, str]) -> None:
        """Root's folders between grants are mounted by descriptor: see ``view.py``."""
        if self._machine.bwrap is None or self._machine.binds_held or os.geteuid() != 0:
            return
        for one in placed(confinement.read, confinement.write, real):
            if one.outer is not None:
                raise MissingPart(
                    f"{one.place} holds what is only to be read, and lies in {one.outer}, which is "
                    "writable: as root that needs a bubblewrap that has --bind-fd: "
                    'pip install "toolpost[sandbox]"',
                    at=("read",),
                )

    def _check_host(self, confinement: Confinement) -> None:
        """What is shared of the machine is fenced by the other layers: without them, not at all."""
        if not confinement.host:
            return
        what = f"to share the host's {' and '.join(confinement.host)}"
        if confinement.egress:
            raise SetupError(f"{what}, and egress: with the one there is no other", at=("host",))
        if self._machine.bwrap is None or not self._machine.seccomp:
            layers = ("bubblewrap", "user namespaces", "seccomp")
            raise self._lacking(f"{what} needs namespaces and a system call filter", layers)
        if "processes" in confinement.host and landlock.version() < landlock.NEEDED:
            raise MissingPart(
                f"{what} needs Landlock {landlock.NEEDED}, which keeps them apart: Linux 6.12 or "
                "newer"
            )

    def _check_level(self, confinement: Confinement) -> None:
        tier = confinement.tier
        needed = LEVELS.index(least_level(tier, self._mode))
        if self._mode == "strict" and not self._machine.seccomp:
            raise self._lacking("strict mode needs a system call filter", ("seccomp",))
        if LEVELS.index(self._machine.level) < needed - self._lowered:
            wanted = f"a tool of tier {tier} needs isolation {LEVELS[needed]} in {self._mode} mode"
            raise self._lacking(f"{wanted}, and this machine provides {self._machine.level}")
        if tier == 3 and not self._machine.grouped and not self._lowered:
            self._check_budget(confinement)

    def _check_budget(self, confinement: Confinement) -> None:
        """Without a cgroup each process has the memory for itself: all together has to fit."""
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        if confinement.memory is None or confinement.memory * confinement.processes > most:
            raise self._lacking(
                f"a tool of tier 3 without a cgroup may use {most >> 20} MiB with all its "
                "processes (set a memory limit; memory × processes counts)",
                ("cgroup",),
            )

    def _check_ownership(self, confinement: Confinement, real: Mapping[str, str]) -> None:
        """As another user: can the writable trees be written?"""
        maps = self._machine.maps
        if maps is None:
            self._check_reach(confinement, real)
            return
        for grant, paths in (("read", confinement.read), ("write", confinement.write)):
            for path in (real[path] for path in paths):
                if maps.needed(path, write=grant == "write") and (fault := maps.fault(path)):
                    raise SetupError(
                        f"{path} cannot be given to the sandbox's user ({fault}): its file system "
                        f"has no id maps; give it a folder that belongs to {self._machine.user}",
                        at=(grant,),
                    )

    def _check_reach(self, confinement: Confinement, reals: Mapping[str, str]) -> None:
        """Without mounts, what is closed to others stays closed to another user."""
        user = self._machine.user
        grants = [(path, 0o005) for path in confinement.read]
        grants += [(path, 0o007) for path in confinement.write]
        for path, wanted in grants if user is not None else ():
            real = Path(reals[path])
            ways = [(real, wanted if real.is_dir() else wanted & 0o006)]
            ways += [(above, 0o001) for above in real.parents]
            for one, mode in ways:
                about = one.stat()
                if about.st_uid != user and about.st_mode & mode != mode:
                    raise self._lacking(f"{path} is closed to the sandbox's user ({user}) by {one}")

    def _lacking(self, what: str, layers: Sequence[str] = ()) -> MissingPart:
        found = [one for one in self._missing if one.layer in layers or not layers]
        reasons = "; ".join(f"{m.layer} is missing ({m.why}): {m.how_to_get}" for m in found)
        return MissingPart(f"{what}; {reasons}" if reasons else what)

    def _precious(self) -> Mapping[str, str]:
        kept = {"/": "everything", **dict.fromkeys(homes(), "the home folder")}
        if self._state is not None:
            kept[self._state] = "the audit's folder"
        return kept


def _check_open_files() -> None:
    """What is passed into a sandbox has high numbers at first."""
    may = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if may < LEAST_OPEN:
        raise MissingPart(
            f"a sandbox needs {LEAST_OPEN} open files, and this process may have {may}: start it "
            "after: ulimit -n 1024"
        )
