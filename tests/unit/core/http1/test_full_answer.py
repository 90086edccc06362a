"""The reader of whole answers: nothing that breaks off or is unclear passes for a complete answer, however the network cut it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.http1 import full_answer
from shared.core.http1.full_answer import AnswerHeaders, FullAnswerReader
from shared.core.http1.head import AnswerRefused

from .test_answer import ANSWERS, cut

type Result = tuple[int | None, dict[str, str], bytes, bool, bool] | str
"""Status, headers, body, whether the answer is complete, and whether the connection can be used again; or the refusal."""

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(pieces: list[bytes], *, end: bool | None = None) -> Result:
    """Read an answer. end: the connection ends behind it, in order (True) or not (False)."""
    answer = FullAnswerReader()
    try:
        for piece in pieces:
            answer.feed(piece)
    except AnswerRefused as refused:
        return str(refused)
    if end is not None:
        answer.end(clean=end)
    assert answer.usable == answer.complete
    return answer.status, dict(answer.headers), answer.body, answer.complete, answer.complete and answer.reusable


@settings(max_examples=100)
@given(ANSWERS, st.lists(st.integers(0, 4000), max_size=12))
def test_any_split_gives_the_same_result(raw: bytes, places: list[int]) -> None:
    whole = read([raw])
    assert read(cut(raw, places)) == whole
    assert read([raw[at : at + 1] for at in range(len(raw))]) == whole


@given(st.binary(max_size=300), st.integers(0, 400), st.booleans(), st.lists(st.integers(0, 900), max_size=8))
def test_no_part_of_an_answer_passes_for_the_whole(body: bytes, size: int, chunked: bool, places: list[int]) -> None:
    if chunked:
        pieces = [body[start:end] for start, end in pairwise(sorted({0, len(body), size % (len(body) + 1)}))]
        raw = CHUNKED + b"".join(b"%X;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"
    else:
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    result = read(cut(raw, places))
    assert not isinstance(result, str) and result[2:] == (body, True, True)
    for length in range(len(raw)):
        for end in (None, True, False):
            part = read([raw[:length]], end=end)
            assert isinstance(part, str) or not part[3], length


@pytest.mark.parametrize(
    ("raw", "body", "reusable"),
    [
        (b"HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\nunexpected", b"", False),
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more", b"ok", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (CHUNKED + b"2\r\nok\r\n00\r\n\r\n", b"ok", True),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\nmore", b"ok", False),
        (CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n" + b"2\r\nok\r\n0\r\n\r\n", b"ok", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
    ],
)
def test_body_and_connection_of_a_complete_answer(raw: bytes, body: bytes, reusable: bool) -> None:
    result = read([raw])
    assert not isinstance(result, str) and result[2:] == (body, True, reusable)


@pytest.mark.parametrize(("end", "complete"), [(None, False), (True, True), (False, False)])
def test_body_without_a_length_ends_with_its_connection_if_that_ends_in_order(end: bool | None, complete: bool) -> None:
    result = read([b"HTTP/1.1 200 OK\r\n\r\nuntil ", b"the end"], end=end)
    assert not isinstance(result, str) and result[2:] == (b"until the end", complete, False)


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + b"no size\r\n",
        CHUNKED + b"2\r\nok, but longer\r\n",
        CHUNKED + b"1;" + b"e" * 9_000 + b"\r\nx\r\n0\r\n\r\n",
        CHUNKED + b"0\r\n" + b"Trailer: x\r\n" * 6_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: y\r\n" * 7_000 + b"\r\n",
        b"<html>not HTTP</html>",
    ],
)
def test_what_is_not_valid_or_beyond_the_bounds_is_refused_however_it_is_split(raw: bytes) -> None:
    whole = read([raw])
    assert isinstance(whole, str)
    chance = random.Random(1)
    assert read([raw[at : at + 1] for at in range(len(raw))]) == whole
    assert read(cut(raw, [chance.randrange(len(raw)) for _ in range(20)])) == whole


@pytest.mark.parametrize("head", [CHUNKED + b"20\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_body_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(full_answer, "MAX_BODY_BYTES", 20)
    assert not isinstance(read([head, b"x" * 20]), str)
    assert isinstance(read([head, b"x" * 21]), str)


def test_headers_are_found_whatever_their_case_and_the_first_one_counts() -> None:
    headers = AnswerHeaders(b'ETag: W/"1"\r\nX-One:  a b \r\nx-one: c\r\nEmpty:\r\nNot-Date: x\r\n\r\n')
    assert (headers["etag"], headers["x-ONE"], headers["empty"]) == ('W/"1"', "a b", "")
    assert "Date" not in headers and headers.get("One") is None
    assert dict(headers) == {"etag": 'W/"1"', "x-one": "a b", "empty": "", "not-date": "x"} and len(headers) == 4
