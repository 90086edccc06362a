"""Rejects: events and messages from a queue that can never be accepted, kept for a week.

Table `TocsinLedger`, partition `{tenant}:rejects`, or `:rejects` if the tenant is unknown (not JSON, unknown tenant, wrong key). No
tenant's name has a colon, so reads of the ledger never meet them. The row key is the time at which the message arrived and a hash of its
source, so a redelivered message makes no second reject.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import batched, product
from typing import Any, NamedTuple

import orjson

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Problem
from ...engine.effects import first_rows, has_rows
from ...storage.names import LEDGER
from ...storage.ports import ANY, Delete, Props, Row, RowQuery, Tables, Upsert, Where
from ...web.etag import check_if_match, etag_of
from ...web.problem import not_found
from ..shard.queued_ids import name_of
from ..timings import KEEP_FINISHED, MINUTE, REJECT_RETENTION_RUN_FOR

log = logging.getLogger(__name__)

MAX_MESSAGE = 8 * 1024
"""Characters of the message that are kept."""
GROUP = 50
"""Rejects written at once: with problems and messages of the largest size they fit a transaction."""

DELETES = 100
MASK = "***"
_KEY_MEMBER = re.compile(r'("key"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|\\?$)')
"""A member that contains a key, even if it is cut off."""
_KEY_TEXT = re.compile(r'"key"\s*:\s*"([^"\\]+)"')
_KEY = re.compile(r"tsn_[A-Za-z0-9]+|(?<![a-z2-7])[a-z2-7]{24,48}(?![a-z2-7])")
"""A key of this service, or what may be left of one that has lost its mark: 40 characters of base32 stand behind that."""
_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\u00([0-7][0-9A-Fa-f])")
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def without_keys(text: str) -> str:
    """Return a producer's message, valid JSON or not, without its key and without anything that looks like a key of this service."""
    try:
        document = orjson.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict) and "key" in document:
        # The document is encoded again: however the name was spelled, its value is gone.
        text = orjson.dumps({**document, "key": MASK}).decode()
    return masked(_KEY_MEMBER.sub(rf'\1"{MASK}"', _plain(text)))


def key_in(text: str) -> str | None:
    """Return the key in a producer's message, valid JSON or not; None if it has none."""
    try:
        document = orjson.loads(text)
    except ValueError:
        found = _KEY_TEXT.search(_plain(text))
        return found[1] if found is not None else None
    key = document.get("key") if isinstance(document, dict) else None
    return key if isinstance(key, str) else None


def masked(text: str) -> str:
    """Return `text` without anything that looks like a key of this service."""
    return _KEY.sub(MASK, _plain(text))


def _plain(text: str) -> str:
    """Return `text` with escaped ASCII letters, digits and underscores written plainly: JSON may spell a key as `\\u0074sn_...`."""
    return _ESCAPED.sub(lambda found: found[1] + _character(found[2]), text)


def _character(digits: str) -> str:
    character = chr(int(digits, 16))
    return character if character.isalnum() or character == "_" else f"\\u00{digits}"


def _partition(tenant: str) -> str:
    return f"{tenant}:rejects"


def _time_key(at: Millis) -> str:
    return f"{max(at, 0):015d}"


class RefusedMessage(NamedTuple):
    """A message, or one event of it, that arrived at `at` and cannot be accepted. `text` must not contain the key."""

    wrong: Problem
    text: str
    source: str
    at: Millis


def _props(origin: str, refused: RefusedMessage, keep: Millis) -> Props:
    text = _UNSTORABLE.sub("\ufffd", refused.text.encode(errors="replace").decode())
    return {
        "at": refused.at,
        "origin": origin,
        "source": refused.source[:200],
        "problem": orjson.dumps(refused.wrong.body()).decode(),
        "message": text[:MAX_MESSAGE],
        "cut": len(text) > MAX_MESSAGE,
        "keep": keep,
    }


