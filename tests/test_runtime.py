"""Runtimes: a config brought to life, kept in step with its files, and closed."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.sources.packages import TOOLS, forgotten, install
from toolpost import (
    Config,
    ConfigError,
    Injected,
    MissingPart,
    NameTaken,
    Runtime,
    SourceError,
    ToolSpec,
    tool,
)
from toolpost.approvals import Request
from toolpost.backends.python.backend import PythonBackend

pytestmark = pytest.mark.anyio

FUNCTIONS = """
def add(a, b):
    return a + b

def slow(path):
    open(path + ".started", "w").close()
    import os, time
    while not os.path.exists(path + ".go"):
        time.sleep(0.01)
    return "old"
"""


class Db:
    answer = 42


FILES = '[[sources]]\nkind = "files"\npaths = ["{}"]\n'


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("TOOLPOST_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rt_functions.py").write_text(FUNCTIONS)
    with forgotten(tmp_path):
        sys.path.insert(0, str(tmp_path))
        yield tmp_path


def declare(file: str, *names: str, function: str = "add", **fields: object) -> None:
    more = "".join(f"  {key}: {value}\n" for key, value in fields.items())
    Path(file).write_text(
        "".join(
            f"- name: {name}\n  description: The tool {name}.\n  input_schema: {{type: object}}\n"
            f"  binding: {{module: rt_functions, function: {function}}}\n{more}"
            for name in names
        )
        or "[]"
    )


def configure(*tables: str, watch: bool = False) -> None:
    text = f"watch = {str(watch).lower()}\n" + "".join(map(dedent, tables))
    Path("toolpost.toml").write_text(text)


def names(runtime: Runtime) -> list[str]:
    return [spec.name for spec in runtime.list()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.req("UX-2", "UX-3")
async def test_the_tools_of_a_config_are_loaded_and_run() -> None:
    declare("tools.yaml", "add")
    configure(FILES.format("tools.yaml"))
    async with Runtime.open() as tools, asyncio.timeout(60):
        assert names(tools) == ["add"]
        result = await tools.execute("add", {"a": 1, "b": 2})
    assert result.output == 3, result.error


async def test_without_a_config_there_is_an_empty_runtime() -> None:
    async with Runtime.open() as tools:
        assert names(tools) == []
        assert (await tools.execute("add")).error is not None


async def test_several_kinds_of_source_stand_side_by_side(site: Path) -> None:
    declare("tools.yaml", "from_file")
    (site / "rt_module.py").write_text(TOOLS)
    points = {"toolpost.tools": {"all": "rt_package:mine"}}
    package = (
        'from toolpost import tool\n@tool\ndef mine() -> int:\n    """Mine."""\n    return 7\n'
    )
    install(site, "rt-package", points=points, rt_package=package)
    configure(
        FILES.format("tools.yaml"),
        '[[sources]]\nkind = "modules"\nmodules = ["rt_module"]\n',
        '[[sources]]\nkind = "entrypoints"\npackages = ["rt-package"]\n',
        watch=True,
    )
    async with Runtime.open() as tools, asyncio.timeout(60):
        assert names(tools) == ["add", "from_file", "greet", "mine"]
        assert (await tools.execute("mine")).output == 7
        assert (await tools.execute("greet", {"name": "Ada"})).output == "hello Ada"


async def test_what_a_program_provides_reaches_its_tools() -> None:
    @tool
    async def ask(db: Injected[Db]) -> int:
        """Ask."""
        return db.answer

    async with Runtime.open(provide={Db: Db()}) as tools:
        tools.registry.add(ask)
        assert (await tools.execute("ask")).output == 42


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[backends.python]\nworkrs = 1\n",
            "toolpost.toml:3:10: backend python has no setting 'workrs'; did you mean 'workers'?",
        ),
        ('[backends.python]\nworkers = "x"\n', "toolpost.toml:3:11: backend python workers: "),
        ("[backends.python]\nworkers = 0\n", "3:11: backend python workers: expected `int` >= 1"),
        ("[backends.python]\nthreads = -5\n", "3:11: backend python threads: expected `int` >= 1"),
        ("[backends.python]\nrecycle_after = 0\n", "3:17: backend python recycle_after: "),
        ("[backends.nope]\nsize = 1\n", "toolpost.toml:3:8: no kind of tool 'nope' is installed"),
    ],
)
async def test_a_wrong_table_of_a_backend_is_said_before_any_tool_needs_it(
    table: str, said: str
) -> None:
    configure(table)
    with pytest.raises((ConfigError, MissingPart)) as caught:
        Runtime.open()
    assert said in str(caught.value)


async def test_the_table_of_a_backend_that_the_program_brings_is_its_own_business() -> None:
    configure("[backends.own]\nsize = 1\n")
    async with Runtime.open(backends={"own": PythonBackend()}) as tools:
        assert tools.list() == ()


# --- names -------------------------------------------------------------------------------------


@pytest.mark.req("FG-2")
async def test_a_name_in_two_sources_is_refused_with_both() -> None:
    declare("a.yaml", "add", "one")
    declare("b.yaml", "two", "add")
    configure(FILES.format("a.yaml"), FILES.format("b.yaml"))
    with pytest.raises(NameTaken) as caught:
        await Runtime.open().__aenter__()
    assert str(caught.value) == (
        "source 2 (files) and source 1 (files) both have a tool 'add': rename one, or give one of "
        "the sources a namespace"
    )


async def test_a_namespace_keeps_two_sources_apart() -> None:
    declare("a.yaml", "add")
    declare("b.yaml", "add")
    configure(FILES.format("a.yaml"), FILES.format("b.yaml"), 'namespace = "b"\n')
    async with Runtime.open() as tools, asyncio.timeout(60):
        assert names(tools) == ["add", "b.add"]
        assert (await tools.execute("b.add", {"a": 1, "b": 2})).output == 3


async def test_names_that_look_alike_are_refused_with_the_source() -> None:
    declare("a.yaml", "read_file")
    declare("b.yaml", "read-file")
    configure(FILES.format("a.yaml"), FILES.format("b.yaml"))
    with pytest.raises(NameTaken, match=r"source 2 \(files\): the name 'read-file' looks like"):
        await Runtime.open().__aenter__()


async def test_a_problem_names_its_source_once() -> None:
    declare("a.yaml", "read_file")
    configure(FILES.format("a.yaml"))
    async with Runtime.open() as tools:
        declare("a.yaml", "read_file", "read-file")
        assert await tools.reload() == {
            "source 1 (files)": "the name 'read-file' looks like 'read_file': make them easier to "
            "tell apart"
        }
        assert names(tools) == ["read_file"]


async def test_one_name_twice_in_one_source_is_refused(site: Path) -> None:
    for name in ("rt_one", "rt_two"):
        (site / f"{name}.py").write_text(TOOLS)
    configure('[[sources]]\nkind = "modules"\nmodules = ["rt_one", "rt_two"]\n')
    with pytest.raises(NameTaken, match=r"source 1 \(modules\): the name 'add' is taken"):
        await Runtime.open().__aenter__()


async def test_a_source_does_not_replace_what_the_program_registered() -> None:
    declare("a.yaml", "other")
    configure(FILES.format("a.yaml"))
    async with Runtime.open() as tools:
        tools.registry.add(ToolSpec(name="add", description="Mine."))
        declare("a.yaml", "add")
        problems = await tools.reload()
        assert (
            "source 1 (files) and your code both have a tool 'add'" in problems["source 1 (files)"]
        )
        assert names(tools) == ["add", "other"]


# --- reload ------------------------------------------------------------------------------------


@pytest.mark.req("UX-2")
async def test_reloading_brings_what_the_files_say_now() -> None:
    declare("a.yaml", "add", "gone")
    configure(FILES.format("a.yaml"))
    async with Runtime.open() as tools:
        heard: list[frozenset[str]] = []
        tools.registry.listen(heard.append)
        declare("a.yaml", "add", "fresh")
        assert await tools.reload() == {}
        assert names(tools) == ["add", "fresh"]
        declare("a.yaml")
        await tools.reload()
        assert names(tools) == []
    assert heard == [{"gone", "fresh"}, {"add", "fresh"}]


@pytest.mark.req("UX-2")
async def test_a_broken_file_keeps_the_last_good_tools_until_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    declare("a.yaml", "add")
    declare("b.yaml", "other")
    configure(FILES.format("a.yaml"), FILES.format("b.yaml"))
    async with Runtime.open() as tools, asyncio.timeout(60):
        declare("a.yaml", "add", tier=9)
        declare("b.yaml", "other", "more")
        problems = await tools.reload()
        assert list(problems) == ["source 1 (files)"]
        assert "a.yaml:5:9: tier of 'add' must be 0 (safe) to 4" in problems["source 1 (files)"]
        assert "keeps the tools it had" in caplog.text
        assert names(tools) == ["add", "more", "other"]
        assert (await tools.execute("add", {"a": 1, "b": 2})).output == 3
        declare("a.yaml", "mended")
        assert await tools.reload() == {}
        assert names(tools) == ["mended", "more", "other"]


@pytest.mark.req("UX-2")
async def test_a_changed_file_is_loaded_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    declare("a.yaml", "add")
    configure(FILES.format("a.yaml"), watch=True)
    caplog.set_level(logging.INFO, "toolpost")
    async with Runtime.open() as tools:
        declare("a.yaml", "add", "fresh")
        await until(lambda: names(tools) == ["add", "fresh"])
        Path("a.yaml").write_text("- name: [\n")
        await until(lambda: bool(tools.problems))
        assert "a.yaml:" in tools.problems["source 1 (files)"]
        assert names(tools) == ["add", "fresh"]
        declare("a.yaml", "mended")
        await until(lambda: names(tools) == ["mended"])
        await until(lambda: not tools.problems)
    assert "source 1 (files) was loaded again" in caplog.text


@pytest.mark.req("UX-2")
async def test_a_call_under_way_finishes_while_its_tool_is_reloaded(site: Path) -> None:
    declare("a.yaml", "job", function="slow", timeout=30)
    configure(FILES.format("a.yaml"))
    path = str(site / "job")
    async with Runtime.open() as tools, asyncio.timeout(60):
        under_way = asyncio.create_task(tools.execute("job", {"path": path}))
        while not Path(f"{path}.started").exists():
            await asyncio.sleep(0.01)
        declare("a.yaml", "job", function="add")
        await tools.reload()
        assert (await tools.execute("job", {"a": 1, "b": 2})).output == 3
        Path(f"{path}.go").touch()
        assert (await under_way).output == "old"


SOURCE = """
from pathlib import Path
from toolpost import ToolSpec

