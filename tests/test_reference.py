"""The hand-written reference pages say what the code says: every name, and every default."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import toolpost
from toolpost.backends.http.backend import HttpOptions
from toolpost.backends.http.binding import Entry, HttpBinding, Response, Status
from toolpost.backends.mcp.binding import McpBinding
from toolpost.backends.mcp.settings import ServerOptions
from toolpost.backends.mcp.source import _Options as McpSourceOptions
from toolpost.backends.nats.backend import NatsOptions
from toolpost.backends.nats.source import _Options as NatsSourceOptions
from toolpost.backends.python.backend import Binding, PythonOptions
from toolpost.backends.shell.backend import ShellOptions
from toolpost.backends.shell.binding import ExitCode, ShellBinding
from toolpost.builtin.browser import Settings as BrowserSettings
from toolpost.builtin.clock import Settings as ClockSettings
from toolpost.builtin.commands import Settings as CommandSettings
from toolpost.builtin.commands.rules import Form, Program
from toolpost.builtin.files import Settings as FilesSettings
from toolpost.config import JobSettings, SandboxSettings, Settings
from toolpost.gateway.identity import AuthSettings, IssuerSettings
from toolpost.gateway.mcp.settings import McpSettings
from toolpost.gateway.settings import GatewaySettings
from toolpost.plugins import BUILT_IN
from toolpost.sources import entrypoints, files, modules
from toolpost.sources.builtin import BuiltinOptions
from toolpost.sources.database import DatabaseOptions
from toolpost.sources.http import HttpSourceOptions
from toolpost.sources.openapi.source import OpenApiOptions
from toolpost.spec import Cache, Limits, Permissions, Retry, ToolSpec
from toolpost.stores.memory import MemoryOptions
from toolpost.stores.postgres import PostgresOptions
from toolpost.stores.sqlite import SqliteOptions
from toolpost.worker.settings import WorkerSettings

PAGES = Path(__file__).parent.parent / "docs" / "reference"
_ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.M)
_UNWRITTEN = {"input_schema": "no parameters"}
"""Defaults that the page puts into words."""


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Name → the cells behind it, of the tables below one heading."""
    text = "\n" + (PAGES / page).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"{page} has no {heading!r}"
    section = re.split(r"^#", rest, maxsplit=1, flags=re.M)[0]
    return {name: [c.strip() for c in cells.split(" | ")] for name, cells in _ROW.findall(section)}


def defaults(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Name → the default of each field, as the pages write it."""
    fields = msgspec.structs.fields(kind)
    return {f.encode_name: _UNWRITTEN.get(f.name) or _default(f) for f in fields}


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        value: Any = field.default_factory()
    elif field.default is msgspec.NODEFAULT:
        return "required"
    else:
        value = field.default
    if isinstance(value, AuthSettings | McpSettings):
        return "see below"
    if isinstance(value, Limits | Permissions | Response):
        value = {}
    return f"`{json.dumps(msgspec.to_builtins(value))}`"


@pytest.mark.parametrize(
    ("page", "heading", "kind"),
    [
        ("spec.md", "## ToolSpec", ToolSpec),
        ("spec.md", "## limits", Limits),
        ("spec.md", "## permissions", Permissions),
        ("spec.md", "## retry", Retry),
        ("spec.md", "## cache", Cache),
        ("spec.md", "## The binding of a python tool", Binding),
        ("spec.md", "## The binding of a shell tool", ShellBinding),
        ("spec.md", "## exit_codes of a shell tool", ExitCode),
        ("spec.md", "## The binding of an HTTP tool", HttpBinding),
        ("spec.md", "## Entries of an HTTP tool", Entry),
        ("spec.md", "## response of an HTTP tool", Response),
        ("spec.md", "## errors of an HTTP tool", Status),
        ("spec.md", "## The binding of an MCP tool", McpBinding),
        ("config.md", "### http", HttpOptions),
        ("config.md", "### mcp", McpSourceOptions),
        ("config.md", "### mcp servers", ServerOptions),
        ("config.md", "### shell", ShellOptions),
        ("config.md", "# Config", Settings),
        ("config.md", "## Sandbox", SandboxSettings),
        ("config.md", "## Jobs", JobSettings),
        ("config.md", "### files", files._Options),
        ("config.md", "### builtin", BuiltinOptions),
        ("config.md", "### builtin commands", CommandSettings),
        ("config.md", "#### rules of builtin commands", Program),
        ("config.md", "#### forms of builtin commands", Form),
        ("config.md", "### builtin browser", BrowserSettings),
        ("config.md", "### builtin files", FilesSettings),
        ("config.md", "### builtin time", ClockSettings),
        ("config.md", "### modules", modules._Options),
        ("config.md", "### entrypoints", entrypoints._Options),
        ("config.md", "### http source", HttpSourceOptions),
        ("config.md", "### database", DatabaseOptions),
        ("config.md", "### openapi", OpenApiOptions),
        ("config.md", "### python", PythonOptions),
        ("config.md", "### memory", MemoryOptions),
        ("config.md", "### sqlite", SqliteOptions),
        ("config.md", "### postgres", PostgresOptions),
        ("config.md", "### nats", NatsSourceOptions),
        ("config.md", "### nats backend", NatsOptions),
        ("config.md", "## Worker", WorkerSettings),
        ("config.md", "## Gateway", GatewaySettings),
        ("config.md", "## gateway.auth", AuthSettings),
        ("config.md", "### gateway.auth.issuers.NAME", IssuerSettings),
    ],
)
def test_a_table_has_every_field_with_its_default(
    page: str, heading: str, kind: type[msgspec.Struct]
) -> None:
    written = {name: cells[1] for name, cells in rows(page, heading).items()}
    assert written == defaults(kind)


def test_every_built_in_source_backend_and_store_has_a_section() -> None:
    text = (PAGES / "config.md").read_text(encoding="utf-8")
    for socket, name in BUILT_IN:
        if socket in ("sources", "backends", "stores"):
            assert f"\n### {name}\n" in text, f"config.md says nothing of {socket} {name}"


def test_every_public_name_is_on_the_page_and_no_other() -> None:
    text = (PAGES / "python.md").read_text(encoding="utf-8")
    listed = [name for name, _ in _ROW.findall(text)]
    assert sorted(listed) == sorted(toolpost.__all__)
