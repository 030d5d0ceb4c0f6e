"""``classify_data``: what a text or a file is, judged by a corpus of labelled samples."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from tests.builtin.classify_corpus import WRITTEN, Labelled, corpus
from tests.builtin.log_families import FAMILIES, generated
from toolpost import Executor, FunctionTool, Registry, Runtime
from toolpost.builtin import classify
from toolpost.builtin.classify.tool import Folders, _of_bytes, classify_data

pytestmark = pytest.mark.anyio
NOWHERE = Folders(())
CORPUS = corpus()


def of_text(text: str) -> Any:
    return classify_data(text=text, folders=NOWHERE)


def of_bytes(folder: Path, data: bytes, name: str = "sample") -> Any:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / name).write_bytes(data)
    return made(folder).function(path=name, folders=_folders(folder))


def _folders(folder: Path) -> Folders:
    return msgspec.convert(made(folder).spec.binding["given"]["folders"], Folders)


def made(folder: Path) -> FunctionTool:
    (tool,) = classify.tools(classify.Settings(roots=("data",)), folder)
    return tool


def right(sample: Labelled, found: Any) -> bool:
    kind, _, form = sample.label.partition("/")
    return bool(found["kind"] == kind and form in ("", found["format"]))


@pytest.mark.req("FM-17")
def test_of_many_samples_nearly_all_are_recognized(tmp_path: Path) -> None:
    wrong = [one for one in CORPUS if not right(one, of_bytes(tmp_path, one.data))]
    assert len(CORPUS) >= 150
    assert len(wrong) / len(CORPUS) <= 0.03, [(one.label, one.name) for one in wrong]


@pytest.mark.parametrize(
    ("label", "text"), WRITTEN, ids=[f"{n} {label}" for n, (label, _) in enumerate(WRITTEN)]
)
def test_a_sample_is_recognized(label: str, text: str) -> None:
    found = of_text(text)
    assert right(Labelled(label, b""), found), found


def test_how_sure_it_is_says_something(tmp_path: Path) -> None:
    """What is right is surer than what could have been."""
    found = [of_bytes(tmp_path, one.data) for one in CORPUS]
    assert all(0 < one["confidence"] <= 1 for one in found)
    for one in found:
        assert all(other["confidence"] <= one["confidence"] for other in one["alternatives"])


# Details ---------------------------------------------------------------------------------------


def test_a_table_is_told_with_its_dialect_its_header_and_the_types_of_its_columns() -> None:
    found = of_text(
        'id;name;since;rate;ok\n1;Ada;2024-05-01;0.5;true\n2;"B;o";2025-01-31;2;false\n'
    )
    assert (found["kind"], found["format"]) == ("csv", "semicolon separated")
    details = found["details"]
    assert (details["delimiter"], details["header"], details["rows_seen"]) == (";", True, 2)
    assert [(one["name"], one["type"]) for one in details["columns"]] == [
        ("id", "integer"),
        ("name", "text"),
        ("since", "date"),
        ("rate", "number"),
        ("ok", "boolean"),
    ]


def test_a_table_without_a_header_has_none() -> None:
    found = of_text("1,2.5\n3,4.5\n5,6.5\n")
    assert found["details"]["header"] is False
    assert [one["type"] for one in found["details"]["columns"]] == ["integer", "number"]


def test_a_stack_trace_is_told_with_its_error() -> None:
    found = of_text(dict(WRITTEN)["stack_trace/java"])
    assert found["details"]["error"] == "java.io.IOException"
    assert found["suggested_tool"] == "analyze_logs"


def test_a_picture_is_told_with_its_size(tmp_path: Path) -> None:
    for one in CORPUS:
        if (
            one.label in ("image/png", "image/gif", "image/jpeg", "image/bmp")
            and "bytes" in one.name
        ):
            found = of_bytes(tmp_path, one.data)
            assert (found["details"]["width"], found["details"]["height"]) == (4, 3), one.label
            assert found["mime_type"] == one.label
            assert found["encoding"] is None


def test_a_packed_log_is_looked_into(tmp_path: Path) -> None:
    text = "\n".join(one.line for one in generated(FAMILIES[0], 3000))
    found = of_bytes(tmp_path, gzip.compress(text.encode()))
    assert (found["kind"], found["format"]) == ("archive", "gzip")
    assert found["details"]["inside"] == {"kind": "log", "format": "syslog"}
    assert found["suggested_tool"] == "analyze_logs"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_told(tmp_path: Path, encoding: str) -> None:
    text = "name: Café\nplace: Köln\nlist:\n  - ä\n"
    found = of_bytes(tmp_path, text.encode(encoding))
    assert found["kind"] == "yaml"
    assert found["encoding"] == {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}.get(
        encoding, encoding
    )
    assert found["lines"] == 4


def test_a_name_helps_where_the_text_says_little(tmp_path: Path) -> None:
    assert of_bytes(tmp_path, b"greet world\nleave world\n", "a.rb")["kind"] == "source_code"
    assert of_bytes(tmp_path, b'{"a": 1}', "a.py")["kind"] == "json"


# Secrets and personal data ---------------------------------------------------------------------


def test_secrets_and_personal_data_are_told_by_kind_and_never_shown() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    found = of_text(
        f"# notes\nname: x\ntoken: {secret}\nmail: ada@example.com\nmail2: bo@example.com\n"
    )
    assert [one["first_line"] for one in found["sensitive"]["secrets"]] == [3]
    (mail,) = found["sensitive"]["personal_data"]
    assert (mail["kind"], mail["count"], mail["first_line"]) == ("email", 2, 4)
    assert secret not in str(found)
    assert found["suggested_tool"] is None
    assert "secrets" in found["suggestion"]


def test_what_the_pipeline_took_out_counts_too() -> None:
    found = of_text("name: x\ntoken: [redacted:github_token]\n")
    assert found["sensitive"]["secrets"] == [{"kind": "github_token", "count": 1, "first_line": 2}]


def test_a_clean_text_holds_nothing() -> None:
    assert of_text("hello world")["sensitive"] == {"secrets": [], "personal_data": []}


# As a tool -------------------------------------------------------------------------------------


async def test_the_config_brings_it(tmp_path: Path) -> None:
    config = tmp_path / "toolpost.toml"
    config.write_text('[[sources]]\nkind = "builtin"\ntools = ["classify"]\n')
    async with Runtime.open(config) as tools:
        result = await tools.execute("classify_data", {"text": '{"a": 1}'})
        assert result.error is None, result.error
        assert result.output["kind"] == "json"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("none", "File not found: none"),
        ("../secret", "outside of the folders"),
        ("/etc/passwd", "outside of the folders"),
        ("link", "outside of the folders"),
    ],
)
async def test_only_files_in_the_folders_are_looked_into(
    tmp_path: Path, path: str, says: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret")
    async with Executor(Registry([made(tmp_path)])) as executor:
        result = await executor.execute("classify_data", {"path": path})
    assert result.error is not None
    assert says in result.error.message


@pytest.mark.parametrize("arguments", [{}, {"text": "a", "path": "b"}])
async def test_text_or_a_path_is_asked_for(tmp_path: Path, arguments: dict[str, str]) -> None:
    async with Executor(Registry([made(tmp_path)])) as executor:
        result = await executor.execute("classify_data", arguments)
    assert result.error is not None
    assert result.error.message == "Give either text or path"


# Hostile ---------------------------------------------------------------------------------------

BOMBS = {
    "deep json": "[" * 200_000,
    "deep json objects": '{"a":' * 50_000,
    "yaml aliases": "a: &a [x]\n" + "".join(f"{c}: &{c} [*a,*a,*a,*a,*a,*a]\n" for c in "bcdefgh"),
    "deep yaml": "- " * 50_000,
    "deep yaml maps": "a: {" * 20_000,
    "xml entities": '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "x"><!ENTITY b '
    '"&a;&a;">]><l>&b;</l>',
    "deep xml": "<a>" * 80_000,
    "open tags": "<a " * 80_000,
    "toml": "a.b." * 50_000 + "c = 1",
    "deep toml": "a = " + "[" * 50_000,
    "quotes": '"' * 200_000,
    "commas": "," * 200_000,
    "one line": "x" * 250_000,
    "spaces": " " * 250_000 + "x",
    "brackets": "[" * 1000 + "](" * 50_000,
    "braces": "{" * 100_000,
    "ticks": "`" * 100_000,
    "stars": "*" * 100_000,
    "colons": "a:" * 100_000,
    "equals": "a=" * 100_000,
    "many lines": "a\n" * 120_000,
    "half a character": "\ud800 hello",
    "nul": "a\0b" * 1000,
    "begin": "-----BEGIN " * 20_000,
    "jwt": "eyJ" + "a" * 200_000,
    "words": "word " * 50_000,
    "semicolons": "a;\n" * 80_000,
    "arrows": "=> {\n" * 50_000,
    "digits": "1" * 250_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_nothing_hostile_takes_long(name: str) -> None:
    text = BOMBS[name]
    for given in (text, "\n".join([text[:900]] * 300)):
        begun = process_time()
        found = of_text(given)
        assert found["kind"]
        assert process_time() - begun < 10, name


PIECES = [
    b'{"a": [1, ',
    b"- a: &x\n",
    b"<?xml version='1.0'?><a>",
    b"<html>",
    b"[t]\na = 1\n",
    b"a,b\n1,2\n",
    b"\tat a.B.c(B.java:1)\n",
    b"Traceback (most recent call last):\n",
    b"2026-03-14 09:26:53 INFO x\n",
    b"-----BEGIN CERTIFICATE-----\n",
    b"eyJ",
    b"# HELP a b\n",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xc0",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"BZh9",
    b"\xff\xfe",
    b"\x30\x82\x00\x10",
    b"BM",
    b"MZ",
    b"RIFF",
]


@hypothesis_given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=12), max_size=12).map(b"".join),
    st.sampled_from(["", "x.py", "x.csv", "x.log", "x.", ".gitignore", "x.conf"]),
)
def test_any_bytes_are_something(data: bytes, name: str) -> None:
    found = _of_bytes(data, len(data), name)
    assert 0 < found["confidence"] <= 1
    assert msgspec.json.encode(found)


def test_random_bytes_are_no_text(tmp_path: Path) -> None:
    for _ in range(20):
        found = of_bytes(tmp_path, os.urandom(3000))
        assert found["encoding"] is None
        assert found["kind"] != "text"


def test_a_bomb_of_an_archive_is_looked_into_no_further_than_needed(tmp_path: Path) -> None:
    bomb = gzip.compress(b"\0" * 200_000_000, compresslevel=9)
    begun = process_time()
    found = of_bytes(tmp_path, bomb)
    assert found["kind"] == "archive"
    assert process_time() - begun < 10


def test_a_large_file_is_judged_by_its_beginning(tmp_path: Path) -> None:
    text = "\n".join(one.line for one in generated(FAMILIES[1], 500)) * 30
    path = tmp_path / "data" / "big"
    found = of_bytes(tmp_path, text.encode(), "big")
    with path.open("r+b") as file:
        file.truncate(5_000_000_000)
    again = made(tmp_path).function(path="big", folders=_folders(tmp_path))
    assert (again["kind"], again["size"]) == (found["kind"], 5_000_000_000)
