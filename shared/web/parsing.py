"""Parses query strings and bodies strictly, and reports faults precisely.

The rules for a body, in their order: 411 chunked without a length (the platform delivers such bodies empty), 413 too long, 422
`empty-body`, 415 another media type or not UTF-8, 422 `malformed-json` (including NaN, Infinity, invalid UTF-8, lone surrogates and
control characters), 422 nested deeper than 64 levels, 422 against the model, 422 for a member that is given twice, but for those inside of
payloads. Nothing is coerced: "1" is not a number. A number beyond a double, such as 1e400, is JSON: payloads may hold it, other fields not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from json import JSONDecoder
from typing import Any
from urllib.parse import parse_qsl

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from ..core.errors import Problem
from . import json_spans
from .fields.error_texts import fault_text
from .json_spans import Malformed, Oversize, ParseSteps, Span, Twice, array_elements, finish, locate, member_span, members
from .problem import invalid, invalid_all, unreadable

MAX_DEPTH = 64
"""Most levels of arrays and objects in a body, the outermost included."""
LARGE = 8 * 1024
"""Size in bytes from which a payload is not built along with the members around it."""
MAX_OUTSIDE_CONTAINERS = 1000
"""Most arrays and objects in a large object beside its large member. A valid event has a few of them; reading more would only cost time."""
MAX_MEMBERS = 10_000
"""Most members of a large object that is built as a whole, those of its objects included: about 15 ms, if no model knows them."""
MAX_VALUES = 100_000
"""Most values of a document that is built as a whole: about 10 ms. In the largest report of an agent, each has ten bytes."""
MOST_COMPARED = 32 * 1024
"""Most bytes of a text in which members that are given twice are looked for: about 8 ms."""
MAX_ERRORS = 20
"""Most faults in one answer."""
MAX_DESCRIBED = 2000
"""Most faults of a document of which some are described: pydantic describes all or none of them, in a microsecond each."""
MAX_POINTER = 256
"""Longest pointer in an answer, in characters: a member's name may be as long as the body."""
MAX_PARAMETERS = 32

type Loc = tuple[int | str, ...]

_MOST_DIGITS = 4300
"""Digits of a whole number that pydantic's parser takes."""
_LONG = (
    rb"(?<![0-9.eE+])(?<![eE]-)[1-9][0-9]{%d,}+(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+(?![0-9.eE+-])"  # a number whose whole part is longer
    % _MOST_DIGITS
)
_BESIDE_LONG = rb'(?:[^"1-9]++|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|(?!%b)[1-9][0-9]*+)++' % _LONG
_LONG_NUMBERS = re.compile(rb"(%b)|%b" % (_BESIDE_LONG, _LONG), re.DOTALL)
_MANY_DIGITS = re.compile(rb"(?<![0-9])[0-9]{%d}" % (_MOST_DIGITS + 1))

_TWICE = "is given twice; give it once"
_NAME_ENDS = re.compile(rb'"[ \t\n\r]*+:')
_ARRAY = re.compile(rb"[ \t\n\r]*+\[")
# Only the ends of values matter, so numbers are not converted (and Python's limit on digits does not apply).
_scan = JSONDecoder(parse_float=len, parse_int=len).scan_once  # type: ignore[attr-defined]


