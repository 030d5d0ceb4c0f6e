"""``toolpost policy``: rules tried on example calls, one decision explained, a file checked.

Above: ``main.py``. Below: ``rules`` of the package, ``opening.py`` for the tools, ``arguments.py``
for the words. Nothing is called: what is asked is only what would be decided. Who may call at all
is another question, that of access.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from toolpost.call import OWNER, Caller
from toolpost.cli.arguments import from_words
from toolpost.cli.completing import parameter_names, tool_names
from toolpost.cli.failing import fail
from toolpost.cli.opening import once, run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import (
    console,
    counted,
    err,
    lines,
    out,
    plain,
    print_json,
    row,
    safe,
    table,
)
from toolpost.config import find, origin
from toolpost.contracts import Mode
from toolpost.document import Document, read
from toolpost.errors import CallError, ConfigError, InvalidSpec, SourceError, ToolNotFound
from toolpost.failure import failure
from toolpost.rules import Decision, Rules, Step, Verdict, read_rules
from toolpost.runtime import Runtime
from toolpost.schema import Schema
from toolpost.schema.parameters import raw_names, secret_names
from toolpost.spec import ToolSpec, spec_from
from toolpost.wording import explained, nearest, short

_rules_option = click.option(
    "--policy",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The rules; without it, those of [extensions.policy] in the config.",
)


@click.group("policy")
def command() -> None:
    """Try, explain and check the rules of the policy."""


@command.command("check")
@_rules_option
@json_option
@pass_asked
def check(asked: Asked, *, file: Path | None, as_json: bool) -> None:
    """Check the rules: are they in order, and can each ever hold?

    What cannot be read ends with 78; a rule that never decides is only a warning.
    """
    rules, _ = _policy(asked, file)
    specs = run(asked, _specs(asked))
    unreachable, idle = rules.unreachable(), rules.idle(specs) if specs else []
    if as_json:
        print_json(
            {
                "file": rules.name,
                "digest": rules.digest,
                "rules": len(rules.rules),
                "unreachable": unreachable,
                "idle": idle,
            }
        )
        return
    out(safe(f"{_near(rules.name)}: {counted(len(rules.rules), 'rule')}, in order"))
    for name in unreachable:
        err(safe(f"warning: {name} is never reached: a rule above it decides on everything"))
    for name in idle:
        err(safe(f"warning: {name} is for no tool that the config has"))


@command.command("explain")
@click.argument("name", metavar="TOOL", shell_complete=tool_names)
@click.argument("words", metavar="[ARGUMENTS]...", nargs=-1, shell_complete=parameter_names)
@click.option("--caller", "caller_id", metavar="ID", help="Who calls; without it, the owner.")
@click.option("--user", help="The person behind the call.")
@click.option("--agent", help="The program that acts for them.")
@click.option("--key", help="The name of the API key that it presents.")
@click.option("--role", "roles", multiple=True, help="A role of the caller; may be given again.")
@_rules_option
@json_option
@pass_asked
def explain(
    asked: Asked,
    *,
    name: str,
    words: tuple[str, ...],
    caller_id: str | None,
    user: str | None,
    agent: str | None,
    key: str | None,
    roles: tuple[str, ...],
    file: Path | None,
    as_json: bool,
) -> None:
    """Say what would be decided on a call, by which rule, and why.

    ARGUMENTS are written as for `toolpost call`. Nothing is called.
    """
    caller = OWNER
    if caller_id or user or agent or key or roles:
        who = caller_id or agent or user or key or "somebody"
        caller = Caller(who, user=user, agent=agent, roles=frozenset(roles), key=key)
    rules, mode = _policy(asked, file)
    specs = {spec.name: spec for spec in run(asked, _specs(asked))}
    try:
        spec = _known(name, specs)
        given = from_words(words, spec.input_schema)
        arguments = Schema(spec.input_schema, coerce=spec.coerce).admit(given)
    except CallError as fault:
        wrong = failure(fault, tool=name, call_id="", effects="read")
        fail(wrong, tool=name, as_json=as_json)
    made, steps = rules.explain(spec, mode, caller=caller, arguments=arguments)
    raw = raw_names(spec.input_schema)
    if as_json:
        said = {**msgspec.to_builtins(made), "steps": msgspec.to_builtins(steps), "raw": raw}
        print_json({**said, "requires_approval": spec.requires_approval})
    else:
        _print(asked, spec, made, steps)


def _print(asked: Asked, spec: ToolSpec, made: Decision, steps: list[Step]) -> None:
    screen = console(asked)
    facts = [("decision", made.verdict), ("rule", made.rule), ("reason", made.reason)]
    if made.verdict == "allow" and spec.requires_approval:
        facts.append(("approval", f"{spec.name} itself asks for a person's yes first"))
    if raw := raw_names(spec.input_schema):
        facts.append(("raw", f"{', '.join(raw)} (personal data goes through)"))
    if secret := secret_names(spec.input_schema):
        facts.append(("secret", f"{', '.join(secret)} (secrets go through)"))
    screen.print(lines(facts))
    if not steps:
        screen.print(plain("\nNo rules: the mode and the tier decide."))
        return
    screen.print()
    listing = table("rule", "says", "here", "written at", wide=["here", "written at"])
    for step in steps:
        here = "holds" if step.failed is None else f"not so: {step.failed}"
        row(listing, step.rule, step.verdict, here, _near(step.place))
    screen.print(listing)


def _near(place: str) -> str:
    """A place as seen from here."""
    return place.removeprefix(f"{Path.cwd()}/")


class Who(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The caller of an example."""

    id: str = "example"
    user: str | None = None
    agent: str | None = None
    roles: tuple[str, ...] = ()
    key: str | None = None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and what is expected to be decided on it."""

    tool: str
    expect: Verdict
    rule: str | None = None
    """The rule that is expected to decide."""
    arguments: dict[str, Any] = {}
    caller: Who | None = None
    mode: Mode | None = None
    spec: dict[str, Any] | None = None
    """What the tool is like, where the config does not have it: tier, tags, kind …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of one example; ``decided`` says so, or why nothing could be."""

    place: str
    tool: str
    expected: str
    decided: str
    passed: bool


@command.command("test")
@click.argument("examples", type=click.Path(dir_okay=False, path_type=Path))
@_rules_option
@json_option
@pass_asked
def test(asked: Asked, *, examples: Path, file: Path | None, as_json: bool) -> None:
    """Hold the rules against example calls.

    EXAMPLES is a TOML, YAML or JSON file with a list named calls: each has a tool, arguments, a
    caller (id, user, agent, roles), and in expect the decision: allow, ask or deny. It ends with
    1 if one is decided otherwise.
    """
    rules, mode = _policy(asked, file)
    document = _document(examples)
    listed = _examples(document)
    specs = {spec.name: spec for spec in run(asked, _specs(asked))}
    tried = [
        _tried(document.where(("calls", i)), one, specs=specs, rules=rules, mode=mode)
        for i, one in enumerate(listed)
    ]
    wrong = [one for one in tried if not one.passed]
    if as_json:
        print_json({"passed": not wrong, "calls": [msgspec.to_builtins(one) for one in tried]})
    else:
        for one in wrong:
            err(safe(f"{one.place}: {one.tool}: expected {one.expected}, got {one.decided}"))
        out(f"{len(tried) - len(wrong)} of {len(tried)} calls are decided as expected")
    if wrong:
        click.get_current_context().exit(1)


def _tried(
    place: str, one: Example, *, specs: Mapping[str, ToolSpec], rules: Rules, mode: Mode
) -> Tried:
    expected = one.expect if one.rule is None else f"{one.expect} by {one.rule}"
    decided, passed = "", False
    try:
        spec = _spec(one, specs)
        given = one.arguments
        if one.spec is None:
            given = Schema(spec.input_schema, coerce=spec.coerce).admit(given)
        made, _ = rules.explain(spec, one.mode or mode, caller=_caller(one), arguments=given)
        decided = f"{made.verdict} by {made.rule}"
        passed = made.verdict == one.expect and one.rule in (None, made.rule)
    except (CallError, InvalidSpec) as fault:
        decided = f"nothing: {fault}"
    return Tried(place=place, tool=one.tool, expected=expected, decided=decided, passed=passed)


def _caller(one: Example) -> Caller:
    if (who := one.caller) is None:
        return OWNER
    roles = frozenset(who.roles)
    return Caller(who.id, user=who.user, agent=who.agent, roles=roles, key=who.key)


def _spec(one: Example, specs: Mapping[str, ToolSpec]) -> ToolSpec:
    if one.spec is not None:
        return spec_from({"name": one.tool, "description": "An example.", **one.spec})
    return _known(one.tool, specs)


def _known(name: str, specs: Mapping[str, ToolSpec]) -> ToolSpec:
    if name not in specs:
        hint = nearest(name, specs) or "; list the tools to see what there is"
        raise ToolNotFound(f"There is no tool {short(name)!r}{hint}")
    return specs[name]


def _document(path: Path) -> Document:
    try:
        return read(path)
    except SourceError as fault:
        raise ConfigError(fault.message) from fault


def _examples(document: Document) -> list[Example]:
    data = document.data
    listed = data.get("calls") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not listed:
        _refuse(document, (), "there are no examples: write at least one, [[calls]]")
    known = Example.__struct_fields__
    for index, item in enumerate(listed):
        for key in item if isinstance(item, dict) else ():
            if key not in known:
                hint = nearest(key, known) or f"; there are {', '.join(known)}"
                _refuse(document, ("calls", index, key), f"unknown {short(key)!r}{hint}")
    try:
        return msgspec.convert(listed, list[Example])
    except msgspec.ValidationError as fault:
        what, at = explained(fault, list[Example])
        _refuse(document, ("calls", *at), what)


def _refuse(document: Document, at: tuple[str | int, ...], message: str) -> NoReturn:
    raise ConfigError(f"{document.where(at)}: {message}")


def _policy(asked: Asked, file: Path | None) -> tuple[Rules, Mode]:
    """The rules that are meant, and the mode that decides where they do not."""
    config = find(asked.config)
    mode = config.settings.mode
    if file is not None:
        return read_rules(file), mode
    if "policy" not in config.settings.guards:
        err("warning: policy is not among the guards of the config, so that nothing is decided")
    named = config.settings.extensions.get("policy", {}).get("file")
    if named is None:
        return Rules(), mode
    try:
        return read_rules(config.base / str(named)), mode
    except ConfigError as fault:
        place = origin(config, ("extensions", "policy", "file"))
        raise ConfigError(f"{place}: {fault.message}") from fault


async def _specs(asked: Asked) -> tuple[ToolSpec, ...]:
    """The tools, and nothing around them: no call is made."""
    config = once(find(asked.config))
    bare = {"observers": (), "guards": (), "store": {"kind": "memory"}}
    settings = msgspec.structs.replace(config.settings, **bare)
    async with Runtime(msgspec.structs.replace(config, settings=settings)) as runtime:
        return runtime.registry.list()
