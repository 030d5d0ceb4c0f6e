"""A tool is found by what it does: by words, by meaning, by somebody who cannot type."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from threading import Thread
from time import perf_counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search_corpus import ASKED, MISSPELT, made_up
from toolpost import Caller, Executor, InvalidArguments, Registry, ToolSpec, meaning
from toolpost.search import Found, Index
from toolpost.sources.builtin import SETS, BuiltinSource

pytestmark = pytest.mark.anyio


def by_words_only() -> None:
    return None


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToolSpec, ...]:
    """Those that come with toolpost, and sixty of other makers."""
    told = {"commands": {"programs": ["df"]}, "web": {"egress": ["api.example.com:443"]}}
    source = BuiltinSource(SETS, settings=told, base=tmp_path_factory.mktemp("base"))
    ours = [one.spec for one in asyncio.run(source.load(lambda done, total: None))]
    return (*ours, *made_up())


def spec(name: str, description: str, **more: object) -> ToolSpec:
    return ToolSpec.from_dict({"name": name, "description": description, **more})


def names(found: tuple[Found, ...]) -> list[str]:
    return [one.spec.name for one in found]


@pytest.mark.parametrize(
    ("model", "right"), [(meaning.model, 1.0), (by_words_only, 0.85)], ids=["meaning", "words"]
)
def test_what_is_asked_for_is_among_the_first_three(
    tools: tuple[ToolSpec, ...], model: object, right: float
) -> None:
    assert meaning.model() is not None, "the extra is part of what is tested"
    index = Index(model)  # type: ignore[arg-type]
    missed = [q for q, want in ASKED.items() if want not in names(index.search(q, tools, limit=3))]
    assert 1 - len(missed) / len(ASKED) >= right, missed


@pytest.mark.parametrize("query", MISSPELT)
def test_a_word_that_is_misspelt_finds_what_was_meant(
    tools: tuple[ToolSpec, ...], query: str
) -> None:
    found = names(Index(by_words_only).search(query, tools, limit=3))
    assert MISSPELT[query] in found


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("create refund", "stripe.createRefund"),
        ("createRefund", "stripe.createRefund"),
        ("stripe.createRefund", "stripe.createRefund"),
        ("s3 bucket upload", "aws_s3_upload"),
        ("thermo", "set_thermostat"),
        ("pullrequest", "github_create_pull_request"),
        ("translating", "translate_text"),
        ("target_language", "translate_text"),
    ],
)
def test_names_and_parameters_are_words_however_they_are_written(
    tools: tuple[ToolSpec, ...], query: str, want: str
) -> None:
    assert names(Index(by_words_only).search(query, tools, limit=2))[0] == want


def test_the_tool_that_has_the_very_name_comes_first() -> None:
    specs = (
        spec("search", "Do something else."),
        spec("web_search", "Search. Search the web, search everything.", tags=["search"]),
    )
    for model in (meaning.model, by_words_only):
        assert names(Index(model).search("search", specs))[0] == "search"


def test_scores_fall_from_one() -> None:
    found = Registry(made_up()).search("send a mail", limit=5)
    scores = [one.score for one in found]
    assert len(found) == 5
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[0] <= 1


def test_a_word_counts_more_where_it_tells_more() -> None:
    specs = (
        spec("one", "Do a thing. It has nothing to do with parcels."),
        spec("two", "Track parcels. Do a thing."),
        spec("three", "Do a thing. All else is told elsewhere.", title="Parcels"),
    )
    assert names(Index(by_words_only).search("parcel", specs))[-1] == "one"


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_an_empty_query_is_a_clear_error(query: str) -> None:
    with pytest.raises(InvalidArguments, match="say what the tool should do"):
        Registry(made_up()).search(query)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="limit must be 1 or more"):
        Registry(made_up()).search("mail", limit=0)


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "'; drop table tools; --",
        "name:mail OR",
        "NEAR(a b, 3)",
        "mail AND NOT",
        "^mail *",
        "{name title}: mail",
        "\x00mail\x00",
        "mail\ud800",
        "!!! ???",
        "🦄",
        "mail " * 10_000,
        "x" * 100_000,
    ],
)
def test_attack_no_query_means_anything_to_the_database(query: str) -> None:
    registry = Registry(made_up())
    registry.search(query)
    assert names(registry.search("send_email"))[0] == "send_email"


_INDEX = Index(by_words_only)
_SPECS = tuple(made_up())


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_any_text_at_all_is_a_query(query: str) -> None:
    if query.strip():
        assert len(_INDEX.search(query, _SPECS, limit=3)) <= 3


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=200).filter(lambda text: not text.isspace()))
def test_any_description_can_be_indexed(description: str) -> None:
    made = (spec("odd", description),)
    assert names(Index(by_words_only).search("odd", made)) == ["odd"]


def test_what_is_written_without_blanks_is_found_by_its_signs() -> None:
    specs = (spec("a", "查询城市的天气"), spec("b", "发送电子邮件"), spec("c", "Météo à Zürich"))
    index = Index(by_words_only)
    assert names(index.search("天气", specs))[0] == "a"
    assert names(index.search("邮件", specs))[0] == "b"
    assert names(index.search("meteo zurich", specs)) == ["c"]


def test_nothing_fits_is_no_error() -> None:
    assert Index(by_words_only).search("xylophone quartet", _SPECS) == ()
    assert Registry().search("mail") == ()


def test_a_change_of_the_registry_is_seen_by_the_next_search() -> None:
    registry = Registry(made_up())
    assert "brew_tea" not in names(registry.search("brew tea"))
    registry.add(spec("brew_tea", "Brew a pot of tea."))
    assert names(registry.search("brew tea"))[0] == "brew_tea"
    registry.replace(spec("brew_tea", "Grind beans for an espresso.", title="Espresso"))
    assert names(registry.search("espresso"))[0] == "brew_tea"
    assert "brew_tea" not in names(registry.search("pot", limit=3))
    registry.remove("brew_tea")
    assert "brew_tea" not in names(registry.search("espresso brew tea", limit=50))


def test_a_word_that_is_gone_is_no_longer_what_was_meant() -> None:
    index = Index(by_words_only)
    one, other = spec("one", "Play the xylophone."), spec("two", "Play the piano.")
    assert names(index.search("xylophnoe", (one, other))) == ["one"]
    assert index.search("xylophnoe", (other,)) == ()


async def test_a_caller_with_few_tools_finds_only_those() -> None:
    registry = Registry(made_up())
    async with Executor(registry) as executor:
        few = Caller(id="ann", tools=("gmail.createDraft", "play_music"))
        found = registry.search("send a mail", among=executor.list(few))
    assert names(found)[0] == "gmail.createDraft"
    assert set(names(found)) <= {"gmail.createDraft", "play_music"}


def test_several_threads_may_search_at_once() -> None:
    registry, found = Registry(made_up()), []

    def search() -> None:
        for _ in range(20):
            found.append(names(registry.search("send a mail"))[0])

    threads = [Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["send_email"] * 80


def test_ten_thousand_tools_are_searched_in_milliseconds() -> None:
    base = made_up()
    many = tuple(
        msgspec.structs.replace(base[n % len(base)], name=f"{base[n % len(base)].name}_{n}")
        for n in range(10_000)
    )
    index = Index(by_words_only)
    index.search("mail", many)
    took = []
    for _ in range(5):
        begun = perf_counter()
        assert len(index.search("list the invoices of a customer", many)) == 10
        took.append(perf_counter() - begun)
    assert min(took) < 0.2, "it takes less than 10 ms; a machine may be busy"


@pytest.mark.parametrize("gone", ["wordllama", "tokenizers"])
def test_without_the_extra_words_alone_decide(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, gone, None)
    meaning.model.cache_clear()
    try:
        assert meaning.model() is None
        assert names(Registry(made_up()).search("send a mail"))[0] == "send_email"
    finally:
        meaning.model.cache_clear()


def test_importing_the_package_does_not_load_a_database() -> None:
    program = (
        "from toolpost import Registry, Runtime, tool\nimport sys\n"
        "print('sqlite3' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "False"]
