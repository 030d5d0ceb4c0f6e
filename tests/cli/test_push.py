"""``toolpost push``: checked, shown, and written all at once; a password is never told."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Terminal, json_of, toolpost
from tests.sources.endpoint import serving
from tests.stores.server import Server, running_server

server = pytest.fixture(scope="module")(running_server)
TO = ("--to", "sqlite:///tools.db")
CONFIG = """
[[sources]]
kind = "database"
url = "sqlite:///tools.db"
"""


def tool(name: str, **fields: Any) -> dict[str, Any]:
    binding = {"url": "https://api.example.com/"}
    return {"name": name, "description": f"{name}.", "kind": "http", "binding": binding, **fields}


def write(folder: Path, *tools: dict[str, Any], name: str = "specs.json") -> None:
    (folder / name).write_text(json.dumps(list(tools)))


def kept(folder: Path) -> list[str]:
    db = sqlite3.connect(folder / "tools.db")
    try:
        return [name for (name,) in db.execute("SELECT name FROM toolpost_tools ORDER BY name")]
    finally:
        db.close()


@pytest.mark.req("UX-2")
def test_what_is_pushed_is_what_the_source_gives(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"), tool("tell"))
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    done = toolpost("push", "specs.json", *TO, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "new     ask",
        "new     tell",
        "2 tools written: toolpost_tools in sqlite:///tools.db",
    ]
    assert [one["name"] for one in json_of("list", cwd=tmp_path)] == ["ask", "tell"]


def test_what_is_new_changed_the_same_and_not_named_is_told_apart(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"), tool("tell"), tool("shout"))
    toolpost("push", "specs.json", *TO, cwd=tmp_path)
    write(tmp_path, tool("ask"), tool("tell", tier=2))
    write(tmp_path, tool("sing"), name="more.json")
    done = toolpost("push", "specs.json", "more.json", *TO, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "new     sing",
        "changed tell",
        "same    ask",
        "stays   shout",
        "2 tools written: toolpost_tools in sqlite:///tools.db",
    ]
    assert kept(tmp_path) == ["ask", "shout", "sing", "tell"]
    assert json_of("push", "specs.json", *TO, "--dry-run", cwd=tmp_path) == {
        "to": "sqlite:///tools.db",
        "table": "toolpost_tools",
        "written": False,
        "new": [],
        "changed": [],
        "same": ["ask", "tell"],
        "others": ["shout", "sing"],
        "removed": [],
    }


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"))
    done = toolpost("push", "specs.json", *TO, "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "new     ask\n")
    assert done.stderr == "nothing was written: toolpost_tools in sqlite:///tools.db\n"
    assert not (tmp_path / "tools.db").exists()


def test_one_wrong_tool_and_nothing_is_written(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"))
    write(tmp_path, tool("tell"), tool("bad", effects="reed"), name="more.json")
    done = toolpost("push", "specs.json", "more.json", *TO, cwd=tmp_path)
    assert done.returncode == 65
    assert done.stderr.startswith("error: more.json:1:") and "did you mean 'read'?" in done.stderr
    write(tmp_path, tool("ask"), name="more.json")
    done = toolpost("push", "specs.json", "more.json", *TO, cwd=tmp_path)
    assert "there is a tool 'ask' already, at specs.json:1:2" in done.stderr
    assert not (tmp_path / "tools.db").exists()


def test_a_name_that_looks_like_another_is_refused_before_it_hides_a_tool(tmp_path: Path) -> None:
    write(tmp_path, tool("get-time"), tool("ask"), tool("get_time"))
    done = toolpost("push", "specs.json", *TO, cwd=tmp_path)
    assert done.returncode == 65
    assert "nothing was written: the name 'get_time' looks like 'get-time'" in done.stderr
    assert not (tmp_path / "tools.db").exists()
    write(tmp_path, tool("get_time"), tool("ask"))
    toolpost("push", "specs.json", *TO, cwd=tmp_path)
    write(tmp_path, tool("get-time"))
    done = toolpost("push", "specs.json", *TO, cwd=tmp_path)
    assert (done.returncode, kept(tmp_path)) == (65, ["ask", "get_time"])
    assert "the name 'get-time' looks like 'get_time'" in done.stderr
    done = toolpost("push", "specs.json", *TO, "--prune", "--yes", cwd=tmp_path)
    assert (done.returncode, kept(tmp_path)) == (0, ["get-time"])


def test_what_the_files_do_not_name_is_removed_only_after_a_yes(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"), tool("tell"))
    toolpost("push", "specs.json", *TO, cwd=tmp_path)
    write(tmp_path, tool("ask"))
    refused = toolpost("push", "specs.json", *TO, "--prune", cwd=tmp_path)
    assert refused.returncode == 2 and "say --yes" in refused.stderr
    with Terminal("push", "specs.json", *TO, "--prune", cwd=tmp_path) as terminal:
        terminal.read_until("Remove 1 tool? [y/N]")
        assert "remove  tell" in terminal.written
        terminal.press(b"n\n")
        assert terminal.ended() == 0
    assert kept(tmp_path) == ["ask", "tell"]
    with Terminal("push", "specs.json", *TO, "--prune", cwd=tmp_path) as terminal:
        terminal.read_until("Remove 1 tool? [y/N]")
        terminal.press(b"y\n")
        assert terminal.ended() == 0
    assert kept(tmp_path) == ["ask"]
    write(tmp_path)
    done = toolpost("push", "specs.json", *TO, "--prune", "--yes", cwd=tmp_path)
    assert done.stdout.endswith(
        "0 tools written, 1 removed: toolpost_tools in sqlite:///tools.db\n"
    )
    assert kept(tmp_path) == []


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"))
    url = "postgresql://me:hunter2-hunter2@127.0.0.1:9/tools"
    for words, variables in (
        (("--to", url), {}),
        (("--to-secret", "TOOLS_URL"), {"TOOLS_URL": url}),
    ):
        for more in ((), ("--json",)):
            done = toolpost(
                "--debug", "push", "specs.json", *words, *more, cwd=tmp_path, **variables
            )
            assert done.returncode == 65
            assert "postgresql://me@127.0.0.1:9/tools" in done.stderr
            assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say where to with --to URL"),
        (("--to", "sqlite:///a.db", "--to-secret", "X"), "Say where to with --to URL"),
        (("--to-secret", "NOT_SET"), "The variable NOT_SET is not set."),
        (("--to", "mysql://h/d"), "begins with sqlite:/// or postgresql://"),
        (("--to", "sqlite:///a.db", "--table", "A B"), "small letters, digits and _"),
        (("--to", "sqlite:///no/such/folder/a.db"), "unable to open database file"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    write(tmp_path, tool("ask"))
    done = toolpost("push", "specs.json", *words, cwd=tmp_path)
    assert done.returncode != 0 and said in done.stderr


@pytest.mark.req("UX-2")
def test_tools_pushed_to_postgresql_are_called_from_there(server: Server, tmp_path: Path) -> None:
    url = server.database()
    with serving() as endpoint:
        write(tmp_path, *endpoint.tools)
        done = toolpost("push", "specs.json", "--to-secret", "U", cwd=tmp_path, U=url)
        assert done.stdout.endswith(f"2 tools written: toolpost_tools in {url.partition('?')[0]}\n")
        (tmp_path / "toolpost.toml").write_text(
            f"""
