"""A message without its values: numbers, names of things, paths and addresses become ``<*>``.

Above: ``mining.py`` groups what comes out. Below: nothing. The patterns are linear: a run of
characters is entered at its first one only, and what was taken is never given back. What is rare
is looked for only where a quick look finds its sign.
"""

from __future__ import annotations

import re
from typing import Final

WILD: Final = "<*>"

_D: Final = r"\s=:,;()\[\]{}\"'|<>"
"""What a value ends at."""
_START: Final = rf"(?<![^{_D}])"
_VALUE: Final = re.compile(rf"{_START}(?:[^{_D}0-9@]*+[0-9@][^{_D}]*+|[/~][^{_D}]++)")
_VALUE_SIGN: Final = re.compile(r"[0-9@/~]")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}+://[^\s\"'<>]++")
_QUERY: Final = re.compile(rf"{_START}/[^{_D}?]*+\?[^\s\"'<>]*+")
"""A path with a query: which parameters it has goes by the request."""
_TOP: Final = (
    "com|net|org|edu|gov|mil|lan|local|ar|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hk|hu|ie|il|in|"
    "io|ir|it|jp|kr|mx|nl|no|nz|pl|pt|ro|ru|se|sg|th|tr|tw|ua|uk|us|vn|za"
)
_HOST: Final = re.compile(rf"{_START}(?:[A-Za-z0-9_-]++\.)++(?<=\.)(?:{_TOP})(?![^{_D}])")
_HOST_SIGN: Final = re.compile(rf"\.(?:{_TOP})(?![\w.-])")
_USER: Final = re.compile(
    r"(?<=\b[Uu]ser[ =])(?!(?:account|agent|and|at|authentication|by|data|did|does|from|has|id|in|"
    r"input|interface|is|login|mode|name|not|on|or|requests?|requested|session|space|table|to|"
    rf"unknown|was|with)\b)'?[^{_D}]++'?|(?<=\busername[ =])[^{_D}]++"
    rf"|(?<=\b(?:password|ublickey) for )(?!invalid user)[^{_D}]++"
    rf"|(?<=\bauthentication failures for )(?!invalid user)[^{_D}]++"
)
_DATE: Final = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?+ )?+"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r"\s++[0-9]{1,2}\b|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?+ (?=[0-9])"
)
_DATE_SIGN: Final = re.compile(r"[a-z]{2},? ++[0-9]{1,2} ")
_HEX_GROUPS: Final = re.compile(
    r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}+:|:){2,19}+[0-9A-Fa-f]{1,4}+(?![\w:])"
)
"""Addresses of networks and of their cards, and serial numbers; a group may look like a word."""
_QUOTED: Final = re.compile(r"(?<==)\"[^\"]*+\"")
_LESS: Final = re.compile(r"<\s?[0-9][\w.]*+(?!>)(?: (?:sec|ms|min)\b)?")
_SIZE_AGAIN: Final = re.compile(r" \([0-9.,]++ ?[KMGTkmgt]i?[Bb]\)")
"""``2048 bytes (2.00 KB)``: the same again for people, and only where it is large."""
_UNIT: Final = re.compile(r"(?<=<\*>) (?:[KMGT]i?)?B(?![\w/])")
"""``2.3 KB`` and ``411 B``: which unit it is goes by the number."""
_LIST: Final = re.compile(r"<\*>(?:[\s,]++<\*>)++")
_MANY: Final = re.compile(r"<\*>(?:[\s,:;|/#.+-]*+<\*>)++")
_FILLED: Final = re.compile(r"(?<!\.)\.{3,}+(?=[0-9])")
_ONE_DIGIT: Final = bytes.maketrans(b"0123456789", b"0000000000")
_WORDS: Final = re.compile(rf"<\*>|[^{_D}]++|[=:,;()\[\]{{}}\"'|<>]")


def masked(message: str) -> str:
    """The message, its values replaced; a list of values is one."""
    if "B)" in message or "b)" in message:
        message = _SIZE_AGAIN.sub("", message)
    if "..." in message:
        message = _FILLED.sub(" ", message)
    if "/" in message:
        message = _without_urls(message)
    if (
        "ser " in message
        or "ser=" in message
        or "name" in message
        or "y for " in message
        or "d for " in message
        or "s for " in message
    ):
        message = _USER.sub(WILD, message)
    if " ()" in message:
        message = message.replace(" ()", f" ({WILD})")  # a field that is empty this time
    if '="' in message:
        message = _QUOTED.sub(f'"{WILD}"', message)
    if message.count(":") > 2:
        message = _HEX_GROUPS.sub(WILD, message)
    if "<" in message:
        message = _LESS.sub(WILD, message)
    if "." in message and _HOST_SIGN.search(message) is not None:
        message = _HOST.sub(WILD, message)
    if _VALUE_SIGN.search(message) is None:
        plain = message
    else:
        dated = ":" in message and _DATE_SIGN.search(message) is not None
        plain = _VALUE.sub(WILD, _DATE.sub(WILD, message) if dated else message)
    if "B" in plain:
        plain = _UNIT.sub("", plain)
    return _LIST.sub(WILD, plain) if plain.count(WILD) > 1 else plain


def _without_urls(message: str) -> str:
    if "://" in message:
        message = _URL.sub(WILD, message)
    return _QUERY.sub(WILD, message) if "?" in message else message


def alike(message: str) -> bytes:
    """The same for messages that differ in their digits only: those have one mask, for no pattern
    here tells one digit from another, and none is left in a mask.
    """
    return message.encode("utf-8", "surrogatepass").translate(_ONE_DIGIT)


def one_of_many(plain: str) -> str:
    """With one value in the place of several that nothing but marks keep apart."""
    return _MANY.sub(WILD, plain)


def pieces(plain: str) -> tuple[list[str], list[str]]:
    """What blanks keep apart in a masked message; and the same with one value in the place of each
    piece that a value is part of, unless it names it.
    """
    found = plain.split()
    whole = []
    for piece in found:
        bare = piece.rstrip(",;:.")
        is_value = WILD in piece and "=" not in piece
        whole.append(WILD + piece[len(bare) :] if is_value else piece)
    return found, whole


def words(plain: str) -> list[str]:
    """What a masked message is made of; marks between words count as well."""
    return _WORDS.findall(plain)
