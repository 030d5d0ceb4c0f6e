"""The calculator: exact where it can be, and nothing in it takes long."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from fractions import Fraction
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from toolpost import CallError, Executor, InvalidArguments, Registry, ToolFailed
from toolpost.builtin.calculator import calculator
from toolpost.builtin.calculator_grammar import evaluated
from toolpost.builtin.calculator_numbers import CONSTANTS, FUNCTIONS, as_text

pytestmark = pytest.mark.anyio


@pytest.mark.req("AF-4", "NA-8")
@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 2", 4),
        ("10 * (5 + 3)", 80),
        ("0.1 + 0.2", 0.3),
        ("1/3*3", 1),
        ("7 / 2", 3.5),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 mod 3", 1),
        ("2^10", 1024),
        ("2 ** 3 ** 2", 512),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2^-1", 0.5),
        ("2^0.5", math.sqrt(2)),
        ("--3", 3),
        ("-+-3", 3),
        ("2 * -3", -6),
        ("1.5e3", 1500),
        (".5 + 1.", 1.5),
        ("5!", 120),
        ("0!", 1),
        ("-3!", -6),
        ("2^3!", 64),
        ("sqrt(16)", 4),
        ("sqrt(2)", math.sqrt(2)),
        ("16/9 ^ 0.5", Fraction(16, 3)),
        ("(16/9) ^ 0.5", Fraction(4, 3)),
        ("cbrt(-27)", -3),
        ("round(2.5)", 3),
        ("round(-2.5)", -3),
        ("round(1.005, 2)", 1.01),
        ("round(1234, -2)", 1200),
        ("floor(-0.5) + ceil(0.5)", 0),
        ("trunc(-2.7)", -2),
        ("sign(-4) * abs(-4)", -4),
        ("log(1000)", 3),
        ("log(8, 2)", 3),
        ("ln(e)", 1),
        ("exp(0)", 1),
        ("sin(pi / 2)", 1),
        ("degrees(pi)", 180),
        ("atan2(1, 1) * 4", math.pi),
        ("hypot(3, 4)", 5),
        ("max(1, 5, 3) - min(1, 5, 3)", 4),
        ("sum(0.1, 0.2, 0.3)", 0.6),
        ("mean(1, 2, 4)", Fraction(7, 3)),
        ("gcd(12, 18) + lcm(4, 6)", 18),
        ("comb(52, 5)", 2_598_960),
        ("perm(5, 2)", 20),
        ("comb(3, 5)", 0),
        ("factorial(5)", 120),
        ("PI", math.pi),
        ("2 × 3 ÷ 4 − 1", 0.5),
        ("2 * π", math.tau),
        ("1^(9^300)", 1),
        ("(-1)^(9^300)", -1),
        ("0^5", 0),
        ("0^0", 1),
        ("2^100", 2**100),
        ("(1 + 0.045/12)^360", 1.00375**360),
        ("0.5^9999999", 0),
    ],
)
async def test_an_expression_is_worked_out(expression: str, result: Any) -> None:
    answer = await calculator(expression)
    assert answer["result"] == pytest.approx(float(result), rel=1e-12)


@pytest.mark.parametrize(
    ("expression", "text", "exact"),
    [
        ("0.1 + 0.2", "0.3", True),
        ("1/3", "1/3", True),
        ("-1/8", "-0.125", True),
        ("2^100", "1267650600228229401496703205376", True),
        ("10 * 1.10", "11", True),
        ("sqrt(2)", "1.4142135623730951", False),
        ("1/2 + sin(0)", "0.5", False),
        ("1/1024 - 1", "-0.9990234375", True),
    ],
)
async def test_the_text_says_it_in_full(expression: str, text: str, exact: bool) -> None:
    answer = await calculator(expression)
    assert (answer["text"], answer["exact"]) == (text, exact)


_WRONG = {
    "": "a number is missing at the end",
    "1 +": "a number is missing at the end",
    "* 2": "a number is missing before '*'",
    "2 3": "an operator is missing before '3'",
    "2 pi": "an operator is missing before 'pi': write 2 * pi",
    "2(3)": "an operator is missing before '('",
    "(1": "a ) is missing at the end",
    "1)": "there is a ) without its (",
    "()": "there is nothing in ()",
    "max()": "a number is missing before ')'",
    "1,000": "a comma stands between the values of a function only: write 1000",
    "(1, 2)": "a comma stands between the values of a function only",
    "sin(1, 2)": "sin takes 1 value, not 2",
    "atan2(1)": "atan2 takes 2 values, not 1",
    "log(1, 2, 3)": "log takes 1–2 values, not 3",
    "sin": "sin is a function: write sin(…)",
    "sine(1)": "there is nothing called 'sine'; did you mean 'sin",
    "pi(2)": "there is nothing called 'pi'",
    "200 * 15%": "% is the remainder of a division: write 0.15 for 15 %",
    "10% + 5": "% is the remainder of a division",
    "3!!": "!! is not clear: write (3!)!",
    "x = 1": "'=' is not part of an expression",
    "1 < 2": "'<' is not part of an expression",
    "[1][0]": "'[' is not part of an expression",
    "'a' * 9": '"\'" is not part of an expression',
    "1 if 1 else 2": "an operator is missing before 'if'",
    "lambda: 1": "':' is not part of an expression",
    "٣ + ٤": "'٣' is not part of an expression",
    "__import__": "there is nothing called '__import__'",
    "__class__.__mro__": "'.' is not part of an expression",
    "1.__class__": "an operator is missing before '__class__'",
    "e.real": "'.' is not part of an expression",
    "9\x1b[2J": "'\ufffd' is not part of an expression",
}


@pytest.mark.req("NA-8", "NA-10")
@pytest.mark.parametrize("expression", _WRONG)
def test_what_is_no_expression_is_refused_with_what_to_write(expression: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        evaluated(expression)
    assert refused.value.message.startswith(f"/expression: {_WRONG[expression]}")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 / 0", "This divides by zero"),
        ("1 // 0", "This divides by zero"),
        ("1 % 0", "This divides by zero"),
        ("0 ^ -1", "This divides by zero"),
        ("sqrt(-1)", "sqrt is not defined for -1"),
        ("ln(0)", "ln is not defined for 0"),
        ("log(0)", "log is not defined for 0"),
        ("log(2, 1)", "This divides by zero"),
        ("asin(2)", "asin is not defined for 2"),
        ("(-8) ^ (1/3)", "This is not defined for -8, 1/3"),
        ("0.5!", "A factorial is of a whole number, 0 or more"),
        ("gcd(1.5, 2)", "gcd is not defined for 1.5, 2"),
        ("comb(-1, 2)", "comb is not defined for -1, 2"),
        ("round(1, 1000)", "round takes up to 100 digits"),
        ("1e-400", "This is too small to be told from 0: numbers go down to about 1e-323 here"),
        (
            "10^-400 * 10^400",
            "This is too small to be told from 0: numbers go down to about 1e-323 here",
        ),
    ],
)
def test_what_has_no_result_says_so(expression: str, problem: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        evaluated(expression)
    assert failed.value.message == problem


BOMBS = (
    "9**9**9",
    "9**9**9**9",
    "9^9^9^9^9^9",
    "2^" * 30 + "2",
    "2^" * 300 + "2",
    "10**10**10",
    "(10**300)**(10**300)",
    "99999999999!",
    "451!",
    "(9!)!",
    "factorial(factorial(20))",
    "comb(10^9, 5*10^8)",
    "perm(100000, 99999)",
    "comb(10^300, 10^299)",
    "1e999999999",
    "1e-999999999",
    "9" * 900,
    "(" * 400 + "1" + ")" * 400,
    "sqrt(" * 150 + "2" + ")" * 150,
    "-" * 999 + "1",
    "1" + "!" * 900,
    "exp(exp(exp(9)))",
    "2**3322 * 2**3322",
    "*".join(["10^900"] * 60),
    "(10^400) / 3",
)


@pytest.mark.req("NA-8")
@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_attack_a_bomb_is_refused_at_once(bomb: str) -> None:
    with pytest.raises(CallError):
        evaluated(bomb)
    assert _fastest(bomb) < 0.005, "half a thousandth, on a machine that does nothing else"


HEAVY = (
    "+".join(f"1/{prime}" for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29) * 6),
    "*".join(["99999/7"] * 60),
    "+".join(["3^600/7^300"] * 30),
    "lcm(" + ",".join(str(n) for n in range(10**9, 10**9 + 80)) + ")",
    "(" * 39 + "1" + "+1)" * 39,
    "450! / 449! + comb(3000, 1000) mod 97",
    "max(" + ",".join(str(n) for n in range(100)) + ")",
)


@pytest.mark.parametrize("heavy", HEAVY, ids=range(len(HEAVY)))
def test_nothing_that_is_allowed_takes_long(heavy: str) -> None:
    evaluated(heavy)
    assert _fastest(heavy) < 0.05


def _fastest(expression: str) -> float:
    times = []
    for _ in range(20):
        started = perf_counter()
        with suppress(CallError):
            evaluated(expression)
        times.append(perf_counter() - started)
    return min(times)


@pytest.mark.req("AF-8")
async def test_a_calculation_takes_less_than_a_millisecond_with_the_road() -> None:
    async with Executor(Registry([calculator])) as executor:
        times = []
        for _ in range(200):
            started = perf_counter()
            result = await executor.execute("calculator", {"expression": "10 * (5 + 3)"})
            times.append(perf_counter() - started)
            assert result.output["result"] == 80
    assert min(times) < 0.001


@hypothesis_given(
    st.recursive(
        st.integers(0, 10**9).map(str) | st.decimals(0, 1000, places=2).map(str),
        lambda inner: (
            st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({' '.join(t)})")
            | inner.map(lambda one: f"-{one}")
        ),
        max_leaves=12,
    )
)
def test_it_is_as_exact_as_fractions(expression: str) -> None:
    names = {"__builtins__": {}}
    words = [
        word if not word.strip("-(").rstrip(")").replace(".", "").isdigit() else _fraction(word)
        for word in expression.replace("(", "( ").replace(")", " )").split()
    ]
    expected = eval(" ".join(words), names | {"F": Fraction})
    assert Fraction(evaluated(expression)) == expected
    assert Fraction(as_text(evaluated(expression))) == expected


def _fraction(word: str) -> str:
    number = word.lstrip("-")
    return f"{'-' * (len(word) - len(number))}F('{number}')"


@hypothesis_given(st.text(alphabet="0123456789.e+-*/%^!(), pisqrtmaxlog", max_size=80))
def test_any_text_is_a_number_or_a_clear_error(text: str) -> None:
    try:
        number = evaluated(text)
    except CallError as error:
        assert error.code in ("VALIDATION_ERROR", "EXECUTION_ERROR")
        assert len(error.message) < 500
    else:
        assert isinstance(number, int | float | Fraction)


def test_its_description_names_all_that_is_there() -> None:
    for name in (*FUNCTIONS, *CONSTANTS):
        if name not in ("log10", "factorial"):  # said otherwise
            assert name in calculator.spec.description


async def test_a_long_integer_goes_through_whole() -> None:
    async with Executor(Registry([calculator])) as executor:
        result = await executor.execute("calculator", {"expression": "449! * 2"})
    assert result.output["result"] == math.factorial(449) * 2
    assert result.output["text"] == str(math.factorial(449) * 2)


async def test_a_thousand_calculations_do_not_hold_up_the_loop() -> None:
    async with Executor(Registry([calculator])) as executor, asyncio.timeout(30):
        runs = [executor.execute("calculator", {"expression": bomb}) for bomb in BOMBS * 20]
        results = await asyncio.gather(*runs)
    assert all(result.error is not None for result in results)
