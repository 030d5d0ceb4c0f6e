"""One table of codes for every door."""

from __future__ import annotations

from typing import get_args

import pytest

from toolpost import errors
from toolpost.codes import SETUP_EXIT, STATUS, setup_exit
from toolpost.errors import Code


@pytest.mark.req("NA-5")
def test_every_code_is_in_the_table() -> None:
    assert set(STATUS) == set(get_args(Code))


def test_exit_and_rpc_codes_tell_the_errors_apart() -> None:
    exits = [status.exit for status in STATUS.values()] + list(SETUP_EXIT.values())
    assert len(set(exits)) == len(exits)
    assert not {0, 2, 70, 141} & set(exits), "success, usage, our own faults, a closed pipe"
    assert all(0 < code < 256 for code in exits)
    assert len({status.rpc for status in STATUS.values()}) == len(STATUS)


def test_every_status_is_an_http_error() -> None:
    assert all(400 <= status.http < 600 for status in STATUS.values())


def test_a_fault_of_the_input_is_no_fault_of_the_server() -> None:
    """A 5xx is what somebody who watches over the gateway is woken for."""
    for code in ("EXECUTION_ERROR", "VALIDATION_ERROR"):
        assert STATUS[code].http == 422
    assert STATUS["INTERNAL_ERROR"].http == 500


def test_our_rpc_codes_keep_out_of_the_reserved_range() -> None:
    standard = {-32602, -32603}
    for status in STATUS.values():
        assert status.rpc in standard or not -32768 <= status.rpc <= -32000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 78),
        (errors.MissingPart("x"), 69),
        (errors.SourceError("x"), 65),
        (errors.InvalidSchema("x"), 65),
        (errors.NameTaken("x"), 65),
    ],
)
def test_every_setup_error_has_an_exit_code(error: errors.SetupError, code: int) -> None:
    assert setup_exit(error) == code
