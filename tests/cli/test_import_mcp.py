"""``toolpost import mcp``: a server's tools in a spec file, found by the config and pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import servers
from tests.cli.program import toolpost

pytestmark = servers.needed
TIME = str(servers.INSTALLED / "bin/mcp-server-time")


def odd(folder: Path, *more: str) -> list[str]:
    """The words that import the odd server."""
    granted = ["--read", str(Path(servers.ODD).parent), "--write", str(folder)]
    about = ["--env", f"ODD={folder}", "--name", "odd"]
    return ["import", "mcp", *granted, *about, *more, "--", servers.PYTHON, servers.ODD, "stdio"]


@pytest.mark.req("UX-2", "UX-6", "FM-7")
def test_one_command_makes_a_servers_tools_callable(tmp_path: Path) -> None:
    done = toolpost("import", "mcp", "--", TIME, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        "2 tools of time in time.json",
        "2 tools pinned in tools.lock",
    ]
    assert (tmp_path / "toolpost.toml").read_text() == (
        f'[backends.mcp.servers.time]\ncommand = ["{TIME}"]\n\n'
        '[[sources]]\nkind = "files"\npaths = ["time.json"]\n'
    )
    tools = json.loads((tmp_path / "time.json").read_text())["tools"]
    assert [tool["name"] for tool in tools] == ["time.convert_time", "time.get_current_time"]
    assert tools[0]["binding"]["pin"].startswith("sha256:")
    called = toolpost("call", "time.get_current_time", "timezone=UTC", cwd=tmp_path)
    assert json.loads(called.stdout)["timezone"] == "UTC"
    assert toolpost("lock", "--check", cwd=tmp_path).returncode == 0


def test_an_import_adds_to_a_project_and_leaves_the_rest_of_it_alone(project: Path) -> None:
    before = (project / "toolpost.toml").read_text()
    done = toolpost(*odd(project / "place", "--json"), cwd=_made(project))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["server"] == "odd"
    assert "odd.add" in told["tools"]
    assert {one["tool"] for one in told["left_out"]} == {"bomb", "far"}
    assert told["pinned"] == sorted(told["tools"])
    assert (project / "toolpost.toml").read_text().startswith(before.rstrip())
    assert toolpost("call", "add", "a=1", cwd=project).stdout == "11\n"
    assert toolpost("call", "odd.add", "a=1", "b=2", cwd=project).stdout == "3\n"
    again = toolpost(*odd(project / "place"), cwd=project)
    assert (again.returncode, again.stdout.splitlines()[1]) == (0, "0 tools pinned in tools.lock")


def _made(project: Path) -> Path:
    (project / "place").mkdir()
    return project


def test_an_import_accepts_nothing_that_was_pinned_otherwise(tmp_path: Path) -> None:
    toolpost("import", "mcp", "--", TIME, cwd=tmp_path)
    file = tmp_path / "time.json"
    text = file.read_text()
    lock = tmp_path / "tools.lock"
    pinned = json.loads(lock.read_text())
    name = "time.convert_time"
    # as if the server had said something else when it was pinned
    file.write_text(text.replace("Convert time", "Turn time"))
    lock.unlink()
    toolpost("lock", cwd=tmp_path)
    refused = toolpost("import", "mcp", "--name", "time", cwd=tmp_path)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    done = toolpost("import", "mcp", "--name", "time", "--replace", cwd=tmp_path)
    assert done.returncode == 0
    assert f"not as pinned, and quarantined: {name}" in done.stderr
    assert file.read_text() == text
    assert toolpost("call", name, "time=12:00", cwd=tmp_path).returncode != 0
    shown = toolpost("lock", cwd=tmp_path)
    assert f"{name}: changed, quarantined" in shown.stdout
    assert name in pinned["tools"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Say how the server is started"),
        (("--name", "x"), 2, "The config has no server 'x'"),
        (("--url", "https://a", "--", "b"), 2, "A server has a COMMAND or a --url"),
        (("https://a/mcp",), 2, "A URL is no COMMAND: say --url URL."),
        (("--read", "/x"), 2, "Grants go with a COMMAND"),
        (("--env", "X", "--", "true"), 2, "write NAME=VALUE"),
        (("--", "false"), None, "it ended with status 1"),
        (("--", "no-such-program"), None, "there is no program no-such-program"),
        (("--url", "ftp://x"), None, "a url is http"),
    ],
)
def test_what_cannot_be_imported_is_said_and_nothing_is_written(
    words: tuple[str, ...], code: int | None, said: str, tmp_path: Path
) -> None:
    done = toolpost("import", "mcp", *words, cwd=tmp_path)
    assert done.returncode == code if code is not None else done.returncode not in (0, 70)
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


RUDE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"name": "rude", "version": "1"}
        version = asked["params"]["protocolVersion"]
        told = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list" and sys.argv[1] == "flood":
        told = {"tools": "x" * 17 * 1024 * 1024}
    elif asked["method"] == "tools/list" and sys.argv[1] == "die":
        sys.exit("no such database")
    elif asked["method"] == "tools/list":
        told = {"tools": [{"name": "good", "inputSchema": {"type": "object"}}, {"name": "bad"}]}
    elif "id" in asked:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("flood", "the MCP server 'rude': it sent more than 16 MiB in one message"),
        ("die", "the MCP server 'rude': it ended with status 1: no such database"),
        ("unfit", "its list of tools is not in the protocol: tools/1/inputSchema: Field required"),
    ],
)
def test_a_list_that_cannot_be_taken_is_told_of_in_words_for_who_imports_it(
    how: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "rude.py").write_text(RUDE)
    command = [servers.PYTHON, str(tmp_path / "rude.py"), how]
    words = ["--name", "rude", "--read", "rude.py", "--", *command]
    done = toolpost("import", "mcp", *words, cwd=tmp_path)
    assert done.returncode == 65
    assert said in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["rude.py"]


def test_a_config_that_cannot_be_added_to_stays_as_it_was(tmp_path: Path) -> None:
    config = tmp_path / "toolpost.toml"
    config.write_text("sources = []\n")
    done = toolpost("import", "mcp", "--", TIME, cwd=tmp_path)
    assert done.returncode == 1
    assert "Put this into it by hand" in done.stderr
    assert "[backends.mcp.servers.time]" in done.stderr
    assert config.read_text() == "sources = []\n"


def test_the_help_lists_what_can_be_imported(tmp_path: Path) -> None:
    done = toolpost("import", "--help", cwd=tmp_path)
    assert "mcp" in done.stdout
    wrong = toolpost("import", "nothing", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "No such command" in wrong.stderr


def test_a_list_says_which_servers_are_missing_from_it(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[[sources]]\nkind = "mcp"\nservers = ["time", "dead"]\n'
        f'[backends.mcp.servers.time]\ncommand = ["{TIME}"]\n'
        '[backends.mcp.servers.dead]\ncommand = ["false"]\n'
    )
    done = toolpost("list", "--json", cwd=tmp_path)
    assert [tool["name"] for tool in json.loads(done.stdout)] == [
        "time.convert_time",
        "time.get_current_time",
    ]
    assert done.stderr == "warning: source 1 (mcp): dead: it ended with status 1\n"
