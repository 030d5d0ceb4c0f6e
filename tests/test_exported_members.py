"""The public names: one sorted list, complete and true."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import toolpost
from toolpost import errors

SOURCE = Path(toolpost.__file__).read_text(encoding="utf-8")


def test_all_is_sorted_and_says_every_name_once() -> None:
    assert toolpost.__all__ == sorted(set(toolpost.__all__))


def test_type_checkers_are_told_the_same_names() -> None:
    (checking,) = (node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    told = [
        (alias.name, node.module)
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(name for name, _ in told) == toolpost.__all__
    for name, module in told:
        assert getattr(toolpost, name) is getattr(importlib.import_module(module or ""), name)


def test_every_error_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.ToolpostError)
    }
    assert raised <= set(toolpost.__all__)


@pytest.mark.parametrize(
    "program",
    [
        "from toolpost import *; Registry()",
        "import toolpost.authoring, toolpost; assert callable(toolpost.tool)",
        "import toolpost; assert set(toolpost.__all__) <= set(dir(toolpost))",
    ],
    ids=["star", "module first", "dir"],
)
def test_names_are_there_however_they_are_asked_for(program: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", program], timeout=60, check=True)


def test_the_names_of_a_first_program_load_nothing_heavy() -> None:
    heavy = {
        "dataclasses", "difflib", "importlib.metadata", "jsonschema_rs", "pathlib", "pydantic",
        "toolpost.process", "tomllib", "urllib.parse", "yaml",
    }  # fmt: skip
    program = (
        "import sys; before = set(sys.modules); from toolpost import Executor, Registry, tool; "
        f"print(sorted({heavy} & (sys.modules.keys() - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_every_public_name_is_listed() -> None:
    assert set(toolpost.__all__) <= set(dir(toolpost))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'toolpost' has no attribute 'Manager'"):
        toolpost.Manager  # noqa: B018


def test_the_version_is_there() -> None:
    assert toolpost.__version__.count(".") >= 2
