"""Bounds are written, and what ran into them is read, in the words of either version."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from toolpost.sandbox import groups
from toolpost.sandbox.groups import Group, Groups


def test_version_2_is_told_in_its_own_words(tmp_path: Path) -> None:
    group = Group(dict.fromkeys(("memory", "pids", "cpu"), tmp_path), 2)
    group.limit(memory=1024, cpus=0.5, processes=7)
    said = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert said == {
        "memory.max": "1024",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "7",
        "cpu.max": "50000 100000",
    }
    assert group.entrances == [str(tmp_path / "cgroup.procs")]


def test_version_1_is_told_in_its_own_words(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("memory", "pids", "cpu")}
    for folder in folders.values():
        folder.mkdir()
    group = Group(folders, 1)
    group.limit(memory=1024, cpus=2, processes=7)
    said = {str(f.relative_to(tmp_path)): f.read_text() for f in tmp_path.rglob("*.*")}
    assert said == {
        "memory/memory.limit_in_bytes": "1024",
        "memory/memory.memsw.limit_in_bytes": "1024",
        "memory/memory.kmem.tcp.limit_in_bytes": "1024",
        "pids/pids.max": "7",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "200000",
    }
    assert len(group.entrances) == 3


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_of_the_processors_that_cannot_be_set_is_told(tmp_path: Path, version: int) -> None:
    group = Group(dict.fromkeys(("memory", "pids", "cpu"), tmp_path), version)
    for name in ("cpu.max", "cpu.cfs_quota_us"):
        (tmp_path / name).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        group.limit(memory=None, cpus=0.5, processes=7)


def test_the_share_of_a_group_above_may_be_the_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: str, value: str) -> None:
        if path.endswith("quota_us"):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(groups, "_set", refuses)
    Group({"cpu": tmp_path}, 1).limit(memory=None, cpus=64, processes=7)


def test_more_processors_than_the_kernel_counts_are_as_many_as_it_counts(tmp_path: Path) -> None:
    Group({"cpu": tmp_path}, 2).limit(memory=None, cpus=1e300, processes=7)
    assert (tmp_path / "cpu.max").read_text() == "100000000000 100000"


def test_what_was_exceeded_is_read_from_the_counters(tmp_path: Path) -> None:
    group = Group(dict.fromkeys(("memory", "pids"), tmp_path), 2)
    assert group.exceeded() == ()
    (tmp_path / "memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 1\n")
    assert group.exceeded() == ("memory",)
    (tmp_path / "pids.events").write_text("max 3\n")
    assert group.exceeded() == ("memory", "processes")


def test_no_two_sandboxes_of_a_process_have_one_group(tmp_path: Path) -> None:
    roots = dict.fromkeys(("memory", "pids"), tmp_path)
    made = [Groups(roots, 2).make().entrances[0] for _ in range(2)]
    assert len(set(made)) == 2
