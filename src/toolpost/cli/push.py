"""``toolpost push``: write specs into a table, from where sources of kind ``database`` take them.

Above: ``main.py``. Below: ``sources/specs.py``, which holds the files to what a source would, and
``sources/tables``. Nothing is called and no config is needed. All is written or nothing, and only
if the table still is as it was shown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

from toolpost.cli.opening import run
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.terminal import console, counted, err, out, plain, print_json, safe
from toolpost.cli.typed import confirmed
from toolpost.digest import canonical
from toolpost.document import read
from toolpost.environ import secret
from toolpost.errors import SourceError
from toolpost.registry import folded
from toolpost.sources.specs import gathered
from toolpost.sources.tables import MOST_BYTES, MOST_ROWS, TABLE, Row, Table, shown, table_at
from toolpost.spec import ToolSpec

What = Literal["new", "changed", "same", "others"]
_STYLES: Final[dict[What, str]] = {"new": "green", "changed": "yellow", "others": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the table holds (``seen``), and what becomes of it."""

    seen: Sequence[Row]
    rows: Sequence[Row]
    found: dict[What, list[str]]


@click.command("push")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/DATABASE.")
@click.option("--to-secret", metavar="NAME", help="The variable that has the URL.")
@click.option("--table", default=TABLE, show_default=True, help="The table; made if missing.")
@click.option("--prune", is_flag=True, help="Remove the tools that are not in the FILES.")
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@json_option
@pass_asked
def command(
    asked: Asked,
    *,
    files: tuple[Path, ...],
    to: str | None,
    to_secret: str | None,
    table: str,
    prune: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write specs into a table of a database.

    They are those of the FILES. The table is made if it is not there. All of the files are checked
    first; then everything is written in one step, or nothing is. Tools that the files do not name
    stay, unless --prune says otherwise. A tool that somebody has disabled in the table stays so.
    """
    url = _url(to, to_secret)
    place = table_at(url, base=Path.cwd(), table=table)
    plan = run(asked, _planned(asked, files, place, prune=prune))
    gone = plan.found["others"] if prune else []
    if not as_json:
        _print(asked, plan, prune=prune)
    write = not dry_run and (not gone or yes or _agreed(gone))
    if write and (gone or plan.rows or not plan.seen):
        run(asked, _written(place, plan, gone))
    if as_json:
        print_json(_data(plan, shown(url), table, written=write, pruned=gone if write else []))
        return
    changed = len(plan.found["new"]) + len(plan.found["changed"])
    removed = f", {len(gone)} removed" if gone else ""
    said = f"{counted(changed, 'tool')} written{removed}" if write else "nothing was written"
    (out if write else err)(safe(f"{said}: {table} in {shown(url)}"))


def _url(to: str | None, to_secret: str | None) -> str:
    if (to is None) == (to_secret is None):
        raise click.UsageError("Say where to with --to URL, or with --to-secret NAME.")
    url = to or secret(to_secret or "")
    if not url:
        raise click.UsageError(f"The variable {to_secret} is not set.")
    return url


async def _planned(asked: Asked, files: Sequence[Path], table: Table, *, prune: bool) -> Plan:
    with Bar("reading specs", asked=asked) as bar:
        documents = (read(file, progress=bar.tell) for file in dict.fromkeys(files))
        specs = [spec for _, found in gathered(documents) for spec in found]
    try:
        seen = list(await table.rows() or ())
    finally:
        await table.close()
    before = {row.name: row for row in seen}
    rows: list[Row] = []
    found: dict[What, list[str]] = {"new": [], "changed": [], "same": [], "others": []}
    for row in map(_row, specs):
        was = before.pop(row.name, None)
        what: What = "new" if was is None else "changed"
        if was is not None and (was.spec, was.digest) == (row.spec, row.digest):
            what = "same"
        else:
            rows.append(row)
        found[what].append(row.name)
    found["others"] += before
    _verify_names(found, prune=prune)
    if len(before) + len(specs) > MOST_ROWS:
        raise click.ClickException(f"A table holds {MOST_ROWS:,} tools at most.")
    return Plan(seen=seen, rows=rows, found=found)


def _verify_names(found: Mapping[What, Sequence[str]], *, prune: bool) -> None:
    """No two look alike: whoever takes the specs from the table would have only one of them. What
    is there already is not the fault of who pushes something else.
    """
    stays = () if prune else found["others"]
    first: dict[str, str] = {}
    for name in (*found["same"], *found["changed"], *stays, *found["new"]):
        other = first.setdefault(folded(name), name)
        if other != name and name not in stays:
            raise SourceError(
                f"nothing was written: the name {name!r} looks like {other!r}. Make them easier to "
                "tell apart, or take one of them out"
            )


def _row(spec: ToolSpec) -> Row:
    text = canonical(spec.to_dict())
    if len(text) > MOST_BYTES:
        raise click.ClickException(f"The spec of {spec.name} is longer than {MOST_BYTES:,} bytes.")
    return Row(spec.name, text.decode(), spec.digest)


async def _written(table: Table, plan: Plan, gone: Sequence[str]) -> None:
    try:
        await table.write(plan.rows, gone=gone, seen=plan.seen)
    finally:
        await table.close()


def _agreed(gone: Sequence[str]) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("--prune asks first; without a terminal, say --yes.")
    return confirmed(f"Remove {counted(len(gone), 'tool')}?")


def _print(asked: Asked, plan: Plan, *, prune: bool) -> None:
    screen = console(asked)
    disabled = {row.name for row in plan.seen if not row.enabled}
    for what, names in plan.found.items():
        word = {"others": "remove" if prune else "stays"}.get(what, what)
        for name in names:
            off = " (disabled)" if name in disabled else ""
            screen.print(plain(f"{word:8}{name}{off}", _STYLES.get(what, "")), soft_wrap=True)


def _data(
    plan: Plan, url: str, table: str, *, written: bool, pruned: Sequence[str]
) -> dict[str, Any]:
    told: dict[str, Any] = {"to": url, "table": table, "written": written}
    told.update(plan.found.items())
    return {**told, "removed": list(pruned)}
