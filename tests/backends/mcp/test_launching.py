"""What a server's program sees: what it was installed with, and nothing of what lies beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.backends.mcp.running import serving
from toolpost.backends.mcp.launching import Launch, launch_of
from toolpost.backends.mcp.settings import ServerOptions
from toolpost.errors import MissingPart


def launched(base: Path, *command: str, **more: Any) -> Launch:
    return launch_of("one", ServerOptions(command=command, **more), base)


def program(file: Path, text: str = "#!/bin/sh\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


@servers.needed
@pytest.mark.anyio
@pytest.mark.req("NA-7")
async def test_a_program_of_its_own_sees_nothing_of_what_lies_beside_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / "server", f"#!{servers.PYTHON}\n{Path(servers.PLAIN).read_text()}")
    (home / "linked").symlink_to("server")
    hidden = [home / one for one in (".ssh/id_rsa", ".env", "project/toolpost.toml")]
    for one in hidden:
        one.parent.mkdir(exist_ok=True)
        one.write_text("secret")
    (home / "granted.txt").write_text("granted")
    about = {
        "own": {"command": ["home/server"]},
        "link": {"command": ["home/linked"]},
        "more": {"command": ["home/server"], "read": ["home/granted.txt"]},
    }
    async with serving(about, tmp_path) as runtime:
        seen = {
            (server, one.name): (await runtime.execute(f"{server}.read", {"path": str(one)})).output
            for server in about
            for one in (*hidden, home / "server", home / "granted.txt")
        }
    for (server, name), text in seen.items():
        if name == "server":
            assert text.startswith("#!"), server
        else:
            found = "granted" if (server, name) == ("more", "granted.txt") else "FileNotFoundError"
            assert text == found, (server, name)


@servers.needed
@pytest.mark.anyio
async def test_a_link_into_a_package_is_started_where_the_package_is(tmp_path: Path) -> None:
    """As pipx and `npm install --global` make them."""
    (tmp_path / "bin").mkdir()
    clock, everything = servers.of_pypi("time"), servers.of_npm("everything")
    for name, about in (("clock", clock), ("all", everything)):
        (tmp_path / "bin" / name).symlink_to(about["command"][0])
    servers_by_name = {
        "clock": {**clock, "command": ["bin/clock"]},
        "all": {**everything, "command": ["bin/all"]},
    }
    async with serving(servers_by_name, tmp_path) as runtime:
        assert runtime.problems == {}
        echoed = await runtime.execute("all.echo", {"message": "hi"})
        wrong = await runtime.execute("clock.get_current_time", {"timezone": "Nowhere/Land"})
    assert echoed.output == "Echo: hi"
    assert wrong.error is not None
    assert wrong.error.code == "EXECUTION_ERROR", "it has answered"


def test_of_a_program_that_stands_alone_only_the_file_is_shown(tmp_path: Path) -> None:
    own = program(tmp_path / "home/server")
    assert launched(tmp_path, "home/server").confinement.read == (str(own),)
    link = tmp_path / "bin/server"
    link.parent.mkdir()
    link.symlink_to("../home/server")
    assert launched(tmp_path, "bin/server").confinement.read == (str(link), str(own))
    assert launched(tmp_path, "bin/server").argv == (str(link),)
    assert launched(tmp_path, "/bin/sh").confinement.read == ()


def test_what_runs_a_script_is_shown_with_it(tmp_path: Path) -> None:
    runner = program(tmp_path / "runner/bin/run")
    own = program(tmp_path / "home/server", f"#!{runner} -x\n")
    assert launched(tmp_path, "home/server").confinement.read == (str(own), str(runner))
    program(tmp_path / "home/server", "#!run\n")
    assert launched(tmp_path, "home/server").confinement.read == (str(own),)


def test_a_python_of_its_own_is_shown_with_its_library(tmp_path: Path) -> None:
    python = program(tmp_path / "versions/3.12/bin/python3.12")
    own = program(python.with_name("server"), f"#!{python}\n")
    library = tmp_path / "versions/3.12/lib"
    (library / "python3.12").mkdir(parents=True)
    (library / "python3.12/os.py").touch()
    (tmp_path / "versions/3.12/secret").touch()
    read = launched(tmp_path, "versions/3.12/bin/server").confinement.read
    assert read == (str(library), str(own), str(python))


def test_folders_that_are_granted_are_shown_as_folders(tmp_path: Path) -> None:
    own = program(tmp_path / "home/server")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/tool").symlink_to(own)
    home, data = str(tmp_path / "home"), str(tmp_path / "data")
    assert launched(tmp_path, "server", path=("home",)).confinement.read == (home,)
    assert launched(tmp_path, "home/server", read=("home",)).confinement.read == (home,)
    assert launched(tmp_path, "home/server", write=("home",)).confinement.read == ()
    assert launched(tmp_path, "data/tool", read=("data",)).confinement.read == (data, str(own))


def test_a_program_in_no_sandbox_is_started_as_it_was_named(tmp_path: Path) -> None:
    modules = program(tmp_path / "node_modules/server/main.js")
    link = tmp_path / "bin/server"
    link.parent.mkdir()
    link.symlink_to(modules)
    assert launched(tmp_path, "bin/server").argv == (str(modules),)
    assert launched(tmp_path, "bin/server", isolation="process").argv == (str(link),)


def test_a_script_that_may_not_be_executed_is_told_as_such(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o644)
    with pytest.raises(MissingPart) as told:
        launched(tmp_path, "./server.py")
    assert str(told.value) == (
        f"the MCP server 'one': {script} may not be executed: chmod +x {script}, or name the "
        "program that runs it first in its command"
    )
