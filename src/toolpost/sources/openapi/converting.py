"""From an OpenAPI document to specs of HTTP tools: one for each operation that can be called.

Above: ``source.py`` and ``toolpost import openapi``. Below: the rest of this folder, each file for
one part of an operation. An operation that cannot be called as it is described is left out, with
the reason and its place; the others are not held up by it. It refuses to fetch anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolpost.characters import stripped
from toolpost.contracts import Tell
from toolpost.errors import ConfigError, InvalidSpec, SourceError
from toolpost.net.destination import Refused
from toolpost.net.url import url_from
from toolpost.options import Options
from toolpost.patterns import glob
from toolpost.plugins import verify_binding
from toolpost.sources.openapi.answers import answers_of
from toolpost.sources.openapi.arguments import Arguments
from toolpost.sources.openapi.bodies import body_of
from toolpost.sources.openapi.description import Description, Operation, Unfit, said
from toolpost.sources.openapi.fetching import Found
from toolpost.sources.openapi.naming import names_of
from toolpost.sources.openapi.parameters import Placing, parameters_of
from toolpost.sources.openapi.schemas import Schemas
from toolpost.sources.openapi.security import auth_of, keys_in
from toolpost.sources.openapi.servers import Server, Servers
from toolpost.sources.openapi.translating import Notes, text_of
from toolpost.spec import Effects, ToolSpec
from toolpost.wording import short, shortened

MOST_OPERATIONS: Final = 20_000
_MOST_WORDS: Final = 1500
_MOST_TITLE: Final = 120
_MOST_TAGS: Final = 10
_PREFIX: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}")
_OFTEN: Final = 25
_EFFECTS: Final[Mapping[str, tuple[Effects, int]]] = {
    **dict.fromkeys(("get", "head", "options"), ("read", 1)),
    "put": ("idempotent", 2),
    "delete": ("idempotent", 3),
    **dict.fromkeys(("post", "patch"), ("once", 2)),
}
"""Method → effects and tier."""


class Choices(Options, frozen=True):
    """What is taken of a document, and what is said in its place.

    ``tags`` and ``operations`` are patterns; one that begins with ``!`` leaves out what it matches.
    """

    base_url: str | None = None
    prefix: str = ""
    tags: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    secrets: Mapping[str, str] = {}
    auth: dict[str, Any] | list[dict[str, Any]] | None = None
    outputs: bool = True

    def __post_init__(self) -> None:
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"{short(self.prefix)!r} is no prefix: use up to 31 ASCII letters, digits, '_', "
                "'-' or '.'",
                at=("prefix",),
            )
        if self.base_url is not None:
            try:
                url_from(self.base_url)
            except Refused as fault:
                raise ConfigError(f"base_url: {fault}", at=("base_url",)) from None


class LeftOut(msgspec.Struct, frozen=True):
    """An operation that is no tool: which, why, and where the document says what is wrong."""

    operation: str
    why: str
    at: str


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """``operations`` is how many the document has, ``notes`` what is told in other words."""

    specs: tuple[ToolSpec, ...]
    left_out: tuple[LeftOut, ...]
    notes: Mapping[str, str]
    operations: int
    chosen: int


def imported(found: Found, choices: Choices, *, tell: Tell = lambda done, total: None) -> Imported:
    """The tools of a document."""
    document = found.document
    description = Description(document)
    operations = list(description.operations())
    named = zip(names_of(operations, choices.prefix), operations, strict=True)
    wanted = _wanted(choices)
    chosen = [(name, one) for name, one in named if wanted(name, one)]
    if not chosen:
        what = "no operations" if not operations else "no operation that these patterns choose"
        raise SourceError(f"{document.name}: it has {what}")
    if len(chosen) > MOST_OPERATIONS:
        raise SourceError(
            f"{document.name}: {len(chosen):,} operations are more than {MOST_OPERATIONS:,}: "
            "choose some by tags or operations"
        )
    notes = Notes()
    making = _Making(description, choices, notes, found)
    specs, left_out = [], []
    for number, (name, one) in enumerate(chosen):
        if number % _OFTEN == 0:
            tell(number, len(chosen))
        try:
            specs.append(making.spec(name, one))
        except Unfit as fault:
            left_out.append(LeftOut(one.label, fault.why, said(fault.at)))
    tell(len(chosen), len(chosen))
    if not specs:
        raise SourceError(
            f"{document.name}: none of its {len(chosen)} operations can be called; "
            f"{short(left_out[0].operation)}: {left_out[0].why}"
        )
    return Imported(
        specs=tuple(specs),
        left_out=tuple(left_out),
        notes=notes,
        operations=len(operations),
        chosen=len(chosen),
    )


def _wanted(choices: Choices) -> Callable[[str, Operation], bool]:
    by_tag, by_operation = _chooser(choices.tags), _chooser(choices.operations)

    def wanted(name: str, one: Operation) -> bool:
        return by_tag(one.tags) and by_operation((name, one.label, *((one.id,) if one.id else ())))

    return wanted


def _chooser(patterns: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Whether one of several texts is asked for, and none is left out."""
    taken = [one for one in patterns if not one.startswith("!")]
    is_taken, is_left = glob(taken), glob([one[1:] for one in patterns if one.startswith("!")])

    def chosen(texts: Sequence[str]) -> bool:
        return (not taken or any(map(is_taken, texts))) and not any(map(is_left, texts))

    return chosen


