"""The sockets: what a replaceable part has to be, one sentence each.

Parts import this file and nothing else of the road.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from toolpost.call import Call, Caller, Progress
from toolpost.environ import secret
from toolpost.result import Result
from toolpost.spec import ToolSpec

if TYPE_CHECKING:  # named in signatures only, and every program imports this file
    from pathlib import Path

    from toolpost.process import Child, Hearer

Walk = Callable[[Call], Awaitable[Result]]
"""The rest of the road, as a ring sees it."""

Ring = Callable[[Call, Walk], Awaitable[Result]]
"""What stands around a call: raise to refuse, call the walk to go on, look at what comes back.

Arguments are replaced, never changed in place: those of a replaced call are checked again.
"""


class Sure(msgspec.Struct):
    """What makes a look of a check needless: native code, once there is any, that says of arguments
    both that they fit the tool's schema and that the check has nothing to say of them. It holds
    as long as there are so many ``values`` as it was made with.
    """

    fits: Callable[[Any], bool] | None = None
    values: Sized = ()
    count: int = 0


class Check(msgspec.Struct, frozen=True):
    """A ring that only looks at a call before it goes on, at a fraction of the price.

    ``look`` raises to refuse; what it returns, if anything, goes on in the place of the call: a
    call, or a ring that is to stand around this one. ``plain``: it has nothing to say of a plain
    call, which has no session, no key, no grant and no question to ask, and need not look at one.
    """

    look: Callable[[Call], Call | Ring | None]
    plain: bool = False
    sure: Sure | None = None

    async def __call__(self, call: Call, call_next: Walk) -> Result:
        found = self.look(call)
        if found is None or isinstance(found, Call):
            return await call_next(found or call)
        return await found(call, call_next)


class Watch(msgspec.Struct, frozen=True):
    """An observer's ring that is only told, at a fraction of the price.

    ``after(call, result)`` hears how a call ended, ``None`` being a cancellation, and may return
    something to wait for. ``before(call)`` may refuse the call by a ``CallError``; what it returns
    is handed to ``after`` as a third argument, and of a call that it refused ``after`` hears not.
    In ``inside.running`` the calls are counted that have begun and not ended.
    """

    after: Callable[..., Awaitable[None] | None]
    before: Callable[[Call], Any] | None = None
    inside: Any = None

    async def __call__(self, call: Call, call_next: Walk) -> Result:
        kept = () if self.before is None else (self.before(call),)
        result = None
        if self.inside is not None:
            self.inside.running += 1
        try:
            result = await call_next(call)
        finally:
            if self.inside is not None:
                self.inside.running -= 1
            if (busy := self.after(call, result, *kept)) is not None:
                await busy
        return result


class Gate(Protocol):
    """So many calls at a time: who finds fewer ``running`` than ``most`` may add himself to them.
    When the call is over he takes himself out, or one of those ``waiting`` steps in: ``hand_on``.
    """

    running: int
    most: int

    @property
    def waiting(self) -> Sized: ...

    def hand_on(self) -> None: ...


class Behind(msgspec.Struct, frozen=True):
    """The neighbour inside of a step, if it is a gate and no more: its name, and what is inside of
    it. A step that finds the gate open may see a call through it in its place.
    """

    name: str
    gate: Gate
    inner: Walk


class Around(msgspec.Struct, frozen=True):
    """A guard's ring that is a step of the road itself, at half the price: ``around(inner, failed,
    behind)`` makes it. Such a step puts its name into the trail, leaves the arguments alone, and
    raises nothing but a cancellation: ``failed(call, exc)`` makes the result of a refusal.
    ``gate``: it does nothing but to wait for this, and to leave it. ``brief``: once the tool has
    run it takes no time that anybody could notice.
    """

    around: Callable[[Walk, Callable[[Call, Exception], Result], Behind | None], Walk]
    gate: Gate | None = None
    brief: bool = False

    async def __call__(self, call: Call, call_next: Walk) -> Result:
        return await self.around(call_next, _raised, None)(call)


def _raised(call: Call, exc: Exception) -> Result:
    raise exc


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether something can do its work, and if not, why. ``error`` of something healthy says what
    is worth knowing of it all the same.
    """

    healthy: bool
    error: str | None = None


