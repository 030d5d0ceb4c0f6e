"""wikipedia: the summary of an article, the meanings of a word that has several, or a clear no."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.backends.http.service import Asked, Reply, Service, forever, serving
from toolpost import ConfigError, Executor, Registry, Result
from toolpost.builtin import wikipedia
from toolpost.extensions.sanitize import UNTRUSTED, Sanitize

pytestmark = pytest.mark.anyio


def page(pageid: int, title: str, **more: Any) -> dict[str, Any]:
    """A page as the query API tells it, with formatversion=2."""
    url = f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}"
    about = {"contentmodel": "wikitext", "pagelanguage": "en", "fullurl": url, "canonicalurl": url}
    return {"pageid": pageid, "ns": 0, "title": title, **about, **more}


TURING = page(
    1208,
    "Alan Turing",
    extract="Alan Mathison Turing was an English mathematician.\nHe was a pioneer.",
    description="English computer scientist (1912–1954)",
)
MERCURY = page(
    19007,
    "Mercury",
    extract="Mercury most commonly refers to:",
    pageprops={"disambiguation": ""},
    description="Topics referred to by the same term",
)
WIEN = page(1, "Wien", extract="Wien ist die Bundeshauptstadt.")
MISSING = {"ns": 0, "title": "Nothing", "missing": True}
FOUND = [  # in no order, as it comes
    page(3, "Enigma machine", extract="A cipher device.", index=2),
    page(2, "Bletchley Park", extract="A country house.", index=1, description="English estate"),
]
MEANINGS = [page(4, "Mercury (element)", description="Chemical element"), page(5, "Mercury (god)")]


class Wiki:
    """Answers the queries that are made here, as a MediaWiki would."""

    def __call__(self, asked: Asked) -> Any:
        given = dict(parse_qsl(asked.target.partition("?")[2]))
        pages: list[Any] = [MISSING]
        match given.get("generator"), given.get("titles"), given.get("gsrsearch"):
            case "links", "Mercury", _:
                pages = [*MEANINGS, {"ns": 0, "title": "Mercury (red)", "missing": True}]
            case "search", _, "who broke the enigma":
                pages = FOUND
            case "search", _, _:
                return Reply('{"batchcomplete": true}')
            case _, "slow", _:
                return forever
            case _, title, _:
                known = {"Alan Turing": TURING, "Mercury": MERCURY, "Wien": WIEN}
                pages = [known.get(title or "", MISSING)]
        return Reply(json.dumps({"batchcomplete": True, "query": {"pages": pages}}))


def api(service: Service) -> wikipedia.Settings:
    return wikipedia.Settings(url=service.url + "/w/api.php")


async def test_an_article_whose_properties_are_none_is_given() -> None:
    odd = json.dumps({"query": {"pages": [page(1, "Tea", extract="A drink.", pageprops=5)]}})
    async with serving(lambda asked: Reply(odd)) as service:
        result = await look_up(service, "Tea")
    assert result.error is None, result.error
    assert result.output["summary"] == "A drink."


async def test_half_a_character_is_looked_up_as_something_else() -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, "\ud800")
    assert result.error is not None
    assert result.error.code == "NOT_FOUND"


async def look_up(service: Service, query: str, **arguments: Any) -> Result:
    made = wikipedia.tools(api(service), Path())
    async with Executor(Registry(made), guards=[Sanitize()]) as executor:
        return await executor.execute("wikipedia", {"query": query, **arguments})


@pytest.mark.req("AF-4")
async def test_an_article_is_given_as_its_summary_and_url() -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, " Alan  Turing ")
    assert result.output == {
        "title": "Alan Turing",
        "summary": "Alan Mathison Turing was an English mathematician.\nHe was a pioneer.",
        "url": "https://en.wikipedia.org/wiki/Alan_Turing",
        "language": "en",
    }
    assert UNTRUSTED in result.metadata.warnings
    (asked,) = service.asked
    path, _, query = asked.target.partition("?")
    given = dict(parse_qsl(query))
    assert (asked.method, path) == ("GET", "/w/api.php")
    assert (given["action"], given["formatversion"], given["redirects"]) == ("query", "2", "1")
    assert (given["titles"], given["exintro"], given["explaintext"]) == ("Alan Turing", "1", "1")
    assert "toolpost/" in (asked.header("User-Agent") or "")


@pytest.mark.req("AF-4")
async def test_words_that_are_no_title_are_searched_for() -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, "who broke the enigma")
    assert result.output == {
        "title": "Bletchley Park",
        "summary": "A country house.",
        "url": "https://en.wikipedia.org/wiki/Bletchley_Park",
        "language": "en",
        "alternatives": [
            {"title": "Enigma machine", "url": "https://en.wikipedia.org/wiki/Enigma_machine"}
        ],
    }


async def test_the_meanings_of_a_word_are_listed() -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, "Mercury")
    assert result.output["summary"] == "Mercury most commonly refers to:"
    assert result.output["disambiguation"] == [
        {
            "title": "Mercury (element)",
            "url": "https://en.wikipedia.org/wiki/Mercury_(element)",
            "description": "Chemical element",
        },
        {"title": "Mercury (god)", "url": "https://en.wikipedia.org/wiki/Mercury_(god)"},
    ]


async def test_what_is_not_there_is_said_to_be_missing() -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, "asdfghjkl")
    error = result.error
    assert error is not None
    assert (error.code, error.remedy, error.retryable) == ("NOT_FOUND", "fix_args", False)
    assert "has nothing on 'asdfghjkl'" in error.message


async def test_a_pipe_does_not_ask_for_two_pages() -> None:
    async with serving(Wiki()) as service:
        await look_up(service, "a|b")
    assert "titles=a%20b" in service.asked[0].target


async def test_a_language_makes_the_host() -> None:
    async with serving(Wiki()) as service:
        made = wikipedia.Settings(url=service.url + "/{language}/api.php", language="fr")
        async with Executor(Registry(wikipedia.tools(made, Path()))) as executor:
            usual = await executor.execute("wikipedia", {"query": "Wien"})
            other = await executor.execute("wikipedia", {"query": "Wien", "language": "de"})
    assert [asked.target.partition("?")[0] for asked in service.asked] == [
        "/fr/api.php",
        "/de/api.php",
    ]
    assert (usual.output["language"], other.output["language"]) == ("fr", "de")


@pytest.mark.parametrize(
    "language", ["evil.com/", "en.", "..", "EN", "en@x", "a", "en#", "e n", "localhost:80/", "é"]
)
async def test_what_is_no_language_goes_nowhere(language: str) -> None:
    async with serving(Wiki()) as service:
        result = await look_up(service, "Wien", language=language)
    assert result.error is not None
    assert "no language" in result.error.message
    assert service.connections == 0


@pytest.mark.parametrize(
    ("reply", "code", "wait"),
    [
        (Reply("", 429, headers={"Retry-After": "7"}), "RATE_LIMITED", 7),
        (Reply('{"error": {"code": "ratelimited", "info": "Slow down."}}'), "RATE_LIMITED", 5),
        (Reply('{"error": {"code": "maxlag", "info": "Waiting."}}'), "RATE_LIMITED", 5),
        (Reply("", 503, headers={"Retry-After": "9"}), "UNAVAILABLE", 9),
        (Reply('{"error": {"code": "readonly", "info": "Locked."}}'), "UNAVAILABLE", None),
        (Reply('{"error": {"code": "badvalue", "info": "No."}}'), "EXECUTION_ERROR", None),
        (Reply("please set a user-agent", 403, type="text/plain"), "UNAUTHORIZED", None),
        (Reply("<html>", type="text/html"), "OUTPUT_INVALID", None),
        (Reply('{"query": {"pages": 5}}'), "NOT_FOUND", None),
        (Reply('{"query": []}'), "NOT_FOUND", None),
        (Reply("", 302, headers={"Location": "http://169.254.169.254/"}), "EXECUTION_ERROR", None),
    ],
)
async def test_a_wiki_that_cannot_answer_is_a_clear_error(
    reply: Reply, code: str, wait: float | None
) -> None:
    async with serving(lambda _: reply) as service:
        result = await look_up(service, "tea")
    assert result.error is not None
    assert (result.error.code, result.error.retry_after) == (code, wait)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"language": "English!"}, "no language"), ({"url": "en.wikipedia.org"}, "https://")],
)
def test_settings_that_cannot_be_are_refused(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wikipedia.Settings(**fields)
