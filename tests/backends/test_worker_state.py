"""What a call leaves behind in a warm worker, seen as an attack: nobody else ever finds it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends import state_threads, state_tools
from tests.processes import descendants
from tests.sandbox.elsewhere import need_a_sandbox
from toolpost import Caller, Executor, Registry, Runtime, ToolSpec, tool
from toolpost.backends.python.pool import Target, WorkerPool
from toolpost.config import Config
from toolpost.digest import file_digest
from toolpost.spec import Limits

pytestmark = pytest.mark.anyio

EVE, BOB = Caller("key:1", key="eve"), Caller("key:2", key="bob")
TOLD = "the account number of Bob"
MODULE = state_tools.__name__

STEAL = f"import {MODULE} as tools\nanswer = list(tools.heard)"
REPLACE_THE_CODE = f"""
import {MODULE} as tools
def stealing(name):
    import {MODULE} as tools
    tools.heard.append(name)
    return "Hello " + name
tools.greet.__code__ = stealing.__code__
"""
REPLACE_A_HELPER = f"""
import {MODULE} as tools
def hello(name, honest=tools._hello):
    tools.heard.append(name)
    return honest(name)
tools._hello = hello
"""
REPLACE_WHAT_IS_CALLED = f"""
import gc, {MODULE} as tools
def steal(honest):
    def greet(name):
        tools.heard.append(name)
        return honest(name)
    return greet
for one in gc.get_objects():
    if type(one).__name__ == "Server" and hasattr(one, "functions"):
        one.functions = {{
            key: steal(tools.greet) if function is tools.greet else function
            for key, function in one.functions.items()
        }}
"""
LISTEN_TO_REQUESTS = f"""
import gc, {MODULE} as tools
for one in gc.get_objects():
    if type(one).__name__ == "Server" and hasattr(one, "functions"):
        def listen(*request, honest=one.answer):
            tools.heard.append(repr(request))
            return honest(*request)
        one.answer = listen
"""
HOOK_EVERY_CALL = f"""
import sys, {MODULE} as tools
def hook(frame, event, argument):
    if event == "call" and "name" in frame.f_locals:
        tools.heard.append(frame.f_locals["name"])
sys.setprofile(hook)
"""
PATCH_THE_LIBRARY = f"""
import json, {MODULE} as tools
def dumps(value, honest=json.dumps):
    tools.heard.append(value)
    return honest(value)
