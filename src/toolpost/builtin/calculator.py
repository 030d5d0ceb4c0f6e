"""Arithmetic: exact integers and decimals, powers, functions and constants; never code.

Above: ``sources/builtin.py``. Below: ``calculator_grammar.py`` reads an expression,
``calculator_numbers.py`` works it out. Both are bounded, so that nothing an expression can say
takes long: it is worked out in the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypedDict

from annotated_types import MaxLen

from toolpost import tool
from toolpost.authoring import FunctionTool
from toolpost.builtin import raw
from toolpost.builtin.calculator_grammar import evaluated
from toolpost.builtin.calculator_numbers import as_json, as_text
from toolpost.options import Options


class Calculated(TypedDict):
    """``text`` is the result written out in full; ``exact`` says that nothing was rounded in it."""

    result: int | float
    text: str
    exact: bool


@raw("expression")
@tool(
    title="Calculator",
    tags=["math"],
    tier=0,
    effects="read",
    timeout=1,
    examples=[
        {"expression": "2 + 2"},
        {"expression": "10 * (5 + 3)"},
        {"expression": "round(1234.5 * 1.19, 2)"},
        {"expression": "2^100 mod 97"},
        {"expression": "sqrt(2) * sin(pi / 4)"},
    ],
)
async def calculator(expression: Annotated[str, MaxLen(1000)]) -> Calculated:
    """Work out an arithmetic expression, exactly where that is possible: 0.1 + 0.2 is 0.3.

    Operators: + - * / ** (or ^), // (whole division), % (or mod: remainder), ! (factorial) and
    parentheses. Constants: pi, e, tau. Functions: abs, sign, floor, ceil, trunc, round(x, digits),
    sqrt, cbrt, exp, ln, log (base 10), log(x, base), log2, sin, cos, tan, asin, acos, atan,
    atan2(y, x), sinh, cosh, tanh (angles in radians), degrees, radians, hypot, min, max, sum,
    mean, gcd, lcm, comb(n, k), perm(n, k).

    :param expression: What to work out, such as 10 * (5 + 3). Multiplication is always written.
    """
    number = evaluated(expression)
    return {
        "result": as_json(number),
        "text": as_text(number),
        "exact": not isinstance(number, float),
    }


def tools(settings: Options, base: Path) -> Iterable[FunctionTool]:
    return [calculator]
