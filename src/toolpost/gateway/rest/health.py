"""``/readyz`` and ``/metrics``: how every part is, and what the calls came to.

Above: ``routes.py``. Below: the runtime. ``/healthz`` says only that the process answers, and is
answered before there is a route. Whoever asks may know whether all is well; what is wrong may name
files and hosts, and is for who has the role. It is ready where what must be kept can be; a source
or a policy that keeps its last good state is degraded, and serves.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolpost.contracts import Complains, Health
from toolpost.errors import ToolpostError
from toolpost.gateway.behind import Behind, caller_of
from toolpost.gateway.rest.asked import queried, reply


def routes(behind: Behind) -> list[Route]:
    async def ready(request: Request) -> Response:
        queried(request)
        parts = await _parts(behind)
        told = behind.is_admin(caller_of(request.scope))
        is_ready = parts["store"].healthy and not behind.inflight.stopping
        body: dict[str, Any] = {
            "ready": is_ready,
            "degraded": not all(health.healthy for health in parts.values()),
            "tools": len(behind.runtime.registry),
            "calls": len(behind.inflight),
            "parts": {name: _said(health, told=told) for name, health in parts.items()},
        }
        return reply(body, status=200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        queried(request)
        behind.demand_admin(caller_of(request.scope))
        text = await behind.runtime.extension("metrics").scrape()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def alive(request: Request) -> Response:
        return reply({"alive": True})

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def _parts(behind: Behind) -> dict[str, Health]:
    """Store, sources, lock and rings as the runtime knows them; and the backend of each kind."""
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
    return parts


def _said(health: Health, *, told: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"healthy": health.healthy}
    return said | {"error": health.error} if told and health.error else said
