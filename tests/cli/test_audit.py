"""``toolpost audit``: what was called, whether that is true, and a copy for elsewhere."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Terminal, environment, json_of, toolpost

CONFIG = """
observers = ["audit"]
store = { kind = "sqlite" }

[[sources]]
kind = "files"
paths = ["tools.yaml"]
"""
SPECS = """
- name: add
  description: Add two numbers.
  tier: 0
  effects: read
  input_schema:
    type: object
    properties: {a: {type: integer}, b: {type: integer}}
    required: [a, b]
    additionalProperties: false
  binding: {module: audit_tools_of_the_test, function: add}
- name: send
  description: Send something.
  tier: 2
  input_schema:
    type: object
    properties: {to: {type: string}}
    required: [to]
  binding: {module: audit_tools_of_the_test, function: send}
"""
CODE = """
async def add(a, b): return a + b
async def send(to): return to
"""


@pytest.fixture(scope="module")
def three_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "toolpost.toml").write_text(CONFIG)
    (folder / "tools.yaml").write_text(SPECS)
    (folder / "audit_tools_of_the_test.py").write_text(CODE)
    assert toolpost("call", "add", "a=1", "b=2", cwd=folder).returncode == 0
    assert toolpost("call", "send", "to=ann", "--session", "s1", cwd=folder).returncode == 0
    assert toolpost("call", "no_such_tool", cwd=folder).returncode == 4
    return folder


@pytest.fixture
def project(three_calls: Path, tmp_path: Path) -> Path:
    """Each test has a copy of its own."""
    return Path(shutil.copytree(three_calls, tmp_path / "project"))


def test_the_last_calls_are_shown(project: Path) -> None:
    done = toolpost("audit", "tail", cwd=project)
    assert done.returncode == 0
    for word in ("add", "send", "no_such_tool", "NOT_FOUND", "3 calls"):
        assert word in done.stdout
    (last,) = json_of("audit", "tail", "-n", "1", cwd=project)
    assert (last["tool"], last["code"]) == ("no_such_tool", "NOT_FOUND")


@pytest.mark.parametrize("width", [44, 60, 80, 120])
def test_a_call_is_one_line_and_its_id_can_be_copied(project: Path, width: int) -> None:
    found = json_of("audit", "tail", cwd=project)
    shown = toolpost("audit", "tail", cwd=project, COLUMNS=str(width)).stdout.splitlines()
    header, *rows, count = shown
    assert (len(rows), count) == (3, "3 calls")
    assert max(map(len, shown)) <= width
    for row, call in zip(rows, found, strict=True):
        assert call["code"] in row and call["tool"][:3] in row and call["caller"]["id"][:2] in row
    (short,) = [word for word in rows[1].split() if "-" in word and "…" not in word][-1:]
    assert len(short) < 16
    assert json_of("audit", "show", short, cwd=project) == found[1]
    assert ("ms" in header, "time" in header) == (width >= 70, width >= 50)


def test_a_long_name_is_shown_with_its_end(project: Path) -> None:
    name = "warehouse.inventory.adjust_quantity_of_many_items_at_once_now"
    toolpost("call", name, cwd=project)
    last = toolpost("audit", "tail", "-n", "1", cwd=project).stdout.splitlines()[1]
    assert "ware" in last and "…" in last and "_now" in last and "owner" in last


def test_wide_lines_have_everything_whole(project: Path) -> None:
    found = json_of("audit", "tail", cwd=project)
    for words in (["tail", "--wide"], ["search", "--wide"], ["tail", "--wide", "-n", "3"]):
        shown = toolpost("audit", *words, cwd=project, COLUMNS="40").stdout
        assert all(call["call_id"] in shown and call["tool"] in shown for call in found)


def test_a_code_that_no_call_can_have_is_refused_with_the_nearest(project: Path) -> None:
    wrong = toolpost("audit", "search", "--code", "OKK", cwd=project)
    assert (wrong.returncode, "did you mean 'OK'?" in wrong.stderr) == (2, True)
    wrong = toolpost("audit", "export", "--code", "x", cwd=project)
    assert (wrong.returncode, "there are OK, VALIDATION_ERROR," in wrong.stderr) == (2, True)
    for code, number in (("ok", 2), ("NOT_FOUND", 1), ("unknown", 0), ("OPEN", 0)):
        assert len(json_of("audit", "search", "--code", code, cwd=project)) == number


def test_new_calls_are_followed(project: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "audit", "tail", "-n", "1", "--follow", "--json"],
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["tool"] == "no_such_tool"
            toolpost("call", "add", "a=5", "b=5", cwd=project)
            assert json.loads(following.stdout.readline())["arguments"] == {"a": 5, "b": 5}
        finally:
            following.kill()


def test_calls_are_searched(project: Path) -> None:
    (found,) = json_of("audit", "search", "--session", "s1", "--since", "1h", cwd=project)
    assert found["arguments"] == {"to": "ann"}
    assert json_of("audit", "search", "--until", "2020-01-01", cwd=project) == []
    assert "No calls" in toolpost("audit", "search", "--tool", "x", cwd=project).stderr
    assert (
        len(json_of("audit", "search", "--since", "yesterday", "--session", "s1", cwd=project)) == 1
    )
    wrong = toolpost("audit", "search", "--since", "tomorrow", cwd=project)
    assert (wrong.returncode, "today, yesterday" in wrong.stderr) == (2, True)


def test_one_call_is_shown_whole(project: Path) -> None:
    (found,) = json_of("audit", "search", "--tool", "send", cwd=project)
    assert json_of("audit", "show", found["call_id"], cwd=project) == found
    shown = toolpost("audit", "show", found["call_id"], cwd=project).stdout
    assert "arguments_digest" in shown
    assert "sha256:" in shown
    none = toolpost("audit", "show", "nothing", cwd=project)
    assert (none.returncode, "No call has the id 'nothing'" in none.stderr) == (1, True)
    several = toolpost("audit", "show", found["call_id"][:4], cwd=project)
    assert (several.returncode, "3 calls may be meant" in several.stderr) == (1, True)
    assert found["call_id"] in several.stderr


def test_an_audit_as_it_was_written_is_proved(project: Path) -> None:
    done = toolpost("audit", "verify", cwd=project)
    assert (done.returncode, "as they were written" in done.stdout) == (0, True)
    assert json_of("audit", "verify", cwd=project)["ok"]


def test_attack_the_first_bad_record_is_named(project: Path) -> None:
    earlier = project / "earlier.json"
    earlier.write_text(toolpost("audit", "verify", "--json", cwd=project).stdout)
    connection = sqlite3.connect(project / ".toolpost" / "store.db")
    with connection:
        connection.execute("DELETE FROM journal WHERE number > 4")
    connection.close()
    done = toolpost("audit", "verify", cwd=project)
    assert done.returncode == 1
    assert "CUT: record 5 of chain" in done.stdout
    assert "NOT as written" in done.stdout
    for file in (project / ".toolpost" / "audit").glob("chain-*"):
        file.unlink()
    done = toolpost("audit", "verify", "--against", "earlier.json", cwd=project)
    assert (done.returncode, "CUT: record 5" in done.stdout) == (1, True)
    done = toolpost("audit", "verify", "--against", "tools.yaml", cwd=project)
    assert (done.returncode, "this is not what" in done.stderr) == (78, True)


def test_an_export_can_be_proved_where_the_key_is(project: Path) -> None:
    done = toolpost("audit", "export", "--format", "journal", "-o", "all.jsonl", cwd=project)
    assert (done.returncode, "lines written to all.jsonl" in done.stderr) == (0, True)
    lines = (project / "all.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["number"] == 1
    assert toolpost("audit", "verify", "all.jsonl", cwd=project).returncode == 0
    copy = json.loads(lines[1])
    body = b64decode(copy["body"])
    assert b"\xa3add" in body
    copy["body"] = b64encode(body.replace(b"\xa3add", b"\xa3sub")).decode()
    changed = json.dumps(copy)
    (project / "all.jsonl").write_text("\n".join([lines[0], changed, *lines[2:]]) + "\n")
    assert toolpost("audit", "verify", "all.jsonl", cwd=project).returncode == 1
    for field, other in (("number", 7), ("writer", "w")):
        moved = json.dumps(json.loads(lines[1]) | {field: other})
        (project / "all.jsonl").write_text("\n".join([lines[0], moved, *lines[2:]]) + "\n")
        assert toolpost("audit", "verify", "all.jsonl", cwd=project).returncode == 1
    (project / "all.jsonl").write_text("rubbish\n")
    done = toolpost("audit", "verify", "all.jsonl", cwd=project)
    assert done.returncode == 1
    assert done.stdout.startswith("EDITED: record 1 of chain (unknown): this is no line as `audit")
    (project / "all.jsonl").write_text("")
    done = toolpost("audit", "verify", "all.jsonl", cwd=project)
    assert "not proved: there is no record in all.jsonl" in done.stdout
    done = toolpost("audit", "export", "--format", "journal", "--tool", "add", cwd=project)
    assert (done.returncode, "leave out the filters" in done.stderr) == (2, True)


def test_calls_are_exported_as_rows(project: Path) -> None:
    text = toolpost("audit", "export", "--format", "csv", cwd=project).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["tool"] for row in rows] == ["add", "send", "no_such_tool"]
    lines = toolpost("audit", "export", cwd=project).stdout.splitlines()
    assert [json.loads(line)["tool"] for line in lines] == ["add", "send", "no_such_tool"]
    line = toolpost("audit", "export", "--tool", "send", cwd=project).stdout
    assert json.loads(line)["outcome"] == "done"


def test_a_store_that_keeps_nothing_has_no_audit_to_read(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('store = { kind = "memory" }\n')
    done = toolpost("audit", "tail", cwd=tmp_path)
    assert (done.returncode, 'kind = "sqlite"' in done.stderr) == (78, True)


def test_a_project_without_calls_has_an_empty_audit(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('store = { kind = "sqlite" }\n')
    assert json_of("audit", "tail", cwd=tmp_path) == []
    assert json_of("audit", "verify", cwd=tmp_path)["records"] == 0


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp\u202c\u200b\U000e0041\x9b31m"


@pytest.mark.parametrize("form", ["jsonl", "csv", "journal"])
def test_an_export_at_a_terminal_holds_nothing_that_the_terminal_obeys(
    project: Path, form: str
) -> None:
    assert toolpost("call", "send", f"to={HOSTILE}", cwd=project).returncode == 0
    with Terminal("audit", "export", "--format", form, cwd=project) as terminal:
        assert terminal.ended() == 0
        shown = terminal.written
    piped = toolpost("audit", "export", "--format", form, cwd=project).stdout
    assert form != "jsonl" or "\u202e" in piped, "a copy says exactly what was written"
    for character in "\x1b\x07\x9b\u202e\u202c\u200b\U000e0041":
        assert character not in shown
    lines = [line for line in shown.replace("\r\n", "\n").split("\n") if line]
    if form != "csv":
        assert [json.loads(line) for line in lines] == [
            json.loads(line) for line in piped.splitlines()
        ]


def test_a_key_that_is_gone_is_said_and_ends_with_one(project: Path) -> None:
    (key,) = project.glob(".toolpost/**/audit.key")
    key.unlink()
    found = toolpost("audit", "verify", cwd=project)
    assert found.returncode == 1
    assert f"MISSING: the key that signs the audit is gone: {key}" in found.stdout
    assert "NOT as written" in found.stdout
    told = json_of("audit", "verify", cwd=project)
    assert told["ok"] is False and told["problems"][0]["fault"] == "missing"


def test_a_key_that_was_made_anew_is_said_until_a_person_accepts_it(project: Path) -> None:
    (key,) = project.glob(".toolpost/**/audit.key")
    assert toolpost("audit", "verify", cwd=project).returncode == 0
    key.unlink()
    assert toolpost("call", "add", "a=1", "b=2", cwd=project).returncode == 0
    for _ in range(2):
        found = toolpost("audit", "verify", cwd=project)
        assert found.returncode == 1
        assert "MISSING: the key that signs the audit was replaced" in found.stdout
        assert "toolpost audit verify --accept-key" in found.stdout
    assert toolpost("audit", "verify", "--accept-key", cwd=project).returncode == 0
    assert toolpost("audit", "verify", cwd=project).returncode == 0
    (accepted,) = key.parent.glob("*.accepted")
    accepted.write_text("somebody else\n")  # who cannot sign
    assert toolpost("audit", "verify", cwd=project).returncode == 1


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize(
    "file", ["audit.key", "*.pub", "chain-000.json", "store.db", "store.db-note"]
)
def test_what_is_no_file_is_told_of_and_not_waited_for(project: Path, file: str, kind: str) -> None:
    (taken,) = project.glob(f".toolpost/**/{file}")
    taken.unlink()
    if kind == "pipe":
        os.mkfifo(taken)
    else:
        taken.mkdir()
    found = toolpost("audit", "verify", cwd=project)
    told = found.stdout + found.stderr
    assert "Traceback" not in told and found.returncode != 70, told
    if file == "store.db-note":
        assert found.returncode == 0, told
    else:
        assert found.returncode != 0, told
        assert file == "chain-000.json" or (taken.name in told and "no file" in told), told


@pytest.mark.parametrize("file", ["audit.key", "*.pub", "chain-000.json", "store.db"])
def test_damaged_files_are_told_of_in_a_sentence(project: Path, file: str) -> None:
    (damaged,) = project.glob(f".toolpost/**/{file}")
    content = damaged.read_bytes()
    for junk in (b"", b"\xff\x00junk" * 300, content[:40]):
        damaged.write_bytes(junk)
        found = toolpost("audit", "verify", cwd=project)
        assert "Traceback" not in found.stderr and found.returncode != 70, found.stderr
        assert found.returncode != 0 or file == "store.db", (junk[:9], found.stdout)
