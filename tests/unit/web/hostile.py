"""Bodies that are cheap to send and dear to build."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

_START = b'[{"delay":"PT1H","payload":'
HOSTILE: dict[str, tuple[bytes, int, list[int]]] = {
    "lists": (b"[" + b"[]," * 5_000_000 + b"[]]", 413, []),
    "numbers": (b"[" + b"0," * 10_000 + b"0]", 413, []),
    "members": (_START + b"{" + b",".join(b'"%x":0' % n for n in range(1_500_000)) + b"}}]", 200, [413]),
    "objects": (_START + b"[" + b"{}," * 5_000_000 + b"{}]}]", 200, [413]),
    "objects of 300 kB": (_START + b"[" + b"{}," * 100_000 + b"{}]}]", 200, [413]),
    "members outside the payload": (b'[{"delay":"PT1H",' + b'"a":0,' * 80_000 + b'"payload":1}]', 200, [422]),
    "names with escapes": (b'[{"delay":"PT1H",' + b'"\\u0061":0,' * 40_000 + b'"payload":1}]', 200, [422]),
    "lists outside the payload": (b'[{"delay":"PT1H","payload":1,"z":[' + b"[]," * 150_000 + b"[]]}]", 200, [422]),
    "deep": (_START + b"[" * 70 + b"]" * 70 + b"}]", 200, [422]),
    "white space": (b"[" + b" " * 16_000_000 + b"]", 422, []),
    "open brackets": (b"[" * 16_000_000, 422, []),
    "an object": (b'{"a":' * 3_000_000, 422, []),
}
"""Name -> body, the status of `POST /events/batch`, and of each of its results."""


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
