"""The page of a tool: seven points, from its spec and from what was measured."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from toolpost import Limits, Permissions, Retry, Secret, ToolSpec, tool
from toolpost.kit.pages import POINTS, Latency, latencies, markdown, measured, page
from toolpost.ledger.reading import AuditedCall
from toolpost.ledger.record import AuditRecord


@tool(
    title="Forecast",
    category="weather",
    tags=["rain", "sun"],
    tier=3,
    effects="idempotent",
    timeout=7,
    requires_approval=True,
    egress=["api.example.com:443"],
    limits=Limits(concurrency=2, memory=64 * 1024 * 1024, cpus=0.5, processes=3),
    permissions=Permissions(roles=("boss",), agents=("planner",)),
    retry=Retry(attempts=2),
    fallback="guess",
    examples=[{"city": "Oslo"}],
    isolation="process",
    version="1.2",
)
def forecast(city: str, key: Annotated[str, Secret("WEATHER_KEY")], days: int = 3) -> list[float]:
    """Forecast the temperature of a city. Use it when somebody plans a journey.

    It is right most of the time.

    :param city: The name | in English.
    """
    return [21.0] * days


@pytest.mark.req("FM-15")
def test_a_page_has_the_seven_points_of_a_tool() -> None:
    made = page(forecast.spec, target=forecast)
    text = markdown(made)
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == list(POINTS.values())
    assert text.startswith("# `forecast`: Forecast\n")
    assert made.purpose == ("Forecast the temperature of a city.\n\nIt is right most of the time.")
    assert made.used.startswith("Use it when somebody plans a journey.\n\nCategory: weather.")
    assert '`{"city": "Oslo"}`' in made.used
    assert "| `city` | `string` | required | The name \\| in English. |" in made.parameters
    assert "| `days` | `integer` | `3` |" in made.parameters
    assert made.returns == "`array of number`"
    for said in (
        "`WEATHER_KEY`",
        "`api.example.com:443`",
        "`process`",
        "`guess`",
        "1.2",
        "2 at most",
    ):
        assert said in made.configuration
    for said in ("Tier 3", "`idempotent`", "after 7 s", "asked before every call", "`boss`",
                 "`planner`", "2 calls at a time", "64 MiB", "0.5 proc", "3 proc"):  # fmt: skip
        assert said in made.limitations


@pytest.mark.req("FM-8", "FM-15")
def test_what_was_not_measured_says_so_with_what_its_kind_is_held_against() -> None:
    said = page(forecast.spec).performance
    assert said.startswith("Not measured yet.")
    for row in ("target of its kind | 500 ms", "longest it should take | 1 s", "after | 7 s"):
        assert row in said


@pytest.mark.req("FM-15")
def test_what_was_measured_is_told() -> None:
    said = page(forecast.spec, latency=measured([float(n) for n in range(1, 101)])).performance
    assert "100 calls" in said
    for row in ("half of the calls within | 50 ms", "95 % of the calls within | 95 ms",
                "longest call | 100 ms"):  # fmt: skip
        assert row in said
    assert measured([7.0]) == Latency(calls=1, p50=7.0, p95=7.0, longest=7.0)


def _call(took: float | None, **more: Any) -> AuditedCall:
    record = AuditRecord(
        kind="call", tool="t", code=more.pop("code", "OK"), duration_ms=took, **more
    )
    return AuditedCall(record, record)


@pytest.mark.req("FM-15")
def test_latencies_are_those_of_calls_that_ran_and_waited_for_nobody() -> None:
    known = latencies(
        [
            _call(10.0),
            _call(30.0),
            _call(500.0, code="TIMEOUT"),
            _call(0.1, cached=True),
            _call(0.1, dry_run=True),
            _call(9000.0, approver="ann"),
            _call(None),
            AuditedCall(AuditRecord(kind="intent", tool="t"), None),
        ]
    )
    assert known == {"t": Latency(calls=2, p50=10.0, p95=30.0, longest=30.0)}


def test_a_spec_that_says_little_makes_a_whole_page() -> None:
    made = page(ToolSpec(name="odd", description="Do it.", kind="http", binding={"url": "x"}))
    assert made.parameters == "It takes none."
    assert "does not say" in made.used
    assert made.returns.startswith("Its spec does not say what.")
    assert "written by others" in made.returns
    assert "url" not in markdown(made), "what runs it is no business of a reader"


def test_the_names_of_secrets_in_a_binding_are_told() -> None:
    auth = {"basic": {"user": "me", "password": "PASS_WORD"}, "bearer": "TOKEN"}
    spec = ToolSpec(
        name="odd", description="Do it.", kind="http", binding={"auth": auth, "secrets": ["K"]}
    )
    assert "`K`, `PASS_WORD`, `TOKEN`" in page(spec).configuration


def test_attack_the_words_of_a_tool_are_only_shown() -> None:
    evil = "Do.\n\n# Obey\n\n<script>x</script> [a](javascript:b)\n\n```\n| a |\n---\n\x1b[31m"
    spec = ToolSpec(
        name="evil",
        title="a|b\n# c",
        description=evil,
        input_schema={
            "type": "object",
            "properties": {"p`|q": {"type": "string", "description": "x | y\n# z <b>"}},
        },
    )
    lines = markdown(page(spec)).splitlines()
    assert [line for line in lines if line.startswith("# ")] == ["# `evil`: a\\|b # c"]
    text = "\n".join(lines)
    assert "\n# Obey" not in text and "<script" not in text.replace("\\<", "")
    assert "](j" not in text and "\x1b" not in text and "\n```" not in text
    (cells,) = [line for line in lines if line.startswith("| `` p")]
    assert cells.replace("\\|", "").count("|") == 5
