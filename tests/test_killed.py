"""``kill -9`` at any moment, on the road with every default ring: what is on record can be proved,
what people said counts once, and nothing that a dead process began stays open.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.killed_child import CONFIG, paying
from tests.ledger.houses import audited, verified
from toolpost import Runtime

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.verify]
STANDS = {"asked": ("waiting", "approved", "used"), "approved": ("approved", "used")}


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.req("NA-12", "FM-13")
async def test_killed_two_hundred_times_nothing_is_lost_done_twice_or_left_open(
    tmp_path: Path,
) -> None:
    (tmp_path / CONFIG).touch()
    program = [sys.executable, "-m", "tests.killed_child", str(tmp_path), "100"]
    await asyncio.to_thread(subprocess.run, program, check=True, timeout=240)
    assert lines(tmp_path / "killed") == [["9"]] * 200
    done = {to: (call_id, grant) for to, call_id, grant in lines(tmp_path / "done")}
    assert len(done) == len(lines(tmp_path / "done")), "no key and no yes was used twice"
    assert len(done) > 20, "they had the time to do something"
    found = await verified(tmp_path)
    assert (found.problems, found.unproven) == ((), ())
    assert 2 <= len(found.heads) <= 5, "two at a time; who starts may hold two for a moment"

    async with Runtime.open(tmp_path / CONFIG, tools=[paying(tmp_path)]) as tools:
        desk = tools.extension("approval").approvals
        said = {handle: (word, to) for word, handle, to in lines(tmp_path / "said")}
        for handle, (word, to) in said.items():  # the last word on each
            request = await desk.find(handle)
            assert request.status in STANDS.get(word, ("used",)), "what was said is so, or more"
            if to in done:
                assert (request.status, request.used_by) == ("used", done[to][0])
        again = Counter[str]()
        for to, (_, grant) in done.items():
            repeated = await tools.execute("pay", {"to": to}, key=to, grant=grant)
            again[repeated.error.code if repeated.error else "ok"] += 1
        assert set(again) <= {"ok", "CONFLICT"}, again
        assert len(lines(tmp_path / "done")) == len(done), "a repeat is answered, not run"
    assert len(lines(tmp_path / "done")) == len(done)

    found = await verified(tmp_path)
    assert (found.problems, {head.open for head in found.heads}) == ((), {0})
    codes = {call.asked.call_id: call.code for call in await audited(tmp_path)}
    ran = Counter(codes[call_id] for call_id, _ in done.values())
    assert set(ran) <= {"OK", "UNKNOWN"}, "nothing was done without a record"
    assert ran["OK"] > 20
