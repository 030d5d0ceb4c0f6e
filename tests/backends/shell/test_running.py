"""Programs that run: their output, their end, their limits, what they are given."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends.shell.tools import SHOW, TEXT, executor, schema, shell
from tests.processes import Watch, running
from toolpost import Executor, Progress, Registry, Result, ToolSpec
from toolpost.backends.shell.backend import ShellBackend
from toolpost.contracts import Declared, Services
from toolpost.errors import ConfigError

pytestmark = pytest.mark.anyio


async def call(spec: Any, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
    name = spec.spec.name if isinstance(spec, Declared) else spec.name
    programs = options.pop("programs", None)
    tools = executor(spec) if programs is None else executor(spec, programs=programs)
    async with tools, asyncio.timeout(60):
        return await tools.execute(name, arguments or {}, **options)


def script(text: str, **options: Any) -> ToolSpec:
    return shell(["sh", "-c", text], **options)


# --- output ------------------------------------------------------------------------------------


def test_a_folder_of_programs_that_depends_on_where_one_stands_is_refused() -> None:
    with pytest.raises(ConfigError, match="'bin' in path has to be an absolute path"):
        ShellBackend(Services(settings={"shell": {"path": ["bin", "/usr/bin"]}}))


@pytest.mark.req("UX-7", "FM-7")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "one\ntwo"),
        ({"output": "text"}, "one\ntwo"),
        ({"output": "lines"}, ["one", "two"]),
    ],
)
async def test_what_a_program_prints_is_the_output(options: Any, expected: Any) -> None:
    result = await call(shell(["printf", "one\\ntwo\\n"], **options))
    assert result.output == expected, result.error


async def test_a_program_that_prints_nothing_gives_nothing() -> None:
    assert (await call(script("true"))).output == ""
    assert (await call(script("true", output="lines"))).output == []


async def test_json_is_read_and_held_against_the_output_schema() -> None:
    numbers = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    spec = shell("printf %s {text}", "text", output="json", output_schema=numbers)
    assert (await call(spec, {"text": '{"n": 12345678901234567890}'})).output == {
        "n": 12345678901234567890
    }
    for text in ('{"n": "x"}', '{"n":', "", "[" * 5000, '{"n": NaN}'):
        result = await call(spec, {"text": text})
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("OUTPUT_INVALID", "done")


async def test_what_is_not_utf_8_is_replaced_and_flagged() -> None:
    result = await call(shell(["printf", "a\\377b"]))
    assert result.output == "a\ufffdb"
    assert "not all UTF-8" in result.metadata.warnings[0]


async def test_a_lot_of_output_arrives_whole_from_its_first_byte() -> None:
    result = await call(script("i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done"))
    assert result.output == "\n".join(map(str, range(40000)))


# --- too much of it ----------------------------------------------------------------------------

FLOODS = {
    "a gigabyte": "head -c 1000000000 /dev/zero",
    "lines for ever": "yes",
    "one endless line": "cat /dev/zero",
    "errors for ever": "yes >&2",
    "a detached writer": "setsid cat /dev/zero & exec cat /dev/zero",
}


@pytest.mark.req("FM-9", "NA-10")
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_is_ended_at_the_cap_and_memory_stays_flat(flood: str) -> None:
    spec = script(flood, limits={"output": 1_000_000}, timeout=60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await call(ToolSpec.from_dict(spec.to_dict()))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("OUTPUT_TOO_LARGE", "unknown")
    assert "1,000,000 bytes" in result.error.message
    assert grown < 40, f"{grown} MiB for an output of 1"


@pytest.mark.parametrize(
    ("flood", "kept"),
    [
        ("yes", "y\n"),
        ("yes >&2", ""),
        ("cat /dev/zero", "\0"),
        ("head -c 9000 /dev/zero", "\0"),  # goes over it only as JSON
        ("yes ''", "\n"),
        ("yes é", "é\n"),
    ],
)
@pytest.mark.parametrize("output", ["text", "lines"])
async def test_a_spec_may_ask_for_what_there_is_until_the_cap(
    flood: str, kept: str, output: str
) -> None:
    spec = script(flood, output=output, truncate=True, limits={"output": 10_000}, timeout=60)
    result = await call(ToolSpec.from_dict(spec.to_dict()))
    assert result.error is None
    text = result.output if output == "text" else "\n".join(result.output)
    assert set(text) <= set(kept)
    assert bool(text) == bool(kept)
    assert "cut off" in result.metadata.warnings[0]


async def test_more_lines_than_an_output_may_have_are_cut_off_too() -> None:
    flood = "yes '' | head -n 1200000"
    spec = script(flood, output="lines", truncate=True, limits={"output": 8_000_000})
    result = await call(ToolSpec.from_dict(spec.to_dict()))
    assert result.error is None
    assert len(result.output) == 999_999
    assert "more than 999,999 lines" in result.metadata.warnings[0]


async def test_output_below_the_cap_is_not_touched_by_truncate() -> None:
    result = await call(script("echo x", truncate=True))
    assert (result.output, result.metadata.warnings) == ("x", ())


# --- how it ends -------------------------------------------------------------------------------

ENDINGS = {
    "1": {"ok": True},
    "2": {"error": "NOT_FOUND", "message": "There is no such pod."},
    "3": {"error": "UNAVAILABLE", "effects": "none", "retryable": False},
    "4": {"message": "Four."},
}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (2, ("NOT_FOUND", "There is no such pod.", "fix_args", "unknown", False)),
        (3, ("UNAVAILABLE", "The program ended with exit status 3: oh", "wait", "none", False)),
        (4, ("EXECUTION_ERROR", "Four.", "fix_args", "unknown", False)),
        (5, ("EXECUTION_ERROR", "The program ended with exit status 5: oh", "fix_args", "unknown",
             False)),
    ],
)  # fmt: skip
async def test_an_exit_status_means_what_the_table_says(status: int, expected: Any) -> None:
    spec = script(f"echo out; echo oh >&2; exit {status}", exit_codes=ENDINGS)
    error = (await call(spec)).error
    assert error is not None
    assert (error.code, error.message, error.remedy, error.effects, error.retryable) == expected
    assert error.details is not None
    assert error.details["exit_status"] == status


async def test_a_status_may_be_as_good_as_zero() -> None:
    assert (await call(script("echo no match; exit 1", exit_codes=ENDINGS))).output == "no match"


@pytest.mark.parametrize("ending", ["exit 143", "kill -TERM $$"])
async def test_a_status_that_reads_like_a_signal_means_what_the_table_says(ending: str) -> None:
    table = {"143": {"error": "CONFLICT", "message": "It was stopped."}}
    error = (await call(script(ending, exit_codes=table))).error
    assert error is not None
    assert (error.code, error.message) == ("CONFLICT", "It was stopped.")
    assert (await call(script(f"echo yes; {ending}", exit_codes={"143": {"ok": True}}))).success


async def test_what_it_said_last_is_bounded_and_harmless() -> None:
    result = await call(
        script(r"printf '\033]0;title\007\033[31mred\033[0m'; yes | head -c 200000 >&2; "
               r"printf '\033[31mlast\033[0m\n' >&2; exit 7")
    )  # fmt: skip
    assert result.error is not None
    assert "\x1b" not in result.error.message
    assert result.error.message.endswith("y\nlast")
    assert len(result.error.message) < 3000


async def test_without_errors_on_stderr_the_output_says_what_was_wrong() -> None:
    error = (await call(script("echo no such host; exit 1"))).error
    assert error is not None
    assert error.message == "The program ended with exit status 1: no such host"


@pytest.mark.parametrize(
    ("signal", "code", "said"),
    [("KILL", "RESOURCE_LIMIT", "ran out of memory"), ("SEGV", "EXECUTION_ERROR", "Segmentation")],
)
async def test_a_signal_is_told_apart_from_a_status(signal: str, code: str, said: str) -> None:
    error = (await call(script(f"kill -{signal} $$"))).error
    assert error is not None
    assert error.code == code
    assert said in error.message


# --- stopping it -------------------------------------------------------------------------------

TREE = "setsid sleep {0} & (sleep {0} &) ; trap '' TERM; sleep {0}; sleep {0}"


@pytest.mark.req("NA-7", "FM-9")
async def test_at_the_limit_the_whole_tree_is_killed() -> None:
    result = await call(script(TREE.format("611.5"), timeout=0.7))
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("TIMEOUT", "unknown")
    assert running("sleep\x00611.5") == []


async def test_a_cancelled_call_takes_the_whole_tree_with_it() -> None:
    begun = asyncio.Event()
    spec = script("echo begun; " + TREE.format("612.5"))
    async with executor(spec) as tools, asyncio.timeout(60):
        run = asyncio.create_task(tools.execute("it", on_progress=lambda _: begun.set()))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert running("sleep\x00612.5") == []


async def test_what_a_program_leaves_running_ends_with_it() -> None:
    result = await call(script("setsid sleep 613.5 >/dev/null 2>&1 & echo done"))
    assert result.output == "done"
    assert running("sleep\x00613.5") == []


async def test_fifty_calls_leave_no_process_and_no_descriptor_behind() -> None:
    spec = shell("printf %s {text}", "text", stdin="{text}")
    async with executor(spec) as tools, asyncio.timeout(60):
        await tools.execute("it", {"text": "0"})
        before = set(os.listdir("/proc/self/fd"))
        for start in range(0, 50, 10):
            calls = (tools.execute("it", {"text": str(start + i)}) for i in range(10))
            results = await asyncio.gather(*calls)
            assert [r.output for r in results] == [str(start + i) for i in range(10)]
        assert set(os.listdir("/proc/self/fd")) == before
    with Watch(running("printf\x00%s")) as left:
        assert await left.gone()


# --- progress ----------------------------------------------------------------------------------


async def test_a_listener_hears_whole_lines_as_they_come(tmp_path: Path) -> None:
    heard: list[Progress] = []
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = "echo one; echo half done >&2; read wait < $FIFO; printf 'two\nthr'; echo ee"

    def hear(said: Progress) -> None:
        heard.append(said)
        if said.message == "half done":  # the program waits for us: it has not ended
            with open(fifo, "w") as file:
                file.write("go\n")

    result = await call(script(text, environment={"FIFO": str(fifo)}), on_progress=hear)
    assert result.output == "one\ntwo\nthree"
    assert Progress(partial="one\n") in heard
    assert Progress(message="half done") in heard
    assert all(said.partial is None or said.partial.endswith("\n") for said in heard)
    assert "".join(said.partial or "" for said in heard) == "one\ntwo\nthree\n"  # none later on


async def test_a_talkative_program_is_not_told_line_by_line() -> None:
    heard: list[Progress] = []
    result = await call(script("yes | head -n 100000"), on_progress=heard.append)
    assert result.output is not None
    assert 0 < len(heard) < 1000


async def test_a_listener_that_fails_does_not_end_the_tool() -> None:
    def fail(_: Progress) -> None:
        raise RuntimeError("deaf")

    assert (await call(script("echo one"), on_progress=fail)).output == "one"


# --- the program -------------------------------------------------------------------------------


@pytest.mark.req("FM-7")
async def test_a_program_that_is_not_listed_is_refused_with_what_to_add() -> None:
    result = await call(shell("curl -- {url}", "url"), {"url": "x"})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
    assert result.error.message == (
        "'it' runs 'curl', which is not allowed here: add 'curl' to 'programs' in "
        '[backends.shell] of toolpost.toml, or in Python to settings={"shell": {"programs": '
        "[\"curl\"]}}; what it may change goes into 'write' there, a list of folders"
    )


@pytest.mark.req("FM-7")
@pytest.mark.parametrize("program", ["/bin/ls", "/usr/bin/../bin/ls", "LS", "ls "])
async def test_a_listed_name_allows_that_name_and_no_other_spelling(program: str) -> None:
    error = (await call(shell([program]))).error
    assert error is not None
    assert "not allowed here" in error.message


async def test_without_a_list_nothing_runs() -> None:
    error = (await call(shell("ls"), programs=())).error
    assert error is not None
    assert "not allowed here" in error.message


async def test_a_program_that_is_not_there_is_refused_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no-such-program").touch()  # where one stands is not looked at
    error = (await call(shell("no-such-program"), programs=["no-such-program"])).error
    assert error is not None
    assert error.message == (
        "'it': there is no program 'no-such-program' (looked in /usr/local/bin, /usr/bin, /bin)"
    )


async def test_a_script_that_may_not_be_executed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    error = (await call(shell([str(script)]), programs=[str(script)])).error
    assert error is not None
    assert error.message == f"'it': {script} may not be executed: chmod +x {script}"


async def test_a_script_whose_interpreter_is_not_there_is_not_healthy(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/shell -e\necho x\n")
    script.chmod(0o755)
    async with executor(shell([str(script)]), programs=[str(script)]) as tools:
        assert (await tools.health("it")).error == (
            f"{script} is to be run by /no/such/shell, which does not exist"
        )
        script.write_bytes(b"#!")
        assert (await tools.health("it")).healthy


@pytest.mark.req("NA-10")
async def test_the_callers_path_does_not_choose_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "pwd"
    trap.write_text("#!/bin/sh\necho trapped\n")
    trap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert (await call(shell("pwd"))).output == "/"


async def test_a_script_beside_its_spec_runs_if_its_path_is_listed(tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text("#!/bin/sh\necho hello $1\n")
    (tmp_path / "hello.sh").chmod(0o755)
    tool = Declared(shell("./hello.sh {who}", "who"), str(tmp_path))
    refused = await call(tool, {"who": "you"})
    assert refused.error is not None
    assert str(tmp_path / "hello.sh") in refused.error.message
    result = await call(tool, {"who": "you"}, programs=[str(tmp_path / "hello.sh")])
    assert result.output == "hello you"


async def test_a_file_that_is_no_program_is_no_fault_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\x7fno")
    (tmp_path / "odd").chmod(0o755)
    result = await call(shell([str(tmp_path / "odd")]), programs=[str(tmp_path / "odd")])
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
    assert str(tmp_path) not in result.error.message


async def test_arguments_that_no_command_line_can_hold_are_refused() -> None:
    result = await call(shell("printf %s {text}", "text"), {"text": "x" * 3_000_000})
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("VALIDATION_ERROR", "none")


# --- what it is given --------------------------------------------------------------------------


@pytest.mark.req("UX-7", "NA-10")
async def test_the_environment_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-of-the-parent")
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken-of-the-tool")
    spec = shell("env", environment={"LANG": "C", "MODE": "x=y"}, secrets=["GITHUB_TOKEN"])
    result = await call(spec)
    assert sorted(result.output.splitlines()) == [
        "GITHUB_TOKEN=t0ken-of-the-tool",
        "HOME=/nonexistent",
        "LANG=C",
        "MODE=x=y",
        "PATH=/usr/local/bin:/usr/bin:/bin",
    ]


async def test_a_secret_that_is_not_set_is_not_the_callers_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    async with executor(shell("env", secrets=["GITHUB_TOKEN"])) as tools, asyncio.timeout(60):
        result = await tools.execute("it")
        assert result.error is not None
        assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
        assert "GITHUB_TOKEN" not in result.error.message
        said = (await tools.health("it")).error
        assert said == "the secret GITHUB_TOKEN is not set: set the variable GITHUB_TOKEN"
        monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
        assert (await tools.health("it")).healthy


@pytest.mark.parametrize(
    ("stdin", "arguments", "expected"),
    [
        ("{text}", {"text": "-x\n@y\0"}, "-x\n@y\0"),
        ("<{text}>", {"text": "é"}, "<é>"),
        ("{data}", {"data": {"b": [1, None], "a": "é"}}, '{"a":"é","b":[1,null]}'),
        ("{text}", {}, ""),
        ("fixed {{}}", {}, "fixed {}"),
        ("{text}", {"text": "x" * 2_000_000}, "x" * 2_000_000),
    ],
)
async def test_a_value_can_be_read_from_standard_input(
    stdin: str, arguments: Any, expected: str
) -> None:
    spec = shell("cat", input_schema=schema(text=TEXT, data={"type": "object"}), stdin=stdin)
    assert (await call(spec, arguments)).output == expected


async def test_without_stdin_there_is_nothing_to_read() -> None:
    assert (await call(shell("cat"))).output == ""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("in/side", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "file").write_text("")
    return tmp_path


def where(place: Path, **options: Any) -> ToolSpec:
    return shell("pwd", input_schema=schema(folder=TEXT), write=[str(place / "in")], **options)


async def test_a_tool_works_where_its_spec_says(place: Path) -> None:
    assert (await call(where(place))).output == str(place / "in")
    fixed = where(place, working_dir=str(place / "in" / "side"))
    assert (await call(fixed)).output == str(place / "in" / "side")
    assert (await call(fixed, working_dir="/")).output == str(place / "in" / "side")
    beside = shell("pwd", read=["in"], working_dir="in/side")
    assert (await call(Declared(beside, str(place)))).output == str(place / "in" / "side")


@pytest.mark.parametrize(
    "options",
    [
        {"working_dir": "/srv"},
        {"working_dir": "/srv", "read": ["/srv2"]},
        {"working_dir": "{folder}"},
    ],
)
async def test_a_place_to_work_in_is_granted_or_refused(options: Any) -> None:
    error = (await call(shell("pwd", input_schema=schema(folder=TEXT), **options))).error
    assert error is not None
    assert error.message.endswith("name that in 'write' or 'read'")


@pytest.mark.parametrize(
    "asked", ["/", "..", "../out", "link", "file", "no", "", "a\0b", "in", "/proc/self/cwd", "~"]
)
async def test_a_caller_cannot_lead_a_tool_out_of_its_folders(place: Path, asked: str) -> None:
    result = await call(where(place, working_dir="{folder}"), {"folder": asked})
    if asked == "":
        assert result.output == str(place / "in")
        return
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("VALIDATION_ERROR", "none")
    assert result.error.message == "/folder: must be a folder inside one that this tool may use"


async def test_a_caller_may_choose_a_folder_inside(place: Path) -> None:
    inside = str(place / "in" / "side")
    spec = where(place, working_dir="{folder}")
    assert (await call(spec, {"folder": "side"})).output == inside
    assert (await call(spec, {"folder": inside})).output == inside
    assert (await call(spec)).output == str(place / "in")
    assert (await call(where(place), working_dir=inside)).output == inside


async def test_a_place_of_the_callers_that_was_not_granted_is_not_used(place: Path) -> None:
    result = await call(where(place), working_dir=str(place / "in" / "link"))
    assert result.output == str(place / "in")
    assert "works elsewhere" in result.metadata.warnings[0]
    assert (await call(shell("pwd"), working_dir="/tmp")).output == "/"


async def test_the_config_may_grant_folders_to_every_tool(place: Path) -> None:
    settings = {"shell": {"programs": ["pwd"], "write": ["in/side"], "read": ["out"]}}
    tool = Declared(shell("pwd"), str(place))
    async with Executor(Registry([tool]), settings=settings) as tools, asyncio.timeout(60):
        assert (await tools.execute("it")).output == str(place / "in" / "side")
        chosen = await tools.execute("it", working_dir=str(place / "out"))
        assert chosen.output == str(place / "out")


async def test_a_memory_limit_holds_for_the_program() -> None:
    spec = shell([sys.executable, "-c", "x = bytearray(10**9)"], limits={"memory": 300_000_000})
    result = await call(ToolSpec.from_dict(spec.to_dict()), programs=[sys.executable])
    assert result.error is not None
    assert "MemoryError" in result.error.message


# --- dry runs and health -----------------------------------------------------------------------


async def test_a_dry_run_shows_what_would_be_started(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    spec = shell(
        "rm -- {path}", "path", write=[str(place / "in")], secrets=["TOKEN"], stdin="{path}"
    )
    plan = (await call(spec, {"path": "file"}, dry_run=True, programs=["rm"])).metadata.plan
    assert plan is not None
    assert plan["argv"] == ["/usr/bin/rm", "--", "file"]
    assert plan["working_dir"] == str(place / "in")
    assert plan["environment"] == ["HOME", "LANG", "PATH", "TOKEN"]
    assert plan["stdin"] == "file"
    assert plan["isolation"] == "process"
    assert (place / "in" / "file").exists()


async def test_a_dry_run_refuses_what_a_run_would() -> None:
    result = await call(shell("ls {path}", "path"), {"path": "-rf"}, dry_run=True)
    assert result.error is not None
    assert result.error.code == "VALIDATION_ERROR"


async def test_a_tool_is_healthy_while_its_program_and_its_folders_are_there(
    tmp_path: Path,
) -> None:
    program, folder = tmp_path / "tool", tmp_path / "folder"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder.mkdir()
    spec = shell([str(program)], read=[str(folder)])
    async with executor(spec, programs=[str(program)]) as tools:
        assert (await tools.health("it")).healthy
        folder.rmdir()
        assert (
            await tools.health("it")
        ).error == f"{folder}, which the tool may use, does not exist"
        program.unlink()
        assert (await tools.health("it")).error == f"{program} cannot be run any more"


async def test_show_prints_its_words_as_the_payload_tests_need_it() -> None:
    assert (await call(shell([*SHOW, "a b", ""]))).output == "a b\0\0"
