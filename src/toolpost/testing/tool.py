"""Everything a caller may do to one tool: right and wrong arguments, too little time, a change of
mind, many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import msgspec

from toolpost.call import Call
from toolpost.contracts import Backend, Walk
from toolpost.deadline import GRACE
from toolpost.errors import InvalidArguments, InvalidSpec
from toolpost.executor import Executor
from toolpost.registry import Entry, Item, Registry, as_entry
from toolpost.result import Result
from toolpost.schema import Schema
from toolpost.spec import ToolSpec
from toolpost.testing.example import NoExample, example
from toolpost.testing.report import PATIENCE, NotApplicable, Report, Tried, must, reported

_WRONG: Final = ({"wrong": "type"}, ["wrong type"], "wrong type", 5, None)
_NO_SUCH: Final = "no_such_parameter"


async def check_tool(
    tool: Item,
    *,
    arguments: Mapping[str, Any] | None = None,
    failing: Mapping[str, Any] | None = None,
    slow: Mapping[str, Any] | None = None,
    parallel: int = 10,
    provide: Mapping[type, object] | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> Report:
    """Try a function, a ``Tool`` or a spec in every way that matters.

    ``arguments`` make it succeed; without them an example of its spec is taken, or one is made up
    from its schema. ``failing`` make it fail, ``slow`` make it take at least a second. It runs for
    real, about ``parallel`` + 4 times: give it a tool whose effects you can bear. To check it is
    the yes to a tool that ``requires_approval``. A tool that answers before a limit with what it
    has by then says so in its output: ``complete`` is false.
    """
    try:
        entry = as_entry(tool)
    except InvalidSpec as fault:
        return Report(_name(tool), (Tried("schema", "failed", fault.message),))
    spec = msgspec.structs.replace(entry.spec, requires_approval=False)
    entry = Entry(spec, entry.target)
    async with Executor(Registry([entry]), provide=provide, backends=backends) as executor:
        bench = _Bench(executor, entry, arguments)
        checks = {
            "schema": bench.schema,
            "success": bench.success,
            "output": bench.output,
            "missing argument": bench.missing,
            "wrong type": bench.wrong_type,
            "unknown argument": bench.unknown,
            "error handling": lambda: bench.failure(failing),
            "timeout": lambda: bench.timeout(slow),
            "cancellation": lambda: bench.cancellation(slow),
            "concurrency": lambda: bench.concurrency(parallel),
        }
        return await reported(entry.spec.name, checks, PATIENCE + entry.spec.time_limit)


class _Bench:
    def __init__(
        self, executor: Executor, entry: Entry, arguments: Mapping[str, Any] | None
    ) -> None:
        self.executor = executor
        self.spec = entry.spec
        self._schema = Schema(self.spec.input_schema, coerce=self.spec.coerce)
        self._given = arguments is not None
        self._arguments = dict(arguments) if arguments is not None else self._found()

    async def call(self, arguments: Mapping[str, Any], timeout: float | None = None) -> Result:
        return await self.executor.execute(self.spec.name, arguments, timeout=timeout)

    async def schema(self) -> str:
        for number, shown in enumerate(self.spec.examples, 1):
            must(self._fits(shown), f"example {number} of the spec does not fit its schema")
        return "the schemas can be used, and the examples fit"

    async def success(self) -> str:
        code, message = _said(await self.call(self.arguments))
        if code == "EXECUTION_ERROR" and not self._given:
            raise NotApplicable(f"made-up arguments do not suit it ({message}): give arguments=")
        must(code == "", f"{code} with {_shown(self.arguments)}: {message}")
        return f"it succeeds with {_shown(self.arguments)}"

    async def output(self) -> str:
        if self.spec.output_schema is None:
            raise NotApplicable("it does not say what it returns")
        code, message = _said(await self.call(self.arguments))
        must(code != "OUTPUT_INVALID", message)
        if code:
            raise NotApplicable("it did not succeed")
        return "what it returns fits its output schema"

    async def missing(self) -> str:
        required = self.spec.input_schema.get("required", ())
        if not required:
            raise NotApplicable("no argument is required")
        for name in required:
            left = {k: v for k, v in self.arguments.items() if k != name}
            await self._refused(left, f"without {name!r}", says=name)
        return f"refused without any of {', '.join(required)}"

    async def wrong_type(self) -> str:
        tried = []
        for name in self.spec.input_schema.get("properties", {}):
            for wrong in _WRONG:
                changed = {**self.arguments, name: wrong}
                if not self._fits(changed):
                    await self._refused(changed, f"with a wrong {name!r}", says=name)
                    tried.append(name)
                    break
        if not tried:
            raise NotApplicable("no argument has a type that could be wrong")
        return f"refused with a wrong {', '.join(tried)}"

    async def unknown(self) -> str:
        changed = {**self.arguments, _NO_SUCH: 1}
        if self._fits(changed):
            raise NotApplicable("its schema allows arguments of any name")
        await self._refused(changed, "with an unknown argument", says=_NO_SUCH)
        return "refused with an argument that it does not have"

    async def failure(self, failing: Mapping[str, Any] | None) -> str:
        if failing is None:
            raise NotApplicable("give failing= with arguments that make it fail")
        result = await self.call(failing)
        code, message = _said(result)
        must(code != "", f"it succeeded with {_shown(failing)}")
        must(code != "INTERNAL_ERROR", "it let an exception out that was not meant for a caller")
        must(bool(message.strip()) and "Traceback" not in message, "its message helps nobody")
        return f"{code}: {message}"

    async def timeout(self, slow: Mapping[str, Any] | None) -> str:
        limit = 0.001 if slow is None else 0.2
        started = monotonic()
        result = await self.call(self.arguments if slow is None else slow, limit)
        took = monotonic() - started
        must(took < limit + GRACE + 2, f"it came back after {took:.1f} s, the limit was {limit} s")
        code, message = _said(result)
        if slow is None and code != "TIMEOUT":
            raise NotApplicable("it is too fast to be stopped: give slow=")
        if not code and _is_partial(result.output):
            return "it knows its limit: it answers in part before that, and says so"
        must(code != "", "it was not slow")
        must(code == "TIMEOUT", f"{code}: {message}")
        return "it is stopped at the limit"

    async def cancellation(self, slow: Mapping[str, Any] | None) -> str:
        begun = asyncio.Event()

        async def begins(call: Call, call_next: Walk) -> Result:
            begun.set()
            return await call_next(call)

        executor = self.executor
        async with Executor(
            executor.registry, guards=[begins], backends=_Shared(executor, self.spec.kind)
        ) as watched:
            arguments = self.arguments if slow is None else slow
            run = asyncio.ensure_future(watched.execute(self.spec.name, arguments))
            waiting = asyncio.ensure_future(begun.wait())
            await asyncio.wait((run, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            run.cancel()
            done, _ = await asyncio.wait((run,), timeout=GRACE + 5)
            must(bool(done), "it goes on after its caller has gone")
            if not run.cancelled():
                raise NotApplicable("it is too fast to be cancelled: give slow=")
        return "it stops when its caller goes"

    async def concurrency(self, parallel: int) -> str:
        first = await self.call(self.arguments)
        if first.error is not None:
            raise NotApplicable("it does not succeed even alone")
        results = await asyncio.gather(*(self.call(self.arguments) for _ in range(parallel)))
        for result in results:
            must(result.error is None, f"one of {parallel} at once: {_said(result)}")
        if self.spec.effects == "read":
            same = all(result.output == first.output for result in results)
            return f"{parallel} at once succeed{', with one output' if same else ''}"
        return f"{parallel} at once succeed"

    @property
    def arguments(self) -> dict[str, Any]:
        if self._arguments is None:
            raise NotApplicable("no arguments could be made up: give arguments=")
        return self._arguments

    def _found(self) -> dict[str, Any] | None:
        try:
            for made in (*self.spec.examples, example(self.spec.input_schema)):
                if self._fits(made):
                    return dict(made)
        except NoExample:
            pass
        return None

    def _fits(self, arguments: Any) -> bool:
        try:
            self._schema.admit(arguments)
        except InvalidArguments:
            return False
        return True

    async def _refused(self, arguments: Mapping[str, Any], how: str, *, says: str) -> None:
        code, message = _said(await self.call(arguments))
        must(code != "", f"it ran {how}")
        must(code == "VALIDATION_ERROR", f"{how}: {code}: {message}")
        must(says in message, f"{how}: the message does not name {says!r}")


class _Shared(dict[str, Backend]):
    """The backends of another executor, which closes them itself."""

    def __init__(self, executor: Executor, kind: str) -> None:
        super().__init__({kind: _Kept(executor.backends[kind])})


class _Kept:
    def __init__(self, backend: Backend) -> None:
        self.bind = backend.bind

    async def close(self) -> None:
        """Whoever made it closes it."""


def _name(tool: object) -> str:
    spec = tool if isinstance(tool, ToolSpec) else getattr(tool, "spec", None)
    return spec.name if isinstance(spec, ToolSpec) else getattr(tool, "__name__", "tool")


def _is_partial(output: Any) -> bool:
    """By the one sign that a program understands; words in a warning may be about anything."""
    return isinstance(output, Mapping) and output.get("complete") is False


def _said(result: Result) -> tuple[str, str]:
    """The code and the message of a failure; empty for a success."""
    return ("", "") if result.error is None else (result.error.code, result.error.message)


def _shown(arguments: Mapping[str, Any]) -> str:
    text = repr(dict(arguments))
    return text if len(text) <= 80 else text[:79] + "…"
