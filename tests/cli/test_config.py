"""``toolpost config`` and ``toolpost plugins``: what is in force, what is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import json_of, toolpost
from toolpost.plugins import BUILT_IN


@pytest.mark.req("NA-3")
def test_every_setting_says_where_it_comes_from(project: Path) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write("[backends.python]\nthreads = 8\n")
    done = toolpost("config", "--json", cwd=project, TOOLPOST_BACKENDS__PYTHON__WORKERS="2")
    settings = {
        one["name"]: (one["value"], one["origin"]) for one in json.loads(done.stdout)["settings"]
    }
    assert settings["watch"] == (True, "default")
    assert settings["backends.python.workers"] == (
        2,
        "environment TOOLPOST_BACKENDS__PYTHON__WORKERS",
    )
    assert settings["backends.python.threads"][0] == 8
    assert settings["backends.python.threads"][1].startswith("toolpost.toml:6")
    assert settings["backends.python.recycle_after"][1] == "default"
    assert settings["sources"][1].startswith("toolpost.toml:3")


def test_the_file_may_be_named(project: Path) -> None:
    (project / "other.toml").write_text("watch = false\n", encoding="utf-8")
    assert "false" in toolpost("--config", "other.toml", "config", cwd=project).stdout
    assert (
        json.loads(toolpost("config", "--json", cwd=project, TOOLPOST_CONFIG="other.toml").stdout)[
            "file"
        ]
        == "other.toml"
    )


def test_a_wrong_table_of_a_backend_is_refused_with_its_place(project: Path) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write("[backends.nope]\nsize = 8\n")
    done = toolpost("config", cwd=project)
    assert done.returncode == 69
    assert "toolpost.toml:6:8: no kind of tool 'nope' is installed" in done.stderr


def test_what_looks_like_a_secret_is_not_printed(project: Path) -> None:
    done = toolpost("config", cwd=project, TOOLPOST_EXTENSIONS__LOG__API_KEY="hunter2")
    assert done.returncode == 0
    assert "hunter2" not in done.stdout and "(hidden)" in done.stdout


@pytest.mark.req("NA-3")
@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://ann:zQk7Rt@host/db", "postgresql://ann:…@host/db"),
        ("postgresql://ann:zQk7@Rt/x@host/db", "postgresql://ann:…@host/db"),
        ("postgresql://host/db?password=zQk7Rt&ssl=on", "postgresql://host/db?password=…&ssl=on"),
        ("host=h password='zQk7 Rt' user=ann", "host=h password=… user=ann"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
    ],
)
def test_a_password_inside_an_address_is_not_printed_either(
    project: Path, dsn: str, shown: str
) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write(f'[store]\nkind = "postgres"\ndsn = "{dsn}"\n')
    done = toolpost("config", "--json", cwd=project)
    settings = {one["name"]: one["value"] for one in json.loads(done.stdout)["settings"]}
    assert settings["store.dsn"] == shown
    assert "zQk7" not in toolpost("config", cwd=project).stdout


@pytest.mark.req("UX-4")
def test_a_table_that_changes_nothing_is_warned_of_and_a_misspelt_one_refused(
    project: Path,
) -> None:
    text = (project / "toolpost.toml").read_text(encoding="utf-8")
    idle = '[extensions.approval]\nmode = "always"\n'
    (project / "toolpost.toml").write_text('guards = ["slots"]\n' + text + idle, encoding="utf-8")
    done = toolpost("config", cwd=project)
    assert (done.returncode, "[extensions.approval] changes nothing" in done.stderr) == (0, True)

    wrong = idle.replace("approval", "aproval")
    (project / "toolpost.toml").write_text(text + wrong, encoding="utf-8")
    for words in (("config",), ("list",), ("call", "add", "a=1")):
        done = toolpost(*words, cwd=project)
        assert done.returncode == 69
        assert "no extension 'aproval' is installed; did you mean 'approval'?" in done.stderr


def test_plugins_name_every_built_in_part(tmp_path: Path) -> None:
    listed = {(one["socket"], one["name"]): one for one in json_of("plugins", cwd=tmp_path)}
    assert {key: listed[key]["where"] for key in BUILT_IN} == dict(BUILT_IN)
    assert {listed[key]["package"] for key in BUILT_IN} == {"toolpost"}


def test_a_part_of_another_package_is_listed_with_its_version(tmp_path: Path) -> None:
    about = tmp_path / "acme_tools-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: acme-tools\nVersion: 1.2\n", encoding="utf-8")
    points = "[toolpost.extensions]\nquiet = acme:Quiet\n[toolpost.tools]\nacme = acme\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    done = toolpost("plugins", "--json", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    ours = [one for one in json.loads(done.stdout) if one["package"] == "acme-tools"]
    assert [(one["socket"], one["name"], one["version"]) for one in ours] == [
        ("extensions", "quiet", "1.2"),
        ("tools", "acme", "1.2"),
    ]


@pytest.mark.req("NA-3")
def test_every_setting_of_every_part_is_shown_with_its_default(project: Path) -> None:
    with (project / "toolpost.toml").open("a", encoding="utf-8") as file:
        file.write("[extensions.retry]\nattempts = 2\n[gateway]\nport = 9000\n")
    settings = {one["name"]: one for one in json_of("config", cwd=project)["settings"]}
    assert settings["extensions.retry.attempts"]["value"] == 2
    assert settings["extensions.retry.attempts"]["default"] == 3
    assert settings["extensions.approval.expires"]["value"] == 3600.0
    assert settings["extensions.sanitize.secrets"]["value"] != "(hidden)"
    assert settings["gateway.port"]["value"] == 9000
    assert settings["gateway.auth.keys"]["origin"] == "default"
    assert {"store.patience", "worker.group", "jobs.ttl"} <= set(settings)
    lines = toolpost("config", "--changed", cwd=project).stdout
    assert "(default: 3)" in lines and "gateway.auth.keys" not in lines
