"""Config: defaults, file and environment, where each value came from, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolpost import ConfigError
from toolpost.config import Config, Settings, find, origin
from toolpost.environ import for_child, secret, variables
from toolpost.options import Options, options_from


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in variables("TOOLPOST_"):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "toolpost.toml") -> None:
    Path(name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")


def fault(text: str = "") -> str:
    if text:
        write(text)
    with pytest.raises(ConfigError) as caught:
        find()
    return str(caught.value)


# --- file --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('mode = "Strict"', "mode: use one of strict, standard, permissive, not 'Strict'"),
        ('mode = "strct"', "not 'strct'; did you mean 'strict'?"),
        ("mode = 3", "mode: use one of strict, standard, permissive"),
    ],
)
def test_where_only_certain_words_will_do_they_are_listed(text: str, expected: str) -> None:
    assert expected in fault(text)


def test_without_a_file_there_are_defaults(empty_folder: Path) -> None:
    assert find() == Config(Settings(), empty_folder)
    assert Settings() == Settings(
        sources=(),
        observers=("trace", "log", "metrics", "audit"),
        guards=(
            *("artifacts", "access", "sanitize", "policy", "once.lookup", "rate", "approval"),
            *("cache", "once", "retry", "slots"),
        ),
        extensions={},
        backends={},
        store={"kind": "sqlite"},
        state=".toolpost",
        watch=True,
    )


@pytest.mark.req("NA-3")
def test_the_file_in_this_folder_is_read(empty_folder: Path) -> None:
    write("""
        watch = false
        guards = ["policy"]

        [[sources]]
        kind = "files"
        paths = ["tools.yaml"]

        [backends.python]
        workers = 8
    """)
    config = find()
    assert config.settings == Settings(
        watch=False,
        guards=("policy",),
        sources=({"kind": "files", "paths": ["tools.yaml"]},),
        backends={"python": {"workers": 8}},
    )
    assert (config.base, config.file) == (empty_folder, Path("toolpost.toml"))
    assert config.origins == {
        "watch": "toolpost.toml:1:9",
        "guards": "toolpost.toml:2:10",
        "sources.0.kind": "toolpost.toml:5:8",
        "sources.0.paths": "toolpost.toml:6:9",
        "backends.python.workers": "toolpost.toml:9:11",
    }


def test_a_named_file_is_read_and_paths_start_in_its_folder(empty_folder: Path) -> None:
    (empty_folder / "conf").mkdir()
    write("watch = false", "conf/my.toml")
    config = find("conf/my.toml")
    assert (config.settings.watch, config.base) == (False, empty_folder / "conf")


def test_the_environment_may_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("watch = false", "other.toml")
    monkeypatch.setenv("TOOLPOST_CONFIG", "other.toml")
    assert find().settings.watch is False
    write("watch = true", "mine.toml")
    assert find("mine.toml").settings.watch is True


def test_a_program_may_say_itself_what_a_file_would(empty_folder: Path) -> None:
    config = Config.of({"watch": False, "extensions": {"log": {"level": "INFO"}}}, base="conf")
    assert config.settings == Settings(watch=False, extensions={"log": {"level": "INFO"}})
    assert (config.base, config.file) == (empty_folder / "conf", None)
    assert origin(config, ("watch",)) == "the given settings"
    assert Config.of({}).base == empty_folder
    with pytest.raises(ConfigError, match="the given settings: unknown setting 'wach'; did you"):
        Config.of({"wach": False})
    with pytest.raises(ConfigError, match="the given settings: watch: expected `bool`"):
        Config.of({"watch": "no"})


def test_the_environment_wins_over_what_a_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_EXTENSIONS__LOG__LEVEL", "DEBUG")
    given = {"extensions": {"log": {"level": "INFO"}}}
    assert Config.of(given).settings.extensions == {"log": {"level": "DEBUG"}}
    assert given == {"extensions": {"log": {"level": "INFO"}}}


@pytest.mark.req("UX-4")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('guards = ["slots", "slots"]', "toolpost.toml:1:10: guards: 'slots' stands there twice"),
        ('guards = ["audit"]', "toolpost.toml:1:10: guards: 'audit' belongs to the observers"),
        ('observers = ["policy"]', "toolpost.toml:1:13: observers: 'policy' belongs to the guards"),
        ('observers = ["x", "y", "x"]', "toolpost.toml:1:13: observers: 'x' stands there twice"),
    ],
)
def test_a_ring_stands_once_and_in_its_own_list(text: str, told: str) -> None:
    write(text)
    assert fault() == told


def test_an_empty_file_is_the_defaults() -> None:
    write("")
    assert (find().settings, find().origins) == (Settings(), {})


def test_a_named_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"x\.toml: there is no such file\. Make one with: toolpost init"
    ):
        find("x.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wach = false", "toolpost.toml:1:8: unknown setting 'wach'; did you mean 'watch'?"),
        ("\n\n[backend.python]\nworkers = 1", "did you mean 'backends'?"),
        ("[gards]", "unknown setting 'gards'; did you mean 'guards'?"),
        ('watch = "no"', "toolpost.toml:1:9: watch: expected `bool`, got `str`"),
        ("watch = true\nguards = [1]", "toolpost.toml:2:10: guards.0: expected `str`, got `int`"),
        ("sources = 5", "toolpost.toml:1:11: sources: expected `array`, got `int`"),
        ('[backends]\npython = "x"', "toolpost.toml:2:10: backends: expected `object`, got `str`"),
        ('"a.b" = 1', "toolpost.toml:1:9: unknown setting 'a.b'"),
        ("watch = ", "toolpost.toml:1:"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place(text: str, told: str) -> None:
    assert told in fault(text)
    assert "toolpost.toml:" in fault(text)


# --- environment -------------------------------------------------------------------------------


@pytest.mark.req("NA-3")
def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("watch = true\n[backends.python]\nworkers = 1\nthreads = 2")
    monkeypatch.setenv("TOOLPOST_WATCH", "false")
    monkeypatch.setenv("TOOLPOST_BACKENDS__PYTHON__WORKERS", "8")
    config = find()
    assert config.settings.watch is False
    assert config.settings.backends == {"python": {"workers": 8, "threads": 2}}
    assert config.origins == {
        "watch": "environment TOOLPOST_WATCH",
        "backends.python.workers": "environment TOOLPOST_BACKENDS__PYTHON__WORKERS",
        "backends.python.threads": "toolpost.toml:4:11",
    }


def test_the_environment_is_enough_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLPOST_SOURCES", '[{kind = "files", paths = ["a.yaml"]}]')
    monkeypatch.setenv("TOOLPOST_GUARDS", '["policy"]')
    settings = find().settings
    assert settings.sources == ({"kind": "files", "paths": ["a.yaml"]},)
    assert settings.guards == ("policy",)


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("2.5", 2.5), ("true", True), ('"8"', "8"), ("plain text", "plain text"), ("", "")],
)
def test_a_variable_is_read_as_toml_would_or_as_text(
    monkeypatch: pytest.MonkeyPatch, text: str, value: Any
) -> None:
    monkeypatch.setenv("TOOLPOST_EXTENSIONS__LOG__LEVEL", text)
    assert find().settings.extensions == {"log": {"level": value}}


def test_a_whole_table_from_the_environment_replaces_that_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("[backends.python]\nworkers = 1")
    monkeypatch.setenv("TOOLPOST_BACKENDS", "{python = {threads = 3}}")
    config = find()
    assert config.settings.backends == {"python": {"threads": 3}}
    assert config.origins == {"backends": "environment TOOLPOST_BACKENDS"}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TOOLPOST_WACH", "1", "environment TOOLPOST_WACH: unknown setting 'wach'; did you mean"),
        ("TOOLPOST_WACH__X", "1", "environment TOOLPOST_WACH__X: unknown setting 'wach'"),
        ("TOOLPOST_WATCH", "maybe", "environment TOOLPOST_WATCH: watch: expected `bool`"),
        ("TOOLPOST_WATCH__X", "1", "environment TOOLPOST_WATCH__X: watch is a value, not a table"),
        ("TOOLPOST_SOURCES__0", "1", "environment TOOLPOST_SOURCES__0: sources is a value"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    write("watch = true\nsources = []")
    monkeypatch.setenv(name, value)
    assert fault().startswith(told)


def test_the_origin_of_a_value_is_as_near_as_is_known() -> None:
    write("[backends.python]\nworkers = 1")
    config = find()
    assert origin(config, ("backends", "python", "workers")) == "toolpost.toml:2:11"
    assert origin(config, ("backends", "python")) == "toolpost.toml:2:11"
    assert origin(config, ("watch",)) == "toolpost.toml"
    assert origin(Config(Settings(), Path.cwd()), ("watch",)) == "toolpost.toml"


# --- a part's own table ------------------------------------------------------------------------


class Oven(Options, frozen=True):
    degrees: int
    fan: bool = False


def test_a_table_becomes_the_options_of_a_part() -> None:
    assert options_from({"degrees": 200}, Oven, "oven") == Oven(degrees=200)


@pytest.mark.parametrize(
    ("given", "told", "at"),
    [
        ({"degree": 5}, "oven has no setting 'degree'; did you mean 'degrees'?", ("degree",)),
        ({"xyz": 5}, "oven has no setting 'xyz'; it takes degrees, fan", ("xyz",)),
        ({"degrees": "hot"}, "oven degrees: expected `int`, got `str`", ("degrees",)),
        ({}, "oven: object missing required field `degrees`", ()),
    ],
)
def test_a_wrong_option_is_named_with_its_owner(
    given: dict[str, Any], told: str, at: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        options_from(given, Oven, "oven")
    assert (caught.value.message, caught.value.at) == (told, at)


# --- the process's own environment -------------------------------------------------------------


@pytest.mark.req("NA-10")
def test_a_child_sees_what_is_harmless_and_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    monkeypatch.setenv("OTHER_KEY", "hunter3")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    seen = for_child(["API_KEY"])
    assert seen["API_KEY"] == "hunter2"
    assert seen["LC_ALL"] == "C.UTF-8"
    assert "PATH" in seen
    assert "OTHER_KEY" not in seen
    assert "API_KEY" not in for_child()


def test_a_secret_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    assert (secret("API_KEY"), secret("NO_SUCH_KEY")) == ("hunter2", None)
