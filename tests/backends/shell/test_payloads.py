"""Attacks on command templates: each payload is one word of the argv, byte for byte, or refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.shell.tools import SHOW, executor, schema, shell
from toolpost.backends.shell.binding import command_of
from toolpost.backends.shell.filling import argv_from
from toolpost.errors import InvalidArguments

pytestmark = pytest.mark.anyio

SYNTAX = [
    "; rm canary", ";rm canary;", "x; rm canary #", "&& rm canary", "|| rm canary", "| rm canary",
    "& rm canary &", "x & rm canary", "$(rm canary)", "x$(rm canary)y", "`rm canary`",
    "${IFS}rm${IFS}canary", ";rm${IFS}canary", "$IFS$9rm$IFS$9canary", "$((1+1))", "$HOME",
    "${HOME}", "$0", "$@", "$PATH", "$'rm canary'", "$'\\x72\\x6d canary'", "<(rm canary)",
    ">(rm canary)",
    "> canary", ">> canary", "2>&1", "< canary", "<<EOF\nrm canary\nEOF", "<<<canary", ">|canary",
    "x\nrm canary", "x\r\nrm canary", "\n", "\r", "\t", "x\x0brm canary", "x\x0crm canary",
    "'; rm canary; '", '"; rm canary; "', "'", '"', "''", '""', "\\", "\\\\", "x\\", "\\'", '\\"',
    "x' rm canary '", 'x" rm canary "', "\"'`", "a b", " ", "  a  ", "",
    "*", "canar?", "[c]anary", "{canary,x}", "{1..9}", "~", "~root", "**/*", "!rm", "!!", "^x^y",
    "(rm canary)", "{ rm canary; }", "#", "# x", "x#y", "%x", "%n%n%s", "x=1 rm canary", ":", "!",
    "rm canary", "sh -c 'rm canary'", "eval rm canary", "exec rm canary",
    "if true; then rm canary; fi",
    "{path}", "{other}", "{{path}}", "{path?-rf}", "[{path}]", "...", "{", "}", "}{",
    "../canary/../x", "/etc/passwd", "../../../../etc/passwd", "file:///etc/passwd",
    "\x1b[2Jrm canary", "\x1b]0;x\x07", "\x7f", "\x01", "\ufeffx", "\u202erm canary", "\u200b",
    "\u2028rm canary", "\u0085rm canary", "\U000e0041", "é", "e\u0301", "\U0001f4a3", "\uffff",
    "‐rf", "‑rf", "‒rf", "–rf", "—rf", "―rf", "−rf", "﹣rf", "－rf", "\u00adrf", "＠file", "﹫file",
    "；rm canary", "｜rm canary", "＄(rm canary)", "｀rm canary｀",
    "a" * 5000, "; " * 2000,
]  # fmt: skip
"""What a shell, a glob, a template or a terminal would obey."""
LEADING = [
    "-rf", "-r", "-f", "--", "-", "---", "--recursive", "--no-preserve-root", "--help", "--version",
    "-rf canary", "-x\ncanary", "--flag=value", "--output=/etc/passwd", "-o/etc/passwd", "-c", "-e",
    "-exec", "-i", "-1", "-0", "--upload-pack=touch pwned", "-oProxyCommand=touch pwned",
    "--use-compress-program=touch pwned", "--checkpoint-action=exec=touch pwned", "-\u200brf",
    "-‐rf",
    "@canary", "@/etc/passwd", "@-", "@", "@@", "@~/.netrc", "@/dev/stdin", "@<(id)",
]  # fmt: skip
"""What a program would take for a flag, or for the name of a file to read."""
IMPOSSIBLE = ["\0", "x\0rm canary", "\0-rf", "\ud800", "x\udc80", "\udfff; rm canary"]
"""What no argv can hold."""

SAFE = {
    "bare": "rm {path}",
    "quoted": "rm '{path}'",
    "behind dashes": "rm -- {path}",
    "list": ["rm", "{path}"],
    "group": "rm [{path}]",
    "array": "rm -- [{paths}]",
}


def filled(command: Any, value: str) -> list[str]:
    many = {"type": "array", "items": {"type": "string"}}
    spec = shell(command, input_schema=schema("path", paths=many))
    return argv_from(command_of(spec).template, {"path": value, "paths": [value]})


def test_the_lists_are_long_enough() -> None:
    assert len(set(SYNTAX + LEADING + IMPOSSIBLE)) > 150


@pytest.mark.req("UX-7", "NA-10")
@pytest.mark.parametrize("command", SAFE.values(), ids=SAFE)
@pytest.mark.parametrize("payload", SYNTAX)
def test_syntax_is_one_word(command: Any, payload: str) -> None:
    argv = filled(command, payload)
    assert argv == ["rm", *(["--"] if "--" in command else []), payload]


@pytest.mark.req("UX-7", "NA-10")
@pytest.mark.parametrize("payload", SYNTAX)
def test_syntax_stays_inside_the_word_it_is_put_into(payload: str) -> None:
    assert filled("ls --out={path} x", payload) == ["ls", f"--out={payload}", "x"]
    assert filled("ls 'a {path} b'", payload) == ["ls", f"a {payload} b"]


@pytest.mark.req("UX-7", "NA-10")
@pytest.mark.parametrize("payload", LEADING)
def test_a_flag_or_a_file_is_refused_or_behind_dashes(payload: str) -> None:
    for command in SAFE.values():
        if "--" in command:
            assert filled(command, payload) == ["rm", "--", payload]
        else:
            with pytest.raises(InvalidArguments, match=r"^/path: must not begin with '[-@]'"):
                filled(command, payload)


@pytest.mark.req("UX-7", "NA-10")
@pytest.mark.parametrize("command", [*SAFE.values(), "ls --out={path}"])
@pytest.mark.parametrize("payload", IMPOSSIBLE, ids=ascii)
def test_what_no_argv_can_hold_is_refused(command: Any, payload: str) -> None:
    with pytest.raises(InvalidArguments):
        filled(command, payload)


@pytest.mark.req("UX-7", "NA-10")
async def test_every_payload_reaches_a_real_program_byte_for_byte() -> None:
    payloads = SYNTAX + LEADING
    many = {"type": "array", "items": {"type": "string"}}
    spec = shell(
        [*SHOW, ["{words}"]], input_schema=schema(words=many), allow_leading={"words": "-@"}
    )
    async with executor(spec) as tools, asyncio.timeout(60):
        result = await tools.execute("it", {"words": payloads})
    assert result.output is not None, result.error
    assert result.output.split("\0") == [*payloads, ""]


@pytest.mark.req("UX-7")
def test_any_text_arrives_byte_for_byte_as_one_word() -> None:
    words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    many = {"type": "array", "items": {"type": "string"}}
    spec = shell(
        [*SHOW, "{one}", ["{many}"]],
        input_schema=schema("one", many=many),
        allow_leading={"one": "-@", "many": "-@"},
    )

    async def run(one: str, more: list[str]) -> Any:
        async with executor(spec) as tools, asyncio.timeout(60):
            return (await tools.execute("it", {"one": one, "many": more})).output

    @settings(max_examples=40, deadline=None)
    @given(words, st.lists(words, max_size=5))
    def arrives(one: str, more: list[str]) -> None:
        assert asyncio.run(run(one, more)).encode().split(b"\0") == [
            word.encode() for word in (one, *more, "")
        ]

    arrives()
