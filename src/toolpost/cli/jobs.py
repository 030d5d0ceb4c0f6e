"""``toolpost jobs``: detached calls, seen, watched and stopped.

Above: ``main.py``. Below: ``jobs`` of the package, over the store that the config names; tools are
loaded by ``run`` only. Whoever sits here owns the store, and sees everybody's jobs. Looking at jobs
starts somebody to run those that nobody does.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, get_args

import click

from toolpost.call import OWNER, Progress
from toolpost.cli.call import print_result
from toolpost.cli.detached import see_to
from toolpost.cli.failing import JOBS, fail
from toolpost.cli.opening import opened, run, stored
from toolpost.cli.options import Asked, json_option, only_here, pass_asked
from toolpost.cli.progress import Bar
from toolpost.cli.remote import connected
from toolpost.cli.remote_parts import RemoteBoard
from toolpost.cli.terminal import (
    at_once,
    console,
    counted,
    err,
    json_text,
    lines,
    out,
    plain,
    print_json,
    row,
    safe,
    say,
    table,
)
from toolpost.cli.times import moment, span
from toolpost.clock import SystemClock
from toolpost.config import Config, find
from toolpost.errors import CallError
from toolpost.failure import failure
from toolpost.jobs import Board, Job, Jobs, State

T = TypeVar("T")
_SHOWN: Final = 30


@click.group("jobs")
def command() -> None:
    """See, watch and stop detached calls.

    They were made with call --detach, or through a gateway. An id may be shortened as long as it
    is clear. Secrets in arguments are not shown.
    """


@command.command("list")
@click.option("--state", type=click.Choice(get_args(State)), help="Only those in this state.")
@click.option("--all", "every", is_flag=True, help=f"More than the last {_SHOWN}.")
@json_option
@pass_asked
def list_(asked: Asked, *, state: State | None, every: bool, as_json: bool) -> None:
    """List jobs, the latest last."""

    async def listed(board: Board | RemoteBoard) -> list[Job]:
        found: list[Job] = []
        while page := await board.list(
            caller=OWNER, state=state, after=found[-1].id if found else "", limit=1000
        ):
            found += page
        return found

    jobs = _asked(asked, listed)
    shown = jobs if every else jobs[-_SHOWN:]
    if as_json:
        print_json([job.to_dict() for job in shown])
        return
    if not jobs:
        err("There are no jobs.")
        return
    listing = table("id", "tool", "state", "for", "arguments", wide=["arguments"])
    for job in shown:
        since = job.ended or job.started or job.created
        row(listing, job.id, job.tool, _state(job), span(time.time() - since), job.arguments)
    screen = console(asked)
    screen.print(listing)
    if more := len(jobs) - len(shown):
        screen.print(plain(f"and {more} before these: toolpost jobs list --all", "dim"))


@command.command("show")
@click.argument("job_id", metavar="ID")
@json_option
@pass_asked
def show(asked: Asked, *, job_id: str, as_json: bool) -> None:
    """Show a job, and what came of it."""
    job = _asked(asked, lambda board: board.like(job_id, caller=OWNER))
    if as_json:
        print_json(job.to_dict())
    else:
        console(asked).print(lines(_pairs(job)))


@command.command("watch")
@click.argument("job_id", metavar="ID")
@json_option
@pass_asked
def watch(asked: Asked, *, job_id: str, as_json: bool) -> None:
    """Wait for a job to end, and print its output.

    The exit code is that which the call would have had. Ctrl-C ends the watching, not the job. With
    --json every change is a line.
    """

    async def watched(board: Board | RemoteBoard) -> Job:
        job = await board.like(job_id, caller=OWNER)
        with Bar(job.tool, asked=asked) as bar:
            async for one in board.follow(job.id, caller=OWNER):
                if as_json:
                    at_once(f"{json_text(_line(one), indent=None)}\n")
                if report := one if isinstance(one, Progress) else one.progress:
                    bar.tell(report.done, report.total, report.message)
                if isinstance(one, Progress):
                    continue
                job = one
                if job.state == "waiting" and not as_json:
                    say(f"it waits for a yes: toolpost approvals approve {job.approval}")
        return job

    job = _asked(asked, watched)
    result = job.result
    if result is None or (as_json and result.error is None):
        return
    if result.error is not None:
        if as_json:
            fail(result.error, tool=job.tool, as_json=False, silent=True)
        fail(result.error, tool=job.tool, as_json=False, result=result)
    print_result(result, {})


@command.command("cancel")
@click.argument("job_id", metavar="ID")
@json_option
@pass_asked
def cancel(asked: Asked, *, job_id: str, as_json: bool) -> None:
    """Stop a job, or keep one from beginning."""

    async def stopped(board: Board | RemoteBoard) -> Job:
        job = await board.like(job_id, caller=OWNER)
        if job.over:
            return job
        job = await board.cancel(job.id, caller=OWNER)
        if not job.over:
            with Bar(f"stopping {job.tool}", asked=asked):
                async for one in board.follow(job.id, caller=OWNER):
                    job = one if isinstance(one, Job) else job
        return job

    job = _asked(asked, stopped)
    if as_json:
        print_json(job.to_dict())
    else:
        out(safe(f"{job.id} is {job.state}."))


@command.command("run")
@json_option
@pass_asked
def run_(asked: Asked, *, as_json: bool) -> None:
    """Run what nobody runs, until nothing is left.

    Other commands start this in the background when it is needed. `toolpost serve` does the same.
    """

    if asked.url is not None:
        raise only_here("jobs run")

    async def ran() -> int:
        async with opened(asked, whole=False) as runtime:
            await runtime.open_sandbox()
            async with Jobs(runtime) as jobs:
                await jobs.until_idle()
                return jobs.seen_through

    ended = run(asked, ran())
    if as_json:
        print_json({"ended": ended})
    else:
        out(f"{counted(ended, 'job')} seen through.")


def _asked(asked: Asked, work: Callable[[Board | RemoteBoard], Awaitable[T]]) -> T:
    """Do it, or end with the exit code of what is in the way."""
    try:
        return run(asked, _at_board(asked, work))
    except CallError as fault:
        error = failure(fault, tool=JOBS, call_id="", effects="once")
        as_json = click.get_current_context().params.get("as_json", False)
        fail(error, tool=JOBS, as_json=as_json)


async def _at_board(asked: Asked, work: Callable[[Board | RemoteBoard], Awaitable[T]]) -> T:
    if asked.url is not None:
        async with connected(asked) as client:
            return await work(RemoteBoard(client))
    config = find(asked.config)
    if config.settings.store.get("kind") == "memory":
        err("The store is in memory: the jobs of another process cannot be seen from here.")
    async with stored(config) as store:
        board = board_of(config, store)
        await see_to(board, config)
        return await work(board)


def board_of(config: Config, store: Any) -> Board:
    settings = config.settings.jobs
    return Board(store, clock=SystemClock(), ttl=settings.ttl, most=settings.most)


def _line(one: Job | Progress) -> dict[str, Any]:
    if isinstance(one, Job):
        return one.to_dict()
    return {"progress": {"done": one.done, "total": one.total, "message": one.message}}


def _pairs(job: Job) -> list[tuple[str, str]]:
    pairs = [
        ("id", job.id),
        ("tool", job.tool),
        ("arguments", job.arguments),
        ("caller", job.caller.user or job.caller.key or job.caller.id),
        ("session", job.session or "-"),
        ("state", _state(job)),
        ("created", moment(job.created)),
    ]
    if job.started is not None:
        pairs.append(("started", f"{moment(job.started)}, as call {job.call_id}"))
    if job.approval is not None:
        pairs.append(("approval", job.approval))
    if job.ended is not None and job.expires is not None:
        pairs += [("ended", moment(job.ended)), ("kept until", moment(job.expires))]
    if (result := job.result) is not None:
        if result.error is not None:
            pairs.append(("error", f"{result.error.code}: {result.error.message}"))
            pairs.append(("effects", result.error.effects))
        else:
            output = result.output
            text = output if isinstance(output, str) else json_text(output)
            pairs.append(("output", text if output is not None or not result.parts else "parts"))
            pairs += [("notice", notice) for notice in result.notices]
        pairs += [("artifact", f"{a.handle}, {a.size:,} bytes") for a in result.metadata.artifacts]
    return pairs


def _state(job: Job) -> str:
    progress = job.progress
    if job.state == "running" and progress is not None and progress.done is not None:
        of = "" if progress.total is None else f"/{progress.total:g}"
        return f"{job.state} {progress.done:g}{of}"
    return job.state
