"""``toolpost call``: arguments in, output out, errors with their exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Terminal, environment, json_of, toolpost
from tests.processes import Watch, descendants, running


@pytest.mark.parametrize(
    "words",
    [
        ("a=1", "b=2"),
        ("a:=1", "b:=2"),
        ('{"a": 1, "b": 2}',),
        ('{"a": 1}', "b=2"),
        ("--args-file", "args.json"),
        ("--args-file", "args.json", "a=1"),
        ("-",),
    ],
)
def test_arguments_are_given_in_every_way(project: Path, words: tuple[str, ...]) -> None:
    (project / "args.json").write_text('{"a": 1, "b": 2}', encoding="utf-8")
    done = toolpost("call", "add", *words, cwd=project, stdin='{"a": 1, "b": 2}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_standard_input_without_an_end_is_refused(project: Path) -> None:
    within = 'ulimit -v 4000000; exec "$@"'  # a program that went on reading would take it all
    with Path("/dev/zero").open("rb") as endless:
        done = subprocess.run(
            ["sh", "-c", within, "sh", *PROGRAM, "call", "add", "-"],
            cwd=project,
            env=environment(),
            stdin=endless,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "standard input: larger than 16 MiB" in done.stderr


def test_closed_standard_input_is_empty(project: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, "call", "add", "-"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "standard input:1:1: not valid JSON" in done.stderr) == (2, True)


def test_integers_are_exact(project: Path) -> None:
    big = 2**63 + 1
    assert toolpost("call", "add", f"a={big}", "b=0", cwd=project).stdout == f"{big}\n"


def test_an_integer_without_end_is_named_as_one(project: Path) -> None:
    done = toolpost("call", "add", f"a={'9' * 5_000}", cwd=project)
    assert done.returncode == 2
    assert "a:1:1: an integer of more than 640 digits" in done.stderr


def test_repeated_words_make_an_array(project: Path) -> None:
    done = toolpost("call", "join", "words=1", "words=two", "separator=-", cwd=project)
    assert done.stdout == "1-two\n"


@pytest.mark.req("NA-5", "NA-4")
def test_the_whole_result_is_there_as_json(project: Path) -> None:
    result = json_of("call", "add", "a=1", cwd=project)
    assert (result["success"], result["output"], result["error"]) == (True, 11, None)
    assert result["metadata"]["call_id"] and result["metadata"]["duration_ms"] > 0


@pytest.mark.req("FM-10")
def test_wrong_arguments_name_every_fault_and_the_way_out(project: Path) -> None:
    done = toolpost("call", "add", "b=two", cwd=project)
    assert (done.returncode, done.stdout) == (3, "")
    code, remedy, hint = done.stderr.splitlines()
    assert code.startswith("error: VALIDATION_ERROR: ") and "a" in code and "/b" in code
    assert remedy == "remedy: fix_args; effects: none"
    assert hint == "hint: what the tool takes: toolpost show add"


@pytest.mark.parametrize(
    "words", [("a",), ("a=1", "a=2"), ("{",), ("a:={",), ("[1]",), ("--timeout", "0"), ("=1",)]
)
def test_words_that_are_no_arguments_are_usage_errors(
    project: Path, words: tuple[str, ...]
) -> None:
    done = toolpost("call", "add", *words, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr


@pytest.mark.req("FM-6")
def test_a_failure_is_told_without_internals(project: Path) -> None:
    told = toolpost("call", "refuse", cwd=project)
    assert told.returncode == 1
    assert "EXECUTION_ERROR: The printer is out of \\x1b[31mpaper." in told.stderr
    hidden = toolpost("call", "break", cwd=project)
    assert hidden.returncode == 17
    assert "internal detail" not in hidden.stderr and "--debug" in hidden.stderr
    open_ = toolpost("--debug", "call", "break", cwd=project)
    assert "KeyError: 'internal detail'" in open_.stderr


def test_an_unknown_tool_names_the_nearest(project: Path) -> None:
    done = toolpost("call", "ad", "a=1", cwd=project)
    assert (done.returncode, "did you mean 'add'?" in done.stderr) == (4, True)


def test_a_time_limit_of_the_caller_holds(project: Path) -> None:
    result = toolpost("call", "hang", "marker=x", "--timeout", "0.5", "--json", cwd=project)
    assert (result.returncode, json.loads(result.stdout)["error"]["code"]) == (124, "TIMEOUT")


@pytest.mark.req("FG-4")
def test_a_dry_run_says_what_would_be_done(project: Path) -> None:
    done = toolpost("call", "refuse", "--dry-run", cwd=project)
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert (plan["tool"], plan["tier"], plan["isolation"]) == ("refuse", 2, "process")


def test_output_is_shown_as_it_is_and_no_terminal_obeys_it(project: Path) -> None:
    done = toolpost("call", "paint", cwd=project)
    assert done.stdout == (
        "\\x1b[31mred\\x1b[0m \\x9b2J \\u202eback\\u202c [bold]x[/bold]\n"
        "next\tline\nlast \\U000e0041\n"
    )


def test_output_as_json_is_exact_and_no_terminal_obeys_it(project: Path) -> None:
    done = toolpost("call", "paint", "--json", cwd=project)
    assert not set(done.stdout) & set("\x1b\x9b\u202e\u202c\U000e0041")
    assert json.loads(done.stdout)["output"].startswith("\x1b[31mred\x1b[0m \x9b2J \u202eback")


def test_images_are_named_and_saved_on_request(project: Path) -> None:
    named = toolpost("call", "picture", cwd=project).stdout
    assert named == "[image, image/png, 15 bytes; --save DIR writes it to a file]\n"
    for file in ("picture-1.png", "picture-1-2.png"):  # the second time, the first is kept
        done = toolpost("call", "picture", "--save", "out", cwd=project)
        assert done.stdout == f"[image, image/png, 15 bytes, written to out/{file}]\n"
        assert (project / "out" / file).read_bytes() == b"\x89PNG not really"


def test_pieces_of_output_and_warnings_go_to_standard_error(project: Path) -> None:
    done = toolpost("call", "talk", cwd=project)
    assert done.stdout == "all of it\n"
    assert done.stderr == 'first piece\n{\n  "second": 2\n}\nwarning: mind the gap\n'


def test_on_a_terminal_an_output_that_was_seen_as_it_came_is_shown_once(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[[sources]]\nkind = "modules"\nmodules = ["echoing"]\n', encoding="utf-8"
    )
    (tmp_path / "echoing.py").write_text(
        "from toolpost import Call, tool\n"
        "@tool(tier=0, effects='read')\n"
        "def echo(whole: bool, call: Call) -> str:\n"
        "    'Say it at once, and in the end.'\n"
        "    call.partial('all ')\n"
        "    call.partial('of it\\n')\n"
        "    return 'all of it' if whole else 'all of it?'\n",
        encoding="utf-8",
    )
    for whole, times in (("true", 1), ("false", 2)):
        with Terminal("call", "echo", f"whole={whole}", cwd=tmp_path) as terminal:
            assert terminal.ended() == 0
        assert terminal.written.count("all of it") == times
    done = toolpost("call", "echo", "whole=true", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("all of it\n", "")


def test_a_failing_call_names_the_environment_variables_that_are_not_set(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n', encoding="utf-8"
    )
    (tmp_path / "tools.yaml").write_text(
        "- name: fetch\n"
        "  description: Fetch what the key opens.\n"
        "  binding: {module: keyed, function: fetch, env: [CITY_KEY]}\n",
        encoding="utf-8",
    )
    (tmp_path / "keyed.py").write_text(
        "import os\n\n\ndef fetch() -> str:\n    return os.environ['CITY_KEY']\n",
        encoding="utf-8",
    )
    failed = toolpost("call", "fetch", cwd=tmp_path)
    assert failed.returncode != 0
    assert "The environment variable CITY_KEY is not set" in failed.stderr
    assert "CITY_KEY is not set" in toolpost("doctor", "--probe", "none", cwd=tmp_path).stdout
    done = toolpost("call", "fetch", cwd=tmp_path, CITY_KEY="Oslo")
    assert (done.stdout, done.stderr) == ("Oslo\n", "")


def test_what_a_tool_prints_does_not_spoil_the_output(project: Path) -> None:
    done = toolpost("call", "chatter", "--json", cwd=project)
    assert (json.loads(done.stdout)["output"], done.stderr) == (1, "noise\n")


def test_ctrl_c_ends_the_wait_for_standard_input(project: Path) -> None:
    with Terminal("call", "add", "-", cwd=project) as terminal:
        terminal.read_until("Ctrl-D")
        terminal.press(b"\x03")
        assert terminal.ended() == 130


def test_ctrl_c_ends_a_tool_that_runs_in_a_thread(project: Path) -> None:
    with Terminal("call", "wait", cwd=project) as terminal:
        terminal.read_until("it waits")
        terminal.press(b"\x03")
        assert terminal.ended() == 130


@pytest.mark.req("UX-3", "FG-1")
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_ctrl_c_stops_the_tool_and_everything_it_started(
    project: Path, words: tuple[str, ...]
) -> None:
    marker = f"left-behind-by-{project.name}"
    with Terminal("call", "hang", f"marker={marker}", *words, cwd=project) as terminal:
        terminal.read_until("it hangs")
        pids = descendants(terminal.process.pid)
        daemons = [p for p in running(marker) if p != terminal.process.pid]
        assert daemons
        with Watch({*pids, *daemons}) as watch:
            terminal.press(b"\x03")
            assert terminal.ended() == 130
            assert watch.living(within=10) == set()
        written = terminal.written
        assert "CANCELLED" in written and "Traceback" not in written
        assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is back"
    assert running(marker) == []
