"""The tool ``time``: now, converted, read, compared, with the zones' odd hours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import available_timezones

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from toolpost import CallError, ConfigError, Executor, FunctionTool, Registry, Result
from toolpost.builtin.clock import Settings, tools
from toolpost.builtin.clock_reading import moment, zone_of

pytestmark = pytest.mark.anyio


class Ask(Protocol):
    async def __call__(self, **arguments: Any) -> Result: ...


def made(zone: str = "UTC") -> FunctionTool:
    (tool,) = tools(Settings(zone=zone), Path("/x"))
    return tool


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    async with Executor(Registry([made("Europe/Berlin")])) as executor:

        async def run(**arguments: Any) -> Result:
            return await executor.execute("time", arguments)

        yield run


async def test_it_is_now_here_and_elsewhere(ask: Ask) -> None:
    before = datetime.now(UTC)
    here, there = await ask(), await ask(zone="Asia/Tokyo")
    after = datetime.now(UTC)
    assert (here.output["zone"], there.output["zone"]) == ("Europe/Berlin", "Asia/Tokyo")
    for told in (here.output, there.output):
        when = datetime.fromisoformat(told["time"])
        assert before - timedelta(seconds=1) <= when <= after
        assert told["unix"] == pytest.approx(when.timestamp(), abs=0.01)
    assert there.output["time"].endswith("+09:00")


async def test_a_time_is_told_in_another_zone(ask: Ask) -> None:
    told = await ask(action="convert", time="2026-07-01 14:30", zone="America/New_York")
    assert told.output["time"] == "2026-07-01T14:30:00-04:00", "it named no zone: that is meant"
    told = await ask(
        action="convert",
        time="2026-07-01 14:30",
        from_zone="Europe/Berlin",
        zone="America/New_York",
    )
    assert told.output == {
        "time": "2026-07-01T08:30:00-04:00",
        "zone": "America/New_York",
        "utc": "2026-07-01T12:30:00Z",
        "unix": 1782909000.0,
        "weekday": "Wednesday",
        "week": "2026-W27",
        "summer_time": True,
    }
    offset = await ask(action="convert", time="2026-07-01T12:30Z", zone="+05:30")
    assert offset.output["time"] == "2026-07-01T18:00:00+05:30"


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-16T14:30:00+01:00", "2026-11-16T13:30:00Z"),
        ("2026-11-16T14:30:00.123456Z", "2026-11-16T14:30:00Z"),
        ("2026-11-16 14:30", "2026-11-16T13:30:00Z"),
        ("2026-11-16", "2026-11-15T23:00:00Z"),
        ("20261116T143000", "2026-11-16T13:30:00Z"),
        ("2026-W47-1", "2026-11-15T23:00:00Z"),
        ("Mon, 16 Nov 2026 09:00:00 +0100", "2026-11-16T08:00:00Z"),
        ("Mon, 16 Nov 2026 09:00:00 GMT", "2026-11-16T09:00:00Z"),
        ("16 Nov 2026", "2026-11-15T23:00:00Z"),
        ("November 16, 2026 2:30 PM", "2026-11-16T13:30:00Z"),
        ("16.11.2026 14:30", "2026-11-16T13:30:00Z"),
        ("2026/11/16", "2026-11-15T23:00:00Z"),
        ("  2026-11-16   14:30 ", "2026-11-16T13:30:00Z"),
        ("1794835800", "2026-11-16T13:30:00Z"),
        ("@1794835800.5", "2026-11-16T13:30:00Z"),
        ("1794835800123", "2026-11-16T13:30:00Z"),
    ],
)
async def test_a_time_is_read_as_people_and_programs_write_it(
    ask: Ask, text: str, utc: str
) -> None:
    told = await ask(action="parse", time=text)
    assert told.error is None, told.error
    assert told.output["utc"] == utc


async def test_a_time_keeps_the_zone_that_it_names(ask: Ask) -> None:
    told = await ask(action="parse", time="2026-11-16T14:30:00-08:00")
    assert told.output["time"] == "2026-11-16T14:30:00-08:00"


@pytest.mark.parametrize(
    ("text", "time", "note"),
    [
        (
            "2026-10-25 02:30",
            "2026-10-25T02:30:00+02:00",
            "Clocks showed 02:30 on 2026-10-25 twice: the first is meant.",
        ),
        (
            "2026-03-29 02:30",
            "2026-03-29T03:30:00+02:00",
            "Clocks never showed 02:30 on 2026-03-29: they were put forward then.",
        ),
    ],
)
async def test_an_hour_that_clocks_showed_twice_or_never_is_pointed_out(
    ask: Ask, text: str, time: str, note: str
) -> None:
    told = await ask(action="parse", time=text)
    assert (told.output["time"], told.output["note"]) == (time, note)
    apart = await ask(action="difference", time=text, until=text)
    assert apart.output == {"seconds": 0.0, "days": 0.0, "text": "0 seconds", "notes": [note, note]}


@pytest.mark.parametrize(
    ("first", "second", "seconds", "text"),
    [
        ("2026-11-16", "2026-12-24", 38 * 86400, "38 days"),
        ("2026-12-24", "2026-11-16", -38 * 86400, "38 days earlier"),
        ("2026-03-28 12:00", "2026-03-29 12:00", 23 * 3600, "23 hours"),
        ("2026-11-16T10:00Z", "2026-11-16T12:01:01+01:00", 3661, "1 hour, 1 minute, 1 second"),
        ("2000-02-28", "2000-03-01", 2 * 86400, "2 days"),
    ],
)
async def test_two_times_are_so_far_apart(
    ask: Ask, first: str, second: str, seconds: float, text: str
) -> None:
    apart = await ask(action="difference", time=first, until=second)
    assert (apart.output["seconds"], apart.output["text"]) == (seconds, text)


async def test_a_difference_goes_to_now_if_nothing_else_is_named(ask: Ask) -> None:
    apart = await ask(action="difference", time="now")
    assert 0 <= apart.output["seconds"] < 60


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"action": "convert"}, "/time: is needed for the action convert"),
        ({"action": "parse", "time": "03/04/2026"}, "/time: '03/04/2026' is not clear: write"),
        ({"action": "parse", "time": "soon"}, "/time: 'soon' is not a time: write 2026-11-16T"),
        ({"action": "parse", "time": "2026-02-30"}, "/time: '2026-02-30' is not a time"),
        (
            {"action": "convert", "time": "9999-12-31T23:00-12:00"},
            "/time: years go from 1 to 9999",
        ),
        (
            {"action": "convert", "time": "0001-01-01 00:00", "zone": "+14:00"},
            "/time: years go from 1 to 9999",
        ),
        ({"zone": "Europe/Berln"}, "/zone: there is no zone 'Europe/Berln'; did you mean 'Europe/"),
        ({"zone": "+25:00"}, "/zone: there is no zone '+25:00'"),
        ({"zone": "../../etc/passwd"}, "/zone: there is no zone '../../etc/passwd'"),
        ({"zone": "/etc/localtime"}, "/zone: there is no zone '/etc/localtime'"),
        ({"zone": "localtime"}, "/zone: there is no zone 'localtime'"),
        ({"zone": "right/Europe/Berlin"}, "/zone: there is no zone 'right/Europe/Berlin'"),
        (
            {"action": "convert", "time": "now", "from_zone": "Nowhere/x"},
            "/from_zone: there is no zone 'Nowhere/x'",
        ),
        ({"action": "difference", "time": "now", "until": "x"}, "/until: 'x' is not a time"),
    ],
)
async def test_what_cannot_be_read_is_named(
    ask: Ask, arguments: dict[str, Any], problem: str
) -> None:
    result = await ask(**arguments)
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("VALIDATION_ERROR", "fix_args")
    assert result.error.message.startswith(problem)


@hypothesis_given(st.text(max_size=60) | st.from_regex(r"[0-9TZ:+.W-]{1,40}", fullmatch=True))
def test_any_text_is_a_time_or_a_clear_error(text: str) -> None:
    try:
        when, _ = moment(text, UTC, "time")
    except CallError as error:
        assert error.code == "VALIDATION_ERROR"
    else:
        assert when.tzinfo is not None


@hypothesis_given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.data())
def test_a_local_time_comes_back_as_it_was_or_with_a_note(when: datetime, data: Any) -> None:
    zone = zone_of(
        data.draw(st.sampled_from(sorted(available_timezones() - {"Factory", "localtime"}))), "z"
    )
    told, notes = moment(when.isoformat(), zone, "time")
    again = told.astimezone(UTC).astimezone(zone)
    assert again.replace(tzinfo=None) == when or notes


async def test_a_zone_is_known_in_small_letters_too(ask: Ask) -> None:
    result = await ask(action="convert", time="2026-01-01T12:00Z", zone="europe/berlin")
    assert result.output["time"] == "2026-01-01T13:00:00+01:00"
    assert result.output["zone"] == "Europe/Berlin"


def test_a_zone_of_the_config_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no zone 'Europe/Berln'") as refused:
        made("Europe/Berln")
    assert refused.value.at == ("zone",)
