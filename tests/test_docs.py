"""Every code block of the documentation runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, pages, run


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        try:
            run(block, tmp_path)
        except AssertionError as fault:
            pytest.fail(f"{page.relative_to(ROOT)}:{block.line}: {fault}", pytrace=False)


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_inside_the_documentation_leads_somewhere(page: Path) -> None:
    import re

    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
