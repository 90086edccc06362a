"""The Table service on the wire: what our own request bodies, filters, pages and batch answers look like.

Pure functions over bytes. The SDK builds batches through `email.message` and parses answers part by part, which costs ten
times the store's own work; these do the same with one pass over each row. Source: the Table service REST reference
("Payload format", "Performing entity group transactions", "Querying tables and entities") and docs/explain/storage.md's measurements.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple, assert_never
from urllib.parse import quote

import orjson

from ...core.clock import Millis, to_millis
from ...core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from .. import limits
from ..ports import Applied, Delete, Insert, Merge, Op, Page, Replace, Row, RowQuery, Upsert, Where, WriteRefused

ACCEPT = "application/json;odata=minimalmetadata"
"""The least that still carries ETags and the types of 64-bit integers."""

_TYPE = "@odata.type"
_SAFE = re.compile(r"[A-Za-z0-9_.~-]*")
# Per process and unguessable: some servers look for the boundary inside values too.
_MARK = os.urandom(12).hex()
BATCH_TYPE = f"multipart/mixed; boundary=batch_{_MARK}"
_OPEN = f"--batch_{_MARK}\r\nContent-Type: multipart/mixed; boundary=changeset_{_MARK}\r\n\r\n".encode()
_CLOSE = f"--changeset_{_MARK}--\r\n--batch_{_MARK}--\r\n".encode()
_PART = f"--changeset_{_MARK}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
_BODY = f"Content-Type: application/json\r\nAccept: {ACCEPT}\r\nPrefer: return-no-content\r\nDataServiceVersion: 3.0\r\n"


READ: Mapping[str, str] = {"Accept": ACCEPT, "DataServiceVersion": "3.0"}
"""Headers of a read."""
BATCH: Mapping[str, str] = {**READ, "Content-Type": BATCH_TYPE}
"""Headers of a transaction."""
_NEXT_PK, _NEXT_RK = "NextPartitionKey", "NextRowKey"
_CONTINUATION = "x-ms-continuation-"


def quote_text(text: str) -> str:
    """`text` as an OData string literal."""
    return "'" + text.replace("'", "''") + "'"


def entity_path(table: str, pk: str, rk: str) -> str:
    """`Table(PartitionKey='..',RowKey='..')`, percent-encoded."""
    return f"{table}(PartitionKey='{_escape(pk)}',RowKey='{_escape(rk)}')"


def percent(text: str) -> str:
    """`text` as a part of an address."""
    return text if _SAFE.fullmatch(text) else quote(text, safe="")


def _escape(key: str) -> str:
    return key if _SAFE.fullmatch(key) else quote(key.replace("'", "''"), safe="")


def encode_row(pk: str, rk: str, props: Mapping[str, Any]) -> bytes:
    """The JSON of an entity, its keys included.

    Every integer goes as Edm.Int64, small ones too: the service compares within one type only, so a property that changed
    its type with its size would fall out of filters (and Azurite answers 500). A whole float says that it is one.
    """
    out: dict[str, Any] = {"PartitionKey": pk, "RowKey": rk}
    for name, value in props.items():
        if isinstance(value, str) or value is True or value is False:
            out[name] = value
        elif isinstance(value, int):
            out[name] = int.__repr__(value)
            out[name + _TYPE] = "Edm.Int64"
        else:
            out[name] = value
            if value.is_integer():
                out[name + _TYPE] = "Edm.Double"
    raw = orjson.dumps(out)
    if not raw.isascii() and b"\xe2\x80" in raw:
        # Two line separators that Azurite takes for the end of the body in a batch.
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


def batch_body(base: str, table: str, pk: str, ops: Sequence[Op]) -> bytes:
    """The multipart body of one entity group transaction against the endpoint `base` (no slash at its end)."""
    collection = f"{base}/{table}"
    entity = f"{collection}(PartitionKey='{_escape(pk)}',RowKey='"
    insert = f"{_PART}POST {collection} HTTP/1.1\r\n{_BODY}\r\n".encode()
    pieces = [_OPEN]
    for op in ops:
        if isinstance(op, Insert):
            pieces += (insert, encode_row(pk, op.rk, op.props), b"\r\n")
            continue
        where = f"{entity}{_escape(op.rk)}') HTTP/1.1\r\n"
        match op:
            case Upsert():
                pieces += (f"{_PART}PUT {where}{_BODY}\r\n".encode(), encode_row(pk, op.rk, op.props), b"\r\n")
            case Merge():
                head = f"{_PART}PATCH {where}{_BODY}If-Match: {op.etag}\r\n\r\n".encode()
                pieces += (head, encode_row(pk, op.rk, op.props), b"\r\n")
            case Replace():
                head = f"{_PART}PUT {where}{_BODY}If-Match: {op.etag}\r\n\r\n".encode()
                pieces += (head, encode_row(pk, op.rk, op.props), b"\r\n")
            case Delete():
                pieces.append(
                    f"{_PART}DELETE {where}Accept: {ACCEPT}\r\nDataServiceVersion: 3.0\r\nIf-Match: {op.etag}\r\n\r\n\r\n".encode()
                )
            case _:
                assert_never(op)
    pieces.append(_CLOSE)
    return b"".join(pieces)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, int):
        return f"{value:d}L"
    # Azurite reads no exponents.
    text = format(Decimal(repr(float(value))), "f")
    return text if "." in text else text + ".0"


def _condition(test: Where) -> str:
    prop, op, value = test
    limits.check_name(prop)
    limits.check_value(prop, value)
    return f"{prop} {op} {_literal(value)}"


def filter_text(pk: str, first: str, end: str | None, where: Sequence[Where]) -> str:
    """The `$filter` of a query within one partition, not yet percent-encoded. Raises `Rejected` for a bad condition."""
    parts = [f"PartitionKey eq {quote_text(pk)}"]
    if first:
        parts.append(f"RowKey ge {quote_text(first)}")
    if end is not None:
        parts.append(f"RowKey lt {quote_text(end)}")
    parts += [_condition(test) for test in where]
    return " and ".join(parts)


@lru_cache(4096)
def _second(text: str) -> Millis:
    return to_millis(datetime.fromisoformat(text + "+00:00"))


def parse_timestamp(text: str) -> Millis:
    """Milliseconds of the service's `2026-11-21T10:21:55.2501234Z`, cut to the millisecond."""
    fraction = text[20:-1]
    return _second(text[:19]) + (int(fraction[:3].ljust(3, "0")) if fraction else 0)


