"""Templates are judged by labelled logs: lines whose template is known."""

from __future__ import annotations

import pytest

from tests.builtin.log_families import FAMILIES, Family, Labelled, accuracy, generated, grouped

LINES = 2000


def judged(lines: list[Labelled]) -> float:
    return accuracy(grouped([one.line for one in lines]), [one.label for one in lines])


@pytest.mark.req("FM-17")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_lines_of_a_family_are_grouped_as_they_are_labelled(family: Family) -> None:
    """Values were drawn anew: what is asserted holds for logs nobody has looked at."""
    found = [judged(generated(family, LINES, seed)) for seed in (101, 202, 303)]
    assert min(found) >= 0.95, found


def test_over_all_families_hardly_a_line_is_in_a_wrong_group() -> None:
    found = [judged(generated(family, LINES, 404)) for family in FAMILIES]
    assert sum(found) / len(found) >= 0.98


def test_a_short_log_is_grouped_as_well() -> None:
    found = [judged(generated(family, 300, 505)) for family in FAMILIES]
    assert sum(found) / len(found) >= 0.85, found


def templates(messages: list[str]) -> set[str]:
    return set(grouped([f"2026-03-14 09:26:53 INFO {one}" for one in messages]))


@pytest.mark.parametrize(
    ("usual", "rare"),
    [
        (
            [f"host{n}.example.com:443 open through proxy 10.0.0.1:80" for n in range(50)],
            [
                f"{odd} open through proxy 10.0.0.1:80"
                for odd in ("wpad:80", "cdn.example.asia:443", "[2001:db8::1]:443")
            ],
        ),
        (
            [f"synchronized to 10.100.{n}.250, stratum 3" for n in range(50)],
            ["synchronized to LOCAL(0), stratum 10"],
        ),
        (
            [f'10.1.1.1 "GET /v2/{n}/servers HTTP/1.1" status: 200' for n in range(50)],
            ['10.1.1.1 "GET /v2/7/servers?all=True&since=5&host=a.b HTTP/1.1" status: 200'],
        ),
    ],
    ids=["an address", "a value with more around it", "a query"],
)
def test_a_value_of_a_rare_form_is_the_same_value(usual: list[str], rare: list[str]) -> None:
    assert len(templates([*usual, *rare])) == 1


def test_names_that_count_through_something_are_values() -> None:
    assert len(templates([f"interrupt link LNK{one} disabled now" for one in "ABC"])) == 1
    assert len(templates([f"interrupt link {one} now" for one in ("up", "down", "lost")])) == 3


def test_what_names_a_value_is_no_part_of_it() -> None:
    messages = [f"device ready after {n} seconds" for n in range(20)]
    assert len(templates([*messages, "device ready after retries=3 seconds"])) == 2


def test_accuracy_counts_only_lines_whose_whole_group_is_right() -> None:
    assert accuracy(["a", "a", "b"], ["x", "x", "y"]) == 1
    assert accuracy(["a", "a", "a"], ["x", "x", "y"]) == 0
    assert accuracy(["a", "b", "c"], ["x", "x", "y"]) == pytest.approx(1 / 3)
