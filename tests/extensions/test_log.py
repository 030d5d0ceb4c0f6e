"""One record for each call; no secret in any of them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.redact_corpus import SECRETS, made, texts
from toolpost import Caller, Executor, Registry, ToolFailed, environ, known, tool
from toolpost.clock import SystemClock
from toolpost.errors import ConfigError
from toolpost.extensions.log import ForMachines, Log, Redacting, setup

pytestmark = pytest.mark.anyio

TOKEN = "gh" + "p_" + made(36)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A log that is listened to, as JSON lines."""
    yield from _listening(io.StringIO())


@pytest.fixture
def terminal() -> Iterator[io.StringIO]:
    yield from _listening(Terminal())


def _listening(stream: io.StringIO) -> Iterator[io.StringIO]:
    """With a level of its own for each: that of one above is everybody's in this process."""
    logger, calls = logging.getLogger("toolpost"), logging.getLogger("toolpost.calls")
    before = logger.level
    handler = setup(stream)
    calls.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        calls.setLevel(logging.NOTSET)
        known.values.clear()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@tool(effects="read", tier=0)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effects="read")
async def fail(text: str) -> str:
    """Fail with it."""
    raise ToolFailed(f"cannot use {text}")


@tool(effects="read")
async def crash(text: str) -> str:
    """Break with it."""
    raise RuntimeError(f"internal: {text}")


@tool(effects="read")
async def hang() -> None:
    """Never come back."""
    await asyncio.get_running_loop().create_future()


@pytest.mark.req("NA-4")
async def test_every_call_is_one_record_with_its_fields(stream: io.StringIO) -> None:
    async with Executor(Registry([add]), observers=[Log()]) as tools:
        caller = Caller("key-1", user="ann", agent="helper")
        result = await tools.execute("add", {"a": 1, "b": 2}, caller=caller, session_id="s1")
        await tools.execute("add", {"a": "x"})
        await tools.execute("subtract", {})
    good, bad, unknown = lines(stream)
    assert good.pop("duration_ms") >= 0 and good.pop("time").endswith("Z")
    assert good.pop("text").startswith("add ok in ")
    assert good == {
        "level": "info",
        "logger": "toolpost.calls",
        "tool": "add",
        "call_id": result.metadata.call_id,
        "outcome": "ok",
        "caller": "key-1",
        "user": "ann",
        "agent": "helper",
        "session_id": "s1",
        "trail": ["log"],
        "arguments": {"a": 1, "b": 2},
    }
    assert (bad["outcome"], bad["level"]) == ("VALIDATION_ERROR", "info")
    assert (unknown["tool"], unknown["outcome"]) == ("subtract", "NOT_FOUND")


ON_ONE_LINE = [row for row in texts(SECRETS) if row[0] == "private_key" or "\n" not in row[2]]
"""A log is JSON: a manifest or a command over lines is not seen as one in it once more."""


@pytest.mark.req("NA-10", "NA-3")
@pytest.mark.parametrize(("kind", "value", "text"), ON_ONE_LINE)
async def test_a_secret_planted_in_a_call_is_in_no_log(
    kind: str, value: str, text: str, stream: io.StringIO
) -> None:
    @tool(effects="read", labels={"planted": text})
    async def labelled(text: str = "", key: Any = None) -> str:
        """Break with it in an exception behind an exception."""
        try:
            raise OSError(text)
        except OSError as exc:
            raise ValueError(f"url https://example.com/?q={text}") from exc

    async with Executor(Registry([fail, crash, labelled]), observers=[Log()]) as tools:
        for name in ("fail", "crash", "labelled", "nothing", text):
            await tools.execute(name, {"text": text, "key": {text: [text]}})
            await tools.execute(name, {"text": text})
            await tools.execute(name, {"text": 5, text: 1})
            await tools.execute(
                name, {"text": text}, caller=Caller(text, user=text), session_id=text
            )
    written = stream.getvalue()
    assert len(lines(stream)) > 15 and "Traceback" in written
    plain = "\n".join(str(line) for line in lines(stream)) + written
    assert value not in plain and value not in plain.replace("\\n", "\n")


