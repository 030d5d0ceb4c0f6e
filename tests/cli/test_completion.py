"""Completion: the words that a shell offers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import toolpost


def offered(words: str, *, cwd: Path) -> list[str]:
    done = toolpost(
        cwd=cwd,
        _TOOLPOST_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("toolpost sh", ["show"]),
        ("toolpost show pa", ["paint"]),
        ("toolpost call j", ["join"]),
        ("toolpost call add ", ["a=", "b="]),
        ("toolpost call add a=1 ", ["b="]),
        ("toolpost call join words=1 w", ["words="]),
        ("toolpost call nothing ", []),
        ("toolpost completion z", ["zsh"]),
    ],
)
def test_commands_tools_and_parameters_are_completed(
    project: Path, words: str, expected: list[str]
) -> None:
    assert offered(words, cwd=project) == expected


def test_the_config_that_was_named_is_the_one_completed_from(project: Path, tmp_path: Path) -> None:
    (project / "empty.toml").write_text("", encoding="utf-8")
    assert offered("toolpost --config empty.toml show a", cwd=project) == []


def test_a_broken_project_completes_nothing_and_says_nothing(project: Path) -> None:
    (project / "tools.yaml").write_text("[", encoding="utf-8")
    assert offered("toolpost show a", cwd=project) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(tmp_path: Path, shell: str) -> None:
    done = toolpost("completion", shell, cwd=tmp_path)
    assert (done.returncode, "_TOOLPOST_COMPLETE" in done.stdout) == (0, True)


def test_the_bash_script_is_one_that_bash_understands(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = toolpost("completion", "bash", cwd=tmp_path).stdout
    done = subprocess.run(
        [bash, "--norc", "-c", f"{script}\ncomplete -p toolpost"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "_toolpost_words" in done.stdout
