"""What is confined runs as it should, sees what it was granted, and can be ended."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.processes import Watch, descendants, halt, innermost, running
from tests.sandbox.elsewhere import as_ordinary_user
from tests.sandbox.leftovers import groups_of
from tests.sandbox.running import FENCE, run, said, shell
from toolpost.errors import SetupError
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox._entry import SLICE, filled_in, held
from toolpost.sandbox.stem import Stem
from toolpost.sandbox.view import INNER, interpreter

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
INTERNAL = 1 << 31 | 1 << 32
"""Signals 32 and 33, which the C library keeps for itself."""


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with await Sandbox.open(state=str(tmp_path / "state")) as opened:
        yield opened


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    (tmp_path / "workspace").mkdir()
    return str(tmp_path / "workspace")


@pytest.mark.req("FM-7")
async def test_a_command_runs_cold_and_warm_alike(sandbox: Sandbox, workspace: str) -> None:
    confinement = Confinement(write=(workspace,), environment={"GREETING": "good day"})
    script = 'echo "$GREETING"; pwd; id -un; touch made; exit 3'
    expected = 3, f"good day\n{workspace}\ntool\n"
    assert await shell(sandbox, script, confinement) == expected
    await sandbox.warm_up(confinement)
    assert await shell(sandbox, script, confinement) == expected
    made = (Path(workspace) / "made").stat()
    assert made.st_uid == os.geteuid(), "what a tool writes belongs to the owner of the workspace"


@pytest.mark.parametrize("last", [196, 197])
async def test_how_many_descriptors_are_open_here_does_not_matter(last: int) -> None:
    """One that waits has its end of a socket under our number for it, until it has moved it."""
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < last:
        taken.append(os.dup(taken[0]))
    try:
        async with asyncio.timeout(FENCE):
            stem = await Stem.start(None)
            await stem.discard()
    finally:
        for number in taken:
            os.close(number)


async def test_a_program_has_the_variables_it_was_granted_and_a_few_that_are_the_same_for_all(
    sandbox: Sandbox,
) -> None:
    confinement = Confinement(environment={"A": "1"})
    for warm in (False, True):
        if warm:
            await sandbox.warm_up(confinement)
        _, text = await run(sandbox, ["env"], confinement)
        names = {line.partition("=")[0] for line in text.splitlines()}
        assert names - {"PWD"} == {"A", "PATH", "HOME", "LANG", "USER"}


async def test_nothing_is_seen_but_the_system_and_what_was_granted(
    sandbox: Sandbox, tmp_path: Path, workspace: str
) -> None:
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / "file").write_text("content")
    confinement = Confinement(read=(str(granted),), write=(workspace,))
    assert await shell(sandbox, f"ls {tmp_path}", confinement) == (0, "granted\nworkspace\n")
    assert await shell(sandbox, f"cat {granted}/file", confinement) == (0, "content")
    code, text = await shell(sandbox, f"touch {granted}/more", confinement)
    assert code != 0
    assert "Read-only" in text


@pytest.mark.req("FM-7")
async def test_git_reads_a_repository_that_it_may_only_read(
    sandbox: Sandbox, tmp_path: Path, workspace: str
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    repository.chmod(0o755)  # what others may read is shown as it is, with its owner
    message = ["-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "-qm", "works"]
    for words in (["init", "-q"], message):
        subprocess.run(["git", *words], cwd=repository, check=True)
    confinement = Confinement(read=(str(repository),), write=(workspace,))
    script = f"git -C {repository} log --format=%s && git clone -q {repository} copy && ls"
    assert await shell(sandbox, script, confinement) == (0, "works\ncopy\n")


async def test_a_private_folder_that_is_granted_is_seen_whole(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "file").write_text("content")
    (private / "file").chmod(0o600)
    confinement = Confinement(read=(str(private),))
    assert await shell(sandbox, f"cat {private}/file", confinement) == (0, "content")


async def test_a_single_file_can_be_granted(sandbox: Sandbox, tmp_path: Path) -> None:
    for name in ("granted", "changed", "other"):
        (tmp_path / name).write_text("content")
    granted, changed = str(tmp_path / "granted"), str(tmp_path / "changed")
    confinement = Confinement(read=(granted,), write=(changed,), working_dir="/tmp")
    script = f"ls {tmp_path}; cat {granted}; echo new > {changed}; echo new > {granted} || true"
    code, text = await shell(sandbox, script, confinement)
    assert (code, text.splitlines()[:2]) == (0, ["changed", "granted"])
    assert (tmp_path / "changed").read_text() == "new\n"
    assert (tmp_path / "granted").read_text() == "content"


async def test_the_state_folder_is_hidden_wherever_it_lies(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "audit").write_text("records")
    (tmp_path / "beside").write_text("")
    confinement = Confinement(read=(str(tmp_path),))
    code, text = await shell(sandbox, f"ls {tmp_path}; ls {tmp_path}/state", confinement)
    assert (code, text) == (0, "beside\nstate\n")


async def test_two_sandboxes_share_neither_their_temporary_files_nor_their_processes(
    sandbox: Sandbox,
) -> None:
    confinement = Confinement()
    first = await sandbox.spawn(["sh", "-c", "touch /tmp/mine; exec sleep 60"], confinement)
    code, text = await shell(sandbox, "ls /tmp; grep -sl sleep /proc/[0-9]*/comm", confinement)
    await first.kill()
    assert (code, text) == (1, "")


async def test_a_program_that_is_not_there_is_an_os_error(sandbox: Sandbox) -> None:
    confinement = Confinement()
    for warm in (False, True):
        if warm:
            await sandbox.warm_up(confinement)
        with pytest.raises(FileNotFoundError):
            await sandbox.spawn(["no-such-program"], confinement)


@pytest.mark.parametrize("warm", [False, True])
async def test_a_program_ignores_no_signal_and_hears_all_of_its_words(
    sandbox: Sandbox, warm: bool
) -> None:
    confinement = Confinement()
    if warm:
        await sandbox.warm_up(confinement)
    _, ignored = await shell(sandbox, "grep SigIgn /proc/self/status", confinement)
    assert int(ignored.split()[1], 16) & ~INTERNAL == 0
    if warm:
        await sandbox.warm_up(confinement)
    words = [f"{number}" * 100_000 for number in range(8)]
    counting = ["sh", "-c", 'for word; do echo "${#word}"; done', "sh", *words]
    assert await run(sandbox, counting, confinement) == (0, "100000\n" * 8)


async def test_one_who_stops_waiting_for_an_end_takes_it_from_nobody(sandbox: Sandbox) -> None:
    read, write = os.pipe()
    child = await sandbox.spawn(["cat"], Confinement(), stdin=read)
    os.close(read)
    impatient, patient = (asyncio.create_task(child.ended()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    os.close(write)
    async with asyncio.timeout(FENCE):
        assert (await patient).code == 0
        assert (await child.ended()).code == 0
        await child.wait()


async def test_descriptors_are_given_as_to_a_plain_child(sandbox: Sandbox) -> None:
    confinement = Confinement()
    script = "read line; echo out $line; echo err $line >&2; echo other $line >&{}"
    for warm in (False, True):
        if warm:
            await sandbox.warm_up(confinement)
        near, far = os.pipe()
        back, back_end = os.pipe()
        other, other_end = os.pipe()
        os.write(far, b"word\n")
        child = await sandbox.spawn(
            ["bash", "-c", script.format(other_end)],
            confinement,
            stdin=near,
            stdout=back_end,
            stderr=back_end,
            pass_fds=[other_end],
        )
        for number in (near, far, back_end, other_end):
            os.close(number)
        async with asyncio.timeout(FENCE):
            assert (await child.wait()).code == 0
        assert child.stdout is None
        assert os.read(back, 100) == b"out word\nerr word\n"
        assert os.read(other, 100) == b"other word\n"
        os.close(back)
        os.close(other)


async def test_a_descriptor_can_get_another_number_inside(sandbox: Sandbox) -> None:
    near, far = os.pipe()
    child = await sandbox.spawn(["sh", "-c", "echo word >&7"], Confinement(), pass_fds={far: 7})
    os.close(far)
    async with asyncio.timeout(FENCE):
        assert (await child.wait()).code == 0
    assert os.read(near, 100) == b"word\n"
    os.close(near)
    with pytest.raises(ValueError, match="map them"):
        await sandbox.spawn(["true"], Confinement(), pass_fds=[400])


async def test_its_own_end_is_told_before_all_is_cleared_away(sandbox: Sandbox) -> None:
    confinement = Confinement()
    await sandbox.warm_up(confinement)
    child = await sandbox.spawn(["sh", "-c", "sleep 60 & echo done; exit 4"], confinement)
    async with asyncio.timeout(FENCE):
        ending = await child.ended()
        assert (ending.code, said(child)) == (4, "done\n")
        assert (await child.wait()).code == 4


async def test_a_cold_end_is_heard_before_its_keepers_have_noticed(sandbox: Sandbox) -> None:
    near, far = os.pipe()
    child = await sandbox.spawn(["sh", "-c", "read line; exit 4"], Confinement(), stdin=near)
    os.close(near)
    below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
    keepers = [child.pid, *map(int, below.split())]
    for pid in keepers:
        halt(pid)
    try:
        os.close(far)
        async with asyncio.timeout(FENCE):
            assert (await child.ended()).code == 4
    finally:
        for pid in keepers:
            os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(FENCE):
        assert (await child.wait()).code == 4


TURN = """
import ctypes, os, struct
libc, about = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(56)
number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
assert libc.syscall(number, 0, about, 56, 0) == 0
print(struct.unpack_from("=IIQiIQ", about)[5], os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.parametrize("warm", [False, True])
async def test_a_program_takes_short_turns_and_has_no_other_priority(
    sandbox: Sandbox, warm: bool
) -> None:
    plain = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TURN, stdout=asyncio.subprocess.PIPE
    )
    turn, priority = (await plain.communicate())[0].decode().split()
    if turn == "0":
        pytest.skip("this kernel does not know of turns")
    confinement = Confinement()
    if warm:
        await sandbox.warm_up(confinement)
    code, text = await run(sandbox, [interpreter()[0], "-I", "-c", TURN], confinement)
    assert (code, text) == (0, f"{SLICE} {priority}\n")
    assert int(turn) > SLICE


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("kill -SEGV $$", None, signal.SIGSEGV),
        ("kill -KILL $$", None, signal.SIGKILL),
        ("exit 137", None, signal.SIGKILL),
        ("kill -HUP $$", 129, None),
        ("exit 129", 129, None),
        ("exit 255", 255, None),
    ],
)
async def test_an_end_by_a_signal_reads_the_same_cold_and_warm(
    sandbox: Sandbox, script: str, code: int | None, number: int | None
) -> None:
    confinement = Confinement()
    for warm in (False, True):
        if warm:
            await sandbox.warm_up(confinement)
        child = await sandbox.spawn(["sh", "-c", script], confinement)
        async with asyncio.timeout(FENCE):
            ending = await child.wait()
        assert (ending.code, ending.signal) == (code, number)


