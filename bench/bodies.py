"""Hostile bodies beside other requests: `python -m bench.bodies`.

Sends bodies of 16 MiB, or of `--size` bytes, at once to one devhost, and a small request every 20 ms on a connection of its own. Prints,
for each kind of body, the times of the small requests and the memory that the process had at most above what it had before. Sender and
probe are processes of their own, so that only the devhost can delay the answers. The probe's own lateness, which a busy machine causes, is
printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from .tools.load import encode
from .tools.machine import cpu_seconds, resident, workers
from .tools.stage import KEY, Host, child, devhost, emulator

MIB: Final = 1024 * 1024
BATCH: Final = "/api/v1/events/batch"
PROBES: Final = {"liveness": "/api/v1/healthz", "list": "/api/v1/events?limit=1"}
PERIOD: Final = 0.02
"""Seconds between two probes."""
_EVENT: Final = b'[{"delay":"PT1H","payload":'


def _filled(size: int, start: bytes, piece: bytes, end: bytes) -> bytes:
    return start + piece * ((size - len(start) - len(end)) // len(piece)) + end


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "lists": lambda size: _filled(size, b"[", b"[],", b"[]]"),
    "members": lambda size: _EVENT + b"{" + b",".join(b'"%x":0' % n for n in range(size // 11)) + b"}}]",
    "one member": lambda size: _filled(size, _EVENT + b"{", b'"0":0,', b'"0":0}}]'),
    "nested lists": lambda size: _filled(size, _EVENT + b"[", b"[[]],", b"0]}]"),
    "nested lists of 500 kB": lambda size: _filled(size, b"[", _EVENT[1:] + b"[" + b"[[]]," * 100_000 + b"0]},", b"0]"),
    "objects": lambda size: _filled(size, _EVENT + b"[", b"{},", b"{}]}]"),
    "elements of 300 kB": lambda size: _filled(size, b"[", _EVENT[1:] + b"[" + b"{}," * 100_000 + b"{}]},", b"0]"),
    "arrays of 500 kB": lambda size: _filled(size, b"[", b"[" + b"[[]]," * 100_000 + b"0],", b"0]"),
    "members of 125 kB": lambda size: _filled(size, b"[", b'{"delay":"PT1H","x":[' + b"[[]]," * 25_000 + b'0],"payload":0},', b"0]"),
    "white space": lambda size: _filled(size, b"[", b" ", b"]"),
    "open brackets": lambda size: _filled(size, b"", b"[", b""),
    "escapes": lambda size: _filled(size, _EVENT + b'"', b'\\"', b'"}]'),
}
"""Name -> the function that makes a body of almost so many bytes."""


def send(port: int, kind: str, count: int, size: int, key: str) -> None:
    """Send `count` bodies, each on a connection of its own, all at the same time, and print the counts of the answers' statuses as JSON."""
    body = KINDS[kind](size)
    statuses: Counter[str] = Counter()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "content-length": str(len(body))}
    head = encode("POST", BATCH, headers, "")

    def one() -> None:
        with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(head)
            connection.sendall(body)
            statuses[connection.recv(12)[9:].decode()] += 1

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(statuses))


def probe(port: int, path: str, key: str = KEY) -> None:
    """Print a line, send a request every `PERIOD` until stdin is closed, and print the times of the answers and the probe's own lateness.

    Both are lists of milliseconds, in JSON.
    """
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    took, own = [], []
    print("ready", flush=True)
    while not ended.is_set():
        due = time.perf_counter() + PERIOD
        time.sleep(PERIOD)
        own.append((time.perf_counter() - due) * 1000)
        sent = time.perf_counter()
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        answer.read()
        took.append((time.perf_counter() - sent) * 1000)
    print(json.dumps({"took": took, "own": own}))


def percentiles(values: list[float]) -> tuple[float, float, float]:
    """Return p50, p99 and the greatest value."""
    values = sorted(values)
    return values[len(values) // 2], values[len(values) * 99 // 100], values[-1]


async def _peak(pid: int) -> int:
    """Watch the resident bytes of a process until cancelled; return the most."""
    most = resident(pid)
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.01)
            most = max(most, resident(pid))
    return most


@asynccontextmanager
async def probing(port: int, path: str, key: str = KEY) -> AsyncIterator[Callable[[], Awaitable[dict[str, list[float]]]]]:
    """Run a probe from here on; the call ends it and returns what it has printed."""
    async with child("-m", "bench.bodies", "probe", str(port), path, key, stdin=True) as process:
        assert process.stdout is not None
        await process.stdout.readline()

        async def finish() -> dict[str, list[float]]:
            found: dict[str, list[float]] = json.loads((await process.communicate())[0])
            return found

        yield finish


async def measure(host: Host, kind: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Send the bodies of one kind beside the probe."""
    # The app's own part: the process beside it plays the host.
    [worker] = workers(host.pid)
    before, cpu = resident(worker), cpu_seconds(host.pid)
    watching = asyncio.create_task(_peak(worker))
    async with probing(host.port, PROBES[asked.probe]) as finish:
        started = time.perf_counter()
        async with child("-m", "bench.bodies", "send", str(host.port), kind, str(asked.count), str(asked.size), asked.key) as sending:
            sent, _ = await sending.communicate()
        wall = time.perf_counter() - started
        times = await finish()
    watching.cancel()
    return {
        "kind": kind,
        "statuses": json.loads(sent),
        "seconds": wall,
        "cpu": cpu_seconds(host.pid) - cpu,
        "probe": percentiles(times["took"]),
        "own": percentiles(times["own"]),
        "mib": ((most := await watching) - before) / MIB,
        "most_mib": most / MIB,
    }


async def run(names: list[str], asked: argparse.Namespace) -> None:
    settings = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": str(asked.size)}
    with emulator() as azurite:
        for name in names:
            async with devhost(azurite.connection_string, settings=settings) as host:
                found = await measure(host, name, asked)
            p50, p99, most = found["probe"]
            answers = ", ".join(f"{many} x {status}" for status, many in sorted(found["statuses"].items()))
            print(
                f"{name:20} {asked.count:3} bodies  {found['seconds']:5.1f} s  cpu {found['cpu']:5.1f} s  "
                f"probe ms p50 {p50:6.1f} p99 {p99:6.1f} max {most:6.1f} (own max {found['own'][2]:5.1f})  memory +{found['mib']:4.0f} MiB "
                f"to {found['most_mib']:4.0f}  {answers}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bodies", description="Measures hostile bodies beside other requests.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, default=64, help="bodies at once (default: 64)")
    parser.add_argument("--probe", choices=PROBES, default="liveness", help="request beside them (default: %(default)s)")
    parser.add_argument("--size", type=int, default=16 * MIB, help="bytes of a body, and the largest that the app takes (default: 16 MiB)")
    parser.add_argument("--key", default=KEY, help="key of the calls; any other than the app's is answered 401")
    given = parser.parse_args()
    if unknown := set(given.kinds) - KINDS.keys():
        parser.error(f"no such kinds: {', '.join(sorted(unknown))}")
    asyncio.run(run(given.kinds or list(KINDS), given))


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
    elif sys.argv[1:2] == ["probe"]:
        probe(int(sys.argv[2]), *sys.argv[3:])
    else:
        main()
