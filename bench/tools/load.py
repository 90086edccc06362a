"""A load generator that costs next to nothing: `python -m bench.tools.load FILE --port N --flight 64 [--seconds S]`.

FILE is JSON: a list of [method, path, headers, body]. Without --seconds each is sent once, otherwise they are repeated until the time is
up. A request is one write of bytes made beforehand, an answer is read as far as its length. Prints JSON: count, seconds, statuses,
milliseconds at p50 and p99.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast


def encode(method: str, path: str, headers: dict[str, str], body: str) -> bytes:
    """The request's bytes."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    raw = body.encode()
    if raw:
        lines.append(f"content-length: {len(raw)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


class Lane(asyncio.Protocol):
    """One connection: sends the next request as soon as the answer to the last is in."""

    def __init__(self, requests: Iterator[bytes], ends_at: float, statuses: Counter[int], took: list[float]) -> None:
        self._requests, self._ends_at, self._statuses, self._took = requests, ends_at, statuses, took
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None) if time.perf_counter() < self._ends_at else None
        if request is None:
            self._transport.close()
            return
        self._started = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = buffer[: end + 2].lower()
        at = head.find(b"\r\ncontent-length:")
        size = int(head[at + 17 :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(buffer) < end + 4 + size or (b"\r\ntransfer-encoding: chunked\r\n" in head and not buffer.endswith(b"\r\n0\r\n\r\n")):
            return
        self._statuses[int(buffer[9:12])] += 1
        self._took.append(time.perf_counter() - self._started)
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def run(requests: list[bytes], port: int, flight: int, seconds: float | None) -> dict[str, object]:
    """Send the requests and return their figures."""
    loop = asyncio.get_running_loop()
    statuses: Counter[int] = Counter()
    took: list[float] = []
    started = time.perf_counter()
    source = iter(requests) if seconds is None else itertools.cycle(requests)
    ends_at = started + (seconds or 120.0)
    lanes = [(await loop.create_connection(lambda: Lane(source, ends_at, statuses, took), "127.0.0.1", port))[1] for _ in range(flight)]
    await asyncio.gather(*(lane.done for lane in lanes))
    wall = time.perf_counter() - started
    took.sort()
    return {
        "count": len(took),
        "seconds": wall,
        "statuses": statuses,
        "p50": took[len(took) // 2] * 1000 if took else None,
        "p99": took[len(took) * 99 // 100] * 1000 if took else None,
        "cpu": time.process_time(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--flight", type=int, default=64)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    requests = [encode(*parts) for parts in json.loads(given.file.read_text())]
    print(json.dumps(asyncio.run(run(requests, given.port, given.flight, given.seconds))))


if __name__ == "__main__":
    main()
