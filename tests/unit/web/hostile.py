"""Bodies that are cheap to send and dear to build."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_START = b'[{"delay":"PT1H","payload":'
HOSTILE: dict[str, tuple[Callable[[], bytes], int, list[int]]] = {
    "lists": (lambda: b"[" + b"[]," * 5_000_000 + b"[]]", 413, []),
    "numbers": (lambda: b"[" + b"0," * 10_000 + b"0]", 413, []),
    "members": (lambda: _START + b"{" + b",".join(b'"%x":0' % n for n in range(600_000)) + b"}}]", 200, [413]),
    "objects": (lambda: _START + b"[" + b"{}," * 5_000_000 + b"{}]}]", 200, [413]),
    "objects of 300 kB": (lambda: _START + b"[" + b"{}," * 100_000 + b"{}]}]", 200, [413]),
    "members outside the payload": (lambda: b'[{"delay":"PT1H",' + b'"a":0,' * 80_000 + b'"payload":1}]', 200, [422]),
    "names with escapes": (lambda: b'[{"delay":"PT1H",' + b'"\\u0061":0,' * 40_000 + b'"payload":1}]', 200, [422]),
    "lists outside the payload": (lambda: b'[{"delay":"PT1H","payload":1,"z":[' + b"[]," * 150_000 + b"[]]}]", 200, [422]),
    "deep": (lambda: _START + b"[" * 70 + b"]" * 70 + b"}]", 200, [422]),
    "white space": (lambda: b"[" + b" " * 16_000_000 + b"]", 422, []),
    "open brackets": (lambda: b"[" * 2_000_000, 422, []),
    "an object": (lambda: b'{"a":' * 3_000_000, 422, []),
}
"""Name -> function that makes a body, the status of `POST /events/batch`, and the status of each of its results."""


@contextmanager
def traced_memory(mib: int) -> Iterator[None]:
    """Fail if the block has more than `mib` MiB allocated at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mib * 1024 * 1024, f"{peak:,} bytes"
