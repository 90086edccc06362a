"""Finds where the values of a JSON text begin and end, without building them.

Work is bounded by bytes: no step of a generator reads more than `STEP` bytes, whatever the text holds. Only brackets, quotes and commas are
read here. A value that is found may still be malformed inside; it is parsed by itself afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import NamedTuple

import orjson

STEP = 8 * 1024
"""Most bytes that are read between two yields. Brackets are the slowest: 8 KiB of them take about half a millisecond."""
PIECE = 2 * 1024
"""Most bytes whose brackets are counted at once."""
_SHORTEST_PIECE = 512
TOKENS = 128
"""Brackets and long strings of a container that are read one by one, which is quicker for few of them."""
MAX_MEMBERS = 256
"""Most top-level members of an object of which one member is looked for in steps."""
MAX_OUTSIDE = 128 * 1024
"""Most bytes of its other members. The largest labels that an event may have, written with escapes, take about 100,000."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+){0,16}+"'
_FLAT = rb'\{(?:[^"\[\]{}]++|%b){0,16}+\}|\[(?:[^"\[\]{}]++|%b){0,16}+\]' % (_STRING, _STRING)
# Counts in these patterns bound the work of one match; what does not fit is read piece by piece.
_RUN = re.compile(rb'(?:[^"\[\]{}]++|%b|%b){0,256}+' % (_STRING, _FLAT), re.DOTALL)
"""Values that can be skipped inside a container: scalars, strings, and containers without containers inside."""
_RUN_AT_LIMIT = re.compile(rb'(?:[^"\[\]{}]++|%b){0,256}+' % _STRING, re.DOTALL)
"""The same without containers, for the deepest level that is allowed."""
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+){0,4096}+', re.DOTALL)
_SHORT_STRING = re.compile(_STRING, re.DOTALL)
_SHORT_CONTAINER = re.compile(_FLAT, re.DOTALL)
_SCALAR = re.compile(rb'[^\x00-\x20",:\[\]{}]++')
_SPACE = re.compile(rb"[ \t\n\r]*+")
_BLANK = re.compile(rb"\s*+")
_LAST_SPACE = ord(" ")
"""The greatest byte that is white space."""
_OPENING = re.compile(rb"[\[{]++")
_CLOSING = re.compile(rb"[\]}]++")
_WHOLE_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OUTSIDE = re.compile(rb'(?:[^"]++|%b)*+' % _WHOLE_STRING, re.DOTALL)
"""Text up to the first string that does not end in it."""
_STRINGS = re.compile(_WHOLE_STRING, re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DELTA = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
"""Change of the depth by each byte."""
_QUOTE, _BACKSLASH = b'"\\'
_OPEN, _CLOSE = b"[{", b"]}"

type ParseSteps[T] = Generator[None, None, T]
"""Yields None after each bounded step, and returns its result."""


class Span(NamedTuple):
    """The place of a value: `raw[start:end]`. `deep`: it has more levels than were allowed."""

    start: int
    end: int
    deep: bool = False


class Malformed(ValueError):
    """The text is not JSON at this place."""

    def __init__(self, reason: str, at: int) -> None:
        """reason: continues "The body is not JSON: ". at: the place, in bytes from 0."""
        super().__init__(f"{reason} at byte {at}")


class Twice(ValueError):
    """The object has this member twice."""


class Oversize(ValueError):
    """The object is larger than any valid one."""


def array_elements(raw: bytes, levels: int) -> Iterator[Span | None]:
    """Yield the place of each element of a JSON array, and None after each bounded step without one. Raises `Malformed`.

    levels: most levels that an element may have without being `deep`.
    """
    at = yield from _after_space(raw, 0)
    if raw[at : at + 1] != b"[":
        raise Malformed("expected an array of events", at)
    at = yield from _after_space(raw, at + 1)
    if raw[at : at + 1] != b"]":
        while True:
            span = yield from _value(raw, at, levels)
            yield span
            at = yield from _after_space(raw, span.end)
            if raw[at : at + 1] == b"]":
                break
            if raw[at : at + 1] != b",":
                raise Malformed("expected a comma or the end of the array", at)
            at = yield from _after_space(raw, at + 1)
    at = yield from _after_space(raw, at + 1)
    if at < len(raw):
        raise Malformed("unexpected content after the array", at)


def lines(raw: bytes) -> Iterator[Span | None]:
    """Yield the place of each line that is not blank, and None after each bounded step without one."""
    at, size = 0, len(raw)
    while at < size:
        # Most lines do not begin with white space.
        if raw[at] <= _LAST_SPACE:
            end = at + STEP
            at = _BLANK.match(raw, at, end).end()  # type: ignore[union-attr]
            if at == min(end, size):
                yield None
                continue
        # The white space before the line may hold line breaks, so the line begins after it.
        start = at
        while (found := raw.find(b"\n", at, at + STEP)) < 0 and at + STEP < size:
            at += STEP
            yield None
        end = size if found < 0 else found
        yield Span(start, end)
        at = end + 1


def members(raw: bytes, levels: int) -> Iterator[tuple[str, Span] | None]:
    """Yield name and place of each member of a JSON object, in order, and None after each bounded step. Raises `Malformed`.

    Yields no member if `raw` is another value.
    """
    at = yield from _after_space(raw, 0)
    if raw[at : at + 1] != b"{":
        return
    at = yield from _after_space(raw, at + 1)
    while raw[at : at + 1] == b'"':
        name = yield from _value(raw, at, levels)
        at = yield from _after_space(raw, name.end)
        if raw[at : at + 1] != b":":
            raise Malformed("expected a colon", at)
        at = yield from _after_space(raw, at + 1)
        value = yield from _value(raw, at, levels)
        key = raw[name.start + 1 : name.end - 1]
        try:
            yield orjson.loads(raw[name.start : name.end]) if b"\\" in key else key.decode(), value
        except ValueError:
            raise Malformed("the name of a member cannot be read", name.start) from None
        at = yield from _after_space(raw, value.end)
        if raw[at : at + 1] != b",":
            break
        at = yield from _after_space(raw, at + 1)


def member_span(raw: bytes, name: str, levels: int) -> Span | None:
    """Return the place of the top-level member `name` (the last one, if there are several), or None. Raises `Malformed`."""
    found = None
    for member in members(raw, levels):
        if member is not None and member[0] == name:
            found = member[1]
    return found


def measure(raw: bytes, levels: int) -> ParseSteps[Span]:
    """Return the place of the first value of the text, in steps. Raises `Malformed`."""
    return (yield from _value(raw, (yield from _after_space(raw, 0)), levels))


def locate(raw: bytes, name: str, levels: int) -> ParseSteps[Span | None]:
    """Return what `member_span` returns, in steps.

    Raises `Malformed`, and `Oversize` for an object with more than `MAX_MEMBERS` members, or with more than `MAX_OUTSIDE` bytes in others
    than this one. Raises `Twice`.
    """
    found, count, outside = None, 0, 0
    names = set[str]()
    for member in members(raw, levels):
        if member is None:
            yield
            continue
        key, span = member
        if key in names:
            raise Twice(key)
        names.add(key)
        count += 1
        other = span if key != name else found
        outside += 0 if other is None else other.end - other.start
        found = span if key == name else found
        if count > MAX_MEMBERS:
            raise Oversize(f"has more than {MAX_MEMBERS} members")
        if outside > MAX_OUTSIDE:
            raise Oversize(f"has more than {MAX_OUTSIDE:,} bytes beside the member {name}")
    return found


def count_containers(text: bytes) -> int:
    """Return the number of arrays and objects that begin in a text of whole strings."""
    count = text.count(b"[") + text.count(b"{")
    if count == 0 or b'"' not in text:
        return count
    bare = _STRINGS.sub(b"", text)
    return bare.count(b"[") + bare.count(b"{")


def finish[T](steps: ParseSteps[T]) -> T:
    """Run all steps at once."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _after_space(raw: bytes, at: int) -> ParseSteps[int]:
    while True:
        end = _SPACE.match(raw, at, at + STEP).end()  # type: ignore[union-attr]
        if end < at + STEP:
            return end
        at = end
        yield


def _short_value(raw: bytes, at: int, levels: int) -> Span | None:
    """Return the place of the string, array or object that begins at `at`; None for most long ones, and for other values."""
    first = raw[at] if at < len(raw) else -1
    found = None
    if first == _QUOTE:
        end = raw.find(b'"', at + 1, at + STEP)
        if end > 0 and raw.find(b"\\", at + 1, end) < 0:
            # Without escapes. The pattern takes several times as long.
            return Span(at, end + 1)
        found = _SHORT_STRING.match(raw, at, at + STEP)
    elif first >= 0 and first in _OPEN and levels > 0:
        found = _SHORT_CONTAINER.match(raw, at, at + STEP)
    return Span(at, found.end()) if found else None


def _value(raw: bytes, at: int, levels: int) -> ParseSteps[Span]:
    """Return the place of the value that begins at `at`."""
    if (short := _short_value(raw, at, levels)) is not None:
        return short
    first = raw[at] if at < len(raw) else -1
    if first == _QUOTE:
        return Span(at, (yield from _string(raw, at)))
    if first >= 0 and first in _OPEN:
        return (yield from _container(raw, at, levels))
    start = at
    while found := _SCALAR.match(raw, at, at + STEP):
        at = found.end()
        if at < start + STEP:
            break
        yield
    if at == start:
        raise Malformed("expected a value", at)
    return Span(start, at)


def _string(raw: bytes, at: int) -> ParseSteps[int]:
    """Return the end of the string that begins at `at`."""
    size, at = len(raw), at + 1
    while at < size:
        at = _REST_OF_STRING.match(raw, at, at + STEP).end()  # type: ignore[union-attr]
        if at < size and raw[at] == _QUOTE:
            return at + 1
        if at < size and raw[at] == _BACKSLASH:
            # The pair was cut by the end of the step, or by the bound of the pattern.
            at += 2
        yield
    raise Malformed("a string does not end", size)


def _container(raw: bytes, at: int, levels: int) -> ParseSteps[Span]:
    """Return the place of the array or object that begins at `at`.

    After the first `TOKENS` brackets, they are counted in pieces of text. A piece that holds the end is halved until it is short.
    """
    start, size = at, len(raw)
    depth, deep, left, piece, spent = 1, levels < 1, TOKENS, _SHORTEST_PIECE, 0
    at += 1
    while at < size:
        before = at
        if left > 0:
            left -= 1
            at = (_RUN if depth < levels else _RUN_AT_LIMIT).match(raw, at, at + PIECE).end()  # type: ignore[union-attr]
            byte = raw[at] if at < size else -1
            if byte < 0:
                break
            if byte in _OPEN:
                opened = _OPENING.match(raw, at, at + PIECE).end()  # type: ignore[union-attr]
                depth += opened - at
                deep = deep or depth > levels
                at = opened
            elif byte in _CLOSE:
                closed = _CLOSING.match(raw, at, at + depth).end()  # type: ignore[union-attr]
                depth -= closed - at
                at = closed
                if depth == 0:
                    return Span(start, at, deep)
            elif byte == _QUOTE:
                at = yield from _string(raw, at)
        else:
            at = _OUTSIDE.match(raw, at, at + piece).end()  # type: ignore[union-attr]
            change, highest = _count_brackets(raw[before:at], depth, levels)
            if at == before:
                at = yield from _string(raw, at)
            elif change is not None:
                depth, deep, piece = depth + change, deep or highest > levels, min(piece * 2, PIECE)
            else:
                piece, at = (at - before) // 2, before
                if piece < _SHORTEST_PIECE:
                    left, piece = TOKENS, _SHORTEST_PIECE
        spent += at - before
        if spent >= STEP:
            spent -= STEP
            yield
    raise Malformed("an array or object does not end", size)


def _count_brackets(text: bytes, depth: int, levels: int) -> tuple[int | None, int]:
    """Return the change of the depth by `text`, or None if the container ends in it; and the greatest depth, as far
    as it decides whether `levels` are exceeded.

    text: holds whole strings only.
    """
    brackets = (_STRINGS.sub(b"", text) if b'"' in text else text).translate(None, _NO_BRACKETS)
    closing = brackets.count(b"]") + brackets.count(b"}")
    opening = len(brackets) - closing
    if closing < depth and (depth + opening <= levels or depth > levels):
        return opening - closing, depth
    depths = list(accumulate(map(_DELTA.__getitem__, brackets), initial=depth))
    return None if 0 in depths else opening - closing, max(depths)
