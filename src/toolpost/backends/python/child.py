"""The far side of ``pool.py``: a warm process that runs one call after the other.

Above: ``pool.py`` starts this file by its path and speaks to it over a socket pair, in frames
of four bytes of length and as many of JSON. Below: the tools' modules, by name. It imports the
standard library only, and little of it, so that a worker is warm soon and a tool pays for what the
tool imports; ``far.py`` comes in for the first tool whose signature is to be followed.

To us:    [number, key, null, null, target] to load it, then any count of
          [number, key, arguments, context or null, null] to call it
          and, to a template, [number, -1, null, null, null] with a descriptor: see below
From us:  [0, "ready", null], then for each call any count of [number, "event", {…}],
          one of [number, "ok", value], [number, "output", {…}] or [number, "error", {…}],
          and perhaps [number, "retire", null]: replace me. Before the answer if a process or
          a file of its own was left or memory ran out; after it, which need not wait, if memory
          grew too far.

As a template the process only loads functions and never calls one. Asked to, it ends the process
that it forked before, with all that is left of it, and forks another that serves calls on the
socket that came along: ``true`` is the answer. Where a fork would share something with the next
one (threads, open files, shared memory of a module) the answer is ``false``: from then on the
template serves calls itself, and cannot be made new.
"""

from __future__ import annotations

import _socket
import _thread
import builtins
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import site
import sys
import types
from importlib import import_module
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_FORK = -1
"""In the place of a target's key."""
_MOST_SCRATCH = 1000
_CHUNK = 16 * 1024
_LOG_EVENTS = 1000
_LOG_TEXT = 8 * 1024
_MARGIN = 4096  # more of it, so that the other side finds a secret before it cuts
_TRACEBACK = 64 * 1024
_LOOK_AT_MEMORY_EVERY = 64

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode


_WORDS = {None: b"null", True: b"true", False: b"false"}
libc = ctypes.PyDLL(None)


class Wire:
    """Our end of the socket pair. Threads of a tool may send; a forked child may not."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.fd = fd
        self.lock = _thread.allocate_lock()
        os.register_at_fork(after_in_child=self.abandon)

    def abandon(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.lock = _thread.allocate_lock()

    def receive(self, data: bytes = b"") -> Any:
        """The next request, of which ``data`` is there already; None if the other side closed."""
        data = data or os.read(self.fd, _CHUNK)
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


class CodeChanged(Exception):
    """A module is not the one that was approved; ``stale``: it was loaded before."""

    stale = False


class VerifyingLoader(SourceFileLoader):
    """Runs a module if its file has the digest that it must have: of the bytes that are compiled,
    not of a file that may change meanwhile, and not of what was compiled before.
    """

    code = ""

    def get_code(self, fullname: str) -> types.CodeType:
        data = self.get_data(self.path)
        if digest_of(data) != self.code:
            raise CodeChanged(self.path)
        return self.source_to_code(data, self.path)


class VerifyingFinder:
    """Has one module loaded by ``VerifyingLoader``, whoever imports it first."""

    def __init__(self, name: str, code: str) -> None:
        self.name, self.code = name, code

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                break
        else:
            return None
        if isinstance(spec.loader, SourceFileLoader):
            loader = spec.loader = VerifyingLoader(spec.loader.name, spec.loader.path)
            loader.code = self.code
        else:  # compiled code: it is mapped into memory by the system, right after this
            with open(spec.origin, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
                if digest_of(file.read()) != self.code:
                    raise CodeChanged(spec.origin)
        return spec


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
        self.verified: dict[int, tuple[Any, str]] = {}
        """Modules that were loaded from a file with a known digest, by their id."""

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
        code = target.get("code")
        if target["main_path"] is not None:
            found = self.run_main(target["main_path"], code)
        elif code is None:
            found = import_module(target["module"])
        else:
            found = self.import_verified(target["module"], code)
        for name in target["qualname"].split("."):
            found = getattr(found, name)
        return found

    def import_verified(self, name: str, code: str) -> Any:
        """A module whose file has this digest, or ``CodeChanged``."""
        if name not in sys.modules:
            finder: Any = VerifyingFinder(name, code)
            sys.meta_path.insert(0, finder)
            try:
                module = import_module(name)
            finally:
                sys.meta_path.remove(finder)
            self.verified[id(module)] = module, code
        return self.demand_verified(sys.modules[name], code)

    def demand_verified(self, module: Any, code: str) -> Any:
        if self.verified.get(id(module)) != (module, code):
            error = CodeChanged(module.__name__)
            error.stale = True
            raise error
        return module

    def run_main(self, path: str, digest: str | None) -> types.ModuleType:
        """Load the parent's script under another name, so that its main block does not run."""
        if path not in self.main:
            module = types.ModuleType("__mp_main__")
            module.__file__ = path
            loader = SourceFileLoader("__mp_main__", path)
            if digest is not None:
                loader = VerifyingLoader("__mp_main__", path)
                loader.code = digest
                self.verified[id(module)] = module, digest
            code = loader.get_code("__mp_main__")
            assert code is not None
            sys.modules["__main__"] = sys.modules["__mp_main__"] = module
            module.__dict__["__toolpost_loading__"] = True
            exec(code, module.__dict__)  # noqa: S102 - the parent's own script
            del module.__dict__["__toolpost_loading__"]
            self.main[path] = module
        module = self.main[path]
        return module if digest is None else self.demand_verified(module, digest)


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
        if isinstance(error, CodeChanged):
            described |= {"kind": "code", "stale": error.stale}
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


