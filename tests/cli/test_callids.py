"""Short forms of the ids of calls: each finds its own call, and no other that is shown."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.call import new_call_id
from toolpost.cli.callids import meant, shortened

processes = st.integers(0, 16**21 - 1).map(lambda n: f"{n:021x}")
ids = st.builds(lambda p, n: f"{p}-{n:06x}", processes, st.integers(0, 16**6 - 1))
close = st.builds(lambda p, tail: f"{p[:-2]}{tail:02x}", processes, st.integers(0, 255))


@given(
    st.lists(ids | st.builds(lambda p, n: f"{p}-{n:06x}", close, st.integers(0, 3)), max_size=20)
)
def test_a_short_form_is_that_of_one_call_among_those_shown(listed: list[str]) -> None:
    for call_id, short in shortened(listed).items():
        assert meant(short, listed) == [call_id]


def test_an_id_as_it_is_made_is_cut_to_half() -> None:
    program = "from toolpost.call import new_call_id; print(new_call_id(), new_call_id())"
    made = [
        call_id
        for _ in range(2)
        for call_id in subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        ).stdout.split()
    ]
    short = list(shortened(made).values())
    assert len(set(short)) == 4 and all(len(one) <= 14 for one in short)
    assert [one.partition("-")[2] for one in short] == ["0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("1a1e1d0b9de2c45685c66-00002f", True),
        ("1a1e1d0b9de2c45685c66-0000", True),
        ("1a1e1d0b9de2c4", True),
        ("1a1e1d0b9de-2f", True),
        ("1a1e1d0b9de-02f", True),
        ("1a1e1d0b9de-2", False),
        ("1a1e1d0b9de-f", False),
        ("1a1e1d0b9df-2f", False),
        ("-2f", False),
    ],
)
def test_a_call_is_meant_by_its_id_a_beginning_or_the_short_form(written: str, found: bool) -> None:
    call_id = "1a1e1d0b9de2c45685c66-00002f"
    assert meant(written, [call_id]) == ([call_id] if found else [])


def test_what_is_a_short_form_is_no_beginning() -> None:
    ids = [f"1a1e1d0b9de2c45685c66-{number:06x}" for number in range(3)]
    assert meant("1a1e1d0b9de2c45685c66-0", ids) == ids[:1]
    assert meant("1a1e1d0b9de2c45685c66-00", [*ids[1:]]) == ids[1:]


def test_an_id_of_another_make_stays_as_it_is() -> None:
    assert shortened(["c1", "", new_call_id()])["c1"] == "c1"
