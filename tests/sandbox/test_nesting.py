"""What is only to be read stays so where what is around it can be written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.sandbox.elsewhere import IS_ROOT, NOBODY, as_ordinary_user
from tests.sandbox.running import run, shell
from toolpost.errors import MissingPart
from toolpost.sandbox import Confinement, Sandbox, landlock
from toolpost.sandbox.nesting import Placed, placed
from toolpost.sandbox.view import interpreter

pytestmark = pytest.mark.anyio

# Each way that leads around a mount, if there is one; argument: the writable folder.
WAYS = """
import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def exchange(one, other):
    os.makedirs(other, exist_ok=True)
    if libc.renameat2(-100, one.encode(), -100, other.encode(), 2):
        raise OSError(ctypes.get_errno(), "")

held = os.open("a/b", os.O_PATH)
ways = {
    "write": lambda: open("a/b/c/secret", "w"),
    "write by a descriptor": lambda: os.open("c/secret", os.O_WRONLY, dir_fd=held),
    "write from above": lambda: open("a/../a/b/c/secret", "w"),
    "move it": lambda: os.rename("a/b/c", "a/b/d"),
    "move what it is in": lambda: os.rename("a/b", "a/d"),
    "move the outermost": lambda: os.rename("a", "d"),
    "swap it": lambda: exchange("a/b/c", "a/b/d"),
    "swap what it is in": lambda: exchange("a/b", "d"),
    "swap the outermost": lambda: exchange("a", "d"),
    "cover the outermost": lambda: os.rename("d", "a"),
    "remove it": lambda: os.rmdir("a/b/c"),
    "link a file out": lambda: os.link("a/b/c/secret", "a/b/linked"),
    "link an open file out": lambda: os.link(
        f"/proc/self/fd/{os.open('a/b/c/secret', os.O_RDONLY)}", "linked", follow_symlinks=True),
    "move a file out": lambda: os.rename("a/b/c/secret", "secret"),
    "open it again": lambda: os.open(
        f"/proc/self/fd/{os.open('a/b/c/secret', os.O_RDONLY)}", os.O_RDWR),
}
for name, way in ways.items():
    try:
        way()
    except OSError:
        continue
    print(name)
"""
# Two calls: the first moves, the second writes; both with the same grants.
TWICE = """
import asyncio, json, os, sys
from toolpost.sandbox import Confinement, Sandbox

async def main(folder):
    tree = os.path.join(folder, "tree")
    os.makedirs(f"{tree}/a/b/c")
    open(f"{tree}/a/b/c/secret", "w").write("kept")
    grants = Confinement(read=(f"{tree}/a/b/c",), write=(tree,))
    moves = "mv a/b a/moved; mv a moved; mkdir -p a/b/c"
    writes = "for one in moved/b moved/moved a/moved; do echo changed > $one/c/secret; done"
    async with await Sandbox.open() as sandbox:
        for script in (moves, writes):
            child = await sandbox.spawn(["sh", "-c", script], grants)
            await child.wait()
    print(json.dumps([os.listdir(tree), os.listdir(f"{tree}/a")]))
    print(open(f"{tree}/a/b/c/secret").read())

asyncio.run(main(sys.argv[1]))
"""
# At I1: what is only to be read in what is writable, then the other way round.
WITHOUT_MOUNTS = """
import asyncio, os, sys
from toolpost.errors import MissingPart
from toolpost.sandbox import Confinement, Sandbox

async def main(outer):
    inner = os.path.join(outer, "inner")
    os.makedirs(inner)
    async with await Sandbox.open() as sandbox:
        lesser = sandbox if sandbox.level == "I1" else await sandbox.lesser("I1")
        if lesser is None:
            return print("none")
        try:
            await lesser.spawn(["true"], Confinement(read=(inner,), write=(outer,)))
        except MissingPart as refusal:
            print("refused" if inner in str(refusal) and f"{outer}," in str(refusal) else refusal)
        child = await lesser.spawn(["true"], Confinement(read=(outer,), write=(inner,)))
        print("started" if (await child.wait()).code == 0 else child.stderr.tail)
        if lesser is not sandbox:
            await lesser.close()

asyncio.run(main(os.path.join(sys.argv[1], "outer")))
"""

# At I1: the state folder, deep in what may be read; and what lies beside it.
HIDDEN = """
import asyncio, os, sys
from toolpost.sandbox import Confinement, Sandbox

