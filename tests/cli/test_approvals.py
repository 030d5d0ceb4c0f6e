"""``toolpost approvals``: a person sees what waits, and answers at a terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Terminal, json_of, toolpost
from toolpost.stores.sqlite import SqliteStore

CONFIG = """
guards = ["once.lookup", "approval", "once"]

[[sources]]
kind = "files"
paths = ["tools.yaml"]

[store]
kind = "sqlite"
"""
SPECS = """
- name: pay
  description: Pay somebody.
  requires_approval: true
  isolation: inline
  input_schema:
    type: object
    properties: {to: {type: string}, amount: {type: integer, default: 10}}
    required: [to]
  binding: {module: bank, function: pay}
"""
MODULE = """
async def pay(to: str, amount: int) -> str:
    return f"paid {amount} to {to}"
"""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "tools.yaml").write_text(SPECS, encoding="utf-8")
    (tmp_path / "bank.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def asked(bank: Path, *words: str) -> str:
    done = toolpost("call", "pay", *(words or ("to=bob",)), "--json", cwd=bank)
    assert done.returncode == 7, done.stdout + done.stderr
    return str(json.loads(done.stdout)["error"]["details"]["approval"])


def at_terminal(
    bank: Path, *words: str, typed: tuple[tuple[str, str], ...] = ()
) -> tuple[int, str]:
    with Terminal("approvals", *words, cwd=bank) as terminal:
        for until, keys in typed:
            terminal.read_until(until)
            terminal.press(keys.encode())
        return terminal.ended(), terminal.written


def paid(bank: Path, *words: str) -> Any:
    return json_of("call", "pay", *(words or ("to=bob",)), cwd=bank)["output"]


@pytest.mark.req("FM-13")
def test_a_call_is_asked_for_approved_at_a_terminal_and_made_again(bank: Path) -> None:
    handle = asked(bank)
    (listed,) = json_of("approvals", "list", cwd=bank)
    assert (listed["handle"], listed["status"]) == (handle, "waiting")
    assert listed["arguments"] == {"to": "bob", "amount": 10}
    assert handle in toolpost("approvals", "list", cwd=bank).stdout

    status, written = at_terminal(bank, "approve", handle[:10], typed=(("[y/N]", "y\n"),))
    assert status == 0 and f"{handle} is approved." in written
    assert '{"amount":10,"to":"bob"}' in written

    assert paid(bank) == "paid 10 to bob"
    assert toolpost("call", "pay", "to=bob", cwd=bank).returncode == 7, "the next asks anew"
    shown = toolpost("approvals", "show", handle, cwd=bank).stdout
    assert "used" in shown and "(terminal)" in shown


def test_not_meaning_it_changes_nothing(bank: Path) -> None:
    handle = asked(bank)
    status, _ = at_terminal(bank, "approve", handle, typed=(("[y/N]", "n\n"),))
    assert status == 130
    assert json_of("approvals", "show", handle, cwd=bank)["status"] == "waiting"


def test_whoever_holds_only_a_pipe_cannot_approve_their_own_call(bank: Path) -> None:
    handle = asked(bank)
    done = toolpost("approvals", "approve", handle, "--yes", cwd=bank, stdin="y\ny\n")
    assert done.returncode == 6
    assert "terminal" in done.stderr
    assert json_of("approvals", "show", handle, cwd=bank)["status"] == "waiting"


def test_a_no_is_said_from_anywhere_and_the_agent_hears_why(bank: Path) -> None:
    handle = asked(bank)
    done = toolpost("approvals", "deny", handle, "--reason", "Not bob.", cwd=bank)
    assert done.stdout == f"{handle} is denied.\n"
    again = toolpost("call", "pay", "to=bob", cwd=bank)
    assert again.returncode == 8 and "Not bob." in again.stderr
    late = toolpost("approvals", "deny", handle, cwd=bank)
    assert late.returncode == 14 and "denied already" in late.stderr
    assert toolpost("approvals", "list", cwd=bank).stdout == ""
    assert handle in toolpost("approvals", "list", "--all", cwd=bank).stdout
    assert "Not bob." in toolpost("approvals", "show", handle, cwd=bank).stdout


def test_an_edit_changes_the_arguments_that_it_names(bank: Path) -> None:
    handle = asked(bank)
    words = ("approve", handle, "--edit", '{"amount": 3}')
    status, written = at_terminal(bank, *words, typed=(("[y/N]", "y\n"),))
    assert status == 0 and 'instead    {"amount":3,"to":"bob"}' in written
    assert paid(bank) == "paid 3 to bob"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ('{"amont": 5}', "pay has no parameter 'amont'; did you mean 'amount'?"),
        ('{"amount": "much"}', "/amount: expected integer"),
        ("5", '--edit takes a JSON object, such as {"amount": 5}.'),
    ],
)
def test_an_edit_that_the_tool_would_not_take_is_refused_before_it_is_asked_about(
    bank: Path, edit: str, why: str
) -> None:
    handle = asked(bank)
    status, written = at_terminal(bank, "approve", handle, "--edit", edit)
    assert status in (2, 3) and why in written
    assert "[y/N]" not in written
    assert json_of("approvals", "show", handle, cwd=bank)["status"] == "waiting"


@pytest.mark.parametrize("word", ["deny", "revoke"])
def test_a_yes_that_is_not_used_yet_is_taken_back(bank: Path, word: str) -> None:
    handle = asked(bank)
    assert at_terminal(bank, "approve", handle, "--yes")[0] == 0
    done = toolpost("approvals", word, handle[:9], cwd=bank)
    assert done.stdout == f"{handle} is denied.\n"
    assert toolpost("call", "pay", "to=bob", cwd=bank).returncode == 8


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--where", "to=eve", "--where", 'amount:={"maxmum": 50}'), "did you mean 'maximum'?"),
        (("--where", "amount:={}"), "{} would fit anything"),
        (("--where", "amout=5"), "did you mean 'amount'?"),
        (("--where", "amount:=80"), 'such as amount:={"maximum": 50}'),
        (("--uses", "3"), "go with --session or --where"),
        (("--for", "3m"), "go with --session or --where"),
    ],
)
def test_a_lasting_yes_that_is_misspelt_is_refused_before_it_is_asked_about(
    bank: Path, words: tuple[str, ...], why: str
) -> None:
    handle = asked(bank)
    status, written = at_terminal(bank, "approve", handle, *words)
    assert status in (2, 3) and why in " ".join(written.split())
    assert "[y/N]" not in written and "approvals approve --help" in written
    assert json_of("approvals", "standing", cwd=bank) == []


def test_a_person_sees_how_far_a_yes_goes_before_they_give_it(bank: Path) -> None:
    handle = asked(bank, "to=7")
    words = ("--where", "to=7", "--where", 'amount:={"maximum": 50}', "--uses", "2")
    at = (("[y/N]", "y\n"),)
    status, written = at_terminal(bank, "approve", handle, *words, "--for", "5min", typed=at)
    told = " ".join(written.split())
    assert status == 0
    assert "at most 2 calls of pay by the same caller, unasked, for 5 minutes" in told
    assert 'where to is "7"' in told and 'where amount fits {"maximum":50}' in told
    assert paid(bank, "to=7", "amount=50") == "paid 50 to 7", "a value is read as in a call"


def test_what_cannot_be_read_is_named_and_the_rest_is_listed(bank: Path) -> None:
    good, bad = asked(bank), asked(bank, "to=carl")

    async def spoil() -> None:
        store = SqliteStore(bank / ".toolpost" / "store.db")
        await store.open()
        await store.put("approvals", bad, {"tool": 5})
        await store.close()

    asyncio.run(spoil())
    listed = toolpost("approvals", "list", "--json", cwd=bank)
    assert [one["handle"] for one in json.loads(listed.stdout)] == [good]
    assert f"{bad} cannot be read, and is left out" in listed.stderr


@pytest.mark.parametrize(
    ("expires", "left"), [(90, "89s"), (3600, "59m"), (7200, "119m"), (30 * 86400, "29d")]
)
def test_a_list_fits_a_terminal_and_tells_how_long_there_is(
    bank: Path, expires: int, left: str
) -> None:
    config = bank / "toolpost.toml"
    config.write_text(f"{config.read_text()}\n[extensions.approval]\nexpires = {expires}\n")
    handle = asked(bank)
    shown = toolpost("approvals", "list", cwd=bank, COLUMNS="80").stdout.splitlines()
    (line,) = [one for one in shown if handle in one]
    words = line.split()
    assert words[:3] == [handle, "pay", "owner"]
    least, unit, shown = int(left[:-1]), left[-1], words[3]
    assert (least - 30 <= int(shown[:-1]) <= least + 1, shown[-1]) == (True, unit)
    assert line.rstrip().endswith("A person has to confirm pay")
    every = toolpost("approvals", "list", "--all", cwd=bank, COLUMNS="80").stdout
    assert f"{handle}   pay    owner    waiting   A person has to confirm pay" in every


@pytest.mark.parametrize(
    "words", [("show", "ap-0000"), ("approve", "ap-0000"), ("deny", "x"), ("revoke", "st-0")]
)
def test_what_goes_wrong_is_json_for_programs(bank: Path, words: tuple[str, ...]) -> None:
    done = toolpost("approvals", *words, "--json", cwd=bank)
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["code"] == "NOT_FOUND"


def test_what_to_do_next_is_named(bank: Path) -> None:
    done = toolpost("call", "pay", "to=bob", cwd=bank)
    assert "toolpost approvals approve ap-" in done.stderr
    unknown = toolpost("approvals", "show", "ap-0000", cwd=bank)
    assert "toolpost approvals list" in unknown.stderr
    nobody = toolpost("call", "pay", "to=bob", cwd=bank, TOOLPOST_GUARDS='["slots"]')
    assert nobody.returncode == 7, "where no guard asks, the tool does not run"
    assert "put approval into the guards" in nobody.stderr


@pytest.mark.req("NA-12")
def test_what_people_decide_is_on_record(bank: Path) -> None:
    handle = asked(bank)
    words = ("--where", "to=bob", "--reason", "Go on.")
    assert at_terminal(bank, "approve", handle, "--yes", *words)[0] == 0
    (lasting,) = json_of("approvals", "standing", cwd=bank)
    toolpost("approvals", "revoke", lasting["handle"][:8], cwd=bank)
    toolpost("approvals", "deny", handle, "--reason", "No.", cwd=bank)
    found = [json.loads(line) for line in toolpost("audit", "export", cwd=bank).stdout.splitlines()]
    decided = [one for one in found if one["kind"] == "decision"]
    assert [(one["code"], one["grant"]) for one in decided] == [
        ("APPROVED", handle),
        ("REVOKED", lasting["handle"]),
        ("TAKEN_BACK", handle),
    ]
    first = decided[0]
    assert (first["tool"], first["message"]) == ("pay", "Go on.")
    assert first["arguments"] == {"amount": 10, "to": "bob"}
    assert first["details"]["lasting"]["where"] == {"to": {"const": "bob"}}
    assert "(terminal)" in first["approver"] and "(api)" in decided[1]["approver"]
    assert toolpost("audit", "verify", cwd=bank).returncode == 0
    assert toolpost("audit", "search", "--code", "approved", cwd=bank).returncode == 0


def test_a_yes_that_lasts_is_listed_and_revoked(bank: Path) -> None:
    handle = asked(bank)
    words = ("approve", handle, "--yes", "--where", "to=bob", "--where", 'amount:={"maximum": 50}')
    assert at_terminal(bank, *words, "--uses", "2")[0] == 0
    assert paid(bank, "to=bob", "amount=40") == "paid 40 to bob"
    (lasting,) = json_of("approvals", "standing", cwd=bank)
    assert lasting["left"] == 1
    assert lasting["where"] == {"to": {"const": "bob"}, "amount": {"maximum": 50}}
    assert lasting["handle"] in toolpost("approvals", "standing", cwd=bank).stdout
    asked(bank, "to=bob", "amount=60")
    assert json_of("approvals", "revoke", lasting["handle"], cwd=bank)["tool"] == "pay"
    asked(bank, "to=bob", "amount=41")
    assert "No yes lasts" in toolpost("approvals", "standing", cwd=bank).stderr


def test_a_yes_for_a_session_covers_it(bank: Path) -> None:
    handle = asked(bank, "to=bob", "--session", "s1")
    assert at_terminal(bank, "approve", handle, "--yes", "--session")[0] == 0
    assert paid(bank, "to=carl", "--session", "s1") == "paid 10 to carl"
    assert "this session" in toolpost("approvals", "standing", cwd=bank).stdout
    asked(bank, "to=carl", "--session", "s2")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("show", "ap-0000"), 4),
        (("show", "nonsense"), 4),
        (("revoke", "st-0"), 4),
        (("approve", "HANDLE", "--edit", "[]"), 2),
        (("approve", "HANDLE", "--where", "to"), 2),
        (("approve", "HANDLE", "--where", 'to:={"type": "nothing"}'), 65),
    ],
)
def test_what_cannot_be_done_is_said(bank: Path, words: tuple[str, ...], status: int) -> None:
    handle = asked(bank)
    words = tuple(handle if word == "HANDLE" else word for word in words)
    code, written = at_terminal(bank, *words, *(("--yes",) if words[0] == "approve" else ()))
    assert code == status, written
    assert "Traceback" not in written and "Sorry" not in written


def test_a_watch_shows_what_comes_and_takes_the_answer(bank: Path) -> None:
    first = asked(bank)
    with Terminal("approvals", "watch", cwd=bank) as terminal:
        terminal.read_until(first)
        terminal.read_until("skip]")
        terminal.press(b"y\n")
        terminal.read_until(f"{first} is approved.")
        second = asked(bank, "to=carl")
        terminal.read_until(second)
        toolpost("approvals", "deny", second, cwd=bank)
        terminal.press(b"y\n")
        terminal.read_until("denied already")
        third = asked(bank, "to=dora")
        terminal.read_until(third)
        terminal.press(b"\n")
        terminal.press(b"\x03")
        assert terminal.ended() == 130
    assert paid(bank) == "paid 10 to bob"
    assert json_of("approvals", "show", third, cwd=bank)["status"] == "waiting"


def test_a_watch_for_programs_prints_lines_and_asks_nothing(bank: Path) -> None:
    handle = asked(bank)
    with Terminal("approvals", "watch", "--json", cwd=bank) as terminal:
        terminal.read_until(f'"handle": "{handle}"')
        terminal.press(b"\x03")
        assert terminal.ended() == 130
    assert "skip" not in terminal.written


def test_nothing_waits_where_nothing_was_asked(bank: Path) -> None:
    done = toolpost("approvals", "list", cwd=bank)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Nothing waits" in done.stderr


def test_a_store_in_memory_is_told_to_have_nothing(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[store]\nkind = "memory"\n', encoding="utf-8")
    assert "in memory" in toolpost("approvals", "list", cwd=tmp_path).stderr


def test_an_approved_call_whose_answer_was_lost_is_repeated_by_its_key(bank: Path) -> None:
    handle = asked(bank, "to=bob", "--key", "order-1")
    status, _ = at_terminal(bank, "approve", handle, typed=(("[y/N]", "y\n"),))
    assert status == 0
    first = json_of("call", "pay", "to=bob", "--key", "order-1", cwd=bank)
    again = json_of("call", "pay", "to=bob", "--key", "order-1", cwd=bank)
    assert first["output"] == again["output"] == "paid 10 to bob"
    assert again["metadata"]["cached"] is True
    assert json_of("approvals", "list", cwd=bank) == []
    assert toolpost("call", "pay", "to=eve", "--key", "order-1", cwd=bank).returncode != 7
