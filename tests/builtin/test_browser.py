"""A real Chromium: pages are opened, read, clicked and filled in; none of them gets out, none of
them stays in the way, and no session sees another's."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.backends.http.service import Asked, Reply, Service, forever, serving
from tests.builtin.test_web_attacks import SPELLINGS
from toolpost import Caller, Executor, Image, MissingPart, Registry, Result, Runtime
from toolpost.builtin.browser import Settings, running, tools
from toolpost.builtin.browser.browser import Browser
from toolpost.builtin.browser.program import chromium
from toolpost.config import Config
from toolpost.errors import ConfigError, Unavailable
from toolpost.extensions.retry import Retry
from toolpost.spec import ToolSpec

pytestmark = pytest.mark.anyio
FENCE = 60
PNG = b"\x89PNG\r\n\x1a\n"
HOME = """<!doctype html><title>Tea</title><h1>Tea &amp; cake</h1>
<nav><a href="/two">Two</a></nav>
<table class=prices><tr><td>tea<td>2<tr><td>cake<td>3</table>
<form action="/found"><label>Search <input name=q></label>
<select name=kind><option value=g>Green<option value=b>Black</select><button>Go</button></form>
<p id=late></p><script>late.textContent = "made by " + "a script"</script>
<p style="display: none">unseen</p>"""
LOGIN = """<!doctype html><title>Log in</title><form action=/found method=post>
<input name=user><input name=password type=password><button>Go</button></form>"""
OTHER = """<title>Other</title><input type=password oninput="fetch('/got?' + this.value)"><script>
const site = new URLSearchParams(location.search).get("site");
const frame = document.createElement("iframe"), one = document.querySelector("input");
if (site) { frame.src = site; document.body.append(frame); setInterval(() => one.focus(), 0); }
for (const [owner, name, value] of [[self, "origin", site], [Document.prototype, "URL", site],
    [Document.prototype, "documentElement", frame], [Node.prototype, "ownerDocument", document]])
  Object.defineProperty(owner, name, { get: () => value });
</script>"""
TITLES = """<!doctype html><script>
const asked = new URLSearchParams(location.search).get("me");
if (asked) { document.cookie = "me=" + asked; localStorage.me = asked; }
document.title = document.cookie + "/" + localStorage.me;
</script>"""


@pytest.fixture(scope="module", autouse=True)
def there() -> None:
    try:
        chromium(None)
    except Unavailable:
        pytest.skip("Chromium is not installed; as root, .ci/system-packages installs it")


PAGES: dict[str, str | Reply | Any] = {
    "/": HOME,
    "/two": "<title>Two</title><p>second",
    "/found": "<title>Found</title>",
    "/who": TITLES,
    "/login": LOGIN,
    "/never": forever,
    "/window": "<title>Opener</title><a href=/two target=_blank>open</a>",
    "/windows": "<title>Storm</title><script>for (let i = 0; i < 50; i++) open('/two')</script>",
    "/file": Reply(
        b"\0" * 99, type="application/zip", headers={"Content-Disposition": "attachment"}
    ),
    "/asks": "<title>?</title><button onclick='document.title = [confirm(), prompt()]'>b</button>",
    "/loop": "<title>Loop</title><script>for (;;);</script>",
    "/hangs": "<title>Hangs</title><button onclick='for (;;);'>b</button>",
    "/alerts": "<title>Alerts</title><script>for (;;) alert(1)</script>",
    "/huge": """<title>Huge</title><body><script>
document.title = "x".repeat(1e7);
document.body.innerHTML = "<p>all work and no play</p>".repeat(1e4)</script>""",
    "/eats": "<script>const all = []; for (;;) all.push(new Uint8Array(1e8).fill(1))</script>",
    "/lies": """<title>Honest</title><img name=querySelectorAll><img name=title>
<form id=f>told<input name=innerText><input name=getAttribute></form><script>
for (const kind of [String, Array, Document, Element, HTMLElement, Node])
  for (const name of Object.getOwnPropertyNames(kind.prototype))
    try { Object.defineProperty(kind.prototype, name, { get() { return () => "a lie" } }) } catch {}
</script>""",
    "/halves": """<title>Halves</title><p>\U0001f600\U0001f600\U0001f600</p><b></b><script>
const b = document.querySelector("b"); b.textContent = "x\\ud800y"; b.title = "\\udfff";
document.title = "a\\ud800b"</script>""",
    "/font": """<title>Font</title><style>@font-face { font-family: X; src: url(/never) }
h1 { font-family: X }</style><h1>text</h1>""",
    "/inputs": """<title>Inputs</title><input type=date><input type=range><input type=color>