@pytest.mark.parametrize("warm", [False, True])
async def test_a_kill_leaves_nobody_behind(sandbox: Sandbox, warm: bool) -> None:
    confinement = Confinement()
    if warm:
        await sandbox.warm_up(confinement)
    script = "setsid sh -c 'sleep 600 & exec sleep 600' & trap '' TERM; echo up; exec sleep 600"
    child = await sandbox.spawn(["sh", "-c", script], confinement)
    assert child.stdout is not None
    up = asyncio.get_running_loop().create_future()
    child.stdout.on_data = lambda data: None if up.done() else up.set_result(data)
    async with asyncio.timeout(FENCE):
        assert said(child) or await up
        with Watch(descendants(child.pid)) as watch:
            assert len(watch.fds) >= 4
            await child.kill()
            assert watch.living() == set()


@pytest.mark.req("FM-9", "NA-7")
async def test_a_memory_bomb_ends_the_program_and_is_told(sandbox: Sandbox) -> None:
    confinement = Confinement(memory=64 * MIB)
    program = "x = [bytearray(b'x') * 2**24 for _ in range(20)]"
    child = await sandbox.spawn([interpreter()[0], "-I", "-S", "-c", program], confinement)
    async with asyncio.timeout(FENCE):
        ending = await child.wait()
    assert ending.code != 0
    if "cgroup" in sandbox.about["layers"]:
        assert sandbox.exceeded(child) == ("memory",)


