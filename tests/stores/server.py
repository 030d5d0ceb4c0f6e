"""A PostgreSQL server of our own, for as long as a test module runs; never as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

LIMIT = 60


class Server:
    """Listens on a socket in its own folder and nowhere else."""

    def __init__(self, programs: Path, folder: Path, user: list[str]) -> None:
        self.programs, self.folder, self.user = programs, folder, user
        self.dsn = f"postgresql://toolpost@/postgres?host={folder}"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def make(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "toolpost", "-A", "trust", "-N")

    def start(self) -> None:
        settings = ("-k", str(self.folder), "-c", "listen_addresses=", "-c", "shared_buffers=16MB")
        program = (str(self.programs / "postgres"), "-D", str(self.folder / "data"), *settings)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # it ends with us, even if we are killed
                ["setpriv", *self.user, "--pdeathsig", "INT", *program],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        end = time.monotonic() + LIMIT
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > end:
                raise RuntimeError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT)
            self._process = None

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Every process of it stands still: connections stay open, and nothing is answered."""
        assert self._process is not None
        above = psutil.Process(self._process.pid)
        stopped = [above, *above.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()

    def database(self) -> str:
        """The DSN of an empty database."""
        self._databases += 1
        name = f"test{os.getpid()}_{self._databases}"
        self._run("createdb", "-h", str(self.folder), "-U", "toolpost", name)
        return self.dsn.replace("/postgres?", f"/{name}?")

    def _answers(self) -> bool:
        tried = [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder)]
        return subprocess.run(tried, timeout=LIMIT).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = ["setpriv", *self.user, str(self.programs / program), *arguments]
        done = subprocess.run(
            command, cwd="/", timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")


def running_server() -> Iterator[Server]:
    """For ``pytest.fixture``: a server with an empty cluster, or a skip that says why not."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="toolpost-pg-"))
    user = []
    if os.geteuid() == 0:
        account = _account()
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    server = Server(programs, folder, user)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _programs() -> Path:
    """Debian keeps the server's programs out of the path."""
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv (util-linux)")
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: p.parts[-3])
    if not versions:
        pytest.skip("PostgreSQL is not installed; as root, .ci/system-packages installs it")
    return versions[-1].parent


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("there is no account that the server could run under")
