"""Reads whole answers: status, headers and body, within bounds. Pure: bytes in, no I/O.

An answer that breaks off, or whose length is not clear, is never taken for a complete one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from .head import NOT_HTTP, AnswerRefused, HeadReader, parse_framing

MAX_HEAD_BYTES = 64 * 1024
"""Bytes of the heads of one answer, informational ones included."""
MAX_BODY_BYTES = 128 * 1024 * 1024
"""Bytes of the body of one answer. A page of Table storage has 4 MiB at most; the emulator does not bound it."""
_LONGEST_LINE = 8 * 1024
"""Bytes of a line between chunks."""
_TOO_LONG = "an answer beyond the bounds"
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_NAME = re.compile(rb"^([^:\r\n]++):", re.MULTILINE)


@lru_cache(64)
def _value_of(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"^" + re.escape(name.encode()) + rb":([^\r\n]*+)\r?$", re.IGNORECASE | re.MULTILINE)


class AnswerHeaders(Mapping[str, str]):
    """The headers of an answer. Names have any case; of several fields of one name, the first one counts."""

    __slots__ = ("_fields",)

    def __init__(self, fields: bytes = b"") -> None:
        """fields: the lines of the head behind the status line, valid ones."""
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        found = _value_of(name).search(self._fields)
        if found is None:
            raise KeyError(name)
        return found[1].strip(b" \t").decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1").lower() for name in _NAME.findall(self._fields)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class FullAnswerReader(HeadReader):
    """Reads one answer. Its result is known with its last byte."""

    __slots__ = ("_after_chunk", "_chunked", "_head_bytes", "_left", "_lines", "_pieces", "_size", "_trailer", "_until_end", "headers")

    def __init__(self) -> None:
        super().__init__()
        self.headers = AnswerHeaders()
        self._pieces: list[bytes] = []
        self._head_bytes = self._size = self._lines = 0
        self._left = 0
        """Bytes of the body, or of the present chunk, that are still to come."""
        self._chunked = self._after_chunk = self._trailer = self._until_end = False

    @property
    def usable(self) -> bool:
        """See `HeadReader`."""
        return self.complete

    @property
    def body(self) -> bytes:
        """The part of the body that was read."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def end(self, *, clean: bool) -> None:
        """See `HeadReader`. A body without a length ends with its connection."""
        if self._until_end and clean:
            self.complete = True

    def feed(self, data: bytes) -> None:
        """See `HeadReader`."""
        if not self.head_read:
            self._head_bytes += len(data)
            rest = self._read_heads(data)
            if rest is None or self._head_bytes - len(rest) > MAX_HEAD_BYTES:
                if self._head_bytes > MAX_HEAD_BYTES:
                    raise AnswerRefused(_TOO_LONG)
                return
            data = rest
        if self.complete:
            # Another answer would pass for that of the next request.
            self.reusable = self.reusable and not data
        elif self._chunked:
            self._feed_chunks(data)
        elif data:
            self._keep(data)
            if not self._until_end and not self._left:
                self.complete = True

    def _frame(self, head: bytes, begun: int, status: int) -> None:
        """See `HeadReader`."""
        length, codings, kept, _ = parse_framing(head, begun)
        self.headers, self.head_read = AnswerHeaders(head[begun:]), True
        if status in (204, 304) or status < 200:
            self.complete = True
            self.reusable = kept and status >= 200 and not codings and (not length or status == 304)
        elif codings == (b"chunked",):
            self._chunked, self.reusable = True, kept and length is None
        elif codings:
            raise AnswerRefused(NOT_HTTP)
        elif length is None:
            self._until_end = True
        elif length > MAX_BODY_BYTES:
            raise AnswerRefused(_TOO_LONG)
        else:
            self._left, self.complete, self.reusable = length, length == 0, kept

    def _keep(self, data: bytes) -> None:
        """Keep bytes of the body. With a length, what is behind it is left out."""
        if not self._until_end:
            if len(data) > self._left:
                data, self.reusable = data[: self._left], False
            self._left -= len(data)
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            raise AnswerRefused(_TOO_LONG)
        self._pieces.append(data)

    def _feed_chunks(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._keep(piece)
                self._after_chunk = not self._left
                continue
            end = data.find(b"\n", at) + 1
            line = self._buffer + data[at : end or len(data)]
            if len(line) > _LONGEST_LINE:
                raise AnswerRefused(_TOO_LONG)
            if not end:
                self._buffer = line
                return
            self._buffer, at = b"", end
            self._read_line(bytes(line))
            if self.complete:
                self.reusable = self.reusable and at == len(data)
                return

    def _read_line(self, line: bytes) -> None:
        """Read a line between chunks, or one of the trailer."""
        empty = line in (b"\r\n", b"\n")
        if self._trailer:
            self._lines += len(line)
            if self._lines > MAX_HEAD_BYTES:
                raise AnswerRefused(_TOO_LONG)
            self.complete = empty
            return
        if self._after_chunk:
            self._after_chunk = False
            if not empty:
                raise AnswerRefused(NOT_HTTP)
            return
        size = _SIZE.fullmatch(line)
        if size is None:
            raise AnswerRefused(NOT_HTTP)
        self._left = int(size[1], 16)
        self._trailer = not self._left
