"""Looking things up in Wikipedia: ``wikipedia``, the summary of an article in any language.

Above: ``sources/builtin.py``. Below: ``web_answers.py`` and the query API that every MediaWiki has.
A title that is there is taken; else the best of a search. It refuses to go to another host than the
one that the config and the language make.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NotRequired, TypedDict

from annotated_types import MaxLen, MinLen

from toolpost import Cache, Tool
from toolpost.builtin.web_answers import (
    AGENT,
    failure,
    got,
    limited,
    spoken,
    url_configured,
    with_query,
)
from toolpost.contracts import Registered
from toolpost.errors import ConfigError, InvalidOutput, ToolFailed, ToolNotFound, Unavailable
from toolpost.net.client import Client, Request
from toolpost.net.destination import Granted
from toolpost.net.url import url_from
from toolpost.options import Options
from toolpost.wording import short, shortened

__all__ = ["Settings", "tools"]

_PLACE: Final = "{language}"
_LANGUAGE: Final = re.compile(r"[a-z]{2,12}(?:-[a-z0-9]{1,12}){0,3}")
_MOST_BYTES: Final = 2 * 1024 * 1024
_MOST_SECONDS: Final = 10.0
_MOST_SUMMARY: Final = 8000
_MOST_MEANINGS: Final = 50
_MOST_OTHERS: Final = 5
_PAGE: Final[Mapping[str, str | int]] = {
    "action": "query",
    "format": "json",
    "formatversion": 2,
    "redirects": 1,
    "prop": "extracts|info|pageprops|description",
    "exintro": 1,
    "explaintext": 1,
    "exlimit": "max",
    "inprop": "url",
    "ppprop": "disambiguation",
}


class Settings(Options, frozen=True):
    """``[sources.wikipedia]``."""

    language: str = "en"
    """The Wikipedia that is asked unless a call names another."""
    url: str = "https://{language}.wikipedia.org/w/api.php"
    """The API. If ``{language}`` is not in the host, there is one, and it may be a private one."""

    def __post_init__(self) -> None:
        if not _LANGUAGE.fullmatch(self.language):
            raise ConfigError(
                f"wikipedia: {short(self.language)!r} is no language: write en, de or zh",
                at=("language",),
            )
        url_configured(self.url.replace(_PLACE, self.language), "wikipedia: url")


class Meaning(TypedDict):
    """An article that a word may stand for."""

    title: str
    url: str
    description: NotRequired[str]


class Article(TypedDict):
    """The beginning of an article. ``disambiguation`` are the meanings of a word that has several,
    ``alternatives`` other articles that a search found.
    """

    title: str
    summary: str
    url: str
    language: str
    disambiguation: NotRequired[list[Meaning]]
    alternatives: NotRequired[list[Meaning]]


class Wikipedia(
    Tool,
    name="wikipedia",
    title="Look something up in Wikipedia",
    category="web",
    tags=("search", "web", "encyclopedia"),
    tier=1,
    effects="read",
    timeout=25,
    cache=Cache(ttl=3600),
    labels={"external": "true"},
    examples=({"query": "Alan Turing"}, {"query": "Mercury"}, {"query": "Wien", "language": "de"}),
):
    """Get the summary of a Wikipedia article and its URL.

    Use it for people, places, things and ideas that are well known. If a word has several meanings
    they are listed: ask again with the title of the right one.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        hosts = {url_from(settings.url.replace(_PLACE, one)).authority for one in ("en", "de")}
        self._client = Client(Granted(hosts if len(hosts) == 1 else ("*",)))

    async def run(
        self, query: Annotated[str, MinLen(1), MaxLen(300)], language: str | None = None
    ) -> Article:
        """Take the article of that title, or search.

        Args:
            query: The title of an article, or words to search for.
            language: The code of a language, such as en, de or zh; left out, the usual one.
        """
        language = language or self._settings.language
        if not _LANGUAGE.fullmatch(language):
            raise ToolFailed(
                f"{short(language)!r} is no language of Wikipedia: use a code such as en, de or zh",
                effects="none",
            )
        title = " ".join(query.replace("|", " ").split()) or query
        page, *others = await self._pages(language, {"titles": title})
        if not _is_there(page):
            search = {"generator": "search", "gsrsearch": title, "gsrlimit": f"{1 + _MOST_OTHERS}"}
            page, *others = await self._pages(language, search)
        if not _is_there(page):
            raise ToolNotFound(
                f"Wikipedia ({language}) has nothing on {short(query)!r}. Try other words, or "
                "another language.",
                remedy="fix_args",
                effects="none",
            )
        return await self._article(page, others, language)

    async def close(self) -> None:
        await self._client.close()

    async def _article(
        self, page: Mapping[str, Any], others: list[dict[str, Any]], language: str
    ) -> Article:
        meaning = _meaning(page)
        article = Article(
            title=meaning["title"],
            summary=shortened(_text(page, "extract") or _text(page, "description"), _MOST_SUMMARY),
            url=meaning["url"],
            language=language,
        )
        properties = page.get("pageprops")
        if isinstance(properties, dict) and "disambiguation" in properties:
            links = {"generator": "links", "gplnamespace": "0", "gpllimit": f"{_MOST_MEANINGS}"}
            found = await self._pages(language, {"titles": meaning["title"], **links})
            article["disambiguation"] = [_meaning(one) for one in found if _is_there(one)]
        if others:
            article["alternatives"] = [_meaning(one) for one in others]
        return article

    async def _pages(self, language: str, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        """The pages of an answer, the best first; one that is not there if there are none."""
        base = self._settings.url.replace(_PLACE, language)
        brief = {"prop": "info|description"} if asked.get("generator") == "links" else {}
        request = Request(
            method="GET",
            url=url_from(with_query(base, {**_PAGE, **brief, **asked})),
            headers=(("User-Agent", AGENT), ("Accept", "application/json")),
        )
        answer = await got(
            self._client, request, most=_MOST_BYTES, seconds=_MOST_SECONDS, redirects=0
        )
        if answer.status != 200:
            raise failure(answer)
        data = answer.data
        if not isinstance(data, dict):
            raise InvalidOutput(f"The answer of {answer.url.host} is not JSON. Use another tool.")
        if isinstance(error := data.get("error"), dict):
            raise _refusal(str(error.get("code")), answer.url.host, spoken(answer))
        query = data.get("query")
        pages = query.get("pages") if isinstance(query, dict) else None
        found = [one for one in pages if isinstance(one, dict)] if isinstance(pages, list) else []
        return sorted(found, key=_rank) or [{}]


def tools(settings: Settings, base: Path) -> Iterable[Registered]:
    return (Wikipedia(settings),)


def _refusal(code: str, host: str, words: str) -> Exception:
    """An error that comes with status 200."""
    if code in ("ratelimited", "maxlag"):
        return limited(host, 5.0, words)
    if code in ("readonly", "internal_api_error") or code.startswith("internal_api_error"):
        return Unavailable(f"{host} has a problem: {words}", effects="none")
    return ToolFailed(f"{host} refused: {words}", effects="none")


def _is_there(page: Mapping[str, Any]) -> bool:
    return bool(page.get("pageid")) and not page.get("missing")


def _rank(page: Mapping[str, Any]) -> int:
    """Pages of a search come in no order, each with its place."""
    index = page.get("index")
    return index if isinstance(index, int) else 0


def _meaning(page: Mapping[str, Any]) -> Meaning:
    made = Meaning(
        title=_text(page, "title"), url=_text(page, "canonicalurl") or _text(page, "fullurl")
    )
    if description := _text(page, "description"):
        made["description"] = shortened(description, 300)
    return made


def _text(page: Mapping[str, Any], name: str) -> str:
    value = page.get(name)
    return value.strip() if isinstance(value, str) else ""
