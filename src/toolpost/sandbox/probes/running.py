"""Runs the attacks against a sandbox, with something to be got at the end of each.

Above: ``toolpost doctor`` and the tests. Below: a sandbox, used as a tool's backend uses it. It
refuses to explain a failure away: an attack that does not say that it was blocked was not blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolpost.errors import MissingPart
from toolpost.process import Child
from toolpost.sandbox import view
from toolpost.sandbox.confinement import Confinement
from toolpost.sandbox.probes._attacks import ATTACKS
from toolpost.sandbox.sandbox import Sandbox

_SOURCE: Final = Path(__file__).with_name("_attacks.py")
_PATIENCE: Final = 60.0
_VARIABLE: Final = "TOOLPOST_PROBE_SECRET"
_MIB: Final = 1024 * 1024
_DIES: Final = frozenset(name for name in ATTACKS if name.startswith("take_"))
"""To be killed is an answer where memory is what is attacked."""
_ALONE: Final = _DIES | {
    "fill_the_shared_memory",
    "fill_the_temporary_folder",
    "fork_without_end",
    "open_files_without_end",
}
"""What uses things up has a sandbox to itself."""
_WATCHED: Final = frozenset(name for name in ATTACKS if name.endswith("_who_watches"))
"""In a sandbox that has waited somebody else watches than in one made for the call."""
_NESTED: Final = frozenset(name for name in ATTACKS if "read_only_folder" in name)
"""Their workspace has something in it that is only to be read."""
_NEEDS_GROUP: Final = frozenset(("take_all_memory_with_children",))
_IPC_RMID: Final = 0


class Probed(NamedTuple):
    """One attack, and how it went."""

    name: str
    blocked: bool
    detail: str


async def probe(sandbox: Sandbox, names: Iterable[str] = ()) -> list[Probed]:
    """Try every attack, or those named, from inside; what only a cgroup stops needs a cgroup."""
    wanted = tuple(names) or tuple(ATTACKS)
    if "cgroup" not in sandbox.about["layers"]:
        wanted = tuple(name for name in wanted if name not in _NEEDS_GROUP)
    together = [name for name in wanted if name not in _ALONE | _NESTED]
    nested = [name for name in wanted if name in _NESTED]
    found: dict[str, Probed] = {}
    with baited() as targets:
        for some in (together, nested, *([name] for name in wanted if name in _ALONE)):
            if some:
                found |= await _attacked(sandbox, some, targets)
        if watched := [name for name in wanted if name in _WATCHED]:
            await sandbox.warm_up(_confinement(targets))
            again = await _attacked(sandbox, watched, targets)
            found |= {name: one for name, one in again.items() if not one.blocked}
    return [found[name] for name in wanted]


async def _attacked(
    sandbox: Sandbox, names: Sequence[str], targets: dict[str, Any]
) -> dict[str, Probed]:
    furnish(targets)
    nested = _NESTED.issuperset(names)
    read = (targets["kept"],) if nested else ()
    try:
        child = await sandbox.spawn(command(names, targets), _confinement(targets, read=read))
    except MissingPart as refusal:
        if not nested:
            raise
        return {name: Probed(name, True, f"refused: {refusal}") for name in names}
    try:
        async with asyncio.timeout(_PATIENCE):
            await child.wait()
    finally:
        await child.kill()
    assert child.stdout is not None
    said = dict(line.split(" ", 1) for line in child.stdout.tail.decode().splitlines())
    return {name: _judged(name, said.get(name, ""), child) for name in names}


def _confinement(targets: dict[str, Any], read: tuple[str, ...] = ()) -> Confinement:
    return Confinement(
        read=read, write=(targets["workspace"],), memory=160 * _MIB, file_size=16 * _MIB
    )


def furnish(targets: dict[str, Any]) -> None:
    """An empty workspace, but for a link that leads out of it and a folder to be kept."""
    workspace, kept = Path(targets["workspace"]), Path(targets["kept"])
    for left in workspace.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
    (workspace / "laid").symlink_to(targets["secret"])
    kept.mkdir(parents=True)
    (kept / "file").touch()


def command(names: Iterable[str], targets: dict[str, Any]) -> list[str]:
    """How attacks are run, inside or outside."""
    source = _SOURCE.read_text(encoding="utf-8")
    return [view.interpreter()[0], "-I", "-S", "-c", source, ",".join(names), json.dumps(targets)]


def _judged(name: str, said: str, child: Child) -> Probed:
    verdict, _, detail = said.partition(": ")
    if verdict in ("blocked", "escaped"):
        return Probed(name, verdict == "blocked", detail)
    ending = child.exited.result()
    died = ending.signal == signal.SIGKILL or ending.code == 128 + signal.SIGKILL
    if name in _DIES and (died or detail == str(-signal.SIGKILL)):
        return Probed(name, True, "it was killed")
    trouble = child.stderr.tail.decode(errors="replace").strip()[-300:] if child.stderr else ""
    return Probed(name, False, f"it did not say ({said or ending}): {trouble}")


@contextlib.contextmanager
def baited() -> Iterator[dict[str, Any]]:
    """What there is to get on the host: files, sockets, a process, a descriptor, memory."""
    with contextlib.ExitStack() as stack:
        base = Path(os.path.realpath(stack.enter_context(tempfile.TemporaryDirectory())))
        base.chmod(0o755)
        outside = base / "outside"
        outside.mkdir(mode=0o755)
        workspace = base / "workspace"
        workspace.mkdir()
        workspace.chmod(0o777)  # nobody else gets this far, and a tool may be of another user
        secret = outside / "secret"
        secret.write_text("secret")
        leak = os.open(secret, os.O_RDONLY)
        os.set_inheritable(leak, True)
        stack.callback(os.close, leak)
        targets = {
            "secret": str(secret),
            "workspace": str(workspace),
            "kept": str(workspace / "above" / "kept"),
            "home": str(Path.home()),
            "parent": os.getpid(),
            "victim": stack.enter_context(_victim()),
            **stack.enter_context(_shared_memory()),
            "variable": _VARIABLE,
            "nameserver": "192.0.2.53",
            "leak": leak,
        }
        yield targets | stack.enter_context(_listening(base))


@contextlib.contextmanager
def _victim() -> Iterator[int]:
    """A process of the same user, with a secret in its environment."""
    argv = [view.interpreter()[0], "-I", "-S", "-c", "import signal; signal.pause()"]
    victim = subprocess.Popen(argv, env={_VARIABLE: "secret"})  # noqa: S603 - our own program
    try:
        yield victim.pid
    finally:
        victim.kill()
        victim.wait()


@contextlib.contextmanager
def _shared_memory() -> Iterator[dict[str, int]]:
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(2**30) + 1
    found = libc.shmget(key, 4096, 0o1000 | 0o666)
    try:
        yield {"shared_memory": key, "shared_memory_id": found}
    finally:
        libc.shmctl(found, _IPC_RMID, None)


@contextlib.contextmanager
def _listening(base: Path) -> Iterator[dict[str, Any]]:
    """Sockets of every kind that answer if they are reached."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tcp6 = None
        with contextlib.suppress(OSError):  # not everybody has IPv6
            tcp6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
            stack.enter_context(tcp6)
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(str(base / "socket"))
        (base / "socket").chmod(0o666)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"toolpost-probe-{secrets.token_hex(8)}"
        abstract.bind("\0" + name)
        for listener in (named, abstract):
            listener.listen()
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_echo, args=[udp], daemon=True).start()
        yield {
            "tcp": tcp.getsockname()[1],
            "tcp6": tcp6 and tcp6.getsockname()[1],
            "udp": udp.getsockname()[1],
            "unix": str(base / "socket"),
            "abstract": name,
        }
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", udp.getsockname())


def _echo(udp: socket.socket) -> None:
    """Answer until an empty datagram comes, or nobody listens any more."""
    while True:
        try:
            said, whom = udp.recvfrom(64)
        except OSError:
            return
        if not said:
            return
        udp.sendto(said, whom)
