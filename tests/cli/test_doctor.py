"""``toolpost doctor``: what works is tried, what does not is named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment, json_of, toolpost
from tests.sandbox.elsewhere import need_a_sandbox


def verdicts(found: list[dict[str, str]]) -> dict[str, str]:
    return {one["check"]: one["verdict"] for one in found}


@pytest.mark.req("NA-7")
def test_a_sound_project_has_nothing_that_fails(project: Path) -> None:
    done = toolpost("doctor", "--probe", "none", "--json", cwd=project)
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    told = verdicts(found)
    for check in ("python", "config", "sources", "tools", "isolation process", "stopping"):
        assert told[check] == "ok", found
    stopping = next(one for one in found if one["check"] == "stopping")
    assert "pid namespace" in stopping["found"] or "subreaper" in stopping["found"]


@pytest.mark.req("FM-13", "UX-4")
@pytest.mark.parametrize(
    ("top", "bottom", "told"),
    [
        ('guards = ["slots"]\n', "", "tools that want a person's yes are refused: pay"),
        ("", '[extensions.approval]\nmode = "never"\n', "person's yes run unasked: pay"),
        (
            'guards = ["slots", "approval"]\n',
            '[extensions.policy]\nfile = "deny.toml"\n',
            "toolpost.toml:7:8: [extensions.policy] changes nothing",
        ),
        ("", "", ""),
    ],
)
def test_what_the_lists_of_rings_leave_undone_is_warned_of(
    project: Path, top: str, bottom: str, told: str
) -> None:
    text = (project / "toolpost.toml").read_text(encoding="utf-8")
    (project / "toolpost.toml").write_text(top + text + bottom, encoding="utf-8")
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        binding = "{module: tools_of_the_test, function: add}"
        file.write(
            f"- {{name: pay, description: P., requires_approval: true, binding: {binding}}}\n"
        )
    done = toolpost("doctor", "--probe", "none", "--json", cwd=project)
    warned = [
        one["found"]
        for one in json.loads(done.stdout)
        if one["verdict"] == "warn" and one["check"].startswith(("approval", "extension"))
    ]
    assert [found for found in warned if told in found] == warned
    assert len(warned) == bool(told)


@pytest.mark.req("NA-1")
def test_every_tool_that_cannot_run_is_named_with_the_reason(project: Path) -> None:
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "- {name: no_module, description: D., binding: {module: nowhere, function: f}}\n"
            "- {name: no_function, description: D., "
            "binding: {module: tools_of_the_test, function: f}}\n"
            "- {name: no_kind, description: D., kind: phyton}\n"
            "- {name: not_imported, description: D., isolation: inline, "
            "binding: {module: nowhere, function: f}}\n"
        )
    done = toolpost("doctor", "--probe", "none", "--json", cwd=project)
    assert done.returncode == 1
    faults = {
        one["check"]: one["found"] for one in json.loads(done.stdout) if one["verdict"] == "fail"
    }
    assert set(faults) == {
        "tool no_module",
        "tool no_function",
        "tool no_kind",
        "tool not_imported",
    }
    assert "No module named 'nowhere'" in faults["tool no_module"]
    assert "has no attribute 'f'" in faults["tool no_function"]
    assert "No module named 'nowhere'" in faults["tool not_imported"]


@pytest.mark.parametrize(("function", "ready"), [("f", None), ("add", "1 tool ready to be called")])
def test_only_tools_that_can_be_called_are_counted(
    project: Path, function: str, ready: str | None
) -> None:
    binding = f"{{module: tools_of_the_test, function: {function}}}"
    spec = f"- {{name: a, description: D., binding: {binding}}}"
    (project / "tools.yaml").write_text(spec, encoding="utf-8")
    found = {
        one["check"]: one["found"] for one in json_of("doctor", "--probe", "none", cwd=project)
    }
    assert found["sources"] == "1 loaded, 1 tool"
    assert found.get("tools") == ready


def test_every_source_that_cannot_be_loaded_is_named(project: Path) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        for name in ("a", "b"):
            file.write(f'[[sources]]\nkind = "files"\npaths = ["{name}.yaml"]\n')
    told = verdicts(json_of("doctor", "--probe", "none", cwd=project))
    assert told["source 2 (files)"] == told["source 3 (files)"] == "fail"
    assert told["tools"] == "ok"


def test_a_broken_config_is_a_finding_and_the_rest_is_still_tried(project: Path) -> None:
    (project / "toolpost.toml").write_text("wach = 1\n", encoding="utf-8")
    done = toolpost("doctor", "--probe", "none", cwd=project)
    assert done.returncode == 1
    assert "fail" in done.stdout and "did you mean 'watch'?" in " ".join(done.stdout.split())
    assert "stopping" in done.stdout


def test_no_config_is_a_warning(tmp_path: Path) -> None:
    done = toolpost("doctor", "--probe", "none", "--json", cwd=tmp_path)
    assert (done.returncode, verdicts(json.loads(done.stdout))["config"]) == (0, "warn")


def test_a_store_and_an_audit_that_cannot_be_used_are_named(project: Path) -> None:
    toolpost("call", "add", "a=1", cwd=project)
    assert verdicts(json_of("doctor", "--probe", "none", cwd=project))["store"] == "ok"
    (project / ".toolpost/audit/audit.key").chmod(0o644)
    found = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=project)}
    assert (found["store"]["verdict"], found["extension audit"]["verdict"]) == ("ok", "fail")
    assert "others may read this key" in found["extension audit"]["found"]
    (project / ".toolpost/store.db").write_text("no database " * 100, encoding="utf-8")
    found = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=project)}
    assert (found["store"]["verdict"], found["tools"]["verdict"]) == ("fail", "ok")
    assert f"{project}/.toolpost/store.db: its file is damaged" in found["store"]["found"]


SANDBOXED = (
    "- {{name: {name}, description: D., tier: 3, limits: {{memory: 100MB, processes: 8}}, "
    "binding: {{module: tools_of_the_test, function: add, {grant}}}}}\n"
)


@pytest.mark.req("NA-10", "NA-11")
def test_the_sandbox_is_attacked_and_what_it_blocks_is_told(tmp_path: Path) -> None:
    need_a_sandbox()
    done = toolpost("doctor", "--json", cwd=tmp_path)
    found = {one["check"]: one for one in json.loads(done.stdout)}
    level = found["sandbox"]["found"].partition(":")[0]
    assert found["isolation sandbox"]["verdict"] == "ok"
    assert found[f"attacks {level}"]["verdict"] == "ok", found
    attacks = found[f"attacks {level}"]["attacks"]
    assert set(attacks) >= {"read_a_host_file", "connect_by_tcp", "fork_without_end"}
    assert set(attacks.values()) == {True}
    for layer in ("namespaces", "seccomp"):
        assert layer in found["sandbox"]["found"]


def test_what_every_level_blocks_fits_on_a_terminal(tmp_path: Path) -> None:
    need_a_sandbox()
    done = toolpost("doctor", "--probe", "all", cwd=tmp_path)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "read a host file" in done.stdout and "blocked" in done.stdout
    assert "attacks I1" in done.stdout


def test_attacks_can_be_left_out(tmp_path: Path) -> None:
    told = verdicts(json_of("doctor", "--probe", "none", cwd=tmp_path))
    assert "sandbox" in told
    assert not any(check.startswith("attacks") for check in told)


@pytest.mark.req("NA-11")
def test_a_tool_that_cannot_be_confined_as_it_asks_is_a_failure(project: Path) -> None:
    need_a_sandbox()
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        file.write(SANDBOXED.format(name="confined", grant="read: []"))
        file.write(SANDBOXED.format(name="greedy", grant="write: [/]"))
    done = toolpost("doctor", "--json", "--probe", "none", cwd=project)
    assert done.returncode == 1
    faults = {o["check"]: o["found"] for o in json.loads(done.stdout) if o["verdict"] == "fail"}
    assert set(faults) == {"tool greedy"}
    assert faults["tool greedy"].startswith("/ cannot go into a sandbox")


def test_a_lower_isolation_is_said_and_never_without_permission(project: Path) -> None:
    lower = "[sandbox]\nlower = true\n"
    config = (project / "toolpost.toml").read_text(encoding="utf-8")
    (project / "toolpost.toml").write_text(f'mode = "permissive"\n{config}{lower}')
    found = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=project)}
    assert (found["isolation"]["verdict"], "lower" in found["isolation"]["found"]) == ("warn", True)
    called = toolpost("call", "add", "a=1", cwd=project)
    assert (called.stdout, called.returncode) == ("11\n", 0)
    assert "warning: isolation may be one level lower" in called.stderr
    (project / "toolpost.toml").write_text(f"{config}{lower}")
    refused = toolpost("call", "add", "a=1", cwd=project)
    assert refused.returncode == 78
    assert 'mode = "permissive" only' in refused.stderr


@pytest.mark.req("AF-3")
def test_a_search_that_nobody_can_be_asked_for_is_told_with_the_keys(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[[sources]]\nkind = "builtin"\ntools = ["web_search"]\n'
        '[sources.web]\nproviders = ["brave", "tavily"]\n',
        encoding="utf-8",
    )
    words = ("doctor", "--probe", "none", "--json")
    keyless = toolpost(*words, cwd=tmp_path, BRAVE_API_KEY="", TAVILY_API_KEY="")
    found = {one["check"]: one for one in json.loads(keyless.stdout)}
    assert keyless.returncode == 1
    assert "BRAVE_API_KEY, TAVILY_API_KEY has to be set" in found["tool web_search"]["found"]
    told = toolpost(*words, cwd=tmp_path, TAVILY_API_KEY="tvly-0123456789ab").stdout
    assert "tool web_search" not in verdicts(json.loads(told))


def test_a_store_that_lost_data_is_told_until_it_is_accepted(project: Path) -> None:
    toolpost("call", "add", "a=1", "b=2", cwd=project)
    (project / ".toolpost" / "store.db").write_bytes(b"")
    assert (
        "store data: the store lost data"
        in toolpost("call", "add", "a=1", "b=2", cwd=project).stderr
    )
    words = ("doctor", "--probe", "none")
    assert verdicts(json_of(*words, cwd=project))["store data"] == "fail"
    assert "store data" not in verdicts(json_of(*words, "--accept-loss", cwd=project))
    assert toolpost("call", "add", "a=1", "b=2", cwd=project).stderr == ""


def test_a_damaged_store_is_told(project: Path) -> None:
    for _ in range(3):
        toolpost("call", "add", "a=1", "b=2", cwd=project)
    file = project / ".toolpost" / "store.db"
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 4096 // 2 * 4096)
    told = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=project)}
    assert (told["store"]["verdict"], "damaged" in told["store"]["found"]) == ("fail", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_state_folder_of_another_user_is_told_with_its_owner(project: Path) -> None:
    (project / ".toolpost").mkdir(mode=0o700)
    os.chown(project / ".toolpost", 65534, 65534)
    without = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
    for words in (["call", "add", "a=1", "b=2"], ["doctor", "--probe", "none"], ["audit", "tail"]):
        done = subprocess.run(
            [*without, *PROGRAM, *words], cwd=project, env=environment(), capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        told = " ".join((done.stdout + done.stderr).split())
        assert "it belongs to the user 'nobody'" in told and "Traceback" not in told


def test_guards_that_ask_again_for_a_known_key_are_told(project: Path) -> None:
    config = project / "toolpost.toml"
    config.write_text(f'guards = ["approval", "once"]\n{config.read_text()}', encoding="utf-8")
    told = {one["check"]: one for one in json_of("doctor", "--probe", "none", cwd=project)}
    assert told["extension once"]["verdict"] == "warn"
    assert "once.lookup" in told["extension once"]["todo"]
