"""What secrets look like: the keys of well-known providers, private keys, tokens, passwords in
addresses and assignments.

Above: ``scan.py``. Below: ``rule.py``. A prefix that only a provider's keys have is enough; a value
without one counts only where a name says what it is. Nothing is a secret for being random: commit
hashes, digests, UUIDs and pictures are.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from functools import cache
from typing import Final

from toolpost.redact.rule import Check, Match, Rule, Span, entropy, group, mixed, random, wordy

_ALNUM: Final = "A-Za-z0-9"
_URL64: Final = "A-Za-z0-9_-"
_HEX: Final = "0-9a-fA-F"
_WORD: Final = r"\b"

# (kind, what it begins with, of what it goes on, at least how long)
_PREFIXED: Final = (
    ("toolpost_key", r"tpk_[0-9a-f]{12}_", "0-9a-f", 64),
    ("anthropic_key", r"sk-ant-", _URL64, 24),
    ("openai_key", r"sk-", _URL64, 20),
    ("github_token", r"gh[opsur]_", _ALNUM, 36),
    ("github_token", r"github_pat_", "A-Za-z0-9_", 22),
    (
        "gitlab_token",
        r"gl(?:pat|dt|rt|rtr|ptt|cbt|soat|ft|imt|agent|oas|ffct)-",
        "A-Za-z0-9_.-",
        20,
    ),
    ("slack_token", r"xox[abceoprs](?:\.xox[abp])?-", "A-Za-z0-9-", 10),
    ("slack_token", r"xapp-[0-9]-", "A-Za-z0-9-", 10),
    ("stripe_key", r"[rs]k_(?:live|test)_", _ALNUM, 10),
    ("stripe_key", r"whsec_", "A-Za-z0-9+/=", 24),
    ("gcp_key", r"AIza", _URL64, 35),
    ("gcp_token", r"ya29\.", "A-Za-z0-9_.-", 20),
    ("gcp_secret", r"GOCSPX-", _URL64, 24),
    ("huggingface_token", r"(?:hf_|api_org_)", _ALNUM, 30),
    ("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.", _URL64, 30),
    ("twilio_key", r"SK", "0-9a-f", 32),
    ("npm_token", r"npm_", _ALNUM, 36),
    ("pypi_token", r"pypi-", _URL64, 50),
    ("digitalocean_token", r"do[opr]_v1_", _HEX, 64),
    ("shopify_token", r"shp(?:at|ca|pa|ss)_", _HEX, 32),
    ("mailgun_key", r"key-", "0-9a-f", 32),
    ("databricks_token", r"dapi", "0-9a-f", 32),
    ("vault_token", r"hv[bsr]\.", _URL64, 24),
    ("terraform_token", r"[A-Za-z0-9]{14}\.atlasv1\.", _URL64, 60),
    ("docker_token", r"dckr_(?:pat|oat)_", _URL64, 20),
    ("linear_key", r"lin_(?:api|oauth)_", _ALNUM, 32),
    ("notion_token", r"ntn_", _ALNUM, 40),
    ("grafana_token", r"gl(?:sa|c)_", "A-Za-z0-9_=+/", 32),
    ("newrelic_key", r"NR(?:AK|JS|II)-", _URL64, 27),
    ("groq_key", r"gsk_", _ALNUM, 40),
    ("replicate_token", r"r8_", _ALNUM, 37),
    ("xai_key", r"xai-", _ALNUM, 60),
    ("perplexity_key", r"pplx-", _ALNUM, 40),
    ("tavily_key", r"tvly-", _URL64, 20),
    ("age_key", r"AGE-SECRET-KEY-1", "0-9A-Z", 50),
    ("figma_token", r"fig[dour]_", _URL64, 30),
    ("postman_key", r"PMAK-", "0-9a-f-", 40),
    ("rubygems_key", r"rubygems_", "0-9a-f", 48),
    ("sentry_token", r"sntry[su]_", "A-Za-z0-9_=+/", 40),
    ("heroku_key", r"HRKU-", _URL64, 36),
    ("supabase_key", r"sb(?:p|_secret)_", _URL64, 30),
    ("planetscale_token", r"pscale_(?:tkn|pw|oauth)_", "A-Za-z0-9_.=-", 32),
    ("doppler_token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.", "A-Za-z0-9_.-", 40),
    ("atlassian_token", r"ATATT3", "A-Za-z0-9_=-", 60),
    ("square_token", r"sq0(?:atp|csp|idp)-", _URL64, 22),
    ("pulumi_token", r"pul-", "0-9a-f", 40),
    ("telegram_token", r"[0-9]{8,10}:AA", _URL64, 32),
)
_JOINED: Final = (
    "toolpost_key", "anthropic_key", "github_token", "gitlab_token", "slack_token", "gcp_key",
    "sendgrid_key", "npm_token", "pypi_token",
)  # fmt: skip
"""Kinds that no word ends like: one is found where a letter or ``_`` stands before it, too. The end
of ``disk_test_…``, of ``cache_key-…`` or of ``task-…`` is no key.
"""


def _prefixed(kind: str, prefix: str, alphabet: str, least: int) -> Rule:
    literals = [
        t.replace("\\", "") for t in re.findall(r"(?:\\.|[A-Za-z0-9_-]){2,}", _bare(prefix))
    ]
    longest = max(literals, key=len, default="")

    words = "_" in alphabet or "." in alphabet or alphabet == "A-Za-z0-9-"

    def check(text: bytes, match: Match) -> Span | None:
        body = match.group(1)
        if kind == "gcp_key" and len(body) != least and _in_a_word(text, match.start()):
            return None  # a piece of a picture
        if words:  # then a name may look like it: sk-spinner-dark-blue
            return match.span() if mixed(body) and not wordy(body) else None
        return match.span() if len(set(body)) > 1 else None  # not xxxxxxxx

    return Rule(
        kind,
        rf"{'' if kind in _JOINED else _WORD}{prefix}([{alphabet}]{{{least},}})",
        needs=(longest.lower().encode(),) if longest else (),
        check=check,
    )


def _in_a_word(text: bytes, start: int) -> bool:
    before = text[max(0, start - 1) : start]
    return before.isalnum() or before == b"_"


def _bare(prefix: str) -> str:
    """The prefix without its groups, classes and counts: what is left stands there as it is."""
    return re.sub(r"\([^)]*\)|\[[^\]]*\](?:\{[^}]*\})?|\?", " ", prefix)


_LINE: Final = "A-Za-z0-9_.+/=-"
_WRAPPED: Final = (
    ("", r"(?:AKIA|ASIA|ABIA)", "A-Z2-7", 16),
    ("", r"eyJ[A-Za-z0-9_-]{9,}\.eyJ[A-Za-z0-9_-]{7,}\.", _URL64, 8),
    *(row for row in _PREFIXED if row[1][:4] not in ("SK", "[0-9", "[A-Z")),
)
_WRAPPED_PATTERN: Final = (
    rf"\b(?:eyJ|{'|'.join(row[1] for row in _WRAPPED if row[1][:3] != 'eyJ')})"
    rf"[{_LINE}]{{0,80}}(?:\r?\n[{_LINE}]+){{1,3}}"
)


@cache
def _tokens() -> tuple[re.Pattern[bytes], ...]:
    return tuple(
        re.compile(rf"{prefix}([{alphabet}]{{{least},}})".encode())
        for _, prefix, alphabet, least in _WRAPPED
    )


def _wrapped(text: bytes, match: Match) -> Span | None:
    """A token that goes on in the next line, up to the line that makes it one."""
    joined, end = b"", match.start()
    for line in match.group().splitlines(keepends=True):
        first, joined, end = not joined, joined + line.rstrip(), end + len(line)
        for token in _tokens():
            if (found := token.match(joined)) is None:
                continue
            body = found.group(1)
            sure = not first and mixed(body) and not wordy(body)
            return (match.start(), end - len(line) + len(line.rstrip())) if sure else None
    return None


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


def _blank(value: bytes) -> bool:
    return value[:1] in b"$%{<*[" or set(value) <= set(b"*xX.")


_CURL: Final = re.compile(rb"(?i)\bcurl(?:\.exe)?(?:[ \t]|\Z)")
_MYSQL: Final = re.compile(rb"(?i)\b(?:mysql|mariadb)-?[a-z]{0,20}(?:\.exe)?(?:[ \t]|\Z)")
_ELSEWHERE: Final = re.compile(rb"\b(?:docker|podman|nerdctl)[ \t]+(?:run|create)\b")  # its -u, -p
_COMMANDS: Final = re.compile(rb"[\n;|]|&&")
_SO_FAR: Final = 200


def _on_the_command_line(program: re.Pattern[bytes]) -> Check:
    """A flag that means this with one program; its name stands before it in the command."""

    def check(text: bytes, match: Match) -> Span | None:
        before = _COMMANDS.split(text[max(0, match.start() - _SO_FAR) : match.start()])[-1]
        if program.search(before) is None or _ELSEWHERE.search(before):
            return None
        which = match.lastindex or 0
        return None if _blank(match.group(which)) else match.span(which)

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


def _lets_in(name: bytes, value: bytes) -> bool:
    if _blank(value):
        return False
    return random(value) or (len(value) >= 8 and mixed(value) and bool(_SIGNS_IN.search(name)))


_ENDS_A_PAGE: Final = re.compile(rb"(?:page|next|prev|sync|continuation|cursor|max|csrf)[_-]?$")
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
    return random(value)


def _password(value: bytes, quoted: bool, around: bytes) -> bool:
    """People choose it: shorter, and words in it; in code an unquoted word is a variable."""
    if random(value):
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


def _long(text: bytes, match: Match) -> Span | None:
    return match.span(1) if len(match.group(1)) >= 20 else None


_NAMED: Final = (
    r"password|passwd|passphrase|passwort|pwd|secret|token|credential|credentials|authorization"
    r"|(?:api|access|secret|private|signing|encryption|auth|account|master|service)[_. -]?key"
)
_QUOTE: Final = r"""[\\"'`]|&(?:quot|apos|#(?:34|39|x22|x27));"""
"""As it stands, escaped once or often, in a page."""
_ASSIGNMENT: Final = (
    rf"(?i)({_NAMED})(?:[_-](?:v?[0-9]{{1,2}}|prod|dev|live|test|value|base64|hex))?"
    rf"""((?:{_QUOTE}|\]){{0,16}}[ \t+]{{0,8}}(?::=|=>|=|:)[ \t+]{{0,8}}(?:{_QUOTE}){{0,16}})"""
    r"""((?:[^\s"'`,;&<>(){}\[\]|\\]|\\{1,7}/){8,})"""
)
_FLAG: Final = (
    r"(?i)--(password|passwd|passphrase|secret|token|(?:api|access|secret|private|auth)-?key)"
    r"""([ \t]{1,4}["']?)([^\s"'`,;&<>(){}\[\]|\\]{8,})"""
)
_QUOTED: Final = r"""\"([^"\n]+)"|'([^'\n]+)'|([^\s"'`;|&-][^\s"'`;|&]*)"""
_USER_AND: Final = r"""\"[^":\n]+:([^"\n]+)"|'[^':\n]+:([^'\n]+)'|[^\s"'`:]+:([^\s"'`;|&]+)"""
_COOKIES: Final = (
    r"""(?i)\bcookie\\{0,15}["']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,15}["']?"""
    r"""([^\s=;,:"']+=[^\s;,"']+(?:;[ \t]?[^\s=;,:"']+=?[^\s;,"']*)*)"""
)
_NAME_NEEDS: Final = (
    b"passw", b"passphrase", b"pwd", b"secret", b"token", b"credential", b"authorization", b"key",
)  # fmt: skip

_SLASH: Final = r"\\{0,7}/"
_FIRST: Final[Check] = group(1)

SECRETS: Final[tuple[Rule, ...]] = (
    Rule(
        "private_key",
        r"-----BEGIN[ +][A-Z0-9 +]{0,40}PRIVATE[ +]KEY(?:[ +]BLOCK)?-----[^-]*(?:-[^-]+){0,20}"
        r"(?:-----END[ +][A-Z0-9 +]{0,40}PRIVATE[ +]KEY(?:[ +]BLOCK)?-----)?",
        needs=(b"private key", b"private+key"),  # as a form is sent
        check=_private_key,
    ),
    Rule("aws_access_key", r"(?:AKIA|ASIA|ABIA)[A-Z2-7]{16}\b",
         needs=(b"akia", b"asia", b"abia")),
    *(_prefixed(*row) for row in _PREFIXED),
    Rule("slack_webhook", rf"hooks\.slack\.com{_SLASH}(?:services|workflows|triggers){_SLASH}"
         rf"((?:[A-Za-z0-9+_-]|{_SLASH})+)", needs=(b"hooks.slack.com",), check=_long),
    Rule("discord_webhook", rf"discord(?:app)?\.com{_SLASH}api{_SLASH}webhooks{_SLASH}[0-9]{{5,25}}"
         rf"{_SLASH}([A-Za-z0-9_-]+)", needs=(b"webhooks",), check=_long),
    Rule("azure_secret", r"\b[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}", (b"q~",)),
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
    Rule("password", rf"[ \t](?:-u|--user|-U|--proxy-user)[ \t=]{{0,3}}(?:{_USER_AND})",
         needs=(b"-u", b"-user"), check=_on_the_command_line(_CURL)),
    Rule("password", rf"[ \t]-p(?:{_QUOTED})", needs=(b"-p",), check=_on_the_command_line(_MYSQL)),
    Rule("cookie", _COOKIES, (b"cookie",), _cookie),
    Rule("secret", _WRAPPED_PATTERN, check=_wrapped),
    Rule("secret", _ASSIGNMENT, _NAME_NEEDS, _assigned),
    Rule("secret", _FLAG, (b"--",), _assigned),
)  # fmt: skip
