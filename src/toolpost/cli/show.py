"""``toolpost show``: one tool as a planner sees it, and how a call of it would travel.

Above: ``main.py``. Below: ``opening.py``, ``parameters.py``. What runs the tool, its binding, is
shown only on request: it is no business of whoever calls it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import click

from toolpost.cli.completing import tool_names
from toolpost.cli.failing import fail
from toolpost.cli.opening import asking, loaded, run
from toolpost.cli.options import Asked, json_option, only_here, pass_asked
from toolpost.cli.remote import connected
from toolpost.cli.terminal import console, json_text, lines, plain, print_json, row, table
from toolpost.config import find
from toolpost.errors import CallError
from toolpost.failure import failure
from toolpost.result import Failure
from toolpost.schema.parameters import Parameter, parameters, raw_names, secret_names, shape
from toolpost.spec import TIERS, ToolSpec

_SOFT: Final = re.compile(r"(?m)^(.{60,})\n(?=[A-Za-z`(])")
"""Where a paragraph was broken for whoever reads the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A tool as it would be called now; ``problem`` says why it cannot be."""

    spec: ToolSpec
    observers: tuple[str, ...]
    guards: tuple[str, ...]
    isolation: str | None
    problem: str | None
    asking: str | None
    """The mode of the approval guard, if there is one."""
    remote: bool = False
    """It is a gateway's, which tells the spec and nothing else."""

    def to_dict(self, *, binding: bool) -> dict[str, Any]:
        if self.remote:
            return {
                "spec": self.spec.public(),
                "tier_name": TIERS[self.spec.tier],
                "timeout": self.spec.time_limit,
                "total_timeout": self.spec.total_limit,
                "raw": raw_names(self.spec.input_schema),
                "secret": secret_names(self.spec.input_schema),
                "public_digest": self.spec.public_digest,
            }
        return {
            "spec": self.spec.to_dict() if binding else self.spec.public(),
            "tier_name": TIERS[self.spec.tier],
            "timeout": self.spec.time_limit,
            "total_timeout": self.spec.total_limit,
            "isolation": self.isolation,
            "raw": raw_names(self.spec.input_schema),
            "secret": secret_names(self.spec.input_schema),
            "rings": [*self.observers, *self.guards],
            "problem": self.problem,
            "digest": self.spec.digest,
            "public_digest": self.spec.public_digest,
        }


@click.command("show")
@click.argument("name", shell_complete=tool_names)
@click.option("--binding", is_flag=True, help="Show what runs the tool as well.")
@json_option
@pass_asked
def command(asked: Asked, *, name: str, binding: bool, as_json: bool) -> None:
    """Show one tool: its parameters, limits and the road of a call."""
    if asked.url is not None and binding:
        raise only_here("show --binding")
    shown = run(asked, _remote(asked, name) if asked.url is not None else _shown(asked, name))
    if isinstance(shown, Failure):
        fail(shown, tool=name, as_json=as_json)
    if as_json:
        print_json(shown.to_dict(binding=binding))
    else:
        _print(asked, shown, binding=binding)


async def _remote(asked: Asked, name: str) -> Shown | Failure:
    async with connected(asked) as client:
        try:
            spec = await client.show(name)
        except CallError as fault:
            return failure(fault, tool=name, call_id="", effects="read")
    return Shown(
        spec=spec,
        observers=(),
        guards=(),
        isolation=None,
        problem=None,
        asking="policy",
        remote=True,
    )


async def _shown(asked: Asked, name: str) -> Shown | Failure:
    async with loaded(find(asked.config), asked) as runtime:
        spec = runtime.registry.get(name)
        if spec is None or spec not in runtime.executor.list():
            error = (await runtime.execute(name, {}, dry_run=True)).error
            assert error is not None, "there is no such tool for this caller"
            return error
        bound = runtime.executor.bound(name)
        about = getattr(bound.handle, "about", {})
        observing = {extension.name for extension in runtime.executor.observers}
        return Shown(
            spec=spec,
            observers=tuple(name for name in bound.rings if name in observing),
            guards=tuple(name for name in bound.rings if name not in observing),
            isolation=about.get("isolation"),
            problem=bound.problem,
            asking=asking(runtime),
        )


def _print(asked: Asked, shown: Shown, *, binding: bool) -> None:
    spec, screen = shown.spec, console(asked)
    screen.print(plain(f"{spec.name}  {spec.title or ''}".rstrip(), "bold cyan"))
    screen.print(plain(_SOFT.sub(r"\1 ", spec.description.strip())))
    screen.print()
    screen.print(lines(_facts(shown)))
    screen.print()
    _print_parameters(screen, list(parameters(spec.input_schema).values()))
    if spec.output_schema is not None:
        screen.print(lines([("returns", shape(spec.output_schema, _root(spec)))]))
    for example in spec.examples:
        screen.print(lines([("example", json_text(example, indent=None))]))
    if binding:
        screen.print(lines([("binding", json_text(spec.binding))]))
    digest = () if shown.remote else (("digest", spec.digest),)
    screen.print(lines([*digest, ("public", spec.public_digest)]))


def _root(spec: ToolSpec) -> dict[str, Any]:
    return spec.output_schema if isinstance(spec.output_schema, dict) else {}


def _facts(shown: Shown) -> list[tuple[str, str]]:
    spec = shown.spec
    road = " → ".join((*shown.observers, "check", *shown.guards, "limit", spec.kind))
    facts = [
        ("kind", spec.kind),
        ("category", spec.category),
        ("version", spec.version or ""),
        ("tags", ", ".join(spec.tags)),
        ("tier", f"{spec.tier} {TIERS[spec.tier]}"),
        ("effects", spec.effects),
        ("timeout", f"{spec.time_limit:g} s, {spec.total_limit:g} s with all attempts"),
        ("isolation", shown.isolation or ""),
        ("approval", _approval(shown) if spec.requires_approval else ""),
        ("raw", ", ".join(raw_names(spec.input_schema))),
        ("secret", ", ".join(secret_names(spec.input_schema))),
        ("road", road if shown.problem is None and not shown.remote else ""),
        ("problem", shown.problem or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _approval(shown: Shown) -> str:
    if shown.asking is None:
        return "wanted by the spec, but no approval guard is in force: calls are refused"
    if shown.asking == "never":
        return 'wanted by the spec, but nobody is asked: [extensions.approval] mode = "never"'
    return "a person is asked first"


def _print_parameters(screen: Any, found: list[Parameter]) -> None:
    if not found:
        screen.print(plain("It takes no parameters.\n"))
        return
    listing = table("parameter", "type", "default", "description", wide=["description"])
    for one in found:
        row(
            listing,
            one.name,
            one.shape,
            "required" if one.required else _default(one),
            one.description,
        )
    screen.print(listing)
    screen.print()


def _default(one: Parameter) -> str:
    return json_text(one.schema["default"], indent=None) if "default" in one.schema else ""
