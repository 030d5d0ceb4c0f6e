"""The far side of ``pool.py``: a warm process that runs one call after the other.

Above: ``pool.py`` starts this file by its path and speaks to it over a socket pair, in frames
of four bytes of length and as many of JSON. Below: the tools' modules, by name. It imports the
standard library only, and little of it, so that a worker is warm soon and a tool pays for what the
tool imports; ``far.py`` comes in for the first tool whose signature is to be followed.

To us:    [number, key, null, null, target] to load it, then any count of
          [number, key, arguments, context or null, null] to call it
From us:  [0, "ready", null], then for each call any count of [number, "event", {…}],
          one of [number, "ok", value], [number, "output", {…}] or [number, "error", {…}],
          and perhaps [number, "retire", null]: replace me. Before the answer if a process or
          a file of its own was left or memory ran out; after it, which need not wait, if memory
          grew too far.
"""

from __future__ import annotations

import _thread
import builtins
import ctypes
import errno
import json
import os
import resource
import site
import sys
import types
from importlib import import_module
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 16 * 1024
_LOG_EVENTS = 1000
_LOG_TEXT = 8 * 1024
_MARGIN = 4096  # more of it, so that the other side finds a secret before it cuts
_TRACEBACK = 64 * 1024
_LOOK_AT_MEMORY_EVERY = 64

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode


_WORDS = {None: b"null", True: b"true", False: b"false"}


class Wire:
    """Our end of the socket pair. Threads of a tool may send; a forked child may not."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.fd = fd
        self.lock = _thread.allocate_lock()
        os.register_at_fork(after_in_child=self.abandon)

    def abandon(self) -> None:
        os.close(self.fd)
        self.fd = -1
        self.lock = _thread.allocate_lock()

    def receive(self) -> Any:
        """The next request, or None when the other side has closed."""
        data = os.read(self.fd, _CHUNK)
        while data and len(data) < 4:
            data += os.read(self.fd, _CHUNK)
        if not data:
            return None
        size = int.from_bytes(data[:4], "big") + 4
        if len(data) < size:
            buffer = bytearray(data)
            while len(buffer) < size:
                more = os.read(self.fd, min(size - len(buffer), 1 << 20))
                if not more:
                    return None
                buffer += more
            data = bytes(buffer)
        return _decode(data[4:].decode())[0]

    def send(self, body: bytes) -> None:
        frame = len(body).to_bytes(4, "big") + body
        with self.lock:
            if self.fd < 0:
                return
            sent = os.write(self.fd, frame)
            while sent < len(frame):
                sent += os.write(self.fd, memoryview(frame)[sent:])


class Importer:
    """Finds functions by reference, each with the search path it was declared with.

    Two spec files in two folders may each have a ``tools.py`` beside them. When the search path
    changes, the modules found under the old one are put on a shelf, and those of the new one
    come back from theirs: each sees its own neighbours, also in an import made during a call.
    """

    def __init__(self, base: list[str]) -> None:
        self.base = base
        self.path: list[str] = []
        self.shelf: dict[tuple[str, ...], dict[str, types.ModuleType]] = {}
        self.main: dict[str, types.ModuleType] = {}

    def use(self, path: list[str]) -> None:
        own = [folder + "/" for folder in self.path if folder not in self.base]
        shelf = self.shelf[tuple(self.path)] = {}
        for name, module in list(sys.modules.items()) if own else ():
            file = getattr(module, "__file__", None) or ""
            place = name.replace(".", "/")
            if any(file.startswith(folder + place) for folder in own):
                shelf[name] = sys.modules.pop(name)
        sys.modules.update(self.shelf.get(tuple(path), {}))
        sys.path[:] = [*path, *(folder for folder in self.base if folder not in path)]
        self.path = path

    def find(self, target: dict[str, Any]) -> Any:
        found: Any
        if target["main_path"] is not None:
            found = self.run_main(target["main_path"])
        else:
            found = import_module(target["module"])
        for name in target["qualname"].split("."):
            found = getattr(found, name)
        return found

    def run_main(self, path: str) -> types.ModuleType:
        """Load the parent's script under another name, so that its main block does not run."""
        if path not in self.main:
            module = types.ModuleType("__mp_main__")
            module.__file__ = path
            code = SourceFileLoader("__mp_main__", path).get_code("__mp_main__")
            assert code is not None
            sys.modules["__main__"] = sys.modules["__mp_main__"] = module
            module.__dict__["__toolpost_loading__"] = True
            exec(code, module.__dict__)  # noqa: S102 - the parent's own script
            del module.__dict__["__toolpost_loading__"]
            self.main[path] = module
        return self.main[path]