@runtime_checkable
class Registered(Protocol):
    """A tool with code behind it: its spec, and the object that the spec's backend understands."""

    @property
    def spec(self) -> ToolSpec: ...


class Declared(msgspec.Struct, frozen=True):
    """A tool that a file declares; modules and programs it names are looked up in ``folder``."""

    spec: ToolSpec
    folder: str


Tell = Callable[[int, int], None]
"""How far a long load is: so many done, of so many."""


class Source(Protocol):
    """Where specs come from; ``changes`` yields whenever loading again may give something else."""

    async def load(self, tell: Tell) -> Iterable[ToolSpec | Registered]: ...

    def changes(self) -> AsyncIterator[None]: ...


@runtime_checkable
class KeepsNames(Protocol):
    """A source that makes names may also be told those that the lock file has for its tools, each
    with the tool's binding, before it is loaded: so that a newcomer does not take one of them.
    """

    def keep_names(self, pinned: Mapping[str, Mapping[str, Any]]) -> None: ...


class Road(Protocol):
    """What a ring may use to start a walk of its own: a fallback, an approver's edit.

    ``bound`` tells the spec behind a name, as it would be called now, and what runs it; of a name
    that no tool has, that of ``unknown``.
    """

    async def rewalk(
        self,
        call: Call,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        grant: str | None = None,
    ) -> Result: ...

    def bound(self, name: str) -> Ready: ...


class Ready(Registered, Protocol):
    """A tool as it would be called now; without a handle, it cannot be."""

    @property
    def handle(self) -> Handle | None: ...


class Extension(Protocol):
    """Puts a ring around the calls of one tool, or ``None`` if it has nothing to do there."""

    @property
    def name(self) -> str: ...

    def bind(self, spec: ToolSpec, road: Road) -> Ring | None: ...


@runtime_checkable
class Divided(Protocol):
    """An extension may stand at several places of a list: ``name`` is itself, and ``name.part`` is
    the part of it that it has under that name.
    """

    @property
    def parts(self) -> Mapping[str, Extension]: ...


@runtime_checkable
class Sees(Protocol):
    """An extension may also say whether a caller may know that a tool exists."""

    def sees(self, caller: Caller, spec: ToolSpec) -> bool: ...


@runtime_checkable
class Hides(Protocol):
    """One that sees may also say from which tools it keeps nobody: their calls do not ask it."""

    def hides(self, spec: ToolSpec) -> bool: ...


@runtime_checkable
class Vouches(Protocol):
    """A guard may vouch that arguments of a tool which it let pass, and of which it put nothing
    into the trail, hold no name and no text that redaction would take out of them.
    """

    def vouches(self, spec: ToolSpec) -> bool: ...


@runtime_checkable
class Hears(Protocol):
    """A guard may also hear of calls whose arguments end them before it: it returns the result
    as the caller gets it, or raises to refuse the call in its own words.
    """

    def hears(self, call: Call, result: Result) -> Result: ...


@runtime_checkable
class Tells(Protocol):
    """An extension may also have the last word on what a result says beside its output: its error
    and its warnings, whatever became of the call.
    """

    def tells(self, result: Result) -> Result: ...


@runtime_checkable
class Keeps(Protocol):
    """An extension may also keep what is large of a result, of which ``call.about.size`` tells: it
    returns the result as the caller gets it.
    """

    async def keeps(self, call: Call, result: Result) -> Result: ...


class Handle(Protocol):
    """One tool, ready to run: returns plain JSON data or ``Output``, or raises."""

    async def run(self, call: Call) -> Any: ...

    async def health(self) -> Health: ...

    async def close(self) -> None: ...


@runtime_checkable
class Plans(Protocol):
    """A handle may also say what a call would do, for a dry run; it raises what the call would, so
    that nobody is asked about a call that cannot be.
    """

    def plan(self, call: Call) -> Mapping[str, Any]: ...


