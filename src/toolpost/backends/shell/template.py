"""Command templates: what a spec writes, as one text or as a list, becomes words with holes.

    rm -- {path}                     a hole fills one word, or a part of one, and nothing else
    tar -cf {to} -- {files}          an array alone in a word gives a word for each item
    grep {all?--no-ignore} -e {what} a flag that is there when a boolean is true
    curl [--max-time {seconds}] …    a group that is left out when one of its values is missing
    curl [-H {headers} ...] …        a group that is there once for every item
    jq {{}}                          braces that are meant

Above: ``binding.py``. Below: nothing but the spec's schema. It is read once, when a spec is loaded;
no shell ever sees it. It refuses to know values: ``filling.py`` puts them in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec

from toolpost.errors import InvalidSpec
from toolpost.wording import nearest, short

Written = str | list[str | list[str]]
Place = tuple[str | int, ...]

LEADING: Final = "-@"
"""What makes a flag, or the name of a file to be read, of a word that begins with it."""
_SHELLS: Final = frozenset(("ash", "bash", "busybox", "dash", "fish", "ksh", "sh", "zsh"))
_PIECE: Final = re.compile(
    r"""(?P<space>\s+) | '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.)
    | (?P<bracket>[][]) | (?P<bare>[^\s'"\\][^\s'"\\\]\[]*)""",
    re.S | re.X,
)
_OF_A_SHELL: Final = re.compile(r"[|&;<>()$`*]|^~")
_EXPANDED: Final = re.compile(r"(?<!\\)[$`]")
_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_HOLE: Final = re.compile(r"([^\s?{}]+)(?:\?(.+))?", re.S)
_SCRIPT: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")


class Hole(msgspec.Struct, frozen=True):
    """Where the value of a parameter goes, and what it must not begin with: there, and where the
    word begins with it.
    """

    name: str
    barred: str = ""
    leading: str = ""


class Word(msgspec.Struct, frozen=True):
    """One element of an argv."""

    pieces: tuple[str | Hole, ...]

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(piece for piece in self.pieces if isinstance(piece, Hole))

    @property
    def literal(self) -> str | None:
        """What it says, if no value goes into it."""
        return None if self.holes else "".join(map(str, self.pieces))


class Flag(msgspec.Struct, frozen=True):
    """A word that is there when a boolean is true."""

    name: str
    text: str


class Group(msgspec.Struct, frozen=True):
    """Words that stand together or not at all; ``each``: once for every item of this array."""

    words: tuple[Word | Flag, ...]
    each: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The parameters without which it is left out."""
        return frozenset(h.name for w in self.words if isinstance(w, Word) for h in w.holes)


Template = tuple[Word | Flag | Group, ...]


class Parameters:
    """What the schema says of the parameters, as far as a template has to know."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._properties: Mapping[str, Any] = schema.get("properties") or {}
        self._required: Sequence[str] | None = schema.get("required")

    def known(self, name: str, at: Place) -> None:
        if name not in self._properties:
            there = ", ".join(map(short, self._properties)) or "none"
            hint = nearest(name, self._properties) or f" (there is {there})"
            _refuse(f"{{{short(name)}}} is no parameter of the input_schema{hint}", at)

    def may_be_missing(self, name: str) -> bool:
        """A schema that requires nothing at all leaves it to the template."""
        if self._required is None or name in self._required:
            return False
        return "default" not in self._of(name)

    def is_only(self, name: str, *types: str) -> bool:
        """Whether every value is of one of these types."""
        said = self._of(name).get("type") or ()
        said = {said} if isinstance(said, str) else set(said)
        return bool(said) and said <= {*types, "null"}

    def is_listed(self, name: str) -> bool:
        """Whether the author of the spec has written down every value there can be."""
        of = self._of(name)
        return "enum" in of or "const" in of

    def _of(self, name: str) -> Mapping[str, Any]:
        schema = self._properties[name]
        return schema if isinstance(schema, Mapping) else {}


def template_from(
    written: Written, parameters: Parameters, *, allowed: Mapping[str, str], at: Place
) -> Template:
    """The template, or ``InvalidSpec`` with the place of what is wrong."""
    items = split(written, at) if isinstance(written, str) else written
    if not items or isinstance(items[0], list):
        _refuse("the command begins with the program", at)
    reader = _Reader(parameters, allowed)
    parts: list[Word | Flag | Group] = []
    for number, item in enumerate(items):
        place = (*at, number)
        if isinstance(item, list):
            parts.append(reader.group(item, place))
        else:
            parts.append(reader.word(item, place))
    first = parts[0]
    if not isinstance(first, Word) or not first.literal:
        _refuse("the program itself cannot come from a parameter", at)
    _refuse_scripts(list(_flat(parts)), at)
    return tuple(parts)


def word_from(written: str, parameters: Parameters, at: Place) -> Word:
    """A text with holes that is no argument: nothing in it can be taken for a flag."""
    pieces = _pieces(written, at)
    if isinstance(pieces, Flag):
        _refuse("a flag has no meaning here", at)
    for hole in Word(pieces).holes:
        parameters.known(hole.name, at)
    return Word(pieces)


def split(text: str, at: Place) -> list[str | list[str]]:
    """A text as a list: white space parts words, quotes and backslashes keep them together as in
    a POSIX shell, brackets make groups. What only a shell would understand is refused.
    """
    items: list[str | list[str]] = []
    word: str | None = None
    group: list[str] | None = None
    position = 0
    while position < len(text):
        found = _PIECE.match(text, position)
        if found is None:
            _refuse("a quote is not closed, or a backslash is the last character", at)
        position = found.end()
        kind, said = found.lastgroup, found[found.lastgroup or 0]
        if kind == "bracket":
            before = position < 2 or text[position - 2].isspace() or said == "]"
            after = position == len(text) or text[position] in " \t\n]" or said == "["
            if (said == "[") == (group is not None) or not before or not after:
                _refuse("brackets stand around whole words, in pairs; quote one that is meant", at)
        if kind in ("space", "bracket"):
            if word is not None:
                (items if group is None else group).append(word)
                word = None
            if said == "[":
                group = []
            elif said == "]" and group is not None:
                items.append(group)
                group = None
            continue
        word = (word or "") + _unquoted(kind, said, at)
    if group is not None:
        _refuse("a bracket is not closed", at)
    return items if word is None else [*items, word]


def _unquoted(kind: str | None, said: str, at: Place) -> str:
    pattern = {"bare": _OF_A_SHELL, "double": _EXPANDED}.get(kind or "")
    if pattern is not None and (found := pattern.search(said)):
        _refuse(
            f"{found[0]!r} means nothing here, for no shell reads this: put it in single quotes if "
            "the program shall have it, or call a script",
            at,
        )
    return re.sub(r'\\(["\\$`])', r"\1", said) if kind == "double" else said


class _Reader:
    """Reads words in order: whether one may begin with a dash depends on those before it."""

    def __init__(self, parameters: Parameters, allowed: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._allowed = allowed
        self._after_dashes = False

    def word(self, text: str, at: Place, *, optional: bool = False) -> Word | Flag:
        pieces = _pieces(text, at)
        if isinstance(pieces, Flag):
            self._parameters.known(pieces.name, at)
            if not self._parameters.is_only(pieces.name, "boolean"):
                _refuse(f"{{{pieces.name}?…}} needs a parameter of the type boolean", at)
            return pieces
        word = Word(pieces)
        for hole in word.holes:
            self._verify(hole.name, at, optional=optional)
        if isinstance(pieces[0], str) and pieces[0].startswith("-"):
            self._refuse_chosen_flag(pieces, at)
        self._after_dashes = self._after_dashes or word.literal == "--"
        return self._barred(word)

    def group(self, items: Sequence[str], at: Place) -> Group:
        before = self._after_dashes
        repeats = len(items) > 1 and items[-1] == "..."
        words = tuple(
            self.word(item, (*at, number), optional=True)
            for number, item in enumerate(items[: -1 if repeats else None])
        )
        self._after_dashes = before  # what may be left out protects nobody behind it
        group = Group(words)
        if not group.names:
            _refuse("a group has a value in it: without one it would never be left out", at)
        arrays = [n for n in group.names if self._parameters.is_only(n, "array")]
        if repeats and len(arrays) != 1:
            _refuse("a group that is repeated has exactly one parameter of the type array", at)
        return Group(words, arrays[0]) if repeats else group

    def _verify(self, name: str, at: Place, *, optional: bool) -> None:
        parameters = self._parameters
        parameters.known(name, at)
        if parameters.is_only(name, "boolean"):
            _refuse(f"{name!r} is true or false: write {{{name}?--{name}}} for a flag", at)
        if parameters.is_only(name, "object"):
            _refuse(f"{name!r} is an object, which is no word: hand it over with stdin", at)
        if not optional and parameters.may_be_missing(name):
            _refuse(
                f"{name!r} may be missing: put what depends on it in [brackets] (in a list, in a "
                "list of its own), or add it to 'required'",
                at,
            )

    def _refuse_chosen_flag(self, pieces: Sequence[str | Hole], at: Place) -> None:
        """``-{x}`` and ``-x{more}`` would let a value say which flags there are."""
        for piece in pieces:
            if isinstance(piece, Hole):
                numbers = self._parameters.is_only(piece.name, "integer", "number")
                if not numbers and not self._parameters.is_listed(piece.name):
                    _refuse(
                        f"{{{piece.name}}} could choose another flag here: write it behind a '=', "
                        "or as a word of its own, or give it an enum",
                        at,
                    )
            elif "=" in piece:
                return

    def _barred(self, word: Word) -> Word:
        return Word(
            tuple(
                piece
                if isinstance(piece, str)
                else Hole(
                    piece.name,
                    barred=self._forbidden(piece.name, "@"),
                    leading=self._forbidden(piece.name, LEADING),
                )
                for piece in word.pieces
            )
        )

    def _forbidden(self, name: str, characters: str) -> str:
        if self._after_dashes or self._parameters.is_listed(name):
            return ""
        return "".join(c for c in characters if c not in self._allowed.get(name, ""))


def _pieces(text: str, at: Place) -> tuple[str | Hole, ...] | Flag:
    if "\0" in text:
        _refuse("a NUL character cannot stand in a command", at)
    pieces: list[str | Hole] = []
    position = 0
    for brace in _BRACES.finditer(text):
        pieces.append(text[position : brace.start()])
        position = brace.end()
        if brace[0] in ("{{", "}}"):
            pieces.append(brace[0][0])
            continue
        inside = _HOLE.fullmatch(brace[1] or "")
        if inside is None:
            _refuse(
                f"{short(brace[0])!r} names no parameter; write {{{{ and }}}} for braces that are "
                "meant",
                at,
            )
        if inside[2] is None:
            pieces.append(Hole(inside[1]))
        elif brace[0] == text:
            return Flag(inside[1], inside[2])
        else:
            _refuse(f"{short(brace[0])!r} is a flag, and a flag is a word of its own", at)
    pieces.append(text[position:])
    return tuple(_joined(pieces)) or ("",)


def _joined(pieces: Sequence[str | Hole]) -> Iterator[str | Hole]:
    """Without empty texts, and with no two texts side by side."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
        text = ""
        yield piece
    if text:
        yield text


def _refuse_scripts(words: Sequence[Word | Flag], at: Place) -> None:
    """``sh -c "rm {path}"`` would make a shell's program of a value, whatever is done here."""
    shell = script = False
    for word in words:
        literal = word.text if isinstance(word, Flag) else word.literal
        if script and literal is None:
            _refuse(
                "what a shell runs with -c cannot hold a value: write "
                """sh -c 'rm -- "$1"' sh {path}, or hand the script over with stdin""",
                at,
            )
        option = literal is not None and literal.startswith(("-", "+"))
        script = option and (script or (shell and bool(_SCRIPT.fullmatch(literal or ""))))
        shell = shell or (literal or "").rpartition("/")[2] in _SHELLS


def _flat(parts: Sequence[Word | Flag | Group]) -> Iterator[Word | Flag]:
    for part in parts:
        yield from part.words if isinstance(part, Group) else (part,)


def _refuse(message: str, at: Place) -> NoReturn:
    raise InvalidSpec(message, at=at)
