"""How the bus is reached: users, tokens, certificates; and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toolpost import ConfigError
from toolpost.bus.connection import Bus
from toolpost.bus.embedded import Embedded
from toolpost.bus.settings import BusOptions
from toolpost.errors import Unavailable
from toolpost.options import options_from

pytestmark = pytest.mark.anyio
SECRETS = {"BUS_TOKEN": "s3cret-t0ken", "BUS_PASSWORD": "pa55word"}


def certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def config(folder: Path, text: str) -> str:
    file = folder / "server.conf"
    file.write_text(text)
    return str(file)


def bus(folder: Path, **options: Any) -> Bus:
    made = options_from(options, BusOptions, "backend nats")
    return Bus(made, name="x", role="client", folder=folder, secret=SECRETS.get)


@pytest.mark.parametrize(
    ("server", "right", "wrong"),
    [
        ('authorization { token: "s3cret-t0ken" }', {"token": "BUS_TOKEN"}, {}),
        (
            'authorization { user: ada, password: "pa55word" }',
            {"user": "ada", "password": "BUS_PASSWORD"},
            {"user": "ada", "password": "BUS_TOKEN"},
        ),
    ],
)
async def test_whoever_is_known_is_let_in_and_nobody_else(
    tmp_path: Path, server: str, right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    async with Embedded(tmp_path / "js", config=config(tmp_path, server)) as running:
        known = bus(tmp_path, servers=[running.url], **right)
        assert (await known.client()).is_connected
        await known.close()
        stranger = bus(tmp_path, servers=[running.url], **wrong)
        with pytest.raises(Unavailable):
            await stranger.client()
        # who still writes when the server has closed may not hear why
        assert re.search("uthorization|reset", str(stranger.problem))
        assert "t0ken" not in str(stranger.problem)
        await stranger.close()


async def test_the_server_is_known_by_its_certificate(tmp_path: Path) -> None:
    certificate(tmp_path)
    text = f'tls {{ cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem" }}'
    async with Embedded(tmp_path / "js", config=config(tmp_path, text)) as running:
        url = running.url.replace("nats://", "tls://")
        known = bus(tmp_path, servers=[url], tls={"ca": "cert.pem"})
        assert (await known.client()).is_connected
        await known.close()
        trusting = bus(tmp_path, servers=[url], tls={})
        with pytest.raises(Unavailable):
            await trusting.client()  # nobody we know has signed for it
        await trusting.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"servers": []}, "list of addresses"),
        ({"servers": ["localhost:4222"]}, "begins with nats://"),
        ({"prefix": "a b"}, "letters"),
        ({"server": ["nats://x"]}, "did you mean 'servers'"),
        ({"tls": {"cafile": "x"}}, "cafile"),
    ],
)
def test_wrong_settings_are_told(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        options_from(options, BusOptions, "backend nats")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nkey": "none.nk"}, "there is no file"),
        ({"token": "NOBODY"}, "'NOBODY' is not set"),
        ({"tls": {"ca": "none.pem"}}, "there is no file"),
    ],
)
async def test_what_is_missing_is_told_when_it_is_needed(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    async with Embedded(tmp_path / "js") as running:
        made = bus(tmp_path, servers=[running.url], **options)
        with pytest.raises(ConfigError, match=says):
            await made.client()
        await made.close()


async def test_what_was_asked_for_has_reached_the_server_when_a_flush_returns(
    tmp_path: Path,
) -> None:
    """A server that writes down what it is told, in the order in which it comes."""
    told: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1000}\r\n')
        while line := await reader.readline():
            told.append(line.split()[0])
            if told[-1] == b"PING":
                writer.write(b"PONG\r\n")
        writer.close()

    async def nothing(_: Any) -> None: ...

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        one = bus(tmp_path, servers=[f"nats://127.0.0.1:{port}"])
        subscription = await one.listen("a", nothing)
        await (await one.client()).flush()
        assert told[told.index(b"SUB") :].count(b"PING") == 1
        await subscription.drain()
        assert told[told.index(b"UNSUB") :].count(b"PING") == 1
        await one.close()
