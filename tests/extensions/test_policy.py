"""Policy: what is allowed, asked and denied, on a file that changes under it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolpost import Call, Caller, Executor, Registry, Result, Runtime, tool
from toolpost.config import Config, find
from toolpost.contracts import Mode, Walk
from toolpost.errors import ConfigError
from toolpost.extensions.policy import Policy
from toolpost.testing import Clock, check_extension

pytestmark = pytest.mark.anyio

DENY = '[[rules]]\nid = "no-etc"\ndecision = "deny"\narguments."/path" = {matches = "/etc/*"}\n'
ASK = '[[rules]]\nid = "ask-me"\ndecision = "ask"\nreason = "Files are dear."\ntool = "*_file"\n'
ALLOW = '[[rules]]\nid = "fine"\ndecision = "allow"\ntool = "tier4"\n'


class Later:
    """The system's clock, ahead by as much as a test wants."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Tools:
    """Tools of every tier that remember what ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.registry = Registry([self._tier(tier) for tier in range(5)])

        @tool(tier=1)
        async def write_file(path: str) -> str:
            """Write a file."""
            self.ran.append(path)
            return path

        self.registry.add(write_file)

    def _tier(self, tier: int) -> Any:
        @tool(name=f"tier{tier}", tier=tier)
        async def tiered() -> int:
            """Do it."""
            self.ran.append(f"tier{tier}")
            return tier

        return tiered

    def under(self, policy: Policy, *more: Any) -> Executor:
        return Executor(self.registry, guards=[policy, *more])


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(DENY, encoding="utf-8")
    return path


def code(result: Result) -> str:
    return "ok" if result.error is None else result.error.code


async def write(executor: Executor, path: str, **more: Any) -> str:
    return code(await executor.execute("write_file", {"path": path}, **more))


# Mode and tier


@pytest.mark.req("NA-2", "NA-3")
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("strict", ["ok", "ok", "APPROVAL_REQUIRED", "APPROVAL_REQUIRED", "POLICY_DENIED"]),
        ("standard", ["ok", "ok", "ok", "APPROVAL_REQUIRED", "POLICY_DENIED"]),
        ("permissive", ["ok", "ok", "ok", "APPROVAL_REQUIRED", "APPROVAL_REQUIRED"]),
    ],
)
async def test_the_mode_and_the_tier_give_allow_ask_or_deny(
    tools: Tools, mode: Mode, expected: list[str]
) -> None:
    async with tools.under(Policy(mode)) as executor:
        got = [code(await executor.execute(f"tier{tier}")) for tier in range(5)]
        bound = [executor.bound(f"tier{tier}").rings for tier in range(5)]
    assert got == expected
    assert tools.ran == [f"tier{t}" for t, c in enumerate(expected) if c == "ok"]
    assert bound == [() if c == "ok" else ("policy",) for c in expected], "allowed costs nothing"


@pytest.mark.req("NA-3")
async def test_a_refusal_names_the_rule_and_tells_what_to_do(tools: Tools, file: Path) -> None:
    policy = Policy(file=file)
    async with tools.under(policy) as executor:
        result = await executor.execute("write_file", {"path": "/etc/passwd"})
        assert result.error is not None
        assert result.error.message == ("This call is not allowed. Do not repeat it. (rule no-etc)")
        assert (result.error.remedy, result.error.effects) == ("stop", "none")
        assert result.error.details == {"rule": "no-etc", "policy": policy.rules.digest}
        assert result.metadata.trail == [
            "policy",
            "policy: deny (rule no-etc)",
            "policy: POLICY_DENIED",
        ]
        fourth = await executor.execute("tier4")
        assert fourth.error is not None and "(rule standard/tier-4)" in fourth.error.message
    assert tools.ran == []


async def test_a_rule_may_allow_what_the_mode_would_not(tools: Tools, file: Path) -> None:
    file.write_text(ALLOW, encoding="utf-8")
    async with tools.under(Policy("strict", file=file)) as executor:
        result = await executor.execute("tier4")
        assert result.output == 4
        assert result.metadata.trail == ["policy", "policy: allow (rule fine)"]
        usual = await executor.execute("tier0")
        assert (usual.output, usual.metadata.trail) == (0, ["policy"])
        assert code(await executor.execute("tier3")) == "APPROVAL_REQUIRED"


async def test_defaults_are_filled_in_before_a_rule_looks(tmp_path: Path) -> None:
    @tool
    async def remove(path: str = "/etc/hosts") -> str:
        """Remove a file."""
        return path

    (tmp_path / "p.toml").write_text(DENY, encoding="utf-8")
    async with Executor(Registry([remove]), guards=[Policy(file=tmp_path / "p.toml")]) as executor:
        assert code(await executor.execute("remove")) == "POLICY_DENIED"
        assert code(await executor.execute("remove", {"path": "/tmp/x"})) == "ok"


async def test_a_rule_may_be_about_the_caller(tools: Tools, file: Path) -> None:
    file.write_text('[[rules]]\nid = "r"\ndecision = "deny"\nagent = "coder"\n', encoding="utf-8")
    async with tools.under(Policy(file=file)) as executor:
        assert await write(executor, "a", caller=Caller("x", agent="coder")) == "POLICY_DENIED"
        assert await write(executor, "a", caller=Caller("x", agent="planner")) == "ok"
        assert await write(executor, "a") == "ok"


# A person is asked


@pytest.mark.req("FM-13")
async def test_a_call_that_needs_a_yes_does_not_run_where_nobody_asks(
    tools: Tools, file: Path
) -> None:
    file.write_text(ASK, encoding="utf-8")
    async with tools.under(Policy(file=file)) as executor:
        result = await executor.execute("write_file", {"path": "a"})
        assert result.error is not None
        assert (result.error.code, result.error.message, result.error.remedy) == (
            "APPROVAL_REQUIRED",
            "Files are dear. (rule ask-me)",
            "ask_approval",
        )
        assert "policy: ask (rule ask-me)" in result.metadata.trail
        assert await write(executor, "a", grant="forged") == "APPROVAL_REQUIRED"
        plan = (await executor.execute("write_file", {"path": "a"}, dry_run=True)).metadata.plan
        assert plan is not None and plan["ask"] == "Files are dear. (rule ask-me)"
    assert tools.ran == []


@pytest.mark.req("FM-13")
async def test_a_ring_behind_that_has_asked_lets_the_call_run(tools: Tools, file: Path) -> None:
    async def yes(call: Call, call_next: Walk) -> Result:
        assert call.ask is None or call.ask == "Files are dear. (rule ask-me)"
        return await call_next(msgspec.structs.replace(call, ask=None))

    file.write_text(ASK, encoding="utf-8")
    async with tools.under(Policy(file=file), yes) as executor:
        assert await write(executor, "a") == "ok"
        plan = (await executor.execute("tier0", dry_run=True)).metadata.plan
        assert plan is not None and "ask" not in plan
    assert tools.ran == ["a"]


# The file changes, breaks, goes


async def test_a_changed_file_is_in_force_within_a_second_or_two(tools: Tools, file: Path) -> None:
    clock = Later()
    policy = Policy(file=file, clock=clock)
    async with tools.under(policy) as executor:
        assert await write(executor, "/etc/a") == "POLICY_DENIED"
        file.write_text(ASK, encoding="utf-8")
        clock.ahead = 5
        assert await write(executor, "/etc/a") == "APPROVAL_REQUIRED"
        assert policy.problem is None
        assert [rule.decision.rule for rule in policy.rules.rules] == ["ask-me"]


async def test_a_file_that_is_being_written_is_left_alone(tools: Tools, file: Path) -> None:
    clock = Clock(time.time() - 60)  # by this clock the file has just been changed
    async with tools.under(Policy(file=file, clock=clock)) as executor:
        file.write_text(ALLOW, encoding="utf-8")  # half of what will be there
        clock.advance(1)
        assert await write(executor, "/etc/a") == "POLICY_DENIED"
        file.write_text(ALLOW + ASK, encoding="utf-8")
        for _ in range(2):
            clock.advance(1)
            await write(executor, "/etc/a")
        assert await write(executor, "/etc/a") == "APPROVAL_REQUIRED"


async def test_the_file_is_looked_at_once_a_second_at_most(tools: Tools, file: Path) -> None:
    clock = Clock()
    async with tools.under(Policy(file=file, clock=clock)) as executor:
        file.write_text(ASK, encoding="utf-8")
        answers = []
        for _ in range(8):
            answers.append(await write(executor, "/etc/a"))
            clock.advance(0.4)
    # not before 1.0; there it is new; there it is as it was when last seen
    assert answers == ["POLICY_DENIED"] * 6 + ["APPROVAL_REQUIRED"] * 2


@pytest.mark.parametrize("fault", ["broken", "empty", "absent", "no rules", "unknown condition"])
async def test_a_policy_that_breaks_while_it_runs_leaves_the_old_one_in_force_and_alarms(
    fault: str, tools: Tools, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Later()
    policy = Policy(file=file, clock=clock)
    async with tools.under(policy) as executor:
        assert await write(executor, "/etc/a") == "POLICY_DENIED"
        texts = {
            "broken": "[[rules\n",
            "empty": "",
            "no rules": "rules = []\n",
            "unknown condition": '[[rules]]\nid="a"\ndecision="allow"\nwhenever=1\n',
        }
        file.unlink() if fault == "absent" else file.write_text(texts[fault], encoding="utf-8")
        for ahead in (5, 10, 15):
            clock.ahead = ahead
            assert await write(executor, "/etc/a") == "POLICY_DENIED"
            assert await write(executor, "b") == "ok"
        assert policy.problem is not None and str(file) in policy.problem
        alarms = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(alarms) == 1, "one alarm for one fault"
        assert "the policy in force stays" in alarms[0].getMessage()

        file.write_text(ASK, encoding="utf-8")
        clock.ahead = 20
        assert await write(executor, "/etc/a") == "APPROVAL_REQUIRED"
        assert policy.problem is None


@pytest.mark.parametrize("setting", ["file", "shadow"])
async def test_a_file_that_breaks_is_noticed_without_a_call(setting: str, tmp_path: Path) -> None:
    rules = tmp_path / "p.toml"
    rules.write_text(DENY, encoding="utf-8")
    clock = Later()
    policy = (
        Policy(clock=clock, file=rules) if setting == "file" else Policy(clock=clock, shadow=rules)
    )
    assert policy.problem is None
    rules.write_text("[[rules\n", encoding="utf-8")
    clock.ahead = 5
    assert policy.problem is not None and str(rules) in policy.problem
    rules.write_text(ASK, encoding="utf-8")
    clock.ahead = 10
    assert policy.problem is None


async def test_health_tells_of_a_policy_that_went_away_though_nobody_calls(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(DENY, encoding="utf-8")
    async with Runtime(configured(tmp_path, 'file = "p.toml"')) as tools:
        assert (await tools.health())["extension policy"].healthy
        (tmp_path / "p.toml").unlink()
        async with asyncio.timeout(60):
            while (await tools.health())["extension policy"].healthy:
                await asyncio.sleep(0.05)
        assert "p.toml" in tools.problems["extension policy"]


async def test_an_alarm_ends_when_the_old_file_is_back(tools: Tools, file: Path) -> None:
    clock, aside = Later(), file.with_name("aside")
    policy = Policy(file=file, clock=clock)
    async with tools.under(policy) as executor:
        os.link(file, aside)
        file.unlink()
        clock.ahead = 5
        await write(executor, "a")
        assert policy.problem is not None
        aside.rename(file)
        for ahead in (10, 15):
            clock.ahead = ahead
            await write(executor, "a")
        assert policy.problem is None
        assert await write(executor, "/etc/a") == "POLICY_DENIED"


@pytest.mark.parametrize("setting", ["file", "shadow"])
@pytest.mark.parametrize("text", [None, "", "# nothing\n", "rules = []\n", "[[rules\n"])
async def test_a_policy_that_is_broken_absent_or_empty_refuses_to_start(
    setting: str, text: str | None, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as fault:
        Runtime(configured(tmp_path, f'{setting} = "p.toml"'))
    assert f"toolpost.toml:3:{len(setting) + 4}: {tmp_path / 'p.toml'}" in fault.value.message


def configured(folder: Path, options: str) -> Config:
    text = f'guards = ["access", "policy"]\n[extensions.policy]\n{options}\n'
    (folder / "toolpost.toml").write_text(text, encoding="utf-8")
    return find(folder / "toolpost.toml")


async def test_the_config_names_the_files_and_gives_the_mode(tmp_path: Path, file: Path) -> None:
    config = configured(tmp_path, 'file = "policy.toml"')
    async with Runtime(config) as runtime:
        policy = runtime.executor.guards[1]
        assert isinstance(policy, Policy)
        assert (policy.mode, len(policy.rules.rules)) == ("standard", 1)
        assert policy.shadow_report() is None
    with pytest.raises(ConfigError, match="policy has no setting 'fiel'; did you mean 'file'"):
        Runtime(configured(tmp_path, 'fiel = "policy.toml"'))


# The shadow


async def test_a_shadow_is_counted_and_changes_nothing(
    tools: Tools, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolpost.policy")
    shadow = tmp_path / "new.toml"
    shadow.write_text(
        '[[rules]]\nid = "no-b"\ndecision = "deny"\narguments."/path" = {matches = "b*"}\n'
        '[[rules]]\nid = "etc-is-fine"\ndecision = "allow"\narguments."/path" = {matches="/etc/*"}'
        "\n",
        encoding="utf-8",
    )
    policy = Policy(file=file, shadow=shadow)
    async with tools.under(policy) as executor:
        for number in range(37):
            assert await write(executor, f"b{number}") == "ok"
        assert await write(executor, "c") == "ok"
        assert await write(executor, "/etc/a") == "POLICY_DENIED", "it never weakens the old rules"
        report = policy.shadow_report()
    assert report is not None
    assert (report.calls, report.would) == (39, {"deny": 37, "allow": 1})
    assert report.rules == {"no-b": 37, "etc-is-fine": 1}
    assert "would have denied 37 calls" in str(report)
    assert "would have denied 37 calls" in caplog.records[-1].getMessage()
    assert "would be deny by rule no-b" in caplog.text


async def test_a_shadow_needs_no_policy_beside_it(tools: Tools, file: Path) -> None:
    policy = Policy(shadow=file)
    async with tools.under(policy) as executor:
        assert await write(executor, "/etc/a") == "ok"
        assert code(await executor.execute("tier4")) == "POLICY_DENIED"
    report = policy.shadow_report()
    assert report is not None and report.would == {"deny": 1}


async def test_a_changed_shadow_is_counted_anew(tools: Tools, file: Path) -> None:
    clock = Later()
    policy = Policy(shadow=file, clock=clock)
    async with tools.under(policy) as executor:
        await write(executor, "/etc/a")
        file.write_text(ASK, encoding="utf-8")
        clock.ahead = 5
        assert await write(executor, "/etc/a") == "ok"
        report = policy.shadow_report()
        assert report is not None and (report.calls, report.would) == (1, {"ask": 1})
        file.write_text("", encoding="utf-8")
        clock.ahead = 10
        assert await write(executor, "/etc/a") == "ok"
        assert policy.problem is not None and "it has no rules" in policy.problem


async def test_a_shadow_that_cannot_judge_refuses_nothing(
    tools: Tools, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(shadow=file)
    monkeypatch.setattr(policy._shadow, "_count", None)
    async with tools.under(policy) as executor:
        assert await write(executor, "a") == "ok"
    assert "the shadow policy could not judge write_file" in caplog.text


@pytest.mark.parametrize("mode", ["strict", "standard", "permissive"])
async def test_it_keeps_the_contract_of_extensions(mode: Mode, file: Path) -> None:
    for policy in (Policy(mode), Policy(mode, file=file), Policy(mode, file=file, shadow=file)):
        (await check_extension(policy)).raise_if_failed()
