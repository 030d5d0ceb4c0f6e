"""What the config says of commands: ``[sources.commands]``.

Above: the tools. Below: ``rules.py``, and ``programs.toml`` with the rules that come along. Which
programs there are to be run is said here and nowhere else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from toolpost.builtin.commands.rules import Program, verify
from toolpost.builtin.web_settings import verify_authority
from toolpost.errors import ConfigError
from toolpost.options import Options, options_from
from toolpost.wording import nearest, short

SAMPLE: Final = """\
# The programs that may be run; their rules say with which words. These only
# look at this machine. There are also curl, dig, git, ip, journalctl, kubectl,
# nslookup, ping, ss.
programs = ["df", "du", "free", "ps", "uname", "uptime"]
# read = ["/var/log"]                    # folders that programs may see
# egress = ["cluster.example:6443"]      # where curl, kubectl and ping may go
"""
NEEDS: Final = {
    "system_command": "name a program in `programs` that has something to read",
    "system_command_change": "name a program in `programs` that can change something, kubectl",
}
_BYTES: Final = 256 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_VARIABLE: Final = re.compile(r"(?!LD_)[A-Za-z_][A-Za-z0-9_]*")


@lru_cache(1)
def known() -> Mapping[str, Program]:
    """The programs that come with rules."""
    tables = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
    made = {name: options_from(table, Program, name) for name, table in tables.items()}
    for name, program in made.items():
        verify(name, program)
    return MappingProxyType(made)


class Settings(Options, frozen=True):
    """``[sources.commands]``: the programs, what they see, and where they may go."""

    programs: tuple[str, ...] = ("df", "du", "free", "ps", "uname", "uptime")
    egress: tuple[str, ...] = ()
    """``host:port``, or ``*`` for all that is public."""
    read: tuple[str, ...] = ()
    """Folders that programs see, read-only; beside the system's programs there is nothing else."""
    environment: Mapping[str, str] = {}
    """Variables that programs have, such as KUBECONFIG."""
    rules: Mapping[str, Program] = {}
    """Programs of your own, or other rules for one that is known."""
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
    """The folders in which programs are looked for."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1000, le=600_000)] = _BYTES
    """Of what a program writes; at that point it is ended."""

    def __post_init__(self) -> None:
        for name, program in self.rules.items():
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"commands: {short(name)!r} is no name of a program", at=("rules",)
                )
            verify(name, program)
        there = {*known(), *self.rules}
        for name in self.programs:
            if name not in there:
                hint = nearest(name, there) or f" (there are {', '.join(sorted(there))})"
                raise ConfigError(
                    f"commands: there are no rules for {short(name)!r}{hint}: write them as "
                    f"[sources.commands.rules.{short(name)}]",
                    at=("programs",),
                )
        if not self.programs:
            raise ConfigError("commands: programs names none", at=("programs",))
        for name in self.environment:
            if not _VARIABLE.fullmatch(name) or "\0" in self.environment[name]:
                raise ConfigError(f"commands: {short(name)!r} cannot be set", at=("environment",))
        for one in self.egress:
            verify_authority(one)


def chosen(settings: Settings) -> dict[str, Program]:
    """The programs that may be run, in the order of their names."""
    rules = {**known(), **settings.rules}
    return {name: rules[name] for name in sorted(set(settings.programs))}
