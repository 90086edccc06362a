"""The reader of answers: what it makes of an answer does not depend on how the network cut it, whatever it holds."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.http1.answer import AnswerReader
from shared.core.http1.head import AnswerRefused

type Result = tuple[int | None, str | None, bool, bool, bool, str | None]


def read(pieces: list[bytes]) -> Result:
    """Return status, Retry-After, whether head and answer are complete, whether the connection can be used again, and the refusal."""
    answer = AnswerReader()
    try:
        for piece in pieces:
            answer.feed(piece)
    except AnswerRefused as refused:
        return answer.status, None, False, False, False, str(refused)
    return answer.status, answer.retry_after, answer.head_read, answer.complete, answer.complete and answer.reusable, None


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[start:end] for start, end in pairwise(edges)]


_VALUES = st.sampled_from([b"0", b"2", b"5", b"-4", b"x", b"70000", b"5, 5", b"chunked", b"gzip", b"close", b"keep-alive", b"30", b" "])
_NAMES = st.sampled_from([b"Content-Length", b"transfer-encoding", b"Connection", b"Retry-After", b"X-A", b"X A", b"", b" folded"])
_ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
_FIELDS = st.lists(st.builds(lambda name, value, end: name + b": " + value + end, _NAMES, _VALUES, _ENDS), max_size=4).map(b"".join)
_CODES = st.sampled_from([b"200", b"204", b"304", b"429", b"500", b"100", b"103", b"101", b"099", b"20"])
_VERSIONS = st.sampled_from([b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/2.0 ", b"HTTP/9.9 ", b"http/1.1 ", b""])
_HEADS = st.builds(lambda *parts: b"".join(parts), _VERSIONS, _CODES, st.sampled_from([b"", b" OK"]), _ENDS, _FIELDS, _ENDS)
_CHUNKS = st.sampled_from([b"5\r\nhello\r\n0\r\n\r\n", b"2;x=y\r\nok\r\n0\r\nT: 1\r\n\r\n", b"zz\r\n"])
_BODIES = st.one_of(_CHUNKS, st.sampled_from([b"", b"ok", b"hello", b"f" * 2000, b"\r\n"]))
ANSWERS = st.lists(st.one_of(_HEADS, _BODIES, st.binary(max_size=6)), max_size=6).map(b"".join)


@settings(max_examples=100)
@given(ANSWERS, st.lists(st.integers(0, 4000), max_size=12))
def test_any_split_gives_the_same_result(raw: bytes, places: list[int]) -> None:
    whole = read([raw])
    assert read(cut(raw, places)) == whole
    assert read([raw[at : at + 1] for at in range(len(raw))]) == whole


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 103 X\r\n" + b"X-Long: y\r\n" * 2000 + b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"r" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 500 X\r\n" + b"X-Long: y\r\n" * 7000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 2000 + b"\r\nx\r\n0\r\n\r\n",
        b"\r\n" * 40_000,
        b"s3cret" * 20_000,
        b"HTTP/1.1 404 X\r\nRetry-After:" + b" " * 60_000 + b"x\r\n\r\n",
    ],
)
def test_an_answer_at_its_bounds_gives_the_same_result_however_it_is_split(raw: bytes) -> None:
    whole, chance = read([raw]), random.Random(1)
    for size in (1, 7, 16_384, 65_536):
        assert read([raw[at : at + size] for at in range(0, len(raw), size)]) == whole
    assert read(cut(raw, [chance.randrange(len(raw)) for _ in range(50)])) == whole


@pytest.mark.parametrize(
    ("raw", "status", "reusable"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more", 200, False),
        (b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n", 204, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", 200, False),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end of the connection", 200, False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 200, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", 200, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", 200, False),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, False),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503, True),
    ],
)
def test_the_end_of_an_answer_and_what_it_leaves(raw: bytes, status: int, reusable: bool) -> None:
    assert read([raw]) == (status, None, True, True, reusable, None)
