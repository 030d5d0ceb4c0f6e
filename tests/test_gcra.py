"""How many in how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import ConfigError
from toolpost.gcra import Rate, rate_from


def admitted(rate: Rate, moments: list[float]) -> list[float]:
    due, through = 0.0, []
    for now in moments:
        wait, then = rate.take(due, now)
        if not wait:
            due = then
            through.append(now)
    return through


@pytest.mark.parametrize(
    ("text", "interval", "burst"),
    [
        ("60/min", 1, 60),
        ("10/s", 0.1, 10),
        ("5/10s", 2, 5),
        ("1000/h burst 50", 3.6, 50),
        ("1/d", 86400, 1),
        (" 2/2min ", 60, 2),
    ],
)
def test_a_rate_is_read(text: str, interval: float, burst: int) -> None:
    rate = rate_from(text)
    assert rate.interval == pytest.approx(interval)
    assert len(admitted(rate, [1000.0] * (burst + 5))) == burst


@pytest.mark.parametrize(
    "text", ["", "60", "0/s", "1/0s", "1/s burst 0", "-1/s", "1/fortnight", "1/s burst", "1.5/s"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        rate_from(text)


def test_it_says_how_long_to_wait_and_keeps_its_word() -> None:
    rate, due = rate_from("5/min"), 0.0
    for _ in range(5):
        wait, due = rate.take(due, 100)
        assert wait == 0
    wait, _ = rate.take(due, 100)
    assert wait == pytest.approx(12, rel=0.02)
    assert rate.take(due, 100 + wait - 0.5)[0] > 0
    assert rate.take(due, 100 + wait)[0] == 0


@given(
    st.integers(1, 50),
    st.integers(1, 100),
    st.integers(1, 50),
    st.lists(st.floats(0, 30), min_size=1, max_size=200),
)
def test_no_stretch_of_time_has_more_than_the_burst_and_the_rate(
    count: int, seconds: int, burst: int, gaps: list[float]
) -> None:
    rate = rate_from(f"{count}/{seconds}s burst {burst}")
    now, moments = 1.7e9, []
    for gap in gaps:
        now += gap
        moments.append(now)
    through = admitted(rate, moments)
    for i, begin in enumerate(through):
        for n, end in enumerate(through[i:], start=1):
            assert n <= burst + (end - begin) / rate.interval + 0.02


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_at_one_moment_never_more_than_the_burst(count: int, burst: int) -> None:
    rate = rate_from(f"{count}/min burst {burst}")
    assert len(admitted(rate, [1.7e9] * (burst + 3))) == burst