json.dumps = dumps
"""
ATTACKS = {
    "replace the code": REPLACE_THE_CODE,
    "replace a helper": REPLACE_A_HELPER,
    "replace what is called": REPLACE_WHAT_IS_CALLED,
    "listen to requests": LISTEN_TO_REQUESTS,
    "hook every call": HOOK_EVERY_CALL,
    "patch the library": PATCH_THE_LIBRARY,
}


@pytest.fixture
def sandbox() -> str:
    need_a_sandbox()
    return "sandbox"


@pytest.fixture(params=["process", "sandbox"])
def isolation(request: pytest.FixtureRequest) -> str:
    return "process" if request.param == "process" else str(request.getfixturevalue("sandbox"))


def tools(isolation: Any, state: Any = None, module: Any = state_tools, **more: Any) -> list[Any]:
    options = {"isolation": isolation, "timeout": 30, **more}
    if state is not None:
        options["state"] = state
    names = [
        name for name in ("run_code", "greet", "serve", "wait_for", "nap") if name in vars(module)
    ]
    return [tool(**options)(getattr(module, name)) for name in names]


def running(*found: Any, **settings: Any) -> Executor:
    one = {"workers": 1, "extra_workers": 0, **settings}
    return Executor(Registry(list(found)), settings={"python": one})


async def output(executor: Any, caller: Caller, called: str, /, **arguments: Any) -> Any:
    result = await executor.execute(called, arguments, caller=caller)
    assert result.error is None, result.error
    return result.output


async def attacked(executor: Any, code: str) -> tuple[str, str]:
    """Eve's code runs, then Bob calls, then Eve looks for what Bob said: Bob's answer, her find."""
    await output(executor, BOB, "greet", name="nobody")
    await output(executor, EVE, "greet", name="nobody")
    await output(executor, EVE, "run_code", code=code)
    answer = await output(executor, BOB, "greet", name=TOLD)
    return answer, repr(await output(executor, EVE, "run_code", code=STEAL))


# What one caller leaves, another does not meet


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_a_caller_never_receives_what_another_sends(
    attack: str, isolation: str
) -> None:
    async with running(*tools(isolation)) as executor, asyncio.timeout(120):
        answer, stolen = await attacked(executor, ATTACKS[attack])
    assert (answer, TOLD in stolen) == (f"Hello {TOLD}", False)


@pytest.mark.parametrize("attack", ["replace the code", "listen to requests"])
async def test_attack_through_a_runtime_with_its_default_chain(
    attack: str, isolation: str, tmp_path: Path
) -> None:
    settings = {
        "backends": {"python": {"workers": 1, "extra_workers": 0}},
        "extensions": {"access": {"default": {"call": ["*"], "tier": 4}}},
    }
    config = Config.of({"watch": False, **settings}, base=tmp_path)
    async with Runtime(config, tools=tools(isolation)) as runtime, asyncio.timeout(120):
        answer, stolen = await attacked(runtime, ATTACKS[attack])
    assert (answer, TOLD in stolen) == (f"Hello {TOLD}", False)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_callers_meet_where_the_state_is_shared(attack: str) -> None:
    """Each of the attacks would succeed, were workers not kept apart."""
    async with running(*tools("process", "shared")) as executor, asyncio.timeout(120):
        answer, stolen = await attacked(executor, ATTACKS[attack])
    assert answer == f"Hello {TOLD}"
    assert TOLD in stolen


@pytest.mark.parametrize("state", ["caller", "call"])
async def test_attack_a_module_that_cannot_be_forked_is_kept_apart_too(
    state: str, isolation: str
) -> None:
    found = tools(isolation, state, state_threads)
    async with running(*found) as executor, asyncio.timeout(120):
        answer, stolen = await attacked(executor, REPLACE_THE_CODE)
    assert (answer, TOLD in stolen) == (f"Hello {TOLD}", False)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_with_a_process_for_each_call_not_even_ones_own_is_met(
    attack: str, isolation: str
) -> None:
    async with running(*tools(isolation, "call")) as executor, asyncio.timeout(120):
        await output(executor, EVE, "run_code", code=ATTACKS[attack])
        assert await output(executor, EVE, "greet", name=TOLD) == f"Hello {TOLD}"
        assert TOLD not in repr(await output(executor, EVE, "run_code", code=STEAL))


LEAVE_A_PROCESS = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # what is left is not this process's to inherit
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        open("/proc/self/comm", "w").write("leftover")
        while True:
            time.sleep(0.01)
    os._exit(0)
os.wait()
"""
LEAVE_A_FILE = """
import os
os.makedirs("/tmp/deep/er", exist_ok=True)
open("/tmp/deep/er/file", "w").write("from Eve")
"""
LIMIT_THE_TEMPLATE = """
import os, resource
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (10, 10))
"""
READ_THE_TEMPLATE = """
import os
try:
    open(f"/proc/{os.getppid()}/mem", "r+b")
    answer = "open"
except OSError as error:
    answer = type(error).__name__
"""
LOOK_AROUND = """
import glob, pathlib
names = [pathlib.Path(one).read_text().strip() for one in glob.glob("/proc/[0-9]*/comm")]
answer = [glob.glob("/tmp/deep*"), "leftover" in names]
"""


async def test_attack_what_a_call_leaves_in_a_sandbox_is_gone_for_the_next_caller(
    sandbox: str,
) -> None:
    async with running(*tools(sandbox)) as executor, asyncio.timeout(120):
        for code in (LEAVE_A_PROCESS, LEAVE_A_FILE, LIMIT_THE_TEMPLATE):
            await output(executor, EVE, "run_code", code=code)
            assert await output(executor, BOB, "run_code", code=LOOK_AROUND) == [[], False]
            assert await output(executor, BOB, "greet", name="Ann") == "Hello Ann"


LEAVE_SHARED_MEMORY = """
import ctypes
libc = ctypes.CDLL(None)
assert libc.shmget(0x1234, 4096, 0o1666) >= 0
"""
FIND_SHARED_MEMORY = """
import ctypes
answer = ctypes.CDLL(None).shmget(0x1234, 0, 0) >= 0
"""
MAKE_A_QUEUE = """
import ctypes, os
answer = ctypes.CDLL(None, use_errno=True).mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o600, None)
"""


