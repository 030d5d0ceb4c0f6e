"""Finding what the rules describe, in one linear pass: ``Rules``.

Above: the package's own functions, ``extensions/sanitize.py``. Below: the tables of rules.

A text is looked at closely only if ``glance.py`` suspects something in it. Patterns then run on RE2
where it is installed: a set of all of them says which occur, and only those are looked for. Without
it the built-in ones run on ``re``, where literals that a rule cannot do without stand for the set;
patterns of a user's own are refused, as nobody has bounded them.

A text in which something may hide (``seen.py``) is scanned twice: as it is, and without that.

A text is scanned as bytes, one for each character, ``0x80`` for any that is not ASCII: secrets are
ASCII, and a place in the bytes is a place in the text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

import msgspec

from toolpost import known
from toolpost.errors import ConfigError, MissingPart
from toolpost.redact.glance import Innocent, innocent
from toolpost.redact.personal import PERSONAL
from toolpost.redact.rule import Rule, Span
from toolpost.redact.secret import SECRETS
from toolpost.redact.seen import seen

_SHADOW: Final = "toolpost.shadow"
_MEMORY: Final = 64 * 1024 * 1024
_LEAST: Final = 6
"""Nothing shorter is found: ``a@b.co``."""
_LONGEST_PATTERN: Final = 1000

_encode: Final = msgspec.json.Encoder().encode


class Finding(NamedTuple):
    """What was found, and where."""

    kind: str
    start: int
    end: int


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule of a user's own, in RE2's syntax; the first group, if there is one, is the finding."""

    name: str
    pattern: str
    secret: bool = True
    """A secret is never let through as raw; personal data is."""


class Rules:
    """A set of rules: the built-in ones and the given. ``personal=False`` leaves only secrets;
    ``engine="re"`` leaves RE2 aside even where it is installed.
    """

    def __init__(
        self,
        patterns: Iterable[Pattern] = (),
        *,
        personal: bool = True,
        engine: Literal["auto", "re"] = "auto",
    ) -> None:
        self.patterns = tuple(patterns)
        self._personal, self._plain = personal, engine == "re"
        own = [p for p in self.patterns if personal or p.secret]
        self._own = [(p.name, _compiled(p)) for p in own]
        secret = {rule.kind: rule.secret for rule in (*SECRETS, *(PERSONAL if personal else ()))}
        self.kinds: dict[str, bool] = {
            known.KIND: True,
            **secret,
            **{p.name: p.secret for p in own},
        }
        """Every kind there is, and whether it is a secret."""
        self.innocent: Innocent = self._first
        """The first look alone: nothing is said of what the process was given, or of patterns of
        a user's own."""

    def _first(self, text: str) -> bool:
        self.innocent = innocent(personal=self._personal)
        return self.innocent(text)

    def find(self, text: str) -> list[Finding]:
        """What is in a text, in order; findings do not overlap."""
        if self.clean(text):
            return []
        found = list(self._found(text))
        if (plain := seen(text)) is not None:
            found += [Finding(f.kind, *plain.span(f.start, f.end)) for f in self._found(plain.text)]
        return _apart(found, self.kinds)

    def _found(self, text: str) -> Iterator[Finding]:
        for span in known.spans(text):
            yield Finding(known.KIND, *span)
        if len(text) >= _LEAST:
            shadow = text.encode("ascii", _SHADOW)
            yield from _built_in(shadow, _engine(self._personal, self._plain))
        for name, pattern in self._own:
            for span in _own(pattern, text):
                yield Finding(name, *span)

    def clean(self, text: str) -> bool:
        """A quick look: True where nothing can be found; says nothing if False."""
        if self._own or (known.values and known.holds(text)):
            return False
        try:
            return len(text) < _LEAST or self.innocent(text)
        except ValueError:
            return False  # half of a character, or a text of a class of its own

    def clean_data(self, value: Any, *, names: bool = False) -> bool:
        """A quick look at JSON data as a whole, keys included: True where nothing can be found.

        What stands in a string also stands in the JSON of the whole, where quotes bound it as the
        end of a text does, once nothing in it is escaped. With ``names``, names that say secret
        count as well.
        """
        if self._own:
            return False
        try:
            whole = _encode(value).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            return False  # not JSON
        return self.clean_json(whole, names=names)

    def clean_json(self, whole: str, *, names: bool = False) -> bool:
        """The same look at the JSON itself, of one value or of many in a row."""
        plain = whole if "\\" not in whole else _unescaped(whole)
        if self._own or plain is None or "~1" in plain:
            return False
        if known.values and known.holds(plain):
            return False
        return innocent(personal=self._personal, names=names)(plain)

    def redact_text(self, text: str) -> str:
        """The text with every finding replaced by ``[redacted:kind]``."""
        if "~1" in text:  # a JSON pointer in it writes / like this, and would hide what has one
            plain = text.replace("~1", "/")
            text = plain if self.find(plain) else text
        found = self.find(text)
        return replaced(text, found) if found else text


_ESCAPED: Final = (('\\"', '"'), ("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\/", "/"))


