"""How many in how long: never more, in any stretch of time, and not many fewer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import ConfigError
from toolpost.pace import Window, pace_from


def admitted(text: str, moments: list[float]) -> list[float]:
    window, through = Window(pace_from(text)), []
    for now in moments:
        if not window.wait(now):
            window.take(now)
            through.append(now)
    return through


def most_within(seconds: float, moments: list[float]) -> int:
    """How many of them are in the fullest stretch that is shorter than so many seconds."""
    most = begin = 0
    for end, moment in enumerate(moments):
        while moment - moments[begin] >= seconds:
            begin += 1
        most = max(most, end - begin + 1)
    return most


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("60/min", 60, 60),
        ("10/s", 10, 1),
        ("5/10s", 5, 10),
        ("1000/h burst 50", 50, 180),
        ("1000/h burst 300", 300, 1200),
        ("1/d", 1, 86400),
        (" 2/2min ", 2, 120),
    ],
)
def test_a_rate_is_read(text: str, count: int, seconds: float) -> None:
    pace = pace_from(text)
    assert (pace.count, pace.seconds) == (count, seconds)
    assert len(admitted(text, [1000.0] * (count + 5))) == count


@pytest.mark.parametrize(
    "text",
    [
        *("", "60", "0/s", "1/0s", "1/s burst 0", "-1/s", "1/fortnight", "1/s burst", "1.5/s"),
        "5/s burst 6",
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no rate"):
        pace_from(text)


def test_a_full_minute_is_followed_by_a_wait_until_it_is_over() -> None:
    moments = [second / 2 for second in range(240)]
    assert admitted("60/min", moments) == [*moments[:60], *moments[120:180]]


_GAPS = st.lists(
    st.one_of(st.floats(0, 30), st.floats(0, 0.01), st.just(0.0)), min_size=1, max_size=400
)


@given(st.integers(1, 300), st.integers(1, 100), st.integers(1, 300), _GAPS)
def test_no_stretch_of_time_has_more_than_the_rate_wherever_it_begins(
    count: int, seconds: int, burst: int, gaps: list[float]
) -> None:
    burst = min(count, burst)
    now, moments = 1.7e9, []
    for gap in gaps:
        now += gap
        moments.append(now)
    through = admitted(f"{count}/{seconds}s burst {burst}", moments)
    assert most_within(seconds, through) <= count
    assert most_within(seconds / (count // burst), through) <= burst


@given(st.integers(1, 2000), st.integers(1, 3600), st.floats(0, 2e9), _GAPS)
def test_whoever_waits_as_long_as_he_is_told_is_let_in(
    count: int, seconds: int, now: float, gaps: list[float]
) -> None:
    window = Window(pace_from(f"{count}/{seconds}s"))
    for gap in gaps:
        now += gap
        wait = window.wait(now)
        assert 0 <= wait <= seconds + 1e-5
        assert window.wait(now + wait) == 0
        if not wait:
            window.take(now)


@given(st.integers(1, 2000), st.integers(1, 60))
def test_whoever_asks_all_the_time_gets_nearly_all_there_is(count: int, seconds: int) -> None:
    step = seconds / count / 2
    moments = [1000 + n * step for n in range(8 * count)]
    through = admitted(f"{count}/{seconds}s", moments)
    assert len(through) >= 4 * count * 126 / 129 - 4


@given(st.integers(1, 300), _GAPS, st.integers(0, 400))
def test_what_is_remembered_can_be_handed_to_another(
    count: int, gaps: list[float], change: int
) -> None:
    """Taken down and read again at any point, a window decides as it would have."""
    pace = pace_from(f"{count}/min")
    first, now = Window(pace), 1.7e9
    second = first
    for number, gap in enumerate(gaps):
        now += gap
        if number == change:
            second = Window(pace, [(moment, times) for moment, times in first.times])
        assert first.wait(now) == second.wait(now)
        if not first.wait(now):
            first.take(now)
            if second is not first:
                second.take(now)


def test_of_a_million_a_day_a_few_hundred_moments_are_remembered() -> None:
    window = Window(pace_from("1000000/d"))
    for second in range(0, 200_000, 20):
        window.take(second)
        assert len(window.times) <= 130
    assert window.taken == sum(times for _, times in window.times)
    assert not window.idle(200_000)
    assert window.idle(400_000)


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    window = Window(pace_from("200/min"))
    for moment in (1000.0, 1000.1, 999.0, 1000.2):
        window.take(moment)
    assert [times for _, times in window.times] == [4]
    assert window.times[0][0] == 1000.2