async def main(outer):
    state = os.path.join(outer, "deep", "state")
    os.makedirs(state)
    for place in (os.path.join(state, "key"), os.path.join(outer, "deep", "beside")):
        with open(place, "w") as file:
            file.write(os.path.basename(place))
    os.symlink(os.path.join(state, "key"), os.path.join(outer, "link"))
    async with await Sandbox.open(state=state) as sandbox:
        lesser = sandbox if sandbox.level == "I1" else await sandbox.lesser("I1")
        if lesser is None:
            return print("none")
        script = "cat deep/beside; ls >&2 || exit 3; cat deep/state/key link"
        grants = Confinement(read=(outer,), working_dir=outer)
        child = await lesser.spawn(["sh", "-c", script], grants)
        code = (await child.wait()).code
        print(code, child.stdout.tail.decode())
        if lesser is not sandbox:
            await lesser.close()

asyncio.run(main(os.path.join(sys.argv[1], "outer")))
"""

VANISHES = """
from toolpost.sandbox import landlock
around = landlock._around
landlock._around = lambda path, hidden: [*around(path, hidden), (f"{path}/gone", landlock._READ)]
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.open() as opened:
        yield opened


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "a" / "b" / "c").mkdir(parents=True)
    (made / "a" / "b" / "c" / "secret").write_text("kept")
    return made


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("warm", [False, True])
async def test_no_way_leads_around_what_is_only_to_be_read(
    sandbox: Sandbox, tree: Path, warm: bool
) -> None:
    confinement = Confinement(read=(f"{tree}/a/b/c",), write=(str(tree),))
    if warm:
        await sandbox.warm_up(confinement)
    program = [interpreter()[0], "-I", "-S", "-c", WAYS, str(tree)]
    assert await run(sandbox, program, confinement) == (0, "")
    assert (tree / "a/b/c/secret").read_text() == "kept"


@pytest.mark.req("NA-11")
async def test_a_single_file_that_is_only_to_be_read_cannot_be_moved_with_its_folder(
    sandbox: Sandbox, tree: Path
) -> None:
    confinement = Confinement(read=(f"{tree}/a/b/c/secret",), write=(str(tree),))
    for folder in ("a", "a/b", "a/b/c", "a/b/c/secret"):
        code, text = await shell(sandbox, f"mv {folder} {folder}-moved", confinement)
        assert (code, "busy" in text) == (1, True), text
    assert (tree / "a/b/c/secret").read_text() == "kept"


@pytest.mark.req("NA-11")
def test_what_an_ordinary_users_tool_is_only_to_read_is_kept_over_calls(tmp_path: Path) -> None:
    found = as_ordinary_user(TWICE, str(tmp_path), home=tmp_path)
    assert found == '[["a"], ["b"]]\nkept\n'


async def test_folders_in_between_can_be_written_as_those_around_them(
    sandbox: Sandbox, tree: Path
) -> None:
    confinement = Confinement(read=(f"{tree}/a/b/c",), write=(str(tree),))
    script = (
        "touch a/made a/b/made && mkdir a/new && mv a/new a/newer && mv a/made a/b/more && ls a a/b"
    )
    assert await shell(sandbox, script, confinement) == (0, "a:\nb\nnewer\n\na/b:\nc\nmade\nmore\n")
    assert (tree / "a/b/made").stat().st_uid == tree.stat().st_uid


@pytest.mark.skipif(not IS_ROOT, reason="there is another owner")
async def test_a_folder_in_between_that_is_anothers_is_not_given_away(
    sandbox: Sandbox, tree: Path
) -> None:
    os.chown(tree / "a", NOBODY, NOBODY)
    (tree / "a").chmod(0o755)
    confinement = Confinement(read=(f"{tree}/a/b/c",), write=(str(tree),))
    code, text = await shell(sandbox, "touch a/b/made && touch a/made", confinement)
    assert (code, "Permission denied" in text) == (1, True), text
    assert sorted(os.listdir(tree / "a")) == ["b"]


async def test_what_can_be_written_in_what_can_be_read_in_what_can_be_written(
    sandbox: Sandbox, tree: Path
) -> None:
    (tree / "a/b/c/d").mkdir()
    grants = Confinement(read=(f"{tree}/a/b",), write=(str(tree), f"{tree}/a/b/c/d"))
    assert await shell(sandbox, "touch made a/made a/b/c/d/made", grants) == (0, "")
    for script in ("touch a/b/c/made", "mv a/b/c a/b/e", "mv a/b/c/d a/b/c/e", "mv a e"):
        code, text = await shell(sandbox, script, grants)
        assert code == 1, (script, text)


@pytest.mark.req("NA-11")
async def test_a_link_is_no_second_name_for_what_is_only_to_be_read(
    sandbox: Sandbox, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tree)
    grants = Confinement(read=(f"{tree}/a/b/c",), write=(f"{tmp_path}/link",))
    for script in ("echo changed > a/b/c/secret", "mv a e", "mv a/b e"):
        code, text = await shell(sandbox, script, grants)
        assert code != 0, (script, text)
    assert await shell(sandbox, "touch a/made && cat a/b/c/secret", grants) == (0, "kept")


