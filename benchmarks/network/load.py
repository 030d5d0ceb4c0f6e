"""The clients: a process of its own that asks a server as fast as it answers.

Started by ``fleet.py`` as ``python -m benchmarks.network.load``; a line of JSON in, a line out.
Plain sockets and one epoll for each server, because a client that costs as much as a server would
be measured in its stead. Every connection is kept, and has one request under way at a time. Every
answer's status is looked at; what the answers mean was checked before.
"""

from __future__ import annotations

import json
import select
import socket
import sys
from time import perf_counter, process_time
from typing import Any

ANSWER_SECONDS = 30
_OK = b"HTTP/1.1 200"
_CHUNKED_END = b"0\r\n\r\n"


class BadAnswer(Exception):
    """Not 200, or no answer at all."""


class Connection:
    """One connection, and the request that it sends over and over."""

    def __init__(self, port: int, request: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request, self._answer = request, b""
        self.fileno = self._socket.fileno

    def ask(self) -> None:
        self._socket.sendall(self._request)

    def answered(self) -> bool:
        """Read what is there; whether that was the rest of a good answer."""
        answer = self._socket.recv(65536)
        if self._answer:
            answer = self._answer + answer
        if not is_whole(answer):
            self._answer = answer
            return False
        if not answer.startswith(_OK):
            raise BadAnswer(answer[:300].decode("latin-1"))
        self._answer = b""
        return True


def is_whole(answer: bytes) -> bool:
    """Whether an answer has come to its end; one that ends too soon is ``BadAnswer``."""
    if not answer:
        raise BadAnswer("the server has closed the connection")
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    said = answer.find(b"ontent-length: ", 0, head + 2)
    if said < 0:
        said = answer.find(b"ontent-Length: ", 0, head + 2)
    if said < 0:
        return answer.endswith(_CHUNKED_END)
    return len(answer) >= head + 4 + int(answer[said + 15 : answer.index(b"\r", said)])


class Crowd:
    """The connections to one server."""

    def __init__(self, port: int, requests: list[str]) -> None:
        made = [Connection(port, one.encode("latin-1")) for one in requests]
        self._connections = {one.fileno(): one for one in made}
        self._epoll = select.epoll()
        for number in self._connections:
            self._epoll.register(number, select.EPOLLIN)

    def asked_for(self, seconds: float) -> dict[str, float]:
        """How many answers there were, in how long, and what this process itself spent on them."""
        connections, poll = self._connections, self._epoll.poll
        count, under_way, spent = 0, len(connections), process_time()
        began = perf_counter()
        end = began + seconds
        for one in connections.values():
            one.ask()
        while under_way:
            ready = poll(ANSWER_SECONDS)
            if not ready:
                raise BadAnswer(f"none within {ANSWER_SECONDS} s")
            going_on = perf_counter() < end
            for number, _ in ready:
                one = connections[number]
                if one.answered():
                    count += 1
                    if going_on:
                        one.ask()
                    else:
                        under_way -= 1
        took = perf_counter() - began
        return {"count": count, "seconds": took, "own": process_time() - spent}


def main() -> None:
    crowds: dict[str, Crowd] = {}
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer: dict[str, Any] = _obeyed(order, crowds)
        except (OSError, BadAnswer) as fault:
            answer = {"fault": f"{type(fault).__name__}: {fault}"}
        print(json.dumps(answer), flush=True)


def _obeyed(order: dict[str, Any], crowds: dict[str, Crowd]) -> dict[str, float]:
    if "requests" in order:
        crowds[order["name"]] = Crowd(order["port"], order["requests"])
    return crowds[order["name"]].asked_for(order["seconds"])


if __name__ == "__main__":
    main()
