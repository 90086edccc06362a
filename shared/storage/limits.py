"""The limits of Table and Queue storage, checked before anything is sent.

Both adapters call these checks, so a request over a limit is `Rejected` by the twin, by the emulator (which accepts many
of them) and by Azure, and is certainly not applied: Azure may answer an oversized body by closing the connection,
which callers cannot distinguish from a lost answer. A message starts with the service's own error code.

Source: "Understanding the Table service data model", "Performing entity group transactions" and the error code lists of
Azure Storage; the formula of an entity's size is the documented one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..core.errors import Rejected
from .ports import MAX_EGT_BYTES, MAX_EGT_ROWS, MAX_ENTITY_BYTES, MAX_MESSAGE_BYTES, MAX_PAGE, MAX_STRING_UNITS, Delete, Merge, Op, Replace

MAX_KEY_UNITS = 512
"""UTF-16 units in a partition or row key (1 KiB)."""
MAX_PROPS = 252
"""Properties of an entity beside its keys and timestamp."""
MAX_VISIBLE_IN = 7 * 24 * 3600.0
"""Seconds a message may be hidden."""
MAX_RECEIVE = 32

_KEY_BAD = re.compile("[\x00-\x1f\x7f-\x9f/\\\\#?\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TABLE = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_QUEUE = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_RESERVED = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_SHORT: Final = MAX_STRING_UNITS // 2
"""A string of at most this many characters has no more than `MAX_STRING_UNITS` UTF-16 units, whatever the characters are."""
_SMALL: Final = MAX_ENTITY_BYTES - 4096
"""An entity is not too large if the upper bound of its size has at most this many bytes."""

_good_names: set[str] = set()


def units(text: str) -> int:
    """Length of `text` in UTF-16 units, which is what the service counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) >> 1


def check_key(kind: str, key: str) -> None:
    """Raise `Rejected` unless `key` can be a partition or row key; `kind` names it in the message."""
    # Most keys have letters and digits only, and the pattern takes several times as long.
    if not (key.isascii() and key.isalnum()) and _KEY_BAD.search(key):
        raise Rejected(f"OutOfRangeInput: {kind} holds one of / \\ # ? or a control character")
    if len(key) > MAX_KEY_UNITS // 2 and units(key) > MAX_KEY_UNITS:
        raise Rejected(f"KeyValueTooLarge: {kind} is over {MAX_KEY_UNITS} UTF-16 units")


def check_name(name: str) -> None:
    """Raise `Rejected` unless `name` can be the name of a property."""
    if name in _good_names:
        return
    if not _NAME.fullmatch(name):
        raise Rejected("PropertyNameInvalid: a property's name is 1 to 255 ASCII letters, digits and underscores, no digit first")
    if name in _RESERVED:
        raise Rejected(f"PropertyNameInvalid: {name} is a system property")
    # Bounded: names that come from outside must not grow it for ever.
    if len(_good_names) < 4096:
        _good_names.add(name)


def check_value(name: str, value: object) -> bool:
    """Raise `Rejected` unless `value` can be stored; False when its class is a subclass (StrEnum, IntEnum) of a stored one."""
    kind = type(value)
    if kind is bool:
        return True
    if isinstance(value, str):
        if not value.isascii() and _SURROGATE.search(value):
            raise Rejected(f"InvalidInput: property {name} holds half a surrogate pair")
        if len(value) > _SHORT and units(value) > MAX_STRING_UNITS:
            raise Rejected(f"PropertyValueTooLarge: property {name} is over {MAX_STRING_UNITS} UTF-16 units")
        return kind is str
    if isinstance(value, int):
        if not _INT64_MIN <= value <= _INT64_MAX:
            raise Rejected(f"InvalidInput: property {name} is beyond 64 bits")
        return kind is int
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Rejected(f"InvalidInput: property {name} is not finite")
        return kind is float
    raise Rejected(f"InvalidInput: property {name} is a {kind.__name__}; str, int, float and bool can be stored")


def value_size(value: Any) -> int:
    """Bytes of a property's value in the documented formula."""
    if isinstance(value, bool):
        return 1
    return 2 * units(value) + 4 if isinstance(value, str) else 8


def entity_size(pk: str, rk: str, props: Mapping[str, Any]) -> int:
    """Bytes of an entity as the service counts them."""
    return 4 + 2 * (units(pk) + units(rk)) + sum(8 + 2 * len(name) + value_size(value) for name, value in props.items())