def read_query(url: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters of `url`; `given` (parsed by the host) counts only if the URL comes without its query.

    The host drops empty values and joins repeated ones; the URL still has both, so that both can be refused.
    """
    _, mark, text = url.partition("?")
    if not mark:
        return dict(given)
    try:
        pairs = parse_qsl(text.partition("#")[0], keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise invalid("?", f"must be a query of at most {MAX_PARAMETERS} parameters in UTF-8") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        names = [name for name, _ in pairs]
        raise invalid_all((f"?{name[:MAX_POINTER]}", "is given more than once; give it once") for name in query if names.count(name) > 1)
    return query


def parse_query[T](adapter: TypeAdapter[T], query: Mapping[str, str]) -> T:
    """Return the query model of `query`. Raises 422 with `?name` pointers."""
    try:
        return adapter.validate_strings(query)
    except ValidationError as failure:
        found = invalid_all((_cut("?" + str(error["loc"][0] if error["loc"] else "")), fault_text(error)) for error in _errors(failure))
    # Outside of the clause for the reason in `_validated`.
    raise found


def media_type(headers: Mapping[str, str], accepted: Sequence[str]) -> str:
    """Return the body's media type in lower case, without parameters; raise 415 unless it is one of `accepted` and UTF-8.

    `application/json` in `accepted` stands for `application/*+json` too.
    """
    text = headers.get("content-type", "")
    if text in accepted and "content-encoding" not in headers:
        return text
    kind, *parameters = (part.strip() for part in text.lower().split(";"))
    json_like = kind.startswith("application/") and kind.endswith("+json") and "application/json" in accepted
    if kind not in accepted and not json_like:
        got = f"The body has the media type {_cut(kind)}" if kind else "The body has no Content-Type"
        raise Problem(415, "unsupported-media-type", f"{got}. Send it as {' or '.join(accepted)}.")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise Problem(415, "unsupported-media-type", f"The body has the charset {_cut(value.strip())}. Send it in UTF-8.")
    encoding = headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise Problem(415, "unsupported-media-type", f"The body has the Content-Encoding {_cut(encoding.strip())}. Send it uncompressed.")
    return kind


def check_length(headers: Mapping[str, str], raw: bytes, limit: int) -> None:
    """Raise 411 for a body sent without a length, and 413 for one over `limit` bytes."""
    if "transfer-encoding" in headers and "content-length" not in headers:
        raise Problem(411, "length-required", "The body has no length. Send it with Content-Length; chunked bodies are not accepted.")
    if len(raw) > limit:
        raise Problem(413, "content-too-large", f"The body has {len(raw):,} bytes. At most {limit:,} are accepted.")


def parse_json[T](adapter: TypeAdapter[T], raw: bytes, *, any_number: bool = False, opaque: Collection[str] = ()) -> T:
    """Return `raw` as the type of `adapter`. Raises 422.

    opaque: members of the outermost object whose values are checked by the caller.
    any_number: accept numbers beyond a double everywhere, for models without numbers of their own.
    Two parsers are used on purpose: orjson refuses NaN, which pydantic accepts; pydantic keeps whole numbers of any size.
    Together they take 1.5 us for 500 bytes.
    """
    document = load_json(raw, any_number=any_number)
    found = _validated(adapter, _shorten(raw) if any_number else raw, document)
    refuse_twice(raw, document, opaque)
    return found


def parse_json_in_steps[T](adapter: TypeAdapter[T], raw: bytes) -> ParseSteps[T]:
    """Return what `parse_json` returns, in two steps. Raises 422 also for more values or members than are read in the time of a step."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise invalid("", f"has more than {MAX_VALUES:,} values")
    if not _ARRAY.match(raw) and raw.count(b":") > MAX_MEMBERS:
        raise invalid("", f"has more than {MAX_MEMBERS:,} members")
    document = load_json(raw)
    yield
    return _validated(adapter, raw, document)


def _validated[T](adapter: TypeAdapter[T], raw: bytes, document: Any) -> T:
    try:
        return adapter.validator.validate_json(raw, strict=True)  # type: ignore[no-any-return]
    except ValidationError as failure:
        found = content_problem(failure, document)
    # Outside of the clause, so that the problem does not refer to pydantic's failure. That failure holds the errors of validators, whose
    # frames refer to the problem and to the body. The garbage collector cannot look into it, so such a cycle would stay in memory forever.
    raise found


def parse_with[T](adapter: TypeAdapter[T], raw: bytes, opaque: str) -> tuple[T, bytes | None]:
    """Return `raw` as the type of `adapter`, and one member of it as sent; see `parse_in_steps`. Raises 422."""
    return finish(parse_in_steps(adapter, raw, opaque))


def parse_in_steps[T](adapter: TypeAdapter[T], raw: bytes, opaque: str) -> ParseSteps[tuple[T, bytes | None]]:
    """Return what `parse_with` returns, in steps that are bounded by bytes.

    opaque: a member whose value may be any JSON. In a large document it is checked, and becomes null in the result: it is not built twice.
    """
    if len(raw) <= LARGE and (found := parse_small(adapter, raw, opaque)) is not None:
        return found
    rest, value = yield from split(raw, opaque)
    yield
    return parse_json(adapter, rest, opaque=(opaque,)), value


def parse_small[T](adapter: TypeAdapter[T], raw: bytes, opaque: str) -> tuple[T, bytes | None] | None:
    """Return what `parse_with` returns for an ordinary document of at most `LARGE` bytes; None if it must be read in steps. Raises 422."""
    if _has_many_digits(raw):
        return None
    try:
        document = load_json(raw)
    except Problem:
        # A number beyond a double in the member is no fault.
        return None
    found = _validated(adapter, raw, document)
    refuse_twice(raw, document, (opaque,))
    return found, known_member(raw, opaque, document)


def split(raw: bytes, opaque: str) -> ParseSteps[tuple[bytes, bytes | None]]:
    """Return the document with null for the value of one member, and this value as sent, after checking it.

    The value may hold numbers beyond a double. A document without the member, or one that is not JSON, is returned unchanged, and None;
    a large array is returned as an empty one. Raises 422 if the value is too deep, or the object has more members, or more bytes or
    containers beside this one, than any valid one.
    """
    if len(raw) > LARGE and _ARRAY.match(raw):
        # No model takes an array, whatever it holds.
        return (yield from _emptied(raw)), None
    try:
        span = yield from locate(raw, opaque, MAX_DEPTH - 1)
    except Malformed:
        return raw, None
    except Twice as member:
        raise invalid(_pointer((str(member),)), _TWICE) from None
    except Oversize as excess:
        raise invalid("", str(excess)) from None
    if len(raw) > LARGE:
        yield
        beside = _count_beside(raw, span)
        yield
        if beside > MAX_OUTSIDE_CONTAINERS and _is_json(raw):
            raise invalid("", f"has more than {MAX_OUTSIDE_CONTAINERS:,} arrays and objects beside the member {opaque}")
    if span is None:
        return raw, None
    if span.deep:
        raise _too_deep(_pointer((opaque,)))
    value = raw[span.start : span.end]
    yield
    if not _is_json(value):
        return raw, None
    return raw[: span.start] + b"null" + raw[span.end :], value


def _emptied(raw: bytes) -> ParseSteps[bytes]:
    """Return an empty array for a text that is an array, or the text itself if it is not JSON or too deep."""
    try:
        span = yield from json_spans.measure(raw, MAX_DEPTH)
    except Malformed:
        return raw
    yield
    return b"[]" if not span.deep and _is_json(raw) else raw


def _count_beside(raw: bytes, span: Span | None) -> int:
    """Return the number of arrays and objects beside one value."""
    beside = [raw] if span is None else [raw[: span.start], raw[span.end :]]
    return sum(map(json_spans.count_containers, beside))


def _is_json(raw: bytes) -> bool:
    """Return True if the text is JSON, maybe with numbers beyond a double.

    The comma after the document stops the parser after it has read everything and before it builds anything: building takes five times as
    long.
    """
    try:
        orjson.loads(raw + b",")
    except orjson.JSONDecodeError as failure:
        if failure.msg == "unexpected content after document" and failure.pos == len(failure.doc) - 1:
            return True
    try:
        _load(raw, any_number=True)
    except Problem:
        return False
    return True


def without(raw: bytes, opaque: str) -> bytes:
    """Return the document with null for the value of one member; see `split`."""
    return finish(split(raw, opaque))[0]


def load_json(raw: bytes, *, any_number: bool = False) -> Any:
    """Return the document in `raw`; raise 422 if it is not JSON or too deep.

    any_number: accept numbers beyond a double, as infinities.
    """
    document = _load(raw, any_number)
    # Most bodies are one object without others inside, and a search takes a tenth of the time of counting.
    if (raw.find(b"{", 1) >= 0 or raw.find(b"[") >= 0) and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check_depth(document)
    return document


def _load(raw: bytes, any_number: bool) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as failure:
        if any_number and "infinity" in failure.msg:
            with suppress(ValueError):
                return from_json(_shorten(raw), allow_inf_nan=False)
        if "depth limit" in failure.msg:
            raise _too_deep("") from None
        # orjson's messages name positions and kinds, and never repeat the body.
        raise unreadable("malformed-json", f"The body is not JSON: {failure.msg} at character {failure.pos}.") from None


def refuse_twice(raw: bytes, document: Any, opaque: Collection[str] = ()) -> None:
    """Raise 422 for an object of a JSON text that names a member twice. document: what the text holds. opaque: members of the outermost
    object in whose values that is allowed. A text over `MOST_COMPARED` is not looked at.
    """
    # A member has a quote and a colon. Where there are no more of these than members, none was lost.
    if len(raw) > MOST_COMPARED or len(_NAME_ENDS.findall(raw)) == _count_members(document):
        return
    try:
        whole = _WITH_TWICE.decode(raw.decode())
    except (ValueError, RecursionError):
        return
    if found := list(islice(_twice(whole, (), opaque), MAX_ERRORS)):
        raise invalid_all((_pointer(parts), _TWICE) for parts in found)


class _Object(dict[str, Any]):
    """An object of a JSON text. twice: the names that it has more than once."""

    twice: Collection[str] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        names = Counter(name for name, _ in pairs)
        found.twice = [name for name, count in names.items() if count > 1]
    return found


# Numbers are not converted.
_WITH_TWICE = JSONDecoder(object_pairs_hook=_object, parse_float=len, parse_int=len)


def _count_members(document: Any) -> int:
    count, waiting = 0, [document]
    for here in waiting:
        kind = type(here)
        if kind is dict:
            count += len(here)
            waiting += here.values()
        elif kind is list:
            waiting += here
    return count


def _twice(value: Any, parts: Loc, opaque: Collection[str] = ()) -> Iterator[Loc]:
    """Yield the path of each member that is given twice."""
    if isinstance(value, _Object):
        for name in value.twice:
            yield (*parts, name)
        for name, inner in value.items():
            if name not in opaque:
                yield from _twice(inner, (*parts, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _twice(inner, (*parts, number))


def _has_many_digits(raw: bytes) -> bool:
    return len(raw) > _MOST_DIGITS and _MANY_DIGITS.search(raw) is not None


def _shorten(raw: bytes) -> bytes:
    """Return the document with a short number beyond a double for each one that pydantic's parser cannot take.

    A document that is not JSON remains so.
    """
    return _LONG_NUMBERS.sub(lambda found: found[1] or b"1e999", raw) if _has_many_digits(raw) else raw


def content_problem(failure: ValidationError, document: Any) -> Problem:
    """Return 422 that locates the faults of `document`. Only names of members are repeated, because values may be secrets."""
    if failure.error_count() > MAX_DESCRIBED:
        return invalid("", f"has {failure.error_count():,} faults, too many to describe; compare it with its schema in /api/openapi.json")
    found = []
    for error in _errors(failure):
        parts = _parts(_loc(error), error["type"], document)
        found.append((_pointer(parts), fault_text(error, _at(parts, document))))
    return invalid_all(found)


def _parts(loc: Loc, kind: str, document: Any) -> Loc:
    """Return the parts of pydantic's `loc` that lead to the place within `document`.

    pydantic's path also has parts that are not in the document: the branch of a union, the wrapper of a validator. They are skipped. Where
    a part could be either (a branch with a member's name), the reading that reaches the end of the path counts.
    """
    return _walk(loc, 0, kind in ("missing", "union_tag_not_found"), document)[1]


def _pointer(parts: Loc) -> str:
    return _cut("".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts))


def _at(parts: Loc, document: Any) -> Any:
    """Return the document's value at this place, or None."""
    here = document
    for part in parts:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            return None
    return here


_LAST = 1000


def _walk(loc: Loc, at: int, missing: bool, here: Any) -> tuple[int, Loc]:
    """Return the best reading of `loc` from position `at` within `here`: its score, and the parts that are in the document."""
    if at == len(loc):
        return 0, ()
    part, last = loc[at], at == len(loc) - 1
    inside = part in here if isinstance(here, dict) else isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here)
    best: tuple[int, Loc] = (-1, ())
    if inside or (missing and last):
        worth, parts = _walk(loc, at + 1, missing, here[part] if inside else None)
        best = worth + (_LAST if last else 1), (part, *parts)
    if best[0] < _LAST and not last:
        best = max(best, _walk(loc, at + 1, missing, here), key=lambda reading: reading[0])
    return best if best[0] >= 0 else (0, ())


def member(raw: bytes, name: str) -> bytes | None:
    """Return the bytes of the top-level member `name` exactly as sent, or None. `raw` must hold a valid JSON object.

    Used for data that must come back unchanged: parsing and writing would change 1e2, 1.0 and whole numbers beyond 64 bits.
    """
    span = member_span(raw, name, MAX_DEPTH)
    return None if span is None else raw[span.start : span.end]


_AFTER_NAME = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+")


def known_member(raw: bytes, name: str, document: Mapping[str, Any]) -> bytes | None:
    """Return what `member` returns, without reading the value again. `document` is `raw` as parsed, and has no member of its own twice.

    A letter, digit or underscore can be escaped as \\u and in no other way. So where nothing is, and a quoted name of them stands in the
    text once, it stands at the top level if the document has the member there. The value ends before the next member, or with the object.
    """
    names = iter(document)
    # The search for one byte is several times as fast as that for two, and most bodies have no backslash.
    if (raw.find(b"\\") >= 0 and b"\\u" in raw) or name not in names or (at := _only(raw, name)) is None:
        return member(raw, name)
    following = next(names, None)
    if following is None:
        end = raw.rindex(b"}")
    elif (next_at := _only(raw, following)) is not None:
        end = raw.rindex(b",", at, next_at)
    else:
        return member(raw, name)
    start = _AFTER_NAME.match(raw, at + len(name) + 2).end()  # type: ignore[union-attr]
    return raw[start:end].rstrip(b" \t\n\r")


def _only(raw: bytes, name: str) -> int | None:
    """Return where the quoted name stands in the text; None if it stands there several times, or may be written with escapes."""
    if (quoted := _quoted(name)) is None:
        return None
    at = raw.find(quoted)
    return at if at >= 0 and raw.find(quoted, at + 1) < 0 else None


@lru_cache(64)
def _quoted(name: str) -> bytes | None:
    return b'"%b"' % name.encode() if name.isidentifier() and name.isascii() else None


def elements(raw: bytes) -> list[bytes]:
    """Return the elements of a JSON array exactly as sent. For texts of limited size; `json_spans` reads large ones in steps.

    Raises `json_spans.Malformed`, a ValueError, if the text is not an array.
    """
    return [raw[span.start : span.end] for span in array_elements(raw, MAX_DEPTH) if span is not None]


def is_lenient_json(raw: bytes) -> bool:
    """Return True if `raw` is JSON, or would be without NaN and Infinity."""
    try:
        text = raw.decode()
        return bool(_scan(text, 0)[1] == len(text))
    except (ValueError, IndexError, StopIteration, RecursionError):
        return False


def too_deep(raw: bytes) -> Problem:
    """Return 422 for a document that goes deeper than `MAX_DEPTH`. It names the first member that does, and nothing is built."""
    try:
        found = (member for member in members(raw, MAX_DEPTH - 1) if member is not None)
        name = next((key for key, span in islice(found, json_spans.MAX_MEMBERS) if span.deep), None)
    except Malformed:
        name = None
    return _too_deep("" if name is None else _pointer((name,)))


def _check_depth(document: Any) -> None:
    """Raise 422 at the first top-level member that goes deeper than MAX_DEPTH, counting the document as level 1."""
    if not _is_deeper([document], MAX_DEPTH):
        return
    members = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in members:
        if _is_deeper([value], MAX_DEPTH - 1):
            raise _too_deep(_cut("/" + str(name).replace("~", "~0").replace("/", "~1")))


def _is_deeper(level: list[Any], levels: int) -> bool:
    """Return True if a container among these values has more than `levels` levels, itself included."""
    level = [value for value in level if type(value) is dict or type(value) is list]
    while level and levels:
        levels -= 1
        inside = chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = [value for value in inside if type(value) is dict or type(value) is list]
    return bool(level)


def _too_deep(pointer: str) -> Problem:
    return invalid(pointer, f"is nested deeper than {MAX_DEPTH} levels")


def _cut(pointer: str) -> str:
    return pointer if len(pointer) <= MAX_POINTER else pointer[: MAX_POINTER - 1] + "\u2026"


def _errors(failure: ValidationError) -> list[Any]:
    return failure.errors(include_url=False, include_input=False)[:MAX_ERRORS]


def _loc(error: Any) -> Loc:
    loc: Loc = error["loc"]
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        # The fault is in the member that selects the branch; pydantic names the object around it.
        return (*loc, error["ctx"]["discriminator"].strip("'"))
    return loc
