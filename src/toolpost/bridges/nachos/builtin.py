"""The example tools of the Nachos contract, on the tools that come with toolpost.

Each is the contract's face of one tool of the road: ``execute`` makes a call on a road of its own,
``tools`` puts the same tool into any other. Above: ``bringing.py``. Below: ``toolpost.builtin``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from toolpost import Executor, InvalidArguments, InvalidSpec, Registry, create_tool
from toolpost.bridges.nachos.config import ToolConfig, limited
from toolpost.bridges.nachos.contract import (
    CALL,
    SESSION,
    HealthStatus,
    ParameterSchema,
    SecurityTier,
    ToolError,
    ToolParameters,
    ToolResult,
    ValidationResult,
    arguments_of,
    result_of,
)
from toolpost.bridges.nachos.files import Folders, faults, filesystem
from toolpost.bridges.road import Road
from toolpost.builtin import given
from toolpost.builtin.calculator import calculator
from toolpost.builtin.files.settings import Settings, prepared
from toolpost.errors import ConfigError
from toolpost.registry import Entry

_LETTERS: Final = re.compile(r"[^\W\d_]")
"""The document looks for those of ASCII only; there is no reason to let the others in."""


class Builtin:
    """What these tools share: a road of their own, opened by the first call; ``close`` ends it."""

    tool_id: ClassVar[str]
    name: ClassVar[str]
    description: ClassVar[str]
    security_tier: ClassVar[SecurityTier]
    parameters: ClassVar[ParameterSchema]

    def __init__(self) -> None:
        self._road: Road | None = None

    def entry(self, config: ToolConfig) -> Entry:
        """The same tool for any other road."""
        raise NotImplementedError

    async def initialize(self, config: ToolConfig) -> None:
        entry = self.entry(config)
        await self.close()
        self._road = Road(Registry([entry._replace(spec=limited(entry.spec, config))]))

    async def execute(self, params: ToolParameters) -> ToolResult:
        said = self.validate(params)
        if not said.valid:
            problems = ", ".join(said.errors or ())
            return ToolResult(success=False, error=ToolError("VALIDATION_ERROR", problems))
        executor = await self.here()
        result = await executor.execute(
            self.tool_id,
            arguments_of(params),
            session_id=params.get(SESSION) or None,
            metadata={CALL: params.get(CALL)},
        )
        return result_of(result)

    async def here(self) -> Executor:
        """Its road in this event loop."""
        if self._road is None:
            await self.initialize(ToolConfig())
        assert self._road is not None
        executor = await self._road.here()
        assert isinstance(executor, Executor)
        return executor

    def validate(self, params: ToolParameters) -> ValidationResult:
        problems = list(self.faults(params))
        return ValidationResult(False, problems) if problems else ValidationResult(True)

    def faults(self, params: ToolParameters) -> Iterator[str]:
        """What is wrong with these parameters."""
        raise NotImplementedError

    async def health_check(self) -> HealthStatus:
        return HealthStatus(True)

    async def close(self) -> None:
        """What it has open is closed; the next call opens it again."""
        road, self._road = self._road, None
        if road is not None:
            await road.close()


class CalculatorTool(Builtin):
    tool_id = "calculator"
    name = "Calculator"
    description = "Perform arithmetic calculations"
    security_tier = SecurityTier.SAFE
    parameters: ClassVar[ParameterSchema] = {
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "Mathematical expression to evaluate",
                "examples": ["2 + 2", "10 * (5 + 3)"],
            }
        },
        "required": ["expression"],
    }

    def entry(self, config: ToolConfig) -> Entry:
        spec = msgspec.structs.replace(
            calculator.spec,
            title=self.name,
            description=self.description,
            input_schema={**self.parameters},
            output_schema=None,
            examples=({"expression": "2 + 2"}, {"expression": "10 * (5 + 3)"}),
            binding={},
        )
        made = create_tool(
            self.tool_id, self.description, self._calculate, input_schema={**self.parameters}
        )
        return Entry(spec, made)

    async def _calculate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if problems := tuple(self.faults(arguments)):
            raise InvalidArguments(", ".join(problems), effects="none")
        expression = arguments["expression"]
        found = await calculator(expression)
        return {"expression": expression, "answer": found["result"]}

    def faults(self, params: ToolParameters) -> Iterator[str]:
        expression = params.get("expression")
        if not expression or not isinstance(expression, str):
            yield "expression must be a string"
        elif _LETTERS.search(expression):
            yield "expression must contain only numbers and operators"
        elif len(expression) > _MOST:
            yield f"expression must have {_MOST} characters at most"


_MOST: Final[int] = calculator.spec.input_schema["properties"]["expression"]["maxLength"]


class FilesystemTool(Builtin):
    """Nothing is allowed before it is initialized: then the folders of ``allowedPaths`` are, or
    ``./workspace``.
    """

    tool_id = "filesystem"
    name = "Filesystem"
    description = "Read and write files"
    security_tier = SecurityTier.ELEVATED
    parameters: ClassVar[ParameterSchema] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["read", "write", "list", "delete"]},
            "path": {"type": "string", "description": "File or directory path", "x-raw": True},
            "content": {
                "type": "string",
                "description": "Content to write (for write action)",
                "x-raw": True,
            },
        },
        "required": ["action", "path"],
    }

    def __init__(self) -> None:
        super().__init__()
        self._folders: Folders | None = None

    async def initialize(self, config: ToolConfig) -> None:
        await super().initialize(config)
        self._folders = _folders(config)

    def entry(self, config: ToolConfig) -> Entry:
        made = given(filesystem, folders=_folders(config))
        spec = msgspec.structs.replace(
            made.spec,
            title=self.name,
            description=self.description,
            input_schema={**self.parameters},
            output_schema=None,
        )
        return Entry(spec, made)

    def faults(self, params: ToolParameters) -> Iterator[str]:
        action = params.get("action")
        if action not in ("read", "write", "list", "delete"):
            yield "action must be read, write, list or delete"
        yield from faults(self._folders, action, params.get("path"), params.get("content"))

    async def health_check(self) -> HealthStatus:
        there = self._folders is not None and all(
            os.access(root.folder, os.R_OK | os.X_OK) for root in self._folders.files.read
        )
        return HealthStatus(True) if there else HealthStatus(False, "Workspace not accessible")


def _folders(config: ToolConfig) -> Folders:
    named = config.config.get("allowedPaths", ["./workspace"])
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise ConfigError("allowedPaths are the paths of folders, in a list", at=("allowedPaths",))
    try:
        files = prepared(Settings(roots=tuple(named)), config.base)
    except ConfigError as fault:
        raise InvalidSpec(f"allowedPaths: {fault.message}") from None
    return Folders(str(config.base), files)
