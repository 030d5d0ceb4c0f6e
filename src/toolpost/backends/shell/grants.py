"""What a tool is given beside its words: folders, a place to work in, an environment.

Above: ``backend.py``. Below: the binding and the file system. It refuses to know how a grant is
enforced: that is the sandbox's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from toolpost.backends.shell.binding import Command
from toolpost.backends.shell.filling import refused, text_from
from toolpost.call import Call
from toolpost.errors import InvalidSpec, MissingPart


class Folders:
    """The folders that a tool may use, and where in them a call of it works."""

    def __init__(
        self, command: Command, *, base: str | None, read: Sequence[str], write: Sequence[str]
    ) -> None:
        """``read`` and ``write`` are for every tool; relative paths start at ``base``."""
        self._base = base or "/"
        self._wanted = command.working_dir
        self.write = self._absolute(*command.binding.write, *write)
        self.read = self._absolute(*command.binding.read, *read)
        self.all = (*self.write, *self.read)
        if self._wanted is not None:
            self._refuse_outside(self._wanted.literal)

    def working_dir(self, call: Call) -> str | None:
        """As the spec says, else as the caller does, else the first folder it may write to."""
        default = self._first
        if self._wanted is None:
            return self._callers(call) or default
        asked = text_from(self._wanted, call.arguments)
        if asked is None:
            return default
        base = self._base if self._wanted.literal else self.all[0]
        found = _beneath(self.all, Path(base, asked))
        if found is None:
            name = next((hole.name for hole in self._wanted.holes), "working_dir")
            raise refused(name, "must be a folder inside one that this tool may use")
        return found

    @property
    def default(self) -> str | None:
        """Where a call works that says nothing of it."""
        fixed = None if self._wanted is None else self._wanted.literal
        return self._first if fixed is None else self._absolute(fixed)[0]

    @property
    def _first(self) -> str | None:
        return self.write[0] if self.write else None

    def _callers(self, call: Call) -> str | None:
        """The caller's own, which is where he happens to be: it opens no door."""
        if call.working_dir is None or not self.all:
            return None
        found = _beneath(self.all, Path("/", call.working_dir))
        if found is None:
            call.warn("The tool may not use the working directory of the call: it works elsewhere.")
        return found

    def closed(self, place: str, fault: OSError) -> Exception:
        """What it means that a program could not begin there."""
        if self._wanted is not None and self._wanted.holes:
            problem = f"must be a folder that can be entered ({fault.strerror})"
            return refused(self._wanted.holes[0].name, problem)
        return MissingPart(f"the tool cannot work in {place}: {fault.strerror}")

    def missing(self) -> str | None:
        """One that is not there."""
        return next((path for path in self.all if not Path(path).exists()), None)

    def _refuse_outside(self, fixed: str | None) -> None:
        if not self.all or (
            fixed and not any(map(Path(*self._absolute(fixed)).is_relative_to, self.all))
        ):
            raise InvalidSpec(
                "working_dir has to be inside a folder that the tool may use: name that in "
                "'write' or 'read'",
                at=("binding", "working_dir"),
            )

    def _absolute(self, *paths: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(os.path.normpath(Path(self._base, path)) for path in paths))


def _beneath(folders: Sequence[str], path: Path) -> str | None:
    """The folder, as the kernel finds it, by its name inside: names are not compared, links are
    followed, and what a granted link leads to is seen at the link's place.
    """
    try:
        found = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        real = Path(f"/proc/self/fd/{found}").readlink()
    finally:
        os.close(found)
    for folder in folders:
        root = os.path.realpath(folder)
        if real.is_relative_to(root):
            return str(Path(folder, real.relative_to(root)))
    return None


class Variables:
    """The environment: nothing of ours is in it but the secrets that the spec names."""

    def __init__(
        self, command: Command, secret: Callable[[str], str | None], basis: Mapping[str, str]
    ) -> None:
        self._fixed = {**basis, **command.binding.environment}
        self._secrets, self._secret = command.binding.secrets, secret

    def __call__(self) -> dict[str, str]:
        values = dict(self._fixed)
        for name in self._secrets:
            value = self._secret(name)
            if value is None:
                raise MissingPart(_unset(name))
            values[name] = value
        return values

    def problem(self) -> str | None:
        """A secret that nobody has set."""
        unset = (name for name in self._secrets if self._secret(name) is None)
        return next(map(_unset, unset), None)

    @property
    def names(self) -> list[str]:
        return sorted({*self._fixed, *self._secrets})


def _unset(name: str) -> str:
    return f"the secret {name} is not set: set the variable {name}"