<input type=month><input type=time onchange=this.remove()>""",
    "/closes": "<title>Opener</title><a onclick='window.open(`/close`)'>open</a>",
    "/close": "<title>Closes</title><button onclick='window.close()'>x</button>",
    "/blank": "<title>Blank</title><button onclick='location = `about:blank`'>x</button>",
    "/round": Reply("", 302, headers={"Location": "/round"}),
    "/locked": Reply("", 401, headers={"WWW-Authenticate": "Basic realm=x"}),
    "/shut": "<title>Shut</title><button onclick='close()'>x</button><script>close()</script>",
}


def answers(asked: Asked) -> Any:
    found = PAGES.get(asked.target.partition("?")[0], Reply("nothing", 404))
    return Reply(found, type="text/html; charset=utf-8") if isinstance(found, str) else found


@pytest.fixture(autouse=True)
def pages() -> Iterator[None]:
    """What one test serves, no other does."""
    before = dict(PAGES)
    yield
    PAGES.clear()
    PAGES.update(before)


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Service]:
    async with serving(answers) as service:
        yield service


class Web:
    """The tools, with a browser that all tests of this file share; each has sessions of its own."""

    def __init__(
        self, site: Service, other: Service, entries: list[Any], executor: Executor
    ) -> None:
        self.site, self.other = site, other
        self.entries, self.executor = entries, executor

    async def __call__(
        self, name: str, given: Mapping[str, Any], who: str = "somebody", **more: Any
    ) -> Result:
        arguments = dict(given)
        if arguments.get("url", "").partition("#")[0].partition("?")[0] in PAGES:
            arguments["url"] = self.site.url + arguments["url"]
        async with asyncio.timeout(FENCE):
            return await self.executor.execute(
                f"browser_{name}", arguments, caller=Caller(who), **more
            )

    async def done(
        self, name: str, given: Mapping[str, Any], who: str = "somebody", **more: Any
    ) -> Any:
        return (await self(name, given, who, **more)).raise_for_error().output

    @property
    def browser(self) -> Browser:
        browser: Browser = self.entries[0].target.browser
        return browser


async def using(
    site: Service, *guards: Retry, known: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[Web]:
    async with serving(lambda _: Reply(OTHER, type="text/html")) as other:
        egress = ("*", site.authority, other.authority)
        entries = list(tools(Settings(egress=egress, **more), Path()))
        secret = (known or {}).get
        async with Executor(Registry(entries), guards=guards, secret=secret) as executor:
            yield Web(site, other, entries, executor)


@pytest.fixture(scope="module")
async def web(site: Service) -> AsyncIterator[Web]:
    async for one in using(site):
        yield one


@pytest.fixture(scope="module")
async def small(site: Service) -> AsyncIterator[Web]:
    """With a browser that may be brought to its end."""
    async for one in using(site, sessions=2, memory=700 * 1024 * 1024):
        yield one


@pytest.fixture(scope="module")
async def again(site: Service) -> AsyncIterator[Web]:
    """Where what failed for a reason that passes is tried again."""
    async for one in using(site, Retry()):
        yield one


@pytest.fixture
def who(request: pytest.FixtureRequest) -> Iterator[str]:
    """A caller that no other test has."""
    yield request.node.name


def code(result: Result) -> str | None:
    return None if result.error is None else result.error.code


def message(result: Result) -> str:
    assert result.error is not None, result.output
    return result.error.message


# --- what it does --------------------------------------------------------------------------------


@pytest.mark.req("NA-8")
async def test_a_page_is_opened_read_described_and_pictured(web: Web, who: str) -> None:
    opened = await web.done("navigate", {"url": "/#part"}, who)
    assert opened == {"url": f"{web.site.url}/#part", "title": "Tea", "status": 200}
    found = await web.done("extract", {"selector": "td, #late, nav a", "attributes": ["href"]}, who)
    texts = ["Two", "tea", "2", "cake", "3", "made by a script"]
    assert [item["text"] for item in found["items"]] == texts
    assert found["items"][0]["attributes"] == {"href": "/two"}
    assert (found["count"], found["truncated"]) == (6, False)
    described = (await web.done("snapshot", {}, who))["snapshot"]
    assert 'heading "Tea & cake"' in described
    assert "unseen" not in described
    sizes = []
    for given in ({}, {"full_page": True}, {"target": "h1"}):
        result = await web("screenshot", given, who)
        (picture,) = result.raise_for_error().parts
        assert isinstance(picture, Image)
        assert picture.mime == "image/png"
        assert picture.data.startswith(PNG)
        sizes.append((result.output["width"], result.output["height"]))
    assert sizes[0] == sizes[1] == (1280, 800)
    assert sizes[2][1] < 100


async def test_a_ref_of_the_snapshot_is_clicked_and_a_form_filled_in(web: Web, who: str) -> None:
    await web.done("navigate", {"url": "/"}, who)
    described = (await web.done("snapshot", {}, who))["snapshot"]
    ref = described.partition('textbox "Search" [ref=')[2].partition("]")[0]
    await web.done("fill", {"target": ref, "value": "hot tea"}, who)
    await web.done("fill", {"target": "select", "value": "Black"}, who)
    sent = await web.done("click", {"target": "button"}, who)
    assert sent == {"url": f"{web.site.url}/found?q=hot+tea&kind=b", "title": "Found"}
    given = {"url": "/", "target": "input", "value": "x", "submit": True}
    assert (await web.done("fill", given, who))["title"] == "Found"


async def test_what_cannot_be_done_is_said_with_the_way_out(web: Web, who: str) -> None:
    nothing = await web("extract", {"selector": "h1"}, who)
    assert (code(nothing), "browser_navigate" in message(nothing)) == ("EXECUTION_ERROR", True)
    await web.done("navigate", {"url": "/"}, who)
    for name, given, said in (
        ("extract", {"selector": "a["}, "no CSS selector"),
        ("click", {"target": "a["}, "no selector"),
        ("click", {"target": "td"}, "4 elements match"),
        ("fill", {"target": "h1", "value": "x"}, "takes no text"),
    ):
        result = await web(name, given, who)
        assert (code(result), said in message(result)) == ("VALIDATION_ERROR", True), result.error
    missing = await web("click", {"target": "h6"}, who, timeout=3)
    assert (code(missing), "no such element" in message(missing)) == ("EXECUTION_ERROR", True)
    gone = await web("navigate", {"url": f"{web.site.url}/nowhere"}, who)
    assert gone.output["status"] == 404


# --- passwords -----------------------------------------------------------------------------------

PASSWORD = "Correct-Horse-9-Battery"


@pytest.mark.req("NA-8")
async def test_a_password_is_filled_in_by_its_name_and_nobody_sees_it(
    site: Service, tmp_path: Path, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"egress": [site.authority], "secrets": {"SHOP_PASSWORD": f"{site.url}/"}}
    source = {"kind": "builtin", "tools": ["browser"], "browser": table}
    config = Config.of({"mode": "permissive", "sources": [source]}, base=tmp_path)
    page = {"url": f"{site.url}/login", "target": "[type=password]", "kept": "SHOP_PASSWORD"}
    with caplog.at_level("DEBUG"):
        async with (
            asyncio.timeout(FENCE),
            Runtime.open(config, secret={"SHOP_PASSWORD": PASSWORD}.get) as runtime,
        ):
            done = await runtime.execute("browser_fill", page, session_id=who)
            read = await runtime.execute("browser_snapshot", {}, session_id=who)
            sent = await runtime.execute("browser_fill", {**page, "submit": True}, session_id=who)
    assert done.raise_for_error().output["title"] == "Log in"
    assert sent.raise_for_error().output["title"] == "Found"
    assert f"user=&password={PASSWORD}".encode() in [asked.body for asked in site.asked]
    assert PASSWORD not in str(read.raise_for_error())
    assert PASSWORD not in caplog.text
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"SHOP_PASSWORD" in one for one in written)
    assert not any(PASSWORD.encode() in one for one in written)


async def test_attack_a_password_goes_to_its_own_site_into_a_password_and_nowhere_else(
    site: Service, who: str
) -> None:
    known = {"SHOP": PASSWORD}
    async for web in using(site, known=known, secrets={"SHOP": site.url, "UNSET": site.url}):
        PAGES["/textarea"] = "<label type=password>L<textarea type=password></textarea></label>"
        PAGES["/framed"] = f"<title>Framed</title><iframe src='{web.other.url}'></iframe>"
        await web.done("navigate", {"url": "/framed"}, who)
        described = (await web.done("snapshot", {}, who))["snapshot"]
        ref = described.partition("textbox [ref=")[2].partition("]")[0]
        assert ref.startswith("f")
        framed = await web("fill", {"target": ref, "kept": "SHOP"}, who)
        assert f"of {site.url} alone" in message(framed)
        for given, said in (
            ({"url": web.other.url, "target": "input"}, f"of {site.url} alone"),
            (
                {"url": f"{web.other.url}/?site={site.url}/login", "target": "input"},
                f"of {site.url} alone",
            ),
            ({"url": "/textarea", "target": "textarea"}, "no input for a password"),
            ({"url": "/textarea", "target": "label"}, "no input for a password"),
            ({"url": "/login", "target": "[name=user]"}, "no input for a password"),
            ({"url": "/login", "target": "[type=password]", "value": "x"}, "either it or kept"),
            ({"url": "/login", "target": "[type=password]", "kept": "UNSET"}, "not set up to run"),
            ({"url": "/login", "target": "[type=password]", "kept": "HOME"}, "/kept"),
        ):
            result = await web("fill", {"kept": "SHOP", **given}, who)
            assert result.error is not None, given
            assert said in message(result), message(result)
            assert result.error.effects == "none"
        missing = await web("fill", {"url": "/login", "target": "[type=password]"}, who)
        assert "either it or kept" in message(missing)
    assert web.other.asked
    assert not any(PASSWORD in asked.target for asked in web.other.asked)


@pytest.mark.parametrize(
    "password", ["tea", 'He said: "no"\\', "key: - value #", " of  two\u200b words "]
)
@pytest.mark.parametrize("more", ["", "placeholder=p", "aria-label='Password: *'"])
async def test_what_stands_in_an_input_for_a_password_is_not_described(
    web: Web, who: str, password: str, more: str
) -> None:
    PAGES["/secret"] = f"<title>Secret</title><input><input type=password {more}><p>end"
    given = {"url": "/secret", "target": "[type=password]", "value": password}
    await web.done("fill", given, who)
    described = (await web.done("snapshot", {}, who))["snapshot"]
    assert "••••••••" in described
    assert max(re.findall(r"\w+", password), key=len) not in described
    assert "end" in described


async def test_what_was_kept_is_dots_wherever_its_page_shows_it(site: Service, who: str) -> None:
    PAGES["/shows"] = """<title>Shows</title><input type=password
