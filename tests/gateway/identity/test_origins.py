"""Attack 33: a name that was made to lead here, a page that was lured here; where it listens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import ConfigError
from toolpost.gateway.identity import AuthSettings, Origins, refused_binding, refused_origin

LOCAL = Origins(host="127.0.0.1")
PUBLIC = Origins(
    host="0.0.0.0",
    hosts=["Tools.example.com", "alt.example.com:8443"],
    origins=["https://app.example.com", "http://localhost:3000"],
)


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:8080", b"LOCALHOST:9", b"localhost.", b"[::1]:8080", b"[0:0:0:0:0:0:0:1]"]
)
def test_the_names_of_this_machine_are_its_own(host: bytes) -> None:
    assert LOCAL.refused(host, None) is None
    assert LOCAL.refused(host, None) is None, "the second time as well"


@pytest.mark.parametrize(
    "host",
    [
        None, b"", b"evil.example", b"evil.example:8080", b"localhost.evil.example", b"10.0.0.1",
        b"127.0.0.1@evil.example", b"localhost:8080:1", b"localhost/x", b"local host", b"[::1",
        b"[evil]", b"0x7f000001", b"2130706433", b"127.1", b"localhost:x", b"\xffocalhost",
        b"a" * 400, b"localhost\n", b"127.0.0.1,evil.example", b"..", b":80",
    ],
)  # fmt: skip
def test_any_other_name_is_refused(host: bytes | None) -> None:
    assert LOCAL.refused(host, None) is not None
    assert LOCAL.refused(host, b"http://localhost:8080") is not None


def test_listening_everywhere_it_has_every_address_and_the_names_of_the_config() -> None:
    for host in (b"tools.example.com", b"tools.EXAMPLE.com:9", b"10.1.2.3:8080", b"[fe80::1]:1"):
        assert PUBLIC.refused(host, None) is None
    assert PUBLIC.refused(b"alt.example.com:8443", None) is None
    for host in (b"alt.example.com", b"alt.example.com:80", b"sub.tools.example.com"):
        assert PUBLIC.refused(host, None) is not None
    assert Origins(host="10.0.0.5").refused(b"10.0.0.5:8080", None) is None
    assert Origins(host="10.0.0.5").refused(b"10.0.0.6:8080", None) is not None
    assert Origins(host="10.0.0.5").refused(b"localhost:8080", None) is not None


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (b"https://app.example.com", b"tools.example.com"),
        (b"https://app.example.com:443", b"tools.example.com"),
        (b"http://localhost:3000", b"localhost:8080"),
        (b"https://tools.example.com", b"tools.example.com"),
        (b"http://localhost:8080", b"localhost:8080"),
    ],
)
def test_its_own_pages_and_those_of_the_config_may_call(origin: bytes, host: bytes) -> None:
    assert PUBLIC.refused(host, origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        b"null", b"", b"*", b"https://evil.example", b"http://app.example.com",
        b"https://app.example.com.evil.example", b"https://app.example.com/", b"file://",
        b"https://app.example.com@evil.example", b"https://app.example.com:444",
        b"http://localhost:3001", b"http://tools.example.com:8080", b"moz-extension://x",
        b"https://app.example.com https://evil.example", b"\xff", b"https://" + b"a" * 400,
    ],
)  # fmt: skip
def test_any_other_page_is_refused(origin: bytes) -> None:
    assert PUBLIC.refused(b"tools.example.com", None) is None
    assert "Origin" in (PUBLIC.refused(b"tools.example.com", origin) or "")


@given(st.binary(max_size=80), st.none() | st.binary(max_size=80))
def test_whatever_the_headers_are_there_is_an_answer(host: bytes, origin: bytes | None) -> None:
    refused = PUBLIC.refused(host, origin)
    assert refused is None or "gateway" in refused or "host" in refused


@pytest.mark.parametrize("wrong", ["", "a b", "http://x", "x/y", "x:y", "ä.example"])
def test_a_name_in_the_config_that_is_none_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Origins(host="127.0.0.1", hosts=[wrong])
    assert caught.value.at == ("hosts",)


@pytest.mark.parametrize("wrong", ["*", "null", "app.example.com", "https://a.example/x", ""])
def test_an_origin_in_the_config_that_is_none_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Origins(host="127.0.0.1", origins=[wrong])
    assert caught.value.at == ("origins",)


def test_settings_can_be_asked_as_they_are() -> None:
    @dataclass
    class Settings:
        host: str = "127.0.0.1"
        hosts: tuple[str, ...] = ("tools.local",)
        origins: tuple[str, ...] = ()

    assert refused_origin(Settings(), b"tools.local:80", None) is None
    assert refused_origin(Settings(), b"tools.local:80", b"null") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback_needs_nobody_to_be_asked(host: str) -> None:
    assert refused_binding(AuthSettings(), host) is None


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "example.com", "localhost.evil.example"],
)
def test_elsewhere_it_does_not_listen_unless_somebody_is_asked(host: str) -> None:
    assert "toolpost keys create" in (refused_binding(AuthSettings(), host) or "")
    assert refused_binding(AuthSettings(keys=True), host) is None
