"""Reading web pages: ``web_scraper``, which fetches one and gives its text, Markdown or links.

Above: ``sources/builtin.py``. Below: ``web_answers.py`` fetches, ``scraper_page.py`` reads. It runs
in a process of its own, which can be killed: pages are written by anybody, selectors by models. It
refuses to run scripts: that is what a browser is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, NotRequired, TypedDict

import msgspec
from annotated_types import Ge, Le, MaxLen, MinLen

from toolpost import Given, Limits, tool
from toolpost.builtin import given
from toolpost.builtin.scraper_page import Link, Page, decoded, links_of, markdown_of, text_of
from toolpost.builtin.web_answers import AGENT, Got, failure, got, url_given
from toolpost.builtin.web_settings import verify_authority
from toolpost.contracts import Registered
from toolpost.errors import ConfigError, ToolFailed
from toolpost.net.client import Client, Request
from toolpost.net.destination import Granted
from toolpost.options import Options

__all__ = ["Settings", "tools"]

_SECONDS: Final = 20.0
_PAGES: Final = frozenset(("text/html", "application/xhtml+xml"))
_TEXTS: Final = frozenset(("text/plain", "text/markdown"))
_ACCEPTED: Final = "text/html,application/xhtml+xml,text/plain;q=0.8,*/*;q=0.1"
_LOOKED_AT: Final = 4096
_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROL: Final = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
_MOST_CONTROL: Final = 0.05
"""Of the first bytes; in packed or compiled data there are more, in a text hardly any."""


class Settings(Options, frozen=True):
    """``[sources.scraper]``."""

    egress: tuple[str, ...] = ("*",)
    """Where pages may be: ``host:port``, which may be private, or ``*`` for all that is public."""
    max_bytes: int = 5 * 1024 * 1024
    """Of one page, unpacked."""

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigError("scraper: max_bytes must be at least 1", at=("max_bytes",))
        for one in self.egress:
            verify_authority(one)


class Scraped(TypedDict):
    """What was read. ``length`` is that of the whole text, of which ``text`` may be a piece."""

    title: str
    text: str
    url: str
    length: int
    links: NotRequired[list[Link]]


@tool(
    title="Read a web page",
    category="web",
    tags=("web",),
    tier=1,
    effects="read",
    timeout=40,
    isolation="process",
    limits=Limits(memory=1024 * 1024 * 1024),
    labels={"external": "true"},
    examples=(
        {"url": "https://example.com/"},
        {"url": "https://example.com/", "format": "markdown", "main_only": True},
        {"url": "https://example.com/", "format": "links", "selector": "ul.results"},
    ),
)
async def web_scraper(
    url: Annotated[str, MinLen(1), MaxLen(4000)],
    selector: Annotated[str | None, MaxLen(500)] = None,
    *,
    format: Literal["text", "markdown", "links"] = "text",  # noqa: A002 - the word that models know
    main_only: bool = False,
    start: Annotated[int, Ge(0)] = 0,
    max_chars: Annotated[int, Ge(1), Le(500_000)] = 50_000,
    scraper: Given[Settings],
) -> Scraped:
    """Fetch a web page and get its title and text.

    Scripts are not run. What a reader would not see is left out. A long page comes in pieces: ask
    again with a later start, until length is reached.

    Args:
        url: The URL of the page.
        selector: A CSS selector, such as "table.prices": only what it finds is given.
        format: Plain text, Markdown, or the links on the page.
        main_only: Leave out menus, headers and footers, as far as they can be told apart.
        start: The first character of the text that is wanted.
        max_chars: How many characters are wanted at most.
    """
    client = Client(Granted(scraper.egress))
    headers = (("User-Agent", AGENT), ("Accept", _ACCEPTED))
    request = Request(method="GET", url=url_given(url), headers=headers)
    try:
        answer = await got(client, request, most=scraper.max_bytes, seconds=_SECONDS)
    finally:
        await client.close()
    if answer.status >= 400:
        raise failure(answer)
    if _kind(answer) == "text":
        return _scraped(answer, "", decoded(answer.body, _label(answer)), start, max_chars)
    page = Page(answer.body, url=str(answer.url), label=_label(answer))
    parts = page.parts(selector, main_only=main_only)
    if format == "links":
        links = links_of(parts)
        return Scraped(title=page.title, text="", url=str(answer.url), length=0, links=links)
    text = markdown_of(parts) if format == "markdown" else text_of(parts)
    return _scraped(answer, page.title, text, start, max_chars)


def tools(settings: Settings, base: Path) -> Iterable[Registered]:
    made = given(web_scraper, scraper=settings)
    spec = msgspec.structs.replace(made.spec, egress=settings.egress)
    return (msgspec.structs.replace(made, spec=spec),)


def _scraped(answer: Got, title: str, text: str, start: int, most: int) -> Scraped:
    return Scraped(
        title=title, text=text[start : start + most], url=str(answer.url), length=len(text)
    )


def _kind(answer: Got) -> Literal["page", "text"]:
    """Whether it is a page or plain text; anything else is refused."""
    kind, begins = answer.type, answer.body[:_LOOKED_AT]
    if _is_binary(begins) and not re.match("(?i)utf-16", _label(answer) or ""):
        raise _refused(answer, "holds binary data")
    if kind in _PAGES or (not kind and begins.lstrip()[:1] == b"<"):
        return "page"
    if kind in _TEXTS or not kind:
        return "text"
    raise _refused(answer, f"is of type {kind}")


def _refused(answer: Got, what: str) -> ToolFailed:
    return ToolFailed(
        f"The document at {answer.url.host} {what}, and is no web page. Use another tool for it.",
        remedy="other_tool",
        effects="none",
        details={"type": answer.type},
    )


def _label(answer: Got) -> str | None:
    found = re.search(r"(?i)charset\s*=\s*[\"']?([\w.:-]+)", answer.header("content-type") or "")
    return found[1] if found else None


def _is_binary(begins: bytes) -> bool:
    controls = len(begins) - len(begins.translate(None, _CONTROL))
    return not begins.startswith(_MARKS) and controls > len(begins) * _MOST_CONTROL