@runtime_checkable
class HasCode(Protocol):
    """A handle may also tell the digest of the file with the code that a call would run, ``None``
    where there is no file; it then refuses a call whose ``code`` is another one.
    """

    def code(self, call: Call) -> str | None: ...


@runtime_checkable
class KnowsCode(Protocol):
    """A backend may also tell the digest of the file with the code of a tool, for the lock file:
    ``None`` where there is none, or where it belongs to this machine and not to the tool.
    """

    def code_of(self, spec: ToolSpec, target: object | None) -> str | None: ...


class Confines(Protocol):
    """Starts programs that can do what their confinement grants and no more; ``check`` names what
    is missing where that cannot be had, ``exceeded`` the bounds that a program met, ``about`` what
    confines here.
    """

    @property
    def about(self) -> Mapping[str, Any]: ...

    def check(self, confinement: Any) -> None: ...

    async def spawn(
        self,
        argv: Sequence[str],
        confinement: Any,
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        on_stdout: Hearer | None = None,
        on_stderr: Hearer | None = None,
        pass_fds: Sequence[int] | Mapping[int, int] = (),
    ) -> Child: ...

    def exceeded(self, child: Child) -> Sequence[str]: ...


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a running tool wants to know of its caller: values that fit a schema, or that somebody
    has been to a page. Its words are a stranger's.
    """

    message: str
    schema: Mapping[str, Any] | None = None
    url: str | None = None
    name: str | None = None
    """What whoever asks calls it."""


class Answer(msgspec.Struct, frozen=True):
    """``accept``, with the values; ``decline``: no; ``cancel``: nobody has answered."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@runtime_checkable
class Elicits(Protocol):
    """Puts the question of a running tool to who called it: ``provide={Elicits: ask}``."""

    async def __call__(self, call: Call, question: Question) -> Answer: ...


class Home(msgspec.Struct, frozen=True):
    """The folder of the config, for a backend whose settings name files: among what is provided."""

    folder: Path


class Services(msgspec.Struct, frozen=True):
    """What a backend may need from its surroundings: live objects by type, secrets by name, and
    the config's settings by kind.
    """

    provide: Mapping[type, object] = {}
    secret: Callable[[str], str | None] = secret
    settings: Mapping[str, Mapping[str, Any]] = {}


class Secrets:
    """Secrets by their names, for a tool whose settings say which it needs: ``Injected[Secrets]``.
    One that needs always the same says ``Secret(name)``.
    """

    def __init__(self, look_up: Callable[[str], str | None]) -> None:
        self._look_up = look_up

    def __call__(self, name: str) -> str | None:
        return self._look_up(name)


class Backend(Protocol):
    """Runs one kind of tool; ``target`` is the live object behind a tool registered in code.

    Its class may have a function ``verify(spec)``: it refuses, as an ``InvalidSpec`` that knows its
    place, what can be seen to be wrong with a binding while the spec is being loaded.
    """

    def bind(self, spec: ToolSpec, target: object | None) -> Handle: ...

    async def close(self) -> None: ...


class Parcel(msgspec.Struct, frozen=True):
    """One attempt of a job that is to be run elsewhere: in the metadata of its call, by ``PARCEL``.
    ``timeout``: seconds that its run may take, once it has begun.
    """

    name: str
    timeout: float | None = None


PARCEL = "toolpost.parcel"


@runtime_checkable
class Carries(Protocol):
    """A backend may hand jobs over to those who run its tools: they are seen through, whoever asked
    for them ends meanwhile. A call that has a ``Parcel`` is run so.

    ``collect`` waits for what came of a parcel that somebody handed over; ``recall`` stops one.
    Both say ``None`` if it has not begun, and by then it never will.
    """

    def carries(self, spec: ToolSpec) -> bool: ...

    async def collect(
        self, parcel: str, on_progress: Callable[[Progress], None] | None
    ) -> Result | None: ...

    async def recall(self, parcel: str) -> Result | None: ...


