"""A page of the web, made into what was asked for: its text, Markdown or links.

Above: ``scraper.py``. Below: turbohtml, of which this file is all that is known here. What a reader
of the page does not see is taken out first: it is where instructions to machines hide. It refuses
to fetch anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypedDict
from urllib.parse import urljoin

import turbohtml
from turbohtml.detect import detect

from toolpost.errors import InvalidArguments, ToolFailed
from toolpost.wording import short

_UNSEEN: Final = (
    "script, style, noscript, template, [hidden], [aria-hidden=true i], input[type=hidden i], "
    '[style*="display:none" i], [style*="display: none" i], '
    '[style*="visibility:hidden" i], [style*="visibility: hidden" i], [style*="font-size:0" i]'
)
_LEADS: Final = re.compile(r"(?i)(?:https?|mailto):")
_SHORTENED: Final = re.compile(r"\n{3,}")
_MOST_MATCHES: Final = 1000
_MOST_LINKS: Final = 1000
_MOST_LINK: Final = 2000
_MOST_TITLE: Final = 300

Node = turbohtml.Document | turbohtml.Element


class Link(TypedDict):
    """Where a link leads, and the words on it."""

    text: str
    url: str


class Page:
    """One page, parsed. ``label`` is the encoding that its server says it has."""

    def __init__(self, body: bytes, *, url: str, label: str | None) -> None:
        self._document = _parsed(body, label)
        self.title = _title(self._document)
        self._document.remove(_UNSEEN)
        base = self._document.base_url(url)
        self._document.rewrite_links(lambda link: _absolute(base, link))

    def parts(self, selector: str | None, *, main_only: bool) -> list[Node]:
        """What of the page is wanted: all, its main part, or what a selector finds."""
        if selector is not None:
            return list(self._selected(selector))
        main = self._document.main_content() if main_only else None
        return [self._document if main is None else main]

    def _selected(self, selector: str) -> Iterator[Node]:
        """What it finds, without what is inside of something else that it finds."""
        try:
            found = self._document.select(selector)[:_MOST_MATCHES]
        except ValueError as fault:
            problem = str(fault)
            raise InvalidArguments(
                f"/selector: {problem}",
                effects="none",
                details={"faults": [{"at": "/selector", "problem": problem}]},
            ) from None
        if not found:
            raise ToolFailed(
                f"Nothing on the page matches {short(selector)!r}. Leave the selector out to see "
                "all of it.",
                effects="none",
            )
        kept: set[object] = set()
        for one in found:
            if kept.isdisjoint(one.ancestors):
                kept.add(one)
                yield one


def text_of(parts: list[Node]) -> str:
    return _tidy(one.to_text() for one in parts)


def markdown_of(parts: list[Node]) -> str:
    """Links lead to the web, or are text alone."""
    for part in parts:
        for link in part.links():
            if link.attribute is not None and not _LEADS.match(link.url.strip()):
                link.element.attrs.pop(link.attribute, None)
        part.remove("img:not([src])")
    return _tidy(one.to_markdown() for one in parts)


def links_of(parts: list[Node]) -> list[Link]:
    """Each place once, in the order of the page."""
    found: dict[str, Link] = {}
    for part in parts:
        for link in part.links():
            url = link.url.strip()
            leads = link.element.tag in ("a", "area") and _LEADS.match(url)
            if leads and len(url) <= _MOST_LINK and url not in found:
                words = " ".join(link.element.text.split())
                found[url] = Link(text=short(words, _MOST_TITLE), url=url)
                if len(found) == _MOST_LINKS:
                    return list(found.values())
    return list(found.values())


def decoded(body: bytes, label: str | None) -> str:
    """A text that is no page."""
    for name in (label, detect(body).codec, "utf-8"):
        try:
            if name is not None:
                return body.decode(name, "replace")
        except (LookupError, ValueError):
            continue
    return ""


def _parsed(body: bytes, label: str | None) -> turbohtml.Document:
    """The server's word on the encoding counts, then the page's own, then what it looks like."""
    try:
        return turbohtml.parse(body, encoding=label, detect_encoding=True, positions=False)
    except LookupError:
        return turbohtml.parse(body, detect_encoding=True, positions=False)


def _absolute(base: str, link: str) -> str:
    """Where a link leads; one that is no address leads nowhere."""
    try:
        return urljoin(base, link)
    except ValueError:
        return "about:invalid"


def _title(document: turbohtml.Document) -> str:
    found = document.select_one("head > title") or document.select_one("h1")
    return short(" ".join(found.text.split()), _MOST_TITLE) if found is not None else ""


def _tidy(texts: Iterator[str]) -> str:
    return _SHORTENED.sub("\n\n", "\n\n".join(text.strip() for text in texts)).strip()
