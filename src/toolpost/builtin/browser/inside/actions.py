"""What is done with a page: open, look, read, click, fill.

Above: ``serving.py``. Below: Playwright. Texts are read in a world of their own, where nothing that
the page has put in the place of the language's own functions is in force, and cut to size there. It
refuses to know whose page it is.
"""

from __future__ import annotations

import ast
import base64
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from playwright.async_api import Error, FloatRect, Locator, Page, Response
from playwright.async_api import TimeoutError as Late

from .faults import ANOTHER_FORM, Fault, fault_of
from .sessions import Session

_SETTLING: Final = 5_000.0
"""Milliseconds that a page may go on loading before it is taken as it is."""
_MOST_URL: Final = 4_000
_TALLEST: Final = 8_000
_WIDEST: Final = 2_000
_MOST_PIXELS: Final = _TALLEST * _WIDEST
_MOST_PNG: Final = 8 * 1024 * 1024
_READING: Final = 1_000.0
"""Milliseconds to read back what was filled in."""
_EXACT: Final = ("color", "range")
_CHOOSY: Final = (*_EXACT, "date", "datetime-local", "month", "number", "time", "week")
"""The types of inputs that do not take every text."""
_NO_PAGE: Final = (502, 503)
"""What the sandbox's proxy says where it has no connection, or has too many."""
_DOTS: Final = "••••••••"
_VALUE: Final = re.compile(r"(?m)^( *- (?:'(?:[^'\n]|'')*'|[^'\n][^\n]*?): )(.+)$")
"""What an element holds, in a line of its own or behind its name, which is in quotes if need be."""
_MOST_PASSWORDS: Final = 50
_REF: Final = re.compile(r"(?:f\d+)?e\d+")

_KEEP: Final = """(mark, site, value) => {
  const marked = (root) => {
    const found = root.querySelector(`[data-kept="${mark}"]`);
    if (found) return found;
    for (const one of root.querySelectorAll("*")) {
      const inside = one.shadowRoot && marked(one.shadowRoot);
      if (inside) return inside;
    }
  };
  if (self.origin !== site) return "site";
  const one = marked(document);
  if (!one) return "site";  // in a frame
  one.removeAttribute("data-kept");
  const fits = one instanceof HTMLInputElement && one.type === "password";
  if (!fits || one.disabled || one.readOnly) return "input";
  one.value = value;
  one.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  one.dispatchEvent(new Event("change", { bubbles: true }));
  return "";
}"""
"""Says what is wrong with the place, if anything is."""
_TITLE: Final = """() => {
  const title = Object.getOwnPropertyDescriptor(Document.prototype, "title").get;
  return title.call(document).slice(0, 300).replace(/[\\ud800-\\udbff]$/, "");
}"""
_SIZE: Final = """() => {
  const root = Object.getOwnPropertyDescriptor(Document.prototype, "documentElement").get;
  const shown = root.call(document);
  return shown ? [shown.scrollWidth, shown.scrollHeight] : [1, 1];
}"""
_FOUND: Final = """(selector, names, most, room, hidden) => {
  const get = (kind, name) => Object.getOwnPropertyDescriptor(kind.prototype, name).get;
  const inner = get(HTMLElement, "innerText"), whole = get(Node, "textContent");
  const attribute = Element.prototype.getAttribute;
  const part = (text) => {  // no half of a character
    for (const one of hidden) text = text.replaceAll(one, "••••••••");
    const kept = text.slice(0, Math.max(room, 0));
    cut ||= text.length > room;
    room -= text.length;
    return kept.length < text.length ? kept.replace(/[\\ud800-\\udbff]$/, "") : kept;
  };
  let found, cut = false;
  try { found = Document.prototype.querySelectorAll.call(document, selector); }
  catch { return null; }
  const items = [];
  for (const one of found) {
    if (items.length >= most || room <= 0) { cut = true; break; }
    const all = (one instanceof HTMLElement ? inner.call(one) : whole.call(one)) || "";
    const item = { text: part(all) };
    for (const name of names) {
      const value = attribute.call(one, name);
      if (value === null) continue;
      item.attributes ??= {};
      item.attributes[name] = part(value);
    }
    items.push(item);
  }
  return { count: found.length, items, truncated: cut };
}"""

Done = dict[str, Any]


async def navigate(session: Session, given: Mapping[str, Any]) -> Done:
    return await _about(session)