async def test_attack_memory_and_queues_do_not_outlive_a_caller_in_a_sandbox(sandbox: str) -> None:
    async with running(*tools(sandbox)) as executor, asyncio.timeout(120):
        await output(executor, EVE, "run_code", code=LEAVE_SHARED_MEMORY)
        assert await output(executor, EVE, "run_code", code=FIND_SHARED_MEMORY) is True
        assert await output(executor, BOB, "run_code", code=FIND_SHARED_MEMORY) is False
        assert await output(executor, EVE, "run_code", code=MAKE_A_QUEUE) == -1


PIPES = "import os\nanswer = [os.fstat(fd).st_ino for fd in (1, 2)]"
SPOIL_THE_PIPES = (
    "import fcntl, os\nfor fd in (1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)"
)


@pytest.mark.parametrize("state", ["caller", "call"])
async def test_attack_no_two_callers_have_the_same_pipes(isolation: str, state: str) -> None:
    said = []
    async with running(*tools(isolation, state)) as executor, asyncio.timeout(120):
        await output(executor, EVE, "run_code", code=SPOIL_THE_PIPES)
        mine = await output(executor, EVE, "run_code", code=PIPES)
        theirs = await output(executor, BOB, "run_code", code=PIPES)
        assert not set(mine) & set(theirs)
        printed = "print('x' * 500_000)"
        result = await executor.execute(
            "run_code", {"code": printed}, caller=BOB, on_progress=said.append
        )
        assert result.error is None


async def test_attack_a_template_that_was_stopped_does_not_hold_up_the_next_caller(
    isolation: str,
) -> None:
    stop = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)"
    async with running(*tools(isolation), worker_wait=60) as executor, asyncio.timeout(40):
        await output(executor, EVE, "run_code", code=stop)
        assert await output(executor, BOB, "greet", name="Bob") == "Hello Bob"


IDLE = "import os\nos.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))"


async def test_attack_the_class_of_a_template_is_not_the_next_callers(isolation: str) -> None:
    async with running(*tools(isolation)) as executor, asyncio.timeout(60):
        await output(executor, EVE, "run_code", code=IDLE)
        found = await output(
            executor, BOB, "run_code", code="import os\nanswer = os.sched_getscheduler(0)"
        )
    assert found == os.SCHED_OTHER


@pytest.mark.parametrize("state", ["shared", "caller", "call"])
async def test_attack_an_approved_call_runs_no_code_that_another_call_replaced(
    state: Any, tmp_path: Path
) -> None:
    (tmp_path / "bank.py").write_text(BANK, encoding="utf-8")
    pay = Target("bank", "pay", code=file_digest(str(tmp_path / "bank.py")))
    pool = WorkerPool(python_path=[str(tmp_path), *sys.path], size=1, state=state)
    async with pool, asyncio.timeout(60):
        for _ in range(2):
            assert await pool.run(pay, {"to": "bob"}, principal="eve") == "paid bob"
            await pool.run(Target("bank", "spoil"), {}, principal="eve")
        assert await pool.run(pay, {"to": "bob"}, principal="eve") == "paid bob"


BANK = """
def pay(to):
    return "paid " + to


def spoil():
    def steal(to):
        return "paid eve"
    pay.__code__ = steal.__code__
"""


async def test_attack_a_module_that_swaps_a_descriptor_is_not_forked(tmp_path: Path) -> None:
    (tmp_path / "swapping.py").write_text(SWAPPING, encoding="utf-8")
    (tmp_path / "shared").write_bytes(b"x" * 100)
    pool = WorkerPool(python_path=[str(tmp_path), *sys.path], size=1, state="caller")
    async with pool, asyncio.timeout(60):
        assert await pool.run(Target("swapping", "seek"), {"to": 50}, principal="eve") == 50
        assert await pool.run(Target("swapping", "tell"), {}, principal="bob") == 0


SWAPPING = """
import os
os.close(0)
fd = os.open(os.path.join(os.path.dirname(__file__), "shared"), os.O_RDONLY)


def seek(to):
    return os.lseek(fd, to, 0)


def tell():
    return os.lseek(fd, 0, 1)
"""


async def test_attack_the_template_of_a_sandbox_cannot_be_opened_by_its_fork(sandbox: str) -> None:
    async with running(*tools(sandbox)) as executor, asyncio.timeout(60):
        found = await output(executor, EVE, "run_code", code=READ_THE_TEMPLATE)
        assert found in ("PermissionError", "FileNotFoundError")