QUEUED = """
import socket
listener, queued, kept = socket.create_server(("127.0.0.1", 0)), 0, []
while queued < 200 << 20 and len(kept) < 100:
    near = socket.create_connection(listener.getsockname())
    kept += [near, listener.accept()[0]]
    for one in kept[-2:]:
        one.setblocking(False)
        try:
            while queued < 200 << 20:
                queued += one.send(bytes(65536))
        except BlockingIOError:
            pass
print(queued >> 20)
"""


@pytest.mark.req("FM-9")
async def test_what_sockets_hold_is_memory_too(sandbox: Sandbox) -> None:
    if "cgroup" not in sandbox.about["layers"]:
        pytest.skip("without a cgroup it is bounded by the number of open files alone")
    argv = [interpreter()[0], "-I", "-S", "-c", QUEUED]
    child = await sandbox.spawn(argv, Confinement(memory=32 * MIB))
    async with asyncio.timeout(FENCE):
        ending = await child.wait()
    if ending.code == 0:  # version 1: no more is taken in; in 2 it is as with any memory
        assert int(said(child)) < 100
    else:
        assert sandbox.exceeded(child) == ("memory",)


@pytest.mark.req("FM-9")
async def test_without_a_cgroup_a_stack_is_no_way_around_the_memory(sandbox: Sandbox) -> None:
    lesser = await sandbox.lesser("I2") or sandbox
    async with lesser:
        assert await shell(lesser, "ulimit -Hs", Confinement()) == (0, "8192\n")


