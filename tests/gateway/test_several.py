"""Several server processes: one store for all, and one answer whichever of them is asked."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.gateway.program import CONFIG, Program, program, refused
from tests.gateway.running import Answer, answer_from, request

pytestmark = pytest.mark.anyio
SAMPLE = re.compile(r'toolpost_calls_total\{process="(\d)",tool="echo"\} (\d+)')
METRIC = re.compile(r"^toolpost_\w+?(?=_bucket|_sum|_count|\{| )", re.MULTILINE)


async def test_a_store_in_memory_is_refused_for_more_than_one_process(tmp_path: Path) -> None:
    config = f'[store]\nkind = "memory"\n{CONFIG}'
    code, said = await refused(tmp_path, config, processes=2)
    assert code == 78
    assert "each of 2 server processes would have its own" in said and "toolpost.toml:" in said


async def called_in_both(served: Program) -> int:
    """How many calls it took until each of two processes had one."""
    made = set()
    async with asyncio.timeout(60):
        while len({one.partition("-")[0] for one in made}) < 2:
            answer = await served.call("echo")
            made.add(answer.data["metadata"]["call_id"])
    return len(made)


async def asked_of(place: Path, served: Program, path: str) -> Answer:
    """What this very process says."""
    folder = os.open(place.parent, os.O_PATH)  # the whole path may be too long for a socket's
    try:
        short = f"/proc/self/fd/{folder}/{place.name}"
        reader, writer = await asyncio.open_unix_connection(short)
    finally:
        os.close(folder)
    try:
        writer.write(request("GET", path, None, {"host": f"127.0.0.1:{served.port}"}))
        async with asyncio.timeout(60):
            return await answer_from(reader)
    finally:
        writer.close()


async def test_whichever_process_is_asked_tells_what_all_of_them_have_counted(
    tmp_path: Path,
) -> None:
    async with program(tmp_path, "--processes", "2") as served:
        calls = await called_in_both(served)
        places = list((tmp_path / ".toolpost").glob("serve-*.sock"))
        assert len(places) == 2
        for place in places:
            text = (await asked_of(place, served, "/metrics")).body.decode()
            counted = dict(SAMPLE.findall(text))
            assert sorted(counted) == ["0", "1"]
            assert sum(map(int, counted.values())) == calls
            assert text.count("# TYPE toolpost_calls_total counter") == 1
            families = METRIC.findall(text)
            runs = [one for at, one in enumerate(families) if families[at - 1 : at] != [one]]
            assert len(runs) == len(set(runs)), "a metric stands in one place"
        nap = asyncio.create_task(served.call("nap", {"seconds": 50, "mark": "n"}))
        await served.until_done("n began")
        for place in places:
            async with asyncio.timeout(60):  # one that is slow to say it is not waited for
                while (await asked_of(place, served, "/readyz")).data["calls"] != 1:
                    pass
        nap.cancel()
