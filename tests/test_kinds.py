"""A kind of one's own, as the documentation has it: packed, installed by pip, and called."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment
from tests.pages import ROOT, blocks
from tests.sources.packages import forgotten
from toolpost import Config, Runtime, SourceError, ToolSpec
from toolpost.plugins import _judge, load
from toolpost.testing import check_backend

pytestmark = pytest.mark.anyio
SPECS = """
- name: invite
  description: Write an invitation.
  kind: letter
  effects: read
  input_schema:
    type: object
    properties: {name: {type: string}}
    required: [name]
    additionalProperties: false
  binding: {text: "Dear $name, come at $5 past six."}
"""
CONFIG = {
    "sources": [{"kind": "files", "paths": ["tools.yaml"]}],
    "observers": [],
    "guards": [],
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package of the documentation."""
    folder = tmp_path_factory.mktemp("letters")
    program = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
        *("--disable-pip-version-check", "--root-user-action", "ignore"),
        *("--target", str(folder / "site"), str(wheel(folder))),
    ]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def wheel(folder: Path) -> Path:
    """What a build would make of the two blocks: a module, and metadata with its entry points."""
    page = blocks(ROOT / "docs/how-to/kinds.md")
    (module,) = (one.body for one in page if one.notes.get("file") == "letter_kind.py")
    project = next(tomllib.loads(one.body) for one in page if one.language == "toml")["project"]
    assert len(module.splitlines()) < 35, "it is to be seen at one glance"
    name, version = project["name"].replace("-", "_"), project["version"]
    info = f"{name}-{version}.dist-info"
    points = (
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in entries.items()))
    )
    files = {
        "letter_kind.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(points) + "\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tools.yaml").write_text(SPECS)
    (tmp_path / "toolpost.toml").write_text('[[sources]]\nkind = "files"\npaths = ["tools.yaml"]\n')
    return tmp_path


@pytest.fixture
def importable(installed: Path) -> Iterator[None]:
    with forgotten(installed):
        sys.path.insert(0, str(installed))
        _judge.cache_clear()
        yield
    _judge.cache_clear()


@pytest.mark.req("UX-10", "UX-3")
async def test_a_kind_from_an_installed_package_runs_through_the_runtime(
    importable: None, project: Path
) -> None:
    async with Runtime.open(Config.of(CONFIG, base=project)) as tools:
        result = await tools.execute("invite", {"name": "Ada"})
        assert result.output == "Dear Ada, come at $5 past six.", result.error
        refused = await tools.execute("invite", {})
        assert refused.error is not None and refused.error.code == "VALIDATION_ERROR"


@pytest.mark.req("UX-10")
async def test_such_a_kind_says_where_a_spec_is_wrong(importable: None, project: Path) -> None:
    (project / "tools.yaml").write_text(SPECS.replace("text:", "txt:"))
    with pytest.raises(SourceError, match=r"tools\.yaml:11:12: 'invite': a letter has a text"):
        async with Runtime.open(Config.of(CONFIG, base=project)):
            pass


@pytest.mark.req("UX-10")
def test_the_command_line_knows_it_as_soon_as_it_is_installed(
    installed: Path, project: Path
) -> None:
    def typed(*words: str, path: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words],
            cwd=project,
            env=environment(PYTHONPATH=path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    source = str(ROOT / "src")
    called = typed("call", "invite", "name=Ada", path=f"{source}:{installed}")
    assert (called.returncode, called.stdout) == (0, "Dear Ada, come at $5 past six.\n")
    plugins = typed("plugins", path=f"{source}:{installed}")
    assert "acme-letters 1.0" in plugins.stdout
    missing = typed("call", "invite", "name=Ada", path=source)
    assert missing.returncode != 0
    assert "no kind of tool 'letter' is installed" in missing.stderr


@pytest.mark.req("UX-10")
async def test_the_class_of_the_documentation_keeps_the_contract(importable: None) -> None:
    spec = ToolSpec(
        name="invite",
        description="Write.",
        kind="letter",
        input_schema={"type": "object", "properties": {"name": {"type": "string"}}},
        binding={"text": "Dear $name"},
    )
    made = load("backends", "letter")()
    report = await check_backend(made, spec, {"name": "Ada"}, "Dear Ada")
    report.raise_if_failed()
