"""The binding of an HTTP tool: read once, when its spec is loaded, and refused with its place.

Above: ``backend.py``, and whoever loads specs (``verify``). Below: ``template.py``, and ``net`` for
what a URL may be. It refuses to know values, secrets and the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NoReturn
from urllib.parse import parse_qsl, quote

import msgspec

from toolpost.backends.http.template import (
    Hole,
    Parameters,
    Place,
    Text,
    Tree,
    names_in,
    pieces_of,
    refuse,
)
from toolpost.errors import SAYABLE, ConfigError, InvalidSpec, Outcome, ToolFailed
from toolpost.net.destination import Granted, Refused
from toolpost.net.url import Url, url_from
from toolpost.options import Options, options_from
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_SECRET: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+*-]+(?:\s*;\s*[\w-]+=[\w.+-]+)*", re.ASCII)
_STATUS: Final = re.compile(r"[1-5](?:[0-9][0-9]|xx)")
_QUERY_METHODS: Final = frozenset(("GET", "HEAD", "DELETE", "OPTIONS"))
_NOT_YOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("authorization", "proxy-authorization"), "name a secret in 'auth'"),
    **dict.fromkeys(("cookie", "cookie2"), "write it into 'cookies'"),
    "content-type": "write it as the 'type' of the body",
    **dict.fromkeys(
        (
            "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te",
            "trailer", "upgrade", "proxy-connection", "expect", "accept-encoding",
        ),
        "it belongs to the connection",
    ),
}  # fmt: skip
"""Headers that a spec does not set, and what to do instead."""
_PATH: Final = "!$&'()*+,;=:@/%~-._"

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Style = Literal[
    "form", "spaceDelimited", "pipeDelimited", "deepObject", "simple", "label", "matrix", "json"
]
STYLES: Final[Mapping[str, tuple[Style, ...]]] = {
    "path": ("simple", "label", "matrix", "json"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "headers": ("simple", "json"),
    "cookies": ("form", "json"),
    "form": ("form", "spaceDelimited", "pipeDelimited", "deepObject", "json"),
    "multipart": ("form", "json"),
}
"""Where → how a value may be written there, the default first."""


class Entry(Options, frozen=True, forbid_unknown_fields=True):
    """One value and how it is written. A spec that only gives the value has the defaults."""

    value: str | int | float | bool
    style: Style | None = None
    explode: bool | None = None
    allow_reserved: bool = False
    base64: bool = False
    """The argument is the base64 of what is sent; only in multipart."""
    filename: str | None = None
    type: str | None = None


Written = str | int | float | bool | Entry
Entries = Mapping[str, Written]


class Body(Options, frozen=True, forbid_unknown_fields=True):
    """One of ``json``, ``form``, ``multipart``, ``text`` and ``bytes``."""

    json: Any = msgspec.UNSET
    form: Entries | None = None
    multipart: Entries | None = None
    text: str | None = None
    bytes: str | None = None
    type: str | None = None
    optional: bool = False
    """Nothing is sent where nothing would be in it."""


_NOT_SAID: Final = dict(zip(Body.__struct_fields__, Body.__struct_defaults__, strict=True))


class Basic(Options, frozen=True, forbid_unknown_fields=True):
    """User and password: ``user`` is written out, the others are names of secrets."""

    user: str | None = None
    user_secret: str | None = None
    password: str | None = None


class ApiKey(Options, frozen=True, forbid_unknown_fields=True):
    """A secret under a name of the service's choice."""

    secret: str
    name: str
    where: Literal["header", "query", "cookie"] = msgspec.field(default="header", name="in")
    prefix: str = ""


class Auth(Options, frozen=True, forbid_unknown_fields=True):
    """One of ``bearer`` (the name of a secret), ``basic`` and ``api_key``."""

    bearer: str | None = None
    basic: Basic | None = None
    api_key: ApiKey | None = None


class Status(Options, frozen=True, forbid_unknown_fields=True):
    """What a status means: that all is well, or an error in words of your own."""

    ok: bool = False
    error: str = ToolFailed.code
    message: str | None = None
    effects: Outcome | None = None
    retryable: bool | None = None


class Response(Options, frozen=True, forbid_unknown_fields=True):
    """What becomes of the answer."""

    pointer: str | None = None
    shape: Literal["auto", "json", "text", "lines", "events", "bytes", "headers"] = msgspec.field(
        default="auto", name="as"
    )
    max_bytes: int | None = None


