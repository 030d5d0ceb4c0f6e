"""Bad JSON of every sort, and texts that others stumble over: equal data, or a reason why not."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.gateway_tools import ALL
from tests.gateway.running import Running, serving
from toolpost.gateway.bodies import json_of
from toolpost.gateway.problems import Refused

JSON = {b"content-type": b"application/json"}


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("bodies"), *ALL) as running:
        yield running


BAD = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[]",
    b"null",
    b"true",
    b'"text"',
    b"12",
    b"{'arguments': {}}",
    b'{"arguments": {},}',
    b'{"arguments": {}} {}',
    b'{"arguments": {"value": NaN}}',
    b'{"arguments": {"value": Infinity}}',
    b'{"arguments": {"value": -Infinity}}',
    b'{"arguments": {"value": 1e999}}',
    b'{"arguments": {"value": 01}}',
    b'{"arguments": {"value": .5}}',
    b'{"arguments": {"value": 0x10}}',
    b'{"arguments": {"value": "\\ud800"}}',
    b'{"arguments": {"value": "\\udfff\\ud800"}}',
    b'{"arguments": {"value": "\xed\xa0\x80"}}',
    b'{"arguments": {"value": "\xff"}}',
    b'{"arguments": {"value": "\x00"}}',
    b'{"arguments": {"value": "a\nb"}}',
    b'{"arguments": {"value": "\\x41"}}',
    b'{"arguments": {"value": 1, "value": 2}}',
    b'{"arguments": {"value": {"a": [{"b": 1, "b": 2}]}}}',
    b'{"arguments": {"value" : 1, "value": ":"}}',
    b'{"arguments": {}, "arguments": {"value": 1}}',
    b'{"arguments": {"value": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
    b'{"a":' * 20_000,
    b"[" * 100_000,
    b'{"arguments": {"value": ' + b"9" * 5000 + b"}}",
    b"\xef\xbb\xbf" + b'{"arguments": {}}',
    '{"arguments": {}}'.encode("utf-16"),
    b'{"arguments": {} // comment\n}',
    b"arguments=1&value=2",
    b"<xml/>",
    b"\x1f\x8b\x08\x00\x00",
]


@pytest.mark.anyio
@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
async def test_a_body_that_is_no_call_is_refused_with_the_reason(
    served: Running, body: bytes
) -> None:
    for path in ("/v1/tools/echo:call", "/v1/tools/echo:plan"):
        answer = await served.post(path, body)
        assert 400 <= answer.status < 500
        assert answer.data["detail"]
        assert answer.headers["content-type"] == "application/problem+json"
    assert (await served.call("add", {"a": 1, "b": 2})).data["output"] == 3


NAUGHTY: list[Any] = [
    "",
    "\u0000",
    "\u0001\u001b[31m\u007f",
    "undefined",
    "NULL",
    "'; DROP TABLE users; --",
    "<script>alert(1)</script>",
    "../../../../etc/passwd",
    "$(touch /tmp/x) `id` ${HOME} %s %n {0} {{7*7}}",
    "\u202e\u2066\ufeff\u200b\u00ad",
    "Ω≈ç√∫˜µ≤≥÷ 田中さん 🏳️‍🌈 👩🏽",
    "ﷺ" * 50,
    "\U000e0041\U0010ffff\ufffe",
    "a" * 50_000,
    'https://example.com/?a=b:c&d={"e":1}',
    '": {"value": 1}',
    '\\":',
    "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    0,
    -0.0,
    1e-320,
    1.7976931348623157e308,
    2**53 + 1,
    2**64,
    -(10**300),
    10**4000,
    [],
    {},
    {"": {"": [None, True, False]}},
    {"__proto__": {"constructor": 1}, "a:b": ":"},
    [[[[[[[[[[1]]]]]]]]]],
    None,
]


@pytest.mark.anyio
@pytest.mark.parametrize("value", NAUGHTY, ids=range(len(NAUGHTY)))
async def test_what_is_json_comes_back_as_it_was(served: Running, value: Any) -> None:
    for ascii_only in (True, False):
        body = json.dumps({"arguments": {"value": value}}, ensure_ascii=ascii_only).encode()
        answer = await served.post("/v1/tools/echo:call", body)
        if answer.status != 200:
            assert 400 <= answer.status < 500
            assert answer.data["detail"]
            continue
        back = json.loads(answer.body)["output"]
        assert back == value
        assert repr(back) == repr(value)
    for names in ({"session_id": value}, {"phase": value}, {"grant": value}):
        assert (await served.post("/v1/tools/echo:call", {"arguments": {}, **names})).status < 500
    text = value if isinstance(value, str) else json.dumps(value)
    quoted = "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))[:6000]
    for path in (f"/v1/tools/{quoted}", f"/v1/audit/{quoted}", f"/v1/tools?kind={quoted}"):
        assert (await served.get(path)).status < 500
    assert (await served.ask("DELETE", f"/v1/calls/{quoted}")).status < 500
    assert (await served.post(f"/v1/tools/{quoted}:call", {"arguments": {}})).status < 500


@pytest.mark.anyio
async def test_after_all_of_that_the_audit_is_whole(served: Running) -> None:
    for value in NAUGHTY[:12]:
        await served.call("pay", {"amount": 1, "more": value}, session_id="s")
    assert (await served.post("/v1/audit:verify", {})).data["ok"] is True


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@settings(max_examples=200)
@given(_PLAIN, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]), st.booleans())
def test_the_reader_reads_what_a_writer_wrote(
    data: Any, separators: tuple[str, str], ascii_only: bool
) -> None:
    try:
        body = json.dumps(data, separators=separators, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return  # half a pair, which no UTF-8 has
    try:
        read = json_of(JSON, body)
    except Refused as refused:
        assert any(word in refused.message for word in ("surrogate", "levels deep", "digits"))
        return
    assert read == data
    assert not isinstance(data, float) or math.copysign(1, read) == math.copysign(1, data)


@pytest.mark.parametrize(("most", "body"), [(640, b'{"a": -%b}'), (63, b'{"a": %b}')])
def test_what_is_longer_or_deeper_than_it_says_is_refused_with_its_place(
    most: int, body: bytes
) -> None:
    def given(size: int) -> bytes:
        return body % (b"1" * size if most == 640 else b"[" * size + b"]" * size)

    json_of(JSON, given(most))
    with pytest.raises(Refused, match=r"body:1:\d+: "):
        json_of(JSON, given(most + 1))


@settings(max_examples=200)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1), st.data())
def test_a_key_that_is_there_twice_is_found_wherever_it_is(
    data: dict[str, str], more: st.DataObject
) -> None:
    pairs = list(data.items())
    pairs.insert(more.draw(st.integers(0, len(pairs))), more.draw(st.sampled_from(pairs)))
    gap = more.draw(st.sampled_from(["", " ", "\n "]))
    inner = ",".join(f"{json.dumps(k)}{gap}:{json.dumps(v)}" for k, v in pairs)
    with pytest.raises(Refused):
        json_of(JSON, f'{{"arguments": [{{{inner}}}]}}'.encode("utf-8", "surrogatepass"))
