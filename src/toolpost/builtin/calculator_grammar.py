"""An expression, read from left to right and worked out as it is read.

    sum     = product {("+" | "-") product}
    product = signed {("*" | "/" | "//" | "%" | "mod") signed}
    signed  = {"+" | "-"} power
    power   = atom ["!"] [("**" | "^") signed]
    atom    = number | constant | function "(" sum {"," sum} ")" | "(" sum ")"

Above: ``calculator.py``. Below: ``calculator_numbers.py``. It refuses to know what a number is. A
fault is told with its place, and with what to write instead.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final, NoReturn

from toolpost.builtin.calculator_numbers import (
    CONSTANTS,
    FUNCTIONS,
    OPERATIONS,
    Number,
    applied,
    factorial,
    negated,
)
from toolpost.errors import InvalidArguments
from toolpost.wording import nearest, short

_DEEPEST: Final = 40
_MOST_TOKENS: Final = 250
_MOST_EXPONENT: Final = 400
_MOST_DIGITS: Final = 400
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>\*\*|//|[-+*/%^!(),]))"
)
_SPELT: Final = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "π": " pi ", "τ": " tau "}
)
_PRODUCTS: Final = frozenset(("*", "/", "//", "%", "mod"))
_POWERS: Final = frozenset(("**", "^"))
_END: Final = ""


def evaluated(expression: str) -> Number:
    """The number that an expression stands for."""
    return _Reader(expression).whole()


class _Reader:
    """One expression, and how far it has been read."""

    __slots__ = ("_at", "_depth", "_tokens")

    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression.translate(_SPELT))
        self._at = self._depth = 0

    def whole(self) -> Number:
        value = self._sum()
        if self._next != _END:
            self._refuse_rest()
        return value

    @property
    def _next(self) -> str:
        return self._tokens[self._at][1]

    def _sum(self) -> Number:
        value = self._product()
        while (sign := self._next) in ("+", "-"):
            self._at += 1
            value = applied(OPERATIONS[sign], value, self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while (sign := self._next) in _PRODUCTS:
            self._at += 1
            if sign == "%" and self._next in ("+", "-", "*", "/", ")", ",", _END):
                _refuse("% is the remainder of a division: write 0.15 for 15 %")
            value = applied(OPERATIONS[sign], value, self._signed())
        return value

    def _signed(self) -> Number:
        minus = False
        while (sign := self._next) in ("+", "-"):
            self._at += 1
            minus ^= sign == "-"
        value = self._power()
        return negated(value) if minus else value

    def _power(self) -> Number:
        value = self._atom()
        if self._next == "!":
            self._at += 1
            value = factorial(value)
            if self._next == "!":
                _refuse("!! is not clear: write (3!)! for the factorial of a factorial")
        if self._next in _POWERS:
            self._at += 1
            self._down()
            value = applied(OPERATIONS["**"], value, self._signed())
            self._depth -= 1
        return value

    def _atom(self) -> Number:
        kind, text = self._tokens[self._at]
        if kind == "number":
            self._at += 1
            return _number(text)
        if kind == "name":
            self._at += 1
            return self._named(text.lower())
        if text != "(":
            _refuse(f"a number is missing {self._before()}")
        self._at += 1
        return self._inside()[0] if self._next != ")" else _refuse("there is nothing in ()")

    def _named(self, name: str) -> Number:
        if self._next != "(" and name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            hint = nearest(name, (*FUNCTIONS, *CONSTANTS, "mod"))
            _refuse(f"there is nothing called {short(name)!r}{hint}")
        if self._next != "(":
            _refuse(f"{name} is a function: write {name}(…)")
        self._at += 1
        return applied(FUNCTIONS[name], *self._inside(several=True), name=name)

    def _inside(self, *, several: bool = False) -> list[Number]:
        """What stands in parentheses that have been opened."""
        self._down()
        values = [self._sum()]
        while self._next == "," and several:
            self._at += 1
            values.append(self._sum())
        if self._next == ",":
            _refuse("a comma stands between the values of a function only: write 1000 or 1.5")
        if self._next != ")":
            _refuse(f"a ) is missing {self._before()}")
        self._at += 1
        self._depth -= 1
        return values

    def _down(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(f"this is nested too deeply: {_DEEPEST} levels at most")

    def _before(self) -> str:
        return "at the end" if self._next == _END else f"before {self._next!r}"

    def _refuse_rest(self) -> NoReturn:
        kind, text = self._tokens[self._at]
        if text == ")":
            _refuse("there is a ) without its (")
        if text == ",":
            _refuse("a comma stands between the values of a function only: write 1000 or 1.5")
        if kind in ("number", "name") or text == "(":
            _refuse(f"an operator is missing before {short(text)!r}: write 2 * pi, not 2 pi")
        _refuse(f"{text!r} is not expected here")


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each, and one of an empty text at the end."""
    tokens = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            wrong = text[at:].lstrip()[:1]
            _refuse(f"{short(wrong)!r} is not part of an expression: {_SIGNS}")
        assert found.lastgroup is not None
        tokens.append((found.lastgroup, _plain(found[found.lastgroup], found.lastgroup)))
        at = found.end()
        if len(tokens) > _MOST_TOKENS:
            _refuse(f"this is too long: {_MOST_TOKENS} numbers and signs at most")
    return [*tokens, ("end", _END)]


def _plain(text: str, kind: str) -> str:
    return "mod" if kind == "name" and text.lower() == "mod" else text


_SIGNS: Final = "numbers, names, + - * / // % ** ^ ! ( ) and commas are"


def _number(text: str) -> Number:
    mantissa, _, exponent = text.lower().partition("e")
    if (
        len(mantissa) > _MOST_DIGITS
        or len(exponent) > 5
        or abs(int(exponent or 0)) > _MOST_EXPONENT
    ):
        _refuse(f"a number has {_MOST_DIGITS} digits, and 400 as its exponent, at most")
    if not exponent and "." not in mantissa:
        return int(mantissa)
    return applied(lambda: Fraction(text))


def _refuse(problem: str) -> NoReturn:
    raise InvalidArguments(f"/expression: {problem}", effects="none")
