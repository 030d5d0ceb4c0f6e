"""Tools of the AgenticFramework contract: made, validated, tried three times, and its own ones."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.backends.http.service import Asked, Reply, serving
from tests.builtin.test_web_search import SHAPES
from tests.builtin.test_wikipedia import TURING, Wiki
from toolpost import Config, Executor, InvalidSpec, Registry, Runtime
from toolpost.bridges import agentic
from toolpost.bridges.agentic import (
    Agent,
    SearchConfig,
    SearchEngine,
    ToolAuthorizationError,
    ToolConfig,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
    calculator_tool,
    create_tool,
    execute_tool,
    file_tools,
    tools,
    tools_in,
    validate_tool_input,
    validate_tool_output,
)
from toolpost.errors import ConfigError
from toolpost.extensions.sanitize import Sanitize

pytestmark = pytest.mark.anyio
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "City name"}},
    "required": ["city"],
}
WEATHER = {
    "type": "object",
    "properties": {"temperature": {"type": "number"}, "conditions": {"type": "string"}},
}


def weather(execute: Any = None, **more: Any) -> agentic.Tool:
    def sunny(given: dict[str, Any]) -> Any:
        return {"temperature": 21.5, "conditions": "sunny"}

    return create_tool(
        ToolConfig("get_weather", "Get the weather.", CITY, WEATHER, execute or sunny, **more)
    )


# --- making a tool --------------------------------------------------------------------------------


@pytest.mark.req("AF-1")
async def test_a_tool_is_made_of_a_config_and_is_one_for_any_registry() -> None:
    tool = weather(timeout=5_000_000)
    assert (tool.name, tool.description, tool.timeout) == (
        "get_weather",
        "Get the weather.",
        5_000_000,
    )
    assert (tool.input_schema, tool.output_schema, tool.retryable) == (CITY, WEATHER, True)
    assert (tool.spec.timeout, tool.spec.effects) == (5.0, "idempotent")
    once = weather(retryable=False)
    assert (once.spec.timeout, once.spec.effects, once.retryable) == (10.0, "once", False)
    assert tools(tool) == [tool]
    async with Executor(Registry([tool])) as executor:
        result = await executor.execute("get_weather", {"city": "Oslo"})
    assert result.output == {"temperature": 21.5, "conditions": "sunny"}


@pytest.mark.req("AF-8")
def test_a_tool_is_made_at_once() -> None:
    took = []
    for _ in range(50):
        began = perf_counter()
        weather()
        took.append(perf_counter() - began)
    assert min(took) < 0.001


@pytest.mark.req("AF-1")
def test_a_tool_cannot_be_changed_not_even_through_what_it_was_made_of() -> None:
    schema: dict[str, Any] = json.loads(json.dumps(CITY))
    tool = create_tool(ToolConfig("t", "A tool.", schema, {}, lambda given: {}))
    schema["required"].append("country")
    tool.input_schema["required"].append("country")
    assert tool.input_schema == CITY
    for name in ("timeout", "retryable", "spec", "function", "name"):
        with pytest.raises(AttributeError):
            setattr(tool, name, None)
    with pytest.raises(AttributeError):
        ToolConfig("t", "A tool.", {}, {}, lambda given: {}).name = "x"  # type: ignore[misc]


@pytest.mark.req("AF-1")
async def test_threads_and_loops_share_a_tool() -> None:
    tool = weather()

    def used() -> Any:
        return asyncio.run(execute_tool(tool, {"city": "Oslo"}))

    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(lambda _: used(), range(16)))
    assert outputs == [{"temperature": 21.5, "conditions": "sunny"}] * 16


@pytest.mark.req("AF-1")
@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 10.0), (1, 1e-6), (250_000, 0.25), (timedelta(seconds=3), 3.0)],
)
def test_a_timeout_is_in_microseconds(given: Any, seconds: float) -> None:
    assert weather(timeout=given).spec.timeout == seconds


@pytest.mark.parametrize("given", [0, -1, 2.5, True, "5", timedelta(0), 10**400])
def test_what_is_no_timeout_is_refused(given: Any) -> None:
    with pytest.raises(InvalidSpec, match="microseconds"):
        weather(timeout=given)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"required": 5}])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSpec):
        create_tool(ToolConfig("t", "A tool.", schema, {}, lambda given: {}))


@pytest.mark.req("AF-6")
def test_input_and_output_are_validated_by_functions_of_their_own() -> None:
    tool = weather()
    assert validate_tool_input(tool, {"city": "Oslo"}) is None
    assert "city" in (validate_tool_input(tool, {}) or "")
    assert "city" in (validate_tool_input(tool, {"city": 5}) or "")
    assert validate_tool_output(tool, {"temperature": 1, "conditions": "fog"}) is None
    assert "temperature" in (validate_tool_output(tool, {"temperature": "warm"}) or "")


# --- errors and tries -----------------------------------------------------------------------------


@pytest.mark.req("AF-7")
def test_errors_are_equal_if_they_say_the_same() -> None:
    assert ToolExecutionError("a") == ToolExecutionError("a") != ToolExecutionError("b")
    assert ToolTimeoutError() == ToolTimeoutError() != ToolAuthorizationError()
    assert ToolValidationError("a") != ToolExecutionError("a")
    assert len({ToolExecutionError("a"), ToolExecutionError("a")}) == 1
    assert repr(ToolExecutionError("a")) == "ToolExecutionError('a')"
    assert str(ToolTimeoutError()) == "The tool exceeded its time limit."


@pytest.mark.req("AF-5", "AF-7")
@pytest.mark.parametrize("way", ["returned", "raised", "returned later", "raised later", "awaited"])
@pytest.mark.parametrize(
    "error",
    [
        ToolExecutionError("Database connection failed. Check the DB_URL environment variable."),
        ToolValidationError("Missing city"),
        ToolTimeoutError(),
        ToolAuthorizationError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_of_a_tool_reaches_the_agent_as_it_was_said(
    error: ToolError, way: str
) -> None:
    def now(given: dict[str, Any]) -> Any:
        if way == "raised":
            raise error
        return error

    async def later(given: dict[str, Any]) -> Any:
        if way == "raised later":
            raise error
        return error

    execute: Any = now if way in ("returned", "raised") else later
    if way == "awaited":
        execute = lambda given: later(given)  # noqa: E731 - what it gives is to be awaited
    got = await execute_tool(weather(execute), {"city": "Oslo"})
    assert got == error


@pytest.mark.req("AF-5", "AF-7")
async def test_input_limit_and_output_are_held_and_internals_kept() -> None:
    async def endless(given: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    def broken(given: dict[str, Any]) -> Any:
        raise RuntimeError("/srv/private")

    async with asyncio.timeout(20):
        assert await execute_tool(weather(endless, timeout=20_000), {"city": "x"}) == (
            ToolTimeoutError()
        )
    unfit = await execute_tool(weather(broken), {"town": "x"})
    assert isinstance(unfit, ToolValidationError) and "city" in unfit.message
    wrong = await execute_tool(weather(lambda given: {"temperature": "warm"}), {"city": "x"})
    assert isinstance(wrong, ToolValidationError) and "temperature" in wrong.message
    internal = await execute_tool(weather(broken), {"city": "x"})
    assert internal == ToolExecutionError("Internal tool error. See logs for details.")


@pytest.mark.req("AF-5")
async def test_an_agent_has_three_tries_in_all_and_each_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[str] = []

    def picky(given: dict[str, Any]) -> Any:
        ran.append(given["city"])
        return {} if given["city"] == "Oslo" else ToolExecutionError("No such city. Try another.")

    caplog.set_level(logging.INFO, "toolpost.agentic")
    tool, other = weather(picky), calculator_tool
    async with Agent([tool, other], name="scout") as agent:
        for city in ("a", "b", "Oslo", "c", "d"):
            await agent.execute_tool(tool, {"city": city})
        third = await agent.execute_tool(tool, {"town": "e"})
        assert isinstance(third, ToolValidationError), "wrong input is a try as well"
        for city in ("Oslo", "f"):
            refused = await agent.execute_tool(tool, {"city": city})
            assert isinstance(refused, ToolExecutionError)
            assert "3 times in a row" in refused.message
            assert refused.failure is not None and refused.failure.remedy == "stop"
            assert not refused.retryable
        assert await agent.execute_tool(other, {"expression": "2 + 2"}) == {"result": 4}
        tried = [(one.tool, one.number, one.code) for one in agent.attempts]
    assert ran == ["a", "b", "Oslo", "c", "d"]
    failed = "EXECUTION_ERROR"
    assert tried == [
        ("get_weather", 1, failed),
        ("get_weather", 2, failed),
        ("get_weather", 3, None),
        ("get_weather", 1, failed),
        ("get_weather", 2, failed),
        ("get_weather", 3, "VALIDATION_ERROR"),
        ("calculator", 1, None),
    ]
    assert caplog.text.count("attempt 2 of 3") == 2
    assert caplog.text.count("was refused") == 2
    async with Agent([tool]) as fresh:
        assert await fresh.execute_tool(tool, {"city": "Oslo"}) == {}, "another session"


@pytest.mark.req("AF-5")
@pytest.mark.parametrize("over", ["its own", "an executor", "a runtime"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_no_more_than_three_tries_fail_whatever_the_agent_is_over(
    over: str, at_once: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def failing(given: dict[str, Any]) -> Any:
        ran.append(given["city"])
        await asyncio.sleep(0)
        return ToolExecutionError("The service is away. Try again later.")

    caplog.set_level(logging.INFO, "toolpost.agentic")
    tool = weather(failing)
    async with AsyncExitStack() as stack:
        road: Any = None
        if over == "an executor":
            road = await stack.enter_async_context(Executor(Registry(tools(tool))))
        elif over == "a runtime":
            runtime = Runtime(Config.of({}, base=tmp_path), tools=tools(tool))
            road = await stack.enter_async_context(runtime)
        agent = await stack.enter_async_context(Agent([tool], over=road))
        calls = [agent.execute_tool(tool, {"city": str(number)}) for number in range(10)]
        if at_once:
            told = await asyncio.wait_for(asyncio.gather(*calls), 20)
        else:
            told = [await call for call in calls]
    assert ran == ["0", "1", "2"]
    assert sum("3 times in a row" in one.message for one in told) == 7
    assert [one.number for one in agent.attempts] == [1, 2, 3]
    assert "of 3" in caplog.text and "attempt 4" not in caplog.text


@pytest.mark.req("AF-5")
async def test_calls_at_once_that_work_are_none_of_them_refused() -> None:
    ran: list[str] = []

    async def working(given: dict[str, Any]) -> Any:
        ran.append(given["city"])
        await asyncio.sleep(0)
        return ToolExecutionError("No.") if given["city"] in "05" else {"conditions": "fog"}

    tool = weather(working)
    async with Agent([tool]) as agent:
        calls = [agent.execute_tool(tool, {"city": str(number)}) for number in range(10)]
        told = await asyncio.wait_for(asyncio.gather(*calls), 20)
    assert sorted(ran) == [str(number) for number in range(10)]
    assert [number for number, one in enumerate(told) if isinstance(one, ToolError)] == [0, 5]


@pytest.mark.req("AF-5")
async def test_a_tool_that_calls_itself_does_not_wait_for_itself() -> None:
    async def deeper(given: dict[str, Any]) -> Any:
        if len(given["city"]) > 5:
            return {"conditions": given["city"]}
        return await agent.execute_tool(tool, {"city": given["city"] + "o"})

    tool = weather(deeper)
    async with Agent([tool]) as agent, asyncio.timeout(20):
        assert await agent.execute_tool(tool, {"city": "O"}) == {"conditions": "Oooooo"}


@pytest.mark.req("AF-5")
async def test_a_call_that_is_cancelled_makes_room_for_who_waits() -> None:
    begun = asyncio.Semaphore(0)

    async def work(given: dict[str, Any]) -> Any:
        if given["city"] == "slow":
            begun.release()
            await asyncio.Event().wait()
        return {}

    tool = weather(work)
    async with Agent([tool]) as agent, asyncio.timeout(20):
        slow = [asyncio.ensure_future(agent.execute_tool(tool, {"city": "slow"})) for _ in range(3)]
        for _ in slow:
            await begun.acquire()
        gone, waits = (
            asyncio.ensure_future(agent.execute_tool(tool, {"city": "quick"})) for _ in range(2)
        )
        await asyncio.sleep(0)
        assert not waits.done()
        for one in (gone, slow[0]):  # who waits may go away, too
            one.cancel()
        assert await waits == {}
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, gone, return_exceptions=True)
        assert await agent.execute_tool(tool, {"city": "quick"}) == {}


@pytest.mark.req("AF-5")
@pytest.mark.parametrize("retryable", [True, False])
async def test_retryable_is_said_of_the_error_and_the_system_repeats_nothing(
    retryable: bool, tmp_path: Path
) -> None:
    ran: list[int] = []

    def failing(given: dict[str, Any]) -> Any:
        ran.append(1)
        return ToolExecutionError("The service is away. Try again later.")

    tool = weather(failing, retryable=retryable)
    async with Runtime(Config.of({}, base=tmp_path), tools=tools(tool)) as runtime:
        result = await runtime.execute("get_weather", {"city": "x"})
        assert result.error is not None
        assert (result.error.code, result.error.retryable) == ("EXECUTION_ERROR", retryable)
        assert result.error.message == "The service is away. Try again later."
        assert (len(ran), result.metadata.attempts) == (1, 1)
        async with Agent([tool], over=runtime) as agent:
            error = await agent.execute_tool(tool, {"city": "x"})
        assert isinstance(error, ToolExecutionError) and error.retryable == retryable
    assert len(ran) == 2


@pytest.mark.req("AF-5")
async def test_a_tool_that_is_not_retryable_runs_no_second_time_after_it_has_failed() -> None:
    ran: list[str] = []

    async def failing(given: dict[str, Any]) -> Any:
        ran.append(given["city"])
        return {} if given["city"] == "Oslo" else ToolExecutionError("Half of it was done.")

    tool = weather(failing, retryable=False)
    async with Agent([tool]) as agent:
        unfit = await agent.execute_tool(tool, {"town": "a"})
        assert isinstance(unfit, ToolValidationError), "it did not run, so it may still"
        assert await agent.execute_tool(tool, {"city": "Oslo"}) == {}
        error = await agent.execute_tool(tool, {"city": "a"})
        assert error == ToolExecutionError("Half of it was done.")
        for city in ("a", "Oslo"):
            refused = await agent.execute_tool(tool, {"city": city})
            assert isinstance(refused, ToolExecutionError) and not refused.retryable
            assert "may not be tried again" in refused.message
            assert refused.failure is not None and refused.failure.remedy == "stop"
    assert ran == ["Oslo", "a"]
    async with Agent([tool]) as agent:
        cities = ("a", "b", "c")
        await asyncio.gather(*(agent.execute_tool(tool, {"city": city}) for city in cities))
    assert ran == ["Oslo", "a", "a"]


@pytest.mark.req("AF-7")
async def test_a_tool_that_is_not_an_agents_is_not_authorized(tmp_path: Path) -> None:
    ran: list[int] = []

    def counted(given: dict[str, Any]) -> Any:
        ran.append(1)
        return {}

    mine, theirs = weather(counted), calculator_tool
    async with Agent([mine]) as agent:
        assert await agent.execute_tool(theirs, {"expression": "1"}) == ToolAuthorizationError()
        assert await agent.execute_tool("rm", {}) == ToolAuthorizationError()
        namesake = weather(lambda given: pytest.fail("it ran"))
        assert await agent.execute_tool(namesake, {"city": "x"}) == ToolAuthorizationError()
        assert agent.attempts == ()
    _, write, _ = file_tools(base=tmp_path)
    runtime_of = Config.of({}, base=tmp_path)
    async with Runtime(runtime_of, tools=tools(mine, theirs, write)) as runtime:
        agent = Agent(["calculator", "write_file"], over=runtime)
        assert await agent.execute_tool("calculator", {"expression": "6 * 7"}) == {"result": 42}
        assert await agent.execute_tool(mine, {"city": "x"}) == ToolAuthorizationError()
        given = {"path": "a", "content": "x"}
        elevated = await agent.execute_tool("write_file", given)
        assert elevated == ToolAuthorizationError(), "tier 2, and nobody has given it a role"
        await agent.close()
        assert (await runtime.execute("calculator", {"expression": "1"})).success
    assert ran == []
    with pytest.raises(InvalidSpec, match="over"):
        Agent(["calculator"])


def test_a_modules_tools_are_found_each_once() -> None:
    tool = weather()
    found = tools_in({"a": tool, "b": tool, "c": calculator_tool, "d": 1, "e": weather})
    assert found == [tool, calculator_tool]
    with pytest.raises(InvalidSpec, match="create_tool"):
        tools(weather)  # type: ignore[arg-type]


# --- the built-in tools ---------------------------------------------------------------------------


@pytest.mark.req("AF-2")
async def test_files_are_read_written_and_listed_with_the_documented_results(
    tmp_path: Path,
) -> None:
    read, write, listed = file_tools("data", base=tmp_path)
    async with Agent([read, write, listed]) as agent:

        async def done(tool: agentic.Tool, **given: Any) -> Any:
            got = await agent.execute_tool(tool, given)
            return str(got) if isinstance(got, ToolError) else got

        assert await done(write, path="a/b.txt", content="tea ☕") == {"bytesWritten": 7}
        assert await done(read, path="a/b.txt") == {"content": "tea ☕", "size": 7}
        (tmp_path / "data/link").symlink_to("/etc/passwd")
        assert await done(listed, path=".") == {
            "entries": [
                {"name": "a", "type": "directory", "size": 0},
                {"name": "link", "type": "file", "size": 11},
            ]
        }
        deep = await done(listed, path=".", recursive=True)
        assert [one["name"] for one in deep["entries"]] == ["a", "link", "a/b.txt"]
        assert await done(read, path="a/c.txt") == "File not found: a/c.txt"
        assert (await done(read, path="link")).startswith("Permission denied: link")
        assert await done(read, path="a/b.txt") == {"content": "tea ☕", "size": 7}
        assert (await done(write, path="/etc/x", content="")).startswith(
            "Permission denied: /etc/x"
        )
        (tmp_path / "data/raw").write_bytes(b"\0\1\2")
        assert await done(read, path="raw") == {"content": "AAEC", "size": 3}
        for escape in ("../../etc/passwd", "/etc/passwd", "a/../../x"):
            assert not isinstance(await done(read, path=escape), dict)
            await done(read, path="raw")


@pytest.mark.req("AF-2", "AF-4")
async def test_the_documented_schemas_are_those_of_the_tools(tmp_path: Path) -> None:
    read, write, listed = file_tools(base=tmp_path)
    shapes = {
        one.name: (
            list(one.input_schema["properties"]),
            one.input_schema["required"],
            list(one.spec.output_schema["properties"]),  # type: ignore[index, arg-type]
            one.timeout,
            one.spec.timeout,
        )
        for one in (
            read, write, listed, calculator_tool, agentic.wikipedia_tool,
            agentic.web_scraper_tool, agentic.web_search_tool(SearchConfig("key-0123456789")),
        )
    }  # fmt: skip
    usual = (10_000_000, 10.0)
    assert shapes == {
        "read_file": (["path"], ["path"], ["content", "size"], *usual),
        "write_file": (["path", "content"], ["path", "content"], ["bytesWritten"], *usual),
        "list_directory": (["path", "recursive"], ["path"], ["entries"], *usual),
        "calculator": (["expression"], ["expression"], ["result"], *usual),
        "wikipedia": (["query"], ["query"], ["summary", "url"], *usual),
        "web_scraper": (["url", "selector"], ["url"], ["text", "title"], *usual),
        "web_search": (["query", "num_results"], ["query"], ["results"], *usual),
    }


@pytest.mark.req("AF-4")
def test_the_scraper_takes_an_address_and_a_plain_selector() -> None:
    schema = agentic.web_scraper_tool.input_schema
    url, selector = schema["properties"]["url"], schema["properties"]["selector"]
    assert (url["type"], url["format"], selector["type"]) == ("string", "uri", "string")
    assert selector["description"] == "CSS selector (optional)"
    assert "anyOf" not in selector and "default" not in selector
    validate = agentic.validate_tool_input
    assert validate(agentic.web_scraper_tool, {"url": "https://example.com"}) is None
    assert validate(agentic.web_scraper_tool, {"url": "https://e.com", "selector": None})


def test_the_file_tools_have_the_documented_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("read_file", "write_file", "list_directory"):
        made: agentic.Tool = getattr(agentic.builtin, f"{name}_tool")
        assert made.name == name
        assert made.spec.binding["given"]["files"]["write"][0]["folder"] == f"{tmp_path}/workspace"
    with pytest.raises(AttributeError):
        _ = agentic.builtin.nonsense_tool
    with pytest.raises(AttributeError):
        _ = agentic.nonsense


@pytest.mark.req("AF-4")
async def test_the_calculator_gives_the_documented_result() -> None:
    assert await execute_tool(calculator_tool, {"expression": "2 + 2"}) == {"result": 4}
    assert await execute_tool(calculator_tool, {"expression": "sqrt(4) / 4"}) == {"result": 0.5}
    for attack in ("__import__('os')", "9**9**9**9", "(" * 900):
        assert isinstance(await execute_tool(calculator_tool, {"expression": attack}), ToolError)


ENGINES = {
    SearchEngine.SERP_API: ("SERPAPI_KEY", "api_key"),
    SearchEngine.GOOGLE_CUSTOM_SEARCH: ("GOOGLE_API_KEY", "key"),
    SearchEngine.BING_SEARCH: ("BING_API_KEY", None),
}


@pytest.mark.req("AF-3")
@pytest.mark.parametrize("engine", SearchEngine)
@pytest.mark.parametrize("given", [True, False], ids=["given", "from the environment"])
async def test_each_engine_is_searched_with_its_key(
    engine: SearchEngine, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, parameter = ENGINES[engine]
    key = f"key-of-{engine}-0123456789"
    monkeypatch.setenv("GOOGLE_CSE_ID", "engine-0123456789")
    if given:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, key)

    def answers(asked: Asked) -> Reply:
        return Reply(json.dumps(SHAPES[engine]))

    async with serving(answers) as service:
        config = SearchConfig(key if given else None, engine, url=service.url)
        tool = agentic.web_search_tool(config)
        found = await execute_tool(tool, {"query": "tea", "num_results": 1})
        everything = await execute_tool(tool, {"query": "tea"})
    assert isinstance(found, dict) and isinstance(everything, dict), (found, everything)
    (first,) = found["results"]
    assert set(first) == {"title", "snippet", "url"}
    assert len(everything["results"]) == 2
    asked = dict(parse_qsl(service.asked[1].target.partition("?")[2]))
    assert (asked.get("num") or asked.get("count")) == "5", "the default"
    sent = service.asked[0].header("Ocp-Apim-Subscription-Key")
    assert (sent if parameter is None else asked[parameter]) == key
    assert key not in repr(config)
    assert tool.spec.egress == (service.authority,)


@pytest.mark.req("AF-3")
async def test_without_a_key_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPAPI_KEY", raising=False)
    error = await execute_tool(agentic.web_search_tool(SearchConfig()), {"query": "tea"})
    assert isinstance(error, ToolExecutionError) and "SERPAPI_KEY" in error.message
    for wrong in (0, 21):
        with pytest.raises(ConfigError, match="max_results"):
            SearchConfig("key-0123456789", max_results=wrong)


@pytest.mark.req("AF-4")
async def test_wikipedia_and_a_page_give_the_documented_results() -> None:
    async with serving(Wiki()) as wiki:
        tool = agentic.wikipedia_at(url=f"{wiki.url}/w/api.php")
        article = await execute_tool(tool, {"query": "Alan Turing"})
        assert article == {"summary": TURING["extract"], "url": TURING["canonicalurl"]}
        missing = await execute_tool(tool, {"query": "Nothing"})
        assert isinstance(missing, ToolExecutionError), "not there is not the same as not allowed"
    page = "<title>Tea</title><nav>menu</nav><p class=a>first<p class=a>second<script>x()</script>"
    async with serving(lambda _: Reply(page, type="text/html")) as site:
        scraper = agentic.web_scraper_at(site.authority)
        async with Agent([scraper]) as agent:
            whole = await agent.execute_tool(scraper, {"url": site.url})
            part = await agent.execute_tool(scraper, {"url": site.url, "selector": "p.a"})
            away = await agent.execute_tool(scraper, {"url": "http://169.254.169.254/"})
    assert isinstance(whole, dict) and isinstance(part, dict)
    assert (whole["title"], set(whole)) == ("Tea", {"title", "text"})
    assert "first" in whole["text"] and "x()" not in whole["text"]
    assert (part["text"].split(), "menu" in part["text"]) == (["first", "second"], False)
    assert isinstance(away, ToolError)


@pytest.mark.req("AF-4")
async def test_what_comes_from_outside_is_sanitized_like_any_other() -> None:
    page = "<title>T</title><p>the key is ghp_0123456789abcdefghijABCDEFGHIJ012345</p>"
    async with serving(lambda _: Reply(page, type="text/html")) as site:
        items = tools(agentic.web_scraper_at(site.authority))
        async with Executor(Registry(items), guards=[Sanitize()]) as executor:
            result = await executor.execute("web_scraper", {"url": site.url})
    assert "ghp_" not in str(result.to_dict())
