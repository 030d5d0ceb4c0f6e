"""A web address on loopback that serves a document of specs, and the tools that stand in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Endpoint(ThreadingHTTPServer):
    """Its attributes are what it answers with; ``asked`` are the requests for the document."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.authority = f"127.0.0.1:{self.server_port}"
        self.url = f"http://{self.authority}/tools.json"
        self.tools: Any = [self.tool("add", "a", "b"), self.tool("greet", "name")]
        self.body: bytes | None = None
        self.type: str | None = "application/json"
        self.headers: dict[str, str] = {}
        self.status = 200
        self.hangs = False
        self.over = Event()
        self.asked: list[dict[str, str]] = []

    def tool(self, name: str, *parameters: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": name,
            "description": f"The tool {name}.",
            "kind": "http",
            "effects": "read",
            "egress": [self.authority],
            "input_schema": {"type": "object", "properties": {one: {} for one in parameters}},
            "binding": {"url": f"http://{self.authority}/{name}"},
            **fields,
        }

    def document(self) -> bytes:
        return json.dumps(self.tools).encode() if self.body is None else self.body

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no matter."""


class _Answering(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        said = {name: value[0] for name, value in parse_qs(url.query).items()}
        if url.path == "/add":
            self.answer(200, json.dumps(int(said["a"]) + int(said["b"])).encode())
        elif url.path == "/greet":
            self.answer(200, json.dumps(f"hello {said['name']}").encode())
        else:
            self.give()

    def give(self) -> None:
        server = self.server
        server.asked.append({name.lower(): value for name, value in self.headers.items()})
        if server.hangs:
            server.over.wait(60)
            return
        etag = server.headers.get("ETag")
        modified = server.headers.get("Last-Modified")
        if (etag and self.headers["If-None-Match"] == etag) or (
            modified and not etag and self.headers["If-Modified-Since"] == modified
        ):
            self.answer(304, b"")
        else:
            self.answer(server.status, server.document(), server.type, server.headers)

    def answer(
        self,
        status: int,
        body: bytes,
        kind: str | None = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if kind is not None:
            self.send_header("Content-Type", kind)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.over.set()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join(10)
