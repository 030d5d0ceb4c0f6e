"""``classify_data``: the best guess of all detectors, and what to do with it.

Above: ``toolpost.builtin``. Below: the detectors beside this file, ``rooted.py`` which opens files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import msgspec
from annotated_types import MaxLen, MinLen

from toolpost import FunctionTool, Given, InvalidArguments, Limits, tool
from toolpost.builtin import decoding, given, raw
from toolpost.builtin.classify import code, configs, magic, prose, records, structured
from toolpost.builtin.classify.guess import Guess, Sample
from toolpost.builtin.classify.sensitive import Sensitive, held
from toolpost.builtin.logs.reading import Lines
from toolpost.builtin.rooted import Root, reading, roots
from toolpost.errors import ToolFailed
from toolpost.options import Options

SAMPLE: Final = """\
# Folders whose files classify_data may look into.
roots = ["workspace"]
"""
_LOOKED_AT: Final = 1 << 20
_MOST_TEXT: Final = 262_144
_PACKED: Final = frozenset(("gzip", "bzip2", "xz", "zstd"))


class Settings(Options, frozen=True):
    """``[sources.classify]``: the folders whose files may be looked into."""

    roots: tuple[str, ...] = ()


class Folders(msgspec.Struct, frozen=True):
    """The settings as the tool has them."""

    roots: tuple[Root, ...]


class Alternative(TypedDict):
    kind: str
    format: str
    confidence: float


class Classification(TypedDict):
    """``kind`` is the broad one, ``format`` the precise one; ``details`` depend on the kind.
    ``encoding`` is null for what is no text. ``suggested_tool`` may be null.
    """

    kind: str
    format: str
    confidence: float
    mime_type: str | None
    encoding: str | None
    size: int
    lines: int | None
    details: dict[str, Any]
    alternatives: list[Alternative]
    sensitive: Sensitive
    suggested_tool: str | None
    suggestion: str


@raw("text")
@tool(
    title="Classify data",
    category="other",
    tags=["data", "troubleshooting"],
    tier=1,
    effects="read",
    timeout=15,
    isolation="process",
    limits=Limits(output=256 * 1024),
    labels={"external": "true"},
    examples=[
        {"text": "id,name,since\n1,Ada,2024-05-01\n2,Bo,2025-01-31\n"},
        {"path": "unknown.bin"},
    ],
)
def classify_data(
    text: Annotated[str, MaxLen(10_000_000)] | None = None,
    path: Annotated[str, MinLen(1), MaxLen(4096)] | None = None,
    *,
    folders: Given[Folders],
) -> Classification:
    """Find out what a text or a file is, and which tool to use next.

    Knows JSON, YAML, CSV (with its columns), XML, logs (of which family), stack traces, metrics,
    configs, source code (in which language), certificates, archives and pictures. Tells how sure
    that is, and whether it holds secrets or personal data. Give `text` or `path`.

    :param text: The text itself.
    :param path: A file in one of the folders that may be looked into.
    """
    if (text is None) == (path is None):
        raise InvalidArguments("Give either text or path", effects="none")
    if text is not None:
        size = len(text.encode("utf-8", "surrogatepass"))
        whole = len(text) <= _MOST_TEXT
        return _of_text(Sample(text[:_MOST_TEXT], whole=whole), size, "utf-8", text.count("\n"))
    assert path is not None
    with reading(path, folders.roots) as fd:
        size = os.fstat(fd).st_size
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(_LOOKED_AT)
    return _of_bytes(data, size, os.path.basename(path))  # noqa: PTH119 - a model's words


def tools(settings: Settings, base: Path) -> Iterable[FunctionTool]:
    return [given(classify_data, folders=Folders(roots(settings.roots, base)))]


def _of_bytes(data: bytes, size: int, name: str) -> Classification:
    if not data:
        return _answer(Guess("empty", "empty", 1.0), (), size=size)
    found = magic.recognized(data)
    if found is not None and found.format in _PACKED:
        return _answer(_looked_into(found, data), (), size=size)
    if found is not None:
        return _answer(found, (), size=size)
    whole = len(data) >= size
    how = decoding.encoding(data, whole=whole)
    if how is None:
        return _answer(Guess("binary", "unknown", 0.6), (), size=size)
    text = decoding.piece(data[len(how.mark) :], how, whole=whole).text
    sample = Sample(text[:_MOST_TEXT], whole=whole and len(text) <= _MOST_TEXT, name=name)
    return _of_text(sample, size, how.name, text.count("\n") if whole else None)


def _of_text(sample: Sample, size: int, encoding: str, breaks: int | None) -> Classification:
    if not sample.text.strip():
        return _answer(Guess("empty", "empty", 1.0), (), size=size, encoding=encoding)
    best, *others = classified(sample)
    ends = sample.text.endswith("\n")
    lines = None if breaks is None else breaks + (not ends)
    return _answer(best, others, size=size, encoding=encoding, lines=lines, text=sample.text)


def classified(sample: Sample) -> list[Guess]:
    """All guesses about a text, the best first. Code has texts in it; texts have no code outside of
    fences.
    """
    found = _with_name(list(_guesses(sample)), sample.name)
    if any(guess.kind == "source_code" and guess.confidence > 0.75 for guess in found):
        found = [
            one._replace(confidence=one.confidence * 0.75) if one.kind == "document" else one
            for one in found
        ]
    return sorted(found, key=lambda guess: -guess.confidence)


_BY_ENDING: Final = {
    "md": ("document", "markdown"), "rst": ("document", "restructuredtext"), "csv": ("csv", ""),
    "tsv": ("csv", ""), "yml": ("yaml", ""), "yaml": ("yaml", ""), "json": ("json", ""),
    "xml": ("xml", ""), "html": ("html", ""), "log": ("log", ""), "ini": ("config", ""),
    "toml": ("config", ""), "conf": ("config", ""), "cfg": ("config", ""),
}  # fmt: skip


def _with_name(found: list[Guess], name: str) -> list[Guess]:
    """A file's ending makes the guess that it speaks for surer, and a language likely that has no
    sign in the text; it never speaks against what the text says.
    """
    language = code.named(name)
    kind, form = ("source_code", language) if language else _BY_ENDING.get(_ending(name), ("", ""))
    fits = [one for one in found if one.kind == kind and form in ("", one.format)]
    if language and not fits:
        return [*found, Guess("source_code", language, 0.66)]
    return [
        one._replace(confidence=min(0.99, one.confidence + 0.15)) if one in fits else one
        for one in found
    ]


def _ending(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def _guesses(sample: Sample) -> Iterator[Guess]:
    yield from structured.detect(sample)
    yield from records.detect(sample)
    yield from configs.detect(sample)
    found = code.detect(sample)
    if found is not None:
        yield found
    yield from prose.detect(sample)


def _looked_into(found: Guess, data: bytes) -> Guess:
    """What a compressed file holds, by the first of what comes out of it."""
    lines: list[str] = []
    try:
        with closing(BytesIO(data)) as file:
            for batch in Lines(file, most=65_536):
                lines += batch
    except ToolFailed:
        pass
    details = {**found.details}
    if lines:
        inside = classified(Sample("\n".join(lines), whole=False))[0]
        details["inside"] = {"kind": inside.kind, "format": inside.format}
    return found._replace(details=details)


def _answer(
    best: Guess,
    others: Iterable[Guess],
    *,
    size: int,
    encoding: str | None = None,
    lines: int | None = None,
    text: str = "",
) -> Classification:
    details = {key: value for key, value in best.details.items() if key != "mime_type"}
    sensitive = held(text)
    name, why = _next(best, sensitive)
    return {
        "kind": best.kind,
        "format": best.format,
        "confidence": round(best.confidence, 2),
        "mime_type": best.details.get("mime_type") or _MIMES.get(best.kind),
        "encoding": encoding,
        "size": size,
        "lines": lines,
        "details": details,
        "alternatives": [_alternative(one) for one in others if one.confidence >= 0.4][:3],
        "sensitive": sensitive,
        "suggested_tool": name,
        "suggestion": why,
    }


def _alternative(guess: Guess) -> Alternative:
    sure = round(guess.confidence, 2)
    return {"kind": guess.kind, "format": guess.format, "confidence": sure}


_MIMES: Final = {
    "json": "application/json", "yaml": "application/yaml", "csv": "text/csv",
    "xml": "application/xml", "html": "text/html", "text": "text/plain", "log": "text/plain",
    "binary": "application/octet-stream", "certificate": "application/x-pem-file",
}  # fmt: skip
_NEXT: Final = {
    "log": ("analyze_logs", "Analyze it: templates, levels, bursts and errors."),
    "stack_trace": ("analyze_logs", "Analyze it to have equal traces grouped."),
    "image": ("read_file", "Reading it shows the picture."),
    "document": ("ingest_knowledge", "Texts like this can be made searchable."),
    "text": ("ingest_knowledge", "Texts like this can be made searchable."),
    "html": ("ingest_knowledge", "Pages like this can be made searchable."),
    "json": ("read_file", "Read it, or search in it."),
    "yaml": ("read_file", "Read it, or search in it."),
    "csv": ("read_file", "Read some rows; the columns are told here."),
    "xml": ("read_file", "Read it, or search in it."),
    "config": ("read_file", "Read it, or search in it."),
    "source_code": ("search_files", "Search in it, or read it."),
    "metrics": ("search_files", "Search for the series that matter."),
}
_READABLE: Final = frozenset(("markdown", "restructuredtext"))


def _next(best: Guess, sensitive: Sensitive) -> tuple[str | None, str]:
    inside = best.details.get("inside")
    if sensitive["secrets"] or best.kind == "key":
        return None, "It holds secrets: do not pass it on, and tell whoever owns them."
    if best.kind == "archive" and inside is not None:
        if inside["kind"] == "log":
            return "analyze_logs", "A packed log: analyze_logs reads it as it is."
        return None, f"Unpack it first; inside is {inside['kind']}."
    if best.kind == "archive":
        return None, "Unpack it first, then look at what is inside."
    if best.kind == "document" and best.format not in _READABLE:
        return None, "No tool here reads this format: have it exported as text."
    return _NEXT.get(best.kind, (None, "There is no tool here that works on it."))
