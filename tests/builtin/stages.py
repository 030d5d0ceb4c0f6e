"""What the built-in sets are tried on: for each a place where all of its tools can do their work.

Folders are new ones, the web is a server on loopback, programs that would change something are
ones that only say what they were told.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.backends.http.service import Asked, Reply, forever, serving
from tests.builtin.log_families import FAMILIES, generated
from tests.builtin.test_knowledge import written
from tests.builtin.test_scraper import PAGE
from tests.builtin.test_web_search import SHAPES
from tests.builtin.test_wikipedia import Wiki
from tests.sandbox.elsewhere import need_a_sandbox, open_the_way
from toolpost.builtin.browser.program import chromium
from toolpost.contracts import Registered
from toolpost.errors import Unavailable
from toolpost.executor import Executor
from toolpost.registry import Registry
from toolpost.sources.builtin import BuiltinSource

FAST: Final = {
    "timeout": "it is too fast to be stopped: give slow=",
    "cancellation": "it is too fast to be cancelled: give slow=",
}
"""Nothing makes these tools slow."""
NO_NEED: Final = {"missing argument": "no argument is required"}
NO_FAILURE: Final = {"error handling": "give failing= with arguments that make it fail"}
"""Any words may be looked for, and are found or not."""
GONE: Final = {
    "output": "it did not succeed",
    "concurrency": "it does not succeed even alone",
}
"""What was deleted cannot be deleted again; that its output fits, the examples show."""


class Trial(NamedTuple):
    """What ``check_tool`` is given for a tool, and what cannot be checked there, and why."""

    arguments: Mapping[str, Any]
    failing: Mapping[str, Any] | None
    slow: Mapping[str, Any] | None = None
    excused: Mapping[str, str] = {}
    parallel: int = 4


class Stage(NamedTuple):
    """A set as a config brings it, somewhere where it can work."""

    tools: Mapping[str, Registered]
    trials: Mapping[str, Trial]
    here: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """An example, with the places of this stage in it."""
    afresh: Callable[[], None] = lambda: None
    """Puts everything where the examples expect it."""
    before: Mapping[str, Any] | None = None
    """The arguments of a call of the first tool that comes before each example."""


async def brought(name: str, base: Path, **settings: Any) -> dict[str, Registered]:
    source = BuiltinSource([name], settings={name: settings}, base=base)
    return {one.spec.name: one for one in await source.load(lambda done, total: None)}


def at(url: str, *instead: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Examples whose hosts are the one of this URL."""

    def here(example: dict[str, Any]) -> dict[str, Any]:
        for one in instead:
            if "url" in example:
                example = {**example, "url": example["url"].replace(one, url)}
        return example

    return here


@asynccontextmanager
async def calculator(base: Path) -> AsyncIterator[Stage]:
    trial = Trial({"expression": "6 * 7"}, {"expression": "1/0"}, excused=FAST)
    yield Stage(await brought("calculator", base), {"calculator": trial})


@asynccontextmanager
async def time(base: Path) -> AsyncIterator[Stage]:
    trial = Trial({}, {"action": "parse", "time": "x"}, excused=FAST | NO_NEED)
    yield Stage(await brought("time", base), {"time": trial})


def workspace(base: Path) -> None:
    top = base / "workspace"
    top.mkdir(exist_ok=True)
    (top / "notes.txt").write_text("milk\nbread\nTODO eggs\n")
    (top / "data.bin").write_bytes(bytes(range(256)))
    (top / "old.txt").write_text("old")


@asynccontextmanager
async def files(base: Path) -> AsyncIterator[Stage]:
    note, missing = {"path": "notes.txt"}, {"path": "nothing"}
    trials = {
        "read_file": Trial(note, missing, excused=FAST),
        "write_file": Trial(
            {"path": "a/b", "content": "x"}, {"path": "/etc/x", "content": "x"}, excused=FAST
        ),
        "edit_file": Trial(
            {**note, "old_text": "milk", "new_text": "milk"},
            {**note, "old_text": "x", "new_text": "y"},
            excused=FAST,
        ),
        "list_directory": Trial({"path": "."}, missing, excused=FAST | NO_NEED),
        "search_files": Trial({"pattern": "milk"}, {"pattern": "(?=x)"}, excused=FAST),
        "delete_file": Trial({"path": "old.txt"}, missing, excused=FAST | GONE),
    }
    yield Stage(await brought("files", base), trials, afresh=lambda: workspace(base))


@asynccontextmanager
async def filesystem(base: Path) -> AsyncIterator[Stage]:
    listed, missing = {"action": "list", "path": "."}, {"action": "read", "path": "nothing"}
    trial = Trial(listed, missing, excused=FAST)
    made = await brought("filesystem", base)
    yield Stage(made, {"filesystem": trial}, afresh=lambda: workspace(base))


@asynccontextmanager
async def classify(base: Path) -> AsyncIterator[Stage]:
    (base / "data").mkdir()
    (base / "data/unknown.bin").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    trial = Trial({"text": "a: 1\n"}, {"path": "none"}, excused=FAST | NO_NEED)
    yield Stage(await brought("classify", base, roots=["data"]), {"classify_data": trial})


@asynccontextmanager
async def knowledge(base: Path) -> AsyncIterator[Stage]:
    written(base)
    trials = {
        "ingest_knowledge": Trial({}, {"path": "nowhere"}, excused=FAST | NO_NEED),
        "search_knowledge": Trial({"query": "canary"}, None, excused=FAST | NO_FAILURE),
    }
    yield Stage(await brought("knowledge", base), trials, before={})


