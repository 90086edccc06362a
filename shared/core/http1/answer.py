"""Reads the answers of receivers: the status, `Retry-After`, and where the answer ends. Pure: bytes in, no I/O.

The bodies of answers are passed over; a caller that wants to keep their beginning gives the number of bytes. All bounds are in bytes of
the answer, so the result does not depend on how the network cut it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .head import AnswerRefused, HeadReader, parse_framing

MAX_ANSWER_BYTES = 64 * 1024
"""Bytes of one answer that are read, informational answers before it included. Then its connection is closed."""
_LONGEST_LINE = 1024
"""Bytes of a line between chunks: a chunk's size with its extensions, or a trailer field."""
_TOO_LONG = f"an answer of more than {MAX_ANSWER_BYTES // 1024} KiB"
_LATER = re.compile(rb"(?im)^tocsin-complete:[ \t]*later[ \t]*\r?$")
_NEVER = re.compile(rb"(?im)^tocsin-retry:[ \t]*never[ \t]*\r?$")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")

_framing_of = lru_cache(64)(parse_framing)
"""The heads of a receiver's answers are often the same for a second, until their date changes."""


class AnswerReader(HeadReader):
    """Reads one answer. Its result is known with its head."""

    __slots__ = (
        *("_chunked", "_keep", "_keep_accepted", "_read", "_skip", "_trailer", "_until_closed"),
        *("cut", "fields", "kept", "later", "never", "retry_after"),
    )

    def __init__(self, keep: int = 0, *, keep_accepted: bool = False) -> None:
        """keep: bytes of the body that are kept, if the status is not 2xx or `keep_accepted` is true."""
        super().__init__()
        self._keep, self._keep_accepted = keep, keep_accepted
        self.kept: bytes | bytearray = b""
        """The beginning of the body, up to `keep` bytes."""
        self.cut = False
        """True if the body goes on behind what is kept."""
        self.fields = b""
        """The fields of the final head as sent, if its body is kept."""
        self._until_closed = False
        """True if the body is kept and ends with the connection."""
        self.retry_after: str | None = None
        self.later = False
        """True if the receiver has accepted long work (`core.long_work`)."""
        self.never = False
        """True if the answer says that the event must not be tried again."""
        self._read = 0
        """Bytes of the answer so far."""
        self._chunked = self._trailer = False
        self._skip = 0
        """Bytes of the body, or of the present chunk with its line end, that are still to come."""

    @property
    def usable(self) -> bool:
        """See `HeadReader`."""
        return self.head_read

    def end(self, *, clean: bool) -> None:
        """See `HeadReader`. A body that is not complete by then was cut."""
        if self._until_closed:
            self.complete = True

    @property
    def began(self) -> bool:
        """True if a byte of the answer has arrived."""
        return self._read > 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises AnswerRefused if the head is not valid or too long."""
        left = MAX_ANSWER_BYTES - self._read
        self._read += len(data)
        rest = data if len(data) <= left else data[:left]
        if not self.head_read:
            found = self._read_heads(rest)
            if found is None:
                if rest is not data:
                    raise AnswerRefused(_TOO_LONG)
                return
            rest = found
        if self.complete:
            # Another answer would pass for that of the next request.
            self.reusable = self.reusable and not rest
        else:
            self._pass_over(rest)
        if self._read > MAX_ANSWER_BYTES:
            self._finish(reusable=False)

    def _frame(self, head: bytes, begun: int, status: int) -> None:
        """See `HeadReader`."""
        length, codings, kept, self.retry_after = _framing_of(head, begun)
        self.head_read = True
        if status == 202:
            self.later = _LATER.search(head, begun) is not None
        elif status >= 300:
            self.never = _NEVER.search(head, begun) is not None
        if self._keep and (self._keep_accepted or not 200 <= status < 300):
            self.fields = head[begun:]
        else:
            self._keep = 0
        if status in (204, 304) or status < 200:
            # What some receivers send behind such a head, in spite of the standard, must not be read as the next answer.
            self._finish(reusable=kept and status >= 200 and not codings and (not length or status == 304))
        elif codings == (b"chunked",):
            self._chunked, self.reusable = True, kept and length is None
        elif codings or length is None or length > MAX_ANSWER_BYTES:
            # The body ends with the connection, or beyond the bound: there is no point in reading more of it than is kept.
            self._until_closed = bool(self._keep) and not codings
            self.cut = length is not None
            if not self._until_closed:
                self._finish(reusable=False)
        elif length == 0:
            self._finish(reusable=kept)
        else:
            self._skip, self.reusable = length, kept

    def _pass_over(self, data: bytes) -> None:
        """Pass over bytes of the body, and keep its beginning."""
        at = 0
        if self._until_closed:
            self._keep_some(data)
            if len(self.kept) >= self._keep:
                self.cut = True
                self._finish(reusable=False)
            return
        if not self._chunked:
            self._keep_some(data[: self._skip])
            self._skip -= len(data)
            if self._skip <= 0:
                self._finish(reusable=self.reusable and self._skip == 0)
            return
        while at < len(data):
            if self._skip:
                taken = min(self._skip, len(data) - at)
                # The line end behind a chunk is not part of the body.
                self._keep_some(data[at : at + min(taken, max(0, self._skip - 2))])
                self._skip -= taken
                at += taken
                continue
            end = data.find(b"\n", at, at + _LONGEST_LINE) + 1
            line = self._buffer + data[at : end or at + _LONGEST_LINE]
            if len(line) >= _LONGEST_LINE:
                self._finish(reusable=False)
                return
            if not end:
                self._buffer = line
                return
            self._buffer, at = b"", end
            self._read_line(line)
            if self.complete:
                self.reusable = self.reusable and at == len(data)
                return

    def _keep_some(self, data: bytes) -> None:
        if self._keep:
            room = self._keep - len(self.kept)
            # In place: a body that comes in many small pieces must not be copied with each of them.
            kept = self.kept if isinstance(self.kept, bytearray) else bytearray(self.kept)
            kept += data[:room]
            self.kept = kept
            self.cut = self.cut or len(data) > room

    def _read_line(self, line: bytes | bytearray) -> None:
        """Read a line between chunks, or one of the trailer."""
        if self._trailer:
            if line in (b"\r\n", b"\n"):
                self._finish(reusable=self.reusable)
            return
        size = _SIZE.fullmatch(line)
        length = int(size[1], 16) if size is not None else MAX_ANSWER_BYTES
        if length >= MAX_ANSWER_BYTES:
            self._finish(reusable=False)
        elif length == 0:
            self._trailer = True
        else:
            self._skip = length + 2

    def _finish(self, *, reusable: bool) -> None:
        self.complete, self.reusable, self._buffer = True, reusable, b""
