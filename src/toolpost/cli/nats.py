"""``toolpost nats setup``: keys and permissions for gateways, workers and clients on a bus.

Above: ``main.py``. Below: ``bus/permissions.py``. Nothing that is there is written over.
"""

from __future__ import annotations

import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.bus.permissions import ROLES, server_config
from toolpost.bus.wire import PREFIX, Subjects
from toolpost.cli.options import Asked, json_option, pass_asked
from toolpost.cli.terminal import out, safe
from toolpost.cli.writing import write_new
from toolpost.config import find
from toolpost.errors import ConfigError, MissingPart
from toolpost.seal import open_seal

_SERVER: Final = "nats-server.conf"
_KEYS: Final = ".toolpost/keys"


@click.group("nats")
def command() -> None:
    """Set up a NATS bus for gateways and workers."""


@command.command("setup")
@click.argument("folder", type=click.Path(path_type=Path), default="nats")
@click.option("--prefix", default=PREFIX, show_default=True, help="The first word of all subjects.")
@json_option
@pass_asked
def setup(asked: Asked, *, folder: Path, prefix: str, as_json: bool) -> int:
    """Make a server's config, and a key for each role.

    Also the key that tickets are signed with, if there is none yet.

    FOLDER takes nats-server.conf, gateway.nk, worker.nk and client.nk; give each host its own key
    and no other. What is there already stays as it is.
    """
    Subjects(prefix)
    base = find(asked.config).base
    folder = base / folder
    folder.mkdir(parents=True, exist_ok=True)
    keys = [(role, _public(folder / f"{role}.nk")) for role in ROLES]
    config = folder / _SERVER
    if not config.exists():
        text = server_config(prefix, keys, store=str((folder / "jetstream").resolve()))
        write_new({config: text})  # half of it would be a server that lets everybody in
    seal = open_seal(base / _KEYS, "bus")
    public = base / _KEYS / f"{seal.key}.pub"
    if as_json:
        told = {
            "server": str(config),
            "keys": {role: str(folder / f"{role}.nk") for role in ROLES},
            "trust": str(public),
        }
        out(msgspec.json.encode(told).decode())
        return 0
    for line in _next_steps(folder, config, public, prefix):
        out(safe(line))
    return 0


def _next_steps(folder: Path, config: Path, public: Path, prefix: str) -> list[str]:
    more = "" if prefix == PREFIX else f'prefix = "{prefix}"\n  '
    return [
        "Start the server:\n",
        f"  nats-server -c {config}\n",
        "In toolpost.toml of a gateway:\n",
        '  [[sources]]\n  kind = "nats"\n',
        f'  [backends.nats]\n  {more}nkey = "{folder / "gateway.nk"}"\n',
        f"On the host of a worker, with copies of {folder / 'worker.nk'} and {public}:\n",
        f'  [worker]\n  {more}nkey = "worker.nk"\n  trust = ["{public.name}"]\n',
        "The .nk files are secrets: whoever has one is that role on the bus.",
    ]


def _public(file: Path) -> str:
    """The public key to the seed in a file, which is made if there is none."""
    try:
        nkeys: Any = import_module("nkeys")
    except ModuleNotFoundError as exc:
        raise MissingPart(
            "the keys of a bus need 'nkeys'. Install it with: pip install \"toolpost[nats]\""
        ) from exc
    if not file.exists():
        seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as made:
            made.write(seed)
    try:
        public: bytes = nkeys.from_seed(file.read_bytes().strip()).public_key
    except nkeys.NkeysError:
        raise ConfigError(f"{file}: this is no seed of a key; move it away") from None
    return public.decode()
