"""The requests of the load as bytes on the wire, and what an answer to one of them says.

Each connection has a request of its own, with its own id: one session does not serve the same id
twice at once. Clients of the handshake have a session of their own, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPResponse
from socket import create_connection
from types import MappingProxyType
from typing import Any

from benchmarks.cases import ADD

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
ANSWER_SECONDS = 30
_PREFIX = "io.modelcontextprotocol"
_JSON = {"content-type": "application/json"}
_BOTH = {**_JSON, "accept": "application/json, text/event-stream"}
_CLIENT = {"name": "benchmarks", "version": "1"}

Headers = Mapping[str, str]
Writes = Callable[[int, Headers, int], bytes]
"""Port, more headers, number of the connection → the request that it sends."""


def modern(port: int, more: Headers, number: int) -> bytes:
    """``tools/call`` in one request, without a session."""
    meta = {
        f"{_PREFIX}/protocolVersion": MODERN,
        f"{_PREFIX}/clientInfo": _CLIENT,
        f"{_PREFIX}/clientCapabilities": {},
    }
    headers = {
        **_BOTH,
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "add",
        **more,
    }
    params = {"name": "add", "arguments": ADD, "_meta": meta}
    return _request(port, "/mcp", headers, _rpc("tools/call", params, number))


def of_a_session(port: int, more: Headers, number: int) -> bytes:
    """``tools/call`` after a handshake, which is done here."""
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
    headers = {**_BOTH, **more}
    session = _posted(port, headers, _rpc("initialize", hello, 0))
    headers |= {"mcp-protocol-version": HANDSHAKE, "mcp-session-id": session}
    _posted(port, headers, _rpc("notifications/initialized", {}, None))
    params = {"name": "add", "arguments": ADD}
    return _request(port, "/mcp", headers, _rpc("tools/call", params, number + 1))


def rest(port: int, more: Headers, number: int) -> bytes:
    return rest_call(port, "add", ADD, more)


def rest_call(
    port: int, tool: str, arguments: Mapping[str, Any], more: Headers = MappingProxyType({})
) -> bytes:
    return _request(port, f"/v1/tools/{tool}:call", {**_JSON, **more}, {"arguments": arguments})


def asked(port: int, request: bytes) -> Any:
    """What the tool's value is, by one answer that is read as carefully as can be."""
    with create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(request)
        answer = HTTPResponse(connection, method="POST")
        answer.begin()
        body = answer.read()
    if answer.status != 200:
        raise ValueError(f"answered with {answer.status}: {body[:100].decode()}")
    return _value(body)


def _value(answer: bytes) -> Any:
    """The tool's own value out of the body of an answer, whichever kind it is."""
    text = answer.decode()
    events = [
        line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()
    ]
    said = json.loads(events[-1] if events else text)
    return said["output"] if "output" in said else said["result"]["structuredContent"]["result"]


def _rpc(method: str, params: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    said = {"jsonrpc": "2.0", "method": method, "params": params}
    return said if number is None else {**said, "id": number}


def _request(port: int, path: str, headers: Headers, data: Mapping[str, Any]) -> bytes:
    body = json.dumps(data).encode()
    own = {"host": f"127.0.0.1:{port}", "content-length": str(len(body)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def _posted(port: int, headers: Headers, data: Mapping[str, Any]) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", "/mcp", json.dumps(data), dict(headers))
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise ValueError(f"the handshake is answered with {answer.status}")
        return answer.getheader("mcp-session-id") or ""
    finally:
        connection.close()
