"""A breaker for one thing that fails, a budget for all repeats."""

from __future__ import annotations

import pytest

from toolpost.breaker import Breaker, Budget


def test_a_breaker_opens_after_failures_in_a_row_and_only_then() -> None:
    breaker = Breaker(3, 10)
    for _ in range(5):
        breaker.failed(0)
        breaker.failed(0)
        assert breaker.state(0) == "closed"
        breaker.succeeded()
    for _ in range(3):
        breaker.failed(100)
    assert not breaker.closed
    assert [breaker.state(now) for now in (100, 109.9, 110)] == ["open", "open", "half-open"]


def test_one_call_may_try_and_the_others_wait() -> None:
    breaker = Breaker(1, 10)
    breaker.failed(0)
    assert breaker.probe(4) == 6
    assert breaker.probe(10) == 0
    assert breaker.probe(10) == 10
    breaker.failed(11)
    breaker.probed()
    assert breaker.probe(12) == 9
    assert breaker.probe(21) == 0
    breaker.succeeded()
    breaker.probed()
    assert breaker.state(21) == "closed"


def test_a_probe_that_comes_to_nothing_leaves_the_place_to_the_next() -> None:
    breaker = Breaker(1, 10)
    breaker.failed(0)
    assert breaker.probe(10) == 0
    breaker.probed()
    assert breaker.probe(10) == 0


def test_a_breaker_of_no_failures_never_opens() -> None:
    breaker = Breaker(0, 10)
    for _ in range(1000):
        breaker.failed(0)
    assert breaker.closed


def test_a_budget_is_a_share_of_the_calls() -> None:
    budget = Budget(share=0.25, per_second=0, most=2, now=0)
    assert [budget.spend(0) for _ in range(3)] == [True, True, False]
    spent = 0
    for _ in range(40):
        budget.earn()
        spent += budget.spend(0)
    assert spent == 10


def test_a_budget_has_a_few_a_second_and_never_more_than_fits() -> None:
    budget = Budget(share=0, per_second=2, most=3, now=0)
    assert [budget.spend(0) for _ in range(4)] == [True, True, True, False]
    assert [budget.spend(1) for _ in range(3)] == [True, True, False]
    assert [budget.spend(1000) for _ in range(4)] == [True, True, True, False]
    for _ in range(100):
        budget.earn()
    assert budget.tokens == pytest.approx(0)


def test_a_clock_that_goes_back_costs_a_budget_nothing() -> None:
    budget = Budget(share=0, per_second=1, most=2, now=100)
    assert budget.spend(50)
    assert budget.tokens == 1
