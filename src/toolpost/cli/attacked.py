"""What ``doctor.py`` finds out about the sandbox: its level, what is missing, what it blocks.

Above: ``doctor.py``. Below: ``toolpost.sandbox``, opened as the config wants it and attacked from
inside. It refuses to conclude: a level is worth what it blocks here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Literal

from toolpost.cli.findings import Finding, Verdict
from toolpost.config import Settings
from toolpost.errors import SetupError
from toolpost.sandbox import Level, Sandbox
from toolpost.sandbox.confinement import LEVELS
from toolpost.sandbox.probes import Probed, probe

Which = Literal["here", "all", "none"]
_WEAK: Final = "tools that need more are refused; `isolation: process` runs them unconfined"
_ESCAPED: Final = "do not run what you do not trust here, and report it"


async def sandbox(
    settings: Settings, state: str, which: Which, tell: Callable[[str], None]
) -> AsyncIterator[Finding]:
    """The sandbox that tools get here; then the attacks on it, and on lesser ones if wanted."""
    lower = settings.sandbox.lower and settings.mode == "permissive"
    async with await Sandbox.open(mode=settings.mode, state=state, lower=lower) as found:
        layers = ", ".join(found.about["layers"]) or "nothing but limits"
        verdict: Verdict = "ok" if found.level in ("I2", "I3") else "warn"
        yield Finding(
            "sandbox", verdict, f"{found.level}: {layers}", _WEAK if verdict != "ok" else ""
        )
        for layer, why, how in found.missing:
            yield Finding(f"sandbox {layer}", "warn", f"missing: {why}", how)
        if which != "none" and found.level != "I0":
            yield await _attacked(found, tell)
        for level in _below(found.level) if which == "all" else ():
            yield await _lesser(found, level, tell)


def _below(level: Level) -> Sequence[Level]:
    return [one for one in reversed(LEVELS[1:]) if one < level]


async def _lesser(found: Sandbox, level: Level, tell: Callable[[str], None]) -> Finding:
    less = await found.lesser(level)
    if less is None:
        return Finding(f"attacks {level}", "info", "this level cannot be had here", "")
    async with less:
        return await _attacked(less, tell, lesser=True)


async def _attacked(
    sandbox: Sandbox, tell: Callable[[str], None], *, lesser: bool = False
) -> Finding:
    tell(f"attacking the sandbox ({sandbox.level})")
    check = f"attacks {sandbox.level}"
    try:
        attacks = await probe(sandbox)
    except SetupError as refusal:
        return Finding(check, "warn", f"could not be tried: {refusal}", _WEAK)
    escaped = [one.name for one in attacks if not one.blocked]
    found = f"{len(attacks) - len(escaped)} of {len(attacks)} blocked"
    if not escaped:
        return Finding(check, "ok", found, attacks=_told(attacks))
    told = f"{found}; these got out: {', '.join(escaped)}"
    return Finding(check, "warn" if lesser else "fail", told, _ESCAPED, _told(attacks))


def _told(attacks: Sequence[Probed]) -> Mapping[str, bool]:
    return {one.name: one.blocked for one in attacks}
