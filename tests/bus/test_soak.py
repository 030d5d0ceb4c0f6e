"""Workers, gateways and the server killed at random under load: nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bus.house import ROOT

pytestmark = [pytest.mark.timeout(900), pytest.mark.verify]
SECONDS = os.environ.get("SOAK_SECONDS", "60")
"""Ten minutes, by hand: ``SOAK_SECONDS=600``."""


@pytest.mark.req("NA-9")
def test_attack_killed_at_random_every_job_ends_once_no_effect_is_had_twice_and_nothing_leaks(
    tmp_path: Path,
) -> None:
    """Attacks 1 to 3, and 40."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bus.soaking", str(tmp_path), SECONDS],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE, timeout=float(SECONDS) + 280, check=True,
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    print(told)
    assert not told["wrong"]
    assert told["open"] == 0, "calls that the audit has not closed"
    assert sum(told["ends"].values()) == told["jobs"] > 20
    assert sum(told["kills"].values()) >= 3
    assert (told["gateway"]["waiting"], told["worker"]["running"]) == (0, 0)
    for kind in ("gateway", "worker"):
        before, after = told[kind]["before"], told[kind]["after"]
        assert after["tasks"] <= before["tasks"] + 3, told[kind]
        assert after["subscriptions"] <= before["subscriptions"] + 3, told[kind]
        assert after["files"] <= before["files"] + 5, told[kind]
        assert after["kilobytes"] < before["kilobytes"] + 30_000, told[kind]
