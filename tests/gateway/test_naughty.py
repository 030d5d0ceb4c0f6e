"""Bad JSON of every sort and texts that others stumble over, sent to ``toolpost serve``: a 2xx with
equal data or a 4xx that says why, never a 5xx; and an audit that is whole afterwards."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.gateway.program import CONFIG, Program, program
from tests.gateway.running import Answer, answer_from, request

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

MORE = """
[extensions.artifacts]
soft = 3000000
"""


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Program]:
    async with program(tmp_path_factory.mktemp("naughty"), config=CONFIG + MORE) as made:
        yield made


# --- what is no JSON -----------------------------------------------------------------------------

VALUES = [
    # numbers that are none
    *(
        "+1",
        "-",
        "-01",
        "01",
        "1.",
        ".1",
        "-.1",
        "1e",
        "1e+",
        "1.e1",
        "0e",
        "1eE2",
        "0x1F",
        "1_000",
    ),
    *(
        "NaN",
        "nan",
        "-NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "1/2",
        "１",
        "- 1",
        "1 000",
        "--1",
        "++1",
    ),
    *("1e999", "-1e999", "1e99999999999999999999", "0.1.2", "1a", "1-", "0b1", "1f", "1n"),
    # words that are none
    *(
        "nul",
        "nulll",
        "tru",
        "True",
        "None",
        "undefined",
        "fals",
        "FALSE",
        "truefalse",
        "null null",
    ),
    # texts that are none
    *('"', '"abc', "'abc'", "`abc`", '"\\"', '"\\x41"', '"\\u12"', '"\\u"', '"\\uZZZZ"', '"\\a"'),
    *('"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"\\ud800\\"', '"\\U0001F600"', '"a\nb"'),
    *('"a\tb"', '"\x00"', '"\x1f"', '"a" "b"', '"a"b', '"\\', "\\u0022a\\u0022", "“a”"),
    # lists and objects that are none
    *("[", "]", "[1", "[1,", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1;2]", "(1)", "[1}", "{1]"),
    *("{", "}", '{"a"}', '{"a":}', '{"a":1', '{"a":1,}', '{,"a":1}', '{"a" 1}', "{a:1}", "{'a':1}"),
    *("{1:1}", '{"a"::1}', '{"a":1 "b":2}', '{"a":1,,"b":2}', '{"a":1;"b":2}', "{null:1}", "{:1}"),
    *(
        '{"a":1,"a":1}',
        '{"a":1,"\\u0061":2}',
        '{"b":{"a":[{"x":1,"x":{}}]}}',
        '{"a":1,"b":2,"a":3}',
    ),
    # what stands around it, and what other formats have
    *("", " ", "/**/1", "1//", "# 1\n1", "1;", "1,", ",1", "<1>", "!1", "&a 1", "- 1\n- 2", "a: 1"),
    *("\ufeff1", "\u00a01", "\u20281", "\x0b1", "\x0c1", "\u200b1", "1\u0000", "@1", "$1", "*"),
]
"""Put where a value belongs; whoever reads on after an error, or mends it, takes some of these."""


def around(value: bytes) -> bytes:
    return b'{"arguments": {"value": ' + value + b"}}"


WHOLE: list[bytes] = [
    *(b"", b" ", b"\n", b"null", b"true", b"1", b'""', b"[]", b"[{}]", b'"{}"', b"{", b"{}}"),
    b"{} {}",
    *(b"{}\x00", b"\x00{}", b"{}garbage", b"{},", b"{}]", b"{}//", b"\xef\xbb\xbf{}"),
    b"\xff\xfe{\0}\0",
    *("{}".encode("utf-16"), "{}".encode("utf-16-be"), "{}".encode("utf-32"), b"\xc0\x80{}"),
    *(around(b'"' + bad + b'"') for bad in (
        *(b"\xff", b"\xfe", b"\x80", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf"),
        *(b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"),
        b"\xe0\x80\xaf",
    )),
    around(b"1")[:-1],
    *(around(b'"a\\u00e9"')[:end] for end in range(1, 35, 3)),
    around(b"1") * 2,
    b'{"arguments": {}, "arguments": {"value": 1}}',
    b'{"arguments": {}, "\\u0061rguments": {"value": 1}}',
    b'{"arguments": {"value": 1}, "Arguments": {}}',
    b'{"arguments": {"value": 1}, "__proto__": {}}',
    b'{"arguments": "{}"}', b'{"arguments": [["value", 1]]}', b'{"arguments": null}',
    b'{"": {}}', b'{"value": 1}',
    b'{"arguments": {"value": 1, "other": 2}}',
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00", b"\x00" * 1000, b"PK\x03\x04", bytes(range(256)),
    b"arguments=1&value=2", b"<arguments/>", b"arguments:\n  value: 1\n", b"--x\r\n\r\n{}\r\n--x--",
]  # fmt: skip

BOMBS = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'[{"":' * 50_000,
    around(b"[" * 2000 + b"]" * 2000),
    around(b'{"a":' * 500 + b"1" + b"}" * 500),
    around(b"9" * 1_000_000),
    around(b"0." + b"3" * 1_000_000),
    around(b"1e" + b"9" * 100_000),
    around(b"[" + b"1e400," * 50_000 + b"0]"),
    b'{"arguments": {' + b",".join(b'"k%d":0' % n for n in range(100_000)) + b"}}",
    b'{"arguments": {"value": {' + b",".join(b'"a":0' for _ in range(50_000)) + b"}}}",
    around(b'"' + b"\\ud800" * 100_000 + b'"'),
    around(b'"' + b"x" * 5_000_000 + b'"'),
    around(b'"' + b"\\" * 1_000_001 + b'"'),
    b" " * 5_000_000 + b"{}",
    b'{"arguments"' + b" " * 1_000_000 + b'": {}}',
]
"""Small to send, and dear to read for whoever is not careful."""


async def all_posted(served: Program, path: str, bodies: Sequence[bytes]) -> list[Answer]:
    """On a few connections, one after the other; a body that is too large ends its connection."""
    found: dict[int, Answer] = {}
    todo = iter(enumerate(bodies))
    headers = {"host": f"127.0.0.1:{served.port}", "content-type": "application/json"}

    async def some() -> None:
        for number, body in todo:
            reader, writer = await asyncio.open_connection(served.host, served.port)
            try:
                writer.write(request("POST", path, body, headers))
                async with asyncio.timeout(60):
                    found[number] = await answer_from(reader)
            finally:
                writer.close()

    await asyncio.gather(*(some() for _ in range(8)))
    return [found[number] for number in range(len(bodies))]


def refused(answer: Answer, body: bytes) -> None:
    shown = (body[:80], answer)
    assert answer.headers["content-type"] == "application/problem+json", shown
    assert answer.status in (400, 403, 413, 422), shown
    assert len(answer.data["detail"]) > 10, shown
    assert len(answer.body) < 5000, "it says why, and does not say it all again"


@pytest.mark.parametrize("verb", ["call", "plan"])
async def test_what_is_no_json_is_refused_with_the_reason(served: Program, verb: str) -> None:
    bodies = [around(value.encode("utf-8", "surrogatepass")) for value in VALUES] + WHOLE
    answers = await all_posted(served, f"/v1/tools/echo:{verb}", bodies)
    for body, answer in zip(bodies, answers, strict=True):
        refused(answer, body)


async def test_attack_a_bomb_of_json_is_refused_and_harms_nobody(served: Program) -> None:
    bombs = asyncio.create_task(all_posted(served, "/v1/tools/echo:call", BOMBS))
    meanwhile = 0
    while not bombs.done():
        assert (await served.call("echo", {"value": meanwhile})).data["output"] == meanwhile
        meanwhile += 1
    for body, answer in zip(BOMBS, await bombs, strict=True):
        if answer.status == 200:  # many digits are a number all the same
            assert same(answer.data["output"], json.loads(body)["arguments"]["value"])
        else:
            refused(answer, body)


async def test_every_door_that_reads_json_reads_it_as_strictly(served: Program) -> None:
    bad = [
        b"{",
        b'{"a":1,"a":2}',
        b'{"reason": NaN}',
        b"\xff",
        b"[" * 1000,
        b'{"reason": "\\ud800"}',
    ]
    handle = "ap-0123456789abcdef0123"
    for path in (f"/v1/approvals/{handle}:approve", f"/v1/approvals/{handle}:deny", "/mcp"):
        for body, answer in zip(bad, await all_posted(served, path, bad), strict=True):
            assert 400 <= answer.status < 500, (path, body, answer)


# --- what is JSON --------------------------------------------------------------------------------

TEXTS = [
    # what stands for nothing somewhere
    *(
        "",
        " ",
        "\t\n\r",
        "null",
        "NULL",
        "nil",
        "None",
        "undefined",
        "NaN",
        "Infinity",
        "true",
        "0",
    ),
    *(
        "-1",
        "1e1000",
        "0x0",
        "1/0",
        "1,000.00",
        "\\",
        "\\\\",
        "/",
        '"',
        "'",
        "`",
        '""',
        "''",
        "\\n",
    ),
    # control characters, and what a terminal obeys
    *(
        "\x00",
        "a\x00b",
        "\x01\x02\x03",
        "\x1b[31mred\x1b[0m",
        "\x1b]8;;http://evil\x07x\x1b]8;;\x07",
    ),
    *(
        "\x7f",
        "\x80\x9f",
        "\r\n\r\n",
        "a\rb",
        "\x08\x08",
        "\x1a",
        "\u0085",
        "\u2028\u2029",
        "\x0b\x0c",
    ),
    # what is not seen, or turns the rest around
    *("\u200b\u200c\u200d", "\ufeff", "\u00ad", "\u202eevil\u202c", "\u2066x\u2069", "\u061c"),
    *("\u180e", "\U000e0001\U000e0041", "\u034f", "\ufff9a\ufffab\ufffb", "\ufffc\ufffd", "\u2800"),
    # characters of every length, and none
    *("é", "e\u0301", "ß", "ﬀ", "İ", "ı", "Ω", "Å", "Å", "田中さん", "사회", "ไม่", "مرحبا", "שלום"),
    *(
        "😀",
        "👩🏽‍🚀",
        "🏳️‍🌈",
        "🇩🇪",
        "\U0001f1e6",
        "\ufffe",
        "\uffff",
        "\U0010ffff",
        "\ud7ff",
        "\ue000",
    ),
    *("Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "ｆｕｌｌ", "𝒻𝒶𝓃𝒸𝓎", "ⅷ", "½", "ᴀ", "\u0300", "ꙮ", "𒐫", "﷽"),
    # what somebody might run
    *(
        "'; DROP TABLE jobs; --",
        "1' OR '1'='1",
        '" or ""="',
        "%27",
        "1;SELECT pg_sleep(9)",
        "LIKE '%'",
    ),
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</textarea>", "&lt;", "&#0;"),
    *(
        "javascript:alert(1)",
        "data:text/html,x",
        "<!--",
        "]]>",
        "<?xml version='1.0'?>",
        "<!ENTITY x>",
    ),
    *(
        "$(id)",
        "`id`",
        "; id",
        "| id",
        "&& id",
        "> x",
        "${HOME}",
        "$HOME",
        "%PATH%",
        "!!",
        "~",
        "*",
    ),
    *("-rf", "--help", "@file", "{0}", "{}", "%s%n%x", "{{7*7}}", "${7*7}", "#{7*7}", "<%= 7 %>"),
    *(
        "../../etc/passwd",
        "..\\..\\x",
        "/dev/null",
        "file:///etc/passwd",
        "\\\\host\\x",
        "CON",
        "C:\\",
    ),
    *(
        "${jndi:ldap://x}",
        "__class__",
        "__proto__",
        "constructor",
        "__import__('os')",
        "() { :; };",
    ),
    # what looks like ours
    *('{"arguments": {}}', "event: result\ndata: {}\n\n", "HTTP/1.1 200 OK\r\n\r\n", "data: x\n\n"),
    *(
        "toolpost://artifacts/ar-1",
        "ap-0123456789abcdef0123",
        "[external data]",
        "[REDACTED]",
        "***",
    ),
    # long
    *("a" * 100_000, "ä" * 50_000, "😀" * 30_000, "\x00" * 20_000, '"' * 50_000, "\\" * 50_000),
    *("\n" * 50_000, "<" * 50_000, "a\u0301" * 20_000, "\u202e" * 10_000, "x " * 50_000),
]
DATA: list[Any] = [
    *(0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e21, 2**53, 2**53 + 1, 2**63, -(2**63) - 1),
    *(
        2**64,
        10**100,
        -(10**300),
        [],
        {},
        [[]],
        [{}],
        {"": ""},
        {"": {"": None}},
        [None, True, False],
    ),
    {"__proto__": {"x": 1}, "constructor": 1, "toString": None, "hasOwnProperty": []},
    {text[:50]: text[:50] for text in TEXTS},
    [text[:20] for text in TEXTS],
    {"a": {"b": [{"c": [[["d"]]]}]}},
    json.loads("[" * 50 + "]" * 50),
    list(range(10_000)),
    {f"k{n}": n for n in range(2000)},
]


def same(one: Any, other: Any) -> bool:
    """Of the same type, to the last digit and the sign of nothing."""
    return one == other and json.dumps(one) == json.dumps(other)


async def test_what_is_json_comes_back_equal_however_it_is_written(served: Program) -> None:
    values = TEXTS + DATA
    for ascii_only in (True, False):
        bodies = [
            json.dumps({"arguments": {"value": value}}, ensure_ascii=ascii_only).encode()
            for value in values
        ]
        answers = await all_posted(served, "/v1/tools/echo:call", bodies)
        for value, answer in zip(values, answers, strict=True):
            assert answer.status == 200, (str(value)[:80], answer.body[:300])
            assert same(json.loads(answer.body)["output"], value), str(value)[:80]


async def test_naughty_texts_anywhere_else_are_taken_or_refused_with_the_reason(
    served: Program,
) -> None:
    short = [text for text in TEXTS if len(text) < 300]
    bodies = [
        json.dumps(body).encode()
        for text in short
        for body in (
            {"arguments": {text: 1}},
            {"arguments": {}, "session_id": text},
            {"arguments": {}, "phase": text},
            {"arguments": {}, "grant": text},
            {text: {}},
        )
    ]
    codes = Counter[int]()
    for path in ("/v1/tools/echo:call", "/v1/tools/pay:call"):
        for body, answer in zip(bodies, await all_posted(served, path, bodies), strict=True):
            codes[answer.status] += 1
            if answer.status != 200:
                refused(answer, body)
    assert codes[200] and codes[422], codes
    for text in short:
        quoted = "".join(f"%{byte:02x}" for byte in text.encode())
        for method, path in (
            ("POST", f"/v1/tools/{quoted}:call"),
            ("GET", f"/v1/tools/{quoted}"),
            ("GET", f"/v1/tools?after={quoted}"),
            ("GET", f"/v1/jobs/{quoted}"),
        ):
            body = b'{"arguments": {}}' if method == "POST" else None
            kind = {"content-type": "application/json"}
            assert (await served.ask(method, path, body, kind)).status < 500, (method, text)


async def test_afterwards_the_audit_is_whole_and_every_line_of_it_is_valid(served: Program) -> None:
    """By the program itself, in another process."""
    for number, text in enumerate(TEXTS):
        key = {"idempotency-key": f"naughty {number}"}
        answer = await served.call("pay", {"to": text[:2000]}, key, session_id=f"s{number}")
        assert (answer.status, answer.data["output"]) == (200, f"paid {text[:2000]}")
    words = [sys.executable, "-m", "toolpost.cli.main", "audit"]
    for more in (["verify"], ["search", "--json", "--tool", "pay"]):
        ran = await asyncio.to_thread(
            subprocess.run, [*words, *more], cwd=served.folder, capture_output=True, timeout=60
        )
        assert ran.returncode == 0, ran
        if "--json" in more:
            assert ran.stdout.decode("utf-8")
    log = (served.folder / "stderr").read_bytes()
    assert b"\x1b" not in log and b"\x00" not in log
    for line in log.decode("ascii").splitlines():
        assert json.loads(line)["logger"].startswith("toolpost")