@lru_cache(64)
def parse_date(text: str) -> Millis:
    """Milliseconds of an HTTP date. Raises ValueError."""
    return to_millis(parsedate_to_datetime(text))


def decode_row(pk: str, item: dict[str, Any], read_at: Millis) -> Row:
    """One entity of a JSON answer, with its system properties taken out. Raises KeyError or ValueError when it is not one."""
    etag, stamp, rk = item.pop("odata.etag"), item.pop("Timestamp"), item.pop("RowKey")
    item.pop("PartitionKey")
    for name in [name for name in item if "." in name]:
        # A property's name cannot hold a dot: these are annotations, `odata.metadata` or `<name>@odata.type`.
        kind = item.pop(name)
        plain = name.removesuffix(_TYPE)
        if plain not in item:
            continue
        if kind == "Edm.Int64":
            item[plain] = int(item[plain])
        elif kind == "Edm.Double":
            item[plain] = float(item[plain])
    if None in item.values():
        # `$select` answers null for what a row does not have.
        item = {name: value for name, value in item.items() if value is not None}
    return Row(pk, rk, item, etag, parse_timestamp(stamp), read_at)


def decode_page(pk: str, body: bytes, read_at: Millis) -> list[Row]:
    """The rows of a query's answer. Raises KeyError or ValueError when it is not one."""
    return [decode_row(pk, item, read_at) for item in orjson.loads(body)["value"]]


