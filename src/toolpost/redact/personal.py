"""What personal data looks like: addresses, numbers of people, cards and accounts.

Above: ``scan.py``. Below: ``rule.py``. Where a number carries a checksum it has to be right, so
that a long number is not taken for a card. Addresses of networks count where they are public.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from itertools import pairwise
from typing import Final

from toolpost.redact.rule import Match, Rule, Span, apart

_LOCAL: Final = re.compile(rb"[A-Za-z0-9._%+'\x80-]{1,64}\Z")
_NOT_TOP: Final = frozenset(
    b"png jpg jpeg gif svg webp ico css js jsx tsx json html xml yaml yml lock tgz gz zip txt "
    b"service socket target timer slice scope mount local localdomain internal".split()
)  # no top-level domain: files, units, machines of one's own


def _email(text: bytes, match: Match) -> Span | None:
    """The pattern finds the ``@`` and what follows; who stands before it is looked up here."""
    at, end = match.span()
    local = _LOCAL.search(text[max(0, at - 64) : at])
    top = match.group().rpartition(b".")[2].lower()
    if local is None or top in _NOT_TOP or text[end : end + 1] in (b"(", b"/"):
        return None
    name = local.group().lstrip(b".'%")
    if not name or name == b"git" or name.endswith(b"."):
        return None
    return at - len(name), end


def _international(text: bytes, match: Match) -> Span | None:
    start, end = match.span()
    number = match.group()
    digits = re.sub(rb"[^0-9]", b"", number)
    least = 10 if len(number) == len(digits) + 1 else 8  # y +12345678 is a sum as well
    if not least <= len(digits) <= 15 or number.count(b"(") != number.count(b")"):
        return None
    before = text[start - 1 : start]
    if (before.isalnum() and before.isascii()) or before in (b")", b"]", b"_", b"+", b"."):
        return None  # a sum
    if re.fullmatch(rb"\+[0-9]+\.[0-9]+", number) or _joins(text, end):
        return None  # a number with a fraction
    added_line = before == b"\n" and b"@@ " in text
    return None if added_line else (start, end)


def _american(text: bytes, match: Match) -> Span | None:
    start, end = match.span()
    before = text[start - 1 : start]
    if before in (b".", b"/", b"-", b"#", b"=") and text[start - 2 : start] != b"1-":
        return None
    return (start, end) if apart(text, start, end) and not _joins(text, end) else None


_NUMBER_OF: Final = re.compile(
    rb"(?i)(?:order|invoice|account|acct|ticket|serial|part|sku|isbn|issn|ean|ref|reference|id|no|nr"
    rb"|number|version|v|chapter|page|port|article|model|tracking|case|item|customer|policy|[#$=/])"
    rb"[.:# ]{0,3}\Z"
)
_DATE: Final = re.compile(
    rb"(?:19|20)[0-9]{2}[ ./-]?(?:0[1-9]|1[0-2])[ ./-]?(?:0[1-9]|[12][0-9]|3[01])(?![0-9])"
    rb"|(?:0?[1-9]|[12][0-9]|3[01])[ ./-](?:0?[1-9]|[12][0-9]|3[01])[ ./-]"
    rb"(?:19|20)[0-9]{2}(?![0-9])"
)
_SSN: Final = re.compile(rb"[0-9]{3}-[0-9]{2}-[0-9]{4}")
_SAME_STEPS: Final = 3


def _local(text: bytes, match: Match) -> Span | None:
    """A number as it is dialled inside of a country: nine to eleven digits in groups, the first of
    them a zero, and nothing before it that says what else it is.
    """
    start, end = match.span()
    number = match.group()
    digits = re.sub(rb"[^0-9]", b"", number)
    if not 9 <= len(digits) <= 11 or _DATE.match(number) or _counts_up(number):
        return None
    before = text[max(0, start - 14) : start]
    if before[-1:] in (b".", b"-", b"/", b",", b"+") or _NUMBER_OF.search(before):
        return None
    if before[-2:-1].isdigit() or _SSN.fullmatch(number):  # the end of a longer one
        return None
    return (start, end) if apart(text, start, end) and not _joins(text, end) else None


def _counts_up(number: bytes) -> bool:
    """``01 02 03 04 05`` is a row of numbers."""
    parts = [int(part) for part in re.findall(rb"[0-9]+", number)]
    steps = {second - first for first, second in pairwise(parts)}
    return len(parts) >= _SAME_STEPS and len(steps) == 1


def _announced(text: bytes, match: Match) -> Span | None:
    """A word before it says that it is one: seven to thirteen digits then, however they stand."""
    start, end = match.span(1)
    number = match.group(1)
    digits = re.sub(rb"[^0-9]", b"", number)
    if (
        not 7 <= len(digits) <= 13
        or _DATE.match(number)
        or number.count(b"(") != number.count(b")")
    ):
        return None
    if re.fullmatch(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9]+\.[0-9]+", number) or _counts_up(number):
        return None
    return (start, end) if apart(text, start, end) and not _joins(text, end) else None


def _foreign(text: bytes, match: Match) -> Span | None:
    """Behind a word of another script, which may say anything: in three groups or more."""
    number = match.group(1)
    grouped = len(re.findall(rb"[0-9]+", number)) >= 3 and b"  " not in number
    digits = len(re.sub(rb"[^0-9]", b"", number))
    return _announced(text, match) if grouped and 9 <= digits <= 12 else None


def _joins(text: bytes, end: int) -> bool:
    """A number goes on behind a dot, a dash or a colon, or directly."""
    after = text[end : end + 2]
    return after[:1].isdigit() or (after[:1] in (b".", b"-", b":") and after[1:].isdigit())


def _luhn(digits: bytes) -> bool:
    total = 0
    for place, code in enumerate(reversed(digits)):
        digit = code - 48
        if place % 2:
            digit = digit * 2 - 9 * (digit > 4)
        total += digit
    return total % 10 == 0


def _card(text: bytes, match: Match) -> Span | None:
    """The first group; what stands before it only says that the number begins there."""
    start, end = match.span(1)
    if not apart(text, start, end) or _joins(text, end) or text[start - 1 : start] in (b".", b"-"):
        return None
    digits = re.sub(rb"[ -]", b"", match.group(1))
    return (start, end) if _issued(digits) and _luhn(digits) else None


def _issued(digits: bytes) -> bool:
    """The issuer's first digits, and as many digits as its cards have."""
    length, head = len(digits), int(digits[:4])
    if digits[:1] == b"4":
        return length in (16, 19)
    if digits[:2] in (b"34", b"37"):
        return length == 15
    if 3000 <= head <= 3059 or 3600 <= head <= 3699 or 3800 <= head <= 3899:
        return length == 14
    if 6200 <= head <= 6299:
        return 16 <= length <= 19
    sixteen = (5100, 5599), (2221, 2720), (3528, 3589), (6011, 6011), (6440, 6599)
    return length == 16 and any(low <= head <= high for low, high in sixteen)


