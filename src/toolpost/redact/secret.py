"""What secrets look like: the keys of well-known providers, private keys, tokens, passwords in
addresses and assignments.

Above: ``scan.py``. Below: ``rule.py``. A prefix that only a provider's keys have is enough; a value
without one counts only where a name says what it is. Nothing is a secret for being random: commit
hashes, digests, UUIDs and pictures are.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from toolpost.redact.providers import NAMES, PREFIXED
from toolpost.redact.rule import (
    Check,
    Match,
    Rule,
    Span,
    entropy,
    gibberish,
    group,
    jumbled,
    mixed,
    random,
    scrambled,
    wordy,
)

_URL64: Final = "A-Za-z0-9_-"
_WORD: Final = r"\b"

_JOINED: Final = (
    "toolpost_key", "anthropic_key", "github_token", "gitlab_token", "slack_token", "gcp_key",
    "sendgrid_key", "npm_token", "pypi_token",
)  # fmt: skip
"""Kinds that no word ends like: one is found where a letter or ``_`` stands before it, too. The end
of ``disk_test_…``, of ``cache_key-…`` or of ``task-…`` is no key.
"""


_PLACEHOLDER: Final = re.compile(
    rb"(?i)example|x{5}|placeholder|your[_-]|abcdefghijkl|1234567890abcdef1|(.)\1{9}"
)


def _made_up(body: bytes, least: int = 0) -> bool:
    """What a page shows in the place of a key: ``AKIAIOSFODNN7EXAMPLE``, ``xxxxxxxx``. A key to
    which such a word was added is one: it has at least ``least`` characters of its own.
    """
    core = body[: max(least, _CORE)]
    if entropy(core) < 1.9:
        return True
    if _PLACEHOLDER.search(body[:200]) is None:
        return False
    if random(_PLACEHOLDER.sub(b"", body[:200])):
        return False
    return _PLACEHOLDER.search(core) is not None or not (random(core) or gibberish(core))


_CORE: Final = 16


def _prefixed(kind: str, prefix: str, alphabet: str, least: int) -> Rule:
    literals = [
        t.replace("\\", "") for t in re.findall(r"(?:\\.|[A-Za-z0-9_/-]){2,}", _bare(prefix))
    ]
    longest = max(literals, key=len, default="")

    words = "_" in alphabet or "." in alphabet or alphabet == "A-Za-z0-9-"
    joined = kind in _JOINED or prefix in _JOINED_IF_RANDOM

    def check(text: bytes, match: Match) -> Span | None:
        body = match.group(1)
        within = _in_a_word(text, match.start())
        if kind == "gcp_key" and within and len(body) != least and _is_picture(text, match):
            return None
        if _made_up(body, least):
            return None
        if within and prefix in _JOINED_IF_RANDOM and not (random(body) and scrambled(body)):
            return None
        if words:  # then a name may look like it: sk-spinner-dark-blue
            sure = mixed(body) and not wordy(body)
            return match.span() if sure or (kind in _JOINED and gibberish(body)) else None
        if kind in _EXACT and (len(body) != least or not scrambled(body) or _is_hex(body)):
            return None
        return match.span()

    return Rule(
        kind,
        rf"{'' if joined else _WORD}{prefix}([{alphabet}]{{{least},}})",
        needs=(longest.lower().encode(),) if longest else (),
        check=check,
    )


_JOINED_IF_RANDOM: Final = (
    r"[rs]k_(?:live|test|prod)_",
    r"(?:hf_|api_org_)",
    r"sk-(?:proj|svcacct|admin)-",
)
"""Words end like these: behind a letter only what is random is a key."""


def _is_picture(text: bytes, match: Match) -> bool:
    """Far more of the same letters around it than a key and a few others have."""
    around = text[max(0, match.start() - 16) : match.start()]
    return not around.strip(_ALPHABET) or len(match.group(1)) > 80


_EXACT: Final = (
    "clickhouse_key", "crates_token", "nuget_key", "notion_token", "octopus_key", "infracost_key",
)  # fmt: skip
"""Kinds whose first letters begin ordinary words, too: their keys have one length."""


def _is_hex(body: bytes) -> bool:
    return not body.lower().strip(b"0123456789abcdef")


def _in_a_word(text: bytes, start: int) -> bool:
    before = text[max(0, start - 1) : start]
    return before.isalnum() or before == b"_"


def _bare(prefix: str) -> str:
    """The prefix without its groups, classes and counts: what is left stands there as it is."""
    return re.sub(r"\([^)]*\)|\[[^\]]*\](?:\{[^}]*\})?|\?", " ", prefix)


def _in_base64(word: str) -> Iterator[str]:
    """How a word looks in base64, wherever in a text it stands: what is the same in all of them."""
    for skipped in range(3):
        code = b2a_base64(b"\0" * skipped + word.encode() + b"\0\0", newline=False).decode()
        first, bits = -(-skipped * 8 // 6), (skipped + len(word)) * 8
        yield code[first : bits // 6]


_ENCODED: Final = (
    "AKIA", "ASIA", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "xapp-",
    "sk-ant-", "sk-proj-", "sk_live_", "rk_live_", "AIza", "ya29.", "GOCSPX-", "npm_", "pypi-",
    "dop_v1_", "shpat_", "hvs.", "PRIVATE KEY-----", "eyJhbGci", "eyJ0eXAi", "eyJraWQi",
    "dckr_pat_", "lin_api_", "xkeysib-", "whsec_", "sntrys_", "PMAK-", "sgp_", "ops_eyJ",
)  # fmt: skip
ENCODED_PATTERN: Final = "|".join(
    dict.fromkeys(re.escape(code) for word in _ENCODED for code in _in_base64(word))
)
_LINE: Final = "A-Za-z0-9_.+/=-"
_SHORT: Final = ("SK", "[0-9", "[A-Z", "[MNO", "cio", "oy2", "(?:b", "4b1d")
"""What begins like this is told from other words by its length alone, which a line break hides."""
_WRAPPED: Final = (
    ("", r"(?:AKIA|ASIA|ABIA)", "A-Z2-7", 16),
    ("", r"eyJ[A-Za-z0-9_-]{9,}\.eyJ[A-Za-z0-9_-]{7,}\.", _URL64, 8),
    *(
        row
        for row in PREFIXED
        if row[1][:4] not in ("SK", "[0-9", "[A-Z", "[MNO", "cio", "oy2", "(?:b", "4b1d")
    ),
)
_MOST_LINES: Final = 24
_WRAPPED_PATTERN: Final = (
    rf"\b(?:eyJ|{'|'.join(row[1] for row in _WRAPPED if row[1][:3] != 'eyJ')})"
    rf"[{_LINE}]{{0,200}}(?:\r?\n[ \t]{{0,16}}[{_LINE}]+){{1,{_MOST_LINES}}}"
)
_WIDTHS: Final = (60, 64, 70, 72, 75, 76, 78, 79, 80)
_A_WORD: Final = re.compile(rb"[A-Za-z]?[a-z]*[.]?|[A-Z]*[.]?|[0-9.]+")


@cache
def _token() -> re.Pattern[bytes]:
    return re.compile(
        "|".join(
            rf"{prefix}([{alphabet}]{{{least},}})" for _, prefix, alphabet, least in _WRAPPED
        ).encode()
    )


def _wrapped(text: bytes, match: Match) -> Span | None:
    """A token that goes on in the next lines: up to the line that makes it one, and on as long as
    what follows is a part of it.
    """
    lines = match.group().splitlines(keepends=True)
    begin = text.rfind(b"\n", max(0, match.start() - 200), match.start()) + 1
    width = match.start() - begin + len(lines[0].rstrip())
    whole = b"".join(line.strip() for line in lines)
    if (found := _token().match(whole)) is None:
        return None
    body = found.group(found.lastindex or 0)
    if not (mixed(body) and not wordy(body)):
        return None
    joined, end, last, full, complete = b"", match.start(), match.start(), False, False
    for number, line in enumerate(lines):
        part = line.strip()
        after = end + len(line.rstrip())
        complete = complete or (number > 0 and _token().match(joined) is not None)
        if complete and not _goes_on(part, width, full, text[after : after + 1]):
            break
        joined, last, end = joined + part, after, end + len(line)
        full = number > 0 and len(line.rstrip()) >= width
    if last == match.start() + len(lines[0].rstrip()):
        return None  # it is all in one line: that is for the other rules
    return match.start(), last


def _goes_on(part: bytes, width: int, full: bool, follows: bytes) -> bool:
    """Whether a line is a part of the token that the lines before it end with."""
    if _token().match(part) is not None or follows not in (b"", b"\r", b"\n"):
        return False
    if random(part) or scrambled(part) or gibberish(part):
        return True
    return (full or width in _WIDTHS) and (full or _A_WORD.fullmatch(part) is None)


def _private_key(text: bytes, match: Match) -> Span | None:
    """A header alone, in a sentence about keys, is none."""
    return match.span() if _BASE64_LINE.search(match.group()) else None


_BASE64_LINE: Final = re.compile(rb"[A-Za-z0-9+/=]{32}")


def _jwt(text: bytes, match: Match) -> Span | None:
    """Signed: header, claims, signature. Sealed: five parts, the last four of them opaque."""
    parts = match.group().rstrip(b".").split(b".", 5)
    if len(parts) < 2 or len(parts[0]) < 12:
        return None
    if parts[1].startswith(b"eyJ") and len(parts[1]) >= 10:
        return match.start(), match.start() + len(b".".join(parts[:3]))
    return match.span() if len(parts) == 5 else None


def _bearer(text: bytes, match: Match) -> Span | None:
    return match.span(1) if random(match.group(1)) else None


def _basic(text: bytes, match: Match) -> Span | None:
    value = match.group(1).rstrip(b"=")
    try:
        plain = a2b_base64(value + b"=" * (-len(value) % 4))
    except Error:
        return None
    _, colon, password = plain.partition(b":")
    return match.span(1) if colon and password and plain.isascii() else None


def _url_password(text: bytes, match: Match) -> Span | None:
    """What is still to be filled in is none: ``${PASSWORD}``, ``<password>``, ``***``."""
    return None if _blank(match.group(1)) else match.span(1)


_STANDS_FOR_IT: Final = re.compile(
    rb"(?i)(?:my|your|the|some|new)?[_-]?(?:password|passwd|pass|pwd|pw|secret|(?:api|access|auth)?"
    rb"[_-]?(?:token|key)|user(?:name)?)(?:[_-]?here)?"
)


def _blank(value: bytes) -> bool:
    if value[:1] in b"$%{<*[" or set(value) <= set(b"*xX."):
        return True
    return _STANDS_FOR_IT.fullmatch(value) is not None


_CURL: Final = re.compile(rb"(?i)\bcurl(?:\.exe)?(?:[ \t]|\Z)")
_MYSQL: Final = re.compile(rb"(?i)\b(?:mysql|mariadb)-?[a-z]{0,20}(?:\.exe)?(?:[ \t]|\Z)")
_LOGIN: Final = re.compile(
    rb"\b(?:docker|podman|nerdctl|buildah|skopeo|helm[ \t]+registry)[ \t]+login\b"
)
_REDIS: Final = re.compile(rb"\bredis-cli\b")
_ANY: Final = re.compile(rb"")
_ELSEWHERE: Final = re.compile(rb"\b(?:docker|podman|nerdctl)[ \t]+(?:run|create)\b")  # its -u, -p
_COMMANDS: Final = re.compile(rb"(?<!\\)[\n;|]|&&")
_SO_FAR: Final = 400


def _on_the_command_line(program: re.Pattern[bytes]) -> Check:
    """A flag that means this with one program; its name stands before it in the command, which may
    go on over lines that end with a backslash.
    """

    def check(text: bytes, match: Match) -> Span | None:
        so_far = text[max(0, match.start() - _SO_FAR) : match.start()].replace(b"\r\n", b"\n")
        before = _COMMANDS.split(so_far)[-1]
        if program.search(before) is None or _ELSEWHERE.search(before):
            return None
        which = match.lastindex or 0
        start, end = match.span(which)
        user, colon, password = match.group(which).partition(b":")
        if not colon:
            return None if _blank(user) else (start, end)
        if password:
            same = password == user or _blank(password)
            return None if same else (end - len(password), end)
        return (start, start + len(user)) if mixed(user) and not wordy(user) else None

    return check


_COOKIE: Final = re.compile(rb"([^\s=;,]+)=([^\s;,]+)")
_SIGNS_IN: Final = re.compile(rb"(?i)sess|sid|auth|token|jwt|login|remember|csrf|xsrf|secret|key")


def _cookie(text: bytes, match: Match) -> Span | None:
    """From the first pair that lets somebody in to the last; of ``Set-Cookie``, the first alone."""
    start, end = match.span(1)
    setting = text[max(0, match.start() - 4) : match.start()].lower() in (b"set-", b"set_")
    kept = [
        pair.span(2)
        for number, pair in enumerate(_COOKIE.finditer(text, start, end))
        if not (setting and number) and _lets_in(pair.group(1), pair.group(2))
    ]
    return (kept[0][0], kept[-1][1]) if kept else None


def _curl_cookie(text: bytes, match: Match) -> Span | None:
    before = _COMMANDS.split(text[max(0, match.start() - _SO_FAR) : match.start()])[-1]
    return _cookie(text, match) if _CURL.search(before + b" ") else None


def _lets_in(name: bytes, value: bytes) -> bool:
    if _blank(value):
        return False
    return random(value) or (len(value) >= 8 and mixed(value) and bool(_SIGNS_IN.search(name)))


_ENDS_A_PAGE: Final = re.compile(
    rb"(?:page|next|prev|sync|continuation|cursor|max|csrf|public[_-]?key)[_-]?$"
)
_CODE_FOLLOWS: Final = b"([{.)"
_NOT_A_VALUE: Final = b"/.%{<*#~"
_SPECIAL: Final = frozenset(b"!@#$%^&*?~+")


def _assigned(text: bytes, match: Match) -> Span | None:
    """``name = value`` where the name says secret and the value looks like one."""
    name, around, value = match.group(1).lower(), match.group(2), match.group(3)
    start = match.start(3)
    value = value.rstrip(b".:")
    before = text[max(0, match.start() - 14) : match.start()].lower()
    if b"://" in value or value[:1] in _NOT_A_VALUE or _ENDS_A_PAGE.search(before):
        return None
    if value[:1] == b"$" and not value[1:2].isdigit():  # $PASSWORD; but $2b$… is a hash
        return None
    quoted = any(quote in around for quote in (b'"', b"'", b"`", b"&"))
    follows = text[start + len(value) : start + len(value) + 1]
    if not quoted and follows and follows in _CODE_FOLLOWS:
        return None
    likely = _password if name.startswith((b"pass", b"pwd")) else _key
    return (start, start + len(value)) if likely(value, quoted, around) else None


def _key(value: bytes, quoted: bool, around: bytes) -> bool:
    return random(value) or _letters(value)


def _letters(value: bytes) -> bool:
    """A row of letters, and digits at its end perhaps, that are no words."""
    return len(value) >= 20 and value.isalnum() and not _is_hex(value) and gibberish(value)


def _named(text: bytes, match: Match) -> Span | None:
    """A value that a name beside it calls a secret, and that a machine made up."""
    which = match.lastindex or 0
    value = match.group(which)
    if _blank(value) or b"://" in value or value[:1] in _NOT_A_VALUE or _made_up(value):
        return None
    return match.span(which) if _password(value, False, b"") else None


def _password(value: bytes, quoted: bool, around: bytes) -> bool:
    """People choose it: shorter, and words in it; in code an unquoted word is a variable."""
    if random(value) or _letters(value) or jumbled(value):
        return True
    classes = (
        value != value.upper(),
        value != value.lower(),
        any(48 <= c <= 57 for c in value),
        any(c in _SPECIAL for c in value),
    )
    if len(value) < 8 or entropy(value) < 2.5 or b"/" in value or b"_" in value or b"." in value:
        return False
    if classes[3]:
        return sum(classes) >= 3
    return classes[2] and (quoted or (sum(classes) >= 3 and b" " not in around))


_SAYS_NO: Final = re.compile(
    rb"(?:[^s]|[^s]s)?(?:url|uri|host|version|hash|sha|sha1|sha256|commit|digest|name|region|bucket"
    rb"|project|user|username|email|path|file|integrity|checksum|rev|ref|image|cluster|zone|org"
    rb"|(?<!client)(?<!access)(?<!key)(?<!api)[_.-]?id|ids)\Z"
)
_UUID: Final = re.compile(rb"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _of_a_provider(text: bytes, match: Match) -> Span | None:
    """A random value under a provider's name. A UUID is only a key where the name says so."""
    name, value = match.group(1).lower(), match.group(2).rstrip(b".")
    if _SAYS_NO.search(name) or b"://" in value or _made_up(value) or not scrambled(value):
        return None
    if _UUID.fullmatch(value) and not _SAYS_KEY.search(name):
        return None
    follows = text[match.start(2) + len(value) : match.start(2) + len(value) + 1]
    if follows and follows in _CODE_FOLLOWS:
        return None
    return match.start(2), match.start(2) + len(value)


