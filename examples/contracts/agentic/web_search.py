"""The tools of the AgenticFramework contract that go out: configured, and added to an agent.

Nothing is asked here: a key of your own would be needed for that.
"""

import asyncio
import os

from toolpost.bridges.agentic import (
    Agent,
    SearchConfig,
    SearchEngine,
    web_scraper_tool,
    web_search_tool,
    wikipedia_tool,
)


async def main() -> None:
    api_key = os.environ.get("SERPAPI_KEY", "only-an-example-0123456789")
    search_config = SearchConfig(api_key, SearchEngine.SERP_API, 5)
    search_tool = web_search_tool(search_config)
    assert api_key not in repr(search_config)
    assert search_tool.input_schema["properties"]["num_results"]["default"] == 5
    async with Agent([search_tool, wikipedia_tool, web_scraper_tool]) as agent:
        print(*agent.caller.tools or ())


asyncio.run(main())