async def test_a_secret_of_the_environment_is_in_no_log(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", "plain-words-9")
    environ.secret("ACME_KEY")
    async with Executor(Registry([crash]), observers=[Log()]) as tools:
        await tools.execute("crash", {"text": "plain-words-9"})
    assert "plain-words-9" not in stream.getvalue()
    assert "[redacted:known_secret]" in stream.getvalue()


async def test_terminal_escapes_in_a_call_do_nothing_to_the_terminal(terminal: io.StringIO) -> None:
    async with Executor(Registry([fail]), observers=[Log()]) as tools:
        await tools.execute("fail", {"text": "\x1b]8;;http://evil\x07x\u202e\U000e0041"})
    written = terminal.getvalue()
    assert "fail EXECUTION_ERROR in " in written and "\\x1b]8;;" in written
    assert not set(written) & set("\x1b\x07\u202e\U000e0041")
    assert not written.startswith("{")


async def test_trouble_is_a_warning_and_refusals_are_not(stream: io.StringIO) -> None:
    async with Executor(Registry([crash, hang, fail]), observers=[Log()]) as tools:
        await tools.execute("crash", {"text": "x"})
        await tools.execute("hang", timeout=0.01)
        await tools.execute("fail", {"text": "x"})
    told = [(r["outcome"], r["level"]) for r in lines(stream) if r["logger"] == "toolpost.calls"]
    assert told == [
        ("INTERNAL_ERROR", "warning"),
        ("TIMEOUT", "warning"),
        ("EXECUTION_ERROR", "info"),
    ]


async def test_a_cancelled_call_is_written_down_and_stays_cancelled(stream: io.StringIO) -> None:
    log = Log()
    async with Executor(Registry([hang]), observers=[log]) as tools:
        run = asyncio.ensure_future(tools.execute("hang"))
        await asyncio.wait((run,), timeout=0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [entry.code for entry in log.recent()] == ["CANCELLED"]
    assert [record["outcome"] for record in lines(stream)] == ["CANCELLED"]


async def test_where_nobody_listens_the_last_calls_are_kept_all_the_same() -> None:
    assert not logging.getLogger("toolpost.calls").isEnabledFor(logging.INFO)
    log = Log(keep=3)
    async with Executor(Registry([add, fail]), observers=[log]) as tools:
        for i in range(5):
            await tools.execute("add", {"a": i, "b": 0}, session_id=str(i))
        await tools.execute("fail", {"text": TOKEN})
        await tools.execute(TOKEN, {}, session_id=TOKEN)
    kept = log.recent()
    assert [(entry.tool, entry.code, entry.session_id) for entry in kept] == [
        ("add", None, "4"),
        ("fail", "EXECUTION_ERROR", None),
        ("[redacted:github_token]", "NOT_FOUND", "[redacted:github_token]"),
    ]
    assert all(entry.duration_ms >= 0 and entry.caller == "owner" for entry in kept)
    assert TOKEN not in str(kept)


async def test_arguments_may_be_left_out_of_the_records(stream: io.StringIO) -> None:
    class Around:
        clock = SystemClock()

    around: Any = Around()
    log = Log.from_config({"arguments": False, "keep": 0}, around)
    async with Executor(Registry([add]), observers=[log]) as tools:
        await tools.execute("add", {"a": 1, "b": 2}, dry_run=True)
    (record,) = lines(stream)
    assert "arguments" not in record and record["dry_run"] is True
    assert log.recent() == []
    with pytest.raises(ConfigError, match="keep"):
        Log.from_config({"keep": -1}, around)


async def test_what_is_not_json_does_not_break_the_log(stream: io.StringIO) -> None:
    async with Executor(Registry([add]), observers=[Log()]) as tools:
        await tools.execute("add", {"a": object(), "b": TOKEN.encode()})
    (record,) = lines(stream)
    assert record["arguments"]["b"] == f"[{len(TOKEN)} bytes]"


def test_the_filter_cleans_records_of_any_making() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(Redacting())
    logger = logging.getLogger("anybody")
    logger.propagate = False
    logger.addHandler(handler)
    logger.warning("%s and %s", TOKEN)  # the arguments do not fit
    logger.warning({"token": TOKEN})
    try:
        raise RuntimeError(TOKEN)
    except RuntimeError:
        logger.exception("broken: %s", TOKEN, stack_info=True)
    assert TOKEN not in stream.getvalue()
    assert stream.getvalue().count("[redacted:github_token]") >= 3


def test_machines_get_a_traceback_as_a_field_without_the_filter_too() -> None:
    try:
        raise RuntimeError("x")
    except RuntimeError as exc:
        record = logging.LogRecord(
            "a", logging.ERROR, "f", 1, "m", None, (type(exc), exc, exc.__traceback__)
        )
    written = json.loads(ForMachines().format(record))
    assert "RuntimeError: x" in written["traceback"]


PLAIN_PROGRAM = """
import asyncio, logging
from typing import Annotated
from toolpost import Executor, Registry, Secret, tool

@tool(effects="read")
async def ask(pw: Annotated[str, Secret("DB_PW")]) -> str:
    "Ask."
    raise RuntimeError("no login as root:" + pw + " \\x1b[2J")

async def main():
    async with Executor(Registry([ask])) as tools:
        await tools.execute("ask", {})
        {set_up}
        logging.getLogger("toolpost.other").error("with %s", "bob@" + "example.com")
        logging.getLogger("toolpost.other").error("cut %d", "bob@" + "example.com")
        logging.getLogger("toolpost.other").info("not loud enough")

asyncio.run(main())
"""


def _run(set_up: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PROGRAM.replace("{set_up}", set_up)],
        env=os.environ | {"DB_PW": "Zx9-Quasar-77-moth"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.req("FM-5")
def test_a_program_without_logging_gets_tracebacks_without_secrets() -> None:
    said = _run("")
    assert "no login as root:[redacted:known_secret] \\x1b[2J" in said and "moth" not in said
    assert "Traceback" in said and "\x1b" not in said
    assert said.endswith("with [redacted:email]\ntoolpost.other: a message that cannot be shown\n")


def test_a_program_that_sets_up_logging_hears_everything_once_and_as_it_is() -> None:
    said = _run("logging.basicConfig(format='own %(message)s')")
    assert said.count("own with bob@") == 1 and "with [redacted" not in said