async def test_a_process_has_as_many_open_files_as_it_may_and_as_the_machine_allows(
    sandbox: Sandbox,
) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for wanted, had in ((1024, 1024), (300, 300), (allowed + 1, allowed)):
        confinement = Confinement(open_files=wanted)
        assert await shell(sandbox, "ulimit -Hn", confinement) == (0, f"{had}\n")


def test_too_few_open_files_are_named_as_what_is_missing(tmp_path: Path) -> None:
    script = (
        "import asyncio; from toolpost.sandbox import Confinement, Sandbox\n"
        "async def main():\n"
        "    async with await Sandbox.open() as one: one.check(Confinement())\n"
        "asyncio.run(main())"
    )
    within = ["sh", "-c", 'ulimit -n 150; exec "$@"', "sh", sys.executable, "-c", script]
    told = subprocess.run(within, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "a sandbox needs 256 open files, and this process may have 150" in told.stderr


@pytest.mark.parametrize(
    ("field", "values", "told"),
    [
        ("memory", (-1, 0, 2**24 - 1, 2**63, 1e9, "64MB", True), "at least 16777216 and at most"),
        ("file_size", (-1, 0, 2**16 - 1, 2**63, 1e6), "at least 65536 and at most"),
        ("processes", (-1, 0, 2**22, None, 8.0), "at least 1 and at most 4000000"),
        ("open_files", (-1, 255, 2**63, None, 1000.0, "512"), "at least 256 and at most"),
        ("cpus", (-1, 0, 0.005, float("nan"), float("inf"), "1"), "at least 0.01"),
    ],
)
async def test_a_bound_that_would_be_none_is_refused(
    sandbox: Sandbox, field: str, values: tuple[Any, ...], told: str
) -> None:
    for value in values:
        confinement = Confinement(**{field: value})
        with pytest.raises(SetupError, match=f"^{field} is .*{told}.* not {value!r}") as refused:
            sandbox.check(confinement)
        assert refused.value.at == (field,)
        with pytest.raises(SetupError):
            await sandbox.spawn(["true"], confinement)


@pytest.mark.parametrize("warm", [False, True])
async def test_the_least_and_the_most_that_may_be_asked_for_can_be_had(
    sandbox: Sandbox, warm: bool
) -> None:
    least = Confinement(memory=2**24, file_size=2**16, processes=1, open_files=256, cpus=0.01)
    most = Confinement(memory=2**62, file_size=2**62, open_files=2**62, cpus=10**9)
    if "cgroup" in sandbox.about["layers"]:  # else it is the machine that allows no more
        most = msgspec.structs.replace(most, processes=4_000_000)
    for confinement in (least, most):
        if warm:
            await sandbox.warm_up(confinement)
        assert await shell(sandbox, "echo good", confinement) == (0, "good\n")


async def test_a_sandbox_that_waits_is_not_used_once_its_folder_is_another(
    sandbox: Sandbox, workspace: str
) -> None:
    confinement = Confinement(write=(workspace,))
    await sandbox.warm_up(confinement)
    Path(workspace).rmdir()
    Path(workspace).mkdir()
    assert await shell(sandbox, "touch made", confinement) == (0, "")
    assert (Path(workspace) / "made").exists()


async def test_closing_ends_what_waits_and_leaves_no_group(tmp_path: Path) -> None:
    async with await Sandbox.open() as sandbox:
        await sandbox.warm_up(Confinement())
        below = descendants(os.getpid())
    with Watch(below) as watch:
        assert watch.living(within=10) == set()
    assert groups_of(os.getpid()) == []


@pytest.mark.req("NA-10")
async def test_a_folder_that_contains_something_precious_cannot_be_writable(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    home = os.path.realpath(Path.home())
    for path in ("/", home, os.path.dirname(home), str(tmp_path), str(tmp_path / "state")):
        with pytest.raises(SetupError):
            sandbox.check(Confinement(write=(path,)))


@pytest.mark.parametrize("path", ["/", "/proc", "/sys/kernel", "/dev", "a", "/tmp/../etc", "/no"])
async def test_a_path_that_no_sandbox_can_show_is_refused(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(SetupError):
        sandbox.check(Confinement(read=(path,)))


HIDDEN = "hunter2\0--ro-bind\0/\0/tmp"


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {"environment": {"A": HIDDEN}},
        {"environment": {"B": "", HIDDEN: ""}},
        {"environment": {"A=B": ""}},
        {"environment": {"": ""}},
        {"environment": {"A": "hunter2\ud800"}},
        {"working_dir": "/tmp\0--ro-bind\0/\0/tmp"},
        {"read": ("/usr\0--ro-bind\0/\0/tmp",)},
    ],
)
async def test_nothing_that_is_granted_can_be_an_option_of_the_sandbox(
    sandbox: Sandbox, given: dict[str, Any], warm: bool
) -> None:
    if warm:
        await sandbox.warm_up(Confinement())
    with pytest.raises(SetupError) as refused:
        await sandbox.spawn(["true"], Confinement(**given))
    with pytest.raises(SetupError):
        sandbox.check(Confinement(**given))
    if list(given.get("environment", ())) == ["A"]:
        assert "hunter2" not in refused.value.message, "it may be a secret"


def test_an_option_is_one_option() -> None:
    with pytest.raises(ValueError, match="NUL"):
        filled_in(["--setenv", "A", HIDDEN], [])


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("argv", [["echo", "a\0b"], ["echo", "a\ud800b"], [""], []])
async def test_words_that_no_program_can_be_given_are_refused(
    sandbox: Sandbox, argv: list[str], warm: bool
) -> None:
    if warm:
        await sandbox.warm_up(Confinement())
    with pytest.raises(OSError, match="a word of the command"):
        await sandbox.spawn(argv, Confinement())
    assert await shell(sandbox, "exit 3", Confinement()) == (3, "")


async def test_a_symlink_to_something_precious_is_seen_through(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("/proc")
    with pytest.raises(SetupError):
        sandbox.check(Confinement(read=(str(tmp_path / "link"),)))


async def test_a_link_laid_in_a_writable_folder_leads_no_grant_elsewhere(
    sandbox: Sandbox, workspace: str
) -> None:
    confinement = Confinement(write=(workspace,), read=(f"{workspace}/data",))
    (Path(workspace) / "data").mkdir()
    sandbox.check(confinement)
    await sandbox.warm_up(confinement)
    assert (await shell(sandbox, "rmdir data || mv data old", confinement))[0] != 0
    (Path(workspace) / "data").rmdir()
    (Path(workspace) / "data").symlink_to("/etc")
    for _ in range(2):
        with pytest.raises(SetupError):
            await sandbox.spawn(["true"], confinement)
        await sandbox.settled()  # nor does one wait that was made since


async def test_a_link_that_comes_and_goes_leads_no_grant_elsewhere(
    sandbox: Sandbox, tmp_path: Path, workspace: str
) -> None:
    secret, data = tmp_path / "secret", Path(workspace) / "data"
    for folder, word in ((secret, "secret"), (data, "public")):
        folder.mkdir()
        (folder / "file").write_text(word)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            data.rename(f"{workspace}/aside")
            data.symlink_to(secret)
            data.unlink()
            (Path(workspace) / "aside").rename(data)

    swapping = threading.Thread(target=swap)
    swapping.start()
    heard = []
    try:
        for number in range(40):
            once = Confinement(
                write=(workspace,), read=(str(data),), memory=64 * MIB + 4096 * number
            )
            try:
                heard.append((await shell(sandbox, f"cat {data}/file", once))[1])
            except (SetupError, OSError):
                heard.append("refused")
    finally:
        over.set()
        swapping.join()
    assert not [text for text in heard if text.startswith("secret")]


@pytest.mark.parametrize("link", ["last", "first"])
def test_what_was_looked_up_is_not_taken_hold_of_through_a_link(tmp_path: Path, link: str) -> None:
    (tmp_path / "real" / "last").mkdir(parents=True)
    os.close(held(str(tmp_path / "real" / "last")))
    (tmp_path / "first").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "real" / "last")
    path = tmp_path / ("real/link" if link == "last" else "first/last")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        held(str(path))


def waiting() -> set[int]:
    """The processes that wait in sandboxes of ours."""
    return innermost(os.getpid()) & set(running(INNER))


async def used(sandbox: Sandbox, confinement: Confinement, times: int) -> None:
    """So often at once, and again and again."""
    for _ in range(6):
        await asyncio.gather(*(shell(sandbox, "true", confinement) for _ in range(times)))
        await sandbox.settled()


async def test_what_is_used_at_once_waits_several_times_and_others_do_not(sandbox: Sandbox) -> None:
    await shell(sandbox, "true", Confinement())
    await sandbox.settled()
    assert waiting() == set(), "once is not enough"
    alone = Confinement(memory=64 * MIB)
    for _ in range(4):
        await shell(sandbox, "true", alone)
        await sandbox.settled()
    assert len(waiting()) == 1
    await used(sandbox, Confinement(memory=65 * MIB), 6)
    assert len(waiting()) == 1 + 4


async def test_what_is_warmed_up_waits_once_however_often_it_is_asked_for(sandbox: Sandbox) -> None:
    await asyncio.gather(*(sandbox.warm_up(Confinement()) for _ in range(3)))
    await sandbox.settled()
    assert len(waiting()) == 1


async def test_no_more_sandboxes_wait_than_there_is_room_for(sandbox: Sandbox) -> None:
    for number in range(10):
        await sandbox.warm_up(Confinement(memory=64 * MIB + 4096 * number))
    assert len(waiting()) == 8


async def test_what_nobody_uses_any_more_is_let_go(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    kept = Confinement(memory=65 * MIB)
    await sandbox.warm_up(kept)
    monkeypatch.setattr("toolpost.sandbox.ready._IDLE", 0.05)
    async with await Sandbox.open() as impatient:
        before = waiting()
        await used(impatient, Confinement(memory=64 * MIB), 3)
        with Watch(waiting() - before) as watch:
            assert await watch.gone(within=FENCE)
    assert waiting() == before, "the other had no reason to"


async def test_many_calls_at_once_all_get_their_own(sandbox: Sandbox) -> None:
    confinement = Confinement(memory=64 * MIB)
    found = await asyncio.gather(*(shell(sandbox, f"echo {n}", confinement) for n in range(8)))
    assert found == [(0, f"{n}\n") for n in range(8)]


GATEWAY = """
import asyncio, sys
from toolpost.sandbox import Confinement, Sandbox

async def main():
    sandbox = await Sandbox.open()
    await sandbox.warm_up(Confinement(egress=("example.org:443",)))
    children = [await sandbox.spawn(["sleep", "600"], Confinement()) for _ in range(3)]
    print("up", flush=True)
    await children[0].wait()

asyncio.run(main())
"""


async def test_when_the_gateway_is_killed_nothing_of_its_sandboxes_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        GATEWAY,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert gateway.stdout is not None
    async with asyncio.timeout(FENCE):
        assert await gateway.stdout.readline() == b"up\n"
        with Watch(descendants(gateway.pid)) as watch:
            assert len(watch.fds) >= 9
            gateway.kill()
            await gateway.wait()
            assert await watch.gone()
    assert Path("/proc/self/mounts").read_text() == mounts
    assert len([*tmp_path.iterdir()]) == 1, "the folder of its proxy"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with await Sandbox.open():  # the next one clears away what could not clear itself away
        assert groups_of(gateway.pid) == []
        assert [*tmp_path.iterdir()] == []


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("grant", ["read", "write"])
@pytest.mark.parametrize("part", ["", "audit", "audit/key"])
async def test_no_part_of_the_state_folder_is_granted(
    sandbox: Sandbox, tmp_path: Path, grant: str, part: str
) -> None:
    (tmp_path / "state" / "audit").mkdir(parents=True)
    (tmp_path / "state" / "audit" / "key").write_text("secret")
    with pytest.raises(SetupError, match=r"state folder|the audit's folder") as refused:
        sandbox.check(Confinement(**{grant: (str(tmp_path / "state" / part).rstrip("/"),)}))
    assert refused.value.at == (grant,)


async def test_a_name_that_no_file_can_have_is_not_there(sandbox: Sandbox) -> None:
    with pytest.raises(SetupError, match="does not exist"):
        sandbox.check(Confinement(read=("/" + "x" * 300,)))


FLIGHT = """
import os, socket, sys
near, far = socket.socketpair()
null = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
held = 0
try:
    for _ in range(100):
        pair = socket.socketpair()
        null.append(pair[0].detach()); null.append(pair[1].detach())
        there = socket.socket(fileno=os.dup(null[-1]))
        socket.send_fds(there, [b"x"], null[:200])
        held += 200
except OSError as fault:
    print(fault.errno, flush=True)
sys.stdin.read()
"""


def test_descriptors_that_one_tool_keeps_on_their_way_keep_no_other_from_starting(
    tmp_path: Path,
) -> None:
    script = f"""
import asyncio, errno, os, resource
from toolpost.sandbox import Confinement, Sandbox
from toolpost.sandbox.view import interpreter

async def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    async with await Sandbox.open() as sandbox:
        theirs, ours = os.pipe()
        argv = [interpreter()[0], "-I", "-S", "-c", {FLIGHT!r}]
        hog = await sandbox.spawn(argv, Confinement(), stdin=theirs)
        while not hog.stdout.tail:
            await asyncio.sleep(0.01)
        assert int(hog.stdout.tail) == errno.ETOOMANYREFS, hog.stdout.tail
        other = await sandbox.spawn(["echo", "fine"], Confinement(), stdin=theirs)
        await other.wait()
        print(other.stdout.tail.decode())
        os.close(ours)
        os.close(theirs)
        await hog.kill()

asyncio.run(main())
"""
    assert as_ordinary_user(script, home=tmp_path).strip() == "fine"
