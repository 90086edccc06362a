"""Read files of events line by line: NDJSON as the API takes it, CSV with field names in its first line.

A line that cannot be an event is reported with its number and does not stop the others. The service checks the fields of an event.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import orjson

from ...client.batches import EncodedEvent

type FileFormat = Literal["ndjson", "csv"]
MAX_LINE: Final = 2 * 1024 * 1024
"""Longest line, in bytes. No event is that long, even with every character of its payload escaped."""
_MAX_REJECTED: Final = 4096
"""Bytes that are stored of a line that is too long."""
COLUMNS: Final = (
    *("id", "due", "delay", "channel", "channels", "expires", "flex", "durability"),
    *("timeout", "on_delivered", "on_dead", "ordering_key", "content_type", "payload"),
)
_DOTTED: Final = ("payload", "labels", "retry", "target")
_BOM: Final = b"\xef\xbb\xbf"


class RejectedLine(NamedTuple):
    """A line that is not an event. number: counted from 1."""

    number: int
    text: str
    why: str


class FilePart(NamedTuple):
    """Consecutive lines of a file: their events, the rejected lines, and the position and line number after them."""

    events: list[EncodedEvent]
    rejected: list[RejectedLine]
    offset: int
    number: int


class BadHeader(ValueError):
    """The first line of a CSV file does not name fields of events."""


def read_parts(
    file: BinaryIO, form: FileFormat, *, ids: bool, most: int, room: int, offset: int = 0, number: int = 0
) -> Iterator[FilePart]:
    """Yield the rest of the file in parts of at most `most` lines and about `room` bytes.

    offset: position of the file, which is after line `number`. ids: give an id to each event that has none. Raises `BadHeader`, and
    OSError from the file.
    """
    source = _LineCounter(file, offset, number)
    found = _ndjson(source, ids) if form == "ndjson" else _csv(source, ids, offset)
    part, filled, yielded = FilePart([], [], 0, 0), 0, offset
    for each in found:
        if isinstance(each, EncodedEvent):
            part.events.append(each)
            filled += len(each.text)
        elif isinstance(each, RejectedLine):
            part.rejected.append(each)
            filled += len(each.text)
        if len(part.events) + len(part.rejected) >= most or filled >= room:
            yielded = source.offset
            yield part._replace(offset=yielded, number=source.number)
            part, filled = FilePart([], [], 0, 0), 0
    if source.offset > yielded:
        yield part._replace(offset=source.offset, number=source.number)


class _LineCounter:
    """Reads and counts a file's lines. As an iterator for the CSV reader it yields text; raises `_TooLong` and UnicodeDecodeError."""

    def __init__(self, file: BinaryIO, offset: int, number: int) -> None:
        self._file, self.offset, self.number = file, offset, number
        self.first = offset == 0

    def line(self) -> bytes | None:
        """Return the next line with its line end, or None at the end of the file.

        Of a line that is too long, only the beginning is returned, which is longer than MAX_LINE.
        """
        text = self._file.readline(MAX_LINE + 1)
        if not text:
            return None
        self.offset += len(text)
        self.number += 1
        if len(text) > MAX_LINE and not text.endswith(b"\n"):
            while rest := self._file.readline(MAX_LINE):
                self.offset += len(rest)
                if rest.endswith(b"\n"):
                    break
        if self.first and text.startswith(_BOM):
            text = text[len(_BOM) :]
        self.first = False
        return text

    def __iter__(self) -> _LineCounter:
        return self

    def __next__(self) -> str:
        text = self.line()
        if text is None:
            raise StopIteration
        if len(text) > MAX_LINE:
            raise _TooLong
        return text.decode()


class _TooLong(ValueError):
    def __str__(self) -> str:
        return f"longer than {MAX_LINE:,} bytes"


def _ndjson(source: _LineCounter, ids: bool) -> Iterator[EncodedEvent | RejectedLine]:
    while (text := source.line()) is not None:
        number = source.number
        if len(text) > MAX_LINE:
            yield RejectedLine(number, text[:_MAX_REJECTED].decode(errors="replace"), str(_TooLong()))
            continue
        # Between the tokens of JSON a carriage return is white space, but the service may take it for the end of a line.
        text = text.strip().replace(b"\r", b" ")
        if not text:
            continue
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError as wrong:
            yield RejectedLine(number, text.decode(errors="replace"), f"not JSON: {wrong.msg}, at character {wrong.pos + 1}")
            continue
        if not isinstance(found, dict):
            yield RejectedLine(number, text.decode(errors="replace"), "not an object")
            continue
        yield _event(number, text, found, ids)


