"""``toolpost check``: how good tools are, item by item, wherever they come from.

Above: ``main.py``. Below: ``kit/checking``, and whatever has tools: files, a config, an MCP server,
an OpenAPI document. ``scores.py`` prints. Nothing is run unless that is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from toolpost.backends.mcp.tools import specs_of
from toolpost.cli.importing_mcp import described, grants, listed, name_of, reached
from toolpost.cli.opening import loaded, run, uncalled
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.scores import as_data, show
from toolpost.cli.terminal import err, print_json, safe
from toolpost.config import FILE_NAME, Config, find
from toolpost.contracts import Backend
from toolpost.errors import SourceError
from toolpost.kit.checking import (
    Pipeline,
    Scores,
    Subject,
    check,
    subject_of,
    subject_of_definition,
    subjects_in,
    tried,
)
from toolpost.kit.checking.junit import junit
from toolpost.kit.checking.reading import SUFFIXES
from toolpost.kit.checking.subject import Fault
from toolpost.lock import QUARANTINED
from toolpost.patterns import glob
from toolpost.plugins import Backends, load
from toolpost.registry import Entry
from toolpost.runtime import Runtime
from toolpost.testing import Report
from toolpost.wording import nearest, short

_URLS: Final = ("http://", "https://")
_GRANTS: Final = ("bearer", "read", "write", "egress", "path", "env", "secret")


class Gathered(NamedTuple):
    """The tools to be looked at, and how they are called where that is known."""

    subjects: Sequence[Subject]
    pipeline: Pipeline | None = None
    backends: Backends | Mapping[str, Backend] | None = None


@click.command("check")
@click.option("--mcp", is_flag=True, help="The tools of an MCP server: -- COMMAND…, URL or NAME.")
@click.option("--openapi", is_flag=True, help="The operations of an OpenAPI document: FILE|URL.")
@grants
@click.option("--run", "run_them", is_flag=True, help="Run, for real, the tools that only read.")
@click.option("--run-all", is_flag=True, help="Run every tool, whatever it does.")
@click.option("--strict", is_flag=True, help="End with 1 for a warning too.")
@click.option("--items", "each", is_flag=True, help="Show every item of every tool.")
@click.option("--junit", "file", metavar="FILE", help="Write the results as JUnit XML, too.")
@json_option
@click.argument("words", metavar="[PATH|NAME]…", nargs=-1, type=click.UNPROCESSED)
@pass_asked
def command(
    asked: Asked,
    /,
    *,
    strict: bool,
    each: bool,
    file: str | None,
    as_json: bool,
    **given: Any,  # which tools, and what is done with them, by the names of their options
) -> None:
    """Score tools item by item: the compliance checklist, and a linter.

    PATH is a spec file, a Python file, a list of MCP tools as JSON or a folder with a config; NAME
    is a tool of the config, and * stands for anything in it. Without either it is all tools of
    the config. It ends with 1 where an item fails.
    """
    scores = run(asked, _scored(asked, **given))
    if file is not None:
        Path(file).write_text(junit(scores, strict=strict), encoding="utf-8")
    if as_json:
        print_json(as_data(scores))
    else:
        show(asked, scores, each=each or len(scores.tools) == 1)
    if not scores.ok(strict=strict):
        click.get_current_context().exit(1)


async def _scored(
    asked: Asked, *, words: tuple[str, ...], run_them: bool, run_all: bool, **given: Any
) -> Scores:
    async with _gathered(asked, words, **given) as found:
        reports: dict[str, Report] = {}
        if run_them or run_all:
            with Bar("trying", asked=asked) as bar:
                reports = await _tried(found, bar, all_of_them=run_all)
        return check(found.subjects, pipeline=found.pipeline, tried=reports)


async def _tried(found: Gathered, bar: Bar, *, all_of_them: bool) -> dict[str, Report]:
    reports = {}
    runs = tried(found.subjects, backends=found.backends, whatever_it_does=all_of_them)
    async for name, report in runs:
        reports[name] = report
        bar.tell(len(reports), len(found.subjects), f"tried {name}")
    return reports


@asynccontextmanager
async def _gathered(
    asked: Asked, words: tuple[str, ...], *, mcp: bool, openapi: bool, **given: Any
) -> AsyncIterator[Gathered]:
    """Whatever the words mean, open as long as it is needed."""
    if mcp and openapi:
        raise click.UsageError("--mcp and --openapi name two different things: say one of them.")
    if not mcp and any(given[one] for one in _GRANTS):
        raise click.UsageError("What a server is granted goes with --mcp.")
    if mcp:
        async with _of_server(asked, words, given) as found:
            yield found
    elif openapi:
        yield await _of_document(asked, words)
    elif words and all(map(_is_file, words)):
        files = [one for word in words for one in subjects_in(Path(word))]
        yield Gathered(files)
    else:
        async with _of_config(asked, words) as found:
            yield found


def _is_file(word: str) -> bool:
    return Path(word).is_file() or word.endswith(SUFFIXES)


@asynccontextmanager
async def _of_server(
    asked: Asked, words: tuple[str, ...], given: dict[str, Any]
) -> AsyncIterator[Gathered]:
    load("sources", "mcp")  # or it says what to install
    config = find(asked.config)
    name, about = _server(config, words, given)
    async with reached(config, name, about) as backend:
        with Bar(f"asking {name}", asked=asked):
            listing = await listed(backend, name)
        offered = specs_of([(name, backend.server(name).options, listing)])
        callable_ = {spec.binding["tool"]: Entry(spec, None) for spec in offered.specs}
        subjects = [
            subject_of_definition(one, origin=name, entry=callable_.get(tool))
            for tool, one in listing.definitions.items()
        ]
        subjects += (_left_out(tool, why, name) for tool, why in listing.left_out.items())
        if not subjects:
            raise SourceError(f"the MCP server {name!r} offers no tools")
        yield Gathered(subjects, backends={"mcp": backend})


def _server(
    config: Config, words: tuple[str, ...], given: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """What it is called, and its table in a config: as it stands there, or as the words say."""
    known = config.settings.backends.get("mcp", {}).get("servers", {})
    if not words:
        raise click.UsageError("Say how the server is started: toolpost check --mcp -- COMMAND…")
    if len(words) == 1 and words[0] in known:
        return words[0], known[words[0]]
    url = words[0] if len(words) == 1 and words[0].startswith(_URLS) else None
    program = () if url else words
    return name_of(program, url), described(
        config.base, words=program, url=url, prefix=None, **given
    )


async def _of_document(asked: Asked, words: tuple[str, ...]) -> Gathered:
    if len(words) != 1:
        raise click.UsageError("Name one document: toolpost check --openapi FILE|URL")
    where, base = _document(words[0])
    source = load("sources", "openapi").from_config({"document": where}, base)
    with Bar(f"reading {where}", asked=asked) as bar:
        specs = await source.load(bar.tell)
    subjects = [subject_of(spec, origin=where, form="openapi") for spec in specs]
    return Gathered([*subjects, *_all_left_out(where, source.left_out)])


def _document(where: str) -> tuple[str, Path]:
    """An address, or a file with its folder."""
    if where.startswith(_URLS):
        return where, Path.cwd()
    return Path(where).name, Path(where).absolute().parent


@asynccontextmanager
async def _of_config(asked: Asked, words: tuple[str, ...]) -> AsyncIterator[Gathered]:
    config, patterns = _config(asked, words)
    async with loaded(uncalled(config), asked) as runtime:
        for part, problem in runtime.problems.items():  # else its tools would be missed in silence
            raise SourceError(f"{part}: {problem}")
        for part, problem in runtime.empty_sources.items():
            err(safe(f"warning: {part}: {problem}"))
        lock = runtime.pins.lock
        pipeline = Pipeline(
            sanitizes=any(guard.name == "sanitize" for guard in runtime.executor.guards),
            pinned=None if lock is None else frozenset(lock.tools),
        )
        subjects = _chosen(_of_runtime(runtime), patterns)
        yield Gathered(subjects, pipeline, runtime.executor.backends)


def _config(asked: Asked, words: tuple[str, ...]) -> tuple[Config, tuple[str, ...]]:
    """A folder is where another config is; every other word is a name."""
    folders = [word for word in words if Path(word).is_dir()]
    if not folders:
        return find(asked.config), words
    if len(words) > 1 or asked.config is not None:
        raise click.UsageError(
            "A folder stands alone: it has a config, and all of its tools count."
        )
    return find(str(Path(folders[0]) / FILE_NAME)), ()


def _of_runtime(runtime: Runtime) -> list[Subject]:
    """Every tool of the registry; of one that is quarantined, what its source says now."""
    offers = {offer.spec.name: offer for offer in runtime.offers}
    found = []
    for spec in runtime.registry:
        offer = offers.get(spec.name)
        origin = "" if offer is None else offer.source
        if spec.kind == QUARANTINED and offer is not None:
            made = subject_of(offer.spec, origin=origin)
            found.append(msgspec.structs.replace(made, entry=None))
        elif (entry := runtime.registry.entry(spec.name)) is not None:
            found.append(subject_of(entry, origin=origin))
    for label, tools in runtime.left_out.items():
        found += _all_left_out(label, tools)
    return found


def _chosen(subjects: Sequence[Subject], patterns: tuple[str, ...]) -> Sequence[Subject]:
    names = [one.name for one in subjects]
    for pattern in patterns:
        if not any(map(glob([pattern]), names)):
            files = "" if "/" not in pattern else ", and no such file"
            raise click.UsageError(
                f"There is no tool {short(pattern)!r}{files}{nearest(pattern, names)}"
            )
    if not names:
        raise click.UsageError("The config has no tools: name a file, --mcp or --openapi.")
    wanted = glob(patterns)
    return [one for one in subjects if not patterns or wanted(one.name)]


def _all_left_out(origin: str, tools: Mapping[str, str]) -> Iterable[Subject]:
    return [_left_out(name, why, origin) for name, why in tools.items()]


def _left_out(name: str, why: str, origin: str) -> Subject:
    fault = Fault(why, ours=True)
    return Subject(name=name, form="spec", written={}, origin=origin, fault=fault)
