"""Searching the web: one tool, and one provider after the other until one answers.

Above: ``web.py``, which makes it with its settings. Below: ``web_providers.py``. A provider without
its key is passed over; one that asks to be left alone is, for as long as it asks. It refuses to
read the pages that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Annotated, Final, TypedDict

from annotated_types import Ge, Le, MaxLen, MinLen

from toolpost import Cache, Call, Health, Secret, Tool
from toolpost.builtin.web_answers import got, limited
from toolpost.builtin.web_providers import PROVIDERS, Found, Name, found_in, request_to
from toolpost.builtin.web_settings import Settings, grant, places
from toolpost.errors import CallError, RateLimited, Unavailable
from toolpost.net.client import Client

_MOST_BYTES: Final = 2 * 1024 * 1024
_MOST_SECONDS: Final = 8.0
"""For one provider, so that there is time for another."""

Key = str | None
Brave = Annotated[Key, Secret("BRAVE_API_KEY", optional=True)]
Tavily = Annotated[Key, Secret("TAVILY_API_KEY", optional=True)]
SerpApi = Annotated[Key, Secret("SERPAPI_KEY", optional=True)]
Google = Annotated[Key, Secret("GOOGLE_API_KEY", optional=True)]
GoogleCx = Annotated[Key, Secret("GOOGLE_CSE_ID", optional=True)]
Bing = Annotated[Key, Secret("BING_API_KEY", optional=True)]


class Results(TypedDict):
    """What was found, the best first, and who found it."""

    results: list[Found]
    provider: str


class WebSearch(
    Tool,
    name="web_search",
    title="Search the web",
    category="web",
    tags=("search", "web"),
    tier=1,
    effects="read",
    timeout=25,
    cache=Cache(ttl=300),
    labels={"external": "true"},
    examples=(
        {"query": "python asyncio timeout"},
        {"query": "site:docs.python.org TaskGroup", "num_results": 3},
    ),
):
    """Search the web and get titles, URLs and snippets of pages, the best first.

    Use it for what is recent or what you do not know. To read one of the pages, use web_scraper.
    """

    def __init__(self, settings: Settings) -> None:
        self._cx = settings.google.cx
        self._places = places(settings)
        self._client = Client(grant(settings))
        self._until: dict[Name, float] = {}

    async def run(
        self,
        query: Annotated[str, MinLen(1), MaxLen(1000)],
        num_results: Annotated[int, Ge(1), Le(20)] = 5,
        *,
        call: Call,
        brave: Brave = None,
        tavily: Tavily = None,
        serpapi: SerpApi = None,
        google: Google = None,
        google_cx: GoogleCx = None,
        bing: Bing = None,
    ) -> Results:
        """Ask one after the other.

        Args:
            query: The words to search for, as in a search engine.
            num_results: How many results are wanted; some providers give at most 10.
        """
        cx = self._cx or google_cx
        keys = _keys(brave, tavily, serpapi, google if cx else None, bing)
        failures: dict[Name, CallError] = {}
        for name in self._ready(keys):
            try:
                found = await self._search(name, keys.get(name), query, count=num_results, cx=cx)
            except CallError as error:
                failures[name] = error
                continue
            for failed in failures.values():
                call.warn(failed.message)
            return Results(results=found, provider=name)
        raise _together(failures)

    async def health(
        self,
        *,
        brave: Brave = None,
        tavily: Tavily = None,
        serpapi: SerpApi = None,
        google: Google = None,
        google_cx: GoogleCx = None,
        bing: Bing = None,
    ) -> Health:
        cx = self._cx or google_cx
        keys = _keys(brave, tavily, serpapi, google if cx else None, bing)
        somewhere = [name for name, url in self._places.items() if url is not None]
        if any(PROVIDERS[name].key is None or keys.get(name) for name in somewhere):
            return Health(True)
        problems = [PROVIDERS[name].nowhere for name, url in self._places.items() if url is None]
        if somewhere:
            problems.append(_keyless(somewhere))
        return Health(False, "; ".join(problems))

    async def close(self) -> None:
        await self._client.close()

    def _ready(self, keys: Mapping[Name, Key]) -> list[Name]:
        """Those that have their key, or need none; one that is nowhere says so when it is asked."""
        ready = [
            name
            for name, where in self._places.items()
            if where is None or PROVIDERS[name].key is None or keys.get(name)
        ]
        if not ready:
            raise Unavailable(
                f"{_keyless(self._places)}.",
                retryable=False,
                remedy="other_tool",
                effects="none",
            )
        return ready

    async def _search(
        self, name: Name, key: Key, query: str, *, count: int, cx: str | None
    ) -> list[Found]:
        provider, where = PROVIDERS[name], self._places[name]
        if where is None:
            raise Unavailable(
                f"{provider.nowhere}.", retryable=False, remedy="other_tool", effects="none"
            )
        if (wait := self._until.get(name, 0.0) - monotonic()) > 0:
            raise limited(provider.title, wait)
        values = dict(provider.query(query, count))
        if name == "google" and cx:
            values["cx"] = cx
        request = request_to(provider, where, key, values)
        answer = await got(
            self._client, request, most=_MOST_BYTES, seconds=_MOST_SECONDS, redirects=2
        )
        try:
            return found_in(provider, answer, count)
        except RateLimited as error:
            if error.retry_after is not None:
                self._until[name] = monotonic() + error.retry_after
            raise


def _keys(brave: Key, tavily: Key, serpapi: Key, google: Key, bing: Key) -> dict[Name, Key]:
    return {"brave": brave, "tavily": tavily, "serpapi": serpapi, "google": google, "bing": bing}


def _keyless(names: Iterable[Name]) -> str:
    variables = [PROVIDERS[name].key for name in names]
    also = " with GOOGLE_CSE_ID" if PROVIDERS["google"].key in variables else ""
    return (
        "No provider can be asked, for there is no key: one of the variables "
        f"{', '.join(filter(None, variables))}{also} has to be set"
    )


def _together(failures: Mapping[Name, CallError]) -> CallError:
    """What is told if nobody answered: whatever a wait may help against, if there is such."""
    errors = list(failures.values())
    if len(errors) == 1:
        return errors[0]
    waits = [error.retry_after for error in errors if error.retry_after is not None]
    told = next((error for error in errors if error.retryable), errors[0])
    return type(told)(
        " ".join(error.message for error in errors),
        retryable=told.retryable,
        retry_after=min(waits, default=None),
        remedy=told.remedy,
        effects="none",
        details={"providers": {name: error.code for name, error in failures.items()}},
    )
