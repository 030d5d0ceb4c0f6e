"""``toolpost keys``: made, listed, shown and ended on the store of the config, without a server."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any

from tests.cli.program import json_of, toolpost
from toolpost.clock import SystemClock
from toolpost.gateway.identity import AuthSettings, Identity
from toolpost.stores.sqlite import SqliteStore


async def caller_of(folder: Path, text: str) -> str:
    """Who the gateway on this store takes it for."""
    store = SqliteStore(folder / ".toolpost" / "store.db")
    await store.open()
    try:
        identity = Identity.of(AuthSettings(keys=True), records=store, clock=SystemClock())
        return (await identity.caller(f"Bearer {text}".encode())).id
    except Exception as fault:
        return type(fault).__name__
    finally:
        await store.close()


def test_a_key_is_made_used_listed_and_revoked(tmp_path: Path) -> None:
    words = ("keys", "create", "ci", "--role", "operator", "--tool", "kb.*", "--expires", "12h")
    done = toolpost(*words, cwd=tmp_path)
    text = done.stdout.strip()
    assert done.returncode == 0 and re.fullmatch(r"tpk_[0-9a-f]{12}_[0-9a-f]{64}", text)
    assert "this once" in done.stderr and text not in done.stderr

    (listed,) = json_of("keys", "list", cwd=tmp_path)
    key_id = listed["id"]
    assert (listed["name"], listed["agent"], listed["roles"]) == ("ci", "ci", ["operator"])
    assert (listed["tools"], listed["state"]) == (["kb.*"], "live")
    assert listed["expires"] - listed["created"] == 12 * 3600
    table = toolpost("keys", "list", cwd=tmp_path).stdout
    assert key_id in table and "operator" in table and "11h" in table
    shown = toolpost("keys", "show", key_id[:5], cwd=tmp_path).stdout
    assert "kb.*" in shown
    kept = b"".join(file.read_bytes() for file in (tmp_path / ".toolpost").glob("*.db*"))
    assert text[-64:] not in table + shown and text[-64:].encode() not in kept
    assert asyncio.run(caller_of(tmp_path, text)) == f"key:{key_id}"

    assert "is revoked" in toolpost("keys", "revoke", key_id, cwd=tmp_path).stdout
    assert asyncio.run(caller_of(tmp_path, text)) == "Unidentified"
    assert "There are no keys" in toolpost("keys", "list", cwd=tmp_path).stderr

    assert "is revoked" in toolpost("keys", "revoke", key_id, cwd=tmp_path).stdout
    audited = json_of("audit", "search", cwd=tmp_path)
    assert [one["code"] for one in audited] == ["KEY_CREATED", "KEY_REVOKED"], "each of them once"
    for one, state in zip(audited, ("live", "revoked"), strict=True):
        assert (one["kind"], one["tool"]) == ("decision", "keys")
        assert one["caller"]["id"].startswith("local:") and one["approver"].endswith("(api)")
        about = one["details"]["key"]
        assert (about["id"], about["state"]) == (key_id, state)
        assert (about["roles"], about["tools"]) == (["operator"], ["kb.*"])
    told = json.dumps(audited)
    assert text[-64:] not in told and "digest" not in told
    assert toolpost("audit", "verify", cwd=tmp_path).returncode == 0


def test_there_is_no_key_without_a_record(tmp_path: Path) -> None:
    (tmp_path / ".toolpost").mkdir()
    (tmp_path / ".toolpost" / "audit").write_text("no folder", encoding="utf-8")
    done = toolpost("keys", "create", "ci", cwd=tmp_path)
    assert done.returncode != 0 and not done.stdout
    assert "there is no key without a record" in done.stderr
    assert "There are no keys" in toolpost("keys", "list", cwd=tmp_path).stderr


def test_json_has_the_key_once_and_what_is_wrong_says_what_to_do(tmp_path: Path) -> None:
    words = ("keys", "create", "helper", "--user", "alice", "--agent", "bot", "--expires", "never")
    made = json_of(*words, cwd=tmp_path)
    assert made["key"].startswith(f"tpk_{made['id']}_")
    assert (made["user"], made["agent"], made["expires"]) == ("alice", "bot", None)
    assert json_of("keys", "revoke", made["key"], cwd=tmp_path)["state"] == "revoked"
    (listed,) = json_of("keys", "list", "--all", cwd=tmp_path)
    assert listed["state"] == "revoked" and "key" not in listed

    done = toolpost("keys", "show", "ffffffffff", "--json", cwd=tmp_path)
    assert done.returncode == 4 and json.loads(done.stdout)["error"]["code"] == "NOT_FOUND"
    assert toolpost("keys", "create", "x", "--expires", "1y", cwd=tmp_path).returncode == 2
    (tmp_path / "toolpost.toml").write_text('store = {kind = "memory"}\n', encoding="utf-8")
    done = toolpost("keys", "create", "x", cwd=tmp_path)
    assert done.returncode == 78 and "in memory" in done.stderr and not done.stdout


def test_a_role_that_nothing_names_and_a_pattern_that_is_none_are_said(tmp_path: Path) -> None:
    config = tmp_path / "toolpost.toml"
    numbers = itertools.count()

    def create(role: str) -> Any:
        """Each has a name of its own."""
        name = f"ci-{next(numbers)}"
        return toolpost("keys", "create", name, "--role", role, cwd=tmp_path)

    config.write_text("", encoding="utf-8")
    assert "warning" not in create("opertor").stderr
    config.write_text(
        '[extensions.access.roles.operator]\ncall = ["*"]\n[extensions.policy]\nfile = "p.toml"\n',
        encoding="utf-8",
    )
    rule = '[[rules]]\nid = "a"\ndecision = "deny"\nrole = ["guest-*"]\n'
    (tmp_path / "p.toml").write_text(rule, encoding="utf-8")
    done = create("opertor")
    assert "names the role 'opertor'; did you mean 'operator'?" in done.stderr
    assert done.returncode == 0 and done.stdout.startswith("tpk_")
    for role in ("operator", "guest-1", "admin"):
        assert "warning" not in create(role).stderr
    done = toolpost("keys", "create", "ci", "--tool", "[bad", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert "'[bad' is no pattern" in done.stderr


def test_a_key_is_replaced_by_one_of_the_same_caller(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("", encoding="utf-8")
    words = ("keys", "create", "ci", "--user", "ann", "--role", "operator")
    old = json_of(*words, cwd=tmp_path)
    again = toolpost("keys", "create", "ci", cwd=tmp_path)
    assert again.returncode != 0 and f"toolpost keys rotate {old['id']}" in again.stderr
    new = json_of("keys", "rotate", old["id"], cwd=tmp_path)
    same = ("name", "user", "agent", "roles", "tools", "state")
    assert [new[field] for field in same] == [old[field] for field in same]
    assert abs(new["expires"] - new["created"] - (old["expires"] - old["created"])) < 1
    assert asyncio.run(caller_of(tmp_path, old["key"])) == f"key:{old['id']}"
    last = toolpost("keys", "rotate", new["id"], "--revoke", "--expires", "1h", cwd=tmp_path)
    assert last.stdout.startswith("tpk_") and "revoke" not in last.stderr
    assert asyncio.run(caller_of(tmp_path, new["key"])) == "Unidentified"
    assert asyncio.run(caller_of(tmp_path, last.stdout.strip())).startswith("key:")
