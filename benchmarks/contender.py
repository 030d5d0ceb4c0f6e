"""What a contender is, and how one is loaded.

A contender is one way to call a tool by name. Each lives in a module of ``contenders/`` with its
imports at the top and its classes in ``CONTENDERS``; a module that cannot be imported is reported
as not available, with the reason, and the run goes on. Knows of them only their modules' names.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.cases import ANSWERS, ARGUMENTS, FUNCTIONS, Function, many_functions
from benchmarks.environment import NOT_INSTALLED, ROOT

Call = Callable[[], Awaitable[Any]]

EVERY_CASE = frozenset(FUNCTIONS)
ASYNC_CASES = EVERY_CASE - {"add_sync"}

MODULES = (
    "bare",
    "limit",
    "toolpost_executor",
    "toolpost_runtime",
    "openai_agents",
    "mcp_sdk",
    "pydantic_ai",
    "toolregistry",
    "fastmcp",
    "langchain_core",
)

FIRST_CALL_SECONDS = 30


class Contender:
    """One way to call a tool by name, with raw arguments, validated, and its result unwrapped."""

    label: ClassVar[str]
    cases: ClassVar[frozenset[str]] = EVERY_CASE
    peer: ClassVar[bool] = False
    governed: ClassVar[bool] = False

    @classmethod
    def prepare(cls, count: int) -> Any:
        """What so many tools are registered from; neither its time nor its memory counts."""
        return many_functions(count)

    def register(self, functions: Mapping[str, Function]) -> None:
        """Make tools of these functions; this is what registration is timed by."""
        raise NotImplementedError

    async def open(self) -> None:
        """Whatever has to happen once before the first call."""

    def bind(self, tool: str, arguments: dict[str, Any]) -> Call:
        """The call that is timed: it looks the tool up by its name each time."""
        raise NotImplementedError

    def value(self, answer: Any) -> Any:
        """The tool's own value out of an answer, outside the timed part."""
        return answer

    async def close(self) -> None:
        """Let go of what ``open`` took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Who runs, by class name, and who cannot and why."""

    contenders: dict[str, type[Contender]]
    missing: dict[str, str]


def load(modules: Iterable[str] = MODULES) -> Field:
    """Import each module; the ones that cannot be are named with their reason."""
    contenders: dict[str, type[Contender]] = {}
    missing: dict[str, str] = {}
    for module in modules:
        try:
            loaded = importlib.import_module(f"benchmarks.contenders.{module}")
        except Exception as exc:  # a peer may break in any way while it is imported
            missing[module] = _reason(module, exc)
        else:
            contenders |= {contender.__name__: contender for contender in loaded.CONTENDERS}
    return Field(contenders=contenders, missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One case's calls, each seen to give the right answer, and who could not run it and why."""

    calls: dict[str, Call]
    faults: dict[str, str]


@asynccontextmanager
async def ready(contenders: Iterable[type[Contender]], case: str) -> AsyncIterator[Entry]:
    """Open every contender that takes part with the case's tool, and close them afterwards."""
    entry = Entry(calls={}, faults={})
    async with AsyncExitStack() as stack:
        for kind in contenders:
            if case not in kind.cases:
                continue
            contender = kind()
            try:
                entry.calls[kind.__name__] = await _checked_call(contender, case, stack)
            except Exception as exc:  # one that cannot run this case must not stop the others
                entry.faults[kind.__name__] = one_line(exc)
        yield entry


def one_line(exc: BaseException) -> str:
    """An exception as it fits into a table."""
    text = " ".join(f"{type(exc).__name__}: {exc}".replace(f"{ROOT}/", "").split())
    return text if len(text) <= 160 else text[:157] + "..."


async def _checked_call(contender: Contender, case: str, stack: AsyncExitStack) -> Call:
    contender.register({case: FUNCTIONS[case]})
    await contender.open()
    stack.push_async_callback(contender.close)
    call = contender.bind(case, ARGUMENTS[case])
    answer = contender.value(await asyncio.wait_for(call(), FIRST_CALL_SECONDS))
    if answer != ANSWERS[case]:
        raise ValueError(f"answered {answer!r} instead of {ANSWERS[case]!r}")
    return call


def _reason(module: str, exc: Exception) -> str:
    failures = json.loads(NOT_INSTALLED.read_text()) if NOT_INSTALLED.exists() else {}
    for distribution, reason in failures.items():
        if distribution.replace("-", "_").startswith(module.removesuffix("_sdk")):
            return f"could not be installed: {reason}"
    return one_line(exc)
