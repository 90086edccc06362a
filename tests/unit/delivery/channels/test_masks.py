"""Secrets of a channel in texts that a receiver sent back: in every escape that frameworks write, one inside another, whole or cut."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable
from itertools import product
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.delivery.channels.masks import Masks, mask, masks_of
from shared.delivery.channels.model import HttpChannel

SECRETS = ("ab/cd+ef==\"Q&<z>'kk9", "c2VjcmV0L2tleSt2YWx1ZQ/+A==", "a\\u0041b\\\\%41&amp;c", "with two words")


def _unicode(text: str, special: str, form: str = "\\u%04x") -> str:
    return "".join([form % ord(each) if each in special else each for each in text])


ENCODERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json of php": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "json of .net": lambda text: _unicode(json.dumps(text)[1:-1].replace('\\"', "\\u0022"), "+&<>'`", "\\u%04X"),
    "json of go": lambda text: _unicode(json.dumps(text)[1:-1], "&<>"),
    "json of gson": lambda text: _unicode(json.dumps(text)[1:-1], "&<>='"),
    "each character in json": lambda text: "".join([f"\\u{ord(each):04x}" for each in text]),
    "each byte in hexadecimal": lambda text: "".join([f"\\x{each:02x}" for each in text.encode()]),
    "each byte in octal": lambda text: "".join([f"\\{each:03o}" for each in text.encode() if each < 128]),
    "url": lambda text: quote(text, safe=""),
    "url in lower case": lambda text: "".join([each if each.isalnum() else f"%{ord(each):02x}" for each in text]),
    "form": quote_plus,
    "escape() of JavaScript": lambda text: _unicode(text, "%+\"'<> ", "%%u%04X"),
    "html": html.escape,
    "html of asp.net": lambda text: html.escape(text).replace("+", "&#43;"),
    "html of mustache": lambda text: html.escape(text).replace("/", "&#x2F;").replace("=", "&#x3D;"),
    "html of go": lambda text: html.escape(text).replace("&quot;", "&#34;").replace("+", "&#43;"),
    "html with names": lambda text: html.escape(text).replace("/", "&sol;").replace("=", "&equals;").replace("+", "&plus;"),
    "python": lambda text: repr(text)[1:-1],
}


def masks(*secrets: str) -> Masks:
    return masks_of(HttpChannel.model_validate({"type": "http", "url": "https://a.example/", "headers": dict(enumerate_names(secrets))}))


def enumerate_names(secrets: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"x-{number}", secret) for number, secret in enumerate(secrets)]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_in_each_escape_and_in_one_inside_another(secret: str) -> None:
    for inner, outer in product(ENCODERS, repeat=2):
        shown = ENCODERS[outer](ENCODERS[inner](secret)).encode()
        assert mask(b"<<" + shown + b">>", masks(secret)) == b"<<***>>", (inner, outer)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("abAB019%&+=/<\"' ;#u"), min_size=4, max_size=16), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3))
@example("%25%2541", ["url", "url", "url"])
def test_no_secret_is_shown_whatever_it_looks_like(secret: str, encoders: list[str]) -> None:
    shown = secret
    for name in encoders:
        shown = ENCODERS[name](shown)
    assert mask(b"~~" + shown.encode() + b"~~", masks(secret)) == b"~~***~~"


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("secret", [each for each in SECRETS if "\\" not in each])
def test_a_secret_that_was_cut_inside_an_escape_is_masked(secret: str, name: str) -> None:
    encode = ENCODERS[name]
    shown, least = encode(secret).encode(), len(encode(secret[:5]).encode())
    for end in range(least, len(shown) + 1):
        assert mask(b"<<" + shown[:end], masks(secret), whole=False) == b"<<***", shown[:end]


def test_what_is_no_secret_stays_as_it_was_received() -> None:
    text = b'{"a":"\\u00fc\\/ &amp; %2F","b":"100%","c":"\\"}'
    assert mask(text, masks(*SECRETS)) == text == mask(text, masks(*SECRETS), whole=False)
    assert mask(b'{"a":"\\/x","key":"ab\\/cd","b":"\\/y"}', masks("ab/cd")) == b'{"a":"\\/x","key":"***","b":"\\/y"}'


def test_places_that_overlap_are_one_and_those_that_follow_each_other_are_not() -> None:
    assert mask(b"abcdefgh", masks("abcde", "defgh")) == b"***"
    assert mask(b"abcdabcd", masks("abcd")) == b"******"


def test_a_short_value_is_masked_where_it_stands_alone_in_any_escape() -> None:
    assert mask(b"2 23 &#x32; %32 \\u0032 x2", masks("2")) == b"*** 23 *** *** *** x2"


def test_the_path_of_a_url_is_a_secret_and_so_is_each_segment_that_is_no_plain_word() -> None:
    url = "https://hooks.example.com/services/v1/T000/B000/%2FPATH+SECRET=42/webhook-in/"
    found = masks_of(HttpChannel.model_validate({"type": "http", "url": url}))
    body = b"none at /services/v1/T000/B000/%2FPATH+SECRET=42/webhook-in/17: /path+secret or /PATH+SECRET=42 is no webhook-in of v1"
    assert mask(body, found) == b"none at ***/17: /path+secret or *** is no webhook-in of v1"
    assert mask(b"Cannot POST /%2Fa, a or /a", masks_of(HttpChannel.model_validate({"type": "http", "url": "https://a.example/a"}))) == (
        b"Cannot POST /***, a or ***"
    )
    assert mask(b"GET / or //", masks_of(HttpChannel.model_validate({"type": "http", "url": "https://a.example/"}))) == b"GET / or //"


HOSTILE = {
    "many prefixes": "k/+=",
    "escaped escapes": "\\",
    "percent signs": "%25",
    "ampersands": "&amp;",
    "entities": "&#x6b;",
    "code points": "\\u006b",
    "begun entities": "&k",
    "one letter": "k",
    "nested": "%255C\\u005cu006b",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_work_grows_with_the_text_and_no_faster(piece: str) -> None:
    found = masks(*("k/+=" * 1000, "k" * 4000, "k" * 3999 + "x", "\\u006b" * 600), *(f"k{number:03}" for number in range(28)))

    def cost(size: int) -> float:
        text = (piece * (size // len(piece) + 1)).encode()[:size]
        best = 9e9
        for _ in range(5):
            began = time.thread_time()
            mask(text, found, whole=False)
            best = min(best, time.thread_time() - began)
        return best

    assert cost(4 * 8192) < 8 * max(cost(8192), 0.002)