def check_entity(pk: str, rk: str, props: Mapping[str, Any]) -> tuple[bool, int]:
    """Raise `Rejected` unless the entity can be stored.

    Returns whether every value is of a plain class (see `check_value`), and the characters its strings hold.
    """
    plain, chars = True, 0
    if not _good_names.issuperset(props):
        for name in props:
            check_name(name)
    for name, value in props.items():
        kind = type(value)
        if kind is str:
            # The common case, without a call: short ASCII.
            if len(value) > _SHORT or not value.isascii():
                check_value(name, value)
            chars += len(value)
        elif kind is not bool and not (kind is int and _INT64_MIN <= value <= _INT64_MAX):
            plain = check_value(name, value) and plain
            chars += len(value) if isinstance(value, str) else 0
    if len(props) > MAX_PROPS:
        raise Rejected(f"TooManyProperties: {len(props)} properties; {MAX_PROPS} can be stored")
    # The exact sum only where its upper bound (two units a character, the longest names) comes near.
    if 4 * chars + 540 * len(props) > _SMALL and entity_size(pk, rk, props) > MAX_ENTITY_BYTES:
        raise Rejected(f"EntityTooLarge: an entity is over {MAX_ENTITY_BYTES} bytes")
    return plain, chars


_ON_ETAG: Final = (Merge, Replace, Delete)
"""A union in the test itself would be made anew for each operation."""


class Checked(NamedTuple):
    """The result of a transaction's checks. `plain`: as in `check_value`; `bound`: upper bound of its encoded body in bytes."""

    plain: bool
    bound: int


def check_ops(pk: str, ops: Sequence[Op]) -> Checked:
    """Raise `Rejected` unless `ops` can be one transaction on `pk`. The payload is only bounded: see `check_payload`."""
    if not 0 < len(ops) <= MAX_EGT_ROWS:
        raise Rejected(f"InvalidInput: {len(ops)} operations in a transaction; 1 to {MAX_EGT_ROWS} can be sent")
    check_key("PartitionKey", pk)
    plain, bound = True, 4096
    seen: set[str] = set()
    for index, op in enumerate(ops):
        rk = op.rk
        if rk in seen:
            raise Rejected(f"InvalidDuplicateRow: operation {index} names a row key again")
        seen.add(rk)
        check_key("RowKey", rk)
        if isinstance(op, _ON_ETAG) and not (op.etag and op.etag.isascii() and op.etag.isprintable()):
            # The service takes a missing If-Match for "insert or merge", and a line break would end the header in a batch.
            raise Rejected(f"InvalidInput: operation {index} has an empty or unprintable ETag; ANY matches every row")
        bound += 2048 + 20 * (len(pk) + len(rk))
        if not isinstance(op, Delete):
            own, chars = check_entity(pk, rk, op.props)
            plain = plain and own
            # At most 6 bytes a character (an escaped control), and two names and a type a property.
            bound += 6 * chars + 600 * len(op.props)
    return Checked(plain, bound)


def check_payload(size: int) -> None:
    """Raise `Rejected` when a transaction's encoded body of `size` bytes is too large."""
    if size > MAX_EGT_BYTES:
        raise Rejected(f"RequestBodyTooLarge: the transaction's body has {size} bytes; {MAX_EGT_BYTES} can be sent")


def check_limit(limit: int) -> None:
    """Raise `Rejected` unless `limit` can be the length of a page."""
    if not 1 <= limit <= MAX_PAGE:
        raise Rejected(f"InvalidInput: a page of {limit} rows; 1 to {MAX_PAGE} can be asked for")


def bad_cursor() -> Rejected:
    """The exception for a cursor that this store did not give."""
    return Rejected("InvalidInput: not a cursor of this store")


def check_table(name: str) -> None:
    """Raise `Rejected` unless `name` can be a table's."""
    if not _TABLE.fullmatch(name):
        raise Rejected("InvalidResourceName: a table's name is 3 to 63 ASCII letters and digits, a letter first")


def check_queue(name: str) -> None:
    """Raise `Rejected` unless `name` can be a queue's."""
    if not _QUEUE.fullmatch(name):
        raise Rejected("InvalidResourceName: a queue's name is 3 to 63 lower-case letters, digits and single hyphens")


def check_message(text: str, visible_in: float) -> bytes:
    """The message's bytes; raise `Rejected` when they or the delay (seconds) are out of range."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise Rejected("InvalidInput: the message holds half a surrogate pair") from None
    if len(raw) > MAX_MESSAGE_BYTES:
        raise Rejected(f"RequestBodyTooLarge: a message of {len(raw)} bytes; {MAX_MESSAGE_BYTES} can be sent")
    check_visible_in(visible_in)
    return raw


def check_visible_in(seconds: float) -> None:
    """Raise `Rejected` unless a message can be hidden for this number of seconds."""
    if not 0 <= seconds <= MAX_VISIBLE_IN:
        raise Rejected("OutOfRangeQueryParameterValue: a message can be hidden for 0 to 604800 seconds")


def check_receive(limit: int, lease: float) -> None:
    """Raise `Rejected` unless `limit` messages can be taken for `lease` seconds."""
    if not 1 <= limit <= MAX_RECEIVE:
        raise Rejected(f"OutOfRangeQueryParameterValue: {limit} messages; 1 to {MAX_RECEIVE} can be taken at once")
    if not 1 <= lease <= MAX_VISIBLE_IN:
        raise Rejected("OutOfRangeQueryParameterValue: a lease lasts 1 to 604800 seconds")


def whole_seconds(seconds: float) -> int:
    """`seconds` as the queue service takes them, rounded up so that nothing shows early."""
    return math.ceil(seconds)
