"""``kill -9`` at any moment: no acknowledged job is lost, and none has its effects twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.jobs.houses import ANN, config_of, lines
from tests.jobs.killed_child import SETTINGS, tools_of
from toolpost import Runtime
from toolpost.jobs import Job, Jobs

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
PAIRS = 15


async def test_killed_thirty_times_no_job_is_lost_and_none_done_twice(tmp_path: Path) -> None:
    await asyncio.to_thread(killed, tmp_path, PAIRS, 7)
    ends = await looked_at(tmp_path)
    assert ends["pay", "succeeded"] > 10 and ends["look", "succeeded"] > 5, ends


def killed(folder: Path, pairs: int, seed: int) -> None:
    program = [sys.executable, "-m", "tests.jobs.killed_child", str(folder), str(pairs), str(seed)]
    subprocess.run(program, check=True, timeout=600)
    assert lines(folder / "killed") == ["9"] * (2 * pairs)


async def looked_at(folder: Path) -> Counter[tuple[str, str]]:
    """Every job that was acknowledged has ended, as what it did says; how many did how."""
    said = [line.split() for line in lines(folder / "said")]
    done = Counter(lines(folder / "done"))
    assert set(done.values()) <= {1}, "no effect was had twice"
    ends = Counter[tuple[str, str]]()
    runtime = Runtime(config_of(folder, **SETTINGS), tools=tools_of(folder))  # type: ignore[arg-type]
    async with runtime, Jobs(runtime) as jobs, asyncio.timeout(60):
        await jobs.until_idle()
        done = Counter(lines(folder / "done"))
        assert set(done.values()) <= {1}, "nor when it was taken up"
        for job_id, name, to in said:
            job = await jobs.get(job_id, caller=ANN)
            ends[name, job.state] += 1
            judge(job, name, to, done[to])
    return ends


def judge(job: Job, name: str, to: str, times: int) -> None:
    assert job.result is not None
    if name == "look":
        assert (job.state, job.result.output) == ("succeeded", f"seen {to}")
    elif job.state == "succeeded":
        assert (times, job.result.output) == (1, f"paid {to}")
    else:
        assert job.state == "unknown" and job.result.error is not None
        assert job.result.error.effects == "unknown"