class Mine:
    closed = 0

    @classmethod
    def from_config(cls, options, base):
        return cls()

    async def load(self, tell):
        if Path("ill").exists():
            raise OSError("no disk")
        return [ToolSpec(name="mine", description="Mine.")]

    async def changes(self):
        if Path("blind").exists():
            raise OSError("no eyes")
        yield

    async def close(self):
        Mine.closed += 1
"""


def install_source(site: Path) -> None:
    install(
        site, "rt-source", points={"toolpost.sources": {"mine": "rt_source:Mine"}}, rt_source=SOURCE
    )
    configure('[[sources]]\nkind = "mine"\n', watch=True)


async def test_a_source_of_a_package_is_opened_and_closed(site: Path) -> None:
    install_source(site)
    async with Runtime.open() as tools:
        assert names(tools) == ["mine"]
    from rt_source import Mine  # type: ignore[import-not-found]

    assert Mine.closed == 1


async def test_whatever_a_source_raises_its_last_good_tools_stay(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install_source(site)
    async with Runtime.open() as tools:
        Path("ill").touch()
        assert await tools.reload() == {"source 1 (mine)": "OSError('no disk')"}
        assert names(tools) == ["mine"]
    assert "Traceback" in caplog.text


SLOW_SOURCE = """
import asyncio
from toolpost import ToolSpec

