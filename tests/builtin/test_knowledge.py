"""The knowledge base: folders made searchable, searched by words and by meaning."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost import Executor, Progress, Registry, Runtime, meaning
from toolpost.builtin import knowledge
from toolpost.builtin.knowledge.index import opened, words_of
from toolpost.builtin.knowledge.searching import search
from toolpost.builtin.knowledge.splitting import SIZE, split

pytestmark = pytest.mark.anyio

PAGES = {
    "redis.md": "# Redis\n\nA store for keys.\n\n## Out of memory\n\n"
                "When Redis reports OOM, set `maxmemory` and an "
    "eviction policy such as allkeys-lru. Solutions that last: fewer keys, a larger host.\n\n"
    "## Persistence\n\n"
    "RDB snapshots and an append-only file.\n",
    "deploy.md": "# Deployments\n\nTo roll back, run `kubectl rollout undo deployment/web`.\n\n"
    "## Canary\n\nSend five percent of the traffic to the new version first.\n",
    "postgres.txt": "Vacuum keeps tables small.\n\nToo many connections: use a pool such as "
                    "pgbouncer, and lower "
    "max_connections.\n\nA replica lags behind when the disk is slow.\n",
    "tls.html": "<html><head><title>Certificates</title><script>var x = 'secret "
                "words';</script></head><body>"
    "<h1>Renewal</h1><p>Certificates expire after ninety days; certbot renews "
    "them.</p><h2>Chain</h2>"
    "<p>Clients that fail with <b>unknown issuer</b> lack the intermediate.</p></body></html>",
    "people/holidays.md": "# Time off\n\nEverybody has thirty days of holiday a year. Ask your "
                          "lead two weeks ahead.\n",
    "people/accounts.md": "# Accounts\n\nUsers who cannot sign in can have their credentials "
                          "renewed by the helpdesk.\n",
    "disk.rst": "Full disks\n==========\n\nFree space by deleting old logs below the log "
                "folder.\n\n"
    "Rotation\n--------\n\nUse logrotate with compress.\n",
    "network.md": "# Network\n\n## DNS\n\nNames that do not resolve: ask the resolver with dig.\n\n"
    "## Latency\n\nMeasure round trips with ping, then look at the hops with traceroute.\n",
    "queue.md": "# Queues\n\nConsumers that fall behind need more partitions or a bigger batch.\n",
    "backup.md": "# Backups\n\nEvery night everything is copied to another region, and once a "
                 "month a copy is restored "
    "for practice.\n",
}  # fmt: skip

ASKED = {
    "Redis OOM solutions": "redis.md",
    "eviction policy": "redis.md",
    "kubectl rollout undo": "deploy.md",
    "canary traffic percent": "deploy.md",
    "too many connections pool": "postgres.txt",
    "replica lag": "postgres.txt",
    "certificate renewal certbot": "tls.html",
    "unknown issuer intermediate": "tls.html",
    "holidays per year": "people/holidays.md",
    "renew credentials helpdesk": "people/accounts.md",
    "delete old logs": "disk.rst",
    "logrotate compress": "disk.rst",
    "dns does not resolve": "network.md",
    "traceroute hops": "network.md",
    "consumers fall behind": "queue.md",
    "restore a copy": "backup.md",
}
MEANT = {
    "how many vacation days do I get": "people/holidays.md",
    "forgotten password, login impossible": "people/accounts.md",
    "revert to the previous release": "deploy.md",
    "no room left on the volume": "disk.rst",
    "website is unreachable, host name lookup": "network.md",
    "messages pile up": "queue.md",
    "disaster recovery": "backup.md",
    "ssl cert is out of date": "tls.html",
    "cache is running out of RAM": "redis.md",
}


def written(folder: Path, pages: dict[str, str] = PAGES) -> Path:
    for name, text in pages.items():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def made(folder: Path, **options: Any) -> list[Any]:
    return list(knowledge.tools(knowledge.Settings(**options), folder))


def called(folder: Path, name: str, arguments: dict[str, Any], **options: Any) -> Any:
    """The plain function, with what it is given."""
    from toolpost.builtin.knowledge.settings import prepared

    tool = next(one for one in made(folder, **options) if one.spec.name == name)
    settings = prepared(knowledge.Settings(**options), folder)
    extra = {"call": _Quiet(tool.spec)} if name == "ingest_knowledge" else {}
    return tool.function(**arguments, **extra, knowledge=settings)


class _Quiet:
    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.told: list[tuple[Any, ...]] = []

    def progress(self, *args: Any) -> None:
        self.told.append(args)


def ingested(folder: Path, **options: Any) -> Any:
    return called(folder, "ingest_knowledge", {}, **options)


def found(folder: Path, query: str, limit: int = 5, **options: Any) -> Any:
    return called(folder, "search_knowledge", {"query": query, "limit": limit}, **options)


@pytest.mark.req("FM-17")
async def test_what_was_ingested_is_found_with_scores_and_sources(tmp_path: Path) -> None:
    async with Executor(Registry(made(written(tmp_path)))) as executor:
        done = await executor.execute("ingest_knowledge", {})
        assert done.error is None, done.error
        assert (done.output["added"], done.output["documents"]) == (10, 10)
        result = await executor.execute(
            "search_knowledge", {"query": "Redis OOM solutions", "limit": 5}
        )
    assert result.error is None, result.error
    output = result.output
    assert output["count"] == len(output["results"]) == len(output["relevance_scores"])
    assert output["relevance_scores"] == sorted(output["relevance_scores"], reverse=True)
    assert all(0 < score <= 1 for score in output["relevance_scores"])
    first = output["results"][0]
    assert (first["title"], first["heading"]) == ("Redis", "Redis > Out of memory")
    assert (first["path"], first["line"]) == ("docs/redis.md", 7)
    assert first["source"] == "docs/redis.md:7 (Redis > Out of memory)"
    assert "maxmemory" in first["snippet"]
    assert first["score"] == output["relevance_scores"][0] > 0.5


def _right(folder: Path, asked: dict[str, str], place: int, **options: Any) -> float:
    hits = 0
    for query, wanted in asked.items():
        results = found(folder, query, **options)["results"][:place]
        hits += any(one["path"] == f"docs/{wanted}" for one in results)
    return hits / len(asked)


def test_a_question_in_the_words_of_the_texts_finds_its_answer_first(tmp_path: Path) -> None:
    ingested(written(tmp_path), meaning="off")
    assert _right(tmp_path, ASKED, 1, meaning="off") == 1


def test_a_question_in_other_words_finds_its_answer_by_meaning(tmp_path: Path) -> None:
    assert meaning.model() is not None, "the extra is part of what is tested"
    assert ingested(written(tmp_path))["meaning"] is True
    assert _right(tmp_path, MEANT, 3) >= 0.8
    assert _right(tmp_path, MEANT, 3) > _right(tmp_path, MEANT, 3, meaning="off")
    assert _right(tmp_path, ASKED, 1) == 1


async def test_the_config_brings_them_and_the_index_is_in_the_state_folder(tmp_path: Path) -> None:
    written(tmp_path)
    config = tmp_path / "toolpost.toml"
    config.write_text('[[sources]]\nkind = "builtin"\ntools = ["knowledge"]\n')
    async with Runtime.open(config) as tools:
        done = await tools.execute("ingest_knowledge", {"path": "docs"})
        assert done.error is None, done.error
        result = await tools.execute("search_knowledge", {"query": "canary"})
        assert result.output["results"][0]["path"] == "docs/deploy.md"
    assert (tmp_path / ".toolpost" / "knowledge.db").is_file()


# Keeping up ------------------------------------------------------------------------------------


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    written(tmp_path)
    ingested(tmp_path)
    assert ingested(tmp_path)["unchanged"] == 10
    (tmp_path / "docs/queue.md").write_text("# Queues\n\nUse backpressure.\n")
    (tmp_path / "docs/new.md").write_text("# New\n\nSomething about llamas.\n")
    os.remove(tmp_path / "docs/backup.md")
    done = ingested(tmp_path)
    counts = {key: done[key] for key in ("added", "updated", "unchanged", "removed", "documents")}
    assert counts == {"added": 1, "updated": 1, "unchanged": 8, "removed": 1, "documents": 10}
    assert found(tmp_path, "backpressure")["results"][0]["path"] == "docs/queue.md"
    assert found(tmp_path, "llamas")["count"] >= 1
    for gone in ("partitions", "region"):
        assert found(tmp_path, gone, meaning="off")["count"] == 0


def test_a_file_that_was_only_touched_is_unchanged(tmp_path: Path) -> None:
    written(tmp_path)
    ingested(tmp_path)
    os.utime(tmp_path / "docs/queue.md", (1, 1))
    assert ingested(tmp_path)["unchanged"] == 10


def test_one_folder_is_brought_up_to_date_without_the_others(tmp_path: Path) -> None:
    written(tmp_path)
    ingested(tmp_path)
    os.remove(tmp_path / "docs/redis.md")
    os.remove(tmp_path / "docs/people/holidays.md")
    done = called(tmp_path, "ingest_knowledge", {"path": "docs/people"})
    assert (done["files"], done["removed"], done["documents"]) == (1, 1, 9)


async def test_how_far_it_is_is_told_on_the_way(tmp_path: Path) -> None:
    written(tmp_path, {f"{n}.txt": f"text number {n} about things" for n in range(120)})
    told: list[Progress] = []
    async with Executor(Registry(made(tmp_path))) as executor:
        result = await executor.execute("ingest_knowledge", {}, on_progress=told.append)
    assert result.error is None, result.error
    assert any(one.total == 120 for one in told)


def test_an_ingestion_without_time_goes_on_the_next_time(tmp_path: Path) -> None:
    written(tmp_path, {f"{n}.txt": f"text number {n}" for n in range(60)})
    (ingesting, _) = made(tmp_path)
    from toolpost.builtin.knowledge.settings import prepared

    given = prepared(knowledge.Settings(), tmp_path)
    short = _Quiet(msgspec.structs.replace(ingesting.spec, timeout=1e-9))
    done = ingesting.function(call=short, knowledge=given)
    assert (done["complete"], done["removed"]) == (False, 0)
    assert ingested(tmp_path)["complete"] is True
    assert ingested(tmp_path)["documents"] == 60


def test_what_cannot_be_read_is_told_and_left_out(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "docs/picture.md").write_bytes(os.urandom(1500))
    (tmp_path / "docs/large.txt").write_text("x" * 3000)
    (tmp_path / "docs/program.py").write_text("print()")
    (tmp_path / "docs/.hidden.md").write_text("hidden words")
    (tmp_path / "docs/node_modules").mkdir()
    (tmp_path / "docs/node_modules/a.md").write_text("somebody else's")
    done = ingested(tmp_path, file_size=2000)
    assert done["documents"] == 10
    assert {one["path"]: one["reason"] for one in done["skipped"]} == {
        "docs/picture.md": "not a text",
        "docs/large.txt": "larger than 2000 bytes",
    }


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "secret.md").write_text("# Secret\n\nthe treasure is under the oak\n")
    (tmp_path / "docs/link.md").symlink_to(tmp_path / "secret.md")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.md").write_text("the treasure again")
    (tmp_path / "docs/folder").symlink_to(tmp_path / "outside")
    assert ingested(tmp_path)["documents"] == 10
    assert found(tmp_path, "treasure", meaning="off")["count"] == 0


@pytest.mark.parametrize("path", ["../", "/etc", "docs/../..", "nowhere"])
async def test_only_folders_that_were_named_are_ingested(tmp_path: Path, path: str) -> None:
    written(tmp_path)
    async with Executor(Registry(made(tmp_path))) as executor:
        result = await executor.execute("ingest_knowledge", {"path": path})
    assert result.error is not None
    assert "outside of the folders" in result.error.message or "not found" in result.error.message


# Queries ---------------------------------------------------------------------------------------

ODD = [
    '"', "'", "*", "(", ")", "^", "-", "NEAR", "AND", "OR NOT", '" OR 1 --', "title: x", "a*b",
    "NEAR(a b, 5)", "{a b}: c", "col:val", '"unbalanced', "x" * 2000, "a " * 900, "\ud800", "\0",
    "日本語", "é", "🙂", ";drop table documents", "%", "_", "\\", "a\nb", "the of and",
]  # fmt: skip


@pytest.mark.parametrize("query", ODD, ids=lambda query: ascii(query[:12]))
def test_no_sign_in_a_query_means_anything(tmp_path: Path, query: str) -> None:
    ingested(written(tmp_path))
    answer = found(tmp_path, query)
    assert answer["count"] == len(answer["results"]) <= 5


@given(query=st.text(min_size=1, max_size=60))
@settings(max_examples=150)
def test_any_query_is_answered(query: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-query"
    if not folder.exists():
        folder.mkdir()
        ingested(written(folder))
    with opened(str(folder / ".toolpost/knowledge.db")) as index:
        results = search(index, query, limit=3, by_meaning=False)
    assert all(0 < score <= 1 for _, score in results)


def test_words_that_say_nothing_count_only_if_there_are_no_others() -> None:
    assert words_of("How do I restart the server?") == ["restart", "server"]
    assert words_of("what is it") == ["what", "is", "it"]


def test_a_word_is_found_by_its_beginning_and_in_other_forms(tmp_path: Path) -> None:
    ingested(written(tmp_path), meaning="off")
    assert found(tmp_path, "certif", meaning="off")["results"][0]["path"] == "docs/tls.html"
    assert found(tmp_path, "deleted log", meaning="off")["results"][0]["path"] == "docs/disk.rst"


def test_one_document_does_not_take_all_the_places(tmp_path: Path) -> None:
    long = "# Cats\n\n" + "\n\n".join(f"## {n}\n\n{'cats and cats. ' * 40}" for n in range(20))
    written(tmp_path, {"long.md": long, "short.md": "# Dogs\n\nDogs chase cats.\n"})
    ingested(tmp_path)
    paths = [one["path"] for one in found(tmp_path, "cats", 5)["results"]]
    assert "docs/short.md" in paths


async def test_an_empty_knowledge_base_says_what_to_do(tmp_path: Path) -> None:
    async with Executor(Registry(made(tmp_path))) as executor:
        result = await executor.execute("search_knowledge", {"query": "x"})
    assert result.error is not None
    assert "call ingest_knowledge first" in result.error.message


async def test_a_damaged_index_is_told(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / ".toolpost").mkdir()
    (tmp_path / ".toolpost/knowledge.db").write_bytes(b"not a database at all" * 500)
    async with Executor(Registry(made(tmp_path))) as executor:
        for name, arguments in (("search_knowledge", {"query": "x"}), ("ingest_knowledge", {})):
            result = await executor.execute(name, arguments)
            assert result.error is not None
            assert "damaged" in result.error.message


def _foreign(index: Path) -> None:
    other = sqlite3.connect(index)
    other.execute("create table documents (x)")
    other.commit()
    other.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (Path.mkdir, "cannot be kept: unable to open database file."),
        (os.mkfifo, "cannot be kept: disk I/O error."),
        (_foreign, "is damaged: delete it and ingest again."),
        (lambda index: index.symlink_to("/dev/null"), "cannot be kept: disk I/O error."),
    ],
    ids=["folder", "pipe", "another's", "device"],
)
async def test_an_index_that_is_none_is_told(spoil: Any, said: str, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / ".toolpost").mkdir()
    spoil(tmp_path / ".toolpost/knowledge.db")
    async with Executor(Registry(made(tmp_path))) as executor:
        result = await executor.execute("ingest_knowledge", {})
    assert result.error is not None
    assert (result.error.code, result.error.message.endswith(said)) == ("EXECUTION_ERROR", True)


async def test_a_place_where_no_index_can_be_is_told(tmp_path: Path) -> None:
    written(tmp_path)
    settings_ = knowledge.Settings(index="docs/redis.md/below/knowledge.db")
    async with Executor(Registry(knowledge.tools(settings_, tmp_path))) as executor:
        result = await executor.execute("ingest_knowledge", {})
    assert result.error is not None
    assert result.error.message == "The knowledge base cannot be kept: Not a directory."


def test_a_name_that_is_no_text_keeps_nothing_out(tmp_path: Path) -> None:
    written(tmp_path)
    name = os.fsencode(tmp_path / "docs") + b"/\xff\xfe.md"
    with open(name, "w") as file:
        file.write("Zebras are striped.")
    assert ingested(tmp_path)["added"] == len(PAGES) + 1
    assert found(tmp_path, "zebras")["results"][0]["path"] == r"docs/\xff\xfe.md"


def test_what_is_unchanged_is_not_written_again(tmp_path: Path) -> None:
    ingested(written(tmp_path))
    with opened(str(tmp_path / ".toolpost/knowledge.db")) as index:
        before = index.generation
    assert ingested(tmp_path)["unchanged"] == len(PAGES)
    with opened(str(tmp_path / ".toolpost/knowledge.db")) as index:
        assert index.generation == before


async def test_many_may_ingest_and_search_at_once_while_files_change(tmp_path: Path) -> None:
    written(tmp_path)
    for number in range(60):
        (tmp_path / f"docs/{number}.md").write_text(f"# T{number}\n\nalpha beta {number}\n")
    async with (
        Executor(Registry(made(tmp_path))) as one,
        Executor(Registry(made(tmp_path))) as other,
    ):
        await one.execute("ingest_knowledge", {})
        calls = [who.execute("ingest_knowledge", {}) for who in (one, other)]
        calls += [one.execute("search_knowledge", {"query": "alpha"}) for _ in range(5)]
        waiting = asyncio.gather(*calls)
        for number in range(30):
            (tmp_path / f"docs/{number}.md").unlink()
        assert {result.error for result in await waiting} == {None}
        last = await other.execute("ingest_knowledge", {})
    assert last.output["documents"] == len(PAGES) + 30


async def test_an_index_that_is_being_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolpost.builtin.knowledge import index

    ingested(written(tmp_path))
    monkeypatch.setattr(index, "_PATIENCE", 0.05)
    (tmp_path / "docs/new.md").write_text("Something new.")
    other = sqlite3.connect(tmp_path / ".toolpost/knowledge.db", isolation_level=None)
    other.execute("begin immediate")
    try:
        with pytest.raises(Exception, match="being written"):
            ingested(tmp_path)
        assert found(tmp_path, "redis")["count"] > 0  # readers do not wait
    finally:
        other.execute("rollback")
        other.close()


# Passages --------------------------------------------------------------------------------------


def test_passages_have_their_headings_and_lines() -> None:
    text = (
        "---\ntitle: The page\n---\nIntro.\n\n# One\n\nText.\n\n## Two ##\n\nMore.\n\n"
        "```sh\n# not a title\n```\n"
    )
    document = split(text, "a/page.md")
    assert document.title == "The page"
    assert [(one.heading, one.line, one.text) for one in document.passages] == [
        ("", 4, "Intro."),
        ("One", 8, "Text."),
        ("One > Two", 12, "More.\n\n```sh\n# not a title\n```"),
    ]


def test_underlined_titles_are_headings() -> None:
    document = split("Title\n=====\n\nText.\n\nPart\n----\n\nMore.\n", "a.rst")
    assert [(one.heading, one.text) for one in document.passages] == [
        ("Title", "Text."),
        ("Title > Part", "More."),
    ]


def test_of_a_page_only_what_is_seen_is_kept() -> None:
    document = split(PAGES["tls.html"], "tls.html")
    assert document.title == "Certificates"
    assert [(one.heading, one.text) for one in document.passages] == [
        ("Renewal", "Certificates expire after ninety days; certbot renews them."),
        ("Renewal > Chain", "Clients that fail with unknown issuer lack the intermediate."),
    ]


def test_a_text_without_a_title_has_the_name_of_its_file() -> None:
    assert split("just words", "notes/to do.txt").title == "to do"


@given(text=st.text(max_size=400))
@settings(max_examples=200)
def test_no_word_is_lost_between_passages(text: str) -> None:
    plain = "".join(char for char in text if char.isalnum() or char in " \n.")
    document = split(plain, "a.txt")
    kept = " ".join(
        [*(one.heading for one in document.passages), *(p.text for p in document.passages)]
    )
    for word in plain.split():
        assert word in kept or word in document.title or len(word) > SIZE // 2


HOSTILE = {
    "deep.html": "<div>" * 100_000 + "text",
    "open.html": "<" * 200_000,
    "tags.html": "<a href='" * 50_000,
    "entities.html": "&amp;" * 100_000 + "&#x41;" * 50_000,
    "comment.html": "<!--" * 60_000,
    "script.html": "<script>" * 20_000,
    "long.txt": "x" * 2_000_000,
    "lines.md": "#\n" * 300_000,
    "titles.md": "# a\n" * 100_000,
    "fences.md": "```\n" * 100_000,
    "under.rst": "a\n===\n" * 80_000,
    "spaces.txt": " " * 2_000_000,
    "matter.md": "---\n" * 100_000,
    "nul.txt": "a\tb " * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long_to_cut(name: str) -> None:
    begun = process_time()
    document = split(HOSTILE[name], name)
    assert process_time() - begun < 20
    assert all(len(one.text) <= SIZE * 3 + 2 for one in document.passages)


def test_many_files_are_ingested_and_searched_fast(tmp_path: Path) -> None:
    pages = {
        f"{n // 100}/{n}.md": f"# Page {n}\n\nThe topic is number {n}, word{n}.\n"
        for n in range(1500)
    }
    written(tmp_path, pages)
    begun = process_time()
    done = ingested(tmp_path, meaning="off")
    assert done["documents"] == 1500
    assert process_time() - begun < 60
    begun = process_time()
    assert found(tmp_path, "word777", meaning="off")["results"][0]["path"] == "docs/7/777.md"
    assert process_time() - begun < 5


def test_two_knowledge_bases_do_not_answer_for_each_other(tmp_path: Path) -> None:
    cats, dogs = tmp_path / "a", tmp_path / "b"
    ingested(written(cats, {"cats.md": "# Cats\n\nThey purr.\n"}))
    ingested(written(dogs, {"dogs.md": "# Dogs\n\nThey bark.\n", "fish.md": "# Fish\n\nMute.\n"}))
    for _ in range(2):
        assert {one["path"] for one in found(cats, "pets that purr")["results"]} == {"docs/cats.md"}
        assert found(dogs, "pets that bark")["results"][0]["path"] == "docs/dogs.md"


def test_what_it_answers_is_plain_data(tmp_path: Path) -> None:
    ingested(written(tmp_path))
    assert json.loads(json.dumps(found(tmp_path, "redis")))["count"] > 0
