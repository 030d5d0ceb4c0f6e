"""One tool, which adds, as each of the contracts and frameworks has it: the text of its module."""

from __future__ import annotations

from typing import Final

OURS: Final = '''
from toolpost import ToolFailed, tool

@tool(effects="read")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    if a > 1000:
        raise ToolFailed("Too much.")
    return a + b
'''

FUNCTION: Final = """
from toolpost import ToolFailed

def add(a: float, b: float) -> float:
    if a > 1000:
        raise ToolFailed("Too much.")
    return a + b
"""

FORGE: Final = """
from toolpost.bridges.forge import BaseTool, ToolCategory, ToolParameter, ToolResult

class Add(BaseTool):
    @property
    def name(self):
        return "add"

    @property
    def description(self):
        return "Add two numbers."

    @property
    def category(self):
        return ToolCategory.OTHER

    @property
    def parameters(self):
        return [
            ToolParameter(name=one, type="number", description="A number.") for one in ("a", "b")
        ]

    async def _execute(self, context, **kwargs):
        if kwargs["a"] > 1000:
            return ToolResult.fail("Too much.")
        return ToolResult.ok(kwargs["a"] + kwargs["b"])
"""

FAULTMAVEN: Final = """
from toolpost.bridges.faultmaven import BaseTool, ToolResult

class Add(BaseTool):
    async def execute(self, params):
        if params["a"] > 1000:
            return ToolResult(success=False, data=None, error="Too much.")
        return ToolResult(success=True, data=params["a"] + params["b"], error=None)

    def get_schema(self):
        number = {"type": "number"}
        return {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"],
            },
        }
"""

UNIFIED: Final = """
from toolpost.bridges.unified import ToolSpec, ToolType

def added(a, b):
    from toolpost import ToolFailed
    if a > 1000:
        raise ToolFailed("Too much.")
    return a + b

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    tool_type=ToolType.PYTHON,
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    implementation_config={"module": __name__, "function_name": "added"},
)
"""

AGENTIC: Final = """
from toolpost.bridges.agentic import ToolConfig, ToolExecutionError, ToolOutput, create_tool

def added(arguments):
    if arguments["a"] > 1000:
        return ToolExecutionError("Too much.")
    return ToolOutput({"sum": arguments["a"] + arguments["b"]})

ADD = create_tool(
    ToolConfig(
        name="add",
        description="Add two numbers.",
        input_schema={
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
        output_schema={"type": "object"},
        execute=added,
    )
)
"""

NACHOS: Final = """
class Add:
    tool_id = name = "add"
    description = "Add two numbers."
    security_tier = 0
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    }

    async def initialize(self, config): ...

    async def execute(self, params):
        if params["a"] > 1000:
            error = {"code": "EXECUTION_ERROR", "message": "Too much."}
            return {"success": False, "error": error}
        return {"success": True, "result": params["a"] + params["b"]}

    def validate(self, params):
        return {"valid": True}

    async def health_check(self):
        return {"healthy": True}
"""

LANGCHAIN: Final = '''
from langchain_core.tools import ToolException, tool

@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    if a > 1000:
        raise ToolException("Too much.")
    return a + b
'''

IN_AN_OBJECT: Final = OURS.replace("-> float", "-> dict[str, float]").replace(
    "return a + b", 'return {"sum": a + b}'
)

OLD: Final = {
    "ours": OURS,
    "function": FUNCTION,
    "forge": FORGE,
    "faultmaven": FAULTMAVEN,
    "unified": UNIFIED,
    "agentic": AGENTIC,
    "nachos": NACHOS,
    "langchain": LANGCHAIN,
}