[[sources]]
kind = "database"
url_secret = "U"
egress = ["{endpoint.authority}"]
"""
        )
        called = toolpost("call", "add", "a=1", "b=2", cwd=tmp_path, U=url)
        assert (called.returncode, called.stdout) == (0, "3\n"), called.stderr


def test_what_is_left_out_is_told_by_list_and_doctor(tmp_path: Path) -> None:
    write(tmp_path, tool("ask"), {"name": "run", "description": "Run."}, tool("s", egress=["h:1"]))
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    toolpost("push", "specs.json", *TO, cwd=tmp_path)
    listed = toolpost("list", cwd=tmp_path)
    assert "1 tool\n" in listed.stdout
    assert listed.stderr == (
        "warning: source 1 (database): 2 tools left out; run: it asks for 'python', and its source "
        "is not granted that: if it is meant, add it to the source's kinds\n"
    )
    found = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=tmp_path)}
    assert found["source 1 (database)"]["verdict"] == "warn"


def test_a_source_that_is_down_is_told_by_list_and_not_taken_for_gone_by_lock(
    tmp_path: Path,
) -> None:
    write(tmp_path, tool("ask"))
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    toolpost("push", "specs.json", *TO, cwd=tmp_path)
    assert toolpost("lock", cwd=tmp_path).returncode == 0
    (tmp_path / "tools.db").rename(tmp_path / "away.db")
    listed = toolpost("list", cwd=tmp_path)
    assert listed.returncode == 0
    assert "warning: source 1 (database): sqlite:///tools.db: there is no table" in listed.stderr
    before = (tmp_path / "tools.lock").read_bytes()
    refused = toolpost("lock", "--accept", cwd=tmp_path)
    assert refused.returncode == 65 and "there is no table" in refused.stderr
    assert (tmp_path / "tools.lock").read_bytes() == before