class Slow:
    versions = ["first", "old", "new"]
    go_on = None

    @classmethod
    def from_config(cls, options, base):
        return cls()

    async def load(self, tell):
        name = Slow.versions.pop(0)
        if name == "old":
            await Slow.go_on.wait()
        return [ToolSpec(name=name, description="It.")]

    async def changes(self):
        return
        yield
"""


async def test_of_two_reloads_at_once_the_later_one_counts(site: Path) -> None:
    points = {"toolpost.sources": {"slow": "rt_slow:Slow"}}
    install(site, "rt-slow", points=points, rt_slow=SLOW_SOURCE)
    configure('[[sources]]\nkind = "slow"\n')
    async with Runtime.open() as tools:
        from rt_slow import Slow  # type: ignore[import-not-found]

        Slow.go_on = asyncio.Event()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(tools.reload())
            later = group.create_task(tools.reload())
            await asyncio.wait([later], timeout=0.1)  # it waits for its turn
            Slow.go_on.set()
        assert names(tools) == ["new"]


async def test_a_source_that_is_slow_to_load_again_keeps_no_other_waiting(site: Path) -> None:
    points = {"toolpost.sources": {"slow": "rt_slower:Slow"}}
    install(site, "rt-slower", points=points, rt_slower=SLOW_SOURCE)
    declare("a.yaml", "add")
    configure(FILES.format("a.yaml") + '[[sources]]\nkind = "slow"\n', watch=True)
    async with Runtime.open() as tools:
        from rt_slower import Slow  # type: ignore[import-not-found]

        Slow.go_on = asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(tools.reload())
            await until(lambda: Slow.versions == ["new"])
            declare("a.yaml", "add", "fresh")
            await until(lambda: names(tools) == ["add", "first", "fresh"])
            Slow.go_on.set()
        assert names(tools) == ["add", "fresh", "old"]


async def test_a_source_that_can_no_longer_be_watched_is_a_problem(site: Path) -> None:
    install_source(site)
    Path("blind").touch()
    async with Runtime.open() as tools:
        await until(lambda: bool(tools.problems))
        assert tools.problems == {"source 1 (mine)": "no longer watched: OSError('no eyes')"}


async def test_reloads_at_the_same_time_do_not_mix() -> None:
    declare("a.yaml", "add")
    configure(FILES.format("a.yaml"))
    async with Runtime.open() as tools, asyncio.timeout(60):
        for turn in range(10):
            declare("a.yaml", *(f"tool_{turn}_{i}" for i in range(turn)))
            await asyncio.gather(*(tools.reload() for _ in range(4)))
            assert names(tools) == [f"tool_{turn}_{i}" for i in range(turn)]


# --- what is wrong at the start ----------------------------------------------------------------


async def test_a_broken_source_stops_the_start_and_leaves_nothing_open(site: Path) -> None:
    install_source(site)
    Path("bad.yaml").write_text("- name: a\n")
    before = asyncio.all_tasks()
    configure('[[sources]]\nkind = "mine"\n', FILES.format("bad.yaml"))
    with pytest.raises(SourceError, match=r"bad\.yaml:1:3: tool 'a' has no description"):
        await Runtime.open().__aenter__()
    from rt_source import Mine

    assert Mine.closed == 1
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("[[sources]]\npaths = []\n", ConfigError, "toolpost.toml:3:9: a source has no kind"),
        (
            '[[sources]]\nkind = "filez"\n',
            MissingPart,
            "toolpost.toml:3:8: no source 'filez' is installed; did you mean 'files'?",
        ),
        (
            '[[sources]]\nkind = "files"\npath = "x"\n',
            ConfigError,
            "toolpost.toml:4:8: source files has no setting 'path'; did you mean 'paths'?",
        ),
        (
            '[[sources]]\nkind = "files"\npaths = "x"\n',
            ConfigError,
            "toolpost.toml:4:9: source files paths: expected `array`, got `str`",
        ),
        (
            '[[sources]]\nkind = "files"\n',
            ConfigError,
            "toolpost.toml:3:8: source files: object missing required field `paths`",
        ),
        ('guards = ["polizei"]\n', MissingPart, "toolpost.toml:2:10: no extension 'polizei' is"),
        (
            '[extensions.polcy]\nfile = "deny.toml"\n',
            MissingPart,
            "toolpost.toml:3:8: no extension 'polcy' is installed; did you mean 'policy'?",
        ),
    ],
)
def test_a_wrong_part_is_told_with_its_place(text: str, error: type[Exception], told: str) -> None:
    configure(text)
    with pytest.raises(error) as caught:
        Runtime.open()
    assert str(caught.value).startswith(told)


GUARD = """
from toolpost import Denied

