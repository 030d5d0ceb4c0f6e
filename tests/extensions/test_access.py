"""Access: who may see a tool, and who may call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolpost import Caller, Executor, Permissions, Registry, ToolSpec, tool
from toolpost.clock import SystemClock
from toolpost.contracts import Surroundings
from toolpost.errors import ConfigError
from toolpost.extensions import access as access_module
from toolpost.extensions.access import Access, Grant
from toolpost.stores.memory import MemoryStore
from toolpost.testing import check_extension

pytestmark = pytest.mark.anyio


@tool(name="kb.search", tier=0, effects="read", tags=["safe"])
async def search(query: str) -> str:
    """Search the knowledge base."""
    return query


@tool(name="mail.send", tier=2)
async def send(to: str) -> str:
    """Send a mail."""
    return to


@tool(name="db.drop", tier=4, permissions=Permissions(roles=("admin",), agents=("planner",)))
async def drop(table: str) -> str:
    """Drop a table."""
    return table


TOOLS: dict[str, dict[str, Any]] = {
    "kb.search": {"query": "tea"},
    "mail.send": {"to": "bob"},
    "db.drop": {"table": "t"},
}


def made(options: dict[str, Any]) -> Access:
    store = MemoryStore()
    around = Surroundings(
        records=store,
        journal=store,
        clock=SystemClock(),
        base=Path(),
        state=Path(),
        mode="standard",
        secret=lambda name: None,
    )
    return Access.from_config(options, around)


def executor(access: Access) -> Executor:
    return Executor(Registry([search, send, drop]), guards=[access])


def who(*roles: str, agent: str | None = None, caller: str = "somebody") -> Caller:
    return Caller(caller, agent=agent, roles=frozenset(roles))


async def codes(access: Access, caller: Caller) -> list[str]:
    """What each of the three tools answers this caller."""
    async with executor(access) as tools:
        results = [await tools.execute(n, a, caller=caller) for n, a in TOOLS.items()]
    return ["ok" if r.error is None else r.error.code for r in results]


async def test_the_owner_may_do_everything() -> None:
    hidden = Access(default=Grant())
    async with executor(hidden) as tools:
        assert len(tools.list()) == 3
        for name, arguments in TOOLS.items():
            assert (await tools.execute(name, arguments)).error is None


@pytest.mark.req("NA-2", "AF-7")
async def test_an_identified_caller_is_denied_above_tier_1_unless_a_role_allows_it() -> None:
    assert await codes(Access(), who()) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]
    mailer = Access(roles={"mailer": Grant(call=("mail.*",), tier=2)})
    assert await codes(mailer, who()) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]
    assert await codes(mailer, who("mailer")) == ["ok", "ok", "UNAUTHORIZED"]
    low = Access(roles={"mailer": Grant(call=("mail.*",))})
    assert await codes(low, who("mailer")) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]


@pytest.mark.req("AF-7")
async def test_an_agent_without_the_right_is_told_that_the_tool_is_not_authorized_for_it() -> None:
    async with executor(Access()) as tools:
        result = await tools.execute("mail.send", {"to": "bob"}, caller=who(agent="coder"))
    assert result.error is not None
    assert result.error.code == "UNAUTHORIZED"
    assert "'mail.send' is not authorized for this agent" in result.error.message
    assert (result.error.remedy, result.error.retryable, result.error.effects) == (
        "other_tool",
        False,
        "none",
    )
    assert result.metadata.trail == ["access", "access: UNAUTHORIZED"]


@pytest.mark.parametrize("group", ["roles", "agents", "callers"])
async def test_roles_agents_and_callers_add_to_what_everybody_may(group: str) -> None:
    access = Access(
        default=Grant(call=("tag:safe",)),
        **{group: {"x": Grant(call=("mail.*",), tier=2)}},  # type: ignore[arg-type]
    )
    x = {"roles": who("x"), "agents": who(agent="x"), "callers": who(caller="x")}[group]
    assert await codes(access, x) == ["ok", "ok", "NOT_FOUND"]
    assert await codes(access, who()) == ["ok", "NOT_FOUND", "NOT_FOUND"]


async def test_the_permissions_of_a_spec_take_away_what_a_role_gives() -> None:
    access = Access(roles={"all": Grant(call=("*",), tier=4)})
    last = {
        ("all",): "UNAUTHORIZED",
        ("all", "admin"): "UNAUTHORIZED",
    }
    for roles, code in last.items():
        assert (await codes(access, who(*roles)))[2] == code
    assert (await codes(access, who("all", agent="planner")))[2] == "UNAUTHORIZED"
    assert (await codes(access, who("all", "admin", agent="coder")))[2] == "UNAUTHORIZED"
    assert (await codes(access, who("all", "admin", agent="planner")))[2] == "ok"
    # a spec does not give anything: without a grant its own role is not enough
    assert (await codes(access, who("admin", agent="planner")))[2] == "UNAUTHORIZED"


async def test_seeing_and_calling_are_two_rights() -> None:
    access = Access(
        default=Grant(),
        roles={"reader": Grant(see=("*",), call=("kb.*",)), "caller": Grant(call=("kb.*",))},
    )
    async with executor(access) as tools:
        assert [s.name for s in tools.list(who("reader"))] == ["db.drop", "kb.search", "mail.send"]
        assert [s.name for s in tools.list(who("caller"))] == ["kb.search"]
        assert tools.list(who()) == ()
    assert await codes(access, who("reader")) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]
    assert await codes(access, who("caller")) == ["ok", "NOT_FOUND", "NOT_FOUND"]


@pytest.mark.req("AF-7")
@pytest.mark.parametrize("arguments", [{"table": "t"}, {}, {"table": 5}, {"tabel": "t"}, None])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_tool_that_may_not_be_seen_answers_exactly_as_one_that_is_not_there(
    arguments: Any, dry_run: bool
) -> None:
    seen: list[str] = []

    async def observer(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        seen.append(f"{call.tool} {result.error.code}")
        return result

    async def answer(*tools: Any) -> dict[str, Any]:
        access = Access(default=Grant(call=("kb.*",)))
        registry = Registry([search, *tools])
        async with Executor(registry, guards=[access], observers=[observer]) as ex:
            result = await ex.execute("db.drop", arguments, caller=who("x"), dry_run=dry_run)
        told = msgspec.to_builtins(result)
        told["metadata"].pop("call_id")
        told["metadata"].pop("duration_ms")
        return dict(told)

    assert await answer(drop, send) == await answer()
    assert seen == ["db.drop NOT_FOUND"] * 2


async def test_a_hidden_tool_that_cannot_even_be_bound_is_not_given_away() -> None:
    odd = ToolSpec(name="odd", description="Odd.", kind="no_such_kind")
    async with Executor(Registry([search, odd]), guards=[Access(default=Grant())]) as tools:
        assert (await tools.execute("odd")).error.code == "UNAVAILABLE"
        assert (await tools.execute("odd", caller=who())).error.code == "NOT_FOUND"


async def test_a_near_name_is_hinted_at_only_if_it_may_be_seen() -> None:
    async with executor(Access(default=Grant(call=("kb.*",)))) as tools:
        hidden = await tools.execute("mail.sent", caller=who())
        assert hidden.error is not None and "mail.send" not in hidden.error.message
        shown = await tools.execute("kb.serch", caller=who())
        assert shown.error is not None and "did you mean 'kb.search'?" in shown.error.message


async def test_a_tool_that_everybody_may_call_pays_nothing() -> None:
    async with executor(Access(roles={"r": Grant(call=("*",), tier=4)})) as tools:
        assert tools.bound("kb.search").rings == ()
        assert tools.bound("mail.send").rings == ("access",)


async def test_a_tool_that_is_replaced_is_judged_as_it_is_now() -> None:
    access, registry = Access(default=Grant(call=("tag:safe",))), Registry([search])
    async with Executor(registry, guards=[access]) as tools:
        assert (await tools.execute("kb.search", {"query": "a"}, caller=who())).error is None

        @tool(name="kb.search", tier=0, effects="read")
        async def other(query: str) -> str:
            """Search elsewhere."""
            return query

        registry.replace(other)
        result = await tools.execute("kb.search", {"query": "a"}, caller=who())
        assert result.error is not None and result.error.code == "NOT_FOUND"
        assert tools.list(who()) == ()


async def test_what_is_remembered_of_tools_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "_REMEMBERED", 10)
    access = Access()
    for number in range(100):
        assert access.sees(who(), ToolSpec(name=f"t{number}", description="A tool."))
    assert len(access._rights) <= 10


async def test_the_config_says_who_may_what() -> None:
    access = made(
        {
            "default": {"call": ["tag:safe"]},
            "roles": {"mailer": {"call": ["mail.*"], "tier": 2}},
            "agents": {"planner": {"see": ["*"]}},
            "callers": {"key-1": {"call": ["*"], "tier": 3}},
        }
    )
    assert await codes(access, who()) == ["ok", "NOT_FOUND", "NOT_FOUND"]
    assert await codes(access, who("mailer")) == ["ok", "ok", "NOT_FOUND"]
    assert await codes(access, who(agent="planner")) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]
    assert await codes(access, who(caller="key-1")) == ["ok", "ok", "NOT_FOUND"]
    assert await codes(made({}), who()) == ["ok", "UNAUTHORIZED", "UNAUTHORIZED"]


@pytest.mark.parametrize(
    ("options", "said", "at"),
    [
        ({"role": {}}, "access has no setting 'role'; did you mean 'roles'?", ("role",)),
        ({"roles": {"a": {"cal": []}}}, "access roles.a has no setting 'cal'", None),
        ({"roles": {"a": {"tier": 5}}}, "tier must be 0 to 4", None),
        ({"roles": {"a": {"call": "*"}}}, "access roles.a call: expected", None),
        ({"agents": {"a": {"call": ["tga:x"]}}}, "'tga:x' is no pattern", ("agents", "a")),
        ({"default": {"see": ["a b"]}}, "'a b' is no pattern", ("default",)),
        ({"roles": {"a": 5}}, "access roles: expected", None),
    ],
)
def test_a_wrong_grant_is_refused_with_its_place(
    options: dict[str, Any], said: str, at: tuple[str, ...] | None
) -> None:
    with pytest.raises(ConfigError) as fault:
        made(options)
    assert said in fault.value.message
    assert at is None or fault.value.at[: len(at)] == at


@pytest.mark.parametrize(
    "access", [Access(), Access(default=Grant()), Access(roles={"r": Grant(see=("*",))})]
)
async def test_it_keeps_the_contract_of_extensions(access: Access) -> None:
    (await check_extension(access)).raise_if_failed()