class Rejects:
    """The rejects of all tenants; tenant '' stands for an unknown tenant. One per process."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock

    async def add(self, tenant: str, origin: str, found: Sequence[RefusedMessage]) -> list[str]:
        """Store rejects, several in one transaction; return their ids in the order given.

        Raises `StorageError`; some may be stored then.
        """
        ids = [f"{_time_key(each.at)}-{name_of(each.source)}" for each in found]
        keep = self._clock.now() + KEEP_FINISHED
        ops = {reject_id: Upsert(reject_id, _props(origin, each, keep)) for reject_id, each in zip(ids, found, strict=True)}
        for some in batched(ops.values(), GROUP):
            await self._tables.write(LEDGER, _partition(tenant), some)
        for code, count in Counter(each.wrong.code for each in found).items():
            extra = {"action": "event_rejected", "tenant": tenant, "count": count}
            log.info("%d events from %s were rejected: %s. GET /api/v1/rejects lists them.", count, origin, code, extra=extra)
        return ids

    async def list(
        self, tenant: str, first: Millis | None, end: Millis | None, limit: int, after: str = ""
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return rejects by arrival time, from `first` up to but not including `end`, after the id `after`; and the id to
        continue after.
        """
        begin = max(_time_key(first) if first is not None else "", f"{after}!" if after else "")
        last = _time_key(end) if end is not None else None
        rows, _ = await first_rows(self._tables, RowQuery(LEDGER, _partition(tenant), first=begin, end=last), limit + 1)
        return [_shown(tenant, row) for row in rows[:limit]], rows[limit - 1].rk if len(rows) > limit else None

    async def any(self, tenant: str) -> bool:
        """Return True if any are stored. Raises `StorageError`."""
        return await has_rows(self._tables, RowQuery(LEDGER, _partition(tenant)))

    async def delete(self, tenant: str, reject_id: str, headers: Mapping[str, str]) -> None:
        """Remove one reject. Raises 404 and 412."""
        row = await self._tables.get(LEDGER, _partition(tenant), reject_id)
        if row is None:
            raise not_found("reject")
        check_if_match(headers, etag_of(row.etag))
        await self._tables.write(LEDGER, _partition(tenant), (Delete(reject_id, ANY),))

    async def retain(self, tenants: Iterable[str], now: Millis) -> Counter[str]:
        """Remove expired rejects for at most `REJECT_RETENTION_RUN_FOR` seconds; the next run continues. Return counts by result."""
        counts: Counter[str] = Counter()
        until = self._clock.monotonic() + REJECT_RETENTION_RUN_FOR
        over = (Where("keep", "le", now),)
        # A reject is kept at least this long after its arrival, so younger rows need not be read. Some sources give times in the future.
        ranges = (("", _time_key(now - KEEP_FINISHED)), (_time_key(now), None))
        names = ["", *tenants]
        # Each run begins with another tenant, so that none is always the one that is left.
        at = now // MINUTE % len(names)
        for tenant, (first, end) in product(names[at:] + names[:at], ranges):
            partition = _partition(tenant)
            cursor: str | None = None
            while self._clock.monotonic() < until:
                page = await self._tables.query(
                    RowQuery(LEDGER, partition, first=first, end=end, where=over, select=("keep",), limit=DELETES, cursor=cursor)
                )
                if page.rows:
                    await self._tables.write(LEDGER, partition, tuple(Delete(row.rk, ANY) for row in page.rows))
                    counts["removed"] += len(page.rows)
                cursor = page.next
                if cursor is None:
                    break
        return counts


def _shown(tenant: str, row: Row) -> dict[str, Any]:
    props = row.props
    shown = {
        "id": row.rk,
        "at": to_text(int(props["at"])),
        "origin": props["origin"],
        "source": props["source"],
        "problem": orjson.Fragment(str(props["problem"])),
        "message": props["message"],
        "cut": props["cut"],
        "kept_until": to_text(int(props["keep"])),
    }
    return {**shown, "tenant": tenant} if tenant else shown
