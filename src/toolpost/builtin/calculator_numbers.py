"""Numbers that are exact as long as they can be, and never longer than so many digits.

A number is an integer, a fraction, or, where something had to be rounded, a float. Before anything
is worked out that could be large, its size is estimated: what would be too large is refused before
it costs anything, and a fraction that gets too long goes on as a float.

Above: ``calculator_grammar.py``. Below: the standard library's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from inspect import signature
from operator import add, mul, sub
from types import MappingProxyType
from typing import Any, Final, NoReturn

from toolpost.errors import InvalidArguments, ToolFailed

Number = int | Fraction | float

_MOST_DIGITS: Final = 1000
_MOST_BITS: Final = 3322
"""Of an integer: as many as so many digits have."""
_FRACTION_BITS: Final = 1024
_MOST_FACTORIAL: Final = 450
_MOST_PLACES: Final = 100
_LONGEST_DECIMAL: Final = 60

_TOO_LARGE: Final = (
    f"This is too large: integers have up to {_MOST_DIGITS} digits here, other numbers up to 308"
)
_TOO_SMALL: Final = "This is too small to be told from 0: numbers go down to about 1e-323 here"


def applied(function: Callable[..., Number], *values: Number, name: str = "") -> Number:
    """What a function makes of numbers; what it cannot make is said in words."""
    try:
        if name:
            _verify_count(name, len(values))
        return fitted(function(*values))
    except ZeroDivisionError:
        return _fail("This divides by zero")
    except OverflowError:
        return _fail(_TOO_LARGE)
    except ValueError:
        return _fail(f"{name or 'This'} is not defined for {', '.join(map(as_text, values))}"[:300])


def fitted(number: Number) -> Number:
    """The same number: a whole one as an integer, a long fraction as a float."""
    if isinstance(number, Fraction):
        if number.denominator == 1:
            number = number.numerator
        elif max(number.numerator.bit_length(), number.denominator.bit_length()) > _FRACTION_BITS:
            number = float(number) or _fail(_TOO_SMALL)
    if isinstance(number, float):
        if not math.isfinite(number):
            raise OverflowError if math.isinf(number) else ValueError
    elif isinstance(number, int) and number.bit_length() > _MOST_BITS:
        raise OverflowError
    return number


def negated(number: Number) -> Number:
    return -number


def _fail(problem: str) -> NoReturn:
    raise ToolFailed(problem, effects="none")


def _verify_count(name: str, count: int) -> None:
    least, most = _COUNTS[name]
    if least <= count and (most is None or count <= most):
        return
    wanted = (
        str(least) if least == most else f"{least} or more" if most is None else f"{least}–{most}"
    )
    raise InvalidArguments(
        f"/expression: {name} takes {wanted} value{'s' if wanted != '1' else ''}, not {count}",
        effects="none",
    )


def _divided(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(a) / float(b)
    return Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else Fraction(a) / b


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or isinstance(exponent, float):
        return _float_power(base, exponent)
    if isinstance(exponent, Fraction):
        return _sqrt(base) if exponent == Fraction(1, 2) else _float_power(base, exponent)
    if base in (0, 1):
        return base ** min(max(exponent, -1), 1)
    if base == -1:
        return -1 if exponent % 2 else 1
    length = max(abs(Fraction(base).numerator), Fraction(base).denominator).bit_length()
    if (length - 1) * abs(exponent) > _MOST_BITS:
        return _float_power(base, exponent)
    return Fraction(base) ** exponent if exponent < 0 else base**exponent


def _float_power(base: Number, exponent: Number) -> float:
    return math.pow(base, exponent)  # ValueError for what is no real number


def factorial(number: Number) -> Number:
    if not isinstance(number, int) or number < 0:
        return _fail("A factorial is of a whole number, 0 or more")
    if number > _MOST_FACTORIAL:
        return _fail(_TOO_LARGE)
    return math.factorial(number)


def _sqrt(number: Number) -> Number:
    if isinstance(number, float) or number < 0:
        return math.sqrt(number)
    exact = Fraction(number)
    above, below = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
    if above * above == exact.numerator and below * below == exact.denominator:
        return Fraction(above, below)
    return math.sqrt(number)


def _cbrt(number: Number) -> Number:
    root = math.cbrt(number)
    whole = round(root)
    return whole if whole**3 == number else root


def _log(number: Number, base: Number = 10) -> Number:
    if base == 10:
        return math.log10(number)
    return math.log2(number) if base == 2 else math.log(number) / math.log(base)


def _round(number: Number, places: Number = 0) -> Number:
    """Half goes away from zero, as people round."""
    if not isinstance(places, int) or abs(places) > _MOST_PLACES:
        return _fail(f"round takes up to {_MOST_PLACES} digits")
    exact = Fraction(number)
    shifted = abs(exact) * Fraction(10) ** places
    rounded = math.floor(shifted + Fraction(1, 2)) / Fraction(10) ** places
    return rounded if exact >= 0 else -rounded


def _sum(*numbers: Number) -> Number:
    return reduce(lambda a, b: fitted(a + b), numbers)


def _whole(*numbers: Number) -> list[int]:
    """These numbers, if they are whole ones."""
    found = [number for number in numbers if isinstance(number, int)]
    if len(found) < len(numbers):
        raise ValueError
    return found


def _lcm(*numbers: Number) -> Number:
    return reduce(lambda a, b: int(fitted(math.lcm(a, b))), _whole(*numbers))


def _choices(n: Number, k: Number, *, ordered: bool) -> Number:
    """Estimated by logarithms first: it may be large."""
    n, k = _whole(n, k)
    if n < 0 or k < 0:
        raise ValueError
    if k > n:
        return 0
    if not ordered:
        k = min(k, n - k)
    logarithm = math.lgamma(n + 1.0) - math.lgamma(n - k + 1.0)
    if k > _MOST_BITS or k * math.log2(max(n / max(k, 1), 1)) > _MOST_BITS:
        raise OverflowError
    if not ordered:
        logarithm -= math.lgamma(k + 1.0)
    if n < 1e15 and logarithm > _MOST_BITS * math.log(2):
        raise OverflowError
    return math.perm(n, k) if ordered else math.comb(n, k)


OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Number]]] = MappingProxyType(
    {
        "+": add,
        "-": sub,
        "*": mul,
        "/": _divided,
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "mod": lambda a, b: a % b,
        "**": _power,
    }
)
CONSTANTS: Final[Mapping[str, Number]] = MappingProxyType(
    {"pi": math.pi, "e": math.e, "tau": math.tau}
)
FUNCTIONS: Final[Mapping[str, Callable[..., Number]]] = MappingProxyType(
    {
        "abs": lambda x: abs(x),
        "sign": lambda x: (x > 0) - (x < 0),
        "floor": lambda x: math.floor(x),
        "ceil": lambda x: math.ceil(x),
        "trunc": lambda x: math.trunc(x),
        "round": _round,
        "sqrt": _sqrt,
        "cbrt": _cbrt,
        "exp": lambda x: math.exp(x),
        "ln": lambda x: math.log(x),
        "log": _log,
        "log2": lambda x: math.log2(x),
        "log10": lambda x: math.log10(x),
        "sin": lambda x: math.sin(x),
        "cos": lambda x: math.cos(x),
        "tan": lambda x: math.tan(x),
        "asin": lambda x: math.asin(x),
        "acos": lambda x: math.acos(x),
        "atan": lambda x: math.atan(x),
        "atan2": lambda y, x: math.atan2(y, x),
        "sinh": lambda x: math.sinh(x),
        "cosh": lambda x: math.cosh(x),
        "tanh": lambda x: math.tanh(x),
        "degrees": lambda x: math.degrees(x),
        "radians": lambda x: math.radians(x),
        "hypot": lambda *x: math.hypot(*x),
        "min": lambda *x: min(x),
        "max": lambda *x: max(x),
        "sum": _sum,
        "mean": lambda *x: _divided(_sum(*x), len(x)),
        "gcd": lambda *x: math.gcd(*_whole(*x)),
        "lcm": _lcm,
        "factorial": factorial,
        "comb": lambda n, k: _choices(n, k, ordered=False),
        "perm": lambda n, k: _choices(n, k, ordered=True),
    }
)


def _count(function: Callable[..., Number]) -> tuple[int, int | None]:
    """How many values a function takes."""
    parameters = signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 1, None
    return sum(one.default is one.empty for one in parameters), len(parameters)


_COUNTS: Final = {name: _count(function) for name, function in FUNCTIONS.items()}


def as_json(number: Number) -> int | float:
    """The number as JSON has it."""
    if not isinstance(number, Fraction):
        return number
    try:
        return float(number)
    except OverflowError:
        return _fail(_TOO_LARGE)


def as_text(number: Number) -> str:
    """The number written out: a fraction as a decimal if that ends, else as a fraction."""
    if not isinstance(number, Fraction):
        return str(number)
    places = _places(number.denominator)
    if places is None:
        return str(number)
    digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _places(denominator: int) -> int | None:
    """How many decimal places a fraction has, if they end, and soon."""
    counts = []
    for prime in (2, 5):
        count = 0
        while denominator % prime == 0 and count <= _LONGEST_DECIMAL:
            denominator //= prime
            count += 1
        counts.append(count)
    return max(counts) if denominator == 1 and max(counts) <= _LONGEST_DECIMAL else None
