"""How a server's program is started: where it is, what it needs to be seen, what it is granted.

Above: ``server.py``. Below: the sandbox, or ``process.py`` where the config asks for no more. The
package that a program was installed with is shown to it, read-only; of a program that stands alone
nothing but itself, whatever lies beside it. The rest is what the config grants. What cannot be
confined is refused with the reason.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from toolpost import process
from toolpost.backends.mcp.settings import ServerOptions
from toolpost.errors import ConfigError, MissingPart
from toolpost.plugins import SharedSandbox
from toolpost.process import Child
from toolpost.sandbox import Confinement

TIER: Final = 2
SYSTEM: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_MOST_LINKS: Final = 40
_LONGEST_LINE: Final = 256
_FETCHING: Final = frozenset(("npx", "bunx", "pnpx", "uvx", "pipx"))


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One program, ready to be started any number of times."""

    argv: tuple[str, ...]
    confinement: Confinement
    environment: Mapping[str, str]
    working_dir: str | None
    confined: bool

    async def start(
        self, sandbox: SharedSandbox, secrets: Mapping[str, str], pipes: Pipes
    ) -> Child:
        """Raises ``SetupError`` where it cannot be confined, ``OSError`` where not be started."""
        environment = {**self.environment, **secrets}
        if not self.confined:
            return await process.spawn(
                self.argv,
                env=environment,
                cwd=self.working_dir or "/",
                memory=self.confinement.memory,
                file_size=self.confinement.disk,
                stdin=pipes.stdin,
                stdout=pipes.stdout,
            )
        confinement = msgspec.structs.replace(self.confinement, environment=environment)
        confines = await sandbox()
        return await confines.spawn(self.argv, confinement, stdin=pipes.stdin, stdout=pipes.stdout)


class Pipes(msgspec.Struct, frozen=True):
    """The program's ends."""

    stdin: int
    stdout: int


def launch_of(name: str, options: ServerOptions, base: Path | None) -> Launch:
    """Relative paths start at ``base``, the config's folder."""
    path = _absolute(name, base, options.path)
    first, *rest = options.command
    program = _program(name, first, base, path)
    confined = options.isolation == "sandbox"
    if confined and Path(program).name in _FETCHING:
        raise ConfigError(
            f"the MCP server {name!r}: {first} fetches a program before it runs it, and a sandbox "
            "has no network for that. Install the package, and name its program as the command"
        )
    program = _in_its_package(program) if confined else program
    write = _absolute(name, base, options.write)
    read = _absolute(name, base, options.read)
    seen = dict.fromkeys((*read, *_packages(program, rest, path)))
    seen |= dict.fromkeys(_alone(program, (*seen, *write)))
    limits = options.tool_limits()
    folder = _absolute(name, base, (options.working_dir,) if options.working_dir else ())
    return Launch(
        argv=(program, *rest),
        confinement=Confinement(
            read=tuple(one for one in seen if one not in write),
            write=write,
            egress=options.egress,
            memory=limits.memory,
            cpus=limits.cpus,
            processes=limits.processes,
            disk=limits.disk,
            files=limits.files,
            working_dir=folder[0] if folder else None,
            tier=TIER,
        ),
        environment={
            "PATH": os.pathsep.join((*path, *SYSTEM)),
            "LANG": "C.UTF-8",
            "HOME": "/tmp" if confined else "/nonexistent",  # noqa: S108 - the sandbox's own
            **options.environment,
        },
        working_dir=folder[0] if folder else None,
        confined=confined,
    )


def _absolute(name: str, base: Path | None, paths: Sequence[str]) -> tuple[str, ...]:
    for path in paths:
        if base is None and not Path(path).is_absolute():
            raise ConfigError(f"the MCP server {name!r}: {path} has to be an absolute path")
    return tuple(dict.fromkeys(os.path.normpath(Path(base or "/", path)) for path in paths))


def _program(name: str, first: str, base: Path | None, path: Sequence[str]) -> str:
    if "/" in first:
        (first,) = _absolute(name, base, (first,))
    found = shutil.which(first, path=os.pathsep.join((*path, *SYSTEM)))
    if found is None and "/" in first and Path(first).is_file():
        raise MissingPart(
            f"the MCP server {name!r}: {first} may not be executed: chmod +x {first}, or name the "
            "program that runs it first in its command"
        )
    if found is None:
        looked = "" if "/" in first else f" in {', '.join((*path, *SYSTEM))}"
        raise MissingPart(f"the MCP server {name!r}: there is no program {first}{looked}")
    return found


def _in_its_package(program: str) -> str:
    """Where a link from elsewhere leads into a package, it is started there: it looks around itself
    for the rest.
    """
    return next((hop for hop in _hops(program) if _trees_around(hop)), program)


def _packages(program: str, words: Sequence[str], path: Sequence[str]) -> Iterator[str]:
    """The trees that a program was installed in; of other words only those that are a file of such
    a tree, for the rest are data.
    """
    yield from _trees(program)
    yield from _trees(_interpreter(program))
    for folder in path:
        yield from _trees(folder) or _outside_system(folder)
    for word in words:
        if word.startswith("/") and Path(word).is_file():
            yield from _trees(word)


def _alone(program: str, shown: Sequence[str]) -> Iterator[str]:
    """The program and what runs it, as files, where they are in nothing that is shown anyway. What
    lies beside them is not: a program of one's own may stand in one's home.
    """
    for file in (program, _interpreter(program)):
        for hop in _hops(file):
            inside = any(Path(hop).is_relative_to(tree) for tree in shown)
            if not inside and Path(hop).is_file():
                yield from _outside_system(hop)


def _trees(file: str) -> list[str]:
    return [tree for hop in _hops(file) for tree in _trees_around(hop)]


def _trees_around(file: str) -> list[str]:
    """What an installer has made around a file: ``node_modules``, a virtual environment and the
    Python beneath it, or the library of a Python of its own.
    """
    above = [Path(file), *Path(file).parents]
    found = [str(folder) for folder in above if folder.name == "node_modules"][-1:]
    for folder in above:
        if (folder / "pyvenv.cfg").is_file():
            found += [str(folder), *_base_of(folder)]
            break
    library = Path(file).parent.parent / "lib"
    if any(library.glob("python3*/os.py")):
        found += _outside_system(str(library))
    return found


def _hops(file: str) -> Iterator[str]:
    """The file, and where its links lead, one after the other."""
    for _ in range(_MOST_LINKS):
        yield file
        if not Path(file).is_symlink():
            return
        file = os.path.normpath(Path(file).parent / Path(file).readlink())


def _interpreter(program: str) -> str:
    """What runs a script."""
    with Path(program).open("rb") as opened:
        first = opened.readline(_LONGEST_LINE)
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words and words[0].startswith(b"/") else "/"


def _base_of(environment: Path) -> Iterator[str]:
    for line in (environment / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            yield from _outside_system(str(Path(value.strip()).parent))


def _outside_system(folder: str) -> list[str]:
    inside = any(Path(folder).is_relative_to(top) for top in ("/usr", "/bin", "/lib"))
    return [] if inside or folder == "/" else [folder]