def _unescaped(whole: str) -> str | None:
    """JSON with the texts in it as they were; ``None`` if that takes more than a look."""
    whole = whole.replace("\\\\", "\0")  # no JSON has that character as it is
    for escaped, plain in _ESCAPED:
        whole = whole.replace(escaped, plain)
    return None if "\\" in whole else whole.replace("\0", "\\")


def replaced(text: str, findings: Iterable[Finding]) -> str:
    """The text with the findings replaced; they are in order and do not overlap."""
    pieces: list[str] = []
    end = 0
    for finding in findings:
        pieces += (text[end : finding.start], f"[redacted:{finding.kind}]")
        end = finding.end
    return "".join((*pieces, text[end:]))


def _apart(found: list[Finding], secret: dict[str, bool]) -> list[Finding]:
    """Findings that overlap become one; a secret keeps its place, whatever else is seen in it."""
    if len(found) < 2:
        return found
    order = {kind: place for place, kind in enumerate(secret)}
    found.sort(key=lambda f: (f.start, order[f.kind]))
    kept = [found[0]]
    for finding in found[1:]:
        last = kept[-1]
        if finding.start >= last.end:
            kept.append(finding)
        elif secret[finding.kind] == secret[last.kind]:
            first = min(last, finding, key=lambda f: order[f.kind])
            kept[-1] = Finding(first.kind, last.start, max(last.end, finding.end))
        elif secret[finding.kind]:
            kept[-1] = finding
    return kept


class _Engine(NamedTuple):
    rules: tuple[Rule, ...]
    compiled: tuple[Any, ...]
    which: Any
    """RE2's set over all patterns; None on ``re``."""

    def candidates(self, shadow: bytes) -> Iterable[int]:
        """The rules worth a closer look."""
        if self.which is not None:
            return self.which.Match(shadow) or ()
        small = shadow.lower()
        return (
            index
            for index, rule in enumerate(self.rules)
            if not rule.needs or any(need in small for need in rule.needs)
        )


@cache
def _engine(personal: bool, plain: bool) -> _Engine:
    rules = SECRETS + (PERSONAL if personal else ())
    re2 = _re2()
    if plain or re2 is None:
        return _Engine(rules, tuple(re.compile(_source(rule)) for rule in rules), None)
    options = _options(re2)
    options.encoding = re2.Options.Encoding.LATIN1
    which = re2.Set.SearchSet(options)
    for rule in rules:
        which.Add(_source(rule))
    which.Compile()
    return _Engine(rules, tuple(re2.compile(_source(rule), options) for rule in rules), which)


def _source(rule: Rule) -> bytes:
    return rule.pattern.encode("latin-1")


@cache
def _re2() -> Any:
    """RE2, or None; another package of the same name falls back to ``re`` and does not count."""
    try:
        re2 = import_module("re2")  # only where something has to be looked at closely
    except ImportError:
        return None
    return re2 if hasattr(re2, "Set") and hasattr(re2, "Options") else None


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY  # a set that runs out of it finds nothing, and does not say so
    return options


def linear() -> bool:
    """Whether RE2 is there."""
    return _re2() is not None


def _built_in(shadow: bytes, engine: _Engine) -> Iterator[Finding]:
    for index in engine.candidates(shadow):
        rule = engine.rules[index]
        for span in (rule.search or partial(_checked, rule))(shadow, engine.compiled[index]):
            yield Finding(rule.kind, *span)


def _checked(rule: Rule, shadow: bytes, pattern: Any) -> Iterator[Span]:
    """A match that turns out to be none may hide one that begins inside it."""
    place = 0
    while (match := pattern.search(shadow, place)) is not None:
        span: Span | None = match.span() if rule.check is None else rule.check(shadow, match)
        if span is not None:
            yield span
        place = match.start() + rule.step if span is None and rule.step else match.end()


def _own(pattern: Any, text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        start, end = match.span(1 if pattern.groups else 0)
        if start < end:
            yield start, end


def _compiled(own: Pattern) -> Any:
    re2 = _re2()
    if re2 is None:
        raise MissingPart(
            f"the pattern {own.name!r} needs RE2, which keeps any pattern linear. "
            'Install it with: pip install "toolpost[redact]"'
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", own.name):
        raise ConfigError(f"{own.name!r} is not a kind: use small letters, digits and '_'")
    if len(own.pattern) > _LONGEST_PATTERN:
        raise ConfigError(f"the pattern {own.name!r} is longer than {_LONGEST_PATTERN} characters")
    try:
        pattern = re2.compile(own.pattern, _options(re2))
    except re2.error as fault:
        said = fault.args[0] if fault.args else b""
        told = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise ConfigError(f"the pattern {own.name!r} is not one that RE2 knows: {told}") from None
    if pattern.search("") is not None:
        raise ConfigError(f"the pattern {own.name!r} matches nothing at all: make it say more")
    return pattern


def _as_one_byte(fault: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(fault, UnicodeEncodeError)
    return b"\x80" * (fault.end - fault.start), fault.end


codecs.register_error(_SHADOW, _as_one_byte)