@runtime_checkable
class Draws(Protocol):
    """A source may draw its tools from a backend, which has the connections: before the first load
    it is told how to get at one, by its kind.
    """

    def draw(self, backend: Callable[[str], Backend]) -> None: ...


@runtime_checkable
class Authenticates(Protocol):
    """A source may have to prove who asks: before the first load it is told how to get at secrets,
    by their names.
    """

    def authenticate(self, secret: Callable[[str], str | None]) -> None: ...


@runtime_checkable
class Dispensable(Protocol):
    """A source may be one that the others can do without: unless it is ``required``, what keeps it
    from being loaded is a problem, and no reason not to start.
    """

    @property
    def required(self) -> bool: ...


class Record(msgspec.Struct, frozen=True):
    """A value under a key, and the version that a writer has to name to replace it."""

    value: Any
    version: int


class Records(Protocol):
    """Small shared state: JSON values by space and key, replaced only by who knows the version.

    ``put`` with ``version=0`` creates, with a version replaces that one, with ``None`` writes in
    any case; the value ``None`` deletes. It returns the new version, or ``None`` if somebody else
    was first. A version is never used twice. What has outlived its ``ttl`` (seconds) is not there
    any more.
    """

    async def get(self, space: str, key: str) -> Record | None: ...

    async def put(
        self,
        space: str,
        key: str,
        value: Any,
        *,
        version: int | None = None,
        ttl: float | None = None,
    ) -> int | None: ...

    async def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> Sequence[tuple[str, Record]]: ...


class Line(msgspec.Struct, frozen=True):
    """One line of a journal: its writer numbers the lines, from 1 or above and upwards."""

    writer: str
    number: int
    body: bytes
    position: int = 0
    """Where it stands in the journal as a whole, given by the journal."""


class Journal(Protocol):
    """Lines that are only ever added. ``append`` returns when they are on the disk."""

    async def append(self, lines: Sequence[Line]) -> None: ...

    async def read(
        self, *, after: int = 0, limit: int = 1000, writer: str | None = None
    ) -> Sequence[Line]: ...

    async def head(self, writer: str) -> Line | None: ...


@runtime_checkable
class Prunes(Protocol):
    """A journal that can drop the lines of a writer that are numbered below ``before``."""

    async def prune(self, writer: str, *, before: int) -> None: ...


class Store(Records, Journal, Protocol):
    """Records and a journal in one place; ``open`` makes it ready, and may be called again."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """The time, so that tests can move it."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


Mode = Literal["strict", "standard", "permissive"]


class Surroundings(msgspec.Struct, frozen=True):
    """What an extension may need when it is made."""

    records: Records
    journal: Journal
    clock: Clock
    base: Path
    """The folder of the config."""
    state: Path
    """The folder for what is kept: ``.toolpost``."""
    mode: Mode
    secret: Callable[[str], str | None]


Gauges = Mapping[str, tuple[str, Mapping[str, float]]]
"""Metric → (the name of its label or "", the label's value → the number)."""


@runtime_checkable
class Gauged(Protocol):
    """An extension or a backend may tell how things stand right now, for the metrics."""

    def gauges(self) -> Gauges: ...


@runtime_checkable
class Surveys(Protocol):
    """One that is gauged may first have to look at what is kept elsewhere, before it can tell."""

    async def survey(self) -> None: ...


@runtime_checkable
class Lined(Protocol):
    """A road that shows what stands along it: whoever is ``Gauged`` is found there."""

    @property
    def observers(self) -> Sequence[Extension]: ...

    @property
    def guards(self) -> Sequence[Extension]: ...

    @property
    def backends(self) -> object: ...


@runtime_checkable
class Complains(Protocol):
    """An extension or a backend may say what is wrong with it right now: a file that it cannot read
    any more, a bus that was lost.
    """

    @property
    def problem(self) -> str | None: ...


@runtime_checkable
class Opens(Protocol):
    """Anything that has to be made ready before the first call."""

    async def open(self) -> None: ...


@runtime_checkable
class Closes(Protocol):
    """Anything that holds something open."""

    async def close(self) -> None: ...
