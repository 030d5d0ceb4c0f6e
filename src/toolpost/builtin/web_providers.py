"""Who searches the web: how each provider is asked, what it answers, and how it says no.

Above: ``web_search.py``. Below: ``web_answers.py``. A provider is a row of a table; it refuses to
know the others, and its key goes to its own host alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from html import unescape
from typing import Any, Final, Literal, NotRequired, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from toolpost.builtin.web_answers import AGENT, Got, failure, limited, spoken, with_query
from toolpost.errors import CallError, InvalidOutput, Unauthorized, Unavailable
from toolpost.net.client import Credentials, Request
from toolpost.net.url import Url, url_from
from toolpost.net.waiting import retry_after
from toolpost.wording import shortened

Name = Literal["brave", "tavily", "serpapi", "google", "searxng", "bing"]
_MOST_TITLE: Final = 300
_MOST_SNIPPET: Final = 1000
_HEADERS: Final = (("Accept", "application/json"), ("User-Agent", AGENT))
_SPENT: Final = re.compile("run out of searches|DailyLimit|per day|QUOTA_LIMITED", re.IGNORECASE)
_LIMITED: Final = re.compile("LimitExceeded|RESOURCE_EXHAUSTED|quotaExceeded", re.IGNORECASE)
_KEYLESS: Final = re.compile("API_KEY_INVALID|API key not valid|SUBSCRIPTION_TOKEN_INVALID")
_PACIFIC: Final = "America/Los_Angeles"


class Found(TypedDict):
    """One page that was found."""

    title: str
    url: str
    snippet: str
    published: NotRequired[str]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider. ``names`` are what its results call title, url, snippet and date."""

    title: str
    base: str | None = None
    """Where it is, unless the config says otherwise."""
    key: str | None = None
    """The variable that holds its key."""
    path: str
    query: Callable[[str, int], Mapping[str, str | int]]
    """The words and how many → the parameters."""
    sign: Callable[[str], Credentials] = lambda key: Credentials()
    """The key → what proves who asks."""
    posts: bool = False
    """The parameters go as JSON."""
    results: tuple[str, ...]
    names: tuple[str, str, str, str]
    nowhere: str = ""
    """Why it has no ``base``, and what to do."""


def _header(name: str, prefix: str = "") -> Callable[[str], Credentials]:
    return lambda key: Credentials(headers=((name, prefix + key),))


def _parameter(name: str) -> Callable[[str], Credentials]:
    return lambda key: Credentials(query=((name, key),))


PROVIDERS: Final[Mapping[Name, Provider]] = {
    "brave": Provider(
        title="Brave Search",
        base="https://api.search.brave.com",
        key="BRAVE_API_KEY",
        path="/res/v1/web/search",
        query=lambda words, count: {"q": words, "count": count, "text_decorations": "false"},
        sign=_header("X-Subscription-Token"),
        results=("web", "results"),
        names=("title", "url", "description", "page_age"),
    ),
    "tavily": Provider(
        title="Tavily",
        base="https://api.tavily.com",
        key="TAVILY_API_KEY",
        path="/search",
        posts=True,
        query=lambda words, count: {"query": words, "max_results": count},
        sign=_header("Authorization", "Bearer "),
        results=("results",),
        names=("title", "url", "content", "published_date"),
    ),
    "serpapi": Provider(
        title="SerpApi",
        base="https://serpapi.com",
        key="SERPAPI_KEY",
        path="/search.json",
        query=lambda words, count: {"engine": "google", "q": words, "num": count},
        sign=_parameter("api_key"),
        results=("organic_results",),
        names=("title", "link", "snippet", "date"),
    ),
    "google": Provider(
        title="Google Custom Search",
        base="https://www.googleapis.com",
        key="GOOGLE_API_KEY",
        path="/customsearch/v1",
        query=lambda words, count: {"q": words, "num": min(count, 10)},
        sign=_parameter("key"),
        results=("items",),
        names=("title", "link", "snippet", ""),
    ),
    "searxng": Provider(
        title="SearXNG",
        path="/search",
        query=lambda words, count: {"q": words, "format": "json"},
        results=("results",),
        names=("title", "url", "content", "publishedDate"),
        nowhere="SearXNG is where you run it: set url in [sources.web.searxng]",
    ),
    "bing": Provider(
        title="Bing",
        key="BING_API_KEY",
        path="/v7.0/search",
        query=lambda words, count: {"q": words, "count": count},
        sign=_header("Ocp-Apim-Subscription-Key"),
        results=("webPages", "value"),
        names=("name", "url", "snippet", "datePublished"),
        nowhere=(
            "Microsoft has ended the Bing Search API on 11 August 2025: use another provider, or "
            "set url in [sources.web.bing] to a service that answers as it did"
        ),
    ),
}
"""In the order in which they are tried if the config names none."""


