"""Workers in rare states: odd tools, forged answers, slow starts, requests in pieces."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.backends.test_pool import HERE, Events, make_pool, tool
from tests.processes import Watch, descendants, halt, innermost
from toolpost.backends.python import worker as worker_module
from toolpost.backends.python.pool import Target
from toolpost.backends.python.worker import Worker
from toolpost.errors import (
    InternalError,
    InvalidOutput,
    RateLimited,
    ResourceLimit,
    Unavailable,
)
from toolpost.process import Child, spawn_script

pytestmark = pytest.mark.anyio


# Odd tools: the worker stays


async def test_an_error_that_cannot_say_what_it_is_is_an_internal_error() -> None:
    async with make_pool(size=1) as pool:
        with pytest.raises(InternalError):
            await pool.run(tool("fails_without_words"), {})
        assert await pool.run(tool("serve"), {}) == 1


async def test_details_that_are_not_json_stay_behind_and_the_message_arrives() -> None:
    async with make_pool(size=1) as pool:
        with pytest.raises(RateLimited, match="Come back later") as caught:
            await pool.run(tool("refuses_with_odd_details"), {})
    assert not caught.value.details


async def test_a_tool_may_close_its_output_and_the_next_call_is_served() -> None:
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("closes_its_output"), {}) == 1
        assert await pool.run(tool("serve"), {}) == 2


async def test_a_record_that_cannot_be_formatted_harms_neither_the_call_nor_the_next_record() -> (
    None
):
    events = Events()
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("logs_what_cannot_be_formatted"), {}, on_event=events) == 1
    assert events.text(logger="my.tool") == "and on it goes"


async def test_what_a_forked_child_logs_is_not_taken_for_the_tools() -> None:
    events = Events()
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("logs_in_a_fork"), {}, on_event=events) == "done"
    assert events.text(logger="my.tool") == "from the parent"


async def test_a_tool_whose_folder_is_gone_leaves_a_worker_that_has_one(tmp_path: Path) -> None:
    async with make_pool(size=1, cwd=str(tmp_path)) as pool:
        path = str(tmp_path / "gone")
        assert await pool.run(tool("loses_its_folder"), {"path": path}) == 1
        assert (await pool.run(tool("where_am_i"), {}))[0] == str(tmp_path)


async def test_tasks_that_an_async_tool_leaves_behind_end_with_its_call() -> None:
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("leaves_a_task"), {}) == []
        assert await pool.run(tool("leaves_a_task"), {}) == ["cancelled"]


async def test_a_level_that_a_tool_sets_for_its_records_is_kept(tmp_path: Path) -> None:
    (tmp_path / "talkative.py").write_text(
        "import logging\nlogging.root.setLevel(logging.DEBUG)\n"
        "def talk():\n    logging.debug('in detail')\n"
    )
    events = Events()
    async with make_pool(size=1) as pool:
        await pool.run(Target("talkative", "talk", (str(tmp_path),)), {}, on_event=events)
    assert events.text(level="debug") == "in detail"


async def test_a_worker_killed_while_it_holds_most_of_its_memory_ran_out_of_it() -> None:
    async with make_pool(size=1, memory=512 << 20) as pool:
        with pytest.raises(ResourceLimit, match="512 MiB"):
            await pool.run(tool("grow_and_die"), {"size": 280 << 20})


# The script of the caller


async def test_a_script_is_loaded_once_however_many_of_its_functions_are_called(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        loads = []
        loads.append(1)
        def double(x): return [x * 2, __name__, len(loads)]
        def treble(x): return [x * 3, __name__, len(loads)]
        if __name__ == "__main__":
            raise SystemExit("the main block")
        """)
    )
    async with make_pool(size=1) as pool:
        for name, expected in (("double", 8), ("treble", 12)):
            target = Target("__main__", name, main_path=str(script))
            assert await pool.run(target, {"x": 4}) == [expected, "__mp_main__", 1]