@pytest.mark.req("NA-11")
def test_what_landlock_alone_cannot_keep_is_refused_with_both_paths(
    tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tree)
    for outer in (str(tree), f"{tmp_path}/link"):
        grants = Confinement(read=(f"{tree}/a/b",), write=(outer,))
        real = {path: os.path.realpath(path) for path in (*grants.read, outer)}
        for refuse in (landlock.check, partial(landlock.rules, hidden=None)):
            with pytest.raises(MissingPart, match=rf"{tree}/a/b .* {outer},"):
                refuse(grants, real)
    fine = Confinement(read=(str(tree),), write=(f"{tree}/a", f"{tree}/a/b"))
    landlock.check(fine, {path: path for path in (*fine.read, *fine.write)})


@pytest.mark.req("NA-11")
def test_where_there_is_landlock_alone_nothing_is_started_with_what_cannot_be_kept(
    tmp_path: Path,
) -> None:
    found = as_ordinary_user(WITHOUT_MOUNTS, str(tmp_path), home=tmp_path)
    if found == "none\n":
        pytest.skip("this kernel's Landlock is too old")
    assert found == "refused\nstarted\n"


@pytest.mark.req("NA-11")
@pytest.mark.parametrize("meanwhile", ["", VANISHES], ids=("quiet", "something vanishes"))
def test_where_there_is_landlock_alone_the_state_folder_cannot_be_read(
    tmp_path: Path, meanwhile: str
) -> None:
    found = as_ordinary_user(meanwhile + HIDDEN, str(tmp_path), home=tmp_path)
    if found == "none\n":
        pytest.skip("this kernel's Landlock is too old")
    assert found == "1 beside\n"


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        ("/r /w/x", "/w", "/r /w /w/x"),
        ("/r", "/r/a/b /w", "/r /w /r/a/b"),
        ("", "/w /w/a/b", "/w /w/a/b"),
        ("/w/a/b/c", "/w", "/w /w/a=/w /w/a/b=/w /w/a/b/c"),
        ("/w/a/b /w/a/c", "/w", "/w /w/a=/w /w/a/b /w/a/c"),
        ("/w/a/b", "/w /w/a", "/w /w/a /w/a/b"),
        ("/w/a/b/c/d", "/w /w/a/b", "/w /w/a=/w /w/a/b /w/a/b/c=/w/a/b /w/a/b/c/d"),
        ("/w/a /w/a/b/c", "/w", "/w /w/a /w/a/b/c"),
        ("/w/a/b", "/w /w/a/b/c/d", "/w /w/a=/w /w/a/b /w/a/b/c/d"),
        ("/w/a/b", "/w/a/b /w", "/w /w/a/b"),
        ("/wide/a/b", "/w", "/w /wide/a/b"),
    ],
)
def test_what_lies_between_two_grants_is_put_there_once(
    read: str, write: str, expected: str
) -> None:
    same = {path: path for path in f"{read} {write}".split()}
    found = placed(read.split(), write.split(), same)
    assert {f"{p.place}={p.outer}" if p.outer else p.place for p in found} == {*expected.split()}
    assert len(found) == len(expected.split())
    depths = [one.place.count("/") for one in found]
    assert depths == sorted(depths)
    assert all(one.writable for one in found if one.outer or one.place in write.split())
    assert not any(one.writable for one in found if one.place in {*read.split()} - {*write.split()})


@pytest.mark.skipif(not IS_ROOT, reason="only root's folders are mounted by descriptor alone")
async def test_root_with_an_older_bubblewrap_is_refused_what_that_cannot_keep(
    sandbox: Sandbox, tree: Path
) -> None:
    nested = Confinement(read=(str(tree / "a" / "b" / "c"),), write=(str(tree),))
    sandbox.check(nested)
    refusals = sandbox._checked
    refusals._machine = dataclasses.replace(refusals._machine, binds_held=False)
    with pytest.raises(MissingPart, match=f"{tree}/a holds .* --bind-fd"):
        sandbox.check(nested)
    sandbox.check(Confinement(read=(str(tree),)))


def test_a_grant_is_kept_wherever_a_link_shows_it() -> None:
    real = {"/link": "/w", "/w/a/b": "/w/a/b", "/w/a/b/c": "/w/a/b/c"}
    found = placed(["/w/a/b"], ["/link", "/w/a/b/c"], real)
    assert {*found} == {
        Placed("/link", True, "/link"),
        Placed("/link/a", True, "/link", "/link"),
        Placed("/link/a/b", False, "/w/a/b"),
        Placed("/link/a/b/c", True, "/w/a/b/c"),
        Placed("/w/a/b", False, "/w/a/b"),
        Placed("/w/a/b/c", True, "/w/a/b/c"),
    }