def _event(number: int, text: bytes, found: dict[str, Any], ids: bool) -> EncodedEvent:
    named = found.get("channels")
    channels = len(named) if isinstance(named, list) and named else 1
    if "id" in found:
        return EncodedEvent(number, text, True, channels)
    if not ids or found.get("durability") == "fast":
        return EncodedEvent(number, text, False, channels)
    # Made from the line's number and content, so that importing the same file again adds nothing.
    name = blake2b(b"%d:%b" % (number, text), digest_size=16).hexdigest()
    return EncodedEvent(number, b'{"id":"~%b"%b%b' % (name.encode(), b"," if found else b"", text[1:]), True, channels)


def _csv(source: _LineCounter, ids: bool, offset: int) -> Iterator[EncodedEvent | RejectedLine]:
    csv.field_size_limit(MAX_LINE)
    if offset:
        source._file.seek(0)
        header = _header(_LineCounter(source._file, 0, 0))
        source._file.seek(offset)
    else:
        header = _header(source)
    while True:
        # A new reader for each record: the rest of a broken record must not become part of the next one.
        before = source.number + 1
        try:
            record = next(csv.reader(source, strict=True), None)
        except (csv.Error, ValueError) as wrong:
            why = "not UTF-8" if isinstance(wrong, UnicodeDecodeError) else str(wrong)
            until = f", up to line {source.number}" if source.number > before else ""
            yield RejectedLine(before, "", f"not CSV{until}: {why}")
            continue
        if record is None:
            return
        if not record:
            continue
        try:
            found = event_of_record(header, record)
        except ValueError as wrong:
            yield RejectedLine(before, _joined(record), str(wrong))
            continue
        yield _event(before, orjson.dumps(found), found, ids)


def _header(source: _LineCounter) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader(source, strict=True), [])]
    except (csv.Error, ValueError) as wrong:
        raise BadHeader(f"the first line is not CSV in UTF-8: {wrong}") from None
    for name in names:
        head, dot, rest = name.partition(".")
        if (name not in COLUMNS and not (head in _DOTTED and dot and rest)) or (head == "target" and rest not in ("path", "method")):
            columns = f"{', '.join(COLUMNS)}, payload.NAME, labels.NAME, retry.NAME, target.path, target.method"
            raise BadHeader(f"the first line names {name[:40]!r}; columns are {columns}")
    if len(set(names)) < len(names):
        raise BadHeader("the first line names a column twice")
    if "due" not in names and "delay" not in names:
        raise BadHeader("the first line names neither due nor delay")
    if "target.method" not in names and not any(name.partition(".")[0] == "payload" for name in names):
        raise BadHeader("the first line names neither payload nor payload.NAME")
    if "payload" in names and any(name.startswith("payload.") for name in names):
        raise BadHeader("the first line names both payload and payload.NAME")
    return names


def event_of_record(header: list[str], record: list[str]) -> dict[str, Any]:
    """Return the event of a CSV record, without its empty cells. Raises ValueError.

    `payload` is JSON; the cells of `payload.NAME` are texts, which together form an object.
    """
    if len(record) != len(header):
        raise ValueError(f"{len(record)} cells, but {len(header)} columns")
    found: dict[str, Any] = {}
    for name, cell in zip(header, record, strict=True):
        if not cell:
            continue
        head, dot, rest = name.partition(".")
        if name == "payload":
            try:
                orjson.loads(cell)
            except orjson.JSONDecodeError as wrong:
                raise ValueError(f"the payload is not JSON: {wrong.msg}") from None
            # As written, with all digits. A line break outside of strings is white space; strings of JSON contain none.
            found[name] = orjson.Fragment(cell.replace("\n", " ").replace("\r", " "))
        elif dot:
            # The pauses of a schedule stand in one cell, with spaces between them.
            value = _number(name, cell) if name == "retry.attempts" else cell.split() if name == "retry.schedule" else cell
            found.setdefault(head, {})[rest] = value
        else:
            # The names of a fan-out's channels stand in one cell, with spaces between them.
            found[name] = cell.split() if name == "channels" else cell
    if "payload" not in found and found.get("target", {}).get("method") not in ("GET", "DELETE"):
        if not any(name.startswith("payload.") for name in header):
            raise ValueError("no payload")
        found["payload"] = {}
    return found


def _number(name: str, cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
        raise ValueError(f"{name} is not a whole number: {cell[:40]}")
    return int(cell)


def _joined(record: list[str]) -> str:
    import io

    text = io.StringIO()
    csv.writer(text).writerow(record)
    return text.getvalue().rstrip("\r\n")
