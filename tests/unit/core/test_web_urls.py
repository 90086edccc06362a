"""Web addresses are understood as the parser of the stored channels understands them, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from shared.core.web_urls import parse_url

USUAL = (
    "https://hooks.example.com/tocsin?key=1#part",
    "HTTPS://Hooks.Example.com:443",
    "http://hooks.example.com.:8080/",
    "https://127.0.0.1:8443/x",
    "http://[2001:db8::1]:8080/x?y",
    "https://[::1]",
    "https://me:s%40crets@example.com/hook",
    "https://me@example.com",
    "https://@example.com",
    "https://:@example.com:",
    "http://127.0.0.1:10002/devstoreaccount1",
    "https://example.com?x=https://other.example/",
    "ws+x://example.com/x",
    "//example.com/x",
    "example.com/x",
    "/x",
    "",
)
UNCLEAR = (
    "https://example.com\\@other.example/",
    "https://127.0.0.1[::1]/",
    "https://[::1]other.example:80/",
    "https://[::1/",
    "https://::1]/",
    "https://[[::1]]/",
    "https://example.com:port/",
    "https://example.com:70000/",
    "https://example.com:٣/",
    "https://example.com:80:80/",
    "https://example.com℀other.example/",
)


def _parts(text: str) -> tuple[object, ...]:
    url = URL(text, encoded=True)
    return url.scheme, url.user, url.password, url.raw_host, url.explicit_port, url.port, url.host_port_subcomponent or ""


def _ours(text: str) -> tuple[object, ...]:
    url = parse_url(text)
    return *url, url.port, url.host_header


@pytest.mark.parametrize("text", USUAL)
def test_usual_addresses_have_the_parts_that_the_whole_parser_finds(text: str) -> None:
    assert _ours(text) == _parts(text)


@pytest.mark.parametrize("text", UNCLEAR)
def test_addresses_that_parsers_may_understand_in_several_ways_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"valid|Invalid|NFKC|IPv6"):
        parse_url(text)


@given(
    st.lists(
        st.sampled_from(["https", "http", ":", "//", "/", "@", "[", "]", "\\", "?", "#", "a.b", "1", "::1", "%41", "\t", " ", "é", "127.1"])
    )
)
def test_whatever_it_accepts_has_the_host_and_the_port_of_the_whole_parser(words: list[str]) -> None:
    text = "".join(words)
    try:
        ours = _ours(text)
    except ValueError:
        return
    assert ours == _parts(text)
