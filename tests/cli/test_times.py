"""Durations and moments: every option reads them the same way."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.program import inside
from toolpost.cli.times import parse_duration, parse_moment, span

NOW = datetime(2026, 11, 17, 15, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45),
        ("45s", 45),
        ("0.5s", 0.5),
        ("250ms", 0.25),
        ("30m", 1800),
        ("30min", 1800),
        ("30 minutes", 1800),
        ("1h30m", 5400),
        ("1h 30min", 5400),
        ("12H", 43_200),
        ("2 days", 172_800),
        ("90d", 7_776_000),
        ("1w", 604_800),
    ],
)
def test_a_duration_may_be_written_in_every_usual_way(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "m30", "30x", "-5m", "0", "0s", "1h30", "30 40", "1e9d", "9" * 13, "٣m x"]
)
def test_anything_else_is_not_a_duration(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("now", datetime(2026, 11, 17, 15, 30)),
        ("30m", datetime(2026, 11, 17, 15, 0)),
        ("2h ago", datetime(2026, 11, 17, 13, 30)),
        ("1 day ago", datetime(2026, 11, 16, 15, 30)),
        ("today", datetime(2026, 11, 17)),
        ("Yesterday", datetime(2026, 11, 16)),
        ("2026-11-15", datetime(2026, 11, 15)),
        ("2026-11-15T10:00", datetime(2026, 11, 15, 10)),
    ],
)
def test_a_moment_is_an_age_a_day_or_a_date(text: str, when: datetime) -> None:
    assert parse_moment(text, NOW) == when.timestamp()


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "later", "ago"])
def test_anything_else_is_not_a_moment(text: str) -> None:
    assert parse_moment(text, NOW) is None


def test_what_is_printed_can_be_read_back() -> None:
    for seconds in (0.5, 45, 1800, 7200, 86_400 * 3):
        assert parse_duration(span(seconds)) in (seconds, None if seconds < 1 else seconds)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("audit", "search", "--since", "soonish"), "yesterday"),
        (("keys", "create", "bot", "--expires", "soon"), "12h, 90d or 1h30m, or never"),
        (("call", "add", "--timeout", "long"), "write 45s, 30m"),
        (("approvals", "approve", "abc", "--for", "a while"), "write 45s, 30m"),
    ],
)
def test_every_option_says_how_to_write_it(
    tmp_path: Path, words: tuple[str, ...], hint: str
) -> None:
    done = inside(*words, cwd=tmp_path)
    assert done.returncode == 2 and hint in done.stderr
