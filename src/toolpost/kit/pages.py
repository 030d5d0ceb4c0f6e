"""A page about each tool, with seven points: what it is for, when it is used, what it takes and
returns, how it is configured, what it does not do, how fast it is.

Above: ``toolpost docs`` and the catalogue of the built-in tools. Below: specs, and the calls on
record. All of it is taken from the spec and from what was measured; what neither tells is said to
be unknown. A tool's own words are text: none of them becomes a heading, a link target or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolpost.characters import visible, visible_json
from toolpost.extensions.metrics import EXPECTED, OTHERWISE
from toolpost.ledger.reading import AuditedCall
from toolpost.ledger.record import OK
from toolpost.schema.parameters import parameters, raw_names, secret_names, shape
from toolpost.signature import Secret
from toolpost.spec import TIERS, Limits, ToolSpec, is_external

POINTS: Final = {
    "purpose": "Purpose",
    "used": "When it is used",
    "parameters": "Parameters",
    "returns": "Returns",
    "configuration": "Configuration",
    "limitations": "Limitations",
    "performance": "Performance",
}
"""The seven points: field of a page → its heading."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_OF_USE: Final = re.compile(
    r"\b(use|used|when|whenever|instead|prefer|before|after|quicker|rather)\b", re.I
)
_UNSAID: Final = "Whenever its purpose is yours: its description does not say more."
_CODE: Final = re.compile(r"((?<!`)`[^`\n]+`(?!`))")
_MARKED: Final = re.compile(
    r"(?m)(^\s*[#>=|]|<(?=[a-zA-Z/!?])|(?<=\])[(:\[]|^\s*[-=]{3,}\s*$|^```)"
)
_EFFECTS: Final = {
    "read": "It changes nothing, so a call may be repeated.",
    "idempotent": "It changes something; to repeat a call does no harm.",
    "once": "It changes something, and a call is not to be repeated blindly.",
}
_RISKS: Final = (
    "It can do no harm.",
    "It is an ordinary tool.",
    "In strict mode a person is asked first.",
    "A person is asked first.",
    "It is refused; in permissive mode a person is asked first.",
)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Of calls that succeeded: milliseconds from asking to answer."""

    calls: int
    p50: float
    p95: float
    longest: float


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say about one tool; each of the seven points is Markdown."""

    name: str
    title: str | None
    purpose: str
    used: str
    parameters: str
    returns: str
    configuration: str
    limitations: str
    performance: str


def page(
    spec: ToolSpec,
    *,
    target: object | None = None,
    latency: Latency | None = None,
    configured: str = "",
    unmeasured: str = "Not measured yet.",
) -> Page:
    """The page of a tool. ``target`` is the live object behind it, which may name secrets;
    ``configured`` is what else there is to say about its settings, as Markdown, and ``unmeasured``
    what to say without a latency.
    """
    purpose, used = _purpose(spec.description)
    return Page(
        name=spec.name,
        title=spec.title,
        purpose=purpose,
        used="\n\n".join(filter(None, (used or _UNSAID, _shown(spec)))),
        parameters=_parameters(spec),
        returns=_returns(spec),
        configuration="\n\n".join(
            filter(None, (configured, _listed(_configuration(spec, target))))
        ),
        limitations=_listed(_limitations(spec)),
        performance=_performance(spec, latency, unmeasured),
    )


def markdown(made: Page, *, level: int = 1) -> str:
    """The page as Markdown, its name as a heading of this level."""
    title = f": {_inline(made.title)}" if made.title else ""
    parts = [f"{'#' * level} `{made.name}`{title}"]
    for field, heading in POINTS.items():
        parts += (f"{'#' * (level + 1)} {heading}", getattr(made, field))
    return "\n\n".join(parts) + "\n"


