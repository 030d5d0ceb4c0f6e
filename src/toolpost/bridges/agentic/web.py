"""The built-in tools of the AgenticFramework contract that go out, on those of toolpost.

Above: an agent or a registry. Below: ``toolpost.builtin``, with the extras ``http`` and ``web``.
Keys come from a config or from the environment, and are redacted wherever they turn up. Each call
has its own connections, so that a tool can be shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypedDict

import msgspec
from annotated_types import MaxLen, MinLen

from toolpost import Call, Given, Limits, create_tool, known, tool
from toolpost.bridges.agentic.builtin import as_tool
from toolpost.bridges.agentic.contract import Tool
from toolpost.builtin import given, scraper, web, wikipedia
from toolpost.builtin.web_search import WebSearch
from toolpost.builtin.web_settings import places
from toolpost.environ import secret
from toolpost.errors import ConfigError
from toolpost.options import options_from

_SECONDS: Final = 10
_MOST: Final = 20
_CX: Final = "GOOGLE_CSE_ID"


class SearchEngine(StrEnum):
    """Who is asked."""

    SERP_API = "serpapi"
    GOOGLE_CUSTOM_SEARCH = "google"
    BING_SEARCH = "bing"


_KEYS: Final = {
    SearchEngine.SERP_API: "SERPAPI_KEY",
    SearchEngine.GOOGLE_CUSTOM_SEARCH: "GOOGLE_API_KEY",
    SearchEngine.BING_SEARCH: "BING_API_KEY",
}


class SearchConfig(msgspec.Struct, frozen=True):
    """Without a key, that of the environment is used: ``SERPAPI_KEY``, ``GOOGLE_API_KEY`` with
    ``GOOGLE_CSE_ID`` (or ``cx``), ``BING_API_KEY``. ``url`` is where the engine is, if not where it
    usually is.
    """

    api_key: str | None = None
    engine: SearchEngine = SearchEngine.SERP_API
    max_results: int = 5
    cx: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_results <= _MOST:
            raise ConfigError(f"max_results must be 1 to {_MOST}", at=("max_results",))
        if self.api_key:
            known.remember(self.api_key)

    def __repr__(self) -> str:
        return f"SearchConfig({self.engine.name}, max_results={self.max_results})"


class Summary(TypedDict):
    summary: str
    url: str


class Scraped(TypedDict):
    text: str
    title: str


_FOUND: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("title", "snippet", "url")},
            },
        }
    },
}


def web_search_tool(config: SearchConfig) -> Tool:
    """``web_search`` with the engine of a config."""
    engine = SearchEngine(config.engine)
    name = engine.value
    table = {"providers": [name], name: {"url": config.url} if config.url else {}}
    settings = options_from(table, web.Settings, "web_search")

    async def search(arguments: Mapping[str, Any], *, call: Call) -> dict[str, Any]:
        key = config.api_key or secret(_KEYS[engine])
        searching = WebSearch(settings)
        try:
            found = await searching.run(
                arguments["query"],
                arguments["num_results"],
                call=call,
                serpapi=key if engine is SearchEngine.SERP_API else None,
                google=key if engine is SearchEngine.GOOGLE_CUSTOM_SEARCH else None,
                google_cx=config.cx or secret(_CX),
                bing=key if engine is SearchEngine.BING_SEARCH else None,
            )
        finally:
            await searching.close()
        return {
            "results": [
                {"title": one["title"], "snippet": one["snippet"], "url": one["url"]}
                for one in found["results"]
            ]
        }

    egress = tuple(url.authority for url in places(settings).values() if url is not None)
    return _searching(search, config.max_results, egress)


def _searching(search: Callable[..., Any], count: int, egress: tuple[str, ...]) -> Tool:
    number = {"type": "integer", "default": count, "minimum": 1, "maximum": _MOST}
    text = {"type": "string", "minLength": 1, "maxLength": 1000}
    made = create_tool(
        "web_search",
        "Performs web search using configured search API.",
        search,
        title="Search the web",
        category="web",
        effects="read",
        timeout=_SECONDS,
        labels={"external": "true"},
        egress=egress,
        input_schema={
            "type": "object",
            "properties": {"query": text, "num_results": number},
            "required": ["query"],
        },
        output_schema=_FOUND,
    )
    return as_tool(made)


def wikipedia_at(*, language: str = "en", url: str | None = None) -> Tool:
    """``wikipedia`` in a language, or of another wiki: ``url`` is that of its API."""
    plain = {"language": language, **({"url": url} if url else {})}
    settings = options_from(plain, wikipedia.Settings, "wikipedia")

    @tool(
        name="wikipedia",
        title="Wikipedia",
        category="web",
        effects="read",
        timeout=_SECONDS,
        labels={"external": "true"},
    )
    async def search(query: Annotated[str, MinLen(1), MaxLen(300)]) -> Summary:
        """Searches Wikipedia and returns summary."""
        asking = wikipedia.Wikipedia(settings)
        try:
            found = await asking.run(query)
        finally:
            await asking.close()
        return {"summary": found["summary"], "url": found["url"]}

    return as_tool(search)


@tool(
    title="Web scraper",
    category="web",
    effects="read",
    timeout=_SECONDS,
    isolation="process",
    limits=Limits(memory=1024 * 1024 * 1024),
    labels={"external": "true"},
)
async def web_scraper(
    url: Annotated[str, MinLen(1), MaxLen(4000)],
    selector: Annotated[str | None, MaxLen(500)] = None,
    *,
    call: Call,
    going: Given[scraper.Settings],
) -> Scraped:
    """Fetches and extracts text from web pages.

    :param selector: CSS selector (optional)
    """
    found = await scraper.web_scraper(url, selector, scraper=going)
    if found["length"] > len(found["text"]):
        call.warn(f"The page has {found['length']:,} characters: this is the start of it.")
    return {"text": found["text"], "title": found["title"]}


_PAGE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 4000},
        "selector": {
            "type": "string",
            "description": "CSS selector (optional)",
            "maxLength": 500,
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}
"""As documented, with bounds: a signature would let ``null`` in for the selector."""


def web_scraper_at(*egress: str) -> Tool:
    """``web_scraper`` for pages that are there: ``host:port``, or ``*`` for all that is public."""
    settings = scraper.Settings(egress=egress or ("*",))
    made = given(web_scraper, going=settings)
    spec = msgspec.structs.replace(made.spec, egress=settings.egress, input_schema=_PAGE)
    return as_tool(msgspec.structs.replace(made, spec=spec))


wikipedia_tool: Final = wikipedia_at()
web_scraper_tool: Final = web_scraper_at()
