"""The binding of a shell tool: read once, when its spec is loaded, and refused with its place.

Above: ``backend.py``, and whoever loads specs (``verify``). Below: ``template.py``. It refuses to
know this machine: whether the program is here, and allowed, is looked up when the tool is bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn

import msgspec

from toolpost.backends.shell.template import (
    LEADING,
    Parameters,
    Template,
    Word,
    Written,
    template_from,
    word_from,
)
from toolpost.errors import SAYABLE, ConfigError, InvalidSpec, Outcome, ToolFailed
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_VARIABLE: Final = re.compile(r"(?!LD_)[A-Za-z_][A-Za-z0-9_]*")


class ExitCode(Options, frozen=True, forbid_unknown_fields=True):
    """What an exit status means: that all is well, or an error in words of your own."""

    ok: bool = False
    error: str = ToolFailed.code
    message: str | None = None
    effects: Outcome | None = None
    retryable: bool | None = None


class ShellBinding(Options, frozen=True):
    """The binding as a spec writes it."""

    command: Written
    stdin: str | None = None
    working_dir: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    output: Literal["text", "json", "lines"] = "text"
    truncate: bool = False
    exit_codes: Mapping[str, ExitCode] = {}
    allow_leading: Mapping[str, str] = {}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The binding as it is used: everything in it has been looked at."""

    template: Template
    stdin: Word | None
    working_dir: Word | None
    endings: Mapping[int, ExitCode]
    binding: ShellBinding

    @property
    def program(self) -> str:
        """The program as the spec writes it."""
        first = self.template[0]
        assert isinstance(first, Word), "the template was read"
        return first.literal or ""


def verify(spec: ToolSpec) -> None:
    """Refuse what can be seen to be wrong without looking at this machine."""
    command_of(spec)


def confined(spec: ToolSpec) -> bool:
    """Whether it is run in a sandbox."""
    return spec.isolation in (None, "sandbox")


def command_of(spec: ToolSpec) -> Command:
    """The command of a spec, or ``InvalidSpec`` that knows its place."""
    if spec.isolation in ("inline", "thread"):
        message = f"{spec.name!r} is a program: its isolation is process or sandbox"
        raise InvalidSpec(message, at=("isolation",))
    try:
        binding = options_from(spec.binding, ShellBinding, f"the binding of {spec.name!r}")
    except ConfigError as fault:
        _refuse(fault.message, *fault.at)
    parameters = Parameters(spec.input_schema)
    _verify_allowed(binding.allow_leading, spec.input_schema)
    for field in ("environment", "secrets"):
        _verify_variables(field, getattr(binding, field))
    if binding.truncate and binding.output == "json":
        _refuse("truncate: half of a JSON text is none; choose text or lines", "truncate")
    return Command(
        template=template_from(
            binding.command, parameters, allowed=binding.allow_leading, at=("binding", "command")
        ),
        stdin=_word(binding.stdin, parameters, "stdin"),
        working_dir=_word(binding.working_dir, parameters, "working_dir"),
        endings={_status(key): _ending(key, one) for key, one in binding.exit_codes.items()},
        binding=binding,
    )


def _word(text: str | None, parameters: Parameters, field: str) -> Word | None:
    return None if text is None else word_from(text, parameters, ("binding", field))


def _verify_allowed(allowed: Mapping[str, str], schema: Mapping[str, Any]) -> None:
    properties = schema.get("properties") or {}
    for name, characters in allowed.items():
        if name not in properties:
            hint = nearest(name, properties)
            _refuse(f"{short(name)!r} is no parameter{hint}", "allow_leading", name)
        if not characters or set(characters) - set(LEADING):
            _refuse("allow_leading: '-', '@' or '-@'", "allow_leading", name)


def _verify_variables(field: str, names: Mapping[str, str] | tuple[str, ...]) -> None:
    for index, name in enumerate(names):
        if not _VARIABLE.fullmatch(name):
            at = name if isinstance(names, Mapping) else index
            _refuse(f"{short(name)!r} cannot be set in the environment of a tool", field, at)
        if isinstance(names, Mapping) and "\0" in names[name]:
            _refuse("a NUL character cannot stand in the environment", field, name)


def _status(key: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,2}", key) or int(key) > 255:
        _refuse(f"{short(key)!r} is no exit status from 1 to 255", "exit_codes", key)
    return int(key)


def _ending(key: str, ending: ExitCode) -> ExitCode:
    if ending.error not in SAYABLE:
        hint = nearest(ending.error, SAYABLE) or f"; use one of {', '.join(sorted(SAYABLE))}"
        message = f"a program cannot end with {short(ending.error)!r}{hint}"
        _refuse(message, "exit_codes", key, "error")
    return ending


def _refuse(message: str, *at: str | int) -> NoReturn:
    raise InvalidSpec(message, at=("binding", *at))
