"""Shell tools in their sandbox: what a spec does not grant, its program cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.shell.test_payloads import IMPOSSIBLE, LEADING, SYNTAX
from tests.backends.shell.tools import PROGRAMS, executor, shell
from tests.processes import running
from toolpost import Executor, Registry, Result, Runtime, ToolSpec
from toolpost.backends.shell.backend import ShellBackend
from toolpost.contracts import Services
from toolpost.errors import SetupError
from toolpost.plugins import SharedSandbox
from toolpost.result import Failure
from toolpost.sandbox import Confinement
from toolpost.testing import check_backend

pytestmark = pytest.mark.anyio

SEED = """
tools:
  - name: dangerous_delete
    description: Delete files
    tool_type: shell
    input_schema:
      type: object
      properties:
        path: {type: string}
    implementation_config:
      command: "rm {path}"
    metadata:
      is_dangerous: true
      requires_approval: true
"""


@pytest.fixture(autouse=True, scope="module")
def sandbox() -> None:
    async def check() -> None:
        shared = SharedSandbox()
        try:
            (await shared()).check(Confinement(tier=3, memory=100_000_000))
        finally:
            await shared.close()

    try:
        asyncio.run(check())
    except SetupError as missing:
        pytest.skip(f"no sandbox here: {missing}")


def confined(command: Any, *required: str, **options: Any) -> ToolSpec:
    return shell(command, *required, **{"isolation": None, **options})


async def call(spec: ToolSpec, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
    async with executor(spec) as tools, asyncio.timeout(60):
        return await tools.execute(spec.name, arguments or {}, **options)


@pytest.mark.req("NA-7", "NA-11")
async def test_a_tool_sees_the_folders_that_it_was_granted_and_no_others(tmp_path: Path) -> None:
    for name in ("mine", "shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        (tmp_path / name / "file").chmod(0o666)  # so that it is not the file that refuses
    grants = {"write": [str(tmp_path / "mine")], "read": [str(tmp_path / "shown")]}
    spec = confined(
        ["sh", "-c", 'cat "$1"; echo new > "$1"', "sh", "{path}"],
        "path",
        exit_codes={"1": {"ok": True}, "2": {"ok": True}},
        **grants,
    )
    outputs = {
        name: (await call(spec, {"path": str(tmp_path / name / "file")})).output
        for name in ("mine", "shown", "hidden")
    }
    assert outputs == {"mine": "mine", "shown": "shown", "hidden": ""}
    left = {name: (tmp_path / name / "file").read_text() for name in outputs}
    assert left == {"mine": "new\n", "shown": "shown", "hidden": "hidden"}


@pytest.mark.req("NA-7", "NA-10")
async def test_a_tool_has_no_network_and_nothing_of_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-of-the-parent")
    result = await call(confined(["sh", "-c", "cat /proc/net/route; env; pwd"]))
    assert result.output is not None, result.error
    assert "s3cret" not in result.output
    assert len([line for line in result.output.splitlines() if "\t" in line]) == 1  # the heading
    assert "HOME=/tmp" in result.output


async def test_words_input_place_and_secrets_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    (tmp_path / "side").mkdir()
    spec = confined(
        ["sh", "-c", 'pwd; echo "$1 $TOKEN"; cat', "sh", "{word}"],
        "word",
        stdin="{word}!",
        secrets=["TOKEN"],
        write=[str(tmp_path)],
    )
    result = await call(spec, {"word": "a  b"}, working_dir=str(tmp_path / "side"))
    assert result.output == f"{tmp_path / 'side'}\na  b t0ken\na  b!"


@pytest.mark.req("FM-9", "NA-7")
@pytest.mark.parametrize(
    "flood", ["yes", "cat /dev/zero", "yes >&2", "head -c 1000000000 /dev/zero"]
)
async def test_a_flood_is_ended_at_the_cap(flood: str) -> None:
    spec = ToolSpec.from_dict(
        confined(["sh", "-c", flood], limits={"output": 100_000}, timeout=60).to_dict()
    )
    result = await call(spec)
    assert result.error is not None
    assert result.error.code == "OUTPUT_TOO_LARGE"


async def test_a_lot_of_output_arrives_whole_from_its_first_byte() -> None:
    spec = confined(["sh", "-c", "head -c 3000000 /dev/zero"])
    async with executor(spec) as tools, asyncio.timeout(60):
        for _ in range(3):  # cold, and handed over to one that waits
            result = await tools.execute("it")
            assert result.error is None or result.error.code == "OUTPUT_TOO_LARGE"
    lines = confined(["sh", "-c", "i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done"])
    async with executor(lines) as tools, asyncio.timeout(60):
        for _ in range(3):
            assert (await tools.execute("it")).output == "\n".join(map(str, range(40000)))


async def test_a_script_may_open_its_output_by_name() -> None:
    spec = confined(["sh", "-c", "echo no > /dev/stderr; exit 3"])
    async with executor(spec) as tools, asyncio.timeout(60):
        for _ in range(3):  # cold, and handed over to one that waits
            error = (await tools.execute("it")).error
            assert error is not None
            assert error.message == "The program ended with exit status 3: no"
    spec = confined(["sh", "-c", "echo out > /dev/stdout"])
    assert (await call(spec)).output == "out"


@pytest.mark.req("NA-7", "FM-9")
async def test_at_the_limit_and_on_a_cancel_the_whole_tree_is_killed() -> None:
    tree = "echo begun; setsid sleep {0} & (sleep {0} &); trap '' TERM; sleep {0}; sleep {0}"
    result = await call(confined(["sh", "-c", tree.format("621.5")], timeout=1))
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("TIMEOUT", "unknown")
    assert running("sleep\x00621.5") == []
    begun = asyncio.Event()
    spec = confined(["sh", "-c", tree.format("622.5")])
    async with executor(spec) as tools, asyncio.timeout(60):
        run = asyncio.create_task(tools.execute("it", on_progress=lambda _: begun.set()))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert running("sleep\x00622.5") == []


async def test_a_signal_and_a_status_are_told_apart() -> None:
    broken = (await call(confined(["sh", "-c", "kill -SEGV $$"]))).error
    failed = (await call(confined(["sh", "-c", "echo no >&2; exit 3"]))).error
    assert broken is not None
    assert failed is not None
    assert (broken.code, failed.code) == ("EXECUTION_ERROR", "EXECUTION_ERROR")
    assert broken.message == "The program broke off (Segmentation fault)."
    assert failed.message == "The program ended with exit status 3: no"


@pytest.mark.parametrize("level", ["as it is", "I2"])
@pytest.mark.parametrize("end", ["kill -9 $$", "exit 137"])
async def test_what_was_killed_ran_out_of_memory_only_where_that_may_be(
    end: str, level: str
) -> None:
    shared = SharedSandbox()
    opened = await shared()
    if level == "I2":
        shared._sandbox = await opened.lesser("I2") or opened
    known = "cgroup" in shared.about["layers"]
    settings = {"shell": {"programs": list(PROGRAMS)}}
    registry = Registry([confined(["sh", "-c", f"echo no >&2; {end}"])])
    async with Executor(registry, settings=settings, provide={SharedSandbox: shared}) as tools:
        async with asyncio.timeout(60):
            errors = [(await tools.execute("it")).error for _ in range(3)]  # cold and warm
    await opened.close()
    await shared.close()
    for error in errors:
        assert error is not None
        if known:
            said = "The program was killed, or ended with exit status 137: no"
            assert (error.code, error.message) == ("EXECUTION_ERROR", said)
        else:
            assert error.code == "RESOURCE_LIMIT"
            assert "most likely" in error.message


async def test_a_status_that_reads_like_a_signal_means_what_the_table_says() -> None:
    spec = confined(["sh", "-c", "echo yes; exit 137"], exit_codes={"137": {"ok": True}})
    async with executor(spec) as tools, asyncio.timeout(60):
        for _ in range(3):  # made for the call, or waiting for it: the end is heard otherwise
            assert (await tools.execute("it")).output == "yes"


async def test_a_tool_works_in_a_granted_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "inside").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("real")
    fixed = confined(["pwd"], read=[str(link)], working_dir=str(link))
    assert (await call(fixed)).output == str(link)
    chosen = confined(["pwd"], "where", read=[str(link)], working_dir="{where}")
    for where in ("inside", str(link / "inside"), str(tmp_path / "real" / "inside")):
        assert (await call(chosen, {"where": where})).output == str(link / "inside")


async def test_a_word_that_no_command_line_can_hold_is_refused() -> None:
    spec = confined(["printf", "%s", "{word}"], "word")
    async with executor(spec) as tools, asyncio.timeout(60):
        for _ in range(3):  # made for the call, or waiting for it
            error = (await tools.execute("it", {"word": "x" * 200_000})).error
            assert error is not None
            assert (error.code, error.effects) == ("VALIDATION_ERROR", "none")


@pytest.mark.req("FM-9")
async def test_what_a_program_reads_is_not_its_own_to_fill() -> None:
    program = "cat; if echo more >&0; then echo filled; else echo refused; fi"
    result = await call(confined(["sh", "-c", program], "text", stdin="{text}"), {"text": "text "})
    assert result.output == "text refused"


@pytest.mark.req("FM-9", "NA-7")
async def test_a_program_that_eats_memory_meets_its_limit() -> None:
    hungry = confined(
        ["sh", "-c", "head -c 600000000 /dev/zero | tail -n 1 | wc -c; exit 1"],
        limits={"memory": 100_000_000},
    )
    error = (await call(ToolSpec.from_dict(hungry.to_dict()))).error
    assert error is not None
    # a cgroup tells that it was the memory; without one the program itself fails to get any
    told = error.code == "RESOURCE_LIMIT" and "memory" in error.message
    assert told or "600000000" not in error.message


@pytest.mark.req("FM-9", "NA-7")
@pytest.mark.parametrize(
    ("bound", "script"),
    [
        ("disk", "for n in $(seq 300); do head -c 5000000 /dev/urandom > $n; done"),
        ("files", "seq 200000 | xargs touch"),
    ],
)
async def test_a_program_that_fills_its_folder_is_ended(
    tmp_path: Path, bound: str, script: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    limits = {"disk": "8MB", "files": 200}
    spec = confined(["sh", "-c", script], write=[str(folder)], limits=limits)
    error = (await call(ToolSpec.from_dict(spec.to_dict()))).error
    assert error is not None
    assert (error.code, error.effects, error.details) == (
        "RESOURCE_LIMIT",
        "unknown",
        {"limit": bound},
    )
    assert f"(limits.{bound}) and was stopped" in error.message
    assert len([*folder.iterdir()]) < 200_000


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("grant", [{"write": ["/"]}, {"read": ["/proc"]}, {"read": ["/no/where"]}])
async def test_what_cannot_be_confined_is_refused_with_the_reason(grant: Any) -> None:
    spec = confined("ls", **grant)
    result = await call(spec)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("UNAVAILABLE", "none")
    assert grant.popitem()[1][0] in result.error.message
    async with executor(spec) as tools:
        assert not (await tools.health("it")).healthy


@pytest.mark.req("FM-7")
async def test_a_script_of_ones_own_is_shown_to_itself_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    script = tmp_path / "hello.sh"
    script.write_text('#!/bin/sh\nls "${0%/*}"; echo more >> "$0" || echo hello "$1"\n')
    script.chmod(0o755)
    (tmp_path / "beside").write_text("")
    spec = confined([str(script), "{who}"], "who")
    async with executor(spec, programs=[str(script)]) as tools, asyncio.timeout(60):
        assert (await tools.execute("it", {"who": "you"})).output == "hello.sh\nhello you"
        script.write_text("#!/bin/sh\necho changed\n")
        assert (await tools.execute("it", {"who": "you"})).output == "changed"


async def test_a_program_that_the_sandbox_cannot_start_has_done_nothing(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\x7fno")
    (tmp_path / "odd").chmod(0o755)
    spec = confined([str(tmp_path / "odd")], read=[str(tmp_path)])
    async with executor(spec, programs=[str(tmp_path / "odd")]) as tools, asyncio.timeout(60):
        result = await tools.execute("it")
    assert result.error is not None
    assert result.error.effects == "none" or result.error.code == "EXECUTION_ERROR"


@pytest.mark.req("UX-8", "UX-7")
async def test_the_yaml_of_the_seed_runs_as_it_stands_and_is_safe(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_text("")
    (tmp_path / "work" / "kept").write_text("")
    (tmp_path / "outside").write_text("")
    (tmp_path / "tools.yaml").write_text(SEED)
    (tmp_path / "toolpost.toml").write_text(
        'watch = false\nguards = ["approval"]\nextensions.approval.mode = "never"\n'
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
        '[backends.shell]\nprograms = ["rm"]\nwrite = ["work"]\n'
    )
    async with Runtime.open(tmp_path / "toolpost.toml") as tools, asyncio.timeout(60):
        results = {
            path: await tools.execute("dangerous_delete", {"path": path})
            for path in ("-rf", "kept; rm old", str(tmp_path / "outside"), "old")
        }
        missing = await tools.execute("dangerous_delete", {})
    assert {p: r.error and r.error.code for p, r in results.items()} == {
        "-rf": "VALIDATION_ERROR",
        "kept; rm old": "EXECUTION_ERROR",
        str(tmp_path / "outside"): "EXECUTION_ERROR",
        "old": None,
    }
    assert missing.error is not None
    assert missing.error.message == "/path: is needed"
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["kept"]
    assert (tmp_path / "outside").exists()


@pytest.mark.req("UX-7", "UX-8", "NA-10")
async def test_no_payload_makes_rm_of_the_seed_remove_another_file(tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("alive")
    spec = confined("rm {path}", "path", write=[str(tmp_path)])
    # nothing that names another folder: that the sandbox holds is not what is tried here
    payloads = [p for p in (*SYNTAX, *LEADING, *IMPOSSIBLE) if "/" not in p][::3]
    codes: set[str] = set()
    async with executor(spec, programs=["rm"]) as tools, asyncio.timeout(110):
        for payload in payloads:
            error = (await tools.execute("it", {"path": payload})).error
            assert error is not None, payload
            codes.add(error.code)
    assert codes == {"EXECUTION_ERROR", "VALIDATION_ERROR"}
    assert [p.name for p in tmp_path.iterdir()] == ["canary"]


async def test_backends_that_are_given_a_sandbox_share_it_and_leave_it_open() -> None:
    shared = SharedSandbox()
    services = Services(
        provide={SharedSandbox: shared}, settings={"shell": {"programs": list(PROGRAMS)}}
    )
    backend = ShellBackend(services)
    handle = backend.bind(confined("pwd"), None)
    assert (await handle.health()).healthy
    await backend.close()
    first = await shared()
    assert await shared() is first
    await shared.close()


@pytest.mark.req("UX-3", "UX-10")
@pytest.mark.parametrize("isolation", ["process", "sandbox"])
async def test_shell_keeps_the_contract_of_backends(isolation: Any) -> None:
    backend = ShellBackend(Services(settings={"shell": {"programs": ["printf", "sleep"]}}))
    report = await check_backend(
        backend,
        shell("printf %s -- {text}", "text", isolation=isolation),
        {"text": "hello"},
        "--hello",
        slow=(shell("sleep 60", name="slow", isolation=isolation), {}),
    )
    report.raise_if_failed()
    assert report.outcome("timeout") == report.outcome("cancellation") == "passed"


async def cold_and_warm(
    spec: ToolSpec,
    arguments: dict[str, Any],
    *,
    program: str,
    secret: Callable[[str], str | None] = lambda _: None,
) -> list[Failure]:
    """How calls fail: the last of them in a sandbox that has waited."""
    shared = SharedSandbox()
    tools = Executor(
        Registry([spec]),
        settings={"shell": {"programs": [program]}},
        secret=secret,
        provide={SharedSandbox: shared},
    )
    failures = []
    try:
        async with tools, asyncio.timeout(60):
            for _ in range(3):
                result = await tools.execute(spec.name, arguments)
                assert result.error is not None
                failures.append(result.error)
                await (await shared()).settled()
    finally:
        await shared.close()
    return failures


@pytest.mark.req("NA-11")
async def test_a_secret_opens_no_door(tmp_path: Path) -> None:
    secret = f"x\0--ro-bind\0/etc\0{tmp_path}\0--setenv\0B\0y"
    spec = confined(["ls", str(tmp_path)], write=[str(tmp_path)], secrets=["TOKEN"])
    for failure in await cold_and_warm(spec, {}, program="ls", secret=lambda _: secret):
        assert (failure.code, failure.effects) == ("UNAVAILABLE", "none")
        assert "'TOKEN'" in failure.message
        assert "ro-bind" not in failure.message


async def test_a_folder_that_cannot_be_entered_is_told_by_its_argument(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0)
    spec = confined("ls", "folder", write=[str(tmp_path)], working_dir="{folder}")
    for failure in await cold_and_warm(spec, {"folder": "closed"}, program="ls"):
        assert failure.code == "VALIDATION_ERROR"
        said = "/folder: must be a folder that can be entered (Permission denied)"
        assert failure.message == said


async def test_a_program_that_cannot_be_started_has_done_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere\n")
    program.chmod(0o755)
    spec = confined([str(program)], effects="once", write=[str(tmp_path)])
    for failure in await cold_and_warm(spec, {}, program=str(program)):
        assert (failure.code, failure.effects) == ("UNAVAILABLE", "none")