oninput="p.textContent = p.title = this.value; this.type = 'text'"><p id=p></p>"""
    async for web in using(site, known={"SHOP": "tea4two"}, secrets={"SHOP": site.url}):
        await web.done("fill", {"url": "/shows", "target": "input", "kept": "SHOP"}, who)
        described = (await web.done("snapshot", {"max_chars": 10_000}, who))["snapshot"]
        given = {"selector": "p", "attributes": ["title"], "max_chars": 6}
        found = await web.done("extract", given, who)
        assert (described.count("••••••••"), "tea4" in described) == (2, False)
        assert found["items"][0]["text"] == "••••••"


@pytest.mark.parametrize("script", ["String = () => 5", "Array.prototype.map = 5", "eval = 5"])
async def test_a_page_with_a_password_that_lies_is_described(
    web: Web, who: str, script: str
) -> None:
    PAGES["/liar"] = f"<title>Liar</title><input type=password value=x1y2><script>{script}</script>"
    described = (await web.done("snapshot", {"url": "/liar"}, who))["snapshot"]
    assert ("••••••••" in described, "x1y2" in described) == (True, False)


async def test_a_password_that_is_not_there_is_told_with_the_health(site: Service) -> None:
    async for web in using(site, known={}, secrets={"SHOP": site.url}):
        health = await web.executor.health("browser_fill")
        assert (health.healthy, "SHOP is not set" in (health.error or "")) == (False, True)
        assert (await web.executor.health("browser_click")).healthy


def test_without_passwords_there_is_no_parameter_for_one() -> None:
    for secrets, names, required in (
        ({}, {"target", "value", "submit", "url"}, ["target", "value"]),
        ({"A": "https://a.example"}, {"target", "value", "kept", "submit", "url"}, ["target"]),
    ):
        found = {one.spec.name: one.spec for one in tools(Settings(secrets=secrets), Path())}
        schema = found["browser_fill"].input_schema
        assert (schema["properties"].keys(), schema["required"]) == (names, required)


async def test_long_texts_are_cut_where_that_was_asked_for(web: Web, who: str) -> None:
    found = await web.done("extract", {"url": "/", "selector": "td", "max_chars": 4}, who)
    assert [item["text"] for item in found["items"]] == ["tea", "2"]
    assert (found["count"], found["truncated"]) == (4, True)
    described = await web.done("snapshot", {"max_chars": 10}, who)
    assert (len(described["snapshot"]), described["truncated"]) == (10, True)
    assert described["length"] > 100


async def test_half_a_character_ends_nothing(web: Web, who: str) -> None:
    opened = await web.done("navigate", {"url": "/halves"}, who)
    pid = web.browser.pid
    assert opened["title"] == "a\ufffdb"
    found = await web.done("extract", {"selector": "b", "attributes": ["title"]}, who)
    assert found["items"] == [{"text": "x\ufffdy", "attributes": {"title": "\ufffd"}}]
    for most, text in ((1, ""), (2, "\U0001f600"), (3, "\U0001f600")):
        found = await web.done("extract", {"selector": "p", "max_chars": most}, who)
        assert (found["items"], found["truncated"]) == ([{"text": text}], True)
    assert "x\ufffdy" in (await web.done("snapshot", {}, who))["snapshot"]
    assert web.browser.pid == pid


async def test_an_answer_that_makes_no_sense_fails_its_own_call_only(
    site: Service, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = """import sys; sys.path[:0] = sys.argv[1:3]
