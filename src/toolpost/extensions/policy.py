"""What is allowed: the rules of a file, and where none speaks, the mode and the tool's tier.

Above: the road. Below: ``rules``. A call that is denied ends here; one that a person has to be
asked about is handed on with the reason in ``call.ask``, and does not run unless a ring behind has
asked. How a person is asked is not known here.

The file is looked at again when a call comes in or somebody asks for ``problem``, at most once a
second. One that is broken, empty or gone changes nothing: the rules in force stay, and ``problem``
and the log raise the alarm. A second file, the shadow, is only watched: what it would have decided
is counted, not done.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from toolpost.call import Call
from toolpost.clock import SystemClock
from toolpost.contracts import Check, Clock, Mode, Road, Surroundings
from toolpost.errors import ConfigError, Denied
from toolpost.options import Options, options_from
from toolpost.rules import Decision, Rules, Verdict, by_mode, read_rules
from toolpost.spec import ToolSpec

_log = logging.getLogger("toolpost.policy")
_replace: Callable[..., Call] = msgspec.structs.replace
_PAUSE: Final = 1.0
"""Seconds between two looks at a file, and how long it must have been left alone to be taken."""


class PolicyOptions(Options, frozen=True, kw_only=True):
    """The table ``[extensions.policy]``; the files are named from the folder of the config."""

    file: str | None = None
    shadow: str | None = None


class ShadowReport(msgspec.Struct, frozen=True):
    """What the shadow's rules would have done otherwise, since the start or since they changed."""

    calls: int
    would: Mapping[Verdict, int]
    """What the shadow said → how many calls were decided in another way."""
    rules: Mapping[str, int]
    """The same calls, by the shadow's rule."""

    def __str__(self) -> str:
        deny, ask, allow = (self.would.get(v, 0) for v in ("deny", "ask", "allow"))
        return (
            f"would have denied {deny} calls, asked about {ask} and allowed {allow} that were "
            f"decided otherwise, of {self.calls}"
        )


