"""Texts that are cut to size have no part of a secret in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redact_corpus import SECRETS, made, texts
from toolpost import Call, Runtime, ToolFailed, tool
from toolpost.config import Config
from toolpost.extensions.log import setup
from toolpost.ledger.opening import lines_of
from toolpost.ledger.reading import calls
from toolpost.wording import redacted_and_shortened, short

pytestmark = pytest.mark.anyio
TOKEN = "gh" + "p_" + made(36)
PIECE = TOKEN[:8]


@pytest.mark.parametrize("before", [0, 20, 40, 52, 56, 59, 190, 196])
def test_a_secret_that_would_be_cut_in_half_is_redacted_whole(before: int) -> None:
    for text in (short("x" * before + " " + TOKEN, 60), short(f"{'x' * before} {TOKEN}", 200)):
        assert PIECE[:6] not in text or TOKEN in text, "it is whole, for whoever redacts it"


@pytest.mark.parametrize(("kind", "value", "text"), texts(SECRETS))
def test_no_cut_leaves_the_beginning_of_a_secret(kind: str, value: str, text: str) -> None:
    start = text.index(value)
    if len(value) > 12:
        cut = redacted_and_shortened(text + " " * 20, start + len(value) - 2)
        assert value[:-2] not in cut


def test_what_is_short_enough_stays_as_it_is() -> None:
    assert short("ask bob@example.com") == "ask bob@example.com"
    assert short("a\x1b[1mb") == "a\ufffd[1mb"
    assert short("y" * 61) == "y" * 59 + "…"


@tool(effects="read")
async def talk(call: Call, fail: bool) -> str:
    """Say a lot."""
    call.warn("x" * 980 + " " + TOKEN)
    call.note("talk", "x" * 980 + " " + TOKEN)
    if fail:
        raise ToolFailed("x" * (8 * 1024 - 20) + " " + TOKEN)
    return "said"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream, logger = io.StringIO(), logging.getLogger("toolpost")
    before, handler = logger.level, setup(stream, form="machines")
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before)


async def test_attack_no_part_of_a_key_is_in_the_audit_the_log_or_the_answer(
    tmp_path: Path, log: io.StringIO
) -> None:
    config = {"observers": ["audit", "log"], "guards": ["sanitize"]}
    names = [f"{'x' * n} {TOKEN}" for n in (0, 30, 45, 50, 55, 180, 195, 4090)]
    async with Runtime(Config.of(config, base=tmp_path), tools=[talk]) as tools:
        results = [await tools.execute(name) for name in names]
        results += [await tools.execute("talk", {"fail": fail}) for fail in (True, False)]
        await tools.extension("audit").close()
        written = [one async for one in calls(lines_of(tools.store))]
    assert len(written) == len(results)
    for said in (repr(written), log.getvalue(), json.dumps([r.to_dict() for r in results])):
        assert PIECE not in said
