"""FastMCP: a server's ``call_tool``, in process, as it comes and with its own middleware."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.middleware.error_handling import ErrorHandlingMiddleware
from fastmcp.server.middleware.logging import StructuredLoggingMiddleware
from fastmcp.server.middleware.rate_limiting import RateLimitingMiddleware
from fastmcp.server.middleware.timing import TimingMiddleware

from benchmarks.cases import Function
from benchmarks.contender import Call, Contender


class FastMCPServer(Contender):
    label = "FastMCP `call_tool`"
    peer = True

    def register(self, functions: Mapping[str, Function]) -> None:
        self._server = self._new_server()
        for name, function in functions.items():
            self._server.tool(function, name=name)

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        call_tool = self._server.call_tool
        return lambda: call_tool(tool, arguments)

    def value(self, answer: Any) -> Any:
        content = answer.structured_content
        return content.get("result", content)

    def _new_server(self) -> FastMCP[Any]:
        return FastMCP("benchmarks")


class FastMCPMiddleware(FastMCPServer):
    label = "FastMCP `call_tool` with its rate limit, log, timing and error middleware"
    governed = True

    def _new_server(self) -> FastMCP[Any]:
        nowhere = logging.getLogger("benchmarks.nowhere")
        nowhere.handlers, nowhere.propagate = [logging.NullHandler()], False
        nowhere.setLevel(logging.INFO)
        return FastMCP(
            "benchmarks",
            middleware=[
                ErrorHandlingMiddleware(logger=nowhere),
                RateLimitingMiddleware(max_requests_per_second=1e9, burst_capacity=10**9),
                TimingMiddleware(logger=nowhere),
                StructuredLoggingMiddleware(logger=nowhere, include_payloads=True),
            ],
        )


CONTENDERS = (FastMCPServer, FastMCPMiddleware)
