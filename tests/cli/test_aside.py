"""Standard error that nobody reads stops nobody."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolpost.cli import aside
from toolpost.cli.aside import written_aside


def test_what_nobody_reads_keeps_nobody_waiting_and_what_does_not_fit_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr(aside, "_MOST", 200_000)
    monkeypatch.setattr(aside, "_PATIENCE", 30.0)
    lines = [f"1{number:098d}\n" for number in range(5_000)]
    with os.fdopen(read_end, "rb") as there, ThreadPoolExecutor(1) as reader:
        with os.fdopen(write_end, "w", encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            with written_aside():
                assert (sys.stderr.fileno(), sys.stderr.isatty()) == (write_end, False)
                for line in lines:
                    print(line, end="", file=sys.stderr)
                reading = reader.submit(there.read)
            assert sys.stderr is stream
        came = [json.loads(line) for line in reading.result(30).decode().split()]
    left_out = sum(one["left_out"] for one in came if isinstance(one, dict))
    begun = [one for one in came if not isinstance(one, dict)]
    assert begun == sorted(begun) and 2_000 <= len(begun) < 5_000
    assert left_out == 5_000 - len(begun)


def test_a_stream_that_is_no_file_or_closed_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "file").open("w") as closed:
        pass
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with written_aside():
            assert sys.stderr is stream
