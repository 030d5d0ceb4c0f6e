"""Secrets that this process has been given: found by their value, whatever they look like.

Above: ``environ.py`` tells what it handed out, ``redact`` looks for it. One set for the process,
as the environment is one for the process. What cannot be told from an ordinary word is not kept: a
password ``postgres`` would blot out every mention of the database. So, by length:

    12 and more    found wherever it stands, inside of other text, too
    8 to 11        the same if it mixes letters, digits and others; else as a word of its own
    6 and 7        as a word of its own, if it mixes them
    fewer          never

and what is a common word of such texts is never kept, however long. What JSON or an address would
write otherwise (a quote, a line break, ``ä``) is known as they write it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

KIND: Final = "known_secret"
_SURE: Final = 12
_LONG: Final = 8
LEAST: Final = 6
_MOST: Final = 10_000
_CLASSES: Final = tuple(map(re.compile, (r"[^\W\d_]", r"\d", r"[^\w\s.:/-]")))
_COMMON: Final = frozenset(
    "administrator anonymous application bullseye cassandra changeit changeme clickhouse "  # noqa: SIM905 - words
    "configuration container couchbase database developer development disabled elasticsearch "
    "environment example.com guestguest hostname integration kubernetes language localhost "
    "localhost:5432 localhost:6379 memcached minioadmin mysqladmin opensearch operator optional "
    "password password1 password123 placeholder postgres postgresql production rabbitmq required "
    "rootroot security services settings sqlserver standard superuser supersecret template "
    "testtest timescaledb toolpost undefined unchanged username validation 127.0.0.1 "
    "base32 base64 latin1 oauth2 python2 python3 sha224 sha256 sha384 sha512 sqlite3 x86_64".split()
)

values: Final[set[str]] = set()


def remember(value: str) -> bool:
    """From now on this value is a secret wherever it is seen; False if it is too simple to be."""
    value = value.strip()
    if value in values:
        return True
    kept = _telling(value) and len(values) < _MOST
    if kept:
        values.update(_spellings(value))
    return kept


def _spellings(value: str) -> set[str]:
    """As it is, in JSON, in JSON in JSON, in an address, in a form: of most values the same."""
    from json import dumps  # only who has secrets pays for it
    from urllib.parse import quote, quote_plus

    whole = value.encode("utf-8", "replace").decode()  # half of a character is in no address
    once = {dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    return {
        value,
        quote(whole, safe=""),
        quote_plus(whole),
        *once,
        *(dumps(one)[1:-1] for one in once),
    }


def holds(text: str) -> bool:
    """A quick look: False where none of them stands. A thread may remember one meanwhile."""
    return len(text) >= LEAST and any(value in text for value in tuple(values))


def spans(text: str) -> Iterator[tuple[int, int]]:
    for value in tuple(values):
        place = text.find(value)
        while place >= 0:
            end = place + len(value)
            if _anywhere(value) or _apart(text, place, end):
                yield place, end
            place = text.find(value, end)


def _telling(value: str) -> bool:
    """Whether it can be told from what is said every day."""
    if len(value) < LEAST or value.lower() in _COMMON or len(set(value)) < 3:
        return False
    return len(value) >= _LONG or _mixed(value)


def _anywhere(value: str) -> bool:
    return len(value) >= _SURE or (len(value) >= _LONG and _mixed(value))


def _mixed(value: str) -> bool:
    return sum(one.search(value) is not None for one in _CLASSES) > 1


def _apart(text: str, start: int, end: int) -> bool:
    """No letter and no digit is joined to it on either side."""
    before, after = text[start - 1 : start], text[end : end + 1]
    return not (start and before.isalnum() and text[start].isalnum()) and not (
        after.isalnum() and text[end - 1].isalnum()
    )
