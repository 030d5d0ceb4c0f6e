"""The client connects where it may, follows where it may, and reads as much as it may."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import ipaddress
import ssl
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.backends.http.service import Asked, Reply, Service, Writer, head, serving
from toolpost.errors import CallError, Denied, OutputTooLarge, ToolFailed, Unavailable
from toolpost.net.client import Client, Credentials, Request
from toolpost.net.destination import Granted
from toolpost.net.url import url_from

pytestmark = pytest.mark.anyio
SECRETS = Credentials(
    headers=(("Authorization", "Bearer s3cret-s3cret"), ("X-Key", "s3cret-s3cret")),
    query=(("key", "s3cret-s3cret"),),
)


def granting(*services: Service) -> Granted:
    return Granted([service.authority for service in services])


async def ask(granted: Granted, url: str, **fields: Any) -> tuple[int, bytes]:
    """Status and body of one request."""
    options = {k: fields.pop(k) for k in ("redirects", "patience") if k in fields}
    trusted, most = fields.pop("trusted", None), fields.pop("most", 1_000_000)
    client = Client(granted, trusted=trusted)
    request = Request(**{"method": "GET", "url": url_from(url), **fields})
    try:
        async with asyncio.timeout(60), client.answered(request, **options) as answer:
            return answer.status, await answer.read(most)
    finally:
        await client.close()


def redirecting(status: int, location: str) -> Any:
    """Answers the first request by a redirect, and the others."""

    def answers(asked: Asked) -> Reply:
        if asked.target.startswith("/first"):
            return Reply("moved", status, headers={"Location": location})
        return Reply("there")

    return answers


# --- where a connection leads ------------------------------------------------------------------


async def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to() -> None:
    looked_up: list[str] = []

    async def flips(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else ["127.0.0.2"]

    async with serving() as service:
        granted = Granted((f"localhost:{service.port}",), resolve=flips)
        status, _ = await ask(granted, f"http://localhost:{service.port}/")
    assert status == 200
    assert looked_up == ["localhost"]
    assert service.asked[0].header("Host") == f"localhost:{service.port}"


async def test_a_second_address_is_tried_where_the_first_does_not_answer() -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with serving() as service:
        granted = Granted((f"localhost:{service.port}",), resolve=two)
        assert (await ask(granted, f"http://localhost:{service.port}/"))[0] == 200


async def test_a_resolver_that_does_not_answer_is_not_waited_for() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.get_running_loop().create_future()
        return []

    with pytest.raises(Unavailable, match="in time") as failed:
        await ask(Granted(("*",), resolve=never), "http://api.test/", patience=0.1)
    assert failed.value.effects == "none"


async def test_a_kept_connection_is_not_used_under_another_grant() -> None:
    async with serving() as service:
        client = Client(granting(service))
        async with client.answered(Request(method="GET", url=url_from(service.url))) as answer:
            await answer.read(100)
        with pytest.raises(Denied):
            await ask(Granted(("*",)), service.url)
        await client.close()
    assert service.connections == 1


# --- redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        (301, "GET", "GET"),
        (301, "POST", "GET"),
        (301, "PUT", "PUT"),
        (302, "POST", "GET"),
        (302, "HEAD", "HEAD"),
        (302, "DELETE", "DELETE"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PATCH", "PATCH"),
    ],
)
async def test_a_redirect_changes_the_method_as_its_status_says(
    status: int, method: str, becomes: str
) -> None:
    body = None if method in ("GET", "HEAD", "DELETE") else b"data"
    async with serving(redirecting(status, "/second?x=1")) as service:
        url = service.url + "/first"
        await ask(granting(service), url, method=method, body=body, type="text/plain",
                  credentials=SECRETS)  # fmt: skip
    first, second = service.asked
    assert (second.method, second.target) == (becomes, "/second?x=1&key=s3cret-s3cret")
    kept = becomes == method
    assert second.body == (first.body if kept else b"")
    assert second.header("Content-Type") == ("text/plain" if kept and body else None)
    assert second.header("Authorization") == "Bearer s3cret-s3cret"


async def test_redirects_come_to_an_end() -> None:
    async with serving(lambda asked: Reply("", 302, headers={"Location": asked.target})) as it:
        with pytest.raises(ToolFailed, match="more than 3 times"):
            await ask(granting(it), it.url + "/x", redirects=3)
        assert len(it.asked) == 4
        assert (await ask(granting(it), it.url + "/x", redirects=0))[0] == 302
        assert len(it.asked) == 5


async def test_a_redirect_without_a_place_is_an_answer() -> None:
    async with serving(lambda _: Reply("?", 302)) as service:
        assert await ask(granting(service), service.url) == (302, b"?")


async def test_what_cannot_go_to_another_host_is_refused_and_says_what_is_known() -> None:
    async with serving() as other:
        for status, effects in ((307, "none"), (308, "none"), (302, "unknown")):
            async with serving(redirecting(status, other.url)) as service:
                with pytest.raises(Denied, match="not for another host") as refused:
                    method = "PUT" if status == 302 else "POST"
                    await ask(granting(service, other), service.url + "/first", method=method,
                              body=b"data")  # fmt: skip
                assert refused.value.effects == effects
        assert other.connections == 0


# --- TLS ---------------------------------------------------------------------------------------


def certified(folder: Path, *names: str) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate of its own, and the file for those who believe it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    alternatives: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdigit() else x509.DNSName(one)
        for one in names
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, private = folder / "certificate.pem", folder / "key.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, private)
    return context, str(file)


async def test_a_host_that_proves_itself_is_asked_over_tls(tmp_path: Path) -> None:
    context, trusted = certified(tmp_path, "localhost")
    async with serving(lambda _: Reply("safe"), context=context) as service:
        granted = Granted((f"localhost:{service.port}",))
        url = f"https://localhost:{service.port}/"
        assert await ask(granted, url, trusted=trusted) == (200, b"safe")


async def test_a_host_that_does_not_prove_itself_is_sent_nothing(tmp_path: Path) -> None:
    context, trusted = certified(tmp_path, "other.test")
    async with serving(context=context) as service:
        granted = Granted((f"localhost:{service.port}",))
        for believed in (None, trusted):
            with pytest.raises(Unavailable, match="could not prove") as failed:
                await ask(granted, f"https://localhost:{service.port}/", trusted=believed)
            assert (failed.value.effects, failed.value.retryable) == ("none", False)
    assert service.asked == []


async def test_a_host_that_speaks_no_tls_is_sent_nothing() -> None:
    async with serving() as service:
        with pytest.raises(Unavailable) as failed:
            await ask(granting(service), f"https://{service.authority}/", patience=5)
        assert failed.value.effects == "none"
    assert service.asked == []


async def test_a_redirect_from_https_to_http_is_not_followed(tmp_path: Path) -> None:
    context, trusted = certified(tmp_path, "127.0.0.1")
    async with serving() as plain:
        secure = serving(lambda _: Reply("", 302, headers={"Location": plain.url}), context=context)
        async with secure as service:
            with pytest.raises(Denied, match="https to http"):
                await ask(granting(service, plain), f"https://{service.authority}/",
                          trusted=trusted)  # fmt: skip
        assert plain.connections == 0


# --- how much is read --------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", None])
async def test_an_answer_that_is_too_long_is_given_up_and_never_held(encoding: str | None) -> None:
    plain = b"0" * (64 * 1024 * 1024)
    body = gzip.compress(plain, 1) if encoding else plain
    headers = {"Content-Encoding": encoding} if encoding else {}

    async def stream(writer: Writer) -> None:
        writer.write(head(200, {"Content-Length": str(len(body)), **headers}))
        for start in range(0, len(body), 65536):
            writer.write(body[start : start + 65536])
            await writer.drain()

    async with serving(lambda _: stream) as service:
        await ask(granting(service), service.url, most=len(plain))  # what it needs once is there
        tracemalloc.start()
        with pytest.raises(OutputTooLarge, match="longer than 100,000 bytes") as failed:
            await ask(granting(service), service.url, most=100_000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert failed.value.effects == "done"
    assert peak < 16 * 1024 * 1024


async def test_many_empty_members_are_an_answer_that_is_too_long() -> None:
    body = gzip.compress(b"") * 20_000
    async with serving(lambda _: Reply(body, headers={"Content-Encoding": "gzip"})) as service:
        with pytest.raises(OutputTooLarge):
            await ask(granting(service), service.url, most=1000)


async def test_an_error_names_the_host_and_nothing_else_of_what_was_asked_for() -> None:
    async with serving() as service:
        url = service.url + "/private/path?token=hidden"
    for granted in (granting(service), Granted(("*",))):
        with pytest.raises(CallError) as failed:
            await ask(granted, url, credentials=SECRETS)
        assert "127.0.0.1" in failed.value.message
        for word in ("private", "hidden", "s3cret"):
            assert word not in failed.value.message
