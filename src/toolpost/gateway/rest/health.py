"""``/readyz`` and ``/metrics``: how every part is, and what the calls came to.

Above: ``routes.py``. Below: the runtime. ``/healthz`` says only that the process answers, and is
answered before there is a route. Whoever asks may know whether all is well; what is wrong may name
files and hosts, and is for who has the role. It is ready where what must be kept can be; a source
or a policy that keeps its last good state is degraded, and serves; so is an issuer of tokens whose
keys cannot be had. Of several server processes the one that is asked asks the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.contracts import Complains, Health
from toolpost.errors import ToolpostError
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.rest.asked import queried, reply

_SOON: Final = 0.5
"""Seconds that the others have to say how they are: who watches over it waits no longer."""


@runtime_checkable
class Troubled(Protocol):
    """Who says who asks may know what keeps it from that, by the part that is wrong."""

    @property
    def problems(self) -> Mapping[str, str]: ...


def routes(behind: Behind, identity: object) -> list[Route]:
    async def ready(request: Request) -> Response:
        queried(request)
        parts = await _parts(behind, identity)
        told = behind.is_admin(caller_of(request.scope))
        is_ready = parts["store"].healthy and not behind.inflight.stopping
        body: dict[str, Any] = {
            "ready": is_ready,
            "degraded": not all(health.healthy for health in parts.values()),
            "tools": len(behind.runtime.registry),
            "calls": len(behind.inflight),
            "parts": {name: _said(health, told=told) for name, health in parts.items()},
        }
        if behind.siblings is not None:
            others = await behind.siblings.everywhere(request.scope, patience=_SOON)
            for other in (msgspec.json.decode(said) for _, said in others):
                if "parts" in other:  # else it has too much to do to say it
                    _add(body, other)
        return reply(body, status=200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        queried(request)
        behind.demand_admin(caller_of(request.scope))
        text = await behind.runtime.extension("metrics").scrape()
        if behind.siblings is not None:
            text = _marked(text, behind.siblings.number)
            others = await behind.siblings.everywhere(request.scope)
            text = _together([text, *(body.decode() for status, body in others if status == 200)])
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def alive(request: Request) -> Response:
        return reply({"alive": True})

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def _parts(behind: Behind, identity: object) -> dict[str, Health]:
    """Store, sources, lock and rings as the runtime knows them; the backend of each kind; and what
    keeps callers from being known.
    """
    runtime = behind.runtime
    parts = dict(await runtime.health())
    for kind in sorted({spec.kind for spec in runtime.list()}):
        try:
            backend = runtime.executor.backends[kind]
        except ToolpostError as missing:
            parts[f"backend {kind}"] = Health(False, str(missing))
        else:
            problem = backend.problem if isinstance(backend, Complains) else None
            parts[f"backend {kind}"] = Health(problem is None, problem)
    if isinstance(identity, Troubled):
        parts |= {part: Health(False, problem) for part, problem in identity.problems.items()}
    return parts


def _said(health: Health, *, told: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"healthy": health.healthy}
    return said | {"error": health.error} if told and health.error else said


def _add(body: dict[str, Any], other: Mapping[str, Any]) -> None:
    """What another process says: its calls are ours, and so is what is wrong with it."""
    body["calls"] += other["calls"]
    body["degraded"] |= other["degraded"]
    wrong = {name: part for name, part in other["parts"].items() if not part["healthy"]}
    body["parts"] = wrong | {
        name: part for name, part in body["parts"].items() if name not in wrong
    }


def _marked(text: str, process: int) -> str:
    """With the process that has counted it, in every sample."""
    label = f'process="{process}"'

    def marked(line: str) -> str:
        if not line or line.startswith("#"):
            return line
        name, brace, rest = line.partition("{")
        if brace:
            return f"{name}{{{label},{rest}"
        name, _, number = line.rpartition(" ")
        return f"{name}{{{label}}} {number}"

    return "\n".join(map(marked, text.split("\n")))


def _together(texts: Sequence[str]) -> str:
    """One text, in which all of a metric stands together, as the format wants it."""
    families: dict[str, dict[str, None]] = {}
    for text in texts:
        for metric, line in _lines(text):
            families.setdefault(metric, {})[line] = None  # what is said of it, once
    return "\n".join([*(line for lines in families.values() for line in lines), ""])


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line, with the metric that it belongs to."""
    metric = ""
    for line in filter(None, text.split("\n")):
        if line.startswith("# "):
            metric = line.split(" ", 3)[2]
        yield metric, line
