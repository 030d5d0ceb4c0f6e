"""web_search: every provider is asked as it wants to be, and heard as it answers; if one cannot,
the next one does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.backends.http.service import Answers, Asked, Reply, Service, forever, serving
from toolpost import ConfigError, Executor, Registry, Result
from toolpost.builtin import web
from toolpost.builtin.web_providers import PROVIDERS
from toolpost.extensions.sanitize import UNTRUSTED, Sanitize
from toolpost.options import options_from

pytestmark = pytest.mark.anyio
KEYS = {
    "BRAVE_API_KEY": "brave-key-0123456789",
    "TAVILY_API_KEY": "tvly-key-0123456789",
    "SERPAPI_KEY": "serpapi-key-0123456789",
    "GOOGLE_API_KEY": "google-key-0123456789",
    "GOOGLE_CSE_ID": "engine-0123456789",
    "BING_API_KEY": "bing-key-0123456789",
}
NAMES = tuple(PROVIDERS)


def settings(table: dict[str, Any]) -> web.Settings:
    return options_from(table, web.Settings, "web")


def going_to(service: Service, *names: str, **more: Any) -> web.Settings:
    """The named providers, all of them at this service."""
    return settings({"providers": names, **{name: {"url": service.url} for name in names}, **more})


async def search(
    given: web.Settings, query: str = "tea", *, keys: dict[str, str] = KEYS, **arguments: Any
) -> Result:
    async with searching(given, keys) as executor:
        return await executor.execute("web_search", {"query": query, **arguments})


def searching(given: web.Settings, keys: dict[str, str] = KEYS) -> Executor:
    return Executor(Registry(web.tools(given, Path())), secret=keys.get, guards=[Sanitize()])


def answering(data: Any, status: int = 200, **headers: str) -> Answers:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda asked: Reply(json.dumps(data), status, headers=named)


def parameters(asked: Asked) -> dict[str, str]:
    return dict(parse_qsl(asked.target.partition("?")[2]))


@pytest.mark.parametrize("name", ["brave", "tavily"])
async def test_half_a_character_is_searched_for_as_something_else(name: str) -> None:
    async with serving(answering(SHAPES[name])) as service:
        result = await search(going_to(service, name), "tea \ud800")
    assert result.error is None, result.error


# --- each provider, in the shape that it documents ---------------------------------------------

SHAPES: dict[str, Any] = {
    "brave": {
        "type": "search",
        "query": {"original": "tea", "more_results_available": True},
        "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
        "web": {
            "type": "search",
            "results": [
                {
                    "type": "search_result",
                    "subtype": "generic",
                    "title": "Tea &amp; cake",
                    "url": "https://tea.example/one",
                    "description": "All about <strong>tea</strong>, it&#x27;s good",
                    "page_age": "2026-05-01T10:00:00",
                    "age": "May 1, 2026",
                    "family_friendly": True,
                },
                {"title": "Second", "url": "https://tea.example/two", "description": "More."},
            ],
            "family_friendly": True,
        },
    },
    "tavily": {
        "query": "tea",
        "answer": None,
        "images": [],
        "results": [
            {
                "title": "Tea & cake",
                "url": "https://tea.example/one",
                "content": "All about tea, it's good",
                "score": 0.98,
                "raw_content": None,
                "published_date": "2026-05-01T10:00:00",
            },
            {
                "title": "Second",
                "url": "https://tea.example/two",
                "content": "More.",
                "score": 0.5,
                "raw_content": None,
            },
        ],
        "response_time": 1.2,
        "request_id": "123e4567-e89b-12d3-a456-426614174111",
    },
    "serpapi": {
        "search_metadata": {"id": "1", "status": "Success", "total_time_taken": 1.1},
        "search_parameters": {"engine": "google", "q": "tea"},
        "search_information": {"organic_results_state": "Results for exact spelling"},
        "organic_results": [
            {
                "position": 1,
                "title": "Tea & cake",
                "link": "https://tea.example/one",
                "displayed_link": "https://tea.example › one",
                "snippet": "All about tea, it's good",
                "date": "2026-05-01T10:00:00",
                "source": "Tea",
            },
            {
                "position": 2,
                "title": "Second",
                "link": "https://tea.example/two",
                "snippet": "More.",
            },
        ],
    },
    "google": {
        "kind": "customsearch#search",
        "queries": {"request": [{"title": "Google Custom Search - tea", "count": 5}]},
        "searchInformation": {"totalResults": "2", "searchTime": 0.2},
        "items": [
            {
                "kind": "customsearch#result",
                "title": "Tea & cake",
                "htmlTitle": "<b>Tea</b> &amp; cake",
                "link": "https://tea.example/one",
                "displayLink": "tea.example",
                "snippet": "All about tea, it's good",
            },
            {
                "kind": "customsearch#result",
                "title": "Second",
                "link": "https://tea.example/two",
                "snippet": "More.",
            },
        ],
    },
    "searxng": {
        "query": "tea",
        "number_of_results": 0,
        "results": [
            {
                "url": "https://tea.example/one",
                "title": "Tea & cake",
                "content": "All about tea, it's good",
                "publishedDate": "2026-05-01T10:00:00",
                "engine": "brave",
                "engines": ["brave"],
                "score": 1.0,
                "category": "general",
            },
            {
                "url": "https://tea.example/two",
                "title": "Second",
                "content": "More.",
                "publishedDate": None,
                "engine": "brave",
            },
        ],
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": ["tea time"],
        "unresponsive_engines": [["google", "timeout"]],
    },
    "bing": {
        "_type": "SearchResponse",
        "queryContext": {"originalQuery": "tea"},
        "webPages": {
            "webSearchUrl": "https://www.bing.com/search?q=tea",
            "totalEstimatedMatches": 2,
            "value": [
                {
                    "id": "https://api.bing.microsoft.com/api/v7/#WebPages.0",
                    "name": "Tea & cake",
                    "url": "https://tea.example/one",
                    "snippet": "All about tea, it's good",
                    "datePublished": "2026-05-01T10:00:00",
                },
                {"name": "Second", "url": "https://tea.example/two", "snippet": "More."},
            ],
        },
    },
}
"""What each answers to one search, with two results in it."""
WANTED = [
    {
        "title": "Tea & cake",
        "url": "https://tea.example/one",
        "snippet": "All about tea, it's good",
        "published": "2026-05-01T10:00:00",
    },
    {"title": "Second", "url": "https://tea.example/two", "snippet": "More."},
]


@pytest.mark.req("AF-3", "FM-17")
@pytest.mark.parametrize("name", NAMES)
async def test_what_a_provider_answers_becomes_title_url_and_snippet(name: str) -> None:
    async with serving(answering(SHAPES[name])) as service:
        result = await search(going_to(service, name))
    assert result.error is None, result.error
    wanted = [dict(one) for one in WANTED]
    if name == "google":  # it does not tell when a page was published
        del wanted[0]["published"]
    assert result.output == {"results": wanted, "provider": name}
    assert UNTRUSTED in result.metadata.warnings


@pytest.mark.req("AF-3")
@pytest.mark.parametrize(
    ("name", "path", "wanted"),
    [
        ("brave", "/res/v1/web/search", {"q": "tea & ü", "count": "7",
                                         "text_decorations": "false"}),
        ("serpapi", "/search.json", {"engine": "google", "q": "tea & ü", "num": "7",
                                     "api_key": KEYS["SERPAPI_KEY"]}),
        ("google", "/customsearch/v1", {"q": "tea & ü", "num": "7", "cx": KEYS["GOOGLE_CSE_ID"],
                                        "key": KEYS["GOOGLE_API_KEY"]}),
        ("searxng", "/search", {"q": "tea & ü", "format": "json"}),
        ("bing", "/v7.0/search", {"q": "tea & ü", "count": "7"}),
    ],
)  # fmt: skip
async def test_a_provider_is_asked_as_it_wants_to_be(
    name: str, path: str, wanted: dict[str, str]
) -> None:
    async with serving(answering(SHAPES[name])) as service:
        await search(going_to(service, name), "tea & ü", num_results=7)
    (asked,) = service.asked
    assert (asked.method, asked.target.partition("?")[0]) == ("GET", path)
    assert parameters(asked) == wanted
    tokens = {"brave": "X-Subscription-Token", "bing": "Ocp-Apim-Subscription-Key"}
    if name in tokens:
        assert asked.header(tokens[name]) == KEYS[f"{name.upper()}_API_KEY"]


@pytest.mark.req("AF-3")
async def test_tavily_is_posted_to() -> None:
    async with serving(answering(SHAPES["tavily"])) as service:
        await search(going_to(service, "tavily"), num_results=7)
    (asked,) = service.asked
    assert (asked.method, asked.target) == ("POST", "/search")
    assert json.loads(asked.body) == {"query": "tea", "max_results": 7}
    assert asked.header("Authorization") == f"Bearer {KEYS['TAVILY_API_KEY']}"


@pytest.mark.req("AF-3")
async def test_five_results_are_wanted_unless_a_caller_says_otherwise() -> None:
    many = [{"title": f"{n}", "url": f"https://a.example/{n}", "content": ""} for n in range(30)]
    async with serving(answering({"results": many})) as service:
        given = going_to(service, "searxng")
        five, three = await search(given), await search(given, num_results=3)
        too_many = await search(given, num_results=21)
    assert [len(one.output["results"]) for one in (five, three)] == [5, 3]
    assert too_many.error is not None
    assert too_many.error.code == "VALIDATION_ERROR"


EMPTY: dict[str, Any] = {
    "brave": {"type": "search", "query": {"original": "tea"}},
    "tavily": {"query": "tea", "results": []},
    "serpapi": {
        "search_metadata": {"status": "Success"},
        "search_information": {"organic_results_state": "Fully empty"},
        "error": "Google hasn't returned any results for this query.",
    },
    "google": {"kind": "customsearch#search", "searchInformation": {"totalResults": "0"}},
    "searxng": {"query": "tea", "results": [], "unresponsive_engines": []},
    "bing": {"_type": "SearchResponse", "queryContext": {"originalQuery": "tea"}},
}


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_found_is_an_empty_list(name: str) -> None:
    async with serving(answering(EMPTY[name])) as service:
        result = await search(going_to(service, name))
    assert result.output == {"results": [], "provider": name}


async def test_what_is_no_result_is_left_out_and_each_url_is_there_once() -> None:
    rows = [
        "text",
        {"title": "No URL"},
        {"title": "Script", "url": "javascript:alert(1)"},
        {"title": "File", "url": "file:///etc/passwd"},
        {"title": None, "url": "https://a.example/1", "content": 5},
        {"title": "Again", "url": "https://a.example/1", "content": "x"},
        {"title": "L" * 999, "url": "https://a.example/2", "content": "long " * 999},
    ]
    async with serving(answering({"results": rows})) as service:
        result = await search(going_to(service, "searxng"))
    first, second = result.output["results"]
    assert first == {"title": "", "url": "https://a.example/1", "snippet": ""}
    assert (len(second["title"]), len(second["snippet"])) == (300, 1000)


# --- how they say no ----------------------------------------------------------------------------

BRAVE_LIMIT = {
    "type": "ErrorResponse",
    "error": {
        "id": "1",
        "status": 429,
        "detail": "Request rate limit exceeded for plan.",
        "meta": {"plan": "Free", "rate_limit": 1, "rate_current": 1},
        "code": "RATE_LIMITED",
    },
    "time": 1722870190,
}
BRAVE_KEY = {
    "type": "ErrorResponse",
    "error": {
        "id": "1",
        "status": 422,
        "detail": "The provided subscription token is invalid.",
        "meta": {"component": "authentication"},
        "code": "SUBSCRIPTION_TOKEN_INVALID",
    },
    "time": 1722870190,
}
GOOGLE_DAY = {
    "error": {
        "code": 429,
        "message": "Quota exceeded for quota metric 'Queries' and limit 'Queries per day' of "
        "service 'customsearch.googleapis.com' for consumer 'project_number:1'.",
        "errors": [{"domain": "global", "reason": "rateLimitExceeded"}],
        "status": "RESOURCE_EXHAUSTED",
    }
}
GOOGLE_OLD_DAY = {
    "error": {
        "code": 403,
        "message": "Daily Limit Exceeded",
        "errors": [{"domain": "usageLimits", "reason": "dailyLimitExceeded"}],
    }
}
GOOGLE_KEY = {
    "error": {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "errors": [{"domain": "global", "reason": "badRequest"}],
        "status": "INVALID_ARGUMENT",
        "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
    }
}
SERPAPI_KEY = {"error": "Invalid API key. Your API key should be here: https://serpapi.com/manage"}
TAVILY_PLAN = {"detail": {"error": "This request exceeds your plan's set usage limit."}}


@pytest.mark.req("FM-10", "FM-11")
@pytest.mark.parametrize(
    ("name", "status", "data", "headers", "wait"),
    [
        ("brave", 429, BRAVE_LIMIT, {"X_RateLimit_Remaining": "0, 1000",
                                     "X_RateLimit_Reset": "1, 1419704"}, 1),
        ("brave", 429, BRAVE_LIMIT, {"X_RateLimit_Remaining": "0, 0",
                                     "X_RateLimit_Reset": "1, 1419704"}, 1419704),
        ("brave", 429, BRAVE_LIMIT, {}, None),
        ("tavily", 429, {"detail": {"error": "Your request has been blocked due to excessive "
                                             "requests."}}, {"Retry_After": "60"}, 60),
        ("serpapi", 429, {"error": "You are exceeding your hourly throughput."},
         {"Retry_After": "12"}, 12),
        ("searxng", 429, {}, {"Retry_After": "3"}, 3),
        ("bing", 429, {"error": {"code": "429", "message": "Rate limit is exceeded."}},
         {"Retry_After": "1"}, 1),
    ],
)  # fmt: skip
async def test_a_provider_that_is_asked_too_often_says_how_long_to_wait(
    name: str, status: int, data: Any, headers: dict[str, str], wait: float | None
) -> None:
    async with serving(answering(data, status, **headers)) as service:
        result = await search(going_to(service, name))
    error = result.error
    assert error is not None
    assert (error.code, error.remedy, error.retryable) == ("RATE_LIMITED", "wait", True)
    assert error.retry_after == wait
    assert wait is None or f"Retry after {wait}s" in error.message


@pytest.mark.req("FM-10")
@pytest.mark.parametrize(("status", "data"), [(429, GOOGLE_DAY), (403, GOOGLE_OLD_DAY)])
async def test_the_quota_of_a_day_at_google_is_back_at_midnight_in_california(
    status: int, data: Any
) -> None:
    text = json.dumps({**data, "help": "customsearch.googleapis.com"})
    async with serving(lambda _: Reply(text, status)) as service:
        result = await search(going_to(service, "google"))
    assert result.error is not None
    assert result.error.code == "RATE_LIMITED"
    assert 0 < (result.error.retry_after or 0) <= 25 * 3600


@pytest.mark.req("FM-10")
@pytest.mark.parametrize(
    ("name", "status", "data"),
    [
        ("tavily", 432, TAVILY_PLAN),
        ("tavily", 433, {"detail": {"error": "This request exceeds the pay-as-you-go limit."}}),
        ("serpapi", 429, {"error": "Your account has run out of searches."}),
    ],
)
async def test_a_quota_that_is_used_up_is_not_waited_for(name: str, status: int, data: Any) -> None:
    async with serving(answering(data, status)) as service:
        result = await search(going_to(service, name))
    error = result.error
    assert error is not None
    assert (error.code, error.retryable, error.remedy) == ("RATE_LIMITED", False, "other_tool")
    assert "used up" in error.message


@pytest.mark.parametrize(
    ("name", "status", "data"),
    [
        ("brave", 422, BRAVE_KEY),
        ("tavily", 401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}),
        ("serpapi", 401, SERPAPI_KEY),
        ("google", 400, GOOGLE_KEY),
        ("bing", 401, {"error": {"code": "401", "message": "Access denied due to invalid key."}}),
    ],
)
async def test_a_key_that_is_refused_is_named_and_not_shown(
    name: str, status: int, data: Any
) -> None:
    async with serving(answering(data, status)) as service:
        result = await search(going_to(service, name))
    assert result.error is not None
    assert result.error.code == "UNAUTHORIZED"
    assert str(PROVIDERS[name].key) in result.error.message


@pytest.mark.parametrize(
    ("name", "status", "data", "code", "said"),
    [
        ("brave", 422, {"error": {"code": "VALIDATION", "detail": "Unable to validate request"}},
         "EXECUTION_ERROR", "Unable to validate request"),
        ("serpapi", 503, {"search_metadata": {"status": "Error"}, "error": "We couldn't get valid "
                          "results for this search."}, "UNAVAILABLE", "couldn't get valid results"),
        ("serpapi", 200, {"search_metadata": {"status": "Error"}, "error": "Timed out."},
         "UNAVAILABLE", "Timed out."),
        ("searxng", 403, "<!doctype html>", "UNAUTHORIZED", "json under search: formats"),
        ("tavily", 500, {"detail": {"error": "Internal Server Error"}}, "UNAVAILABLE", "500"),
        ("google", 404, {"error": {"message": "Requested entity was not found."}}, "NOT_FOUND",
         "not found"),
    ],
)  # fmt: skip
async def test_other_failures_say_what_the_provider_says(
    name: str, status: int, data: Any, code: str, said: str
) -> None:
    async with serving(answering(data, status)) as service:
        result = await search(going_to(service, name))
    assert result.error is not None
    assert result.error.code == code
    assert said in result.error.message


@pytest.mark.parametrize("body", ["", "<html>", "[1]", '"text"', "{" * 100_000, "\x00\x01"])
async def test_an_answer_that_is_no_json_object_is_a_clear_error(body: str) -> None:
    async with serving(lambda _: Reply(body)) as service:
        result = await search(going_to(service, "tavily"))
    assert result.error is not None
    assert result.error.code == "OUTPUT_INVALID"


async def test_the_bing_search_api_has_ended_and_that_is_what_is_said() -> None:
    result = await search(settings({"providers": ["bing"]}))
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("UNAVAILABLE", False)
    assert "ended the Bing Search API on 11 August 2025" in result.error.message


async def test_it_is_healthy_unless_nobody_can_be_asked() -> None:
    for providers, healthy in ((["bing"], False), (["bing", "brave"], True), (["brave"], True)):
        async with searching(settings({"providers": providers})) as executor:
            assert (await executor.health("web_search")).healthy is healthy


async def test_that_no_provider_has_its_key_is_told_by_its_health() -> None:
    asked = {"brave": {"BRAVE_API_KEY": "k"}, "google": {"GOOGLE_API_KEY": "k"}, "searxng": {}}
    there = {"searxng": {"url": "http://127.0.0.1:1"}}
    told = {}
    for name, keys in asked.items():
        given = settings({"providers": ["bing", name], **(there if name in there else {})})
        async with searching(given, keys) as executor:
            told[name] = await executor.health("web_search")
    assert [one.healthy for one in told.values()] == [True, False, True]
    assert "GOOGLE_API_KEY with GOOGLE_CSE_ID has to be set" in (told["google"].error or "")
    assert "ended the Bing Search API" in (told["google"].error or "")


# --- one after the other ------------------------------------------------------------------------


def by_path(answers: dict[str, Answers]) -> Answers:
    """Who is asked is told by the path."""

    def answer(asked: Asked) -> Any:
        name = next(n for n, p in PROVIDERS.items() if asked.target.partition("?")[0] == p.path
                    and (n in answers) and (asked.method == "POST") == p.posts)  # fmt: skip
        return answers[name](asked)

    return answer


@pytest.mark.req("AF-3")
async def test_the_next_provider_answers_if_one_cannot_and_the_result_says_so() -> None:
    answers = {
        "brave": answering(BRAVE_LIMIT, 429),
        "serpapi": answering(SERPAPI_KEY, 401),
        "tavily": answering(SHAPES["tavily"]),
    }
    async with serving(by_path(answers)) as service:
        result = await search(going_to(service, "brave", "serpapi", "tavily"))
    assert result.output["provider"] == "tavily"
    told = " ".join(result.metadata.warnings)
    assert "Brave Search is asked too often" in told
    assert "SerpApi refused the key in SERPAPI_KEY" in told


async def test_providers_are_asked_in_the_order_of_the_config() -> None:
    answers = {name: answering(SHAPES[name]) for name in ("tavily", "brave")}
    async with serving(by_path(answers)) as service:
        first = await search(going_to(service, "tavily", "brave"))
        second = await search(going_to(service, "brave", "tavily"))
    assert (first.output["provider"], second.output["provider"]) == ("tavily", "brave")
    assert len(service.asked) == 2


async def test_a_provider_without_its_key_is_passed_over() -> None:
    async with serving(answering(SHAPES["tavily"])) as service:
        given = going_to(service, "brave", "google", "tavily")
        few = {"TAVILY_API_KEY": KEYS["TAVILY_API_KEY"], "GOOGLE_API_KEY": KEYS["GOOGLE_API_KEY"]}
        result = await search(given, keys=few)  # Google lacks the id of an engine
    assert result.output["provider"] == "tavily"
    assert len(service.asked) == 1


async def test_with_no_key_at_all_the_error_names_the_variables() -> None:
    result = await search(web.Settings(), keys={})
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("UNAVAILABLE", False)
    for variable in ("BRAVE_API_KEY", "TAVILY_API_KEY", "SERPAPI_KEY", "GOOGLE_API_KEY"):
        assert variable in result.error.message
    assert "BING_API_KEY" not in result.error.message


async def test_if_nobody_answers_the_shortest_wait_is_told() -> None:
    answers = {
        "brave": answering(BRAVE_LIMIT, 429, Retry_After="30"),
        "tavily": answering({}, 429, Retry_After="10"),
        "serpapi": answering(SERPAPI_KEY, 401),
    }
    async with serving(by_path(answers)) as service:
        result = await search(going_to(service, "serpapi", "brave", "tavily"))
    error = result.error
    assert error is not None
    assert (error.code, error.retry_after) == ("RATE_LIMITED", 10)
    assert error.details == {
        "providers": {"serpapi": "UNAUTHORIZED", "brave": "RATE_LIMITED", "tavily": "RATE_LIMITED"}
    }


@pytest.mark.req("FM-11")
async def test_a_provider_that_asks_to_be_left_alone_is() -> None:
    answers = {
        "brave": answering(BRAVE_LIMIT, 429, Retry_After="600"),
        "tavily": answering(SHAPES["tavily"]),
    }
    async with serving(by_path(answers)) as service, searching(
        going_to(service, "brave", "tavily")
    ) as executor:  # fmt: skip
        results = [await executor.execute("web_search", {"query": f"{n}"}) for n in range(3)]
    assert {one.output["provider"] for one in results} == {"tavily"}
    assert [asked.method for asked in service.asked] == ["GET", "POST", "POST", "POST"]
    assert any("Retry after 600s" in one or "Retry after 599s" in one
               for one in results[2].metadata.warnings)  # fmt: skip


async def test_a_provider_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.builtin.web_search._MOST_SECONDS", 0.3)
    answers: dict[str, Answers] = {
        "brave": lambda _: forever,
        "tavily": answering(SHAPES["tavily"]),
    }
    async with serving(by_path(answers)) as service:
        result = await search(going_to(service, "brave", "tavily"))
    assert result.output["provider"] == "tavily"
    assert any("did not answer within 0.3 s" in one for one in result.metadata.warnings)


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.req("NA-3")
@pytest.mark.parametrize("name", [name for name in NAMES if PROVIDERS[name].key])
async def test_no_key_is_in_an_error_or_a_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = KEYS[str(PROVIDERS[name].key)]

    def echoes(asked: Asked) -> Reply:
        said = {"error": {"message": f"bad: {asked.target} {asked.headers} {asked.body!r}"}}
        return Reply(json.dumps(said), 500)

    async with serving(echoes) as service:
        result = await search(going_to(service, name))
        assert any(key in f"{asked.target}{asked.headers}" for asked in service.asked)
    assert result.error is not None
    assert key not in repr(result)
    assert key not in caplog.text


async def test_a_key_goes_to_its_own_host_alone() -> None:
    """A redirect leads to a service that may be asked, too; it gets to see no key."""
    async with serving(answering(SHAPES["brave"])) as other:
        moved = Reply("", 302, headers={"Location": other.url + "/there"})
        async with serving(lambda _: moved) as service:
            for name in ("brave", "serpapi", "google", "bing"):
                given = settings({"providers": [name, "searxng"], name: {"url": service.url},
                                  "searxng": {"url": other.url}})  # fmt: skip
                await search(given)
    assert [asked.target for asked in other.asked] == ["/there"] * 4
    seen = " ".join(f"{asked.target} {asked.headers}" for asked in other.asked)
    assert not [key for key in KEYS.values() if key in seen]


async def test_a_redirect_to_where_nobody_is_to_be_asked_is_not_followed() -> None:
    async with serving() as other:
        moved = Reply("", 302, headers={"Location": other.url + "/secret"})
        async with serving(lambda _: moved) as service:
            result = await search(going_to(service, "searxng"))
    assert result.error is not None
    assert result.error.code == "POLICY_DENIED"
    assert other.connections == 0


# --- the tool ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"providers": ["altavista"]}, "use one of brave"),
        ({"providers": []}, "names none"),
        ({"brave": {"key": "x"}}, "key"),
        ({"searxng": {"url": "localhost:8080"}}, "https://"),
        ({"egress": ["example.org"]}, "example.org:443"),
        ({"egress": ["*:443"]}, "no host and port"),
        ({"max_bytes": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("*", r"\*")):
        settings(table)


def test_its_spec_tells_where_it_goes() -> None:
    given = settings(
        {"providers": ["searxng", "brave"], "searxng": {"url": "http://10.0.0.5:8080"}}
    )
    (made,) = web.tools(given, Path())
    assert made.spec.egress == ("10.0.0.5:8080", "api.search.brave.com:443")
    assert (made.spec.tier, made.spec.effects) == (1, "read")


def test_every_parameter_of_the_tools_is_described() -> None:
    for one in web.tools(web.Settings(egress=("*",)), Path()):
        schema, text = one.spec.input_schema, one.spec.description
        undescribed = {n for n, p in schema["properties"].items() if "description" not in p}
        assert undescribed <= {"method"}, one.spec.name
        assert "Args" not in text
