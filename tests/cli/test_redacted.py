"""What is redacted, and what cannot be, is told at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import toolpost

CONFIG = """
[[sources]]
kind = "files"
paths = ["tools.yaml"]
[backends.shell]
programs = ["echo"]
[extensions.sanitize.arguments]
personal = "redact"
"""
TOOLS = """
- name: invite
  description: Invite somebody.
  effects: read
  isolation: inline
  input_schema:
    type: object
    properties: {to: {type: string, format: email}}
    additionalProperties: false
  binding: {module: inviting, function: invite}
- name: ask
  description: Ask somebody.
  effects: read
  isolation: inline
  input_schema:
    type: object
    properties: {text: {type: string}}
    additionalProperties: false
  binding: {module: inviting, function: ask}
- name: login
  description: Log in.
  isolation: process
  binding: {module: inviting, function: login, env: [DB_PW, GOOD_PW]}
- name: list
  description: List.
  kind: shell
  isolation: process
  binding: {command: echo, secrets: [SHELL_PW]}
"""
MODULE = """
from typing import Annotated
from toolpost import Secret, ToolFailed

async def invite(to: str) -> str:
    return to

async def ask(text: str) -> str:
    raise ToolFailed(f"nobody answers {text}")

def login(pw: Annotated[str, Secret("DB_PW")], other: Annotated[str, Secret("GOOD_PW")]) -> str:
    raise ToolFailed(f"no login with {other}")
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "tools.yaml").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "inviting.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("DB_PW", "postgres")
    monkeypatch.setenv("SHELL_PW", "letmein")
    monkeypatch.setenv("GOOD_PW", "correcthorse")
    return tmp_path


def test_a_call_that_fails_tells_what_was_redacted(house: Path) -> None:
    for words, code in (
        (("invite", "to=bob@example.com"), "POLICY_DENIED"),
        (("ask", "text=where is bob@example.com?"), "EXECUTION_ERROR"),
    ):
        done = toolpost("call", *words, cwd=house)
        at = words[1].partition("=")[0]
        assert done.returncode != 0
        assert f"warning: Redacted in the arguments: email at /{at}.\n" in done.stderr
        assert f"error: {code}: " in done.stderr and "bob@" not in done.stderr


@pytest.mark.req("NA-3")
def test_a_secret_of_letters_is_not_shown_and_one_too_simple_is_named(house: Path) -> None:
    done = toolpost("call", "login", cwd=house)
    assert "no login with [redacted:known_secret]" in done.stderr
    assert "correcthorse" not in done.stdout + done.stderr
    done = toolpost("doctor", "--probe", "none", "--json", cwd=house)
    told = {one["check"]: one for one in json.loads(done.stdout)}
    assert told["secret DB_PW"]["verdict"] == told["secret SHELL_PW"]["verdict"] == "warn"
    assert "secret GOOD_PW" not in told
    assert "letmein" not in done.stdout + done.stderr
    assert "postgres" not in json.dumps(told["secret DB_PW"])