_SAYS_KEY: Final = re.compile(rb"key|token|secret|access|api|auth|pass|oauth")


def _listed(text: bytes, match: Match) -> Span | None:
    which = match.lastindex or 0
    value = match.group(which)
    likely = value[:1] not in _NOT_A_VALUE and b"://" not in value and not _made_up(value)
    return match.span(which) if likely and random(value) and scrambled(value) else None


def _aws(text: bytes, match: Match) -> Span | None:
    """Inside a longer word only with a digit in it: letters alone may be a part of anything."""
    body, follows = match.group(1), text[match.end() : match.end() + 1]
    if (follows.isalnum() or follows == b"_") and not mixed(body):
        return None
    return None if _made_up(body) else match.span()


def _in_a_header(text: bytes, match: Match) -> Span | None:
    """What curl sends in a header for keys is one, though it may be short or have words in it."""
    start, value = match.start(1), match.group(1)
    if _blank(value) or _made_up(value) or entropy(value) < 2.7:
        return None
    return (start, match.end(1)) if mixed(value) or not wordy(value) else None


def _old_vault(text: bytes, match: Match) -> Span | None:
    return match.span() if random(match.group(1)) and scrambled(match.group(1)) else None


_DOCUMENT: Final = 4096
_DATA: Final = re.compile(
    rb"(?m)^[ \t]*data:[ \t]*\r?\n((?:(?:[ \t]+\S.*|[ \t]*#.*)(?:\r?\n|\Z))+)"
    rb"|\"data\":\s*\{([^{}]*)\}"
)
_STRING_DATA: Final = re.compile(
    rb"(?m)^[ \t]*stringData:[ \t]*\r?\n((?:(?:[ \t]+\S.*|[ \t]*#.*)(?:\r?\n|\Z))+)"
)
_STRING: Final = re.compile(rb"(?m)^[ \t]+[^\s:#]+:[ \t]+[\"']?([^\s\"'|>][^\s\"']{5,})")
_DATUM: Final = re.compile(rb":[ \t]*[\"']?([A-Za-z0-9+/]{6,}={0,2})[\"']?[ \t]*(?:\r?\n|\Z|,|#)")


