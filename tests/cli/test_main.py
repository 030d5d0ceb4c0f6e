"""The program as a whole: help, faults, exit codes, and what it costs to start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import toolpost as package
from tests.cli.program import PROGRAM, Terminal, environment, json_of, toolpost
from toolpost.cli.main import COMMANDS, cli
from toolpost.cli.reference import reference


def test_help_lists_every_command_as_the_command_describes_itself() -> None:
    root = click.Context(cli)
    assert cli.list_commands(root) == list(COMMANDS)
    for name, said in COMMANDS.items():
        command = cli.get_command(root, name)
        assert command is not None
        assert (command.name, command.get_short_help_str(200)) == (name, said)
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert all(name in shown and said.split(":")[0] in shown for name, said in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    group = isinstance(command, click.Group)
    inner = command.list_commands(click.Context(command)) if group else []
    for words in [[name, one] for one in inner] or [[name]]:
        shown = CliRunner().invoke(cli, [*words, "--help"])
        serves = name in ("mcp", "serve")  # until they are stopped: there is nothing to print
        assert (shown.exit_code, serves or "--json" in shown.output) == (0, True), words


def test_the_package_itself_is_the_program_too(project: Path) -> None:
    words = [sys.executable, "-m", "toolpost"]
    for more in (["--version"], ["call", "add", "a=1", "b=2"], ["call", "nothing"]):
        done = subprocess.run(
            [*words, *more], cwd=project, env=environment(), capture_output=True, timeout=60
        )
        same = toolpost(*more, cwd=project)
        assert done.returncode == same.returncode
        assert (done.stdout.decode(), done.stderr.decode()) == (same.stdout, same.stderr)


def test_help_loads_neither_rich_nor_the_road() -> None:
    program = (
        "import sys; from toolpost.cli.main import status; status(['--help']);"
        "print('loaded', *sorted({'rich', 'asyncio', 'msgspec', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded"


def test_every_public_name_is_found_when_it_is_first_used() -> None:
    import_module("toolpost.authoring")

    assert {name for name in package.__all__ if getattr(package, name, None) is None} == set()
    assert set(package._HOME) == set(package.__all__)
    assert callable(package.tool), "the module of that name must not hide the function"


def test_the_version_is_the_package_version(tmp_path: Path) -> None:
    assert toolpost("--version", cwd=tmp_path).stdout == f"toolpost {package.__version__}\n"


def test_an_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    done = toolpost("lsit", cwd=tmp_path)
    assert done.returncode == 2
    assert "No such command: 'lsit'. Did you mean 'list'?" in done.stderr


def test_an_option_behind_the_command_is_told_where_to_go(tmp_path: Path) -> None:
    done = toolpost("list", "--debug", cwd=tmp_path)
    assert done.returncode == 2
    assert "--debug goes before the command." in done.stderr


def test_a_broken_config_is_one_line_with_its_place(project: Path) -> None:
    (project / "toolpost.toml").write_text("wach = true\n", encoding="utf-8")
    done = toolpost("list", cwd=project)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("error: toolpost.toml:1")
    assert "did you mean 'watch'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_spec_file_is_one_line_with_its_place(project: Path) -> None:
    (project / "tools.yaml").write_text("- name: x\n  describtion: y\n", encoding="utf-8")
    done = toolpost("list", cwd=project)
    assert done.returncode == 65
    assert "tools.yaml:2:" in done.stderr and "did you mean 'description'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list",), "unknown field"),
        (("--config", "no.toml", "list"), "no.toml"),
        (("call", "add", "a" * 30, "and", "more"), "is not an argument."),
        (("lst",), "No such command"),
    ],
)
def test_what_went_wrong_fits_the_terminal(
    project: Path, words: tuple[str, ...], said: str
) -> None:
    (project / "toolpost.toml").write_text(
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n', encoding="utf-8"
    )
    if words == ("list",):
        text = f"- name: x\n  describtion_{'x' * 40}: y\n"
        (project / "tools.yaml").write_text(text, encoding="utf-8")
    with Terminal(*words, cwd=project) as terminal:
        assert terminal.ended() != 0
    written = terminal.written.replace("\r", "")
    assert said in written
    long = [line for line in written.splitlines() if len(line) > 80 and " " in line.strip()]
    assert long == []


def test_a_config_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    done = toolpost("--config", "no.toml", "list", cwd=tmp_path)
    assert (done.returncode, "no.toml" in done.stderr) == (78, True)


def test_a_missing_part_says_what_is_installed(project: Path) -> None:
    (project / "toolpost.toml").write_text('[[sources]]\nkind = "fles"\n', encoding="utf-8")
    done = toolpost("list", cwd=project)
    assert done.returncode == 69
    assert "did you mean 'files'?" in done.stderr


def test_a_fault_of_ours_is_a_sentence_and_a_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toolpost.cli import main

    @click.command("broken")
    def broken() -> None:
        raise RuntimeError("impossible")

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: broken)
    assert main.status(["list"]) == 70
    said = capsys.readouterr().err
    assert "Sorry" in said and "--debug" in said and "Traceback" not in said
    assert main.status(["--debug", "list"]) == 70
    assert "impossible" in capsys.readouterr().err


def test_the_output_may_be_cut_off_by_its_reader(project: Path) -> None:
    reader = subprocess.run(
        f"{sys.executable} -m toolpost.cli.main list --json | true",
        shell=True,
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert reader.stderr == ""


def shell(words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a shell does, with toolpost being the program."""
    return subprocess.run(
        ["sh", "-c", f'toolpost() {{ {shlex.join(PROGRAM)} "$@"; }}; {words}'],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["list", "list --json", "call add a=1 b=2"])
