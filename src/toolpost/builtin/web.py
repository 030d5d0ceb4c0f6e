"""Searching the web, and plain requests to it: ``web_search``, ``http_get``, ``http_request``.

Above: ``sources/builtin.py``. Below: one file for each of them. The tools for requests are there if
the config says where they may go.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from toolpost.builtin.web_request import HttpGet, HttpRequest
from toolpost.builtin.web_search import WebSearch
from toolpost.builtin.web_settings import Settings, places
from toolpost.contracts import Registered
from toolpost.registry import Entry

__all__ = ["NEEDS", "SAMPLE", "Settings", "tools"]

SAMPLE = """\
# web_search wants a key in the environment: BRAVE_API_KEY, TAVILY_API_KEY,
# SERPAPI_KEY, or GOOGLE_API_KEY with GOOGLE_CSE_ID; tried in this order.
# http_get and http_request are there once this says where they may go:
# egress = ["api.example.com:443"]
"""
NEEDS = dict.fromkeys(("http_get", "http_request"), "egress has to say where it may go")


def tools(settings: Settings, base: Path) -> Iterable[Registered]:
    there = tuple(url.authority for url in places(settings).values() if url is not None)
    yield _going(WebSearch(settings), there)
    if settings.egress:
        yield _going(HttpGet(settings), settings.egress)
        yield _going(HttpRequest(settings), settings.egress)


def _going(tool: WebSearch | HttpGet | HttpRequest, egress: tuple[str, ...]) -> Entry:
    """The tool, and a spec that tells where it goes."""
    return Entry(msgspec.structs.replace(tool.spec, egress=tuple(dict.fromkeys(egress))), tool)
