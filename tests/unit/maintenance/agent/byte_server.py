"""A peer that answers with bytes as they are given, for what no well-behaved server would send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

type Say = Callable[[socket.socket], None]


class Peer:
    """Each connection is given to the next of `says`, the last of them to all that follow. `heard`: what was asked."""

    def __init__(self, *says: Say) -> None:
        self._says = list(says)
        self.heard: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.closing = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            say = self._says.pop(0) if len(self._says) > 1 else self._says[0]
            threading.Thread(target=self._talk, args=(connection, say), daemon=True).start()

    def _talk(self, connection: socket.socket, say: Say) -> None:
        with connection:
            self.heard.append(_request(connection))
            try:
                say(connection)
            except OSError:
                return

    def close(self) -> None:
        self.closing.set()
        self._socket.close()


def _request(connection: socket.socket) -> bytes:
    taken = b""
    while b"\r\n\r\n" not in taken:
        taken += (more := connection.recv(65536))
        if not more:
            return taken
    head, _, body = taken.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def saying(status: int, body: bytes, *, declared: int | None = None) -> Say:
    """An answer; `declared`: the length it claims."""
    head = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body) if declared is None else declared}\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + body)


@contextmanager
def peer(*says: Say) -> Iterator[Peer]:
    it = Peer(*says)
    try:
        yield it
    finally:
        it.close()
