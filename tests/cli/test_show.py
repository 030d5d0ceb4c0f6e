"""``toolpost show``: everything about one tool but what runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import json_of, toolpost


@pytest.mark.req("UX-1", "NA-2")
def test_a_tool_is_shown_without_what_runs_it(project: Path) -> None:
    shown = toolpost("show", "add", cwd=project).stdout
    for text in (
        "Sum",
        "Add two numbers.",
        "0 SAFE",
        "read",
        "5 s",
        "process",
        "The first number.",
    ):
        assert text in shown
    assert "integer" in shown and "required" in shown and "10" in shown and "sha256:" in shown
    assert "tools_of_the_test" not in shown


def test_the_binding_is_shown_on_request(project: Path) -> None:
    assert "tools_of_the_test" in toolpost("show", "add", "--binding", cwd=project).stdout


@pytest.mark.req("UX-1")
def test_a_tool_as_json_has_the_public_spec(project: Path) -> None:
    shown = json_of("show", "add", cwd=project)
    assert "binding" not in shown["spec"]
    assert (shown["tier_name"], shown["timeout"], shown["isolation"]) == ("SAFE", 5.0, "process")
    assert shown["rings"] == ["log", "metrics", "audit", "rate", "approval", "retry", "slots"]
    assert shown["problem"] is None
    with_binding = json_of("show", "add", "--binding", cwd=project)
    assert with_binding["spec"]["binding"]["function"] == "add"
    assert with_binding["digest"] == shown["digest"] != shown["public_digest"]


def test_an_unknown_tool_names_the_nearest(project: Path) -> None:
    done = toolpost("show", "ad", cwd=project)
    assert (done.returncode, done.stdout) == (4, "")
    assert "NOT_FOUND" in done.stderr and "did you mean 'add'?" in done.stderr
    assert json_of("show", "ad", cwd=project)["error"]["code"] == "NOT_FOUND"


QUIET = """
from toolpost import Denied

class Quiet:
    name = "quiet"

    @classmethod
    def from_config(cls, options, base):
        return cls()

    def bind(self, spec, road):
        return self.ring if spec.name == "join" else None

    async def ring(self, call, call_next):
        raise Denied("Not a word.")
"""


@pytest.mark.req("UX-4")
def test_the_road_names_the_guards_of_a_tool(project: Path) -> None:
    about = project / "acme_tools-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: acme-tools\nVersion: 1.2\n", encoding="utf-8")
    points = "[toolpost.extensions]\nquiet = acme:Quiet\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    (project / "acme.py").write_text(QUIET, encoding="utf-8")
    config = (project / "toolpost.toml").read_text(encoding="utf-8")
    (project / "toolpost.toml").write_text('guards = ["quiet"]\n' + config, encoding="utf-8")
    path = str(project)
    guarded = toolpost("show", "join", cwd=project, PYTHONPATH=path).stdout
    assert "check → quiet → limit → python" in " ".join(guarded.split())
    assert "quiet" not in toolpost("show", "add", cwd=project, PYTHONPATH=path).stdout
    denied = toolpost("call", "join", "words=a", cwd=project, PYTHONPATH=path)
    assert (denied.returncode, "POLICY_DENIED: Not a word." in denied.stderr) == (6, True)


@pytest.mark.req("FM-13")
@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("", "a person is asked first"),
        ('guards = ["slots"]\n', "no approval guard is in force: calls are refused"),
        (
            'extensions = {approval = {mode = "never"}}\n',
            'but nobody is asked: [extensions.approval] mode = "never"',
        ),
    ],
)
def test_a_tool_that_wants_a_yes_says_who_is_asked(project: Path, config: str, told: str) -> None:
    text = (project / "toolpost.toml").read_text(encoding="utf-8")
    (project / "toolpost.toml").write_text(config + text, encoding="utf-8")
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        binding = "{module: tools_of_the_test, function: add}"
        file.write(
            f"- {{name: pay, description: P., requires_approval: true, binding: {binding}}}\n"
        )
    shown = toolpost("show", "pay", cwd=project)
    assert told in " ".join(shown.stdout.split())


def test_a_tool_that_cannot_run_says_why(project: Path) -> None:
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        file.write("- {name: odd, description: Odd., kind: phyton}\n")
    shown = toolpost("show", "odd", cwd=project)
    assert shown.returncode == 0
    assert "no kind of tool 'phyton' is installed" in " ".join(shown.stdout.split())
    assert "python" in json_of("show", "odd", cwd=project)["problem"]


def test_a_paragraph_is_broken_where_the_terminal_ends_and_a_list_where_it_is_one(
    project: Path,
) -> None:
    text = (
        "What it does, in a line that is as long as lines of a source may be\\nand goes on.\\n\\n"
    )
    with (project / "tools.yaml").open("a", encoding="utf-8") as file:
        file.write(f'- {{name: told, description: "{text}Takes:\\n- one\\n- two", kind: x}}\n')
    shown = toolpost("show", "told", cwd=project).stdout
    assert "as lines of a source may be and" in " ".join(shown.split())
    assert "be\nand" not in shown
    assert "Takes:\n- one\n- two\n" in shown
