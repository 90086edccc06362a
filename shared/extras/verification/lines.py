"""Reads trace lines: as logged, inside the lines of another log, or in rows that a back end exported (JSON or CSV)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import orjson

from ...storage.ports import ANY
from ...storage.transition_trace import MARK, VERSION, SeenRow

type Kind = Literal["gate", "lease", "turn"]

LONGEST_DOCUMENT: Final = 512 * 1024 * 1024
"""Bytes of a file that is one JSON document, such as an export of Log Analytics."""
LATEST_TIME: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_KINDS: Final = frozenset({"i", "m", "r", "u", "d"})


class TracedOp(NamedTuple):
    """One operation. required: ETag that it was conditional on, '' for none, `*` for any. given: the row's ETag after it."""

    verb: str
    rk: str
    props: dict[str, Any]
    required: str
    given: str


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One transaction. by: the process. number: number of the line in that process. at: the process's wall time in milliseconds. lost: the
    answer was lost, so it may be applied or not. cut: number of event rows that are left out."""

    by: str
    number: int
    at: int
    kind: Kind
    partition: str
    lost: bool
    ops: tuple[TracedOp, ...]
    seen: dict[str, SeenRow]
    cut: int = 0

    def text(self) -> str:
        """Return the line in words, for reports."""
        shown = ", ".join(_shown(op) for op in self.ops[:4]) + (f" and {len(self.ops) - 4} more" if len(self.ops) > 4 else "")
        return f"{self.by} line {self.number}{' (answer lost)' if self.lost else ''}: {shown}"


_SHOWN: Final = ("state", "holder", "epoch", "owner", "incarnation", "beat", "seq", "taking", "attempt", "sequence")


def _shown(op: TracedOp) -> str:
    values = " ".join(f"{name}={op.props[name]}" for name in _SHOWN if op.props.get(name) not in (None, ""))
    verb = {"i": "insert", "m": "merge", "r": "replace", "u": "upsert", "d": "delete"}[op.verb]
    return f"{verb} {op.rk}{f' ({values})' if values else ''}{' whatever its ETag' if op.required == ANY else ''}"


@dataclass(slots=True)
class TraceReading:
    """The result of reading files so far. unreadable: trace lines that cannot be read. newer: lines of a later version. truncated: lines
    without their end, as a killed process leaves one. put: takes each line and its JSON; without it, they are in `found`."""

    lines: int = 0
    unreadable: int = 0
    newer: int = 0
    truncated: int = 0
    put: Callable[[TraceLine, bytes], object] | None = None
    found: list[TraceLine] = field(default_factory=list)


def parse_line(text: str | bytes) -> TraceLine:
    """Return the transaction of a line's JSON. Raises ValueError for anything else, `NewerVersion` for a version that is not known."""
    document = orjson.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("v"), int):
        raise ValueError("not a trace line")
    if document["v"] > VERSION:
        raise NewerVersion(f"version {document['v']} of a trace line; this command reads up to {VERSION}")
    try:
        ops, before, after = [], "", ""
        for verb, rk, props, required, given in document["o"]:
            if verb not in _KINDS or not isinstance(props, dict):
                raise ValueError("not an operation")
            before, after = before if required == "=" else str(required), after if given == "=" else str(given)
            ops.append(TracedOp(verb, str(rk), props, before, after))
        if document["k"] not in ("gate", "lease", "turn") or not ops:
            raise ValueError("not a kind of partition")
        if not 0 <= int(document["at"]) <= LATEST_TIME or not 0 < int(document["n"]) < 2**53:
            raise ValueError("not a time or a number of a line")
        seen = {str(rk): SeenRow(dict(props), str(etag), int(age)) for rk, (props, etag, age) in document.get("b", {}).items()}
        return TraceLine(
            str(document["by"]),
            int(document["n"]),
            int(document["at"]),
            document["k"],
            str(document["p"]),
            document.get("a") == "lost",
            tuple(ops),
            seen,
            int(document.get("cut", 0)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a trace line: {error!r}") from None


class NewerVersion(ValueError):
    """A line of a version that a later release writes."""


def read_text(reading: TraceReading, text: bytes) -> None:
    """Add the trace lines of one line of a file."""
    reading.lines += 1
    mark = MARK.encode()
    at = text.find(mark)
    body = text.strip()
    if at < 0 and body.startswith(b'{"v":'):
        _add(reading, body)
    elif at >= 0:
        start = at + len(mark)
        if b'\\"v' in text[start : start + 8] or b'""v' in text[start : start + 8]:
            _add_quoted(reading, body)
        else:
            _add(reading, text[start:].strip())


def _add_quoted(reading: TraceReading, body: bytes) -> None:
    """Add lines inside a JSON document or a row of CSV, where quotes are escaped."""
    try:
        document = orjson.loads(body.rstrip(b","))
    except ValueError:
        for part in body.replace(b'""', b'"').split(MARK.encode())[1:]:
            _add(reading, part[: _end(part)])
        return
    read_document(reading, document)


def _end(part: bytes) -> int:
    return _object(part)[0]


def _object(part: bytes) -> tuple[int, bool]:
    """Return the position behind the JSON object that a text begins with, and False if the text ends before the object does."""
    depth, quoted = 0, False
    at = 0
    while at < len(part):
        letter = part[at : at + 1]
        if letter == b"\\" and quoted:
            at += 1
        elif letter == b'"':
            quoted = not quoted
        elif not quoted and letter in b"{}":
            depth += 1 if letter == b"{" else -1
            if not depth:
                return at + 1, True
        at += 1
    return len(part), not part.startswith(b"{")


def read_document(reading: TraceReading, document: Any) -> None:
    """Add the trace lines of every text in a JSON document, however deep."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            _, mark, rest = each.partition(MARK)
            if mark:
                _add(reading, rest.encode())
        elif isinstance(each, dict):
            waiting += reversed(list(each.values()))
        elif isinstance(each, list):
            waiting += reversed(each)


def _add(reading: TraceReading, body: bytes) -> None:
    try:
        line = parse_line(body)
    except NewerVersion:
        reading.newer += 1
        return
    except ValueError:
        end, whole = _object(body)
        if not whole:
            reading.truncated += 1
            return
        body = body[:end]
        try:
            line = parse_line(body)
        except ValueError:
            reading.unreadable += 1
            return
    if reading.put is not None:
        # A line break outside the texts of JSON means nothing, and inside them it is escaped.
        reading.put(line, body.replace(b"\n", b" "))
    else:
        reading.found.append(line)


def read_lines(reading: TraceReading, lines: Iterable[bytes]) -> Iterator[int]:
    """Add the trace lines of a file, and yield the bytes read so far. A file that is one JSON document over several lines is read whole."""
    done = 0
    document: list[bytes] = []
    for text in lines:
        done += len(text)
        if document or (not reading.lines and not done - len(text) and text.lstrip()[:1] in (b"[", b"{") and not _is_whole(text)):
            document.append(text)
            if done > LONGEST_DOCUMENT:
                raise ValueError("the file is one JSON document of more than 512 MiB: export it in parts")
        else:
            read_text(reading, text)
        yield done
    if document:
        try:
            read_document(reading, orjson.loads(b"".join(document)))
        except orjson.JSONDecodeError:
            for text in document:
                read_text(reading, text)


def _is_whole(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True
