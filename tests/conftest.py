"""What every test shares: the asyncio back end, the rule that CI skips nothing, and the measure of
how much of the core has been run, in this process and in its children."""

from __future__ import annotations

import gc
import json
import logging
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import settings

from tests import measured, processes
from toolpost import known, process

# how long an example takes says more about the machine, and about being measured, than about us
settings.register_profile("without a clock", settings(deadline=None))
settings.load_profile("without a clock")
# what decides whether a change lands says the same of the same change; other runs look further
settings.register_profile("the same again", settings(deadline=None, derandomize=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test is a failed test")
    parser.addoption(
        "--covered", type=float, help="with --cov: of the core's lines and branches, so many %%"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        settings.load_profile("the same again")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job is begun
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """In a worker, pytest-cov begins to measure twice. The first would go on where the second
    pauses: what is not to be measured would be, all the same.
    """
    if hasattr(session.config, "workerinput") and (second := coverage.Coverage.current()):
        second.stop()
        while (first := coverage.Coverage.current()) is not None:
            first.stop()
        second.start()


ELSEWHERE = (
    *("backends/http/", "backends/mcp/", "builtin/", "bus/"),
    *("client/", "exporters/", "extensions/", "gateway/", "jobs/", "kit/", "ledger/", "sandbox/"),
    "sources/openapi/test_real_descriptions.py",
    *("test_approvals.py", "test_attacks.py", "test_docs.py", "test_flood.py", "test_killed.py"),
    *("test_redact.py", "test_rules.py", "test_texts.py"),
)
"""Tests of what is not the core, or of much at once: to measure them would double their time, and
count for the core what its own tests do not prove."""
CORE = ("builtin/test_beneath.py", "builtin/test_given.py")
"""What stands among these and is of the core all the same."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(here).as_posix()
        if place.startswith(ELSEWHERE) and not place.startswith(CORE):
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """A million things, for the whole run: no test that collects garbage has to look at them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def counting_its_own(request: pytest.FixtureRequest) -> None:
    """A test that counts processes counts none that another has left."""
    if hasattr(request.module, "descendants"):
        processes.note_others()


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """What one test made known as a secret is none in the next."""
    before = set(known.values)
    yield
    known.values.intersection_update(before)


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    """What one test did to our loggers is undone for the next."""
    loggers = [logging.getLogger(name) for name in ("toolpost", "toolpost.calls")]
    before = [(one.level, one.handlers[:]) for one in loggers]
    yield
    for one, (level, handlers) in zip(loggers, before, strict=True):
        one.setLevel(level)
        one.handlers[:] = handlers


COVERED = pytest.StashKey[list[str]]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With ``--covered``: where too little of the core was run, the tests have failed."""
    wanted = session.config.getoption("--covered")
    if wanted is None or exitstatus > 1 or hasattr(session.config, "workerinput"):
        return
    told = everything_measured()
    totals = told["totals"]
    lines = 100 * totals["covered_lines"] / totals["num_statements"]
    branches = 100 * totals["covered_branches"] / totals["num_branches"]
    rates = {file: about["summary"]["percent_covered"] for file, about in told["files"].items()}
    words = [f"{file}: {rate:.1f} %" for file, rate in rates.items() if rate < wanted]
    words.append(f"Of the core, {lines:.1f} % of the lines and {branches:.1f} % of the branches.")
    if min(lines, branches) < wanted:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        words.append(f"FAILED: {wanted:g} % of both are needed. See: .venv/bin/coverage report")
    session.config.stash[COVERED] = words


def everything_measured() -> Any:
    """Coverage's own report of what all processes have run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        of_all = coverage.Coverage()
        of_all.load()
        of_all.json_report(outfile=str(file))
        return json.loads(file.read_text(encoding="utf-8"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if COVERED in terminalreporter.config.stash:
        terminalreporter.section("run by the tests")
        for line in terminalreporter.config.stash[COVERED]:
            terminalreporter.write_line(line)


def _core(running: coverage.Coverage) -> str:
    """The package and the rooms in it that are reported on: to follow the others takes long."""
    package = Path(process.__file__).parent
    told = [str(one) for one in running.get_option("report:include") or ()]
    rooms = [one.removeprefix("src/toolpost/").removesuffix("*") for one in told]
    return ":".join((f"{package}/", *(room for room in rooms if room.endswith("/"))))


@pytest.fixture(scope="session", autouse=True)
def measuring() -> Iterator[list[str]]:
    """With ``--cov`` every keeper, and what runs in its forks, writes down where it has been.

    A test puts this list before a Python file of its own that it wants to be measured as well.
    """
    running = coverage.Coverage.current()
    if running is None:
        yield []
        return
    interpreter = process._interpreter
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "steps")
        record.touch()
        Path(folder).chmod(0o777)  # some children are another user's
        record.chmod(0o666)
        before = [measured.__file__, str(record), _core(running)]
        process._interpreter = lambda: [*interpreter(), *before]
        yield before
        process._interpreter = interpreter
        running.get_data().add_arcs(measured.steps(str(record)))
