"""The tools: one for each thing that can be done with a page.

Above: ``sources/builtin.py``. Below: ``browser.py``, which all of them share. Looking and acting
are different tools, since they are different risks. They refuse to know how a browser works.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, NotRequired, TypedDict

import msgspec
from annotated_types import Ge, Le, MaxLen, MinLen

from toolpost import Call, Health, Image, Injected, Limits, Output, Tool
from toolpost.builtin.browser.browser import Browser
from toolpost.builtin.browser.settings import Settings
from toolpost.contracts import Registered, Secrets
from toolpost.errors import InvalidArguments
from toolpost.plugins import SharedSandbox
from toolpost.registry import Entry
from toolpost.spec import ToolSpec

_PICTURE: Final = Limits(output=16 * 1024 * 1024)
_MOST_VALUE: Final = 10_000
_SHAPE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "url": {"type": "string"},
        "title": {"type": "string"},
        "width": {"type": "integer", "description": "Of the picture, in pixels."},
        "height": {"type": "integer"},
    },
    "required": ["url", "title", "width", "height"],
    "additionalProperties": False,
}

Location = Annotated[str, MinLen(1), MaxLen(4000)]
First = Annotated[
    Location | None, "A page to open first. Without it, the page that is open in this session."
]
Target = Annotated[
    str,
    MinLen(1),
    MaxLen(500),
    'A ref of browser_snapshot, such as "e12", or a CSS selector, such as "form button".',
]
Name = Annotated[str, MinLen(1), MaxLen(100)]
Shared = Injected[SharedSandbox]


class Page(TypedDict):
    """Where the session is now."""

    url: str
    title: str


class Opened(Page):
    status: int | None
    """The HTTP status of the page."""


class Item(TypedDict):
    text: str
    attributes: NotRequired[dict[str, str]]


class Extracted(Page):
    count: int
    """How many elements there are; ``items`` may be fewer."""
    items: list[Item]
    truncated: bool


class Described(Page):
    snapshot: str
    length: int
    """Characters of all of it."""
    truncated: bool


# Every tool has a share in the browser, and lives as long as that: these are methods of each.


def _sharing(self: Any, browser: Browser) -> None:
    self.browser = browser


async def _joining(self: Any) -> None:
    self.browser.join()


async def _well(self: Any, sandbox: Shared = None) -> Health:  # type: ignore[assignment]
    found: Health = await self.browser.health(sandbox)
    return found


async def _well_supplied(
    self: Any,
    secrets: Injected[Secrets] = None,  # type: ignore[assignment]
    sandbox: Shared = None,  # type: ignore[assignment]
) -> Health:
    missing = self.browser.missing(secrets)
    return Health(False, missing) if missing else await _well(self, sandbox)


async def _leaving(self: Any) -> None:
    await self.browser.leave()


class BrowserNavigate(
    Tool,
    title="Open a page in the browser",
    category="web",
    tags=("browser", "web"),
    tier=1,
    effects="idempotent",
    timeout=45,
    labels={"external": "true"},
    examples=({"url": "https://example.com/"},),
):
    """Open a web page in a real browser, which runs its scripts, and get its title and status.

    The page stays open for the other browser tools of this session: see what is on it with
    browser_snapshot or browser_extract. To read a page that needs no scripts, web_scraper is
    quicker.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well, _leaving

    async def run(self, url: Location, *, call: Call, sandbox: Shared = None) -> Opened:  # type: ignore[assignment]
        """Go there.

        Args:
            url: The URL of the page.
        """
        done = await self.browser.do("navigate", call, {"url": url}, sandbox)
        return Opened(url=done["url"], title=done["title"], status=done["status"])