class Server:
    """Takes requests from the wire, one at a time, until the wire closes."""

    def __init__(
        self, wire: Wire, *, scratch: list[str], max_output: int, growth: int, base: list[str]
    ) -> None:
        self.wire = wire
        self.scratch = scratch
        self.found = self.lying_about()
        self.pid = os.getpid()
        self.max_output = max_output
        self.growth = growth
        self.importer = Importer(base)
        self.targets: dict[int, dict[str, Any]] = {}
        self.functions: dict[int, Callable[..., Any]] = {}
        self.number = 0
        self.calls = 0
        self.logged = 0
        self.handler: Any = None
        self.loop: Any = None
        self.worn = False
        self.folder = os.getcwd()  # noqa: PTH109 - pathlib is slow to import
        self.environment = dict(os.environ)
        self.raw = _raw(os.environ).copy()
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.start = resident()

    def serve(self) -> None:
        receive, send = self.wire.receive, self.wire.send
        while (request := receive()) is not None:
            self.number = number = request[0]
            self.logged = 0
            try:
                body = self.answer(*request)
            except MemoryError:
                self.worn = True
                body = b'[%d,"error",{"kind":"memory"}]' % number
            if os.getpid() != self.pid:
                os._exit(0)  # the tool forked and let its child come back: it has no business here
            if self.worn or has_children() or self.has_littered():
                send(b'[%d,"retire",null]' % number)
            self.number = 0
            send(body)
            if self.has_grown():
                send(b'[%d,"retire",null]' % number)
            self.tidy()

    def lying_about(self) -> list[list[str]]:
        """What is in the folders that nobody else sees: the next call shall find no more there."""
        return [sorted(os.listdir(folder)) for folder in self.scratch]  # noqa: PTH208 - as below

    def has_littered(self) -> bool:
        try:
            return self.lying_about() != self.found
        except OSError:
            return True  # it has locked us out

    def tidy(self) -> None:
        """What a call changed of the process is not there for the next one."""
        try:
            moved = os.getcwd() != self.folder  # noqa: PTH109 - pathlib is slow to import
        except OSError:
            moved = True
        if moved:
            os.chdir(self.folder)
        if _raw(os.environ) != self.raw:
            os.environ.clear()
            os.environ.update(self.environment)

    def answer(
        self, number: int, key: int, arguments: dict[str, Any] | None, context: Any, target: Any
    ) -> bytes:
        target = self.targets.setdefault(key, target)
        try:
            if self.importer.path != target["path"]:
                self.importer.use(target["path"])
            function = self.functions.get(key) or self.load(key, target)
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is the answer
            return to_bytes([number, "error", self.describe(error, "import")])
        if arguments is None:
            return b'[%d,"ok",null]' % number
        try:
            if target["described"]:
                value = self.follow(function, number, context or {}, arguments)
            else:
                value = function(**arguments)
                if hasattr(value, "__await__"):
                    value = self.wait_for(value)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises is the answer
            return to_bytes([number, "error", self.describe(error, "call")])
        flush()
        return self.encode(number, value)

    def follow(
        self, tool: Any, number: int, context: dict[str, Any], arguments: dict[str, Any]
    ) -> Any:
        """Call a function as its signature says, and make data of what it returns."""

        def send(event: dict[str, Any]) -> None:
            self.wire.send(to_bytes([number, "event", event]))

        value = tool.function.call(tool.call(context, arguments, send))
        if hasattr(value, "__await__"):
            value = self.wait_for(value)
        return tool.function.finish(value)

    def encode(self, number: int, value: Any) -> bytes:
        try:
            if type(value) is int:  # the usual small answers, without the encoder's preparations
                return b'[%d,"ok",%d]' % (number, value)
            if value is None or value is True or value is False:
                return b'[%d,"ok",%s]' % (number, _WORDS[value])
            result = sys.modules.get("toolpost.result")
            if result is not None and type(value) is result.Output:
                body = to_bytes([number, "output", result.msgspec.to_builtins(value)])
            else:
                body = to_bytes([number, "ok", value])
        except (TypeError, ValueError, RecursionError) as error:
            fault = {"kind": "output", "message": text_of(error)}
            return to_bytes([number, "error", fault])
        if len(body) > self.max_output:
            self.worn = True
            return to_bytes([number, "error", {"kind": "size"}])
        return body

    def load(self, key: int, target: dict[str, Any]) -> Callable[..., Any]:
        found = self.importer.find(target)
        is_function = isinstance(found, types.FunctionType)
        function: Any = found if is_function else getattr(found, "function", found)
        if not callable(function):
            raise TypeError(f"{target['module']}.{target['qualname']} is not a function")
        if target["described"]:
            from toolpost.backends.python.far import FarTool  # heavy: see above

            function = FarTool(found, mapping=target["mapping"], spec=target["spec"])
        if self.handler is None and "logging" in sys.modules:
            self.handler = forward_logging(self.log)
        self.found = self.lying_about()  # what a module keeps there is there to stay
        self.functions[key] = function
        return self.functions[key]

    def wait_for(self, value: Any) -> Any:
        """Run an awaitable on the one loop that all calls share; its stray tasks end with it."""
        import asyncio  # heavy: only workers of async tools pay for it

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)

        async def wait() -> Any:
            return await value

        try:
            return self.loop.run_until_complete(wait())
        finally:
            stray = asyncio.all_tasks(self.loop)
            if stray:
                for task in stray:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(stray))

    def describe(self, error: BaseException, kind: str) -> dict[str, Any]:
        import traceback  # heavy, and only failures need it

        flush()
        text = "".join(traceback.format_exception(error))[-_TRACEBACK:]
        described: dict[str, Any] = {
            "kind": "memory" if (bound := bound_of(error)) == "memory" else kind,
            "bound": bound,
            "type": type(error).__name__,
            "message": text_of(error),
            "bases": [base.__name__ for base in type(error).__mro__][:20],
            "traceback": text,
        }
        errors = sys.modules.get("toolpost.errors")
        if errors is not None and isinstance(error, errors.SetupError):
            described["setup"] = text_of(error)
        if errors is not None and isinstance(error, errors.CallError):
            described["call_error"] = {
                "code": error.code,
                "message": text_of(error),
                "retryable": error.retryable,
                "retry_after": error.retry_after,
                "remedy": error.remedy,
                "effects": error.of_a_run().effects,
                "details": plain_details(error.details),
            }
        return described

    def log(self, record: Any) -> None:
        """A log record of the tool's becomes an event; too many of them become silence."""
        self.logged += 1
        if self.number == 0 or self.logged > _LOG_EVENTS:
            return
        event = {
            "type": "log",
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage()[: _LOG_TEXT + _MARGIN],
        }
        self.wire.send(to_bytes([self.number, "event", event]))

    def has_grown(self) -> bool:
        """True if the calls have left too much memory taken; looks only when there is cause."""
        self.calls += 1
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if peak > self.peak or self.calls % _LOOK_AT_MEMORY_EVERY == 0:
            self.peak = peak
            return resident() - self.start > self.growth
        return False