def _kubernetes(text: bytes, pattern: Any) -> Iterator[Span]:
    """The data of manifests of this kind, before or after it in the same document.

    A match that is near another one of the same document is looked at with that one.
    """
    place = done = 0
    while (match := pattern.search(text, place)) is not None:
        before = max(done, match.start() - _DOCUMENT)
        begin = max(before, text.rfind(b"\n---", before, match.start()))
        end = text.find(b"\n---", match.end(), match.end() + 2 * _DOCUMENT)
        place = match.end() + _DOCUMENT if end < 0 else end
        done = match.end() + 2 * _DOCUMENT if end < 0 else end
        for data in _DATA.finditer(text, begin, done):
            if found := [*_DATUM.finditer(text, *data.span(data.lastindex or 0))]:
                yield found[0].start(1), found[-1].end(1)
        for data in _STRING_DATA.finditer(text, begin, done):
            for value in _STRING.finditer(text, *data.span(1)):
                if not _blank(value.group(1)):
                    yield value.span(1)


_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_CODE: Final = re.compile(rb"[A-Za-z0-9+/_-]*")
_SHORTEST_CODE: Final = 20
_LONG_CODE: Final = re.compile(rb"[A-Za-z0-9+/_-]{%d}" % _SHORTEST_CODE)
_BEFORE_IT, _BEHIND_IT = 64, 640
"""So much of the code belongs to a key that begins in it, and no more: a key is not longer."""
_WINDOW: Final = 4096