class _Making:
    """Makes the specs of one document."""

    def __init__(
        self, description: Description, choices: Choices, notes: Notes, found: Found
    ) -> None:
        self._description = description
        self._choices = choices
        self._notes = notes
        self._requests = Schemas(description, notes)
        self._answers = Schemas(description, notes, answers=True)
        self._servers = Servers(
            description, base_url=choices.base_url, home=found.home, named=found.named
        )
        info = description.data.get("info")
        version = info.get("version") if isinstance(info, Mapping) else None
        self._version = text_of(version, 64) or None

    def spec(self, name: str, operation: Operation) -> ToolSpec:
        written = operation.written
        if isinstance(written, Unfit):
            raise Unfit(written.why, written.at)
        if not isinstance(written, Mapping):
            raise Unfit("expected a mapping", operation.at)
        if operation.method not in _EFFECTS:
            raise Unfit(f"the method {operation.method.upper()} is not done here", operation.at)
        arguments = Arguments()
        server = self._servers.server_of(operation)
        binding = self._binding(operation, server, arguments)
        effects, tier = _EFFECTS[operation.method]
        deprecated = written.get("deprecated") is True
        title = text_of(written.get("summary"), _MOST_TITLE)
        try:
            spec = ToolSpec(
                name=name,
                description=_words(operation, deprecated=deprecated),
                kind="http",
                title=title or None,
                version=self._version,
                category="http",
                tags=tuple(dict.fromkeys(filter(None, map(_tag, operation.tags[:_MOST_TAGS])))),
                input_schema=self._requests.whole(arguments.schema(), operation.at),
                output_schema=self._output(operation, binding),
                binding=binding,
                tier=tier,
                effects=effects,
                egress=self._servers.egress_of(server),
                labels={"deprecated": "true"} if deprecated else {},
            )
            verify_binding(spec)
        except InvalidSpec as fault:
            raise Unfit(_why(fault), operation.at) from None
        return spec

    def _binding(
        self, operation: Operation, server: Server, arguments: Arguments
    ) -> dict[str, Any]:
        auth = self._auth(operation, server)
        placing = Placing(self._requests, arguments, frozenset(keys_in(auth)))
        path = placing.place(operation, parameters_of(self._description, operation))
        body = body_of(self._description, operation, self._requests, arguments)
        binding: dict[str, Any] = {
            "method": operation.method.upper(),
            "url": f"{server.prefix}/{path.lstrip('/')}",
        }
        if placing.path:
            binding["path"] = placing.path
        binding |= {section: entries for section, entries in placing.binding.items() if entries}
        if body is not None:
            binding["body"] = body
        if auth:
            binding["auth"] = auth[0] if len(auth) == 1 else auth
        return binding

    def _auth(self, operation: Operation, server: Server) -> list[dict[str, Any]]:
        given = self._choices.auth
        if given is not None:
            return given if isinstance(given, list) else [given]
        return auth_of(self._description, operation, server.url, self._choices.secrets)

    def _output(self, operation: Operation, binding: dict[str, Any]) -> dict[str, Any] | None:
        """Held against what the document says of it, if that can be done; the type is asked for."""
        try:
            answers = answers_of(
                self._description, operation, self._answers, wanted=self._choices.outputs
            )
        except Unfit as fault:
            self._notes.add(fault.at, f"outputs are not held against a schema: {fault.why}")
            return None
        if answers.accept is not None:
            binding.setdefault("headers", {})["Accept"] = answers.accept
        return answers.schema


def _why(fault: InvalidSpec) -> str:
    """Of an address that a spec cannot have just so, what to do about it here."""
    if "'egress'" not in fault.message:
        return fault.message
    return f"{fault.message.partition(': ')[0]}: say with base_url where the service is"


def _words(operation: Operation, *, deprecated: bool) -> str:
    """What a model reads to choose the tool."""
    summary = text_of(operation.written.get("summary"), _MOST_WORDS)
    given = operation.written.get("description")
    more = _paragraphs(given) if isinstance(given, str) else ""
    if summary and summary.rstrip(".") not in more[: len(summary) + 1]:
        more = f"{summary}\n\n{more}".strip()
    more = more or f"{operation.method.upper()} {stripped(operation.path)}"
    return shortened(f"Deprecated. {more}" if deprecated else more, _MOST_WORDS)


def _paragraphs(text: str) -> str:
    lines = (line.strip() for line in stripped(text[: 4 * _MOST_WORDS]).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _tag(tag: str) -> str:
    return text_of(tag, 64)