def find_row(pk: str, status: int, headers: Mapping[str, str], body: bytes) -> Row | None:
    """The row in the answer to a get, or None when there is none. Raises `Unavailable` or `Rejected`."""
    if status != 200:
        failure = parse_failure(status, body)
        if failure.status == 404 and failure.code in _MISSING:
            return None
        raise error_of(failure, write=False)
    try:
        return decode_row(pk, orjson.loads(body), parse_date(headers["Date"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unavailable("the answer to a get cannot be read") from None


def find_page(pk: str, status: int, headers: Mapping[str, str], body: bytes) -> Page:
    """The page in the answer to a query. Raises `Unavailable` or `Rejected`."""
    if status != 200:
        raise error_of(parse_failure(status, body), write=False)
    try:
        read_at = parse_date(headers["Date"])
        rows = decode_page(pk, body, read_at)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unavailable("the answer to a query cannot be read") from None
    at = headers.get(_CONTINUATION + _NEXT_PK), headers.get(_CONTINUATION + _NEXT_RK)
    return Page(rows, orjson.dumps(at).decode() if at != (None, None) else None, read_at)


def query_parameters(query: RowQuery) -> dict[str, str]:
    """Return the parameters of a query's address. Raises `Rejected`."""
    limits.check_table(query.table)
    limits.check_limit(query.limit)
    limits.check_key("PartitionKey", query.pk)
    found = {"$filter": filter_text(query.pk, query.first, query.end, query.where), "$top": str(query.limit)}
    if query.select is not None:
        for name in query.select:
            limits.check_name(name)
        found["$select"] = ",".join(("PartitionKey", "RowKey", "Timestamp", *query.select))
    return found if query.cursor is None else found | cursor_query(query.cursor)


def cursor_query(cursor: str) -> dict[str, str]:
    """Return the query parameters that continue from a page's `next`. Raises `Rejected` for a cursor that is not one."""
    try:
        pk, rk = orjson.loads(cursor)
    except (ValueError, TypeError):
        raise limits.bad_cursor() from None
    return {name: value for name, value in ((_NEXT_PK, pk), (_NEXT_RK, rk)) if isinstance(value, str)}


def find_outcome(status: int, body: bytes, ops: Sequence[Op]) -> Applied | WriteRefused:
    """Return the outcome of a transaction from its answer. Raises `OutcomeUnknown`, `Unavailable` or `Rejected`."""
    return batch_reply(body, ops) if status == 202 else refused(status, body, len(ops))


def refused(status: int, body: bytes, ops: int) -> WriteRefused:
    """Return the refusal that an unsuccessful answer holds. Raises `OutcomeUnknown`, `Unavailable` or `Rejected`."""
    if status < 400:
        raise OutcomeUnknown(f"the write's answer has status {status}")
    return refusal(parse_failure(status, body), ops)


class ErrorAnswer(NamedTuple):
    """A refusal as the service reports it. `at` is the position of the operation that failed; None when the answer names none."""

    status: int
    code: str
    at: int | None


_CODE = re.compile(rb"<(?:m:)?code>([A-Za-z0-9]+)</(?:m:)?code>", re.I)
_INDEX = re.compile(r"(\d+):")


def parse_failure(status: int, body: bytes) -> ErrorAnswer:
    """Parse an error answer. Only its code is kept: messages quote keys, signatures and addresses."""
    start, stop = body.find(b"{"), body.rfind(b"}")
    try:
        error = orjson.loads(body[start : stop + 1])["odata.error"]
        code, value = error["code"], error["message"]["value"]
        if isinstance(code, str) and isinstance(value, str) and re.fullmatch(r"\w{1,80}", code, re.ASCII):
            at = _INDEX.match(value)
            return ErrorAnswer(status, code, int(at[1]) if at else None)
    except (ValueError, KeyError, TypeError):
        pass
    found = _CODE.search(body)
    return ErrorAnswer(status, found[1].decode() if found else f"Http{status}", None)


def error_of(failure: ErrorAnswer, *, write: bool) -> StorageError:
    """The exception for an answer that is no refusal by condition."""
    text = f"{failure.code} ({failure.status})"
    if failure.status == 429:
        return Unavailable(text)
    if failure.status >= 500 or failure.status == 408:
        return OutcomeUnknown(text) if write else Unavailable(text)
    return Rejected(text)


_MISSING = frozenset({"ResourceNotFound", "EntityNotFound"})
"""Codes of a 404 that speak of an entity, rather than of its table."""


def refusal(failure: ErrorAnswer, ops: int) -> WriteRefused:
    """`failure` of a write of `ops` operations as a value; raises what `error_of` gives when no condition failed."""
    match failure.status, failure.code:
        case 409, "EntityAlreadyExists":
            reason: Any = "exists"
        case 404, code if code in _MISSING:
            reason = "missing"
        case 412, _:
            reason = "changed"
        case _:
            raise error_of(failure, write=True)
    at = 0 if ops == 1 else failure.at
    if at is None or at >= ops:
        raise Rejected(f"{failure.code} ({failure.status}), and the answer names no operation")
    return WriteRefused(at, reason)


def batch_reply(body: bytes, ops: Sequence[Op]) -> Applied | WriteRefused:
    """The outcome of a transaction from its 202's body.

    Raises `OutcomeUnknown` when the body is not what such an answer looks like: the transaction may well have been applied.
    """
    parts = body.split(b"HTTP/1.1 ")
    if len(parts) == 2 and parts[1][:1] not in (b"1", b"2"):
        if not parts[1][:3].isdigit():
            raise OutcomeUnknown("the transaction's answer cannot be read")
        return refusal(parse_failure(int(parts[1][:3]), parts[1]), len(ops))
    if len(parts) != len(ops) + 1:
        raise OutcomeUnknown("the transaction's answer cannot be read")
    etags = []
    for part, op in zip(parts[1:], ops, strict=True):
        if part[:2] != b"20":
            raise OutcomeUnknown("the transaction's answer cannot be read")
        if isinstance(op, Delete):
            etags.append("")
            continue
        at = part.find(b"\r\nETag: ") + 8
        if at == 7:
            at = part.lower().find(b"\r\netag: ") + 8
        stop = part.find(b"\r\n", at)
        if at == 7 or stop <= at:
            raise OutcomeUnknown("the transaction's answer lacks an ETag")
        etags.append(part[at:stop].decode())
    return Applied(etags)