class Template:
    """Loads functions, and has a fork of itself serve the calls of one caller.

    No caller's code runs here, so what is forked is as it was after the imports. It cannot be
    read or changed by what it forked, which has the same user: it is not dumpable.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire = server.wire
        self.talk = _socket.socket(fileno=self.wire.fd)
        self.child = 0
        self.child_fd = -1
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        self.at_start = shared_things()
        self.condition = condition()
        self.memory = shared_memory()
        self.scratch = snapshot(server.scratch)
        self.can_fork = self.at_start is not None

    def serve(self) -> None:
        """Until the other side closes, or the fork ends without being told to."""
        poller = select.poll()
        poller.register(self.wire.fd, select.POLLIN)
        while True:
            if self.child:
                poller.register(self.child_fd, select.POLLIN)
            ready = [number for number, _ in poller.poll()]
            if self.child_fd in ready:
                self.end_alike()
            if self.child:
                poller.unregister(self.child_fd)
            request, given = self.receive()
            if request is None:
                break
            self.drop_child()
            if request[1] != _FORK:
                self.load(request)
            elif not self.can_fork:
                for fd in given:
                    os.close(fd)
                self.wire.send(b'[%d,"ok",false]' % request[0])
                self.server.serve()
                return
            elif self.fork(given) == 0:
                self.server.serve()
                return
            else:
                self.wire.send(b'[%d,"ok",true]' % request[0])
        if self.child:
            os.waitpid(self.child, 0)  # its wire is closed too: it ends in order

    def receive(self) -> tuple[Any, list[int]]:
        """A request, and the descriptors that came with it: a wire, two ends of pipes."""
        space = _socket.CMSG_SPACE(3 * 4)
        data, control, _, _ = self.talk.recvmsg(_CHUNK, space, _socket.MSG_CMSG_CLOEXEC)
        sent = control[0][2] if control else b""
        given = [int.from_bytes(sent[n : n + 4], sys.byteorder) for n in range(0, len(sent), 4)]
        return (self.wire.receive(data) if data else None), given

    def load(self, request: list[Any]) -> None:
        """Import a function; what its module shares with a fork decides how callers are parted."""
        body = self.server.answer(*request)
        gc.freeze()  # a collection in a fork would copy every page that is shared with it
        self.wire.send(body)
        now = shared_things()
        self.can_fork = now is not None and now == self.at_start
        self.scratch = snapshot(self.server.scratch)

    def drop_child(self) -> None:
        """End the fork; if more than that is left of it, end everything, which is begun anew."""
        if not self.child:
            return
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.child_fd)
        self.child, self.child_fd = 0, -1
        reap()
        changed = condition() != self.condition or snapshot(self.server.scratch) != self.scratch
        changed = changed or (bool(self.server.scratch) and shared_memory() != self.memory)
        if has_children() or changed or self.scratch is None:
            os._exit(1)

    def fork(self, given: list[int]) -> int:
        """A process that serves calls on the wire that is given, and prints into the pipes; 0 in
        that process.
        """
        flush()
        pid = os.fork()
        if pid:
            for fd in given:
                os.close(fd)
            self.child, self.child_fd = pid, os.pidfd_open(pid)
            return pid
        self.talk.detach()  # closed already, as every wire of ours is in a fork
        wire, out, err = given
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.setsid()
        if self.server.scratch:  # in a sandbox: a message queue would outlive the fork
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
        for option, value in (
            (_PR_SET_PDEATHSIG, signal.SIGKILL),
            (_PR_SET_CHILD_SUBREAPER, 1),
            (_PR_SET_DUMPABLE, 1),
        ):
            libc.prctl(option, value, 0, 0, 0)
        reseed()
        self.server.wire, self.server.pid = Wire(wire), os.getpid()
        return 0

    def end_alike(self) -> None:
        """The fork has ended by itself, or was killed: how is told by our own end."""
        _, status = os.waitpid(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            if code != -signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_SHARED = (b"rw-s", b"rwxs", b"-w-s")
"""Maps of memory that are written, and by whoever else has them too."""


def link_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - pathlib is slow to import
    except OSError:  # the one that the list was read from
        return ""


def shared_memory() -> list[int]:
    """How many objects of System V there are: shared memory, semaphores, queues of messages."""
    counts: list[int] = []
    for kind in ("shm", "sem", "msg"):
        try:
            with open(f"/proc/sysvipc/{kind}", "rb") as file:  # noqa: PTH123 - as below
                counts.append(sum(1 for _ in file))
        except OSError:
            counts.append(0)
    return counts


def shared_things() -> tuple[Any, ...] | None:
    """What a fork would share with us: threads that it would lack, descriptors and memory that both
    would have; None where that cannot be seen.
    """
    try:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208 - pathlib is slow to import
        descriptors = [(fd, link_of(fd)) for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208 - as above
        with open("/proc/self/maps", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            maps = sum(line.split(None, 2)[1] in _SHARED for line in file)
    except OSError:
        return None
    return len(threads), sorted(one for one in descriptors if one[1]), maps, has_children()


def condition() -> tuple[Any, ...]:
    """What another process of our user can change about us, and a fork would have too."""
    limits = [resource.getrlimit(number) for number in _LIMITS]
    priority = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    return limits, priority, os.sched_getaffinity(0)


def snapshot(folders: list[str]) -> list[Any] | None:
    """Every file in the folders that nobody else sees, and when it was changed; what is mounted
    there is not looked into. None if there are too many.
    """
    found: list[Any] = []
    queue = list(folders)
    while queue:
        folder = queue.pop()
        device = os.stat(folder).st_dev  # noqa: PTH116 - pathlib is slow to import
        with os.scandir(folder) as entries:
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                same = about.st_dev == device
                found.append((entry.path, about.st_ino, same and about.st_ctime_ns))
                if same and entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
                if len(found) > _MOST_SCRATCH:
                    return None
    return sorted(found)


def reap() -> None:
    """Take leave of those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def reseed() -> None:
    """Two forks are not to draw the same numbers; ``random`` sees to that itself."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def _raw(environment: Any) -> dict[Any, Any]:
    """The variables as they are kept: to decode each of them would take longer than a call."""
    return getattr(environment, "_data", environment)  # type: ignore[no-any-return]


def digest_of(data: bytes) -> str:
    import hashlib  # only approved calls need it

    return "sha256:" + hashlib.sha256(data).hexdigest()


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
    if number == errno.EFBIG:
        return "disk"
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
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    site.main()
    scratch = argv[2].split(":") if argv[2] else []
    path = argv[6:]
    base = [*path, *(folder for folder in sys.path if folder not in path)]
    sys.path[:] = base
    sys.argv = [""]
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    server = Server(wire, scratch=scratch, max_output=int(argv[3]), growth=int(argv[4]), base=base)
    serving: Any = Template(server) if argv[5] == "template" else server
    wire.send(b'[0,"ready",null]')
    serving.serve()


if __name__ == "__main__":
    main(sys.argv)
