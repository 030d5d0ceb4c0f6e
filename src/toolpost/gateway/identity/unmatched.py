"""Names of callers in the config that no known caller has: a limit or a right that does nothing.

Used by ``toolpost serve`` and ``toolpost doctor``. What is known is the keys of the store. Where an
issuer vouches for users and agents, their names are not known before they come, and only ``key:…``
can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from toolpost.config import Config
from toolpost.document import read
from toolpost.errors import ToolpostError
from toolpost.gateway.identity.keys import ApiKey, Keys
from toolpost.gateway.identity.settings import AuthSettings
from toolpost.patterns import OWN_NAMES, caller_matcher
from toolpost.rules import read_rules
from toolpost.wording import nearest, short


async def unmatched(config: Config, auth: AuthSettings, keys: Keys) -> list[str]:
    """A sentence for each pattern in the config that matches no caller there can be."""
    if not auth.keys:
        return []
    known = await keys.all()
    if not known:
        return []  # none has been made yet: nothing can be told
    found = [_judge(*one, known, alone=not auth.issuers) for one in _patterns(config)]
    return [told for told in found if told is not None]


def _judge(where: str, pattern: str, known: Sequence[ApiKey], *, alone: bool) -> str | None:
    if pattern in OWN_NAMES or not (alone or pattern.startswith("key:")):
        return None
    matches = caller_matcher((pattern,))
    if any(matches(key.caller) for key in known):
        return None
    names = {name for key in known for name in (key.name, key.user, key.agent) if name}
    kind, colon, rest = pattern.rpartition(":")
    listed = ", ".join(sorted(names)[:5])
    hint = nearest(rest, sorted(names)) or f"; keys are there for {listed}"
    return f"{where}: no caller matches {short(kind + colon + rest)!r}{hint}"


def _patterns(config: Config) -> Iterator[tuple[str, str]]:
    """Where each stands, and what it is."""
    for extension in ("rate", "access"):
        for name in listed(config, extension, "callers"):
            yield f"[extensions.{extension}] callers", name
    for name in listed(config, "access", "agents"):
        yield "[extensions.access] agents", f"agent:{name}"
    for field, kind in (("caller", ""), ("user", "user:"), ("agent", "agent:")):
        for name in ruled(config, field):
            yield f"the policy's rules on {field}", f"{kind}{name}"


def listed(config: Config, extension: str, setting: str) -> Iterator[str]:
    """The names in a setting, as it is written: what is wrong with it is others' to tell."""
    value = config.settings.extensions.get(extension, {}).get(setting)
    yield from map(str, value if isinstance(value, (dict, list, tuple)) else ())


def ruled(config: Config, field: str) -> Iterable[str]:
    """The names that the rules of the policy look at in a field, if the rules are in order."""
    named = config.settings.extensions.get("policy", {}).get("file")
    if named is None:
        return
    with suppress(ToolpostError, OSError):
        read_rules(config.base / str(named))
        for rule in read(config.base / str(named)).data["rules"]:
            said = rule.get(field, ())
            yield from (said,) if isinstance(said, str) else said