class Gate:
    name = "gate"

    @classmethod
    def from_config(cls, options, base):
        gate = cls()
        gate.word = options.get("word", "no")
        return gate

    def bind(self, spec, road):
        async def ring(call, call_next):
            if call.arguments.get("word") != self.word:
                raise Denied("The word is wrong.")
            return await call_next(call)
        return ring
"""


async def test_the_extensions_a_config_names_stand_around_its_tools(site: Path) -> None:
    points = {"toolpost.extensions": {"gate": "rt_gate:Gate"}}
    install(site, "rt-gate", points=points, rt_gate=GUARD)
    configure('guards = ["gate"]\nobservers = []\n[extensions.gate]\nword = "yes"\n')

    @tool
    async def speak(word: str) -> str:
        """Speak."""
        return word

    async with Runtime.open() as tools:
        tools.registry.add(speak)
        assert (await tools.execute("speak", {"word": "yes"})).output == "yes"
        refused = await tools.execute("speak", {"word": "no"})
    assert refused.error is not None
    assert refused.error.code == "POLICY_DENIED"


@pytest.mark.req("UX-4")
async def test_a_table_of_a_ring_that_is_in_no_list_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configure('guards = ["slots"]\nobservers = []\n[extensions.approval]\nmode = "always"\n')
    async with Runtime.open():
        pass
    assert "toolpost.toml:5:8: [extensions.approval] changes nothing" in caplog.text


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@pytest.mark.req("UX-4", "FM-13")
async def test_functions_stand_under_the_default_chain_and_a_program_answers_for_people(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def ask(request: Request) -> bool:
        asked.append(request.tool)
        return request.exact()["to"] == "bob"

    config = Config.of({"watch": False, "store": {"kind": "memory"}}, base=tmp_path)
    async with Runtime.open(config, tools=[pay], ask=ask) as tools:
        assert [spec.name for spec in tools.list()] == ["pay"]
        assert (await tools.execute("pay", {"to": "bob"})).output == "paid bob"
        refused = await tools.execute("pay", {"to": "eve"})
        assert refused.error is not None and refused.error.code == "APPROVAL_DENIED"
        assert asked == ["pay", "pay"]
        assert 'toolpost_calls_total{tool="pay"} 2' in await tools.extension("metrics").scrape()
        assert [one.tool for one in tools.extension("log").recent()] == ["pay", "pay"]


async def test_a_ring_that_is_not_in_force_is_named_with_the_nearest(tmp_path: Path) -> None:
    config = Config.of({"guards": ["policy"], "observers": []}, base=tmp_path)
    runtime = Runtime(config)
    assert runtime.extension("policy").name == "policy"
    with pytest.raises(MissingPart, match=r"no ring 'polcy' is in force; did you mean 'policy'"):
        runtime.extension("polcy")
    await runtime.close()

    async def ask(request: Request) -> bool:
        return True

    with pytest.raises(MissingPart, match="no ring 'approval' is in force"):
        Runtime(config, ask=ask)


async def test_a_tool_of_a_program_and_one_of_a_source_may_not_share_a_name() -> None:
    declare("a.yaml", "pay")
    configure(FILES.format("a.yaml"))
    with pytest.raises(NameTaken, match="your code"):
        await Runtime.open(tools=[pay]).__aenter__()


async def test_closing_twice_is_harmless() -> None:
    declare("a.yaml", "add")
    configure(FILES.format("a.yaml"), watch=True)
    runtime = Runtime.open()
    async with runtime:
        pass
    await runtime.close()


@pytest.mark.parametrize(
    ("fields", "opened"),
    [({"tier": 2}, False), ({"tier": 3}, True), ({"isolation": "sandbox"}, True)],
    ids=["tier 2", "tier 3", "by name"],
)
async def test_a_sandbox_is_opened_at_the_start_if_a_tool_is_to_run_in_it(
    fields: dict[str, object], opened: bool
) -> None:
    declare("a.yaml", "add", **fields)
    configure(FILES.format("a.yaml"))

    @tool(tier=4)
    async def here() -> int:
        """Be in the loop."""
        return 1

    async with Runtime.open() as tools:
        assert (tools._sandbox.opened is not None) == opened
        tools.registry.add(here)
        await tools.open_sandbox("here", "nobody")
        assert (tools._sandbox.opened is not None) == opened


@pytest.mark.req("NA-10")
async def test_less_isolation_is_accepted_in_permissive_mode_only_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configure('mode = "permissive"\n[sandbox]\nlower = true\n')
    async with Runtime.open() as tools:
        health = await tools.health()
    assert "one level lower" in caplog.text
    assert (health["sandbox"].healthy, "one level lower" in str(health["sandbox"].error)) == (
        True,
        True,
    )
    configure("[sandbox]\nlower = true\n")
    with pytest.raises(ConfigError, match=r"toolpost\.toml:\d+:\d+: .*permissive"):
        Runtime.open()
    configure("[sandbox]\nlowr = true\n")
    with pytest.raises(ConfigError, match="lowr"):
        Runtime.open()
