"""A yes is bound to the code that runs: edited code is not run, and is asked for again."""

from __future__ import annotations

import importlib
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.sandbox.elsewhere import need_a_sandbox
from toolpost import Call, Caller, Executor, Registry, Result, ToolSpec
from toolpost.approvals import Decision, Lasting
from toolpost.contracts import Declared, Walk
from toolpost.extensions.approval import Approval, ApprovalOptions
from toolpost.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

BOT = Caller("key-1", user="ann", agent="bot")
BOSS = Caller("key-9", user="zoe", roles=frozenset({"approver"}))
YES = Decision(approve=True)
OLD = "def send():\n    return 'old'\n\n\ndef look():\n    return 'old'\n"
NEW = OLD.replace("old", "new")
FULL = {"type": "object", "properties": {}, "additionalProperties": False}


class Office:
    """An executor that asks for every tool that wants it, and somebody who answers."""

    def __init__(
        self,
        *tools: Any,
        records: MemoryStore | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """``then`` is done once a call has been let through, before it runs."""

        async def later(call: Call, call_next: Walk) -> Result:
            if then is not None:
                then()
            return await call_next(call)

        self.records = records or MemoryStore()
        options = ApprovalOptions(approvers=("approver",))
        self.ring = Approval(self.records, options=options)
        programs = [str(t.spec.binding["command"][0]) for t in tools if t.spec.kind == "shell"]
        self.executor = Executor(
            Registry(tools),
            guards=[self.ring, later],
            settings={"shell": {"programs": programs}, "python": {"workers": 1}},
        )

    async def call(self, name: str = "send", **more: Any) -> Result:
        return await self.executor.execute(name, {}, caller=BOT, timeout=60, **more)

    async def approved(self, **how: Any) -> str:
        error = (await self.call(session_id="s")).error
        assert error is not None and error.code == "APPROVAL_REQUIRED", error
        handle = str((error.details or {})["approval"])
        decision = Decision(approve=True, **how)
        await self.ring.approvals.decide(handle, decision, by=BOSS, channel="api")
        return handle


def declared(folder: Path, name: str = "send", **fields: Any) -> Declared:
    made: dict[str, Any] = {
        "name": name,
        "description": "It.",
        "input_schema": FULL,
        "requires_approval": name == "send",
        "binding": {"module": "approved_code_tools", "function": name},
        "isolation": "process",
        "timeout": 30,
    }
    return Declared(ToolSpec(**made | fields), str(folder))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "tools" / "approved_code_tools.py"
    file.parent.mkdir()
    file.write_text(OLD)
    return file


@pytest.fixture(params=["process", "sandbox"])
def isolation(request: pytest.FixtureRequest) -> str:
    if request.param == "sandbox":
        need_a_sandbox()
    return str(request.param)


def assert_changed(result: Result) -> None:
    assert result.error is not None, result.output
    assert (result.error.code, result.error.remedy) == ("CONFLICT", "ask_approval")
    assert result.error.effects == "none"
    assert "code" in result.error.message and "has changed since" in result.error.message
    assert "Ask again" in result.error.message


async def test_an_approved_call_of_a_module_that_nobody_touched_runs(
    module: Path, isolation: str
) -> None:
    office = Office(declared(module.parent, isolation=isolation))
    async with office.executor:
        handle = await office.approved()
        result = await office.call(grant=handle, session_id="s")
    assert result.output == "old"


async def test_a_module_edited_between_the_yes_and_the_call_is_not_run(
    module: Path, isolation: str
) -> None:
    office = Office(declared(module.parent, isolation=isolation))
    async with office.executor:
        handle = await office.approved()
        module.write_text(NEW)
        assert_changed(await office.call(grant=handle, session_id="s"))
        again = await office.call(session_id="s")
        assert again.error is not None and again.error.code == "APPROVAL_REQUIRED"
        assert f"The code of send has changed since {handle} was asked for." in again.error.message
        assert (again.error.details or {})["approval"] != handle


async def test_a_module_edited_while_an_approved_call_waits_for_its_worker_is_not_run(
    module: Path, isolation: str
) -> None:
    tool = declared(module.parent, isolation=isolation)
    office = Office(tool, then=lambda: [module.write_text(NEW)].clear())
    async with office.executor:
        handle = await office.approved()
        assert_changed(await office.call(grant=handle, session_id="s"))
        fresh = await office.approved()
        assert (await office.call(grant=fresh, session_id="s")).output == "new"


async def test_a_worker_that_has_loaded_older_code_does_not_run_it_under_a_newer_yes(
    module: Path, isolation: str
) -> None:
    tools = [declared(module.parent, name, isolation=isolation) for name in ("send", "look")]
    office = Office(*tools)
    async with office.executor:
        assert (await office.call("look")).output == "old"
        module.write_text(NEW)
        handle = await office.approved()
        assert (await office.call(grant=handle, session_id="s")).output == "new"
        assert (await office.call("look")).output == "new"


async def test_what_was_compiled_of_other_code_before_is_not_run(module: Path) -> None:
    before = module.stat()
    py_compile.compile(str(module), doraise=True)
    module.write_text(NEW)  # of the same size, and now of the same age
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    office = Office(declared(module.parent))
    async with office.executor:
        handle = await office.approved()
        assert (await office.call(grant=handle, session_id="s")).output == "new"


async def test_an_edit_that_keeps_size_and_age_of_the_file_is_seen(module: Path) -> None:
    office = Office(declared(module.parent))
    async with office.executor:
        handle = await office.approved()
        before = module.stat()
        module.write_text(NEW)
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert_changed(await office.call(grant=handle, session_id="s"))


async def test_a_lasting_yes_ends_with_the_code_it_was_given_for(module: Path) -> None:
    office = Office(declared(module.parent))
    async with office.executor:
        await office.approved(lasting=Lasting(seconds=600.0, session=True))
        assert (await office.call(session_id="s")).output == "old"  # the yes for this very call
        assert (await office.call(session_id="s")).output == "old"
        module.write_text(NEW)
        error = (await office.call(session_id="s")).error
        assert error is not None and error.code == "APPROVAL_REQUIRED"
        module.write_text(OLD)
        assert (await office.call(session_id="s")).output == "old"


async def test_an_approved_call_in_this_process_runs_what_was_loaded_and_no_other_code_after_that(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(module.parent)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # else a reload may find what was compiled
    monkeypatch.delitem(sys.modules, "approved_code_tools", raising=False)
    tool, records = declared(module.parent, isolation="thread"), MemoryStore()
    office = Office(tool, records=records)
    async with office.executor:
        handle = await office.approved()
        module.write_text(NEW)
        assert (await office.call(grant=handle, session_id="s")).output == "old"
        module.write_text(OLD)
        handle = await office.approved()
    module.write_text(NEW)
    importlib.reload(sys.modules["approved_code_tools"])  # as after a restart
    office = Office(tool, records=records)
    async with office.executor:
        assert_changed(await office.call(grant=handle, session_id="s"))
    monkeypatch.delitem(sys.modules, "approved_code_tools")


async def test_code_that_is_no_longer_what_its_file_says_is_not_asked_for(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(module.parent)
    monkeypatch.delitem(sys.modules, "approved_code_tools", raising=False)
    importlib.import_module("approved_code_tools")
    module.write_text(NEW)
    office = Office(declared(module.parent, isolation="thread"))
    async with office.executor:
        error = (await office.call()).error
    assert error is not None and error.code == "CONFLICT"
    assert "Restart the program" in error.message
    monkeypatch.delitem(sys.modules, "approved_code_tools")


async def test_a_tool_without_a_file_is_bound_to_its_definition() -> None:
    space: dict[str, Any] = {"__name__": "approved_code_nowhere"}
    exec("from toolpost import tool\n@tool(requires_approval=True)\nasync def send() -> str:\n"
         "    'Send.'\n    return 'sent'\n", space)  # fmt: skip
    office = Office(space["send"])
    async with office.executor:
        handle = await office.approved()
        assert (await office.call(grant=handle, session_id="s")).output == "sent"


def test_a_script_that_is_the_program_itself_is_not_run_by_a_worker_once_it_has_changed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        dedent("""
        import asyncio, sys
        from pathlib import Path
        from toolpost import Executor, Registry, tool
        from toolpost.approvals import Decision
        from toolpost.extensions.approval import Approval
        from toolpost.stores.memory import MemoryStore

        @tool(requires_approval=True, isolation="process")
        def send() -> str:
            "Send."
            return "old"

        async def main() -> None:
            async def yes(request: object) -> bool:
                if sys.argv[1:] == ["edit"]:
                    file = Path(__file__)
                    file.write_text(file.read_text().replace('"old"', '"new"'))
                return True

            ring = Approval(MemoryStore(), ask=yes)
            async with Executor(Registry([send]), guards=[ring]) as tools:
                result = await tools.execute("send", {}, timeout=60)
                print(result.output or result.error.code)

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )

    def run(*words: str) -> str:
        command = [sys.executable, str(script), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
        return done.stdout.strip()

    assert run() == "old"
    assert run("edit") == "CONFLICT"


# shell tools


def program(folder: Path, command: list[str], **fields: Any) -> Declared:
    spec: dict[str, Any] = {
        "name": "send",
        "description": "It.",
        "kind": "shell",
        "input_schema": FULL,
        "requires_approval": True,
        "isolation": "process",
        "timeout": 30,
        "binding": {"command": command, "read": [str(folder)], "working_dir": str(folder)},
    }
    return Declared(ToolSpec(**spec | fields), str(folder))


@pytest.fixture(params=["the program", "the script of an interpreter"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    file = tmp_path / "send.sh"
    file.write_text("#!/bin/sh\necho old\n")
    file.chmod(0o755)
    return file, [str(file)] if request.param == "the program" else ["/bin/sh", "send.sh"]


async def test_an_approved_script_that_nobody_touched_runs(
    script: tuple[Path, list[str]], isolation: str
) -> None:
    file, command = script
    office = Office(program(file.parent, command, isolation=isolation))
    async with office.executor:
        handle = await office.approved()
        result = await office.call(grant=handle, session_id="s")
    assert result.output.strip() == "old" and not result.metadata.warnings


async def test_a_script_edited_between_the_yes_and_the_call_is_not_run(
    script: tuple[Path, list[str]],
) -> None:
    file, command = script
    office = Office(program(file.parent, command))
    async with office.executor:
        handle = await office.approved()
        file.write_text("#!/bin/sh\necho new\n")
        assert_changed(await office.call(grant=handle, session_id="s"))


async def test_a_script_edited_after_an_approved_call_was_let_through_is_not_run(
    script: tuple[Path, list[str]],
) -> None:
    file, command = script
    office = Office(
        program(file.parent, command), then=lambda: [file.write_text("#!/bin/sh\n")].clear()
    )
    async with office.executor:
        handle = await office.approved()
        assert_changed(await office.call(grant=handle, session_id="s"))


async def test_a_script_that_changes_itself_while_it_runs_is_told_of(tmp_path: Path) -> None:
    file = tmp_path / "send.sh"
    file.write_text("#!/bin/sh\necho '#' >> send.sh\n")
    file.chmod(0o755)
    office = Office(program(tmp_path, [str(file)]))
    async with office.executor:
        handle = await office.approved()
        result = await office.call(grant=handle, session_id="s")
    assert result.success
    assert result.metadata.warnings == ["The code of send was changed while it ran."]