def latencies(calls: Iterable[AuditedCall]) -> dict[str, Latency]:
    """Tool → how long its calls took that are on record: those that ran and succeeded, without
    those that waited for a person.
    """
    took: dict[str, list[float]] = {}
    for call in calls:
        ended = call.ended
        if ended is None or ended.code != OK or ended.duration_ms is None:
            continue
        if not (ended.cached or call.asked.dry_run or ended.approver or call.asked.grant):
            took.setdefault(call.asked.tool, []).append(ended.duration_ms)
    return {tool: measured(durations) for tool, durations in took.items()}


def measured(durations: Sequence[float]) -> Latency:
    """What durations in milliseconds come to; there is at least one."""
    ordered = sorted(durations)
    at = [ordered[max(0, -(-len(ordered) * share // 100) - 1)] for share in (50, 95)]
    return Latency(calls=len(ordered), p50=at[0], p95=at[1], longest=ordered[-1])


def _purpose(description: str) -> tuple[str, str]:
    """What a description says of the purpose, and of when the tool is used."""
    purpose: list[str] = []
    used: list[str] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", description.strip())):
        sentences = [paragraph] if _is_list(paragraph) else _SENTENCE.split(paragraph)
        first = [s for n, s in enumerate(sentences) if not _OF_USE.search(s) or not (number or n)]
        purpose.append(" ".join(first))
        used += (s for s in sentences if s not in first)
    return "\n\n".join(map(_text, filter(None, purpose))), _text(" ".join(used))


def _is_list(paragraph: str) -> bool:
    return any(line.lstrip().startswith(("-", "*", "1.")) for line in paragraph.splitlines())


def _shown(spec: ToolSpec) -> str:
    belongs = f"Category: {_inline(spec.category)}."
    if spec.tags:
        belongs += f" Tags: {', '.join(map(_inline, spec.tags))}."
    shown = [f"- {_code(visible_json(example, indent=None))}" for example in spec.examples]
    return "\n\n".join(
        (belongs, *(("Called with, for example:", "\n".join(shown)) if shown else ()))
    )


def _parameters(spec: ToolSpec) -> str:
    found = parameters(spec.input_schema).values()
    if not found:
        return "It takes none."
    rows = [
        (
            _code(one.name),
            _code(one.shape),
            "required" if one.required else _default(one.schema),
            _inline(one.description),
        )
        for one in found
    ]
    return _table(("name", "type", "default", "meaning"), rows)


def _default(schema: Mapping[str, Any]) -> str:
    return _code(visible_json(schema["default"], indent=None)) if "default" in schema else "–"


def _returns(spec: ToolSpec) -> str:
    output = spec.output_schema
    said = [] if isinstance(output, dict) else ["Its spec does not say what."]
    if isinstance(output, dict):
        rows = [
            (_code(one.name), _code(one.shape), _inline(one.description) or "–")
            for one in parameters(output).values()
        ]
        told = output.get("description")
        said += [_text(told)] if isinstance(told, str) and told else []
        kind = "object" if rows else shape(output, output)
        said.append(f"{_code(kind)}{', with' if rows else ''}")
        said += [_table(("field", "type", "meaning"), rows)] if rows else []
    if is_external(spec):
        said.append("What it returns was written by others, and is marked as such.")
    return "\n\n".join(said)


def _configuration(spec: ToolSpec, target: object | None) -> Iterator[str]:
    yield f"Kind: {_code(spec.kind)}."
    if spec.version:
        yield f"Version: {_inline(spec.version)}."
    if secrets := sorted({*_injected(target), *_bound(spec.binding)}):
        yield f"Secrets in the environment: {', '.join(map(_code, secrets))}."
    if spec.egress:
        yield f"Goes to {', '.join(map(_code, spec.egress))}."
    if spec.isolation:
        yield f"Isolation: {_code(spec.isolation)}."
    if spec.state:
        yield f"State: {_code(spec.state)}."
    if spec.cache:
        yield f"Results are kept for {spec.cache.ttl:g} s."
    if spec.fallback:
        yield f"If it fails, {_code(spec.fallback)} is called."
    if spec.retry:
        yield f"Attempts: {spec.retry.attempts} at most."


def _injected(target: object | None) -> Iterator[str]:
    signature = getattr(target, "signature", None)
    for marker in getattr(signature, "injected", {}).values():
        if isinstance(marker, Secret):
            yield marker.name


def _bound(binding: Mapping[str, Any]) -> Iterator[str]:
    """The names of secrets in a binding, which are not secret themselves."""
    yield from map(str, binding.get("secrets") or ())
    auth = binding.get("auth")
    for inner in (auth, *auth.values()) if isinstance(auth, Mapping) else ():
        for field, name in inner.items() if isinstance(inner, Mapping) else ():
            if field in ("bearer", "password", "user_secret", "secret") and isinstance(name, str):
                yield name


def _limitations(spec: ToolSpec) -> Iterator[str]:
    yield f"Tier {spec.tier} ({TIERS[spec.tier].lower()}): {_RISKS[spec.tier]}"
    yield f"Effects: {_code(spec.effects)}. {_EFFECTS[spec.effects]}"
    yield f"It is stopped after {spec.time_limit:g} s."
    if spec.total_timeout is not None:
        yield f"All attempts of a call together take {spec.total_timeout:g} s at most."
    if spec.requires_approval:
        yield "A person is asked before every call."
    if spec.permissions.roles:
        yield f"Only for the roles {', '.join(map(_code, spec.permissions.roles))}."
    if spec.permissions.agents:
        yield f"Only for the agents {', '.join(map(_code, spec.permissions.agents))}."
    limits, usual = spec.limits, Limits()
    yield f"{limits.concurrency} calls at a time; {limits.queue} more wait."
    yield f"At most {_size(limits.output)} of output."
    if limits.memory is not None:
        yield f"At most {_size(limits.memory)} of memory."
    if limits.cpus is not None:
        yield f"At most {limits.cpus:g} processors."
    if limits.processes != usual.processes:
        yield f"At most {limits.processes} processes."
    if raw := raw_names(spec.input_schema):
        yield f"Personal data is left in {', '.join(map(_code, raw))}."
    if secret := secret_names(spec.input_schema):
        yield f"Secrets may be passed in {', '.join(map(_code, secret))}."


def _performance(spec: ToolSpec, latency: Latency | None, unmeasured: str) -> str:
    expected = EXPECTED.get(spec.kind, OTHERWISE)
    rows = [
        ("target of its kind", _time(expected.target * 1000)),
        ("longest it should take", _time(expected.max * 1000)),
        ("stopped after", _time(spec.time_limit * 1000)),
    ]
    if latency is None:
        return f"{unmeasured}\n\n{_table(('', ''), rows)}"
    rows += [
        ("half of the calls within", _time(latency.p50)),
        ("95 % of the calls within", _time(latency.p95)),
        ("longest call", _time(latency.longest)),
    ]
    calls = f"{latency.calls:,} call{'' if latency.calls == 1 else 's'}"
    return f"Measured over {calls} that succeeded.\n\n{_table(('', ''), rows)}"


def _time(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.3g} s"
    return f"{milliseconds:.3g} ms"


def _size(octets: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if octets >= size and octets % size == 0:
            return f"{octets // size} {unit}"
    return f"{octets:,} bytes"


# Markdown


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _listed(points: Iterator[str]) -> str:
    return "\n".join(f"- {point}" for point in points)


def _text(words: str) -> str:
    """A text as it is; what Markdown would make something else of is only shown."""
    parts = _CODE.split(visible(words.replace("\r\n", "\n")))
    return "".join(
        part if number % 2 else _MARKED.sub(r"\\\1", part) for number, part in enumerate(parts)
    )


def _inline(words: str) -> str:
    return _text(" ".join(words.split())).replace("\\|", "|").replace("|", "\\|")


def _code(text: str) -> str:
    """As code, whatever is in it; also in a cell of a table."""
    text = " ".join(visible(text).split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    edge = "`" * (longest + 1)
    return f"{edge} {text} {edge}" if longest or not text else f"`{text}`"
