"""``toolpost import openapi``: the operations of a document, written down as HTTP tools.

Above: ``importing.py``. Below: the source ``openapi``, which converts, and ``bringing.py``, which
writes. What could not be taken is told, with the reason.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from toolpost.cli.bringing import Brought, bring_in
from toolpost.cli.opening import run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import console, counted, err, out, print_json, row, safe, table
from toolpost.config import Config, find
from toolpost.document import MAX_BYTES
from toolpost.errors import SourceError
from toolpost.options import options_from
from toolpost.sources.openapi.converting import Choices, Imported, imported
from toolpost.sources.openapi.fetching import Found, address_of, fetch, is_address, read_file
from toolpost.spec import ToolSpec

_MANY: Final = 40
_PACKED: Final = 0.47
_GENERIC: Final = re.compile(r"(?:openapi|swagger|api-?docs?|api|index|spec|v\d+)?", re.IGNORECASE)


@click.command("openapi")
@click.argument("where", metavar="FILE|URL")
@click.option("-o", "--file", help="The spec file to write, .yaml or .json; else NAME-tools.yaml.")
@click.option("--tag", "tags", multiple=True, help="Only operations with a tag; !TAG: without it.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="PATTERN",
    help="Only these, by operationId or as 'GET /pets*'; !PATTERN: not these.",
)
@click.option("--base-url", metavar="URL", help="Where the service is, whatever the document says.")
@click.option("--prefix", help="What the tools' names begin with.")
@click.option("--bearer", metavar="SECRET", help="The secret to send, whatever the document says.")
@click.option(
    "--secret", multiple=True, metavar="SCHEME=NAME", help="The secret of a security scheme."
)
@click.option("--no-outputs", is_flag=True, help="Do not hold answers against their schemas.")
@click.option("--replace", is_flag=True, help="Write over the spec file.")
@json_option
@pass_asked
def command(
    asked: Asked,
    /,
    *,
    where: str,
    file: str | None,
    replace: bool,
    as_json: bool,
    **given: Any,  # what is taken of the document, by the names of its options
) -> None:
    """Make a spec file of what an OpenAPI document offers, and pin it.

    The document is JSON or YAML, OpenAPI 3.0 or 3.1, in a file or at an address. Options that take
    a PATTERN or a TAG may be given several times, and * stands for anything in them.
    """
    config = find(asked.config)
    choices = _choices(**given)
    target = Path(file or config.base / f"{_name_of(where)}-tools.yaml").resolve()
    known, brought = run(asked, _imported(asked, config, where, choices, target, replace))
    if as_json:
        print_json(_data(known, brought))
    else:
        _print(asked, known, brought)


def _choices(
    *, bearer: str | None, secret: Sequence[str], no_outputs: bool, prefix: str | None, **given: Any
) -> Choices:
    said = {key: value for key, value in given.items() if value}
    said |= {"prefix": prefix or "", "outputs": not no_outputs}
    said["secrets"] = dict(_pair(one) for one in secret)
    if bearer is not None:
        said["auth"] = {"bearer": bearer}
    return options_from(said, Choices, "toolpost import openapi")


def _pair(text: str) -> tuple[str, str]:
    scheme, equals, name = text.rpartition("=")
    if not equals:
        raise click.UsageError(f"--secret {text}: write SCHEME=NAME")
    return scheme, name


async def _imported(
    asked: Asked, config: Config, where: str, choices: Choices, file: Path, replace: bool
) -> tuple[Imported, Brought]:
    with Bar(f"importing {where}", asked=asked) as bar:
        found = await _found(where)
        known = await asyncio.to_thread(imported, found, choices, tell=bar.tell)
        _verify_size(known.specs)
        bar.tell(None, None, "writing and pinning")
        return known, await bring_in(config, known.specs, file=file, replace=replace, tables={})


def _verify_size(specs: Sequence[ToolSpec]) -> None:
    """What the spec file and the lock can hold: there every value has a line of its own."""
    size = sum(len(msgspec.json.encode(spec.to_dict())) for spec in specs)
    if size > MAX_BYTES * _PACKED:
        raise SourceError(
            f"{len(specs)} tools are more than a spec file and tools.lock can hold: choose some "
            "with --tag or --operation, or leave the schemas of answers out with --no-outputs"
        )


async def _found(where: str) -> Found:
    if is_address(where):
        found = await fetch(address_of(where))
        assert found is not None, "no version was named that it could still be"
        return found
    return await asyncio.to_thread(read_file, Path(where))


def _name_of(where: str) -> str:
    """What the document is called; if that says nothing, the host or the folder it is in."""
    parts = urlsplit(where) if is_address(where) else None
    stem = Path(where if parts is None else parts.path).stem
    if _GENERIC.fullmatch(stem):
        host = "" if parts is None else (parts.hostname or "")
        stem = host if parts is not None else Path(where).resolve().parent.name
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-").lower() or "api"


def _secrets(specs: Sequence[ToolSpec]) -> list[str]:
    """The names of all secrets that the tools send."""
    names = {name for spec in specs for name in _in_auth(spec.binding.get("auth"))}
    return sorted(names)


def _in_auth(auth: Any) -> Iterator[str]:
    if isinstance(auth, list):
        for one in auth:
            yield from _in_auth(one)
    elif isinstance(auth, Mapping):
        basic, key = auth.get("basic") or {}, auth.get("api_key") or {}
        named = (auth.get("bearer"), basic.get("user_secret"), basic.get("password"))
        yield from (name for name in (*named, key.get("secret")) if name)


def _print(asked: Asked, known: Imported, brought: Brought) -> None:
    specs = known.specs
    screen = console(asked)
    if len(specs) <= _MANY:
        listing = table("tool", "operation", "tier", "effects", wide=["operation"])
        for spec in specs:
            row(listing, spec.name, _operation(spec), str(spec.tier), spec.effects)
    else:
        listing = table("operations", "tools", "tier", "effects", wide=["operations"])
        kinds = Counter((s.binding["method"], s.tier, s.effects) for s in specs)
        for (method, tier, effects), many in sorted(kinds.items()):
            row(listing, method, str(many), str(tier), effects)
    screen.print(listing)
    _print_reasons(asked, "left out", [one.why for one in known.left_out])
    _print_reasons(asked, "told in other words", list(known.notes.values()))
    out(safe(f"{counted(len(specs), 'tool')} of {_asked_for(known)} in {brought.file.name}"))
    out(safe(f"{counted(len(brought.pinned), 'tool')} pinned in {brought.lock.name}"))
    if brought.added:
        out(safe(f"added to {brought.config.name}:\n{brought.added.strip()}"))
    if secrets := _secrets(specs):
        out(safe(f"secrets they send: {', '.join(secrets)}"))
    if brought.quarantined:
        names = ", ".join(brought.quarantined)
        err(safe(f"not as pinned, and quarantined: {names}. Look at it with: toolpost lock"))


def _asked_for(known: Imported) -> str:
    if known.chosen == known.operations:
        return counted(known.operations, "operation")
    return f"{known.chosen} chosen operations ({known.operations} in all)"


def _print_reasons(asked: Asked, what: str, reasons: Sequence[str]) -> None:
    if reasons:
        listing = table(what, "why", wide=["why"])
        for why, many in Counter(reasons).most_common():
            row(listing, str(many), why)
        console(asked).print(listing)


def _operation(spec: ToolSpec) -> str:
    return f"{spec.binding['method']} {spec.binding['url']}"


def _data(known: Imported, brought: Brought) -> dict[str, Any]:
    return {
        "file": str(brought.file),
        "operations": known.operations,
        "chosen": known.chosen,
        "tools": [
            {"name": spec.name, "operation": _operation(spec), "tier": spec.tier}
            | {"effects": spec.effects, "tags": list(spec.tags)}
            for spec in known.specs
        ],
        "left_out": [
            {"operation": one.operation, "why": one.why, "at": one.at} for one in known.left_out
        ],
        "notes": [{"at": at, "what": what} for at, what in known.notes.items()],
        "secrets": _secrets(known.specs),
        "config": {"file": str(brought.config), "added": brought.added},
        "lock": str(brought.lock),
        "pinned": list(brought.pinned),
        "quarantined": list(brought.quarantined),
    }