@asynccontextmanager
async def logs(base: Path) -> AsyncIterator[Stage]:
    text = "".join(f"{one.line}\n" for one in generated(FAMILIES[0], 500))
    (base / "logs").mkdir()
    (base / "logs/app.log").write_text(text)
    (base / "logs/big.log").write_text(text * 500)
    trial = Trial({"path": "app.log"}, {"path": "no.log"}, {"path": "big.log"}, NO_NEED)
    yield Stage(await brought("logs", base, roots=["logs"]), {"analyze_logs": trial})


@asynccontextmanager
async def web(base: Path) -> AsyncIterator[Stage]:
    def answers(asked: Asked) -> Any:
        if "slow" in asked.target:
            return forever
        return Reply("", 500) if "q=bad" in asked.target else Reply(json.dumps(SHAPES["searxng"]))

    async with serving(answers) as service:
        private = {"url": "http://169.254.169.254/"}
        request = Trial({"url": service.url}, private, {"url": f"{service.url}/slow"})
        trials = {
            "web_search": Trial({"query": "tea"}, {"query": "bad"}, {"query": "slow"}),
            "http_get": request,
            "http_request": request,
        }
        settings: dict[str, Any] = {
            "providers": ["searxng"],
            "searxng": {"url": service.url},
            "egress": [service.authority],
        }
        made = await brought("web", base, **settings)
        yield Stage(made, trials, here=at(service.url, "https://api.example.com"))


@asynccontextmanager
async def wikipedia(base: Path) -> AsyncIterator[Stage]:
    async with serving(Wiki()) as service:
        made = await brought("wikipedia", base, url=f"{service.url}/w/api.php")
        trial = Trial({"query": "Alan Turing"}, {"query": "asdfghjkl"}, {"query": "slow"})
        yield Stage(made, {"wikipedia": trial})


def page(asked: Asked) -> Any:
    return forever if asked.target == "/slow" else Reply(PAGE, type="text/html")


@asynccontextmanager
async def scraper(base: Path) -> AsyncIterator[Stage]:
    async with serving(page) as service:
        made = await brought("scraper", base, egress=[service.authority])
        nowhere = {"url": service.url, "selector": "h6"}
        trial = Trial({"url": service.url}, nowhere, {"url": f"{service.url}/slow"})
        yield Stage(made, {"web_scraper": trial}, here=at(service.url, "https://example.com"))


FORM: Final = """<!doctype html><title>Tea</title><h1>Tea</h1><nav><a href="/two">Two</a></nav>
<table class=prices><tr><td>tea<td>2</table><form><input name=q><button>Go</button></form>"""


@asynccontextmanager
async def browser(base: Path) -> AsyncIterator[Stage]:
    """A real one, which all of its tools share."""
    try:
        chromium(None)
    except Unavailable as missing:
        pytest.skip(missing.message)

    def answers(asked: Asked) -> Any:
        return forever if asked.target == "/slow" else Reply(FORM, type="text/html")

    def trial(**more: Any) -> Trial:
        return Trial(
            {"url": service.url, **more},
            {"url": "http://169.254.169.254/", **more},
            {"url": f"{service.url}/slow", **more},
            parallel=2,
        )

    async with serving(answers) as service:
        made = await brought("browser", base, egress=[service.authority])
        trials = {
            "browser_navigate": trial(),
            "browser_snapshot": trial()._replace(excused=NO_NEED),
            "browser_screenshot": trial()._replace(excused=NO_NEED),
            "browser_extract": trial(selector="h1"),
            "browser_click": trial(target="h1"),
            "browser_fill": trial(target="input", value="tea"),
        }
        here = at(service.url, "https://example.com")
        async with Executor(Registry(made.values())) as executor:
            await executor.execute("browser_navigate", {"url": service.url})  # so that it is there
            yield Stage(made, trials, here=here, before={"url": service.url})


TELLS: Final = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"
"""A program that says what it was told, one word a line."""


@asynccontextmanager
async def commands(base: Path) -> AsyncIterator[Stage]:
    """What would change something is a program that does not."""
    await asyncio.to_thread(need_a_sandbox)  # which runs a loop of its own
    for name in ("bin", "seen"):
        (base / name).mkdir()
    for name in ("curl", "kubectl"):
        (base / "bin" / name).write_text(TELLS)
        (base / "bin" / name).chmod(0o755)
    subprocess.run(["git", "init", "-q", base / "seen"], check=True)
    open_the_way(base / "seen")
    open_the_way(base / "bin/curl")
    sleep = {"path": shutil.which("sleep"), "forms": [{"arguments": ["number"]}]}
    nap = {**sleep, "forms": [{"arguments": ["number"], "changes": True}]}
    made = await brought(
        "commands",
        base,
        programs=["curl", "df", "git", "kubectl", "nap", "ps", "sleep"],
        rules={"sleep": sleep, "nap": nap},
        read=["seen"],
        path=[str(base / "bin"), "/usr/bin", "/bin"],
        egress=["api.example.com:443"],
    )

    def told(command: str, *args: str) -> dict[str, Any]:
        return {"command": command, "args": list(args)}

    trials = {
        "system_command": Trial(told("df"), told("df", "--sync"), told("sleep", "60")),
        "system_command_change": Trial(told("nap", "0"), told("nap", "-x"), told("nap", "60")),
    }
    yield Stage(made, trials)


STAGES: Final[Mapping[str, Callable[[Path], AbstractAsyncContextManager[Stage]]]] = {
    one.__name__: one
    for one in (
        browser, calculator, classify, commands, files, filesystem, knowledge, logs, scraper, time,
        web, wikipedia,
    )
}  # fmt: skip