_IBAN_LENGTHS: Final = {
    country.encode(): int(length)
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL", 19: "MK SI", 20: "AT BA EE KZ LT LU XK",
        21: "CH CR HR LI LV", 22: "BG BH DE GB GE IE ME RS VA", 23: "AE IL TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "PT", 26: "IS TR", 27: "FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB LC PL SV", 29: "BR EG PS QA UA", 30: "JO KW MU", 31: "MT SC",
    }.items()
    for country in countries.split()
}  # fmt: skip


def _iban(text: bytes, match: Match) -> Span | None:
    start = match.start()
    length = _IBAN_LENGTHS.get(match.group()[:2])
    if length is None:
        return None
    end, kept = start, bytearray()
    while len(kept) < length and end < match.end():
        if text[end] != 0x20:
            kept.append(text[end])
        end += 1
    if len(kept) < length or not apart(text, start, end):
        return None
    turned = bytes(kept[4:] + kept[:4]).decode("latin-1")
    return (start, end) if int("".join(str(int(c, 36)) for c in turned)) % 97 == 1 else None


_VERSION_BEFORE: Final = re.compile(
    rb"(?i)(?:\bv|ver|version|release|[a-z]/|[=<>~^]=?)[ :=\"']{0,3}\Z"
)


def _ipv4(text: bytes, match: Match) -> Span | None:
    start, end = match.span()
    parts = match.group().split(b".")
    if any(int(part) > 255 or (len(part) > 1 and part[:1] == b"0") for part in parts):
        return None
    before = text[start - 1 : start]
    if not apart(text, start, end) or before in (b".", b"-") or _goes_on(text, end):
        return None
    if _VERSION_BEFORE.search(text[max(0, start - 14) : start]) and before != b"/":
        return None
    if before == b"/" and text[start - 3 : start] != b"://":
        return None  # Chrome/12.0.1.2, and the second half of a range
    return (start, end) if _public(int(parts[0]), int(parts[1])) else None