import json
from inside import serving
serving._say = lambda writer, what: writer.write(json.dumps(what).encode() + b"\\n")
serving.main()"""
    monkeypatch.setattr(running, "_BEGIN", says)
    async for web in using(site):
        await web.done("navigate", {"url": "/two"}, who)
        pid = web.browser.pid
        odd = await web("navigate", {"url": "/halves"}, f"{who}2")
        assert (code(odd), "no text" in message(odd)) == ("EXECUTION_ERROR", True)
        assert (await web.done("extract", {"selector": "p"}, who))["title"] == "Two"
        assert web.browser.pid == pid


@pytest.mark.parametrize(
    ("sort", "wrong", "right"),
    [
        ("date", "30.11.2026", "2026-11-30"),
        ("range", "999", "7"),
        ("color", "red", "#FF0000"),
        ("month", "May", "2026-05"),
    ],
)
async def test_a_value_that_an_input_does_not_take_is_not_told_as_filled_in(
    web: Web, who: str, sort: str, wrong: str, right: str
) -> None:
    target = f"input[type={sort}]"
    lost = await web("fill", {"url": "/inputs", "target": target, "value": wrong}, who)
    assert (code(lost), "another form" in message(lost)) == ("VALIDATION_ERROR", True)
    await web.done("fill", {"url": "/inputs", "target": target, "value": right}, who)


async def test_an_input_that_goes_once_it_is_filled_in_has_been(web: Web, who: str) -> None:
    given = {"url": "/inputs", "target": "input[type=time]", "value": "10:00"}
    await web.done("fill", given, who)
    assert (await web.done("extract", {"selector": "input[type=time]"}, who))["count"] == 0


async def test_a_page_that_cannot_be_pictured_is_not_told_as_a_missing_element(
    web: Web, who: str
) -> None:
    await web.done("navigate", {"url": "/font"}, who)
    unseen = await web("screenshot", {}, who, timeout=6)
    assert (code(unseen), "No picture" in message(unseen)) == ("EXECUTION_ERROR", True)
    assert (await web.done("extract", {"selector": "h1"}, who))["items"] == [{"text": "text"}]


@pytest.mark.parametrize("page", ["/round", "/locked"])
async def test_what_would_fail_again_is_not_to_be_tried_again(
    web: Web, who: str, page: str
) -> None:
    failed = await web("navigate", {"url": page}, who)
    assert failed.error is not None
    assert (failed.error.code, failed.error.retryable) == ("EXECUTION_ERROR", False)
    assert "again" not in failed.error.message


async def test_a_click_that_leads_nowhere_is_no_success(web: Web, who: str) -> None:
    PAGES["/astray"] = "<title>?</title><a href=https://127.0.0.1:1/>x</a>"
    await web.done("navigate", {"url": "/astray"}, who)
    led = await web("click", {"target": "a"}, who)
    assert led.error is not None
    assert (led.error.code, led.error.effects) == ("EXECUTION_ERROR", "unknown")
    assert "could not be loaded" in led.error.message


@pytest.mark.parametrize("page", ["/pays", "/closes", "/blank"])
async def test_a_click_that_was_done_is_not_told_as_if_it_had_not_been(
    web: Web, who: str, page: str
) -> None:
    async with serving() as private:
        PAGES["/pays"] = "<title>Pay</title><form action=/pay method=post><button>x</button></form>"
        PAGES["/pay"] = Reply("", 302, headers={"Location": f"{private.url}/secret"})
        await web.done("navigate", {"url": page}, who)
        if page == "/closes":  # only a window that was opened may
            await web.done("click", {"target": "a"}, who)
        done = await web("click", {"target": "button"}, who)
        assert private.connections == 0
    assert done.error is not None
    assert done.error.effects == "unknown"
    assert "done" in done.error.message
    assert (done.error.code == "POLICY_DENIED") == (page == "/pays")


async def test_dialogs_are_dismissed_and_downloads_refused(web: Web, who: str) -> None:
    asked = await web.done("click", {"url": "/asks", "target": "button"}, who)
    assert asked["title"] == "false,"
    refused = await web("navigate", {"url": "/file"}, who)
    assert (code(refused), "download" in message(refused)) == ("EXECUTION_ERROR", True)


async def test_a_window_that_a_click_opens_takes_the_place_of_the_page(web: Web, who: str) -> None:
    assert (await web.done("click", {"url": "/window", "target": "a"}, who))["title"] == "Two"
    found = await web.done("extract", {"selector": "p"}, who)
    assert found["items"] == [{"text": "second"}]


def test_the_specs_say_what_they_do() -> None:
    specs = {one.spec.name: one.spec for one in tools(Settings(egress=("a.example:443",)), Path())}
    told: dict[str, tuple[int, str]] = {}
    for name, spec in specs.items():
        assert isinstance(spec, ToolSpec)
        assert spec.egress == ("a.example:443",)
        assert spec.labels == {"external": "true"}
        assert spec.output_schema is not None
        told[name.removeprefix("browser_")] = spec.tier, spec.effects
    looks = dict.fromkeys(("navigate", "snapshot", "extract", "screenshot"), (1, "idempotent"))
    assert told == {**looks, "click": (2, "once"), "fill": (2, "once")}


# --- 25 to 27: where it may connect --------------------------------------------------------------

TRIES = """<!doctype html><title>trying</title><body><script>
const there = %r, asked = [];
const load = (tag, name, url) => asked.push(new Promise(done => {
  const one = document.createElement(tag);
  one.onload = one.onerror = done;
  setTimeout(done, 3000);
  one[name] = url;
  if (tag == "link") one.rel = "stylesheet";
  document.body.append(one);
}));
for (const one of there) {
  const url = "http://" + one + "/";
  for (const tag of ["img", "script", "iframe", "embed"]) load(tag, "src", url + tag);
  load("link", "href", url + "link");
  load("object", "data", url + "object");
  for (const mode of ["no-cors", "cors"])
    asked.push(fetch(url + mode, { mode, method: "POST", body: "x" }).catch(() => 0));
  navigator.sendBeacon(url + "beacon", "x");
  asked.push(new Promise(done => {
    const socket = new WebSocket("ws://" + one + "/socket");
    socket.onclose = socket.onerror = done;
  }));
  asked.push(new Promise(done => {
    const events = new EventSource(url + "events");
    events.onerror = () => { events.close(); done(); };
  }));
  asked.push(new Promise(done => {
    const worker = new Worker(URL.createObjectURL(new Blob(
      [`fetch("${url}worker", {mode: "no-cors"}).finally(() => postMessage(1))`])));
    worker.onmessage = worker.onerror = done;
  }));
  try {
    const far = new RTCPeerConnection({ iceServers: [{ urls: "turn:" + one + "?transport=tcp",
      username: "x", credential: "x" }, { urls: "stun:" + one }] });
    far.createDataChannel("x");
    far.createOffer().then(offer => far.setLocalDescription(offer));
    asked.push(new Promise(done => { far.onicegatheringstatechange = () =>
      far.iceGatheringState == "complete" && done(); setTimeout(done, 1500); }));
  } catch {}
}
Promise.all(asked).then(() => { document.body.innerHTML = "<b id=over>over</b>" });
</script>"""

BUSY = """<!doctype html><title>Busy</title><body><script>
for (let i = 0; i < 16; i++)  // each a site of its own, refused, and shown in a process of its own
  document.body.append(Object.assign(document.createElement("iframe"),
    { src: `http://${i}.${Math.random()}.invalid/` }));