def _raw(environment: Any) -> dict[Any, Any]:
    """The variables as they are kept: to decode each of them would take longer than a call."""
    return getattr(environment, "_data", environment)  # type: ignore[no-any-return]


def has_children() -> bool:
    """True if the call left a process behind; as a subreaper we inherit the detached ones."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def to_bytes(frame: list[Any]) -> bytes:
    """Text that is half a surrogate pair is no text: it is refused like anything else not JSON."""
    return _encode(frame).encode()


def resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # a sandbox may hide it: then what it was at most will do
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - on the way of every call, and suppress() is slow
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the tool closed or replaced it: its business
            pass


def bound_of(error: BaseException) -> str | None:
    """What there was no more of, as far as it can be told from here."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "memory"
    if isinstance(error, RuntimeError):
        return "processes" if "can't start new thread" in text_of(error) else None
    return "processes" if number == errno.EAGAIN and started_one(error) else None


def started_one(error: BaseException) -> bool:
    """Whether it comes from where a process is started: whoever reads what is not there yet is told
    to try again with the same number.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    names = () if trace is None else trace.tb_frame.f_code.co_names
    return any("fork" in name or "spawn" in name for name in names)


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:_LOG_TEXT]
    except Exception:  # noqa: BLE001 - __str__ is the tool's code
        return type(error).__name__


def plain_details(details: Any) -> Any:
    try:
        return json.loads(_encode(dict(details))) if details is not None else None
    except (TypeError, ValueError, RecursionError):
        return None  # not JSON: it cannot cross, the message can


def forward_logging(log: Callable[[Any], None]) -> Any:
    import logging  # only once the tool's own modules have brought it in

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                log(record)
            except Exception:  # noqa: BLE001 - as every handler: logging never breaks the tool
                self.handleError(record)

    handler = Forward()
    logging.root.addHandler(handler)
    if logging.root.level == logging.WARNING:
        logging.root.setLevel(logging.INFO)
    return handler


def main(argv: list[str]) -> None:
    """Become an ordinary interpreter (site, path), then serve."""
    wire = Wire(int(argv[1]))
    ctypes.PyDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    site.main()
    scratch = argv[2].split(":") if argv[2] else []
    path = argv[5:]
    base = [*path, *(folder for folder in sys.path if folder not in path)]
    sys.path[:] = base
    sys.argv = [""]
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    server = Server(wire, scratch=scratch, max_output=int(argv[3]), growth=int(argv[4]), base=base)
    wire.send(b'[0,"ready",null]')
    server.serve()


if __name__ == "__main__":
    main(sys.argv)
