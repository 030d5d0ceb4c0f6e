"""web_scraper: a page becomes text, Markdown or links, whatever it is made of."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.http.service import Asked, Reply, Service, forever, serving
from toolpost import CallError, ConfigError, Executor, FunctionTool, Registry, Result
from toolpost.builtin import scraper
from toolpost.builtin.scraper_page import Page, links_of, markdown_of, text_of
from toolpost.extensions.sanitize import UNTRUSTED, Sanitize
from toolpost.options import options_from

pytestmark = pytest.mark.anyio
PAGE = """<!doctype html><html><head><meta charset=utf-8><base href="/base/">
<title> Tea \n — a site </title><style>p {color: red}</style><script>var x = "script";</script>
</head><body><nav><ul><li><a href="/home">Home</a><li><a href="/about">About</a></ul></nav>
<main><article><h1>Tea &amp; cake</h1>
<p>Tea is a <a href="drink.html">drink</a> that people all over the world enjoy, and it has been
one for a very long time. It is made of leaves, and of water that is hot.</p>
<p>Cake is <b>sweet</b> and goes well with tea; one bakes it in an oven for about an hour.</p>
<pre><code>def f():
    return 1</code></pre>
<table class=prices><tr><th>What<th>Price<tr><td>tea<td>2</table>
<p hidden>unseen 1</p><p style="Display: none">unseen 2</p><p aria-hidden=true>unseen 3</p>
<template>unseen 4</template><noscript>unseen 5</noscript><!-- unseen 6 -->
<a href="javascript:alert(1)">Press</a> <img src="data:image/png;base64,AAAA" alt=dot>
<ul class=results><li><a href="https://other.example/1">One</a><li><a href="#top">Top</a></ul>
</article></main><footer>Copyright</footer></body></html>"""


@asynccontextmanager
async def scraping(
    *services: Service, isolation: Any = "process", **more: Any
) -> AsyncIterator[Executor]:
    egress = tuple(one.authority for one in services)
    (made,) = scraper.tools(scraper.Settings(egress=egress, **more), Path())
    spec = msgspec.structs.replace(made.spec, isolation=isolation)
    tools = [msgspec.structs.replace(made, spec=spec)]
    async with Executor(Registry(tools), guards=[Sanitize()]) as executor:
        yield executor


async def scrape(reply: Reply, **arguments: Any) -> Result:
    """In this process, for there is nothing to be stopped and it is faster."""
    async with (
        serving(lambda _: reply) as service,
        scraping(service, isolation="inline") as executor,
    ):
        return await executor.execute(
            "web_scraper", {"url": service.url + "/dir/page", **arguments}
        )


def html(body: str | bytes = PAGE, kind: str | None = "text/html", **more: Any) -> Reply:
    return Reply(body, type=kind, **more)


# --- what a page becomes -------------------------------------------------------------------------


@pytest.mark.req("AF-4")
async def test_a_page_is_its_title_and_the_text_that_a_reader_sees() -> None:
    async with serving(lambda _: html()) as service, scraping(service) as executor:
        result = await executor.execute("web_scraper", {"url": service.url + "/dir/page"})
    assert result.error is None, result.error
    output = result.output
    assert output["title"] == "Tea — a site"
    assert output["url"] == service.url + "/dir/page"
    assert output["length"] == len(output["text"])
    assert output["text"].startswith("* Home\n* About\n\nTea & cake\n\nTea is a drink")
    assert "def f():\n    return 1" in output["text"]
    assert output["text"].endswith("Copyright")
    assert "unseen" not in output["text"]
    assert "script" not in output["text"]
    assert "color" not in output["text"]
    assert UNTRUSTED in result.metadata.warnings
    assert (service.asked[0].header("User-Agent") or "").startswith("toolpost/")


async def test_markdown_keeps_links_code_and_tables() -> None:
    result = await scrape(html(), format="markdown", main_only=True)
    text = result.output["text"]
    assert text.startswith("# Tea & cake\n\nTea is a [drink](http://127.0.0.1:")
    assert "/base/drink.html) that people" in text
    assert "```\ndef f():\n    return 1\n```" in text
    assert "| What | Price |\n| --- | --- |\n| tea | 2 |" in text
    assert "**sweet**" in text
    for left_out in ("Home", "Copyright", "unseen", "javascript", "base64"):
        assert left_out not in text
    assert "Press" in text


async def test_links_are_whole_and_each_is_there_once() -> None:
    result = await scrape(html(), format="links")
    links = {link["url"].rpartition(":")[2].lstrip("0123456789"): link["text"]
             for link in result.output["links"]}  # fmt: skip
    assert links == {
        "/home": "Home",
        "/about": "About",
        "/base/drink.html": "drink",
        "//other.example/1": "One",
        "/base/#top": "Top",
    }


@pytest.mark.req("AF-4")
async def test_a_selector_says_what_is_wanted() -> None:
    prices = await scrape(html(), selector="table.prices")
    links = await scrape(html(), selector="ul.results", format="links")
    nested = await scrape(html(), selector="li, ul, nav")
    assert prices.output["text"] == "What  Price\ntea   2"
    assert [link["text"] for link in links.output["links"]] == ["One", "Top"]
    assert nested.output["text"] == "* Home\n* About\n\n* One\n* Top"  # what is inside comes once


@pytest.mark.parametrize(
    ("selector", "code", "said"),
    [
        ("p:has(", "VALIDATION_ERROR", "/selector: invalid CSS selector"),
        ("", "VALIDATION_ERROR", "/selector"),
        ("p::before", "VALIDATION_ERROR", "/selector"),
        ("h6", "EXECUTION_ERROR", "Nothing on the page matches 'h6'"),
    ],
)
async def test_a_selector_that_finds_nothing_is_a_clear_error(
    selector: str, code: str, said: str
) -> None:
    result = await scrape(html(), selector=selector)
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == (code, "fix_args")
    assert said in result.error.message


async def test_a_long_page_comes_in_pieces() -> None:
    words = " ".join(f"word{number}" for number in range(20_000))
    first = await scrape(html(f"<p>{words}"))
    second = await scrape(html(f"<p>{words}"), start=50_000, max_chars=10)
    behind = await scrape(html(f"<p>{words}"), start=10_000_000)
    assert first.output["text"] == words[:50_000]
    assert second.output["text"] == words[50_000:50_010]
    assert first.output["length"] == second.output["length"] == len(words)
    assert behind.output["text"] == ""


async def test_a_page_without_a_title_has_its_heading_for_one_or_none() -> None:
    assert (await scrape(html("<h1>Head</h1>"))).output["title"] == "Head"
    assert (await scrape(html("<svg><title>x</title></svg>text"))).output["title"] == ""


# --- encodings and types -------------------------------------------------------------------------

RUSSIAN = "Это русский текст, и он довольно длинный, чтобы его можно было узнать."


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("text/html; charset=windows-1252", b"<p>caf\xe9", "café"),
        ('text/html; charset="ISO-8859-1"', b"<p>caf\xe9 \x80", "café €"),
        ("text/html", b"<meta charset=koi8-r><p>" + RUSSIAN.encode("koi8-r"), RUSSIAN),
        ("text/html", b"<p>" + RUSSIAN.encode("cp1251"), RUSSIAN),
        ("text/html", "<p>Grüße".encode(), "Grüße"),
        ("text/html", "<p>Grüße".encode("utf-16"), "Grüße"),
        ("text/html; charset=utf-16le", "<p>Grüße".encode("utf-16le"), "Grüße"),
        ("text/html; charset=utf-8", b"<p>caf\xe9!", "caf\ufffd!"),
        ("text/html; charset=no-such", "<p>Grüße".encode(), "Grüße"),
        ("text/html; charset=utf-7", b"<p>+ADw-script+AD4-", "+ADw-script+AD4-"),
        ("text/html", "<p>日本語のテキストです。これは十分に長い。".encode("shift_jis"),
         "日本語のテキストです。これは十分に長い。"),
        ("application/xhtml+xml", '<?xml version="1.0"?><html><body><p>x</p></body></html>', "x"),
        ("TEXT/HTML", "<p>x", "x"),
        (None, "  <!doctype html><p>x", "x"),
        (None, "plain", "plain"),
        ("text/plain", "a <b> & c", "a <b> & c"),
        ("text/plain", RUSSIAN.encode("cp1251"), RUSSIAN),
        ("text/plain; charset=latin-1", b"caf\xe9", "café"),
        ("text/plain; charset=no-such", "ü", "ü"),
        ("text/markdown", "# a", "# a"),
        ("text/html", b"<p>one \0 among many other characters", "one among many other characters"),
        ("text/html", "", ""),
        ("text/plain", "", ""),
    ],
)  # fmt: skip
async def test_whatever_encoding_a_page_is_in_it_is_read(
    kind: str | None, body: Any, wanted: str
) -> None:
    result = await scrape(html(body, kind))
    assert result.error is None, result.error
    assert result.output["text"] == wanted


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/pdf", b"%PDF-1.7", "is of type application/pdf"),
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0", "binary data"),
        ("application/json", "{}", "is of type application/json"),
        ("application/octet-stream", "x", "is of type application/octet-stream"),
        ("text/css", "p {}", "is of type text/css"),
        ("text/html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary data"),
        ("text/plain", b"\x7fELF\x02\x01\x01\0\0", "binary data"),
        ("text/html", zlib.compress(bytes(range(256)) * 9 + os.urandom(9999)), "binary data"),
        (None, b"PK\x03\x04\x14\0\0\0", "binary data"),
    ],
)
async def test_what_is_no_page_is_refused_with_its_type(
    kind: str | None, body: Any, said: str
) -> None:
    result = await scrape(html(body, kind))
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("EXECUTION_ERROR", "other_tool")
    assert said in result.error.message


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (404, "NOT_FOUND", False),
        (410, "NOT_FOUND", False),
        (403, "UNAUTHORIZED", False),
        (429, "RATE_LIMITED", True),
        (503, "UNAVAILABLE", True),
        (418, "EXECUTION_ERROR", False),
    ],
)
async def test_a_page_that_is_not_there_is_a_typed_error(
    status: int, code: str, retryable: bool
) -> None:
    result = await scrape(html("<p>Sorry", status=status, headers={"Retry-After": "4"}))
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == (code, retryable)
    assert result.error.retry_after == (4 if retryable else None)


async def test_a_redirect_is_followed_and_the_last_url_told() -> None:
    def answers(asked: Asked) -> Reply:
        if asked.target == "/old":
            return Reply("", 301, headers={"Location": "/new/"})
        return html("<p><a href=x>x</a>")

    async with serving(answers) as service, scraping(service) as executor:
        result = await executor.execute(
            "web_scraper", {"url": service.url + "/old", "format": "links"}
        )
    assert result.output["url"] == service.url + "/new/"
    assert result.output["links"] == [{"text": "x", "url": service.url + "/new/x"}]


# --- hostile pages -------------------------------------------------------------------------------

MALFORMED: dict[str, bytes] = {
    "nested": b"<div>" * 100_000 + b"deep",
    "nested formatting": b"<b><i><font>" * 30_000 + b"deep",
    "nested links": b"<a href=x><p>" * 50_000 + b"deep",
    "nested tables": b"<table><tr><td>" * 30_000 + b"deep",
    "fostered": b"<table>x<b>" * 50_000,
    "nested lists": b"<ul><li>" * 100_000 + b"deep",
    "nested quotes": b"<blockquote>" * 100_000 + b"deep",
    "svg": b"<svg><g>" * 100_000,
    "never closed": b"<p><a href='x",
    "comment": b"<!--" * 1_000_000,
    "entities": b"&amp" * 1_000_000,
    "attributes": b"<p " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">deep",
    "less than": b"<" * 10_000_000,
    "open tags": b"<a " * 3_000_000,
    "closing tags": b"</p>" * 2_000_000,
    "a null in the text": b"<p>" + b"x" * 5000 + b"\0" * 1000,
    "many links": b"<a href=x>y</a>" * 100_000,
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_page_however_malformed_is_read_in_bounded_time_and_memory(name: str) -> None:
    async with (
        serving(lambda _: html(MALFORMED[name])) as service,
        scraping(service, max_bytes=12_000_000) as executor,
    ):
        for shape in ("text", "markdown", "links"):
            arguments = {"url": service.url, "format": shape, "main_only": shape == "markdown"}
            result = await executor.execute("web_scraper", arguments)
            assert result.error is None, result.error


async def test_a_page_that_does_not_fit_into_memory_is_a_clear_error() -> None:
    (made,) = scraper.tools(scraper.Settings(), Path())
    limits = msgspec.structs.replace(made.spec.limits, memory=400 * 1024 * 1024)
    async with serving(lambda _: html(b"<" * 30_000_000)) as service:
        given = {"scraper": {"egress": [service.authority], "max_bytes": 40_000_000}}
        binding = {**made.spec.binding, "given": given}
        spec = msgspec.structs.replace(made.spec, limits=limits, binding=binding)
        async with Executor(Registry([msgspec.structs.replace(made, spec=spec)])) as executor:
            result = await executor.execute("web_scraper", {"url": service.url})
            service.answers = lambda _: html("<p>small")
            again = await executor.execute("web_scraper", {"url": service.url})
    assert result.error is not None
    assert result.error.code in ("RESOURCE_LIMIT", "UNAVAILABLE")
    assert again.output["text"] == "small"


async def test_a_selector_that_never_ends_is_stopped_and_others_go_on() -> None:
    page, slow = html(b"<div>" * 60_000), "div:has(div:has(div:has(div:has(b))))"
    async with serving(lambda _: page) as service, scraping(service) as executor:
        await executor.execute("web_scraper", {"url": service.url})
        started = time.monotonic()
        arguments = {"url": service.url, "selector": slow}
        result = await executor.execute("web_scraper", arguments, timeout=1.5)
        took = time.monotonic() - started
        page.body = "<p>quick"
        after = await executor.execute("web_scraper", {"url": service.url})
    assert result.error is not None
    assert result.error.code == "TIMEOUT"
    assert took < 20
    assert after.output["text"] == "quick"


PIECES = [
    "<p>", "<div", "</div>", "<table>", "<td>", "<a", " href=", "'", '"', ">", "<", "&", "&#x0;",
    "&#1114112;", "<!--", "-->", "<![CDATA[", "<svg>", "<template>", "<select>", "<script>",
    "</script>", "<title>", "<base href=//", "\0", "ü", "\ud83d", "<li hidden>", "<img src=",
    "http://[", "javascript:", "<frameset>", "<plaintext>",
]  # fmt: skip


@settings(max_examples=150)
@given(
    st.one_of(
        st.binary(max_size=400),
        st.lists(
            st.sampled_from(PIECES),
            max_size=40,
        ).map(lambda words: "".join(words).encode("utf-8", "surrogatepass")),
    ),
    st.sampled_from([None, "utf-8", "utf-16", "windows-1252", "shift_jis", "no-such", "x\0"]),
)
def test_any_bytes_make_a_page(body: bytes, label: str | None) -> None:
    page = Page(body, url="https://a.example/b?c", label=label)
    for main_only in (False, True):
        parts = page.parts(None, main_only=main_only)
        page.title.encode()
        text_of(parts).encode()
        for link in links_of(parts):
            assert link["url"].startswith(("http", "mailto", "HTTP", "MAILTO"))
        markdown_of(parts).encode()


def test_a_link_that_is_no_address_leads_nowhere() -> None:
    body = b'<base href="//["><a href="//[">a</a><a href="http://[::1">b</a><a href="c">c</a>'
    parts = Page(body, url="https://a.example/b", label=None).parts(None, main_only=False)
    assert links_of(parts) == [{"text": "c", "url": "https://a.example/c"}]
    assert markdown_of(parts) == "ab[c](https://a.example/c)"


@settings(max_examples=150)
@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_a_clear_error(selector: str) -> None:
    page = Page(b"<div class=a><p id=b>x<a href=y>z</a></div>", url="https://a.example", label=None)
    try:
        page.parts(selector, main_only=False)
    except CallError as error:
        assert error.message


# --- the tool ------------------------------------------------------------------------------------


async def test_it_runs_in_a_process_of_its_own() -> None:
    async with scraping() as executor:
        assert executor.registry.get("web_scraper") is not None
    (made,) = scraper.tools(scraper.Settings(), Path())
    assert isinstance(made, FunctionTool)
    assert (made.spec.isolation, made.spec.egress) == ("process", ("*",))
    assert (made.spec.tier, made.spec.effects) == (1, "read")


async def test_a_page_that_takes_for_ever_is_given_up_at_the_limit() -> None:
    def answers(asked: Asked) -> Any:
        return forever if asked.target == "/forever" else html("tea")

    async with serving(answers) as service, scraping(service) as executor:
        assert (await executor.execute("web_scraper", {"url": service.url})).success  # it is warm
        given = {"url": f"{service.url}/forever"}
        result = await executor.execute("web_scraper", given, timeout=2)
        async with asyncio.timeout(20):
            await service.gone.wait()
    assert result.error is not None
    assert result.error.code == "TIMEOUT"


async def test_a_packed_page_is_unpacked() -> None:
    packed = html(gzip.compress(b"<p>tea"), headers={"Content-Encoding": "gzip"})
    assert (await scrape(packed)).output["text"] == "tea"


@pytest.mark.parametrize(
    ("table", "said"),
    [({"egress": ["x"]}, "no host and port"), ({"max_bytes": 0}, "at least 1"), ({"a": 1}, "'a'")],
)
def test_settings_that_cannot_be_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options_from(table, scraper.Settings, "scraper")
