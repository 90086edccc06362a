"""Reads the heads of answers: the status, and how the answer ends. Pure: bytes in, no I/O."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import NamedTuple

MOST_INFORMATIONAL = 5
"""Informational answers before the final one; with one more, the answer is refused."""
_MOST_HELD = 16 * 1024
"""Bytes of one informational answer, and of a status line; with more, the answer is refused."""
_MOST_KEPT = 2 * 1024
"""Most bytes of a head whose reading is cached: answers of a receiver often have the same head until its `Date` changes, each second."""

NOT_HTTP = "the answer is not valid HTTP"
_TOO_MUCH_HELD = f"more than {_MOST_HELD // 1024} KiB before the status of the final answer"
_TOO_MANY = f"more than {MOST_INFORMATIONAL} informational answers and no final one"

_STATUS_LINE = re.compile(rb"HTTP/(1\.1|1\.0|2\.0) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
"""Some receivers say 2.0 on a connection that speaks 1.1."""
_HEAD_END = re.compile(rb"\n\r?\n")
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\r\n\x00]*+\r?\n)*+\r?\n")
_FRAMING = re.compile(rb"^(content-length|transfer-encoding|connection|retry-after):([^\r\n]*+)", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"[0-9]{1,15}")


class AnswerRefused(Exception):
    """Raised for an answer that is not valid or beyond the bounds. Its text has no bytes of the answer."""


class Framing(NamedTuple):
    """The end of an answer as its head tells it. `length` is None without a Content-Length; `kept` if the connection stays open."""

    length: int | None
    codings: tuple[bytes, ...]
    kept: bool
    retry_after: str | None


class HeadReader(ABC):
    """Reads the informational answers and the head of one answer. Subclasses read what follows."""

    __slots__ = (
        *("_buffer", "_informational", "_line_end", "_scanned"),
        *("complete", "head_read", "reusable", "status"),
    )

    def __init__(self) -> None:
        self.status: int | None = None
        """The final status, as soon as its line was read."""
        self.head_read = False
        """True if the final answer's head was read to its end."""
        self.complete = False
        """True if no more of the answer will be read."""
        self.reusable = False
        """True if the connection can take another request, once the answer is complete."""
        self._buffer: bytes | bytearray = b""
        """Bytes that were not used yet: of a head, or of a line between chunks."""
        self._line_end = self._scanned = 0
        """Positions in the buffer: the end of the status line (0 if it is not complete), and the end of the searched part of the head."""
        self._informational = 0

    @property
    @abstractmethod
    def usable(self) -> bool:
        """True if the result of the request is known, whatever follows."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises AnswerRefused if the answer is not valid or too long."""

    @abstractmethod
    def end(self, *, clean: bool) -> None:
        """Note that the connection has ended. clean: the other side closed it in order."""

    @abstractmethod
    def _frame(self, head: bytes, begun: int, status: int) -> None:
        """Decide where the answer ends. begun: where the fields begin in the head."""

    def _read_heads(self, data: bytes) -> bytes | None:
        """Read informational answers and the final head; return the bytes behind it, or None if it is not complete."""
        # The usual case, and the fastest: the first bytes hold a whole final head.
        if not self._buffer and not self._line_end and (size := data.find(b"\r\n\r\n", 0, _MOST_KEPT) + 4) > 3:
            head = bytes(data[:size])
            if (found := _final_head(head)) is not None:
                self.status, begun = found
                self._frame(head, begun, self.status)
                return data[size:]
        text: bytes | bytearray = data
        if self._buffer:
            # In place: an answer that comes in many small pieces must not be copied with each of them.
            text = self._buffer if isinstance(self._buffer, bytearray) else bytearray(self._buffer)
            text += data
        while True:
            if not self._line_end:
                if text[:1] in (b"\r", b"\n"):
                    text = text.lstrip(b"\r\n")
                line = _STATUS_LINE.match(text) if not self._buffer or b"\n" in data else None
                if line is None or line.end() > _MOST_HELD:
                    _check_begun_line(text)
                    self._buffer = text
                    return None
                self._line_end = line.end()
                # The line end of the status line may be the first one of the empty line that ends the head.
                self._scanned = line.end() - 1
                status = int(line[2])
                if status >= 200 or status == 101:
                    self.status = status
            end = _HEAD_END.search(text, self._scanned)
            if self.status is None and (end.end() if end is not None else len(text)) > _MOST_HELD:
                raise AnswerRefused(_TOO_MUCH_HELD)
            if end is None:
                self._scanned = max(self._scanned, len(text) - 2)
                self._buffer = text
                return None
            if _FIELDS.fullmatch(text, self._line_end, end.end()) is None:
                raise AnswerRefused(NOT_HTTP)
            head, text = bytes(text[: end.end()]), text[end.end() :]
            begun, self._line_end, self._buffer = self._line_end, 0, b""
            if self.status is not None:
                self._frame(head, begun, self.status)
                return bytes(text)
            self._informational += 1
            if self._informational > MOST_INFORMATIONAL:
                raise AnswerRefused(_TOO_MANY)
            data = bytes(text)


@lru_cache(64)
def _final_head(head: bytes) -> tuple[int, int] | None:
    """Return the status, and where the fields begin, of the valid head of a final answer; None for any other bytes."""
    line = _STATUS_LINE.match(head)
    if line is None or int(line[2]) < 200 or _FIELDS.fullmatch(head, line.end()) is None:
        return None
    return int(line[2]), line.end()


def parse_framing(head: bytes, begun: int) -> Framing:
    """Return what a head says about the end of its answer. begun: where the fields begin. Raises AnswerRefused for lengths that differ."""
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    retry_after: str | None = None
    kept = head.startswith(b"HTTP/1.1")
    for name, given in _FRAMING.findall(head, begun):
        value = given.strip(b" \t")
        match name.lower():
            case b"content-length":
                lengths.add(value)
            case b"transfer-encoding":
                codings.append(value.lower())
            case b"retry-after":
                retry_after = retry_after or value.decode("latin-1")
            case _:
                options = [option.strip() for option in value.lower().split(b",")]
                kept = (kept or b"keep-alive" in options) and b"close" not in options
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise AnswerRefused(NOT_HTTP)
    return Framing(int(lengths.pop()) if lengths else None, tuple(codings), kept, retry_after)


def _check_begun_line(text: bytes | bytearray) -> None:
    """Raise AnswerRefused unless `text` may be the beginning of a status line."""
    end = text.find(b"\n", 0, _MOST_HELD)
    if not b"HTTP/".startswith(bytes(text[:5])) or end >= 0:
        raise AnswerRefused(NOT_HTTP)
    if len(text) > _MOST_HELD:
        raise AnswerRefused(_TOO_MUCH_HELD)
