"""Texts that stand for many: which tools a pattern means, and globs over any text.

Above: whoever names tools: a config (access, rules), a caller. Below: the spec. A pattern is a
tool's name with ``*``, ``?`` and ``[…]`` in it, or ``tag:``, ``category:``, ``kind:``, ``label:``
and a glob (``label:vendor=acme``). What the tools are chosen for is not known here.

A glob takes time in proportion to the text: its stars are never tried again (``fnmatch`` writes
them as atomic groups), so that a hostile text cannot make one expensive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import lru_cache

from toolpost.call import Caller
from toolpost.errors import ConfigError
from toolpost.spec import ToolSpec
from toolpost.wording import nearest, short

_CALLER_KINDS = ("user", "key", "agent")
OWN_NAMES = frozenset(("owner", "local"))
_FIELDS = ("tag", "category", "kind", "label")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,200}")
_CHOICE = re.compile(r"\[!?\]?[^\]]*\]")
_STRAY = re.compile(r"[\[\]!]")
"""Outside of a choice these stand for themselves, and no name has them."""
_WILD = re.compile(r"[*?\[]")


def glob(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a text is one of these, or looks like one: case counts, and the whole text does."""
    plain = frozenset(p for p in patterns if not _WILD.search(p))
    wild = [re.compile(translate(p)).match for p in patterns if _WILD.search(p)]
    if not wild:
        return plain.__contains__
    return lambda text: text in plain or any(match(text) for match in wild)


def caller_matcher(patterns: Iterable[str]) -> Callable[[Caller], bool]:
    """Whether a caller is meant by any of the patterns. A plain name is that of a user, a key or an
    agent, or a caller's id; ``user:``, ``key:`` and ``agent:`` say which. ``owner`` and ``local``
    are the ids that the owner of the process has, and nobody else's name.
    """
    plain: list[str] = []
    ids: list[str] = []
    kinds: dict[str, list[str]] = {kind: [] for kind in _CALLER_KINDS}
    for pattern in patterns:
        kind, colon, rest = pattern.partition(":")
        if colon and kind in kinds:
            kinds[kind].append(rest)
            ids.append(pattern)  # the id of a key's caller begins so, too
        elif pattern in OWN_NAMES:
            ids.append(pattern)
        else:
            plain.append(pattern)
    is_id = glob([*ids, *plain])
    is_user, is_key, is_agent = (glob([*kinds[kind], *plain]) for kind in _CALLER_KINDS)

    def matches(caller: Caller) -> bool:
        user, key, agent = caller.user, caller.key, caller.agent
        return (
            is_id(caller.id)
            or (user is not None and is_user(user))
            or (caller.issuer is not None and is_user(f"{caller.issuer}/{user}"))
            or (key is not None and is_key(key))
            or (agent is not None and is_agent(agent))
        )

    return matches


def selector(patterns: Iterable[str]) -> Callable[[ToolSpec], bool]:
    """Whether a tool is meant by any of the patterns; a ``ConfigError`` for what is no pattern."""
    tests = [_selecting(pattern) for pattern in patterns]
    return lambda spec: any(test(spec) for test in tests)


@lru_cache(1024)
def choosing(patterns: tuple[str, ...]) -> Callable[[ToolSpec], bool]:
    """The same, kept for the next call; patterns that are none choose nothing."""
    try:
        return selector(patterns)
    except ConfigError:
        return lambda spec: False


def _selecting(pattern: str) -> Callable[[ToolSpec], bool]:
    field, colon, rest = pattern.partition(":")
    if not colon:
        if not _NAME_PATTERN.fullmatch(pattern) or _STRAY.search(_CHOICE.sub("", pattern)):
            raise ConfigError(f"{short(pattern)!r} is no pattern: no tool can have such a name")
        matches = glob((pattern,))
        return lambda spec: matches(spec.name)
    if field not in _FIELDS or not rest:
        hint = nearest(field, _FIELDS) or f"; write {', '.join(f'{f}:…' for f in _FIELDS)}"
        raise ConfigError(f"{short(pattern)!r} is no pattern{hint}")
    matches = glob((rest,))
    if field == "tag":
        return lambda spec: any(matches(tag) for tag in spec.tags)
    if field == "label":
        return lambda spec: any(matches(f"{key}={text}") for key, text in spec.labels.items())
    return lambda spec: matches(getattr(spec, field))