async def open_page(page: Page, url: str, seconds: float) -> int | None:
    """Go there; its status."""
    try:
        answer = await page.goto(url, wait_until="domcontentloaded", timeout=seconds * 1000)
    except Late:
        raise Fault("late", "The page did not load") from None
    except Error as error:
        if "ERR_ABORTED" in error.message:  # what a server sends to be kept, or an empty answer
            raise Fault("download", "There is no page: it is a download, or empty.") from None
        if "interrupted by another" not in error.message:
            raise
        answer = None  # it leads elsewhere by itself
    if answer is not None and answer.status in _NO_PAGE and _is_the_proxys(answer):
        raise Fault("unreachable", "The page could not be loaded.")
    await _settled(page)
    return None if answer is None else answer.status


def _is_the_proxys(answer: Response) -> bool:
    return answer.headers.get("proxy-status", "").startswith("toolpost")


async def screenshot(session: Session, given: Mapping[str, Any]) -> Done:
    page = session.page
    if given.get("target"):
        found = _located(page, given["target"])
        box = await found.bounding_box()
        if box is None:
            raise Fault("missing", "That element is not to be seen.")
        if box["width"] * box["height"] > _MOST_PIXELS:
            raise Fault("large", "That element is too large for a picture.")
        png = await found.screenshot(animations="disabled")
    elif given["full_page"]:
        width, height = await _asked(session, _SIZE)
        wide, tall = max(1, min(width, _WIDEST)), max(1, min(height, _TALLEST))
        clip: FloatRect = {"x": 0, "y": 0, "width": wide, "height": tall}
        png = await _pictured(session, full_page=True, clip=clip)
    else:
        png = await _pictured(session)
    if len(png) > _MOST_PNG:
        raise Fault("large", "The picture has too many bytes. Take a smaller part of the page.")
    return {
        **await _about(session),
        "width": int.from_bytes(png[16:20], "big"),
        "height": int.from_bytes(png[20:24], "big"),
        "png": base64.b64encode(png).decode(),
    }


async def _pictured(session: Session, **what: Any) -> bytes:
    try:
        return await session.page.screenshot(
            animations="disabled", timeout=session.patience, **what
        )
    except Late:
        why = "No picture could be taken: what is on the page, such as its fonts, does not load."
        raise Fault("missing", f"{why} Read it with browser_snapshot.") from None


async def extract(session: Session, given: Mapping[str, Any]) -> Done:
    found = await _asked(
        session,
        _FOUND,
        given["selector"],
        given["attributes"],
        given["limit"],
        given["max_chars"],
        [*session.kept],
    )
    if found is None:
        raise Fault("selector", "That is no CSS selector.")
    return {**await _about(session), **found}


async def snapshot(session: Session, given: Mapping[str, Any]) -> Done:
    before = await _passwords(session.page)
    try:
        text = await session.page.aria_snapshot(mode="ai", timeout=session.patience)
    except Late:
        raise Fault(
            "missing", "It takes too long to describe the page. Read a part: browser_extract."
        ) from None
    text = _without(text, before | await _passwords(session.page))
    for value in session.kept:
        text = text.replace(value, _DOTS)
    most = given["max_chars"]
    return {
        **await _about(session),
        "snapshot": text[:most],
        "length": len(text),
        "truncated": len(text) > most,
    }


async def _passwords(page: Page) -> set[str]:
    """What stands in inputs that show dots."""
    found: set[str] = set()
    for frame in page.frames:
        with suppress(Error):  # it is gone
            inputs = await frame.locator("input[type=password]").all()
            for one in inputs[:_MOST_PASSWORDS]:
                found.add(_as_described(await one.input_value(timeout=_READING)))
    return found - {""}


def _as_described(value: str) -> str:
    return " ".join(value.replace("\u200b", "").replace("\u00ad", "").split())


def _without(text: str, passwords: set[str]) -> str:
    def seen(line: re.Match[str]) -> str:
        value = line[2]
        if value.startswith('"'):
            with suppress(ValueError, SyntaxError):
                value = ast.literal_eval(value)
        return f"{line[1]}{_DOTS}" if _as_described(value) in passwords else line[0]

    return _VALUE.sub(seen, text) if passwords else text


async def click(session: Session, given: Mapping[str, Any]) -> Done:
    page = session.page
    async with session.clicking():
        await _located(page, given["target"]).click()
        try:
            await _settled(page)
        except Error:
            if not page.is_closed():
                raise
    with _afterwards():
        if session.page is not page:
            await _settled(session.page)
        return await _about(session)