# What is kept, and for whom


async def test_a_caller_keeps_a_warm_worker_and_a_call_of_its_own_does_not() -> None:
    async with running(*tools("process")) as executor, asyncio.timeout(60):
        counts = [(await output(executor, EVE, "serve"))[1] for _ in range(3)]
        assert counts == [1, 2, 3]
        assert (await output(executor, BOB, "serve"))[1] == 1
    async with running(*tools("process", "call")) as executor, asyncio.timeout(60):
        assert [(await output(executor, EVE, "serve"))[1] for _ in range(3)] == [1, 1, 1]


async def test_two_keys_of_one_name_are_one_principal() -> None:
    rotated = Caller("key:3", key="eve")
    async with running(*tools("process")) as executor, asyncio.timeout(60):
        counts = [(await output(executor, who, "serve"))[1] for who in (EVE, rotated, EVE)]
        assert counts == [1, 2, 3]


async def test_many_callers_do_not_mean_many_processes() -> None:
    callers = [Caller(f"key:{n}", key=f"k{n}") for n in range(30)]
    found = running(*tools("process"), workers=3, extra_workers=2)
    async with found as executor, asyncio.timeout(120):
        for _ in range(2):
            answers = await asyncio.gather(
                *(output(executor, who, "greet", name=who.id) for who in callers)
            )
            assert answers == [f"Hello {who.id}" for who in callers]
            # a keeper, an init, a template and its fork for each
            assert len(descendants(os.getpid())) <= 4 * (3 + 2)
    assert descendants(os.getpid()) == set()


async def test_tools_of_different_state_never_share_a_worker() -> None:
    shared = tool(isolation="process", state="shared", timeout=30, name="shared")(state_tools.serve)
    own = tool(isolation="process", timeout=30, name="own")(state_tools.serve)
    async with running(shared, own) as executor, asyncio.timeout(60):
        assert [(await output(executor, EVE, name))[1] for name in ("shared", "own")] == [1, 1]


@pytest.mark.parametrize("isolation", ["inline", "thread"])
@pytest.mark.parametrize("state", ["caller", "call"])
async def test_a_state_that_cannot_be_had_is_refused_with_the_reason(
    isolation: Any, state: Any
) -> None:
    asked = tool(isolation=isolation, state=state)(state_tools.greet)
    async with running(asked) as executor:
        error = (await executor.execute("greet", {"name": "Ann"}, caller=EVE)).error
    assert error is not None
    assert error.code == "UNAVAILABLE"
    assert f"state: {state}" in error.message
    assert "set isolation: process or sandbox" in error.message


async def test_a_dry_run_says_who_shares_the_worker() -> None:
    async with running(*tools("process")) as executor:
        result = await executor.execute("greet", {"name": "Ann"}, caller=EVE, dry_run=True)
    assert result.metadata.plan is not None
    assert result.metadata.plan["state"] == "caller"


def test_the_state_is_pinned_by_the_digest() -> None:
    def spec(**more: Any) -> ToolSpec:
        return ToolSpec(name="a", description="It.", **more)

    digests = {spec(state=state).digest for state in (None, "shared", "caller", "call")}
    assert len(digests) == 4


# Waiting for a worker


async def until(file: Path, count: int) -> None:
    """So many calls of ``wait_for`` run."""
    async with asyncio.timeout(60):
        while len(list(file.parent.glob(f"{file.name}.*"))) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("state", ["shared", "caller", "call"])
async def test_a_caller_that_holds_every_worker_does_not_hold_up_another(
    state: str, tmp_path: Path
) -> None:
    file = tmp_path / "go"
    found = running(*tools("process", state), workers=2, extra_workers=1)
    async with found as executor, asyncio.timeout(120):
        held = [
            asyncio.create_task(output(executor, EVE, "wait_for", file=str(file))) for _ in range(6)
        ]
        await until(file, 2)
        assert await output(executor, BOB, "greet", name="Bob") == "Hello Bob"
        assert not any(one.done() for one in held)
        file.touch()
        assert await asyncio.gather(*held) == ["waited"] * 6


