"""``analyze_logs``: what is found in a log, from where it may come, and what cannot harm it."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import lzma
import os
import re
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from tests.builtin.log_families import FAMILIES, generated
from toolpost import Executor, FunctionTool, Progress, Registry, Runtime, ToolFailed
from toolpost.builtin import logs
from toolpost.builtin.logs.analysis import Analysis, Times, bursts
from toolpost.builtin.logs.layout import Layout
from toolpost.builtin.logs.masking import alike, masked
from toolpost.builtin.logs.mining import REST, Miner
from toolpost.builtin.logs.moments import WAYS, Clock, written
from toolpost.builtin.logs.reading import LONGEST, Lines
from toolpost.builtin.logs.stacks import trace_in
from toolpost.builtin.logs.tool import _answer

pytestmark = pytest.mark.anyio


def made(folder: Path) -> Any:
    (tool,) = logs.tools(logs.Settings(roots=("logs",)), folder)
    return tool


async def analyzed(folder: Path, **arguments: Any) -> Any:
    async with Executor(Registry([made(folder)])) as executor:
        return await executor.execute("analyze_logs", arguments)


def log_in(folder: Path, name: str, data: bytes | str) -> Path:
    (folder / "logs").mkdir(exist_ok=True)
    path = folder / "logs" / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def analysis_of(text: str, **options: Any) -> Analysis:
    analysis = Analysis(**options)
    analysis.run(Lines.of_text(text))
    return analysis


SSHD = "\n".join(one.line for one in generated(FAMILIES[0], 500))


@pytest.mark.req("FM-17")
async def test_a_log_is_told_in_templates_levels_times_and_errors(tmp_path: Path) -> None:
    text = "".join(
        f"2026-03-14 09:{minute:02}:00,5 INFO  [main] org.app.Jobs: job {minute} of alice done\n"
        for minute in range(50)
    )
    text += "2026-03-14 09:50:00,250 ERROR [main] org.app.Jobs: disk /dev/sda1 is full\n"
    result = await analyzed(tmp_path, text=text)
    assert result.error is None, result.error
    output = result.output
    assert output["complete"] is True
    assert (output["lines"], output["records"], output["bytes"]) == (51, 51, len(text))
    assert output["levels"] == {"info": 50, "error": 1}
    assert output["time_range"] == {
        "start": "2026-03-14T09:00:00.500Z",
        "end": "2026-03-14T09:50:00.250Z",
        "seconds": 2999.75,
    }
    first, second = output["templates"]
    assert first["template"] == "job <*> of alice done"
    assert (first["id"], first["count"], first["level"]) == ("T1", 50, "info")
    assert (first["first_line"], first["last_line"]) == (1, 50)
    assert first["last_example"].endswith("job 49 of alice done")
    assert second["template"] == "disk <*> is full"
    assert [one["template_id"] for one in output["errors"]] == ["T2"]
    assert output["notes"] == []


async def test_the_config_brings_it(tmp_path: Path) -> None:
    log_in(tmp_path, "app.log", SSHD)
    config = tmp_path / "toolpost.toml"
    config.write_text(
        '[[sources]]\nkind = "builtin"\ntools = ["logs"]\n[sources.logs]\nroots = ["logs"]\n'
    )
    async with Runtime.open(config) as tools:
        result = await tools.execute("analyze_logs", {"path": "logs/app.log"})
        assert result.error is None, result.error
        assert result.output["format"] == "syslog"


# Where a log may come from ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "pack", "name"),
    [
        ("", lambda data: data, None),
        (".gz", gzip.compress, "gzip"),
        (".bz2", bz2.compress, "bzip2"),
        (".xz", lzma.compress, "xz"),
    ],
)
async def test_a_packed_file_says_what_the_plain_one_says(
    tmp_path: Path, ending: str, pack: Any, name: str | None
) -> None:
    log_in(tmp_path, f"app.log{ending}", pack(SSHD.encode()))
    result = await analyzed(tmp_path, path=f"app.log{ending}")
    text = await analyzed(tmp_path, text=SSHD)
    assert result.error is None, result.error
    assert result.output.pop("compression") == name
    text.output.pop("compression")
    assert result.output == text.output


async def test_zstd_is_read_where_python_can_and_explained_where_not(tmp_path: Path) -> None:
    if sys.version_info >= (3, 14):
        from compression import zstd

        log_in(tmp_path, "app.log.zst", zstd.compress(SSHD.encode()))
        result = await analyzed(tmp_path, path="app.log.zst")
        assert result.output["lines"] == 500
    else:
        log_in(tmp_path, "app.log.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 20)
        result = await analyzed(tmp_path, path="app.log.zst")
        assert "zstd -d" in result.error.message


async def test_a_file_of_several_packed_parts_is_read_to_its_end(tmp_path: Path) -> None:
    half = SSHD.encode()[: len(SSHD) // 2]
    rest = SSHD.encode()[len(half) :]
    log_in(tmp_path, "app.log.gz", gzip.compress(half) + gzip.compress(rest))
    result = await analyzed(tmp_path, path="app.log.gz")
    assert (result.output["lines"], result.output["complete"]) == (500, True)


async def test_a_damaged_packed_file_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    log_in(
        tmp_path, "app.log.gz", gzip.compress(os.urandom(10).hex().encode() + SSHD.encode())[:-900]
    )
    result = await analyzed(tmp_path, path="app.log.gz")
    assert result.error is None, result.error
    assert result.output["complete"] is False
    assert result.output["lines"] > 10
    assert "damaged" in result.output["notes"][0]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("none.log", "File not found: none.log"),
        ("../secret.log", "outside of the folders"),
        ("/etc/passwd", "outside of the folders"),
        ("link.log", "outside of the folders"),
        (".", "Is a directory"),
        ("pipe", "not a regular file"),
    ],
)
async def test_only_files_in_the_folders_for_logs_are_read(
    tmp_path: Path, path: str, says: str
) -> None:
    log_in(tmp_path, "app.log", SSHD)
    (tmp_path / "secret.log").write_text(SSHD)
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "secret.log")
    os.mkfifo(tmp_path / "logs" / "pipe")
    result = await analyzed(tmp_path, path=path)
    assert result.error is not None
    assert says in result.error.message


@pytest.mark.parametrize("arguments", [{}, {"text": "a", "path": "app.log"}])
async def test_text_or_a_path_is_asked_for(tmp_path: Path, arguments: dict[str, str]) -> None:
    result = await analyzed(tmp_path, **arguments)
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"
    assert result.error.message == "Give either text or path"


# Times, levels, layouts ------------------------------------------------------------------------

MOMENTS = {
    "iso": ["2026-03-14T09:26:53Z", "2026-03-14 09:26:53", "2026/03/14 09:26:53",
            "2026-03-14 10:26:53+01:00", "2026-03-14T09:26:53.000000000Z"],
    "iso with dots": ["2026-03-14-09.26.53.000000"],
    "basic iso": ["20260314T092653Z", "20260314-09:26:53:000"],
    "basic iso without zeros": ["20260314-9:26:53:0"],
    "web server": ["14/Mar/2026:09:26:53 +0000", "14/Mar/2026:04:26:53 -0500"],
    "c library": ["Sat Mar 14 09:26:53 2026", "Sat Mar 14 09:26:53.000000 2026"],
    "mail": ["Sat, 14 Mar 2026 09:26:53 GMT"],
    "day first": ["14 Mar 2026 09:26:53"],
    "syslog": ["Mar 14 09:26:53", "Mar 14 2026 09:26:53"],
    "american": ["3/14/2026 9:26:53 AM", "03/14/2026, 09:26:53"],
    "short year": ["26/03/14 09:26:53"],
    "german": ["14.03.2026 09:26:53"],
    "android": ["03-14 09:26:53.000", "03.14 09:26:53"],
    "klog": ["I0314 09:26:53.000000"],
    "compact": ["260314 092653"],
    "epoch": ["1773480413", "1773480413000", "1773480413.0"],
    "clock": ["09:26:53"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in MOMENTS.items() for text in texts]
)
def test_a_moment_is_read_in_whichever_way_it_is_written(name: str, text: str) -> None:
    now = datetime(2026, 3, 14, 20, tzinfo=UTC)
    way = next(way for way in WAYS if way.pattern.search(f"{text} something happened"))
    assert way.name == name
    found = way.pattern.search(f"{text} something happened")
    assert found is not None
    moment = Clock(way, now).read(found)
    assert moment is not None
    assert written(moment) == "2026-03-14T09:26:53Z"


def test_a_day_that_is_none_has_no_moment() -> None:
    way = WAYS[0]
    found = way.pattern.search("2026-02-30 09:26:53")
    assert found is not None
    assert Clock(way).read(found) is None


@pytest.mark.parametrize(
    "when", ["31/Dec/9999:23:59:59 -2300", "01/Jan/0001:00:00:00 +2300", "31/Dec/9999:23:59:60"]
)
async def test_a_day_at_the_end_of_all_years_harms_nothing(when: str, tmp_path: Path) -> None:
    line = f'10.0.0.1 - - [{when}] "GET / HTTP/1.1" 200 5\n'
    result = await analyzed(tmp_path, text=line * 20)
    assert result.error is None, result.error
    assert (result.output["time_range"], result.output["records"]) == (None, 20)


def test_a_log_without_years_is_of_the_last_twelve_months() -> None:
    way = next(way for way in WAYS if way.name == "syslog")
    found = way.pattern.search("Dec 31 23:59:59 host app: x")
    assert found is not None
    moment = Clock(way, datetime(2026, 3, 1, tzinfo=UTC)).read(found)
    assert moment is not None
    assert written(moment) == "2025-12-31T23:59:59Z"


LAYOUTS = {
    "json": ('{"ts": 1773480413.5, "level": "warn", "msg": "queue 7 is long"}', "warning"),
    "logfmt": ('time=2026-03-14T09:26:53Z level=error msg="queue 7 is long" n=3', "error"),
    "levels": ("[WARNING] queue 7 is long", "warning"),
    "application": ("2026-03-14 09:26:53,123 - app.queue - ERROR - queue 7 is long", "error"),
    "klog": ("E0314 09:26:53.000000    1234 queue.go:17] queue 7 is long", "error"),
    "syslog": ("Mar 14 09:26:53 host queue[17]: queue 7 is long", None),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_message_is_found_in_every_layout(name: str) -> None:
    line, level = LAYOUTS[name]
    layout = Layout([line] * 20)
    piece = layout.split(line)
    assert (layout.name, piece.message, piece.level) == (name, "queue 7 is long", level)
    assert (piece.moment is not None) == (name != "levels")


def test_what_a_container_wrote_is_read_inside_its_json() -> None:
    line = '{"log":"ERROR queue 7 is long\\n","stream":"stderr","time":"2026-03-14T09:26:53.1Z"}'
    piece = Layout([line] * 5).split(line)
    assert (piece.message, piece.level) == ("queue 7 is long", "error")
    assert piece.moment == pytest.approx(1773480413.1)


def test_requests_are_grouped_by_route_and_status() -> None:
    lines = [
        f'10.0.0.{n} - - [14/Mar/2026:09:26:{n:02} +0000] "GET /api/orders/{n}?x=1 HTTP/1.1" '
        f'{500 if n == 7 else 200} 12 "-" "curl/8"'
        for n in range(1, 50)
    ]
    analysis = analysis_of("\n".join(lines))
    assert [text for text, _ in analysis.templates] == [
        "GET /api/<*> -> 200",
        "GET /api/<*> -> 500",
    ]
    assert dict(analysis.levels) == {"info": 48, "error": 1}


# Bursts, new and rare --------------------------------------------------------------------------


async def test_a_burst_is_found_with_what_made_it(tmp_path: Path) -> None:
    lines = []
    for minute in range(60):
        lines += [f"2026-03-14 09:{minute:02}:{s:02} INFO tick {s}" for s in range(0, 60, 20)]
        if minute == 40:
            lines += [f"2026-03-14 09:40:30 ERROR no connection to 10.0.0.{n}" for n in range(200)]
    result = await analyzed(tmp_path, text="\n".join(lines))
    (burst,) = result.output["bursts"]
    assert burst["start"] <= "2026-03-14T09:40:30Z" < burst["end"]
    assert burst["lines"] >= 200
    made_by = {one["id"]: one["template"] for one in result.output["templates"]}
    assert [made_by[name] for name in burst["templates"]] == ["no connection to <*>"]


def test_an_even_log_has_no_burst() -> None:
    times = Times(1024)
    for second in range(0, 100_000, 7):
        times.add(1773480413 + second)
    assert bursts(times) == []
    assert len(times.counts) <= 1024


async def test_what_comes_up_late_is_new_and_what_comes_once_is_rare(tmp_path: Path) -> None:
    lines = [f"INFO request {n} served" for n in range(400)]
    lines[10] = "INFO started on port 80"
    lines[390:393] = ["ERROR cache is lost"] * 3
    result = await analyzed(tmp_path, text="\n".join(lines))
    assert result.output["new"] == ["T2: cache is lost"]
    assert result.output["rare"] == ["T3: started on port <*>"]


# Stack traces ----------------------------------------------------------------------------------

PYTHON = """Traceback (most recent call last):
  File "/srv/app/main.py", line {n}, in run
    work()
  File "/srv/app/jobs.py", line 12, in work
    return 1 / 0
