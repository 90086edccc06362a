"""Decisions that both twins of the storage share: the conditions of a write, the order of keys, filters, and the form of a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt, ne
from typing import Any, NamedTuple, assert_never

from ..core.clock import Millis, to_datetime
from . import limits
from .azure import wire
from .ports import ANY, MAX_EGT_BYTES, Delete, Insert, Merge, Message, Op, Props, Replace, Upsert, Where, WriteRefused


class StoredRow(NamedTuple):
    """A row as a twin keeps it."""

    rk: str
    props: Props
    etag: str
    timestamp: Millis


def order(text: str) -> str:
    """Return a string that sorts by code point as the service sorts `text`, by UTF-16 unit."""
    if text.isascii() or max(text) < "\ud800":
        return text
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(raw[i] << 8 | raw[i + 1]) for i in range(0, len(raw), 2))


def _plain(value: Any) -> Any:
    """Return the plain value of a StrEnum or IntEnum: a store returns what is on the wire."""
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    return value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


def holding(where: Sequence[Where]) -> Callable[[Props], bool]:
    """Return the conjunction of `where` as a function. A row without the property, or with one of another type, does not match.

    Raises `Rejected`.
    """
    tests = []
    for prop, op, value in where:
        limits.check_name(prop)
        limits.check_value(prop, value)
        bound = _plain(value)
        tests.append((prop, op, type(bound), order(bound) if isinstance(bound, str) else bound))

    def holds(props: Props) -> bool:
        for prop, op, kind, bound in tests:
            have = props.get(prop)
            if type(have) is not kind:
                return False
            if isinstance(have, str):
                have = order(have)
            if (have != bound) if op == "eq" else not _COMPARE[op](have, bound):
                return False
        return True

    return holds


def check_transaction(table: str, pk: str, ops: Sequence[Op]) -> bool:
    """Raise `Rejected` unless `ops` can be one transaction. Return True if every value is of a plain class."""
    plain, bound = limits.check_ops(pk, ops)
    if bound > MAX_EGT_BYTES:
        limits.check_payload(len(wire.batch_body("https://account.table.core.windows.net", table, pk, ops)))
    return plain


def plan_write(
    pk: str, ops: Sequence[Op], olds: Sequence[StoredRow | None], new_etag: Callable[[str], str], now: Millis, *, plain: bool
) -> list[StoredRow | None] | WriteRefused:
    """Return the row that each operation leaves, None for a deleted one; or the refusal of the whole transaction.

    olds: the stored row of each operation. Row keys are distinct, so no operation sees another's effect. new_etag: returns the ETag of a
    row key's new version. plain: as `check_transaction` returns it. Raises `Rejected` for a merged row that is too large.
    """
    planned: list[StoredRow | None] = []
    for index, (op, old) in enumerate(zip(ops, olds, strict=True)):
        props: Props
        match op:
            case Insert():
                if old is not None:
                    return WriteRefused(index, "exists")
                props = dict(op.props)
            case Upsert():
                props = dict(op.props)
            case Merge() | Replace() | Delete():
                if old is None:
                    return WriteRefused(index, "missing")
                if op.etag != ANY and op.etag != old.etag:
                    return WriteRefused(index, "changed")
                if isinstance(op, Delete):
                    planned.append(None)
                    continue
                if isinstance(op, Merge):
                    props = {**old.props, **op.props}
                    limits.check_entity(pk, op.rk, props)
                else:
                    props = dict(op.props)
            case _:
                assert_never(op)
        if not plain:
            props = {name: _plain(value) for name, value in props.items()}
        planned.append(StoredRow(op.rk, props, new_etag(op.rk), now))
    return planned


def taken_message(id: str, receipt: str, text: str, dequeue_count: int, inserted: Millis, until: Millis) -> Message:
    """Return a message as the receiver of a lease gets it. until: the time at which the lease ends."""
    meta = {
        "InsertionTime": _http_date(inserted),
        "ExpirationTime": "Fri, 31 Dec 9999 23:59:59 GMT",
        "TimeNextVisible": _http_date(until),
    }
    return Message(id, receipt, text, dequeue_count, inserted - inserted % 1000, meta)


def _http_date(millis: Millis) -> str:
    return to_datetime(millis).strftime("%a, %d %b %Y %H:%M:%S GMT")