def _encoded(text: bytes, pattern: Any) -> Iterator[Span]:
    """Base64 in which a key begins: decoded from there on, and looked at again.

    It is decoded a window at a time. The windows of one code overlap by what a key may take, so
    that all of them together are little longer than the text, however often a key seems to begin in
    it; and all of them together are looked at once.
    """
    codes: list[Span] = []
    begins: list[int] = []
    plain = bytearray()
    for code, window in _windows(text, pattern):
        codes.append(code)
        begins.append(len(plain))
        plain += decoded(text[slice(*window)]) + b"\n"
    found = {codes[bisect_right(begins, place) - 1] for place in _keys_in(bytes(plain))}
    for start, end in sorted(found):
        padded = text[end : end + 2]
        yield start, end + len(padded) - len(padded.lstrip(b"="))


def _windows(text: bytes, pattern: Any) -> Iterator[tuple[Span, Span]]:
    """The code around each place where a key seems to begin, and which part of it to decode."""
    place = start = end = 0
    while (match := pattern.search(text, place)) is not None:
        if match.start() >= end:  # another code than that of the last match
            gap = text[end : match.start()]
            start = match.start() - len(gap) + len(gap.rstrip(_ALPHABET))
            whole = _CODE.match(text, match.end())
            end = whole.end() if whole else match.end()
        if end - start < _SHORTEST_CODE:
            if (longer := _LONG_CODE.search(text, end)) is None:
                return
            place = end = longer.start()
            continue
        first = start + max(0, match.start() - start - _BEFORE_IT) // 4 * 4
        last = min(end, match.start() + _WINDOW)
        yield (start, end), (first, last)
        place = end if last == end else last - _BEHIND_IT