class Policy:
    """Allows, asks or denies."""

    name = "policy"
    options = PolicyOptions

    def __init__(
        self,
        mode: Mode = "standard",
        *,
        file: str | os.PathLike[str] | None = None,
        shadow: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.mode: Mode = mode
        clock = clock or SystemClock()
        self._file = None if file is None else _placed("file", file, clock)
        self._shadow = None if shadow is None else _Shadow(_placed("shadow", shadow, clock), mode)

    @classmethod
    def from_config(cls, options: Mapping[str, Any], around: Surroundings) -> Self:
        given = options_from(options, PolicyOptions, "policy")
        file, shadow = (None if n is None else around.base / n for n in (given.file, given.shadow))
        return cls(around.mode, file=file, shadow=shadow, clock=around.clock)

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return Rules() if self._file is None else self._file.rules

    @property
    def problem(self) -> str | None:
        """What is wrong with a file right now; it is looked at for this too, if that is due."""
        watched = [file for file in (self._file, self._shadow and self._shadow.file) if file]
        for file in watched:
            file.current()
        return "; ".join(file.problem for file in watched if file.problem) or None

    def shadow_report(self) -> ShadowReport | None:
        """What the shadow would have done; ``None`` where there is none."""
        return None if self._shadow is None else self._shadow.report()

    def bind(self, spec: ToolSpec, road: Road) -> Check | None:
        usual, file = by_mode(spec, self.mode), self._file
        shadow = None if self._shadow is None else self._shadow.bind(spec)
        if file is None and shadow is None and usual.verdict == "allow":
            return None
        rules = self.rules
        judge = rules.judge(spec, self.mode)

        def look(call: Call) -> Call | None:
            nonlocal rules, judge
            if file is not None and (now := file.current()) is not rules:
                rules, judge = now, now.judge(spec, self.mode)
            made = judge(call.caller, call.arguments)
            if shadow is not None:
                shadow(call, made)
            if made.verdict == "allow":
                if made.rule != usual.rule:
                    call.note("policy", f"allow (rule {made.rule})")
                return None
            call.note("policy", f"{made.verdict} (rule {made.rule})")
            if made.verdict == "ask":
                return _replace(call, ask=made.reason)
            raise Denied(made.reason, details={"rule": made.rule, "policy": rules.digest})

        return Check(look)

    async def close(self) -> None:
        if self._shadow is not None:
            _log.info("the shadow policy %s %s", self._shadow.file.path, self._shadow.report())


class _Watched:
    """A file of rules, and the last good ones that were in it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self.problem = path, ""
        self._clock, self._now = clock, clock.monotonic
        self._taken = self._seen = _state(path)
        self._refused: object = ()
        self.rules = read_rules(path)
        self._due = self._now() + _PAUSE

    def current(self) -> Rules:
        """The rules in force, after a look at the file if one is due."""
        if self._now() >= self._due:
            self._look()
        return self.rules

    def _look(self) -> None:
        self._due = self._now() + _PAUSE
        state = _state(self.path)
        settled = state is None or state == self._seen or self._age(state) > _PAUSE
        self._seen = state
        if state == self._taken:
            self.problem, self._refused = "", ()
        elif settled and state != self._refused:  # a file half written may well be a valid one
            self._take(state)

    def _take(self, state: tuple[int, ...] | None) -> None:
        try:
            rules = read_rules(self.path)
        except ConfigError as fault:
            self.problem, self._refused = fault.message, state
            _log.error("the policy in force stays, its file cannot be used: %s", fault.message)
            return
        self.rules, self._taken, self.problem, self._refused = rules, state, "", ()
        _log.info("the policy %s has changed: %d rules", self.path, len(rules.rules))

    def _age(self, state: tuple[int, ...]) -> float:
        return self._clock.time() - state[0] / 1e9


def _state(path: Path) -> tuple[int, ...] | None:
    """Another state, another file: when it was last changed, which one it is, how large."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ctime_ns, found.st_mtime_ns, found.st_ino, found.st_size)


class _Shadow:
    """Rules that decide nothing yet; where they would differ is counted."""

    def __init__(self, file: _Watched, mode: Mode) -> None:
        self.file, self._mode = file, mode
        self._counted = file.rules
        self._calls = 0
        self._would: Counter[Verdict] = Counter()
        self._rules: Counter[str] = Counter()

    def report(self) -> ShadowReport:
        return ShadowReport(self._calls, dict(self._would), dict(self._rules))

    def bind(self, spec: ToolSpec) -> Callable[[Call, Decision], None]:
        rules = self.file.rules
        judge = rules.judge(spec, self._mode)

        def watch(call: Call, made: Decision) -> None:
            nonlocal rules, judge
            try:
                if (now := self.file.current()) is not rules:
                    rules, judge = now, now.judge(spec, self._mode)
                self._count(call, made, judge(call.caller, call.arguments))
            except Exception:  # noqa: BLE001 - what only watches may not refuse a call
                _log.exception("the shadow policy could not judge %s", call.tool)

        return watch

    def _count(self, call: Call, made: Decision, would: Decision) -> None:
        if self._counted is not self.file.rules:
            self._counted, self._calls = self.file.rules, 0
            self._would.clear()
            self._rules.clear()
        self._calls += 1
        if would.verdict != made.verdict:
            self._would[would.verdict] += 1
            self._rules[would.rule] += 1
            _log.info(
                "shadow: %s (call %s) was decided %s, would be %s by rule %s",
                *(call.tool, call.call_id, made.verdict, would.verdict, would.rule),
            )


def _placed(setting: str, path: str | os.PathLike[str], clock: Clock) -> _Watched:
    """The file, or what is wrong with it and which setting names it."""
    try:
        return _Watched(Path(path), clock)
    except ConfigError as fault:
        raise ConfigError(fault.message, at=(setting,)) from fault
