"""Texts with a grammar: JSON, YAML, XML, HTML, TOML, CSV, PEM.

Above: ``tool.py``. Below: parsers of the standard library and msgspec. Nothing is built that a text
could make large: YAML is only split into events, XML only into tags, tables only counted.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from toolpost.builtin.classify.guess import Guess, Sample, share

_MOST_PARSED: Final = 262_144
_MOST_KEYS: Final = 30


def detect(sample: Sample) -> Iterator[Guess]:
    for detector in (_pem, _json, _json_lines, _markup, _toml, _yaml, _table):
        found = detector(sample)
        if found is not None:
            yield found


# PEM and the like ------------------------------------------------------------------------------

_PEM: Final = re.compile(r"^-----BEGIN ([A-Z0-9 #]{3,60})-----$", re.M)
_SSH_KEY: Final = re.compile(
    r"^(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S{1,30}|sk-\S{1,40}) [A-Za-z0-9+/=]{60,}"
)
_JWT: Final = re.compile(r"^eyJ[\w-]{10,}+\.eyJ[\w-]{10,}+\.[\w-]{10,}+$")


def _pem(sample: Sample) -> Guess | None:
    names = [name.strip() for name in _PEM.findall(sample.head)]
    if names:
        first = names[0]
        secret = any("PRIVATE KEY" in name for name in names)
        kind = "key" if "KEY" in first else "certificate"
        if "PGP" in first and "KEY" not in first:
            kind = "document"
        details: dict[str, Any] = {"blocks": names[:_MOST_KEYS], "private": secret}
        return Guess("key" if secret else kind, f"pem: {first.lower()}", 0.98, details)
    filled = sample.filled
    if filled and share(filled, _SSH_KEY.match) == 1:
        return Guess("key", "ssh public key", 0.98, {"private": False})
    if len(filled) == 1 and _JWT.match(filled[0].strip()):
        return Guess("key", "json web token", 0.97, {"private": True})
    return None


# JSON ------------------------------------------------------------------------------------------

_OPENS: Final = re.compile(r"\s*+[\[{]")
_BEGINS_JSON: Final = re.compile(
    r"\s*+(?:\{\s*+(?:\}|\"(?:[^\"\\\n]|\\.){0,200}\"\s*+:)|\[\s*+(?:[\]\[{\"0-9-]|true|false|"
    r"null))"
)
_COMMENT: Final = re.compile(r"^\s*//.*$|/\*[^*]*+\*/", re.M)
_TRAILING: Final = re.compile(r",(\s*[\]}])")


def _json(sample: Sample) -> Guess | None:
    if not _OPENS.match(sample.text):
        return None
    if not sample.whole:
        if _BEGINS_JSON.match(sample.text) and not _is_object_line(sample.lines[0]):
            return Guess("json", "json", 0.85, {"cut": True})
        return None
    value = _decoded(sample.text)
    if value is not _NOT_JSON:
        return Guess("json", _json_format(value), 0.99, _json_details(value))
    if len(sample.text) < _MOST_PARSED and ("//" in sample.text or "/*" in sample.text):
        plain = _TRAILING.sub(r"\1", _COMMENT.sub("", sample.text))
        if (value := _decoded(plain)) is not _NOT_JSON:
            return Guess("json", "json with comments", 0.9, _json_details(value))
    return None


_NOT_JSON: Final = object()


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _NOT_JSON


def _json_format(value: Any) -> str:
    if not isinstance(value, dict):
        return "json"
    for keys, name in _JSON_FORMATS:
        if all(key in value for key in keys):
            return name
    return "json"


_JSON_FORMATS: Final = (
    (("openapi", "paths"), "openapi"),
    (("swagger", "paths"), "openapi"),
    (("type", "features"), "geojson"),
    (("cells", "nbformat"), "notebook"),
    (("resourceMetrics",), "opentelemetry metrics"),
    (("resourceLogs",), "opentelemetry logs"),
    (("$schema", "type"), "json schema"),
    (("apiVersion", "kind"), "kubernetes"),
    (("name", "version", "dependencies"), "package.json"),
    (("terraform_version", "resources"), "terraform state"),
)


def _json_details(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"top": "object", "keys": [str(key)[:80] for key in list(value)[:_MOST_KEYS]]}
    if isinstance(value, list):
        return {"top": "array", "items": len(value)}
    return {"top": type(value).__name__}


def _is_object_line(line: str) -> bool:
    return line.startswith("{") and isinstance(_decoded(line), dict)


def _json_lines(sample: Sample) -> Guess | None:
    lines = sample.filled[:200]
    if len(lines) < 2 or not lines[0].lstrip().startswith("{"):
        return None
    if share(lines, lambda line: _is_object_line(line.strip())) < 0.9:
        return None
    keys = _decoded(lines[0]) if _is_object_line(lines[0]) else {}
    return Guess("json", "json lines", 0.95, {"keys": [str(key)[:80] for key in keys][:_MOST_KEYS]})


# XML and HTML ----------------------------------------------------------------------------------

_MARKUP: Final = re.compile(
    r"\s*+(?:<\?xml[^>]{0,300}\?>|<!--.{0,2000}?-->|<!DOCTYPE[^>\[]{0,300}[>\[])?\s*+<", re.S
)
_ROOT: Final = re.compile(r"<([A-Za-z_][\w:.-]{0,80})(?=[\s/>])")
_TAG: Final = re.compile(r"</?[A-Za-z_][\w:.-]{0,80}(?:\s[^<>]{0,2000})?/?>")
_HTML: Final = re.compile(
    r"<!doctype html|<(?:html|head|body|div|span|p|h[1-6]|table|ul|ol|a|br|script|img)[\s/>]", re.I
)
_XML_FORMATS: Final = {
    "svg": "svg", "rss": "rss", "feed": "atom", "project": "maven pom or msbuild", "plist": "plist",
    "html": "html", "Envelope": "soap", "schema": "xml schema", "testsuites": "junit report",
    "testsuite": "junit report", "kml": "kml", "gpx": "gpx", "urlset": "sitemap",
    "stylesheet": "xslt", "coverage": "coverage report", "Event": "windows event",
    "beans": "spring", "manifest": "android manifest", "ListBucketResult": "s3 listing",
}  # fmt: skip


def _markup(sample: Sample) -> Guess | None:
    text = sample.text[:_MOST_PARSED]
    if not _MARKUP.match(text[:4000]):
        return None
    root = _ROOT.search(_after_prolog(text))
    if root is None:
        return None
    name = root[1].rpartition(":")[2]
    declared = "<?xml" in text[:200]
    if not declared and _HTML.search(text[:4000]) and name.lower() in _HTML_ROOTS:
        return Guess("html", "html", 0.985 if "<html" in text[:4000].lower() else 0.85)
    tags = len(_TAG.findall(sample.head))
    closed = f"</{root[1]}>" in text or "/>" in text or not sample.whole
    if not tags or not (declared or closed):
        return None
    kind = "image" if name == "svg" else "html" if name == "html" else "xml"
    details = {"root": root[1], "tags": tags}
    return Guess(kind, _XML_FORMATS.get(name, "xml"), 0.97 if declared else 0.9, details)


_HTML_ROOTS: Final = frozenset(
    ("html", "head", "body", "div", "span", "p", "h1", "h2", "h3", "table", "ul", "ol", "a", "br",
     "script", "img", "section", "article", "main", "nav", "form", "meta", "link", "title")
)  # fmt: skip


def _after_prolog(text: str) -> str:
    start = text[:8000]
    for _ in range(8):
        start = start.lstrip()
        end = {"<?": "?>", "<!": ">"}.get(start[:2])
        if end is None:
            return start
        if start.startswith("<!--"):
            end = "-->"
        start = start.partition(end)[2]
    return start


# TOML and YAML ---------------------------------------------------------------------------------

_TOML_TABLE: Final = re.compile(r"^\s*\[\[?[\w.\"' -]{1,120}\]\]?\s*(?:#.*)?$")
_TOML_PAIR: Final = re.compile(
    r"^\s*[\w.\"'-]{1,120}\s*=\s*(?:\"|'|\[|\{|true\b|false\b|[+-]?\d|inf\b|nan\b)"
)


def _toml(sample: Sample) -> Guess | None:
    pairs = share(sample.filled, lambda line: _TOML_PAIR.match(line) or _TOML_TABLE.match(line))
    if pairs < 0.2 or not sample.whole or len(sample.text) > _MOST_PARSED:
        return None
    if not any(_TOML_PAIR.match(line) for line in sample.filled):
        return None
    try:
        found = tomllib.loads(sample.text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    if not found:
        return None
    tables = any(_TOML_TABLE.match(line) for line in sample.filled)
    name = "pyproject" if "build-system" in found or "project" in found else "toml"
    if "package" in found and "dependencies" in found:
        name = "cargo"
    details = {"keys": [str(key)[:80] for key in list(found)[:_MOST_KEYS]]}
    return Guess("config", name, 0.96 if tables else 0.88, details)


_YAML_LINE: Final = re.compile(
    r"^\s*(?:- )*(?:[\w./$<{}@%-][\w ./$(){}@%*-]{0,80}|\"[^\"]{1,80}\"|'[^']{1,80}'):(?:\s|$)"
)
_YAML_ITEM: Final = re.compile(r"^\s*- \S")
_YAML_KEY: Final = re.compile(r"^(?:- )?([\w./$-]{1,60}):(?:\s|$)")
_YAML_FORMATS: Final = (
    (("apiVersion", "kind"), "kubernetes"),
    (("services", "version"), "docker compose"),
    (("openapi", "paths"), "openapi"),
    (("on", "jobs"), "github workflow"),
    (("stages", "script"), "gitlab pipeline"),
    (("hosts", "tasks"), "ansible"),
    (("AWSTemplateFormatVersion",), "cloudformation"),
    (("Resources", "Outputs"), "cloudformation"),
)


def _yaml(sample: Sample) -> Guess | None:
    lines = [line for line in sample.filled if not line.lstrip().startswith("#")]
    if not lines or sample.text.lstrip()[:1] in "{[<":
        return None
    keyed = share(lines, _YAML_LINE.match)
    # an indented line that says nothing may go on with a long text: it does not count
    counted = [line for line in lines if not line[0].isspace() or _YAML_LINE.match(line)]
    shaped = share(counted, lambda line: _YAML_LINE.match(line) or _YAML_ITEM.match(line))
    marked = lines[0].startswith("---")
    if shaped < (0.6 if marked else 0.8) or keyed < 0.1 or not _is_yaml(sample):
        return None
    keys = [found[1] for line in lines if (found := _YAML_KEY.match(line))]
    name = next((form for need, form in _YAML_FORMATS if set(need) <= set(keys)), "yaml")
    if name == "yaml" and "services" in keys and any("image:" in line for line in lines):
        name = "docker compose"
    spaced = share(keys, lambda key: " " in key)
    nested = any(line.startswith((" ", "- ")) for line in lines)
    sure = 0.5 + 0.3 * shaped + (0.1 if nested else 0) + (0.08 if marked or name != "yaml" else 0)
    return Guess("yaml", name, min(0.97, sure - 0.2 * spaced), {"keys": keys[:_MOST_KEYS]})


def _is_yaml(sample: Sample) -> bool:
    """Whether it splits into events without a fault; nothing is built, so no alias is followed."""
    text = "\n".join(sample.lines[:400])
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    collections = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=loader)):
            collections += isinstance(event, yaml.MappingStartEvent)
            if number > 20_000:
                break
    except yaml.YAMLError:
        return False
    except (RecursionError, ValueError):
        return False
    return collections > 0


# Tables ----------------------------------------------------------------------------------------

_DELIMITERS: Final = {",": "comma", "\t": "tab", ";": "semicolon", "|": "pipe"}
_TYPES: Final = (
    ("integer", re.compile(r"[+-]?\d{1,18}$")),
    ("number", re.compile(r"[+-]?(?:\d{1,18}[.,]\d{0,18}|[.]\d{1,18}|"
                          r"\d{1,18}(?:[.]\d{1,18})?[eE][+-]?\d{1,3})$")),
    ("boolean", re.compile(r"(?:true|false|yes|no)$", re.I)),
    ("datetime", re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.]\d{1,9})?)?(?:Z|"
                            r"[+-]\d\d:?\d\d)?$")),
    ("date", re.compile(r"(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[./]\d\d?[./]\d{2,4})$")),
)  # fmt: skip
_ROWS: Final = 200


def _table(sample: Sample) -> Guess | None:
    lines = [line for line in sample.filled[: _ROWS + 1] if not line.startswith("#")]
    if len(lines) < 2:
        return None
    best: tuple[float, str, list[list[str]]] | None = None
    for delimiter in _DELIMITERS:
        if delimiter not in lines[0] and delimiter not in lines[1]:
            continue
        rows = _rows(sample, delimiter)
        fit = _fit(rows)
        if fit and (best is None or fit > best[0]):
            best = (fit, delimiter, rows)
    if best is None:
        return None
    fit, delimiter, rows = best
    return _described(fit, delimiter, rows)


def _rows(sample: Sample, delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(sample.lines[: _ROWS * 2], delimiter=delimiter):
            if row and not row[0].startswith("#"):
                rows.append(row)
            if len(rows) >= _ROWS:
                break
    except csv.Error:
        return []
    return rows


def _fit(rows: list[list[str]]) -> float:
    """How sure it is that these are rows of a table; 0 if they are not."""
    if len(rows) < 2:
        return 0.0
    counts = [len(row) for row in rows]
    width = max(set(counts), key=counts.count)
    same = counts.count(width) / len(counts)
    ragged = counts[0] == max(counts) and sum(n >= counts[0] - 2 for n in counts) == len(counts)
    if width < 2 or (same < 0.9 and not (ragged and counts[0] > 3)):
        return 0.0
    cells = [cell for row in rows for cell in row]
    long = sum(len(cell) > 80 for cell in cells) / len(cells)
    typed = sum(_type(cell) not in ("text", "empty") for cell in cells) / len(cells)
    spaced = sum(cell.startswith(" ") for row in rows for cell in row[1:]) / len(cells)
    ends = sum(not row[-1].strip() for row in rows) / len(rows)  # as code does, with a semicolon
    marks = sum(cell.endswith(("{", ")", "(", "}")) for cell in cells) / len(cells)
    sure = 0.55 + 0.1 * min(1, (width - 1) / 2) + 0.1 * min(1, len(rows) / 4) + 0.2 * typed
    return max(0.0, min(0.97, sure + (0.05 if same == 1 else 0) - 0.4 * long - 0.3 * spaced
        - 0.4 * (ends > 0.8) - 0.5 * marks))  # fmt: skip


def _type(cell: str) -> str:
    cell = cell.strip()
    if not cell:
        return "empty"
    return next((name for name, pattern in _TYPES if pattern.match(cell)), "text")


def _described(fit: float, delimiter: str, rows: list[list[str]]) -> Guess:
    width = max(set(map(len, rows)), key=list(map(len, rows)).count)
    rows = [row for row in rows if len(row) == width]
    header = _has_header(rows)
    body = rows[1:] if header else rows
    columns = []
    for place in range(min(width, _MOST_KEYS)):
        found = {_type(row[place]) for row in body} - {"empty"}
        kind = (
            found.pop()
            if len(found) == 1
            else "number"
            if found == {"integer", "number"}
            else "text"
        )
        name = rows[0][place].strip()[:80] if header else f"column {place + 1}"
        columns.append({"name": name, "type": kind})
    quoted = any('"' in "".join(row) for row in rows)
    details = {
        "delimiter": delimiter,
        "quote": '"' if quoted else None,
        "header": header,
        "columns": columns,
        "column_count": width,
        "rows_seen": len(body),
    }
    return Guess("csv", _DELIMITERS[delimiter] + " separated", fit, details)


def _has_header(rows: list[list[str]]) -> bool:
    first = [cell.strip() for cell in rows[0]]
    if len(rows) < 2 or not all(first) or len(set(first)) < len(first):
        return False
    if any(_type(cell) != "text" for cell in first):
        return False
    below = rows[1:]
    for place in range(len(first)):
        kinds = [_type(row[place]) for row in below]
        if kinds.count("text") < len(kinds) / 2:
            return True
        lengths = {len(row[place]) for row in below}
        if len(lengths) == 1 and len(first[place]) not in lengths and len(below) > 2:
            return True
    names = re.compile(r"[A-Za-z_][\w .()#/%-]{0,40}$")
    return all(names.match(cell) for cell in first) and first == [
        cell
        for cell in first
        if cell.lower() not in {row[i].lower() for row in below for i in range(1)}
    ]