def _goes_on(text: bytes, end: int) -> bool:
    """More of a version: ``.5``, ``-rc1``, ``+local``."""
    after = text[end : end + 2]
    return after[:1] in (b".", b"-", b"+") and after[1:].isalnum()


def _public(first: int, second: int) -> bool:
    """Somebody's address out there; those of one's own network are everybody's."""
    if first in (0, 10, 127) or first >= 224:
        return False
    private = {(192, 168), (169, 254), *((172, n) for n in range(16, 32))}
    return (first, second) not in private and not (first == 100 and 64 <= second < 128)


def _ipv6(text: bytes, match: Match) -> Span | None:
    start, end = match.span()
    if not apart(text, start, end) or text[start - 1 : start] == b":":
        return None
    try:
        IPv6Address(match.group().decode("ascii"))
    except AddressValueError:
        return None
    return start, end


def _ssn(text: bytes, match: Match) -> Span | None:
    area, grouped, serial = match.group().split(b"-")
    if area in (b"000", b"666") or area[:1] == b"9" or grouped == b"00" or serial == b"0000":
        return None
    return _numbered(text, match)


def _numbered(text: bytes, match: Match) -> Span | None:
    start, end = match.span()
    joined = text[start - 1 : start] in (b"-", b".", b"/") or text[end : end + 1] in (b"-", b"/")
    return None if joined or _joins(text, end) else (start, end)


def _cpf(text: bytes, match: Match) -> Span | None:
    digits = [c - 48 for c in match.group() if 48 <= c <= 57]
    for place in (9, 10):
        total = sum(digit * (place + 1 - i) for i, digit in enumerate(digits[:place]))
        if total * 10 % 11 % 10 != digits[place]:
            return None
    return None if len(set(digits)) == 1 else _numbered(text, match)


def _dni(text: bytes, match: Match) -> Span | None:
    code = match.group().replace(b"-", b"")
    number = int(code[:-1].translate(bytes.maketrans(b"XYZ", b"012")))
    right = code[-1] == b"TRWAGMYFPDXBNJZSQVHLCKE"[number % 23]
    return _numbered(text, match) if right else None


_ODD: Final = dict(
    zip(
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3,
         6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        strict=True,
    )
)  # fmt: skip


def _codice(text: bytes, match: Match) -> Span | None:
    code = match.group()
    even = sum(c - 48 if c < 65 else c - 65 for c in code[1:15:2])
    return (
        match.span() if (even + sum(_ODD[c] for c in code[0:15:2])) % 26 == code[15] - 65 else None
    )


def _nir(text: bytes, match: Match) -> Span | None:
    digits = match.group().replace(b" ", b"")
    right = 97 - int(digits[:13]) % 97 == int(digits[13:])
    return _numbered(text, match) if right and int(digits[3:5]) in range(1, 13) else None


def _dated(month: bytes, day: bytes) -> bool:
    return 1 <= int(month) <= 12 and 1 <= int(day) <= 31


def _personnummer(text: bytes, match: Match) -> Span | None:
    digits = re.sub(rb"[-+]", b"", match.group())[-10:]
    right = _dated(digits[2:4], digits[4:6]) and _luhn(digits)
    return _numbered(text, match) if right else None


def _hetu(text: bytes, match: Match) -> Span | None:
    code = match.group()
    right = b"0123456789ABCDEFHJKLMNPRSTUVWXY"[int(code[:6] + code[7:10]) % 31] == code[10]
    return _numbered(text, match) if right and _dated(code[2:4], code[:2]) else None


_RESIDENT_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def _resident(text: bytes, match: Match) -> Span | None:
    code = match.group()
    total = sum(w * (c - 48) for w, c in zip(_RESIDENT_WEIGHTS, code[:17], strict=True))
    right = b"10X98765432"[total % 11] == code[17] and _dated(code[10:12], code[12:14])
    return _numbered(text, match) if right else None


