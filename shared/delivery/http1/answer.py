"""Reads the answers of receivers: the status, `Retry-After`, and where the answer ends. Pure: bytes in, no I/O.

The bodies of answers are passed over; a caller that wants to keep their beginning gives the number of bytes. All bounds are in bytes of
the answer, so the result does not depend on how the network cut it.
"""

from __future__ import annotations

import re

MAX_ANSWER_BYTES = 64 * 1024
"""Bytes of one answer that are read, informational answers before it included. Then its connection is closed."""
MOST_INFORMATIONAL = 5
"""Informational answers before the final one; with one more, the attempt fails."""
_MOST_HELD = 16 * 1024
"""Bytes of one informational answer, and of a status line; with more, the attempt fails."""
_LONGEST_LINE = 1024
"""Bytes of a line between chunks: a chunk's size with its extensions, or a trailer field."""

NOT_HTTP = "the answer is not valid HTTP"
_TOO_LONG = f"an answer of more than {MAX_ANSWER_BYTES // 1024} KiB"
_TOO_MUCH_HELD = f"more than {_MOST_HELD // 1024} KiB before the status of the final answer"
_TOO_MANY = f"more than {MOST_INFORMATIONAL} informational answers and no final one"

_STATUS_LINE = re.compile(rb"HTTP/(1\.1|1\.0|2\.0) ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
"""Some receivers say 2.0 on a connection that speaks 1.1."""
_HEAD_END = re.compile(rb"\n\r?\n")
_FIELDS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\r\n\x00]*+\r?\n)*+\r?\n")
_FRAMING = re.compile(rb"^(content-length|transfer-encoding|connection|retry-after):([^\r\n]*+)", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"[0-9]{1,15}")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")


class AnswerRefused(Exception):
    """Raised for an answer that is not valid or beyond the bounds. Its text has no bytes of the answer."""


class AnswerReader:
    """Reads one answer."""

    __slots__ = (
        *("_buffer", "_chunked", "_informational", "_keep", "_keep_accepted", "_line_end", "_read", "_scanned", "_skip", "_trailer"),
        *("_until_closed", "complete", "cut", "fields", "head_read", "kept", "retry_after", "reusable", "status"),
    )

    def __init__(self, keep: int = 0, *, keep_accepted: bool = False) -> None:
        """keep: bytes of the body that are kept, if the status is not 2xx or `keep_accepted` is true."""
        self._keep, self._keep_accepted = keep, keep_accepted
        self.kept: bytes | bytearray = b""
        """The beginning of the body, up to `keep` bytes."""
        self.cut = False
        """True if the body goes on behind what is kept."""
        self.fields = b""
        """The fields of the final head as sent, if its body is kept."""
        self._until_closed = False
        """True if the body is kept and ends with the connection."""
        self.status: int | None = None
        """The final status, as soon as its line was read."""
        self.retry_after: str | None = None
        self.head_read = False
        """True if the final answer's head was read to its end: the verdict is known, whatever follows."""
        self.complete = False
        """True if no more of the answer will be read."""
        self.reusable = False
        """True if the connection can take another request, once the answer is complete."""
        self._read = 0
        """Bytes of the answer so far."""
        self._buffer: bytes | bytearray = b""
        """Bytes that were not used yet: of a head, or of a line between chunks."""
        self._line_end = self._scanned = 0
        """Where the status line in the buffer ends, 0 if it is not complete; and up to where the end of the head was looked for."""
        self._informational = 0
        self._chunked = self._trailer = False
        self._skip = 0
        """Bytes of the body, or of the present chunk with its line end, that are still to come."""

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
            self._end(reusable=False)

    def end_with_connection(self) -> None:
        """Note that the connection has ended. A body that is not complete by then was cut."""
        if self._until_closed:
            self.complete = True

    def _read_heads(self, data: bytes) -> bytes | None:
        """Read informational answers and the final head; return the bytes behind it, or None if it is not complete."""
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

    def _frame(self, head: bytes, begun: int, status: int) -> None:
        """Decide where the answer ends. begun: where the fields begin in the head."""
        lengths: set[bytes] = set()
        codings: list[bytes] = []
        kept = head.startswith(b"HTTP/1.1")
        for name, given in _FRAMING.findall(head, begun):
            value = given.strip(b" \t")
            match name.lower():
                case b"content-length":
                    lengths.add(value)
                case b"transfer-encoding":
                    codings.append(value.lower())
                case b"retry-after":
                    self.retry_after = self.retry_after or value.decode("latin-1")
                case _:
                    options = [option.strip() for option in value.lower().split(b",")]
                    kept = (kept or b"keep-alive" in options) and b"close" not in options
        if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise AnswerRefused(NOT_HTTP)
        self.head_read = True
        length = int(lengths.pop()) if lengths else None
        if self._keep and (self._keep_accepted or not 200 <= status < 300):
            self.fields = head[begun:]
        else:
            self._keep = 0
        if status in (204, 304) or status < 200:
            # What some receivers send behind such a head, in spite of the standard, must not be read as the next answer.
            self._end(reusable=kept and status >= 200 and not codings and (not length or status == 304))
        elif codings == [b"chunked"]:
            self._chunked, self.reusable = True, kept and length is None
        elif codings or length is None or length > MAX_ANSWER_BYTES:
            # The body ends with the connection, or beyond the bound: there is no point in reading more of it than is kept.
            self._until_closed = bool(self._keep) and not codings
            self.cut = length is not None
            if not self._until_closed:
                self._end(reusable=False)
        elif length == 0:
            self._end(reusable=kept)
        else:
            self._skip, self.reusable = length, kept

    def _pass_over(self, data: bytes) -> None:
        """Pass over bytes of the body, and keep its beginning."""
        at = 0
        if self._until_closed:
            self._keep_some(data)
            if len(self.kept) >= self._keep:
                self.cut = True
                self._end(reusable=False)
            return
        if not self._chunked:
            self._keep_some(data[: self._skip])
            self._skip -= len(data)
            if self._skip <= 0:
                self._end(reusable=self.reusable and self._skip == 0)
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
                self._end(reusable=False)
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
                self._end(reusable=self.reusable)
            return
        size = _SIZE.fullmatch(line)
        length = int(size[1], 16) if size is not None else MAX_ANSWER_BYTES
        if length >= MAX_ANSWER_BYTES:
            self._end(reusable=False)
        elif length == 0:
            self._trailer = True
        else:
            self._skip = length + 2

    def _end(self, *, reusable: bool) -> None:
        self.complete, self.reusable, self._buffer = True, reusable, b""


def _check_begun_line(text: bytes | bytearray) -> None:
    """Raise AnswerRefused unless `text` may be the beginning of a status line."""
    end = text.find(b"\n", 0, _MOST_HELD)
    if not b"HTTP/".startswith(bytes(text[:5])) or end >= 0:
        raise AnswerRefused(NOT_HTTP)
    if len(text) > _MOST_HELD:
        raise AnswerRefused(_TOO_MUCH_HELD)
