"""Every example of the contracts runs, in a process of its own, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[2] / "examples" / "contracts"
EXAMPLES = sorted(CONTRACTS.glob("*/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_example_of_a_contract_does_what_it_promises(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", str(example)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert list(tmp_path.iterdir()) == []


def test_each_contract_has_examples() -> None:
    contracts = {"agentic", "faultmaven", "forge", "nachos", "unified"}
    assert {path.parent.name for path in EXAMPLES} >= contracts


def test_the_page_of_each_contract_leads_to_what_differs_and_back() -> None:
    root = CONTRACTS.parents[1]
    name = "contract-differences.md"
    page = (root / "docs" / "how-to" / name).read_text(encoding="utf-8")
    assert name in (root / "README.md").read_text(encoding="utf-8")
    for contract in ("agentic", "faultmaven", "forge", "nachos", "unified"):
        about = root / "docs" / "how-to" / f"from-{contract}.md"
        assert f"]({name})" in about.read_text(encoding="utf-8")
        assert f"]({about.name})" in page
