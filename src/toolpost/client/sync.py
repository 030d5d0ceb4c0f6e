"""The tools of a gateway, blocking: for programs that have no event loop.

``with toolpost.client.sync.open("http://127.0.0.1:8080") as tools: tools.execute("add", {"a": 1})``

Above: programs. Below: ``client.py``, on a loop in a thread of its own. What it can do, and how, is
said there: nothing is done here but to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from toolpost.blocking import blocking, iterating, serving
from toolpost.client.client import Client
from toolpost.client.parts import Approvals, Artifacts, Audit, Jobs


@contextmanager
def open(  # noqa: A001 - as toolpost.sync.open
    url: str,
    *,
    key: str | None = None,
    agent: str | None = None,
    trusted: str | None = None,
    longest: float = 3600.0,
) -> Iterator[ClientTools]:
    """The tools of a gateway, as ``Client`` has them. Threads may share them."""

    def make() -> Client:
        return Client(url, key=key, agent=agent, trusted=trusted, longest=longest)

    with serving(make) as (client, loop):
        yield ClientTools(client, loop)


class ClientTools:
    """What a ``Client`` can do, blocking. ``on_progress`` is called in the thread of the loop."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.execute = blocking(client.execute, loop)
        self.list = blocking(client.list, loop)
        self.search = blocking(client.search, loop)
        self.show = blocking(client.show, loop)
        self.jobs = ClientJobs(client.jobs, loop)
        self.approvals = ClientApprovals(client.approvals, loop)
        self.artifacts = ClientArtifacts(client.artifacts, loop)
        self.audit = ClientAudit(client.audit, loop)


class ClientJobs:
    """Detached calls."""

    def __init__(self, jobs: Jobs, loop: asyncio.AbstractEventLoop) -> None:
        self.submit = blocking(jobs.submit, loop)
        self.get = blocking(jobs.get, loop)
        self.list = blocking(jobs.list, loop)
        self.cancel = blocking(jobs.cancel, loop)
        self.follow = iterating(jobs.follow, loop)


class ClientApprovals:
    """What waits for a yes."""

    def __init__(self, approvals: Approvals, loop: asyncio.AbstractEventLoop) -> None:
        self.list = blocking(approvals.list, loop)
        self.show = blocking(approvals.show, loop)
        self.approve = blocking(approvals.approve, loop)
        self.deny = blocking(approvals.deny, loop)
        self.resume = blocking(approvals.resume, loop)


class ClientArtifacts:
    """Large outputs."""

    def __init__(self, artifacts: Artifacts, loop: asyncio.AbstractEventLoop) -> None:
        self.about = blocking(artifacts.about, loop)
        self.read = blocking(artifacts.read, loop)


class ClientAudit:
    """The calls on record."""

    def __init__(self, audit: Audit, loop: asyncio.AbstractEventLoop) -> None:
        self.search = blocking(audit.search, loop)
        self.show = blocking(audit.show, loop)
        self.verify = blocking(audit.verify, loop)