class HttpBinding(Options, frozen=True):
    """The binding as a spec writes it."""

    url: str
    method: Method = "GET"
    path: Mapping[str, Written] = {}
    query: Entries | None = None
    headers: Mapping[str, Written] = {}
    cookies: Mapping[str, Written] = {}
    body: Body | None = None
    auth: Auth | tuple[Auth, ...] | None = None
    response: Response = Response()
    errors: Mapping[str, str | Status] = {}
    redirects: int = 5
    key_header: str | None = None


class Slot(msgspec.Struct, frozen=True):
    """A value on its way: the name it has on the wire, its text, and how it is written."""

    wire: str
    text: Text | int | float | bool
    entry: Entry
    style: Style
    explode: bool


class Content(msgspec.Struct, frozen=True):
    """A body as it is used; ``tree`` is for JSON, ``slots`` for forms, ``text`` for the rest."""

    kind: Literal["json", "form", "multipart", "text", "bytes"]
    type: str | None
    optional: bool
    tree: Tree = None
    slots: tuple[Slot, ...] = ()
    text: Text | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The binding as it is used: everything in it has been looked at."""

    method: Method
    origin: Url
    path: tuple[str | Slot, ...]
    query: tuple[Slot, ...]
    headers: tuple[Slot, ...]
    cookies: tuple[Slot, ...]
    body: Content | None
    auth: tuple[Auth, ...]
    meanings: Mapping[str, Status]
    rest: Literal["query", "json"] | None
    """Where arguments go that have no place of their own."""
    placed: frozenset[str]
    """The parameters that have one."""
    key_header: str | None
    binding: HttpBinding


def verify(spec: ToolSpec) -> None:
    """Refuse what can be seen to be wrong without looking at the network."""
    endpoint_of(spec)


def endpoint_of(spec: ToolSpec) -> Endpoint:
    """The endpoint of a spec, or ``InvalidSpec`` that knows its place."""
    if spec.isolation not in (None, "inline"):
        message = f"{spec.name!r} runs elsewhere: an HTTP tool has no isolation of its own"
        raise InvalidSpec(message, at=("isolation",))
    try:
        binding = options_from(spec.binding, HttpBinding, f"the binding of {spec.name!r}")
    except ConfigError as fault:
        _refuse(fault.message, *fault.at)
    return _Reading(spec, binding).endpoint()


class _Reading:
    """Reads one binding, and notes which parameters found a place."""

    def __init__(self, spec: ToolSpec, binding: HttpBinding) -> None:
        self._spec, self._binding = spec, binding
        self._parameters = Parameters(spec.input_schema)

    def endpoint(self) -> Endpoint:
        binding = self._binding
        url, path, written_query = self._url()
        auth = binding.auth if isinstance(binding.auth, tuple) else (binding.auth,)
        auth = tuple(one for one in auth if one is not None)
        for number, one in enumerate(auth):
            _verify_auth(one, url, self._spec, number if isinstance(binding.auth, tuple) else None)
        query = (*written_query, *self._slots("query", binding.query or {}))
        _verify_unique(query)
        body = None if binding.body is None else self._body(binding.body)
        headers = self._slots("headers", binding.headers)
        cookies = self._slots("cookies", binding.cookies)
        _verify_answer(binding)
        rest: Literal["query", "json"] | None = None
        if binding.query is None and body is None:
            rest = "query" if binding.method in _QUERY_METHODS else "json"
        slots = (*(one for one in path if isinstance(one, Slot)), *query, *headers, *cookies)
        placed = frozenset(_names(slots, body))
        if rest is None:
            self._verify_placed(placed)
        return Endpoint(
            method=binding.method,
            origin=url,
            path=path,
            query=query,
            headers=headers,
            cookies=cookies,
            body=body,
            auth=auth,
            meanings={key: _meaning(key, one) for key, one in binding.errors.items()},
            rest=rest,
            placed=placed,
            key_header=_key_header(self._spec, binding),
            binding=binding,
        )

    def _url(self) -> tuple[Url, tuple[str | Slot, ...], tuple[Slot, ...]]:
        written, at = self._binding.url, ("binding", "url")
        head, _, query = written.partition("?")
        scheme, _, rest = head.partition("://")
        authority, slash, path = rest.partition("/")
        if "{" in scheme + authority:
            refuse("the host cannot come from a parameter: write it out", at)
        if "#" in written:
            refuse("what stands behind a '#' is never sent: leave it out", at)
        try:
            url = url_from(f"{scheme}://{authority}/")
        except Refused as fault:
            refuse(str(fault), at)
        try:
            Granted((*self._spec.egress, "*")).verify(url.host, url.port)
        except Refused as fault:
            refuse(f"{fault}: if it is meant, add {url.authority!r} to 'egress'", at)
        for name in self._binding.path:
            if f"{{{name}}}" not in path:
                _refuse(f"the url has no {{{short(name)}}}", "path", name)
        return url, self._path(slash + path or "/", at), self._written_query(query, at)

    def _path(self, written: str, at: Place) -> tuple[str | Slot, ...]:
        entries = {**self._binding.path}
        pieces: list[str | Slot] = []
        if {".", ".."} & set(written.split("/")):
            refuse("a path has no '.' or '..' in it", at)
        # the holes of a path are names of its own: 'path' may say which parameters they are
        for piece in pieces_of(written, at):
            if isinstance(piece, Hole):
                entry = entries.get(piece.name, f"{{{piece.name}}}")
                where = ("binding", "path", piece.name) if piece.name in entries else at
                pieces.append(self._slot("path", piece.name, entry, where))
            else:
                pieces.append(quote(piece, safe=_PATH))
        return tuple(pieces)

    def _written_query(self, query: str, at: Place) -> tuple[Slot, ...]:
        pairs = parse_qsl(query, keep_blank_values=True)
        return tuple(self._slot("query", name, value, at) for name, value in pairs)

    def _slots(self, where: str, entries: Entries, *at: str) -> tuple[Slot, ...]:
        if where in ("headers", "cookies"):
            _verify_names(where, entries)
        place = ("binding", *(at or (where,)))
        return tuple(self._slot(where, wire, one, (*place, wire)) for wire, one in entries.items())

    def _slot(self, where: str, wire: str, written: Written, at: Place) -> Slot:
        entry = written if isinstance(written, Entry) else Entry(value=written)
        style = entry.style or STYLES[where][0]
        if style not in STYLES[where]:
            refuse(f"here a style is one of {', '.join(STYLES[where])}", (*at, "style"))
        for field in ("base64", "filename", "type"):
            if where != "multipart" and getattr(entry, field):
                refuse(f"{field!r} is for the parts of a multipart body", (*at, field))
        if entry.type is not None and not _TYPE.fullmatch(entry.type):
            refuse(f"{short(entry.type)!r} is no media type", (*at, "type"))
        value = entry.value
        text = self._parameters.text(value, at) if isinstance(value, str) else value
        explode = style == "form" if entry.explode is None else entry.explode
        return Slot(wire, text, entry, style, explode or style == "deepObject")

    def _body(self, body: Body) -> Content:
        kinds = ("json", "form", "multipart", "text", "bytes")
        given = [name for name in kinds if getattr(body, name) is not _NOT_SAID[name]]
        if len(given) != 1:
            _refuse("a body is one of json, form, multipart, text and bytes", "body")
        if body.type is not None and not _TYPE.fullmatch(body.type):
            _refuse(f"{short(body.type)!r} is no media type", "body", "type")
        kind, at = given[0], ("binding", "body", given[0])
        if kind == "json":
            tree = self._parameters.tree(body.json, at)
            return Content("json", body.type or "application/json", body.optional, tree=tree)
        if kind in ("form", "multipart"):
            if body.type is not None:
                _refuse(f"the type of a {kind} body is its own", "body", "type")
            slots = self._slots(kind, getattr(body, kind), "body", kind)
            form = "application/x-www-form-urlencoded" if kind == "form" else None
            return Content(kind, form, body.optional, slots=slots)  # type: ignore[arg-type]
        text = self._parameters.text(getattr(body, kind), at)
        plain = "text/plain; charset=utf-8" if kind == "text" else "application/octet-stream"
        return Content(kind, body.type or plain, body.optional, text=text)  # type: ignore[arg-type]

    def _verify_placed(self, placed: frozenset[str]) -> None:
        for name in self._spec.input_schema.get("properties") or {}:
            if name not in placed:
                _refuse(
                    f"the parameter {short(name)!r} goes nowhere: use {{{short(name)}}} in url, "
                    "query, headers, cookies or body"
                )


def _names(slots: tuple[Slot, ...], body: Content | None) -> Iterator[str]:
    inside = () if body is None else body.slots
    for slot in (*slots, *inside):
        if isinstance(slot.text, Text):
            yield from slot.text.names
    if body is not None:
        yield from names_in(body.tree)
        yield from () if body.text is None else body.text.names


def _verify_unique(query: tuple[Slot, ...]) -> None:
    wires = [slot.wire for slot in query]
    for wire in wires:
        if wires.count(wire) > 1:
            _refuse(f"{short(wire)!r} stands in the query twice", "query")


def _verify_names(where: str, entries: Entries) -> None:
    for name, written in entries.items():
        if not _TOKEN.fullmatch(name):
            _refuse(f"{short(name)!r} is no name for {where}", where, name)
        if where == "headers" and (instead := _NOT_YOURS.get(name.lower())):
            _refuse(f"a spec does not set the header {name}: {instead}", where, name)
        value = written.value if isinstance(written, Entry) else written
        if isinstance(value, str) and re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
            _refuse("a control character cannot be sent in a header", where, name)


def _verify_auth(auth: Auth, url: Url, spec: ToolSpec, number: int | None) -> None:
    at: tuple[str | int, ...] = ("auth",) if number is None else ("auth", number)
    if [auth.bearer, auth.basic, auth.api_key].count(None) != 2:
        _refuse("auth is one of bearer, basic and api_key", *at)
    names = {"bearer": auth.bearer}
    if auth.basic is not None:
        if (auth.basic.user is None) == (auth.basic.user_secret is None):
            _refuse("basic has a user, or the name of its secret as user_secret", *at, "basic")
        names = {"user_secret": auth.basic.user_secret, "password": auth.basic.password}
    if (key := auth.api_key) is not None:
        names = {"secret": key.secret}
        if not key.name or (key.where != "query" and not _TOKEN.fullmatch(key.name)):
            _refuse(f"{short(key.name)!r} is no name for a {key.where}", *at, "api_key", "name")
        reason = _NOT_YOURS.get(key.name.lower(), "").startswith("it belongs")
        if key.where == "header" and reason:
            _refuse(f"a key cannot travel as {key.name}", *at, "api_key", "name")
    for field, name in names.items():
        if name is not None and not _SECRET.fullmatch(name):
            _refuse(f"{field}: the name of a secret is that of a variable, as API_TOKEN", *at)
    if url.scheme == "http" and not Granted(spec.egress).names(url.host, url.port):
        _refuse(
            "with http a secret would travel in the clear: use https, or add "
            f"{url.authority!r} to 'egress'",
            "url",
        )


def _verify_answer(binding: HttpBinding) -> None:
    pointer, shape = binding.response.pointer, binding.response.shape
    if pointer is not None:
        if pointer and not pointer.startswith("/"):
            _refuse("a pointer begins with '/': /data/items", "response", "pointer")
        if shape not in ("auto", "json"):
            _refuse("a pointer leads into JSON: leave 'as' out", "response", "pointer")
    if binding.response.max_bytes is not None and binding.response.max_bytes < 1:
        _refuse("max_bytes must be at least 1", "response", "max_bytes")
    if not 0 <= binding.redirects <= 20:
        _refuse("redirects must be 0 to 20", "redirects")


def _meaning(key: str, written: str | Status) -> Status:
    if not _STATUS.fullmatch(key):
        _refuse(
            f'{short(key)!r} is no status: write "404", or "4xx" for all of them', "errors", key
        )
    meaning = Status(error=written) if isinstance(written, str) else written
    if meaning.error not in SAYABLE:
        hint = nearest(meaning.error, SAYABLE) or f"; use one of {', '.join(sorted(SAYABLE))}"
        _refuse(f"an answer cannot mean {short(meaning.error)!r}{hint}", "errors", key)
    return meaning


def _key_header(spec: ToolSpec, binding: HttpBinding) -> str | None:
    name = binding.key_header
    if name is None:
        honours = spec.retry is not None and spec.retry.honours_key
        return "Idempotency-Key" if honours else None
    if not _TOKEN.fullmatch(name) or name.lower() in _NOT_YOURS:
        _refuse(f"{short(name)!r} is no name for a header of yours", "key_header")
    return name


def _refuse(message: str, *at: str | int) -> NoReturn:
    raise InvalidSpec(message, at=("binding", *at))