async def fill(session: Session, given: Mapping[str, Any]) -> Done:
    found, value = _located(session.page, given["target"]), given["value"]
    if given["only_at"] is not None:
        return await _fill_secret(session, found, given)
    sort = (await found.get_attribute("type") or "").lower()
    try:
        await found.fill(value)
    except Error as error:
        if "not an <input>" not in error.message:
            raise
        await _chosen(found, value)
    with _afterwards():
        if sort in _CHOOSY:
            await _verify_taken(found, value.strip().lower(), exactly=sort in _EXACT)
        if given["submit"]:
            await found.press("Enter")
            await _settled(session.page)
        return await _about(session)


async def _fill_secret(session: Session, found: Locator, given: Mapping[str, Any]) -> Done:
    """Into an input for passwords, on a page of the one site that it is for. Where it is, and what,
    is looked at in a world that no script of a page can reach, and in the same breath it is filled
    in: what the page does meanwhile, or which element it has marked, makes no difference.
    """
    mark = secrets.token_hex(8)
    session.kept.add(given["value"])
    await found.evaluate("(one, mark) => one.setAttribute('data-kept', mark)", mark)
    wrong = await _asked(session, _KEEP, mark, given["only_at"], given["value"])
    if wrong == "site":
        raise Fault("elsewhere", f"That secret is for pages of {given['only_at']} alone.")
    if wrong != "":
        raise Fault("selector", "That is no input for a password, and nothing else takes a secret.")
    with _afterwards():
        if given["submit"]:
            await found.press("Enter")
            await _settled(session.page)
        return await _about(session)


async def _verify_taken(found: Locator, value: str, *, exactly: bool) -> None:
    """Some inputs put another value, or none, in the place of one that does not suit them."""
    try:
        taken = (await found.input_value(timeout=_READING)).lower()
    except Error:  # it was taken, and the input is not there any more
        return
    if taken != value and (exactly or not taken):
        raise Fault("form", ANOTHER_FORM)


@contextmanager
def _afterwards() -> Iterator[None]:
    """Something was done: what goes wrong from now on is not told as if nothing had been."""
    try:
        yield
    except (Error, Fault) as error:
        fault = error if isinstance(error, Fault) else fault_of(error)
        if fault.kind == "empty":
            raise Fault("failed", "It was done, and the page has closed itself.") from None
        raise Fault("failed", fault.message) if fault.kind == "selector" else fault from None


async def _chosen(found: Locator, value: str) -> None:
    """A list of choices takes one of them, by its value or by what it says."""
    try:
        await found.select_option(value)
    except Late:
        raise Fault("missing", "The list has no such choice. See browser_snapshot.") from None
    except Error as error:
        if "<select>" in error.message:
            raise Fault(
                "selector", "That element takes no text: choose an input, a text area or a list."
            ) from None
        raise


def _located(page: Page, target: str) -> Locator:
    return page.locator(f"aria-ref={target}" if _REF.fullmatch(target) else f"css={target}")


async def _settled(page: Page) -> None:
    """It has loaded, or has had its time."""
    with suppress(Late):
        await page.wait_for_load_state("load", timeout=_SETTLING)


async def _about(session: Session) -> Done:
    url = session.page.url
    if url.startswith("chrome-error:"):
        raise Fault("unloadable", "It led to a page that could not be loaded.")
    return {"url": url[:_MOST_URL], "title": await _asked(session, _TITLE)}


async def responds(session: Session) -> None:
    """Returns once the page has answered; one that hangs never does."""
    await _asked(session, "() => 1")


async def _asked(session: Session, function: str, *given: Any) -> Any:
    """What a function of ours says in the page."""
    protocol = await session.protocol()
    frame = (await protocol.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
    world = await protocol.send(
        "Page.createIsolatedWorld", {"frameId": frame, "worldName": "toolpost"}
    )
    answer = await protocol.send(
        "Runtime.callFunctionOn",
        {
            "functionDeclaration": function,
            "executionContextId": world["executionContextId"],
            "arguments": [{"value": value} for value in given],
            "returnByValue": True,
        },
    )
    return answer["result"].get("value")


ACTIONS: Final[Mapping[str, Callable[[Session, Mapping[str, Any]], Awaitable[Done]]]] = {
    "navigate": navigate,
    "screenshot": screenshot,
    "extract": extract,
    "snapshot": snapshot,
    "click": click,
    "fill": fill,
}
