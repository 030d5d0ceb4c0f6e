"""What a served tool logs reaches standard error without secrets, wherever the tool runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.program import program, until
from tests.redact_corpus import made

pytestmark = pytest.mark.anyio
TOKEN = "gh" + "p_" + made(36)
CONFIG = """
[[sources]]
kind = "modules"
modules = ["logging_tools"]
"""
MODULE = '''
import logging, sys
from toolpost import tool

_log = logging.getLogger("my.tools")
own = logging.getLogger("my.own")
own.propagate = False
own.addHandler(logging.StreamHandler(sys.stderr))
KEY = "gh" + "p_" + {body!r}

def tell(where):
    _log.warning("%s uses %s of bob@example.com", where, KEY)
    _log.error("%s says %s%s", where, "x" * (8 * 1024 - 40), KEY)
    own.error("%s handles %s", where, KEY)
    try:
        raise ValueError(KEY)
    except ValueError:
        _log.exception("%s failed", where)
        own.exception("%s failed by itself", where)
    _log.critical("%s is done", where)

@tool(tier=0, effects="read", isolation="inline")
async def inline() -> int:
    """Log inline."""
    tell("inline")
    return 1

@tool(tier=0, effects="read", isolation="thread")
def thread() -> int:
    """Log in a thread."""
    tell("thread")
    return 1

@tool(tier=0, effects="read", isolation="process")
def process() -> int:
    """Log in a process."""
    tell("process")
    return 1
'''


@pytest.mark.parametrize("where", ["inline", "thread", "process"])
async def test_what_a_tool_logs_itself_is_redacted(where: str, tmp_path: Path) -> None:
    (tmp_path / "logging_tools.py").write_text(MODULE.format(body=TOKEN[4:]))
    stderr = tmp_path / "stderr"
    async with program(tmp_path, config=CONFIG) as served:
        assert (await served.call(where)).data["output"] == 1
        await until(lambda: f"{where} is done" in stderr.read_text())
    said = stderr.read_text()
    assert f"{where} uses [redacted:github_token] of [redacted:email]" in said
    assert TOKEN not in said and TOKEN[:10] not in said and TOKEN[8:20] not in said
    assert said.count(f"{where} is done") == 1
