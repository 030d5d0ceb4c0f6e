"""A knowledge base: folders of texts made searchable. ``ingest_knowledge``, ``search_knowledge``.

    [sources.knowledge]
    roots = ["docs"]

The index is a file of its own (SQLite, full text). With ``toolpost[knowledge]`` installed a search
also finds what says the same in other words.
"""

from toolpost.builtin.knowledge.settings import SAMPLE, Settings
from toolpost.builtin.knowledge.tool import ingest_knowledge, search_knowledge, tools

__all__ = ["SAMPLE", "Settings", "ingest_knowledge", "search_knowledge", "tools"]
