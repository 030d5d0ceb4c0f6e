"""YAML, JSON and TOML files read safely into plain data, with the place of every value.

Above it: whatever reads files that people or strangers wrote (sources, configuration, lock
files). Below it: PyYAML's event parser, ``json`` and ``tomllib``. It refuses to know what the data
means: no tools, no settings, no schema, no includes.

What comes out is ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and ``None``, at most
:data:`MAX_DEPTH` levels deep, each key once, each number finite. Anything else is a
:class:`SourceError` that begins with ``file:line:column``.

Reading and placing are two walks. The first is as fast as the parsers allow and keeps no places,
because most files are right. The second happens when somebody asks :meth:`Document.where`, or when
the first has met a fault and its message needs a place. Nothing recurses before the depth of a
text is known to be within the limit, so that a hostile file cannot exhaust the stack.
"""

from toolpost.document.places import MAX_BYTES, MAX_DEPTH, Document, Progress
from toolpost.document.reading import Format, parse, read
from toolpost.document.writing import as_yaml

__all__ = ["MAX_BYTES", "MAX_DEPTH", "Document", "Format", "Progress", "as_yaml", "parse", "read"]