_DOMAIN: Final = (
    r"(?:@|%40)[A-Za-z0-9\x80-\xff-]{1,63}(?:\.[A-Za-z0-9\x80-\xff-]{1,63}){0,8}"
    r"\.(?:[A-Za-z]{2,24}|xn--[a-z0-9-]{2,59})"
)
_AMERICAN: Final = r"(?:\([2-9][0-9]{2}\) ?|\b[2-9][0-9]{2}[ -])[2-9][0-9]{2}-[0-9]{4}\b"
_CODICE: Final = r"\b[A-Z]{6}[0-9]{2}[A-EHLMPRST][0-9]{2}[A-Z][0-9]{3}[A-Z]\b"
_NIR: Final = r"\b[12] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}\b"

_LOCAL_PHONE: Final = (
    r"\b0[1-9][0-9]{0,3}(?:[ -][0-9]{2,4}){2,4}\b|\b0[1-9][0-9]{2,4}[ -][0-9]{5,8}\b"
    r"|\b0[1-9](?:\.[0-9]{2}){4}\b|\(0?[0-9]{2,4}\)[ ]?[0-9]{3,5}[ -][0-9]{3,4}\b"
)
_ACCENT: Final = r"(?-i:[\x80-\xff])"  # any such letter; that it has no case saves ten milliseconds
_PHONE_WORD: Final = (
    rf"tel(?:e(?:ph?one?|f(?:o|{_ACCENT})o?n[oe]?))?|t{_ACCENT}l(?:{_ACCENT}phone)?|phone|ph|fone"
    rf"|mob(?:ile?)?|m(?:o|{_ACCENT})vil|cell?(?:phone|ulare?)?|celular|handy|fax|portable|gsm|tlf"
    r"|natel|whatsapp|sms|call(?:[ ](?:me|us|him|her|them))?(?:[ ](?:at|on))?|dial|contact"
)
_ANNOUNCED: Final = (
    rf"""(?i)\b(?:{_PHONE_WORD})(?:[ _-]?(?:numbers?|num|no|nr))?["']?[.]?[ \t]{{0,2}}[:=#]?"""
    r"""[ \t]{0,3}["']?(\(?[0-9][0-9 ()./-]{5,20}[0-9])"""
)

PERSONAL: Final[tuple[Rule, ...]] = tuple(
    Rule(kind, pattern, needs, check, secret=False, step=step)
    for kind, pattern, needs, check, step in (
        ("email", _DOMAIN, (b"@", b"%40"), _email, 1),
        ("phone", r"\+[1-9](?:[ ().-]{0,2}[0-9]){7,14}", (b"+",), _international, 0),
        ("phone", _AMERICAN, (b"-",), _american, 4),
        ("phone", r"\b[2-9][0-9]{2}\.[2-9][0-9]{2}\.[0-9]{4}\b", (b".",), _american, 4),
        ("phone", _LOCAL_PHONE, (), _local, 2),
        ("phone", _ANNOUNCED, (), _announced, 3),
        ("phone", r"[\x80-\xff]{2,}[.:]?[ ]?([0-9][0-9 ()-]{6,18}[0-9])", (b" ",), _foreign, 0),
        ("card", r"(?:^|[^0-9A-Za-z_.])([2-6][0-9]{13,18})\b", (), _card, 0),
        ("card", r"\b([2-6][0-9]{3}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{1,7})\b", (), _card, 5),
        ("card", r"\b(3[0-9]{3}[ -][0-9]{6}[ -][0-9]{4,5})\b", (), _card, 5),
        ("iban", r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?", (), _iban, 0),
        ("ip", r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", (b".",), _ipv4, 0),
        ("ip", r"\b[23][0-9A-Fa-f]{3}(?::[0-9A-Fa-f]{0,4}){2,7}", (b":",), _ipv6, 0),
        ("national_id", r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b", (b"-",), _ssn, 0),
        ("national_id", r"\b[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}\b", (b"-",), _cpf, 0),
        ("national_id", r"\b[0-9XYZ][0-9]{7}-?[A-HJ-NP-TV-Z]\b", (), _dni, 0),
        ("national_id", _CODICE, (), _codice, 0),
        ("national_id", _NIR, (), _nir, 0),
        ("national_id", r"\b(?:19|20)?[0-9]{6}[-+][0-9]{4}\b", (b"-", b"+"), _personnummer, 0),
        ("national_id", r"\b[0-9]{6}[-+A][0-9]{3}[0-9A-Y]\b", (), _hetu, 0),
        ("national_id", r"\b[1-9][0-9]{5}(?:19|20)[0-9]{9}[0-9X]\b", (), _resident, 0),
    )
)  # fmt: skip