</script>"""


@pytest.mark.req("NA-10")
async def test_attack_no_spelling_of_a_private_address_is_opened(web: Web, who: str) -> None:
    async with serving() as private:
        for spelling in SPELLINGS:
            url = spelling.replace("{port}", str(private.port))
            result = await web("navigate", {"url": url}, who)
            assert code(result) in ("POLICY_DENIED", "VALIDATION_ERROR", "UNAVAILABLE"), url
        assert private.connections == 0


@pytest.mark.req("NA-10")
async def test_attack_nothing_that_a_page_does_reaches_a_private_address(
    web: Web, who: str
) -> None:
    """It may go where it was loaded from, which is named: on the same host, another port is not.
    Neither spelling nor protocol helps.
    """
    async with serving() as private:
        hosts = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433")
        there = [f"{host}:{private.port}" for host in hosts]
        PAGES["/tries"] = TRIES % [*there, web.other.authority]
        opened = await web.done("navigate", {"url": "/tries"}, who)
        assert opened["title"] == "trying"
        await web.done("click", {"target": "#over"}, who)  # waits until it is there
        assert private.connections == 0
    reached = {one.target for one in web.other.asked}
    ways = "img script iframe link object no-cors cors beacon socket events worker"
    assert reached >= {f"/{way}" for way in ways.split()}, "what is named is reached by all of them"


@pytest.mark.req("NA-10")
@pytest.mark.parametrize("where", ["this machine", "metadata", "a file"])
async def test_attack_no_redirect_leads_to_what_is_private(web: Web, who: str, where: str) -> None:
    async with serving() as private:
        to = {
            "this machine": f"{private.url}/secret",
            "metadata": "http://169.254.169.254/latest/meta-data/",
            "a file": "file:///etc/passwd",
        }[where]
        PAGES["/moved"] = Reply("", 302, headers={"Location": to})
        PAGES["/moves"] = f"<title>Moving</title><a id=a href={to}>x</a><script>a.click()</script>"
        PAGES["/framed"] = f"<title>Framed</title><iframe src={to}></iframe>"
        moved = await web("navigate", {"url": "/moved"}, who)
        assert code(moved) in ("POLICY_DENIED", "UNAVAILABLE", "EXECUTION_ERROR"), moved
        for path in ("/moves", "/framed"):
            result = await web("extract", {"url": path, "selector": "body"}, who)
            assert "root:" not in str(result.output)
        later = await web("snapshot", {}, who, timeout=3)
        assert "root:" not in str(later.output)
        assert private.connections == 0


async def test_what_the_proxy_says_is_no_page(who: str) -> None:
    async with serving() as closed:
        gone_soon = closed.authority
    settings = Settings(egress=(gone_soon,))
    async with Executor(Registry(tools(settings, Path()))) as executor:
        result = await executor.execute("browser_navigate", {"url": f"http://{gone_soon}/"})
        assert code(result) == "UNAVAILABLE"
        assert "could not be loaded" in message(result)


async def test_a_private_address_has_to_be_named(who: str) -> None:
    async with serving(answers) as site, Executor(Registry(tools(Settings(), Path()))) as executor:
        result = await executor.execute("browser_navigate", {"url": site.url})
        assert code(result) == "POLICY_DENIED"
        assert "not a public address" in message(result)
        assert site.connections == 0


async def test_a_server_that_keeps_its_connections_does_not_answer_for_another(
    web: Web, who: str
) -> None:
    titles = [
        (await web.done("navigate", {"url": url}, who))["title"]
        for url in (web.site.url, web.other.url, web.site.url, web.other.url)
    ]
    assert titles == ["Tea", "Other", "Tea", "Other"]
    assert not any(one.target.startswith("http") for one in web.other.asked)


# --- sessions ------------------------------------------------------------------------------------


async def test_no_session_sees_another(web: Web, who: str) -> None:
    """Not another of the same caller, nor one of the same name of another caller."""
    for caller, session in ((who, "a"), (who, "b"), (f"{who}2", "a")):
        me = f"{caller[-1]}{session}"
        for url, title in (("/who", "/undefined"), (f"/who?me={me}", f"me={me}/{me}")):
            opened = await web.done("navigate", {"url": url}, caller, session_id=session)
            assert opened["title"] == title
    kept = await web.done("navigate", {"url": "/who"}, who, session_id="a")
    assert kept["title"] == f"me={who[-1]}a/{who[-1]}a"


async def test_the_session_that_waited_longest_makes_room(small: Web, who: str) -> None:
    for session in ("a", "b", "c"):
        await small.done("navigate", {"url": "/"}, who, session_id=session)
    read = {"selector": "h1"}
    codes = [
        code(await small("extract", read, who, session_id=session)) for session in ("b", "c", "a")
    ]
    assert codes == [None, None, "EXECUTION_ERROR"]


# --- hostile pages, and ends ---------------------------------------------------------------------


@pytest.mark.parametrize("page", ["/loop", "/alerts", "/never"])
async def test_a_page_that_never_ends_is_given_up_and_the_next_call_works(
    web: Web, who: str, page: str
) -> None:
    stopped = await web("extract", {"url": page, "selector": "body"}, who, timeout=2.5)
    assert code(stopped) in ("TIMEOUT", "UNAVAILABLE"), stopped.error
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"


async def test_a_page_that_hangs_when_it_is_clicked_is_closed(web: Web, who: str) -> None:
    await web.done("navigate", {"url": "/hangs"}, who)
    stopped = await web("click", {"target": "button"}, who, timeout=5)
    assert code(stopped) == "TIMEOUT"
    empty = await web("screenshot", {}, who)
    assert "No page is open" in message(empty)
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"


async def test_why_a_page_was_closed_is_told_and_not_that_there_is_none(
    again: Web, who: str
) -> None:
    PAGES["/soon"] = "<title>Soon</title><p>x<script>setTimeout(() => { for (;;); }, 500)</script>"
    await again.done("navigate", {"url": "/soon"}, who)
    while (stopped := await again("extract", {"selector": "p"}, who, timeout=4)).success:
        pass
    assert (code(stopped), "the page was closed" in message(stopped)) == ("TIMEOUT", True)
    await again.done("navigate", {"url": "/two"}, who)
    pid = again.browser.pid
    assert pid is not None
    while (shown := part(pid, "--type=renderer")) is not None:
        shown.kill()
        await gone(shown.pid)
    crashed = await again("snapshot", {}, who)
    assert (code(crashed), "crashed" in message(crashed)) == ("UNAVAILABLE", True)


async def test_what_has_used_up_its_time_is_not_tried_again(again: Web, who: str) -> None:
    await again.done("navigate", {"url": "/two"}, who)
    late = await again("navigate", {"url": "/never"}, who, timeout=6)
    assert late.error is not None
    assert (late.error.code, late.error.retryable) == ("TIMEOUT", False)
    assert late.metadata.attempts == 1
    told = re.search(r"did not load within ([\d.]+) s", late.error.message)
    assert told is not None
    assert float(told[1]) > 1


async def test_a_huge_page_is_read_in_bounds(web: Web, who: str) -> None:
    found = await web.done("extract", {"url": "/huge", "selector": "p", "limit": 3}, who)
    assert (len(found["items"]), found["count"]) == (3, 10_000)
    assert len(found["title"]) == 300
    await web("snapshot", {"max_chars": 1000}, who, timeout=3)
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"


async def test_a_page_that_eats_all_memory_takes_nothing_with_it(small: Web, who: str) -> None:
    eaten = await small("navigate", {"url": "/eats"}, who, timeout=20)
    assert code(eaten) in ("UNAVAILABLE", "TIMEOUT", "EXECUTION_ERROR")
    assert (await small.done("navigate", {"url": "/two"}, who))["title"] == "Two"


@pytest.mark.parametrize("page", ["/windows", "/shut"])
async def test_windows_that_come_and_go_by_themselves_are_no_matter(
    web: Web, who: str, page: str
) -> None:
    await web("navigate", {"url": page}, who)
    await web("click", {"target": "button"}, who, timeout=3)
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"


async def test_what_a_page_puts_in_the_place_of_the_languages_own_is_not_believed(
    web: Web, who: str
) -> None:
    found = await web.done("extract", {"url": "/lies", "selector": "form"}, who)
    assert (found["title"], found["items"]) == ("Honest", [{"text": "told"}])


async def test_a_caller_who_goes_leaves_the_session_usable(web: Web, who: str) -> None:
    before = len(web.site.asked)
    going = asyncio.ensure_future(web("navigate", {"url": "/never"}, who))
    async with asyncio.timeout(FENCE):
        while not any(one.target == "/never" for one in web.site.asked[before:]):
            await asyncio.wait((going,), timeout=0.02)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    assert going.cancelled()
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    try:
        number = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop.add_reader(number, over.set)
    try:
        async with asyncio.timeout(FENCE):
            await over.wait()
    finally:
        loop.remove_reader(number)
        os.close(number)


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def part(pid: int, word: str) -> psutil.Process | None:
    """The process of the browser with that word on its command line."""
    for one in below(pid):
        with suppress(psutil.NoSuchProcess):  # or only its zombie is left
            if word in one.cmdline():
                return one
    return None


@pytest.mark.parametrize("name", ["chromium", "node"])
async def test_a_browser_that_died_is_started_again(small: Web, who: str, name: str) -> None:
    await small.done("navigate", {"url": "/"}, who)
    pid = small.browser.pid
    assert pid is not None
    next(process for process in below(pid) if process.name().startswith(name)).kill()
    if name == "chromium":
        await gone(pid)
    empty = await small("extract", {"selector": "h1"}, who)
    assert code(empty) in ("EXECUTION_ERROR", "UNAVAILABLE")
    assert (await small.done("navigate", {"url": "/"}, who))["title"] == "Tea"
    assert "playwright" not in sys.modules


@pytest.mark.parametrize("word", ["run-driver", "--type=zygote"])
async def test_a_browser_that_is_of_no_use_any_more_is_ended(
    site: Service, who: str, word: str
) -> None:
    """What drives it is gone, or what makes its pages; sessions that come then see to it."""
    async for web in using(site):
        await web.done("navigate", {"url": "/"}, who)
        pid = web.browser.pid
        assert pid is not None
        while (one := part(pid, word)) is not None:
            one.kill()
            await gone(one.pid)
        ended = await web("navigate", {"url": "/"}, f"{who}2")
        assert (code(ended), "The browser ended" in message(ended)) == ("UNAVAILABLE", True)
        assert (await web.done("navigate", {"url": "/"}, f"{who}3"))["title"] == "Tea"
        assert web.browser.pid != pid


async def test_a_session_has_no_parts_of_a_window_that_nobody_sees(small: Web, who: str) -> None:
    await small.done("navigate", {"url": "/"}, who)
    pid = small.browser.pid
    assert pid is not None
    assert part(pid, "--top-chrome-webui") is None
    chromium_itself = part(pid, "--remote-debugging-pipe")
    assert chromium_itself is not None
    said = [word for word in chromium_itself.cmdline() if word.startswith("--disable-features=")]
    theirs, ours = (set(word.partition("=")[2].split(",")) for word in said)
    elsewhere = {name for name in theirs if name.endswith("Win") or name.startswith("ms")}
    assert theirs - elsewhere < ours, "Chromium hears the last alone: say what Playwright says"


async def test_how_a_browser_ended_is_logged(
    small: Web, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    await small.done("navigate", {"url": "/"}, who)
    pid = small.browser.pid
    assert pid is not None
    chromium_itself = part(pid, "--remote-debugging-pipe")
    assert chromium_itself is not None
    chromium_itself.kill()
    await gone(pid)
    assert (await small.done("navigate", {"url": "/"}, who))["title"] == "Tea"
    (record,) = [one for one in caplog.records if "the browser has ended" in one.getMessage()]
    assert "pw:browser" in record.getMessage(), "what Chromium itself said last"
    assert "\nChromium ended" in record.getMessage()
    assert "dbus/" not in record.getMessage()


async def test_many_busy_pages_do_not_end_the_browser(web: Web) -> None:
    PAGES["/busy"] = BUSY
    await web.done("navigate", {"url": "/"}, "busy 0")
    pid = web.browser.pid
    callers = [f"busy {number}" for number in range(3)]
    opened = [web("navigate", {"url": "/busy"}, caller) for caller in callers]
    assert [code(result) for result in await asyncio.gather(*opened)] == [None] * 3
    assert web.browser.pid == pid


async def test_a_helper_of_the_browser_may_end_time_and_again(web: Web, who: str) -> None:
    await web.done("navigate", {"url": "/"}, who)
    pid = web.browser.pid
    assert pid is not None
    for _ in range(7):
        while (helper := part(pid, "--type=gpu-process")) is None:
            await web("screenshot", {}, who)  # has it started again; may fail itself
        helper.kill()
        await gone(helper.pid)
    assert (await web.done("navigate", {"url": "/two"}, who))["title"] == "Two"
    assert web.browser.pid == pid


async def test_a_browser_that_nobody_uses_is_closed_and_comes_back(site: Service) -> None:
    entries: list[Any] = list(tools(Settings(egress=(site.authority,), idle=0.3), Path()))
    browser: Browser = entries[0].target.browser
    async with asyncio.timeout(FENCE), Executor(Registry(entries)) as executor:
        opened = await executor.execute("browser_navigate", {"url": site.url})
        assert opened.success
        pid = browser.pid
        if pid is not None:
            await gone(pid)
        opened = await executor.execute("browser_navigate", {"url": site.url})
        assert opened.raise_for_error().output["title"] == "Tea"
        left = [] if browser.pid is None else below(browser.pid)
    for process in left:
        await gone(process.pid)
    assert browser.pid is None


async def test_a_session_that_nobody_uses_is_closed_while_another_is_busy(who: str) -> None:
    PAGES["/holds"] = "<title>Holds</title><script>fetch('/never')</script>"
    async with serving(answers) as site, serving(lambda _: forever) as slow:
        egress = (site.authority, slow.authority)
        entries: list[Any] = list(tools(Settings(egress=egress, idle=1), Path()))
        async with asyncio.timeout(FENCE), Executor(Registry(entries)) as executor:

            async def opened(url: str, session: str) -> Result:
                return await executor.execute("browser_navigate", {"url": url}, session_id=session)

            (await opened(f"{site.url}/holds", "idle")).raise_for_error()
            busy = asyncio.ensure_future(opened(slow.url, "busy"))
            await site.gone.wait()
            assert not busy.done()
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)


async def test_nothing_is_left_of_it_when_we_are_killed(site: Service) -> None:
    script = Path(__file__).with_name("browser_alone.py")
    us = await asyncio.create_subprocess_exec(
        sys.executable, str(script), site.url, site.authority, stdout=asyncio.subprocess.PIPE
    )
    assert us.stdout is not None
    async with asyncio.timeout(FENCE):
        assert await us.stdout.readline() == b"Tea\n"
        left = below(us.pid)
        names = {process.name() for process in left}
        assert any(name.startswith("chrom") for name in names), names
        us.send_signal(signal.SIGKILL)
        for process in left:
            await gone(process.pid)
        await us.wait()


# --- what is not there ---------------------------------------------------------------------------


async def test_without_chromium_it_says_how_to_get_it(tmp_path: Path) -> None:
    source = {
        "kind": "builtin",
        "tools": ["browser"],
        "browser": {"program": str(tmp_path / "no"), "egress": ["localhost:1"]},
    }
    config = Config.of({"sources": [source]}, base=tmp_path)
    async with Runtime(config) as runtime:
        result = await runtime.execute("browser_navigate", {"url": "http://localhost:1/"})
        health = await runtime.executor.health("browser_navigate")
    assert code(result) == "UNAVAILABLE"
    assert "apt-get install chromium" in message(result)
    assert health.error == message(result)


async def test_with_chromium_it_is_healthy(web: Web) -> None:
    assert (await web.executor.health("browser_navigate")).healthy


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_PACKAGES", ("no_such_package",))
    with pytest.raises(MissingPart, match=r'pip install "toolpost\[browser\]"'):
        list(tools(Settings(), Path()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"egress": ("nowhere",)},
        {"idle": 0},
        {"sessions": 9},
        {"sessions": 0},
        {"memory": 1},
        {"secrets": {"SHOP": "shop.example"}},
        {"secrets": {"SHOP": "https://shop.example/login"}},
        {"secrets": {"SHOP": "https://me@shop.example"}},
        {"secrets": {"A B": "https://shop.example"}},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Settings(**wrong)


def test_a_script_is_not_taken_for_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with Path(chromium(None)).open("rb") as file:
        assert file.read(4) == b"\x7fELF"