async def test_a_script_that_calls_its_tools_while_it_is_loaded_is_told_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio, sys
        from toolpost.backends.python.pool import Target, WorkerPool
        def double(x): return x * 2
        async def main():
            async with WorkerPool(python_path=sys.path) as pool:
                await pool.run(Target("__main__", "double", main_path=__file__), {"x": 4})
        asyncio.run(main())
        """)
    )
    async with make_pool(size=1) as pool:
        with pytest.raises(Unavailable, match="not set up to run here"):
            await pool.run(Target("__main__", "double", main_path=str(script)), {"x": 4})
    assert "put that under if __name__ == '__main__':" in caplog.text


# Forged answers


@pytest.mark.parametrize(
    ("kind", "content", "error"),
    [
        ("error", "no object", InternalError),
        ("error", {"kind": "call", "call_error": {"code": "?", "message": "m"}}, InternalError),
        ("output", {"parts": 5}, InvalidOutput),
    ],
)
async def test_an_answer_that_is_not_in_order_becomes_an_error(
    kind: str, content: Any, error: type[Exception]
) -> None:
    async with make_pool(size=1) as pool:
        async with asyncio.timeout(30):
            with pytest.raises(error):
                await pool.run(tool("answers_by_hand"), {"kind": kind, "content": content})


# Ends at odd times


async def test_a_worker_that_dies_before_it_has_read_its_arguments_is_unavailable() -> None:
    async with make_pool(size=1) as pool:
        assert await pool.run(tool("echo"), {"value": 1}) == 1
        (process,) = innermost(os.getpid())
        halt(process)
        call = asyncio.create_task(pool.run(tool("echo"), {"value": "x" * 20_000_000}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not call.done()
        os.kill(process, signal.SIGKILL)
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable):
                await call


async def test_a_worker_that_died_while_idle_costs_no_call_of_a_new_tool() -> None:
    async with make_pool(size=1) as pool:
        await pool.warm()
        await pool.warm()
        with Watch(descendants(os.getpid())) as watch:
            os.kill(innermost(os.getpid()).pop(), signal.SIGKILL)
            assert watch.living(within=20) == set()  # without a turn of the loop
        assert await pool.run(tool("add"), {"a": 1, "b": 2}) == 3


async def test_a_kill_that_takes_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "_KILL_LIMIT", 0)
    async with make_pool(size=1) as pool:
        events = Events()
        arguments = {"path": "/nonexistent", "seconds": 1000}
        target = tool("sleep_then_write", call=True)
        call = asyncio.create_task(pool.run(target, arguments, on_event=events))
        await events.first()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert "could not be killed yet" in caplog.text
        assert await pool.run(tool("serve"), {}) == 1
    assert descendants(os.getpid()) == set()


@pytest.fixture
def slow_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that never get ready."""
    script = tmp_path / "slow.py"
    script.write_text("import time; time.sleep(1000)")
    monkeypatch.setattr(worker_module, "_MAIN", str(script))


@pytest.mark.usefixtures("slow_start")
async def test_a_worker_that_does_not_get_ready_in_time_is_killed_and_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "_START_LIMIT", 0.01)
    async with make_pool(size=1) as pool:
        with pytest.raises(Unavailable):
            await pool.run(tool("add"), {"a": 1, "b": 2})
    assert "did not get ready in time" in caplog.text
    assert descendants(os.getpid()) == set()


@pytest.mark.usefixtures("slow_start")
async def test_closing_kills_a_worker_that_is_not_ready_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = asyncio.Event()

    class Begun(Worker):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            begun.set()

    monkeypatch.setattr(worker_module, "Worker", Begun)
    pool = make_pool(size=1)
    call = asyncio.create_task(pool.run(tool("add"), {"a": 1, "b": 2}))
    async with asyncio.timeout(30):
        await begun.wait()
        await pool.aclose()
    with pytest.raises(Unavailable):
        await call
    assert descendants(os.getpid()) == set()


# The wire, spoken by hand


async def raw_child(far: socket.socket) -> Child:
    argv = [worker_module._MAIN, str(far.fileno()), "", "1000000", "1000000000", "server"]
    argv += sys.path
    child = await spawn_script(argv, env={}, pass_fds=[far.fileno()])
    far.close()
    return child


def told(near: socket.socket) -> Any:
    size = int.from_bytes(near.recv(4, socket.MSG_WAITALL), "big")
    return json.loads(near.recv(size, socket.MSG_WAITALL))


def send_in_pieces(near: socket.socket, data: bytes) -> None:
    """Send byte by byte, each when the one before it has been read."""
    for byte in data:
        near.send(bytes([byte]))
        while struct.unpack("i", fcntl.ioctl(near, termios.TIOCOUTQ, b"0000"))[0]:
            os.sched_yield()


def frame(*request: Any) -> bytes:
    body = json.dumps(request).encode()
    return len(body).to_bytes(4, "big") + body


TARGET = {
    "module": "pool_tools",
    "qualname": "add",
    "path": [HERE],
    "main_path": None,
    "described": False,
    "mapping": False,
    "spec": None,
}


async def test_a_request_may_come_in_pieces_and_half_a_request_is_none() -> None:
    near, far = socket.socketpair()
    near.settimeout(30)
    child = await raw_child(far)
    with near:
        assert await asyncio.to_thread(told, near) == [0, "ready", None]
        await asyncio.to_thread(send_in_pieces, near, frame(1, 0, None, None, TARGET))
        assert await asyncio.to_thread(told, near) == [1, "ok", None]
        request = frame(2, 0, {"a": 1, "b": 2}, None, None)
        await asyncio.to_thread(send_in_pieces, near, request)
        assert await asyncio.to_thread(told, near) == [2, "ok", 3]
        await asyncio.to_thread(send_in_pieces, near, request[:-1])
    async with asyncio.timeout(30):
        assert (await child.wait()).code == 0
