"""For planners: specs are data, and what they see of a tool is what it can do."""

import asyncio
from pathlib import Path

from toolpost.bridges.unified import FileLoader, ToolSpec, ToolSpecRegistry, ToolType

calculate_sum = ToolSpec(
    name="calculate_sum",
    description="Add two numbers, and give the sum.",
    tool_type=ToolType.PYTHON,
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
    implementation_config={"module": "office", "function_name": "add"},
)


async def main() -> None:
    # without a loader, it would be the tools.yaml of the folder you are in
    here = FileLoader("tools.yaml", base=Path(__file__).parent)
    spec_registry = ToolSpecRegistry([here], specs=[calculate_sum])
    await spec_registry.load_all()

    openai_tools = spec_registry.to_openai_tools()
    mcp_tools = spec_registry.to_mcp_tools()
    assert [one["function"]["name"] for one in openai_tools] == [one["name"] for one in mcp_tools]
    assert openai_tools[0]["function"]["parameters"] == calculate_sum.input_schema

    for spec in spec_registry.list_specs(tool_type="python"):
        print(f"{spec.name}: {spec.description}")
        assert spec.implementation_config == {}
    assert [spec.name for spec in spec_registry.list_specs(is_dangerous=True)] == ["delete_note"]

    whole = spec_registry.get("read_note")
    assert whole is not None
    assert whole.metadata.version == "1.2"
    assert whole.implementation_config == {"module": "office", "function_name": "read_note"}


asyncio.run(main())
