"""What a check found: every item passed, failed or did not apply, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import msgspec

Outcome = Literal["passed", "failed", "not applicable"]
Check = Callable[[], Awaitable[str]]
PATIENCE: Final = 30.0
"""Seconds after which a check gives up waiting for something that should have come long ago."""


class NotApplicable(Exception):
    """Raised inside a check that cannot be made on this subject."""


class Tried(msgspec.Struct, frozen=True):
    """One thing that was tried."""

    name: str
    outcome: Outcome
    reason: str


class Report(msgspec.Struct, frozen=True):
    """What was tried on one subject, and what came of it."""

    subject: str
    items: tuple[Tried, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Tried, ...]:
        return tuple(item for item in self.items if item.outcome == "failed")

    def outcome(self, name: str) -> Outcome:
        """What came of one thing."""
        return next(item.outcome for item in self.items if item.name == name)

    def raise_if_failed(self) -> None:
        if self.failed:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        lines = [f"  {item.outcome:14}  {item.name}: {item.reason}" for item in self.items]
        return "\n".join([f"{self.subject}: {len(self.failed)} failed", *lines])


def must(holds: bool, otherwise: str) -> None:
    """An ``assert`` that ``python -O`` does not take away."""
    if not holds:
        raise AssertionError(otherwise)


async def reported(subject: str, checks: Mapping[str, Check], patience: float = PATIENCE) -> Report:
    """Make the checks one after the other."""
    return Report(
        subject, tuple([await _tried(name, check, patience) for name, check in checks.items()])
    )


async def _tried(name: str, check: Check, patience: float) -> Tried:
    try:
        return Tried(name, "passed", await asyncio.wait_for(_run(check), patience))
    except NotApplicable as why:
        return Tried(name, "not applicable", str(why))
    except AssertionError as why:
        return Tried(name, "failed", str(why) or "it does not hold")
    except TimeoutError:
        return Tried(name, "failed", f"it did not come back within {patience:g} s")
    except Exception as exc:  # noqa: BLE001 - the subject is foreign code, and may raise anything
        return Tried(name, "failed", f"{type(exc).__name__}: {exc}")


async def _run(check: Check) -> str:
    return await check()