def test_a_reader_that_has_gone_is_told_by_the_exit_code(project: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, *command.split()],
        cwd=project,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["list", "list --json", "call add a=1 b=2"])
def test_a_full_disk_is_said_in_a_sentence(project: Path, command: str) -> None:
    done = shell(f"toolpost {command} >/dev/full", project)
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: no space is left\n"


@pytest.mark.parametrize(
    ("command", "code"), [("wat", 2), ("call wat", 4), ("--config wat list", 78)]
)
def test_the_exit_code_is_the_same_where_nobody_can_be_told_why(
    project: Path, command: str, code: int
) -> None:
    assert shell(f"toolpost {command} 2>/dev/full", project).returncode == code


def test_an_output_is_there_although_a_warning_could_not_be_told(project: Path) -> None:
    done = shell("toolpost call talk 2>/dev/full", project)
    assert (done.returncode, done.stdout) == (0, "all of it\n")


def test_ctrl_c_after_the_end_shows_no_traceback(tmp_path: Path) -> None:
    program = (
        "import sys, threading; from toolpost.cli import main\n"
        "def linger():\n"
        "    threading.main_thread().join(); print('over', flush=True); sys.stdin.read()\n"
        "threading.Thread(target=linger).start(); main.main(['--version'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert "over" in (process.stdout.readline(), process.stdout.readline())[1]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (-signal.SIGINT, "")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(project: Path, closed: str) -> None:
    done = shell(f"toolpost call add a=1 b=2 {closed}", project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&- " in f"{closed} ".replace("2>&-", "") else "3\n")


@pytest.mark.parametrize("command", ["list", "doctor --probe none", "init", "new x"])
def test_a_folder_that_is_gone_is_said_in_a_sentence(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shell(f"rmdir {shlex.quote(str(gone))}; toolpost {command}", gone)
    assert done.returncode == 78
    assert "error: the current folder has been deleted: go to another one" in done.stderr


def test_an_encoding_without_a_character_does_not_stop_the_program(project: Path) -> None:
    done = toolpost("show", "add", cwd=project, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, "\\u2192" in done.stdout) == (0, True)


def test_colours_are_for_terminals_that_want_them(project: Path) -> None:
    assert "\x1b[" not in toolpost("list", cwd=project).stdout
    for words, variables, coloured in (
        ((), {}, True),
        (("--no-color",), {}, False),
        ((), {"NO_COLOR": "1"}, False),
    ):
        with Terminal(*words, "list", cwd=project, **variables) as terminal:
            assert terminal.ended() == 0
            assert ("\x1b[1" in terminal.written) is coloured, terminal.written


def test_many_specs_show_how_far_they_are_on_a_terminal(tmp_path: Path) -> None:
    config = '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n'
    (tmp_path / "toolpost.toml").write_text(config, encoding="utf-8")
    specs = "".join(f"- name: t{i}\n  description: Tool {i}.\n" for i in range(40_000))
    (tmp_path / "tools.yaml").write_text(specs, encoding="utf-8")
    with Terminal("list", "--tag", "none", cwd=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "loading tools" in terminal.written
    assert json_of("list", "--tag", "none", cwd=tmp_path) == []


def test_the_reference_has_every_command_option_and_exit_code() -> None:
    text = reference()
    assert all(f"## `toolpost {name}`" in text for name in COMMANDS)
    assert all(word in text for word in ("--args-file", "--config", "`TIMEOUT`", "| 124 |"))
    assert text == reference()


def test_what_a_command_is_for_can_be_read_whole_in_80_columns() -> None:
    def cut(group: click.Group, ctx: click.Context) -> Iterator[str]:
        names = group.list_commands(ctx)
        room = 78 - 6 - max(map(len, names))  # as click lays it out
        for name in names:
            command = group.get_command(ctx, name)
            assert command is not None
            if group is not cli and command.get_short_help_str(room).endswith("..."):
                yield f"{group.name} {name}"
            if isinstance(command, click.Group):
                yield from cut(command, click.Context(command, parent=ctx))

    assert list(cut(cli, click.Context(cli))) == []