ZeroDivisionError: division by zero
"""
PYTHON_CHAIN = """Traceback (most recent call last):
  File "a.py", line 1, in first
    x()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line {n}, in second
    y()
app.errors.NotThere: no 'a' here
"""
JAVA = """java.lang.IllegalStateException: cannot serve {n}
\tat org.app.Server.serve(Server.java:{n})
\tat org.app.Main.main(Main.java:12)
Caused by: java.io.IOException: disk {n} is full
\tat org.app.Disk.write(Disk.java:88)
\t... 2 more
"""
JAVASCRIPT = """TypeError: Cannot read properties of undefined (reading 'id')
    at Orders.find (/srv/app/orders.js:{n}:17)
    at async handle (/srv/app/server.js:8:3)
"""
GO = """panic: runtime error: index out of range [{n}] with length 3

goroutine 1 [running]:
main.pick(0xc000{n})
\t/srv/app/main.go:{n} +0x1d
main.main()
\t/srv/app/main.go:8 +0x20
exit status 2
"""
DOTNET = """System.InvalidOperationException: Sequence contains no elements
   at System.Linq.ThrowHelper.ThrowNoElementsException()
   at Shop.Orders.First(Int32 id) in C:\\shop\\Orders.cs:line {n}
"""
TRACES = {
    "python": (PYTHON, "ZeroDivisionError", "division by zero", "work (jobs.py)"),
    "python ": (PYTHON_CHAIN, "app.errors.NotThere", "no 'a' here", "second (b.py)"),
    "java": (JAVA, "java.io.IOException", "disk 5 is full", "org.app.Disk.write (Disk.java)"),
    "javascript": (
        JAVASCRIPT,
        "TypeError",
        "Cannot read properties of undefined (reading 'id')",
        "Orders.find (orders.js)",
    ),
    "go": (
        GO,
        "panic",
        "runtime error: index out of range [5] with length 3",
        "main.pick (main.go)",
    ),
    "dotnet": (
        DOTNET,
        "System.InvalidOperationException",
        "Sequence contains no elements",
        "System.Linq.ThrowHelper.ThrowNoElementsException()",
    ),
}


@pytest.mark.parametrize("language", TRACES)
def test_a_stack_trace_says_what_failed_and_where(language: str) -> None:
    text, error, said, frame = TRACES[language]
    trace = trace_in(text.format(n=5))
    assert trace is not None
    assert (trace.language, trace.error, trace.said, trace.frames[0]) == (
        language.strip(),
        error,
        said,
        frame,
    )


@pytest.mark.parametrize("language", TRACES)
async def test_stack_traces_are_grouped_with_the_error_they_belong_to(
    tmp_path: Path, language: str
) -> None:
    text = "".join(
        f"2026-03-14 09:26:{n:02} INFO  app.jobs: job {n} begins\n"
        f"2026-03-14 09:26:{n:02} ERROR app.jobs: job {n} failed\n"
        + TRACES[language][0].format(n=n)
        for n in range(10, 30)
    )
    result = await analyzed(tmp_path, text=text)
    (error,) = result.output["errors"]
    assert (error["template"], error["count"]) == ("job <*> failed", 20)
    (stack,) = error["stacks"]
    assert (stack["language"], stack["count"]) == (language.strip(), 20)
    assert result.output["template_count"] == 2  # no line of a trace is taken for a message


async def test_a_stack_trace_alone_is_an_error_too(tmp_path: Path) -> None:
    result = await analyzed(tmp_path, text=PYTHON.format(n=3) * 3)
    (error,) = result.output["errors"]
    assert error["template"] == "ZeroDivisionError: division by zero"
    assert error["stacks"][0]["count"] == 3


def test_a_stack_trace_inside_json_is_found() -> None:
    import json

    lines = [
        json.dumps({"time": "2026-03-14T09:26:53Z", "level": "error", "msg": "failed",
                    "stack": JAVASCRIPT.format(n=n)})
        for n in range(3)
    ]  # fmt: skip
    ((_, kept),) = analysis_of("\n".join(lines)).templates
    (stack,) = kept.stacks.values()
    assert (stack.trace.language, stack.count) == ("javascript", 3)


# Large, long, hostile --------------------------------------------------------------------------


async def test_how_far_it_is_is_told_on_the_way(tmp_path: Path) -> None:
    path = log_in(tmp_path, "big.log", (SSHD + "\n") * 100)
    told: list[Progress] = []
    async with Executor(Registry([made(tmp_path)])) as executor:
        result = await executor.execute(
            "analyze_logs", {"path": "big.log"}, on_progress=told.append
        )
    assert result.error is None
    assert told
    assert told[-1].done == told[-1].total == path.stat().st_size


def test_what_there_is_no_time_for_is_said_to_be_missing() -> None:
    analysis = analysis_of((SSHD + "\n") * 20, until=monotonic())
    assert analysis.complete is False
    assert 0 < analysis.lines < 10_000


async def test_a_log_that_takes_too_long_is_answered_in_part_and_in_time(tmp_path: Path) -> None:
    log_in(tmp_path, "big.log", (SSHD + "\n") * 4000)
    tool = made(tmp_path)
    spec = msgspec.structs.replace(tool.spec, timeout=6.0)
    tool = FunctionTool(tool.function, spec, tool.signature)
    async with Executor(Registry([tool])) as executor:
        await executor.execute("analyze_logs", {"text": "warm"})
        begun = monotonic()
        result = await executor.execute("analyze_logs", {"path": "big.log"})
        took = monotonic() - begun
    assert result.error is None, result.error
    assert took < 30
    if not result.output["complete"]:  # a machine may be fast enough for all of it
        assert result.output["notes"][0].startswith("Stopped for lack of time after ")


async def test_who_has_little_time_gets_what_can_be_read_in_it(tmp_path: Path) -> None:
    log_in(tmp_path, "big.log", (SSHD + "\n") * 4000)
    async with Executor(Registry([made(tmp_path)])) as executor:
        await executor.execute("analyze_logs", {"text": "warm"})
        result = await executor.execute("analyze_logs", {"path": "big.log"}, timeout=2)
    assert result.error is None, result.error
    assert result.output["complete"] is False
    assert result.output["notes"][0].startswith("Stopped for lack of time after ")
    assert result.metadata.warnings == [
        "There was no time for all of the log: this is what was read by then."
    ]


def test_millions_of_lines_take_no_more_memory_than_thousands() -> None:
    def peak(times: int) -> int:
        block = (SSHD + "\n").encode()

        class Endless:
            left = times

            def read(self, size: int) -> bytes:
                self.left -= 1
                return block if self.left >= 0 else b""

        tracemalloc.start()
        try:
            analysis = Analysis()
            analysis.run(Lines(Endless()))  # type: ignore[arg-type]
            assert analysis.lines == 500 * times
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(60) < peak(20) + 2_000_000


def test_as_many_kinds_of_messages_as_lines_are_counted_together_in_the_end() -> None:
    import random

    r = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    miner: Miner[Any] = Miner(_Count, most=200)
    for _ in range(5000):
        words = ["".join(r.choices(letters, k=6)) for _ in range(r.randrange(3, 9))]
        miner.tally(" ".join(words)).count += 1
    found = list(miner.close())
    assert len(found) <= 201
    assert sum(one.count for _, one in found) == 5000
    assert found[-1][0] == REST


class _Count:
    def __init__(self) -> None:
        self.count = 0

    def absorb(self, other: _Count) -> None:
        self.count += other.count


async def test_a_bomb_of_a_packed_file_is_read_no_further_than_allowed(tmp_path: Path) -> None:
    bomb = gzip.compress(b"INFO nothing to see 1\n" * 3_000_000)
    assert len(bomb) < 500_000
    log_in(tmp_path, "bomb.gz", bomb)
    (tool,) = logs.tools(logs.Settings(roots=("logs",), most_bytes=2_000_000), tmp_path)
    async with Executor(Registry([tool])) as executor:
        result = await executor.execute("analyze_logs", {"path": "bomb.gz"})
    assert result.error is None, result.error
    assert result.output["bytes"] < 4_000_000
    assert result.output["complete"] is False
    assert result.output["notes"][0].startswith("Only the first ")


async def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    result = await analyzed(tmp_path, text="x" * 3_000_000 + "\nINFO next line\n")
    assert result.output["lines"] == 2
    assert "longer than" in result.output["notes"][0]
    assert len(result.output["templates"][0]["template"]) <= 500


async def test_binary_data_is_refused_with_what_to_do(tmp_path: Path) -> None:
    log_in(tmp_path, "core", b"\x7fELF" + os.urandom(50_000))
    result = await analyzed(tmp_path, path="core")
    assert result.error is not None
    assert "classify_data" in result.error.message
    log_in(tmp_path, "a.zip", b"PK\x03\x04" + os.urandom(100))
    result = await analyzed(tmp_path, path="a.zip")
    assert "unpack it" in result.error.message


async def test_a_hole_in_a_log_is_passed_over(tmp_path: Path) -> None:
    path = log_in(tmp_path, "app.log", b"")
    with path.open("r+b") as file:
        file.seek(50_000_000)  # as copying and truncating leaves it
        file.write(SSHD.encode())
    result = await analyzed(tmp_path, path="app.log")
    assert result.error is None, result.error
    assert (result.output["lines"], result.output["format"]) == (500, "syslog")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
async def test_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    text = "2026-03-14 09:26:53 INFO café is öpen\n" * 20
    log_in(tmp_path, "app.log", text.encode(encoding))
    result = await analyzed(tmp_path, path="app.log")
    assert [one["template"] for one in result.output["templates"]] == ["café is öpen"]


HOSTILE = [
    "a" * LONGEST, "1" * LONGEST, "<" * LONGEST, "." * LONGEST, "a." * (LONGEST // 2),
    "user " * 1600, "a://" * 2000, "[" * LONGEST, "(" * LONGEST, " " * LONGEST + "x", "=" * LONGEST,
    "\tat " * 2000, "at a(" * 1600, "Traceback (most recent call last):" * 200,
    "A" * 4000 + "Error",
    "Error" * 1600, "panic: " * 1000, "\x00" * 100, "\ud800", "{" * 4000, '{"a":' * 1000,
    "2026-03-14 " * 700, "Mar 14 " * 1000, '"' * LONGEST, "key=" * 2000, 'k="' + "\\" * 8000,
    "  File \"" + "x" * 8000, "<*>" * 2700, "ser=" * 2000, "Sun Jul " * 1000, "x - " * 2000,
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: repr(line[:8]))
def test_no_line_takes_long(line: str) -> None:
    text = "\n".join([line] * 10 + [f"2026-03-14 09:26:53 INFO {line}"] * 10)
    begun = process_time()
    analysis_of(text)
    assert process_time() - begun < 5


PIECES = [
    "2026-03-14 09:26:53,120 ",
    "Mar 14 09:26:53 host app[7]: ",
    "31/Dec/9999:23:59:59 -1200",
    "\n",
    "\r\n",
    '1.2.3.4 - - [14/Mar/2026:09:26:53 +0000] "GET / HTTP/1.1" 200 5\n',
    '{"ts": 1e300, "msg": ',
    '"x"}\n',
    "Traceback (most recent call last):\n",
    '  File "x.py", line 1, in f\n',
    "ValueError: x\n",
    "\tat a.B.c(B.java:1)\n",
    "Caused by: x.YException\n",
    "panic: x\n",
    "goroutine 1 [running]:\n",
    "a=1 b=2 c=3\n",
    "ERROR ",
    "|",
    "\x1b[31m",
    "<*>",
]


@hypothesis_given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join))
def test_any_text_is_a_log(text: str) -> None:
    source = Lines.of_text(text)
    analysis = Analysis()
    try:
        analysis.run(source)
    except ToolFailed as error:
        assert error.message.startswith("This is binary data")
        return
    answer = _answer(analysis, source, 20)
    assert sum(kept.count for _, kept in analysis.templates) == answer["records"]
    assert msgspec.json.encode(answer)


@hypothesis_given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join),
    st.integers(0, 9),
)
def test_which_digits_a_message_has_says_nothing(text: str, digit: int) -> None:
    others = re.sub("[0-9]", str(digit), text)
    assert alike(others) == alike(text)
    assert masked(others) == masked(text)
    assert not re.search("[0-9]", masked(text))


@pytest.mark.parametrize("block", [b"x" * 70_000, b"one line\n", b"\n"])
def test_a_log_of_few_lines_or_of_none_is_left_when_the_time_is_up(block: bytes) -> None:
    class Endless:
        reads = 0

        def read(self, size: int) -> bytes:
            self.reads += 1
            assert self.reads < 10, "it looks at the clock"
            return block

    analysis = Analysis(until=monotonic())
    analysis.run(Lines(Endless()))  # type: ignore[arg-type]
    assert not analysis.complete


def test_a_small_file_that_unpacks_to_a_large_log_is_not_taken_for_read() -> None:
    packed = gzip.compress(b"x" * 100_000_000)
    source = Lines(io.BytesIO(packed), size=len(packed))
    analysis = Analysis(until=monotonic())
    analysis.run(source)
    assert not analysis.complete
    assert source.unpacked < 10_000_000


def test_words_that_go_with_each_other_in_any_way_are_values() -> None:
    states = ("NEW", "READY", "RUNNING", "DONE")
    moves = [f"the task moved from {one} to {other}" for one in states for other in states]
    assert [text for text, _ in analysis_of("\n".join(moves)).templates] == [
        "the task moved from <*> to <*>"
    ]
    fixed = ("disk one is slow now", "link two is down now", "node six is full now") * 3
    assert len(analysis_of("\n".join(fixed)).templates) == 3, "they do not go with each other"


def test_what_differs_is_a_value_and_what_says_something_is_not() -> None:
    for text, plain in {
        "link eth0 up 100Mbps": "link <*> up <*>",
        "GET https://example.com/a?b=c failed": "GET <*> failed",
        "host db.example.com is down": "host <*> is down",
        "wrote /var/lib/x/y in 3ms": "wrote <*> in <*>",
        "user=alice logged in": "user=<*> logged in",
        "1, 2, 3 and 4": "<*> and <*>",
        "stored (size 2.3 KB, free 9 MB)": "stored (size <*>, free <*>)",
        "stored (size 411 B, free 9 MB)": "stored (size <*>, free <*>)",
        "unit FE:F2:AB:CD:CC:EA:BF:DD:EE:E9:BF:FA is gone": "unit <*> is gone",
        "slot<0> took <1 sec": "slot<<*>> took <*>",
        "state changed from UP to DOWN": "state changed from UP to DOWN",
    }.items():
        assert masked(text) == plain


async def test_a_call_that_is_given_up_ends(tmp_path: Path) -> None:
    log_in(tmp_path, "big.log", (SSHD + "\n") * 2000)
    async with Executor(Registry([made(tmp_path)])) as executor:
        run = asyncio.ensure_future(executor.execute("analyze_logs", {"path": "big.log"}))
        await asyncio.sleep(0)
        run.cancel()
        done, _ = await asyncio.wait((run,), timeout=30)
        assert done
