"""Names that say that what stands under them is a secret: ``password``, ``clientSecret``.

Above: ``redact`` for data that is written down, ``scan.py`` for a quick look. Below: ``rule.py``.
"""

from __future__ import annotations

from typing import Final

from toolpost.redact.rule import Rule

_WHOLE: Final = (
    "token", "secrets", "passwort", "pwd", "pin", "cvv", "cvc", "ssn", "auth", "jwt", "bearer",
    "credential", "credentials", "cookie", "cookies", "setcookie", "connectionstring",
)  # fmt: skip
_ENDINGS: Final = (
    "password", "passwd", "passphrase", "secret", "apikey", "secretkey", "privatekey", "accesskey",
    "accesstoken", "refreshtoken", "authtoken", "idtoken", "bearertoken", "sessiontoken",
    "apitoken", "signingkey", "encryptionkey", "authorization",
)  # fmt: skip
_MARKS: Final = "_-. "
_NO_MARKS: Final = str.maketrans("", "", _MARKS)


def names_a_secret(key: str) -> bool:
    """Whether what stands under such a key is a secret by its name."""
    name = key.lower().translate(_NO_MARKS)
    return name in _WHOLE or name.endswith(_ENDINGS)


def _spelt(names: tuple[str, ...]) -> str:
    """The names with any of the marks between their letters."""
    return "|".join("[_. -]*".join(name) for name in names)


NAMED: Final = Rule(
    "secret",
    rf'(?i)(?:"[_. -]*(?:{_spelt(_WHOLE)})|(?:{_spelt(_ENDINGS)}))[_. -]*":',
    needs=(b'":',),
)
"""The same question, asked of the JSON of an object."""