class BrowserSnapshot(
    Tool,
    title="See what is on the page",
    category="web",
    tags=("browser", "web"),
    tier=1,
    effects="idempotent",
    timeout=45,
    labels={"external": "true"},
    examples=({}, {"url": "https://example.com/", "max_chars": 5000}),
):
    """Get the page that is open as its accessibility tree: headings, texts, links, buttons, inputs.

    Each element has a ref, such as [ref=e12], which browser_click and browser_fill take. A ref
    holds until the page changes.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well, _leaving

    async def run(
        self,
        url: First = None,
        max_chars: Annotated[int, Ge(1), Le(200_000)] = 20_000,
        *,
        call: Call,
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Described:
        """Describe it.

        Args:
            max_chars: How many characters are wanted at most.
        """
        given = {"url": url, "max_chars": max_chars}
        done = await self.browser.do("snapshot", call, given, sandbox)
        return Described(
            url=done["url"],
            title=done["title"],
            snapshot=done["snapshot"],
            length=done["length"],
            truncated=done["truncated"],
        )


class BrowserExtract(
    Tool,
    title="Read a part of the page",
    category="web",
    tags=("browser", "web"),
    tier=1,
    effects="idempotent",
    timeout=45,
    labels={"external": "true"},
    examples=(
        {"selector": "h1"},
        {"selector": "table.prices td", "limit": 100},
        {"selector": "nav a", "attributes": ["href"], "url": "https://example.com/"},
    ),
):
    """Get the text of elements of the page that is open, as a reader would see it.

    Use it after scripts have filled the page in; it finds elements by a CSS selector.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well, _leaving

    async def run(
        self,
        selector: Annotated[str, MinLen(1), MaxLen(500)],
        url: First = None,
        *,
        attributes: Annotated[tuple[Name, ...], MaxLen(10)] = (),
        limit: Annotated[int, Ge(1), Le(1000)] = 50,
        max_chars: Annotated[int, Ge(1), Le(200_000)] = 20_000,
        call: Call,
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Extracted:
        """Read them.

        Args:
            selector: A CSS selector, such as "table.prices td".
            attributes: Attributes of the elements that are wanted too, such as href.
            limit: How many elements are wanted at most.
            max_chars: How many characters are wanted at most, of all of them together.
        """
        given = {
            "url": url,
            "selector": selector,
            "attributes": attributes,
            "limit": limit,
            "max_chars": max_chars,
        }
        done = await self.browser.do("extract", call, given, sandbox)
        return Extracted(
            url=done["url"],
            title=done["title"],
            count=done["count"],
            items=done["items"],
            truncated=done["truncated"],
        )


class BrowserScreenshot(
    Tool,
    title="Take a picture of the page",
    category="web",
    tags=("browser", "web"),
    tier=1,
    effects="idempotent",
    timeout=45,
    limits=_PICTURE,
    labels={"external": "true"},
    examples=({}, {"url": "https://example.com/", "full_page": True}, {"target": "h1"}),
    output_schema=_SHAPE,
):
    """Take a picture (PNG) of the page that is open: what a window of 1280 by 800 shows, the whole
    page, or one element.

    Use it for what cannot be read as text: charts, layout, images. For text, browser_snapshot is
    cheaper.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well, _leaving

    async def run(
        self,
        url: First = None,
        target: Target | None = None,
        *,
        full_page: bool = False,
        call: Call,
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Output:
        """Take it.

        Args:
            full_page: The whole page instead of what a window shows; up to 2000 by 8000 pixels.
        """
        given = {"url": url, "target": target, "full_page": full_page}
        done = await self.browser.do("screenshot", call, given, sandbox)
        png = base64.b64decode(done["png"])
        about = {name: done[name] for name in ("url", "title", "width", "height")}
        return Output(about, (Image(png, "image/png"),))


class BrowserClick(
    Tool,
    title="Click on the page",
    category="web",
    tags=("browser", "web"),
    tier=2,
    effects="once",
    timeout=45,
    labels={"external": "true"},
    examples=({"target": "a"}, {"target": "form button", "url": "https://example.com/"}),
):
    """Click on an element of the page that is open: a link, a button, a box.

    It may send a form or buy something. A window that it opens takes the place of the page. Dialogs
    are dismissed, downloads refused.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well, _leaving

    async def run(
        self,
        target: Target,
        url: First = None,
        *,
        call: Call,
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Page:
        done = await self.browser.do("click", call, {"url": url, "target": target}, sandbox)
        return Page(url=done["url"], title=done["title"])


class BrowserFill(
    Tool,
    title="Fill in a form on the page",
    category="web",
    tags=("browser", "web"),
    tier=2,
    effects="once",
    timeout=45,
    labels={"external": "true"},
    examples=(
        {"target": "input[name=q]", "value": "tea"},
        {"target": "input[name=q]", "value": "tea", "submit": True},
    ),
):
    """Put a value into an input, a text area or a list of the page that is open.

    What was there before is replaced. With submit, Enter is pressed afterwards, which sends most
    forms.
    """

    browser: Browser
    __init__ = _sharing
    initialize, health, close = _joining, _well_supplied, _leaving

    async def run(
        self,
        target: Target,
        value: Annotated[str, MaxLen(_MOST_VALUE)] | None = None,
        *,
        kept: Name | None = None,
        submit: bool = False,
        url: First = None,
        call: Call,
        secrets: Injected[Secrets],
        sandbox: Shared = None,  # type: ignore[assignment]
    ) -> Page:
        """Fill it in.

        Args:
            value: The text; for a list, one of its choices.
            kept: Instead of a value, the name of a password that is kept here. You do not see it.
            submit: Press Enter afterwards.
        """
        given = {"url": url, "target": target, "value": value, "submit": submit, "only_at": None}
        if (value is None) is (kept is None):
            raise InvalidArguments("/value: give either it or kept", effects="none")
        if kept is not None:
            given |= self.browser.secret(kept, secrets)
        done = await self.browser.do("fill", call, given, sandbox)
        return Page(url=done["url"], title=done["title"])


def tools(settings: Settings, base: Path) -> Iterable[Registered]:
    browser = Browser(settings)
    kinds: tuple[Any, ...] = (
        BrowserNavigate,
        BrowserSnapshot,
        BrowserExtract,
        BrowserScreenshot,
        BrowserClick,
        BrowserFill,
    )
    for kind in kinds:
        spec = msgspec.structs.replace(kind.spec, egress=settings.egress)
        yield Entry(_keeping(spec, settings) if kind is BrowserFill else spec, kind(browser))


def _keeping(spec: ToolSpec, settings: Settings) -> ToolSpec:
    """What is kept here stands in the schema, by its names; without any, a value is needed."""
    properties: dict[str, Any] = dict(spec.input_schema["properties"])
    required = spec.input_schema["required"]
    kept, value = properties.pop("kept"), properties["value"]
    text = {"type": "string", "maxLength": _MOST_VALUE, "description": value["description"]}
    properties["value"] = text
    if settings.secrets:
        names = {"type": "string", "enum": [*settings.secrets], "description": kept["description"]}
        properties["kept"] = names
    else:
        required = [*required, "value"]
    schema = {**spec.input_schema, "properties": properties, "required": required}
    return msgspec.structs.replace(spec, input_schema=schema)
