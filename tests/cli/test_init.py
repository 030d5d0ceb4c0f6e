"""``toolpost init``: what it makes works at once, and nothing is ever lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import json_of, toolpost
from toolpost.cli.init import FILES as WRITTEN
from toolpost.config import GUARDS
from toolpost.sources.builtin import SETS

FILES = {"toolpost.toml", "tools.yaml", "my_tools.py", ".gitignore"}


def test_a_new_project_works_at_once(tmp_path: Path) -> None:
    made = toolpost("init", "new/project", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert "toolpost call add a=1 b=2" in made.stdout
    folder = tmp_path / "new/project"
    assert {file.name for file in folder.iterdir()} == FILES
    assert {spec["name"] for spec in json_of("list", cwd=folder)} == {"add", "greet", "count_down"}
    assert toolpost("call", "add", "a=1", "b=2", cwd=folder).stdout == "3\n"
    assert toolpost("call", "greet", "name=42", cwd=folder).stdout == "Hello, 42!\n"
    assert toolpost("call", "count_down", "start=1", cwd=folder).stdout == "Lift-off.\n"


def test_what_is_kept_is_no_business_of_git(tmp_path: Path) -> None:
    toolpost("init", cwd=tmp_path)
    toolpost("call", "add", "a=1", "b=2", cwd=tmp_path)
    assert (tmp_path / ".toolpost" / "store.db").exists()
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == ".toolpost/\n"


def test_a_gitignore_of_yours_stays_as_it_is_and_you_are_told_what_to_add(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n", encoding="utf-8")
    done = toolpost("init", cwd=tmp_path)
    assert (done.returncode, "echo .toolpost/ >> .gitignore" in done.stdout) == (0, True)
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "mine\n"
    assert (tmp_path / "toolpost.toml").exists()


def test_the_config_shows_the_default_chain_to_be_shortened(tmp_path: Path) -> None:
    toolpost("init", cwd=tmp_path)
    file = tmp_path / "toolpost.toml"
    text = file.read_text(encoding="utf-8").replace('"audit"]', "]").replace("\n#   ", "\n")
    for name in ("observers", "guards"):
        text = text.replace(f"# {name} = [", f"{name} = [")
    file.write_text(text, encoding="utf-8")
    found = {one["name"]: one for one in json_of("config", cwd=tmp_path)["settings"]}
    assert found["observers"]["value"] == ["trace", "log", "metrics"]
    assert found["guards"]["value"] == list(GUARDS)
    assert found["guards"]["origin"].startswith("toolpost.toml:")
    assert "audit" not in json_of("show", "add", cwd=tmp_path)["rings"]


def test_what_is_written_fits_into_eighty_columns(tmp_path: Path) -> None:
    assert max(len(line) for text in WRITTEN.values() for line in text.splitlines()) <= 80
    toolpost("init", "--with", ",".join(SETS), cwd=tmp_path)
    text = (tmp_path / "toolpost.toml").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_a_file_that_is_there_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("mine", encoding="utf-8")
    done = toolpost("init", cwd=tmp_path)
    assert done.returncode == 1
    assert "tools.yaml" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["tools.yaml"]
    assert (tmp_path / "tools.yaml").read_text(encoding="utf-8") == "mine"


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").symlink_to(tmp_path / "elsewhere.py")
    assert toolpost("init", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "elsewhere.py").exists()


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = toolpost("init", "file/below", cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("error: ")) == (1, True)


def test_init_as_json_names_the_files(tmp_path: Path) -> None:
    made = json_of("init", "p", cwd=tmp_path)
    assert (made["folder"], set(made["files"])) == (str(tmp_path / "p"), FILES)


def test_a_project_with_built_in_tools_works_at_once(tmp_path: Path) -> None:
    made = toolpost("init", "--with", "files, calculator,time", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    names = {spec["name"] for spec in json_of("list", cwd=tmp_path)}
    assert {"add", "calculator", "read_file", "delete_file", "time"} < names
    assert json_of("call", "calculator", "expression=2+2", cwd=tmp_path)["output"]["result"] == 4
    written = toolpost("call", "write_file", "path=a.txt", "content=hello", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "workspace/a.txt").read_text(encoding="utf-8") == "hello"


@pytest.mark.parametrize("name", SETS)
def test_every_set_can_be_had_from_the_start(name: str, tmp_path: Path) -> None:
    made = toolpost("init", "--with", name, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    names = {spec["name"] for spec in json_of("list", cwd=tmp_path)}
    assert names & set(SETS[name].tools)


def test_a_set_that_does_not_exist_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    done = toolpost("init", "--with", "filez", cwd=tmp_path)
    assert done.returncode != 0
    assert "did you mean 'files'" in done.stderr
    assert list(tmp_path.iterdir()) == []
