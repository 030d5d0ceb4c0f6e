"""The verification commands of the Forge document, with only the import path changed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"forge.tools": "toolpost.bridges.forge", "tests/unit/tools/": "tests/bridges/test_forge.py"}

A_TOOL = r"""
python -c "
from forge.tools.base import BaseTool, ToolParameter, ToolResult, ExecutionContext, ToolCategory

class TestTool(BaseTool):
    @property
    def name(self): return 'test'

    @property
    def description(self): return 'A test tool'

    @property
    def category(self): return ToolCategory.OTHER

    @property
    def parameters(self):
        return [ToolParameter(name='message', type='string', description='Test message')]

    async def _execute(self, ctx, **kwargs):
        return ToolResult.ok(f'Got: {kwargs[\"message\"]}')

# Test schema generation
print(TestTool().to_openai_schema())
"
"""
THE_REGISTRY = r"""
python -c "
from forge.tools.registry import ToolRegistry
from forge.tools.base import ToolCategory

registry = ToolRegistry()
print(f'Tools: {len(registry.list_all())}')
print(f'File tools: {len(registry.list_by_category(ToolCategory.FILE))}')
"
"""
THE_TESTS = "pytest tests/unit/tools/ -v --cov=forge.tools"


def typed(command: str, folder: Path, *more: str) -> str:
    for theirs, ours in OURS.items():
        command = command.replace(theirs, ours)
    done = subprocess.run(
        ["bash", "-euc", " ".join((command.strip(), *more))],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COVERAGE_FILE": str(folder / "coverage"),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.req("FG-10")
def test_the_document_s_tool_prints_its_schema(tmp_path: Path) -> None:
    assert ast.literal_eval(typed(A_TOOL, tmp_path)) == {
        "type": "function",
        "function": {
            "name": "test",
            "description": "A test tool",
            "parameters": {
                "type": "object",
                "properties": {"message": {"type": "string", "description": "Test message"}},
                "required": ["message"],
            },
        },
    }


@pytest.mark.req("FG-10")
def test_the_document_s_registry_counts_its_tools(tmp_path: Path) -> None:
    assert typed(THE_REGISTRY, tmp_path).splitlines() == ["Tools: 0", "File tools: 0"]


@pytest.mark.req("FG-10")
def test_the_tests_of_the_contract_run_nine_tenths_of_it(tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text("[run]\nbranch = true\n", encoding="utf-8")
    quick = "-n 0 -k 'not every_parameter and not costs and not runtime'"
    told = typed(THE_TESTS, tmp_path, quick, f"--cov-config={settings} --cov-fail-under=90")
    assert "Required test coverage of 90% reached" in told
