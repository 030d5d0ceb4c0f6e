"""``ingest_knowledge`` and ``search_knowledge``, for the folders of a config.

Above: ``toolpost.builtin``. Below: ``ingesting.py``, ``searching.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Annotated, Final, TypedDict

from annotated_types import Ge, Le, MaxLen, MinLen

from toolpost import Call, FunctionTool, Given, Limits, meaning, tool
from toolpost.builtin import given
from toolpost.builtin.knowledge.index import Found, opened
from toolpost.builtin.knowledge.ingesting import ingest
from toolpost.builtin.knowledge.searching import search
from toolpost.builtin.knowledge.settings import Knowledge, Settings, prepared

_TIMEOUT: Final = 120.0
_ANSWERED_BY: Final = 0.75
_SNIPPET: Final = 600


class Skipped(TypedDict):
    path: str
    reason: str


class Ingestion(TypedDict):
    """What an ingestion did; ``documents`` and ``passages`` are all there are now. If it is not
    ``complete``, call it again and it goes on. ``meaning``: searches look for meaning too.
    """

    complete: bool
    files: int
    added: int
    updated: int
    unchanged: int
    removed: int
    skipped: list[Skipped]
    skipped_count: int
    documents: int
    passages: int
    meaning: bool


class KnowledgeResult(TypedDict):
    """A passage, and where it stands: ``source`` is for a citation."""

    title: str
    heading: str
    path: str
    line: int
    source: str
    snippet: str
    score: float


class KnowledgeFound(TypedDict):
    """The passages, the best first; ``relevance_scores`` are theirs, between 0 and 1."""

    results: list[KnowledgeResult]
    count: int
    relevance_scores: list[float]


@tool(
    title="Ingest knowledge",
    category="other",
    tags=["knowledge", "search"],
    tier=1,
    effects="idempotent",
    timeout=_TIMEOUT,
    isolation="process",
    limits=Limits(concurrency=1),
    examples=[{}, {"path": "docs"}],
)
def ingest_knowledge(
    call: Call,
    path: Annotated[str, MinLen(1), MaxLen(4096)] | None = None,
    *,
    knowledge: Given[Knowledge],
) -> Ingestion:
    """Make the texts in a folder searchable with search_knowledge.

    Reads Markdown, text and HTML files: only what is new or has changed since the last time, and
    what has gone is forgotten.

    :param path: A folder among those that may be ingested; without it, all of them.
    """
    with opened(knowledge.index, make=True) as index:
        done = ingest(
            index,
            knowledge,
            path,
            until=monotonic() + call.spec.time_limit * _ANSWERED_BY,
            tell=call.progress,
        )
        documents, passages = index.counts()
    return {
        "complete": done.complete,
        "files": done.files,
        "added": done.added,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "removed": done.removed,
        "skipped": [{"path": name, "reason": why} for name, why in done.skipped],
        "skipped_count": done.skipped_count,
        "documents": documents,
        "passages": passages,
        "meaning": knowledge.meaning and meaning.model() is not None,
    }


@tool(
    title="Search the knowledge base",
    category="other",
    tags=["knowledge", "search"],
    tier=0,
    effects="read",
    timeout=10,
    isolation="process",
    labels={"external": "true"},
    examples=[{"query": "Redis OOM solutions", "limit": 5}],
)
def search_knowledge(
    query: Annotated[str, MinLen(1), MaxLen(2000)],
    limit: Annotated[int, Ge(1), Le(50)] = 5,
    *,
    knowledge: Given[Knowledge],
) -> KnowledgeFound:
    """Search the knowledge base for passages that answer a question.

    Gives snippets of the documents that were ingested, with scores and where each stands. Cite
    `source` when you use one.

    :param query: What you want to know, in words.
    :param limit: How many passages at most.
    """
    with opened(knowledge.index) as index:
        found = search(index, query, limit=limit, by_meaning=knowledge.meaning)
    return {
        "results": [_told(one, score) for one, score in found],
        "count": len(found),
        "relevance_scores": [round(score, 3) for _, score in found],
    }


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    made = prepared(settings, base)
    return [given(one, knowledge=made) for one in (ingest_knowledge, search_knowledge)]


def _told(found: Found, score: float) -> KnowledgeResult:
    snippet = found.snippet.strip()
    return {
        "title": found.title,
        "heading": found.heading,
        "path": found.path,
        "line": found.line,
        "source": f"{found.path}:{found.line}" + (f" ({found.heading})" if found.heading else ""),
        "snippet": snippet if len(snippet) <= _SNIPPET else snippet[: _SNIPPET - 1] + "…",
        "score": round(score, 3),
    }
