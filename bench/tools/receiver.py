"""A receiver of deliveries that costs next to nothing: `python -m bench.tools.receiver` prints its port, then answers 204 to every POST.

`GET /reset` forgets all deliveries, `GET /count` counts them, `GET /stats` computes their lateness (arrival on this machine's clock minus
`ce-tocsindue`, in milliseconds). Headers are only kept on arrival, and read when they are asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from datetime import datetime
from typing import cast

from devhost.loops import chosen_loop, loop_factory

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Arrivals:
    """The time at which each request was complete (nanoseconds since 1970), and its head."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []

    def stats(self) -> dict[str, object]:
        late: list[float] = []
        ids: set[str] = set()
        signed = 0
        for at, head in self.seen:
            fields = headers_of(head)
            ids.add(fields.get("ce-id", ""))
            signed += fields.get("webhook-signature", "").startswith("v1,")
            late.append(at / 1e6 - datetime.fromisoformat(fields["ce-tocsindue"]).timestamp() * 1000)
        late.sort()
        times = sorted(at for at, _ in self.seen)
        if not late:
            return {"count": 0}
        return {
            "count": len(late),
            "distinct": len(ids),
            "signed": signed,
            "early": sum(each < 0 for each in late),
            "min": late[0],
            "p50": late[len(late) // 2],
            "p90": late[len(late) * 9 // 10],
            "p99": late[min(len(late) - 1, len(late) * 99 // 100)],
            "max": late[-1],
            "first_ns": times[0],
            "last_ns": times[-1],
        }


class Connection(asyncio.Protocol):
    """Serves one client: reads requests with a Content-Length, one after the other."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            head = buffer[:end]
            size = _length(head)
            if len(buffer) < end + 4 + size:
                break
            body, buffer = buffer[end + 4 : end + 4 + size], buffer[end + 4 + size :]
            if head.startswith(b"POST"):
                self._transport.write(self.take(head, body))
            else:
                self._transport.write(self._answer(head.split(b" ", 2)[1]))
        self._buffer = buffer

    def take(self, head: bytes, body: bytes) -> bytes:
        """Take a delivery, and return the answer."""
        self._arrivals.seen.append((time.time_ns(), head))
        return NO_CONTENT

    def _answer(self, path: bytes) -> bytes:
        if path == b"/reset":
            self._arrivals.seen.clear()
        body = json.dumps(self._arrivals.stats() if path == b"/stats" else {"count": len(self._arrivals.seen)}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def headers_of(head: bytes) -> dict[str, str]:
    """Return the headers of a request by their names in lower case."""
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in lines}


def _length(head: bytes) -> int:
    at = head.lower().find(b"\r\ncontent-length:")
    if at < 0:
        return 0
    return int(head[at + 17 : at + 32].split(b"\r", 1)[0])


async def main() -> None:
    """Serve until the process is ended."""
    arrivals = Arrivals()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(arrivals), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(), loop_factory=loop_factory(chosen_loop(os.environ)))