async def test_those_who_wait_take_turns(tmp_path: Path) -> None:
    order: list[str] = []
    first = tmp_path / "go"
    async with running(*tools("process", "shared")) as executor, asyncio.timeout(120):

        async def call(who: Caller) -> None:
            await output(executor, who, "greet", name="x")
            order.append(who.principal)

        held = asyncio.create_task(output(executor, EVE, "wait_for", file=str(first)))
        await until(first, 1)
        calls = [asyncio.create_task(call(EVE)) for _ in range(5)]
        await asyncio.sleep(0)
        calls += [asyncio.create_task(call(BOB)) for _ in range(2)]
        await asyncio.sleep(0)
        first.touch()
        await asyncio.gather(held, *calls)
    assert order.index("key:bob") <= 1
    assert [index for index, who in enumerate(order) if who == "key:bob"][1] <= 3


async def test_waiting_for_a_worker_does_not_use_up_the_tools_time() -> None:
    nap = tool(isolation="process", timeout=30, name="nap")(state_tools.nap)
    quick = tool(isolation="process", timeout=0.2, name="quick", limits=Limits())(state_tools.serve)
    async with running(nap, quick) as executor, asyncio.timeout(60):
        await output(executor, EVE, "quick")
        held = asyncio.create_task(output(executor, EVE, "nap", seconds=1.0))
        await asyncio.sleep(0)
        result = await executor.execute("quick", {}, caller=EVE)
        assert result.error is None, result.error
        assert 200 <= result.metadata.waited_ms <= result.metadata.duration_ms
        assert await held == "rested"


async def test_a_worker_that_does_not_become_free_is_told_as_overload(tmp_path: Path) -> None:
    file = tmp_path / "go"
    async with running(*tools("process"), worker_wait=3) as executor, asyncio.timeout(60):
        while (await executor.execute("greet", {"name": "Eve"}, caller=EVE)).error is not None:
            pass  # the first worker may take longer than that to start
        held = asyncio.create_task(executor.execute("wait_for", {"file": str(file)}, caller=EVE))
        await until(file, 1)
        result = await executor.execute("greet", {"name": "Bob"}, caller=BOB)
        file.touch()
        await held
    error = result.error
    assert error is not None
    assert (error.code, error.retryable, error.effects) == ("QUEUE_FULL", True, "none")
    assert error.remedy == "wait"
    assert "did not run. Try again later." in error.message


async def test_more_calls_than_may_wait_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "go"
    async with running(*tools("process"), worker_queue=1) as executor, asyncio.timeout(60):
        held = [asyncio.create_task(executor.execute("wait_for", {"file": str(file)}, caller=EVE))]
        await until(file, 1)
        held.append(asyncio.create_task(output(executor, EVE, "serve")))
        await asyncio.sleep(0)
        result = await executor.execute("greet", {"name": "Bob"}, caller=BOB)
        file.touch()
        await asyncio.gather(*held)
    assert result.error is not None
    assert (result.error.code, result.error.effects) == ("QUEUE_FULL", "none")


async def test_a_deadline_that_passes_in_the_queue_says_that_nothing_ran(tmp_path: Path) -> None:
    file = tmp_path / "go"
    async with running(*tools("process")) as executor, asyncio.timeout(60):
        held = asyncio.create_task(output(executor, EVE, "wait_for", file=str(file)))
        await until(file, 1)
        result = await executor.execute("greet", {"name": "Bob"}, caller=BOB, timeout=0.2)
        file.touch()
        await held
    error = result.error
    assert error is not None
    assert (error.code, error.effects, error.remedy) == ("TIMEOUT", "none", "wait")
    assert "of waiting for its turn; the tool did not run" in error.message


@pytest.mark.parametrize(("slots", "workers", "most"), [(12, 16, 12), (12, 4, 4), (2, 16, 2)])
async def test_there_are_as_many_workers_as_the_tools_have_slots(
    slots: int, workers: int, most: int, tmp_path: Path
) -> None:
    file = tmp_path / "go"
    limits = Limits(concurrency=slots)
    one = tool(isolation="process", timeout=30, limits=limits)(state_tools.wait_for)
    async with running(one, workers=workers) as executor, asyncio.timeout(120):
        held = [
            asyncio.create_task(output(executor, EVE, "wait_for", file=str(file)))
            for _ in range(14)
        ]
        await until(file, most)
        assert len(list(tmp_path.iterdir())) == most
        file.touch()
        assert await asyncio.gather(*held) == ["waited"] * 14