def request_to(
    provider: Provider, base: Url, key: str | None, values: Mapping[str, str | int]
) -> Request:
    """The request; ``values`` are its parameters."""
    where = f"{base}".rstrip("/") + provider.path
    credentials = provider.sign(key) if key else Credentials()
    if provider.posts:
        return Request(
            method="POST",
            url=url_from(where),
            headers=_HEADERS,
            body=json.dumps(values).encode(),  # half a character is no UTF-8, but can be escaped
            type="application/json",
            credentials=credentials,
        )
    url = url_from(with_query(where, values))
    return Request(method="GET", url=url, headers=_HEADERS, credentials=credentials)


def found_in(provider: Provider, answer: Got, most: int) -> list[Found]:
    """The results in an answer, each URL once; or the error that the answer is."""
    if answer.status != 200:
        raise refusal(provider, answer)
    data = answer.data
    if not isinstance(data, dict):
        raise InvalidOutput(f"The answer of {provider.title} is not JSON. Use another tool.")
    metadata = data.get("search_metadata")
    if isinstance(metadata, dict) and metadata.get("status") == "Error":
        raise Unavailable(f"{provider.title} failed: {spoken(answer)}", effects="none")
    found: dict[str, Found] = {}
    for one in _rows(provider, data):
        made = _found(provider, one)
        if made is not None and len(found) < most:
            found.setdefault(made["url"], made)
    return list(found.values())


def refusal(provider: Provider, answer: Got) -> CallError:
    """What it means that a provider said no."""
    status, words = answer.status, spoken(answer)
    text = answer.body.decode("utf-8", "replace")
    details = {"status": status, "provider": provider.title}
    if status in (432, 433):
        return limited(provider.title, None, words, spent=True, details=details)
    if status == 429 or (status == 403 and _LIMITED.search(text)):
        wait = _wait(answer, text)
        spent = wait is None and _SPENT.search(text) is not None
        return limited(provider.title, wait, words, spent=spent, details=details)
    if provider.key and (status in (401, 403) or _KEYLESS.search(text)):
        return Unauthorized(
            f"{provider.title} refused the key in {provider.key}: {words}",
            effects="none",
            details=details,
        )
    hint = ""
    if provider is PROVIDERS["searxng"] and status == 403:
        hint = "Its settings.yml has to list json under search: formats."
    return failure(answer, who=provider.title, hint=hint)


def _wait(answer: Got, text: str) -> float | None:
    """The seconds until it may be asked again, if that is said or known."""
    said = retry_after(answer.header("retry-after"))
    if said is not None:
        return said
    windows = zip(_numbers(answer, "remaining"), _numbers(answer, "reset"), strict=False)
    waits = [reset for remaining, reset in windows if remaining == 0]
    if waits:
        return float(max(waits))
    if "googleapis" in text and _SPENT.search(text):
        return _until_midnight()
    return None


def _numbers(answer: Got, name: str) -> list[int]:
    """``X-RateLimit-…: 1, 1419704``: one number for each window."""
    said = answer.header(f"x-ratelimit-{name}") or ""
    return [int(one) for one in re.findall(r"\b[0-9]{1,9}\b", said)]


def _until_midnight() -> float | None:
    """Google counts in days of California."""
    try:
        now = datetime.now(ZoneInfo(_PACIFIC))
    except ZoneInfoNotFoundError:
        return None
    tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return round(tomorrow.timestamp() - now.timestamp(), 3)


def _rows(provider: Provider, data: Any) -> Iterator[Mapping[str, Any]]:
    for step in provider.results:
        data = data.get(step) if isinstance(data, dict) else None
    yield from (one for one in data if isinstance(one, dict)) if isinstance(data, list) else ()


def _found(provider: Provider, row: Mapping[str, Any]) -> Found | None:
    title, url, snippet, date = (row.get(name) for name in provider.names)
    if not isinstance(url, str) or not re.match(r"(?i)https?://", url) or len(url) > 4000:
        return None
    made = Found(title=_text(title, _MOST_TITLE), url=url, snippet=_text(snippet, _MOST_SNIPPET))
    if isinstance(date, str) and date:
        made["published"] = _text(date, 50)
    return made


def _text(value: Any, most: int) -> str:
    """One line; Brave marks the words that were searched for, and escapes."""
    text = unescape(re.sub(r"</?strong>", "", value)) if isinstance(value, str) else ""
    return shortened(" ".join(text.split()), most)