def decoded(code: bytes) -> bytes:
    """What base64 of either alphabet stands for; a rest that is too short for anything is left."""
    code = code.translate(_PLAIN_64)
    return a2b_base64(code[: len(code) // 4 * 4] + _REST[len(code) % 4](code))


def _keys_in(plain: bytes) -> Iterator[int]:
    small = plain.lower()
    for rule, pattern in _plain_rules():
        if not rule.needs or any(need in small for need in rule.needs):
            for found in pattern.finditer(plain):
                if rule.check is None or rule.check(plain, found) is not None:
                    yield found.start()


_PLAIN_64: Final = bytes.maketrans(b"-_", b"+/")
_REST: Final = (
    lambda _: b"",
    lambda _: b"",
    lambda code: code[-2:] + b"==",
    lambda code: code[-3:] + b"=",
)


@cache
def _plain_rules() -> tuple[tuple[Rule, re.Pattern[bytes]], ...]:
    """What is looked for in a text that was encoded: keys that are known by their beginning."""
    kinds = {"private_key", "aws_access_key", "jwt", *(row[0] for row in PREFIXED)}
    return tuple((one, re.compile(one.pattern.encode())) for one in SECRETS if one.kind in kinds)


def _long(text: bytes, match: Match) -> Span | None:
    return match.span(1) if len(match.group(1)) >= 20 else None


_SLASH: Final = r"\\{0,7}/"
_NAMED: Final = (
    r"password|passwd|passphrase|passwort|pwd|secret|token|credentials?|creds?|authorization"
    r"|(?:api|access|secret|private|signing|encryption|auth|account|application|master|service)"
    r"[_. -]?key"
)
_QUOTE: Final = r"""[\\"'`]|&(?:quot|apos|#(?:34|39|x22|x27));"""
"""As it stands, escaped once or often, in a page."""
_ASSIGNMENT: Final = (
    rf"(?i)({_NAMED})(?:[_-](?:v?[0-9]{{1,2}}|prod|dev|live|test|value|base64|hex))?"
    rf"""((?:{_QUOTE}|\]){{0,16}}[ \t+]{{0,8}}(?:\?=|::=|:=|=>|=|:)[ \t+]{{0,8}}"""
    rf"""(?:{_QUOTE}){{0,16}})"""
    r"""((?:[^\s"'`,;&<>(){}\[\]|\\]|\\{1,7}/){8,})"""
)
_FLAG: Final = (
    r"(?i)--(?:[a-z0-9]{1,20}-){0,3}(password|passwd|passphrase|pass|secret|token|(?:api|access|secret|private|auth)-?key)"
    r"""([ \t]{1,4}["']?)([^\s"'`,;&<>(){}\[\]|\\]{8,})"""
)
_PASS: Final = (
    rf"""(?i)(?:^|[^A-Za-z0-9])(pass)((?:{_QUOTE}|\]){{0,16}}[ \t]{{0,8}}(?:=>|=|:)[ \t]{{0,8}}"""
    rf"""(?:{_QUOTE}){{0,16}})([^\s"'`,;&<>(){{}}\[\]|\\]{{8,}})"""
)
_STATED: Final = (
    rf"(?i)\b(?:env[ \t]{{1,4}}[A-Za-z0-9_]{{0,40}}(?:{_NAMED}|pass)[A-Za-z0-9_]{{0,10}}"
    r"""|aws_secret_access_key)[ \t]{1,4}["']?([^\s"'`=]{8,})"""
)
_NAME_AND_VALUE: Final = (
    r"""(?i)\bname["']?:[ \t]{0,4}["']?[A-Za-z0-9_.-]{0,60}"""
    rf"""(?:{_NAMED}|pass)[A-Za-z0-9_]{{0,10}}"""
    r"""["']?,?[ \t]{0,4}\r?\n[ \t]{0,40}["']?value["']?:[ \t]{0,4}["']?([^\s"']{8,})"""
)
_PGPASS: Final = (
    r"(?:^|\n)[A-Za-z0-9.*_-]{1,100}:(?:[0-9]{4,5}|\*):[A-Za-z0-9.*_-]{1,64}:[A-Za-z0-9.*_-]{1,64}:"
    r"([^\s:]{6,})"
)
_QUOTED: Final = r"""\"([^"\n]+)"|'([^'\n]+)'|([^\s"'`;|&-][^\s"'`;|&]*)"""
_USER_AND: Final = (
    r"""\"([^":\n]{0,200}:[^"\n]{0,200})"|'([^':\n]{0,200}:[^'\n]{0,200})'"""
    r"""|([^\s"'`:]{0,200}:[^\s"'`;|&]{0,200})"""
)
_BETWEEN: Final = r"(?:[ \t=]|\\\r?\n){0,12}"
"""A flag and its value: a line may end there."""
_SCHEME: Final = (
    r"""(?i)\bauthorization\\{0,15}["']?[ \t]{0,4}[:=,][ \t]{0,4}\\{0,15}["']?[A-Za-z0-9-]{2,20}"""
    r"""[ \t]{1,4}(?:token=|key=|apikey=)?["']?([A-Za-z0-9._~+/=-]{16,})"""
)
_HEADER: Final = (
    r"""(?i)[ \t\n](?:-h|--header)[ \t=]{0,5}["']?(?:authorization:[ \t]{0,5}"""
    r"""(?:(?:basic|bearer|(?:api-?)?(?:token|key)|ssws)[ \t]{1,5})?"""
    r"""|(?:x-[a-z-]{0,30}|[a-z]{1,20}-)?(?:api-?)?(?:key|token):[ \t]{0,5})"""
    r"""([A-Za-z0-9_=~@.+/-]{8,})"""
)
_PROVIDER: Final = (
    rf"(?i)(?:_|\b)(?:{NAMES})([A-Za-z0-9_.-]{{0,40}})"
    r"""(?:[\\"'`\])]){0,8}[ \t]{0,8}(?:\?=|::=|:=|=>|==|\|\|:?|=|:|>|,)[ \t]{0,8}[\\"'`]{0,8}"""
    r"""([A-Za-z0-9_=.+/%~-]{10,})"""
)
_LISTED: Final = (
    rf"""(?i)(?:{_NAMED})["'][ \t]{{0,4}},[ \t]{{0,4}}["']([^\s"'`]{{16,}})["']"""
    rf"""|(?:{_NAMED})\(["']([^\s"'`]{{16,}})["']\)"""
)
_ELEMENT: Final = rf"""(?i)<[A-Za-z0-9_:.-]{{0,40}}(?:{_NAMED})>[ \t\r\n]{{0,4}}([^<\s]{{8,}})</"""
_TEAMS: Final = (
    rf"webhook(?:\.office\.com{_SLASH}webhookb2|){_SLASH}[0-9a-f-]{{36}}@[0-9a-f-]{{36}}{_SLASH}"
    rf"IncomingWebhook{_SLASH}((?:[0-9a-zA-Z_-]|{_SLASH}){{32,}})"
)

_COOKIES: Final = (
    r"""(?i)\bcookie\\{0,15}["']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,15}["']?"""
    r"""([^\s=;,:"']+=[^\s;,"']+(?:;[ \t]?[^\s=;,:"']+=?[^\s;,"']*)*)"""
)
_NAME_NEEDS: Final = (
    b"passw", b"passphrase", b"pwd", b"secret", b"token", b"credential", b"authorization", b"key",
)  # fmt: skip

_FIRST: Final[Check] = group(1)

SECRETS: Final[tuple[Rule, ...]] = (
    Rule(
        "private_key",
        r"-----BEGIN[ +][A-Z0-9 +]{0,40}PRIVATE[ +]KEY(?:[ +]BLOCK)?-----[^-]*(?:-[^-]+){0,20}"
        r"(?:-----END[ +][A-Z0-9 +]{0,40}PRIVATE[ +]KEY(?:[ +]BLOCK)?-----)?",
        needs=(b"private key", b"private+key"),  # as a form is sent
        check=_private_key,
    ),
    Rule("aws_access_key", r"(?:AKIA|ASIA|ABIA|ACCA)([A-Z2-7]{16})",
         needs=(b"akia", b"asia", b"abia", b"acca"), check=_aws),
    Rule("sidekiq_key", r"(?i)\bbundle_[a-z_]{1,40}__contribsys__com[\"' =:]{1,5}"
         r"([0-9a-f]{8}:[0-9a-f]{8})", needs=(b"contribsys",), check=_FIRST),
    *(_prefixed(*row) for row in PREFIXED),
    Rule("slack_webhook", rf"hooks\.slack\.com{_SLASH}(?:services|workflows|triggers){_SLASH}"
         rf"((?:[A-Za-z0-9+_-]|{_SLASH})+)", needs=(b"hooks.slack.com",), check=_long),
    Rule("discord_webhook", rf"discord(?:app)?\.com{_SLASH}api{_SLASH}webhooks{_SLASH}[0-9]{{5,25}}"
         rf"{_SLASH}([A-Za-z0-9_-]+)", needs=(b"webhooks",), check=_long),
    Rule("teams_webhook", _TEAMS, needs=(b"incomingwebhook",), check=_FIRST),
    Rule("zapier_webhook", rf"hooks\.zapier\.com{_SLASH}hooks{_SLASH}catch{_SLASH}"
         rf"([0-9]{{4,12}}{_SLASH}[A-Za-z0-9]{{5,20}})",
         needs=(b"hooks.zapier.com",), check=_FIRST),
    Rule("azure_secret", r"(?:^|[^A-Za-z0-9_~.])([A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,})",
         needs=(b"q~",), check=_FIRST),
    Rule("mailchimp_key", r"\b[0-9a-f]{32}-us[0-9]{1,2}\b", needs=(b"-us",)),
    Rule("maxmind_key", r"\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b", needs=(b"_mmk",)),
    Rule("vault_token", r"\bs\.([A-Za-z0-9]{24})\b", needs=(b"s.",), check=_old_vault),
    Rule("twitter_token", r"A{22}%2[Ff][A-Za-z0-9%]{60,}", needs=(b"aaaaaaaaaaaaaaaaaaaaaa%2f",)),
    Rule("azure_key", r"(?i)(?:account|sharedaccess)key=([A-Za-z0-9+/]{40,}={0,2})",
         needs=(b"key=",), check=_FIRST),
    Rule("url_signature", r"(?i)[?&;](?:sig|signature|x-(?:amz|goog)-(?:signature|security-token))="
         r"([A-Za-z0-9%+/_=.~-]{16,})", needs=(b"sig", b"-security-token"), check=_bearer),
    Rule("azure_signature", r"\b(?:sig|Signature)=([A-Za-z0-9%+/]{40,}={0,2})",
         needs=(b"sig",), check=_bearer),
    Rule("jwt", r"eyJ[A-Za-z0-9_.-]*", (b"eyj",), _jwt),
    Rule("bearer_token", r"(?i)\b(?:bearer|token)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,})",
         needs=(b"bearer", b"token"), check=_bearer),
    Rule("basic_credentials", r"(?i)\bbasic[ \t]{1,4}([A-Za-z0-9+/_-]{6,}={0,2})",
         needs=(b"basic",), check=_basic),
    Rule("url_password", r"""(?i):(?:\\?/){2}[^\s/@:'"<>?#]{0,200}:([^\s/'"<>?#]{1,200})@""",
         needs=(b"://", b":\\/\\/"), check=_url_password),
    Rule("url_password", r"""(?i)%3a%2f%2f[^\s/@:'"<>?#&%]{0,100}%3a([^\s/@'"<>?#&]{1,200}?)%40""",
         needs=(b"%3a%2f%2f",), check=_url_password),
    Rule("password", r"""(?i);[ ]{0,2}(?:password|pwd)=([^;'"\s]{1,200})""",
         needs=(b"password=", b"pwd="), check=_url_password),
    Rule("password", r"""(?i)[?&](?:password|passwd|pwd)=([^&;#'"<>\s]{1,200})""",
         needs=(b"password=", b"passwd=", b"pwd="), check=_url_password),
    Rule("password", r""":([^:'"\s]{1,200})@(?:tcp|unix)\(""",
         needs=(b"@tcp(", b"@unix("), check=_url_password),
    Rule("password", r"(?i)\b(?:host|user|dbname|port|server|uid)=[^\s;]{1,100}[ ;]password="
         r"""([^\s;'"]{1,200})""", needs=(b"password=",), check=_url_password),
    Rule("password", rf"[ \t\n](?:-[A-Za-z]{{0,8}}[uU]|--(?:proxy-)?user){_BETWEEN}"
         rf"(?:{_USER_AND})", needs=(b"-",), check=_on_the_command_line(_CURL)),
    Rule("password", rf"[ \t]-p(?:{_QUOTED})", needs=(b"-p",), check=_on_the_command_line(_MYSQL)),
    Rule("password", rf"\bsshpass[ \t]{{1,4}}-p[ \t]{{0,4}}(?:{_QUOTED})",
         needs=(b"sshpass",), check=_on_the_command_line(_ANY)),
    Rule("password", rf"[ \t](?:-p|--password)[ \t=]{{0,4}}(?:{_QUOTED})", needs=(b"-p",),
         check=_on_the_command_line(_LOGIN)),
    Rule("password", rf"[ \t](?:-a|--pass)[ \t=]{{1,4}}(?:{_QUOTED})", needs=(b"-a", b"--pass"),
         check=_on_the_command_line(_REDIS)),
    Rule("password", _PGPASS, check=_named),
    Rule("cookie", rf"[ \t\n](?:-b|--cookie){_BETWEEN}"
         r"""["']?([^\s=;,:"']{1,100}=[^\n"']{1,400})""",
         needs=(b"-b", b"--cookie"), check=_curl_cookie),
    Rule("sentry_dsn", r"://([0-9a-f]{32})(?::[0-9a-f]{32})?@[A-Za-z0-9.-]{1,100}"
         r"(?::[0-9]{1,5})?/[0-9]",
         needs=(b"://",), check=_FIRST),
    Rule("cookie", _COOKIES, (b"cookie",), _cookie),
    Rule("authorization", _SCHEME, (b"authorization",), _bearer),
    Rule("basic_credentials", r"""(?i)[\s"':,{]_?auth["']?[ \t]{0,4}[:=][ \t]{0,4}["']?"""
         r"([A-Za-z0-9+/]{8,}={0,2})", needs=(b"auth",), check=_basic),
    Rule("password", r"""(?i)\blogin[ \t\r\n]{1,8}[^\s"']{1,100}[ \t\r\n]{1,8}password"""
         r"""[ \t\r\n]{1,8}([^\s"']{1,200})""",
         needs=(b"login",), check=_url_password),
    Rule("password", r"""(?i)\bkey="(?:cleartext)?password"[ \t\r\n]{1,8}"""
         r"""value="([^"\n]{1,200})\"""", needs=(b"password",), check=_url_password),
    Rule("kubernetes_secret", r"(?i)\bkind[\"']?:[ \t]{0,4}[\"']?secret\b",
         needs=(b"secret",), search=_kubernetes),
    Rule("private_key", r"PuTTY-User-Key-File-[0-9][\s\S]{0,600}"
         r"Private-Lines:[ ][0-9]{1,4}\r?\n([A-Za-z0-9+/=\r\n]+)", needs=(b"putty-user-key",),
         check=_FIRST),
    Rule("authorization", _HEADER, needs=(b"-h", b"-header"), check=_in_a_header),
    Rule("secret", _PROVIDER, check=_of_a_provider),
    Rule("secret", _LISTED, _NAME_NEEDS, _listed),
    Rule("secret", _ELEMENT, _NAME_NEEDS, _named),
    Rule("secret", _PASS, (b"pass",), _assigned),
    Rule("secret", _STATED, (*_NAME_NEEDS, b"pass", b"cred"), _named),
    Rule("secret", _NAME_AND_VALUE, (b"value",), _named),
    Rule("secret", ENCODED_PATTERN, search=_encoded),
    Rule("secret", _WRAPPED_PATTERN, check=_wrapped),
    Rule("secret", _ASSIGNMENT, _NAME_NEEDS, _assigned),
    Rule("secret", _FLAG, (b"--",), _assigned),
)  # fmt: skip
