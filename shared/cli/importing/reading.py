"""Files of events, read line by line: NDJSON as the API takes it, CSV with the names of fields in its first line.

A line that cannot be an event is told with its number and does not stop the others. Whether the fields of an event make sense is for the
service to say.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import orjson

from ...client.batches import Line

type Format = Literal["ndjson", "csv"]
MAX_LINE: Final = 2 * 1024 * 1024
"""Bytes of a line; longer than any event, however its payload is escaped."""
_SHOWN: Final = 4096
"""Characters kept of a line that was too long."""
COLUMNS: Final = ("id", "due", "delay", "channel", "expires", "flex", "durability", "payload")
_DOTTED: Final = ("payload", "labels", "retry")
_BOM: Final = b"\xef\xbb\xbf"


class Bad(NamedTuple):
    """A line that is no event. number: counted from 1."""

    number: int
    text: str
    why: str


class Part(NamedTuple):
    """Some of a file's lines: the events among them, the others, and where the file goes on after them."""

    events: list[Line]
    bad: list[Bad]
    offset: int
    number: int


class BadHeader(ValueError):
    """The first line of a CSV file does not name fields of events."""


def parts(file: BinaryIO, form: Format, *, ids: bool, most: int, room: int, offset: int = 0, number: int = 0) -> Iterator[Part]:
    """What the file holds from `offset` on, the place after line `number`, where the file stands: parts of at most `most` lines, and of
    about `room` bytes. ids: give one to each event that has none.

    Raises `BadHeader`; OSError as files do.
    """
    source = _Counted(file, offset, number)
    found = _ndjson(source, ids) if form == "ndjson" else _csv(source, ids, offset)
    part, filled, told = Part([], [], 0, 0), 0, offset
    for each in found:
        if isinstance(each, Line):
            part.events.append(each)
            filled += len(each.text)
        elif isinstance(each, Bad):
            part.bad.append(each)
            filled += len(each.text)
        if len(part.events) + len(part.bad) >= most or filled >= room:
            told = source.offset
            yield part._replace(offset=told, number=source.number)
            part, filled = Part([], [], 0, 0), 0
    if source.offset > told:
        yield part._replace(offset=source.offset, number=source.number)


class _Counted:
    """A file's lines, counted. Iterated by the CSV reader, it gives text, and raises what `_TooLong` and UnicodeDecodeError mean."""

    def __init__(self, file: BinaryIO, offset: int, number: int) -> None:
        self._file, self.offset, self.number = file, offset, number
        self.first = offset == 0

    def line(self) -> bytes | None:
        """The next line with its end; None at the end of the file. Of one that is too long the beginning, longer than MAX_LINE."""
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

    def __iter__(self) -> _Counted:
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


def _ndjson(source: _Counted, ids: bool) -> Iterator[Line | Bad]:
    while (text := source.line()) is not None:
        number = source.number
        if len(text) > MAX_LINE:
            yield Bad(number, text[:_SHOWN].decode(errors="replace"), str(_TooLong()))
            continue
        # Between the tokens of JSON a carriage return is a blank; the service may take it for the end of a line.
        text = text.strip().replace(b"\r", b" ")
        if not text:
            continue
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError as wrong:
            yield Bad(number, text.decode(errors="replace"), f"not JSON: {wrong.msg}, at character {wrong.pos + 1}")
            continue
        if not isinstance(found, dict):
            yield Bad(number, text.decode(errors="replace"), "not an object")
            continue
        yield _event(number, text, found, ids)


def _event(number: int, text: bytes, found: dict[str, Any], ids: bool) -> Line:
    if "id" in found:
        return Line(number, text, True)
    if not ids or found.get("durability") == "fast":
        return Line(number, text, False)
    # Of the place and the content: whoever imports the same file again adds nothing.
    name = blake2b(b"%d:%b" % (number, text), digest_size=16).hexdigest()
    return Line(number, b'{"id":"~%b"%b%b' % (name.encode(), b"," if found else b"", text[1:]), True)


def _csv(source: _Counted, ids: bool, offset: int) -> Iterator[Line | Bad]:
    csv.field_size_limit(MAX_LINE)
    if offset:
        source._file.seek(0)
        header = _header(_Counted(source._file, 0, 0))
        source._file.seek(offset)
    else:
        header = _header(source)
    while True:
        # One reader a record: what is left of a broken one does not spill into the next.
        before = source.number + 1
        try:
            record = next(csv.reader(source, strict=True), None)
        except (csv.Error, ValueError) as wrong:
            why = "not UTF-8" if isinstance(wrong, UnicodeDecodeError) else str(wrong)
            until = f", up to line {source.number}" if source.number > before else ""
            yield Bad(before, "", f"not CSV{until}: {why}")
            continue
        if record is None:
            return
        if not record:
            continue
        try:
            found = document(header, record)
        except ValueError as wrong:
            yield Bad(before, _joined(record), str(wrong))
            continue
        yield _event(before, orjson.dumps(found), found, ids)


def _header(source: _Counted) -> list[str]:
    try:
        names = [name.strip() for name in next(csv.reader(source, strict=True), [])]
    except (csv.Error, ValueError) as wrong:
        raise BadHeader(f"the first line is not CSV in UTF-8: {wrong}") from None
    for name in names:
        head, dot, rest = name.partition(".")
        if name not in COLUMNS and not (head in _DOTTED and dot and rest):
            columns = f"{', '.join(COLUMNS)}, payload.NAME, labels.NAME, retry.NAME"
            raise BadHeader(f"the first line names {name[:40]!r}; columns are {columns}")
    if len(set(names)) < len(names):
        raise BadHeader("the first line names a column twice")
    if "due" not in names and "delay" not in names:
        raise BadHeader("the first line names neither due nor delay")
    if not any(name.partition(".")[0] == "payload" for name in names):
        raise BadHeader("the first line names neither payload nor payload.NAME")
    if "payload" in names and any(name.startswith("payload.") for name in names):
        raise BadHeader("the first line names both payload and payload.NAME")
    return names


def document(header: list[str], record: list[str]) -> dict[str, Any]:
    """The event of a CSV record: cells that are empty are left out. ValueError says what is wrong.

    `payload` is JSON; the cells of `payload.NAME` are texts, and together an object.
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
            # As it was written, with all its digits; outside of strings a line break is a blank, and inside there is none.
            found[name] = orjson.Fragment(cell.replace("\n", " ").replace("\r", " "))
        elif dot:
            found.setdefault(head, {})[rest] = _number(name, cell) if name == "retry.attempts" else cell
        else:
            found[name] = cell
    if "payload" not in found:
        if "payload" in header:
            raise ValueError("no payload")
        found["payload"] = {}
    return found


def _number(name: str, cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
        raise ValueError(f"{name} is not a number")
    return int(cell)


def _joined(record: list[str]) -> str:
    import io

    told = io.StringIO()
    csv.writer(told).writerow(record)
    return told.getvalue().rstrip("\r\n")
