"""URLs are read in one way, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.net.destination import Refused
from toolpost.net.url import Url, joined, url_from


@pytest.mark.parametrize(
    ("text", "url", "written"),
    [
        ("https://a.test", Url("https", "a.test", 443, "/"), "https://a.test/"),
        ("HTTP://A.Test:80/x?y=1#z", Url("http", "a.test", 80, "/x?y=1"), "http://a.test/x?y=1"),
        ("http://a.test.:81", Url("http", "a.test", 81, "/"), "http://a.test:81/"),
        ("https://a.test?x", Url("https", "a.test", 443, "/?x"), "https://a.test/?x"),
        ("http://[::1]:8080/", Url("http", "::1", 8080, "/"), "http://[::1]:8080/"),
        ("http://[0:0::1]/a", Url("http", "::1", 80, "/a"), "http://[::1]/a"),
    ],
)
def test_a_url_has_one_reading(text: str, url: Url, written: str) -> None:
    assert url_from(text) == url
    assert str(url) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.test",
        "//a.test/",
        "ftp://a.test/",
        "file:///etc/passwd",
        "gopher://a.test/",
        "https:/a.test",
        "https://",
        "https:///x",
        "https://u@a.test/",
        "https://u:p@a.test/",
        "https://a.test@b.test/",
        "https://a.test\\@b.test/",
        "https://a.test:/",
        "https://a.test:0/",
        "https://a.test:65536/",
        "https://a.test:80:80/",
        "https://a.test:8o/",
        "https://a test/",
        "https://a.test/\n",
        "https://a.test/\tx",
        "https://b\u00fccher.test/",
        "https://a\u3002test/",
        "https://\u2460.1.1.1/",
        "https://[::1/",
        "https://::1/",
        "https://[fe80::1%25lo]/",
        "https://a..test/",
        "https://-a.test/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://%61.test/",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        url_from(text)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b", "https://a.test/b"),
        ("b?c", "https://a.test/x/b?c"),
        ("../../../b", "https://a.test/b"),
        ("//b.test/c", "https://b.test/c"),
        ("?q", "https://a.test/x/y?q"),
        ("http://b.test", "http://b.test/"),
        ("/stra\u00dfe", "https://a.test/stra%C3%9Fe"),
    ],
)
def test_a_location_is_seen_from_where_it_was_said(location: str, expected: str) -> None:
    assert str(joined(url_from("https://a.test/x/y?z"), location)) == expected


@pytest.mark.parametrize(
    "location",
    ["https://u:p@b.test/", "javascript:x", "http://0x7f.1/", "/a b", "\\\\b.test\\", "http://[x/"],
)
def test_a_location_that_cannot_be_meant_is_refused(location: str) -> None:
    with pytest.raises(Refused):
        joined(url_from("https://a.test/x"), location)


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://a.test", "//", "https://["]))
def test_any_text_is_a_url_or_refused_and_reads_back_the_same(text: str, lead: str) -> None:
    try:
        url = url_from(lead + text)
    except Refused:
        return
    assert url_from(str(url)) == url
