"""Ids that are used again: an event with `collapse` takes the id of one that has ended."""

from __future__ import annotations

from collections.abc import Callable

from ...engine.effects import Steps, get, write
from ...storage.names import IDS
from ...storage.ports import Applied, Merge, Props, Row
from ..keys import Address, id_partition, id_row_key, parse_address
from ..rules import is_over
from .changing import find
from .ingest import FreshId, KnownId, register_id

BEFORE = "before"
"""Property of a row of ids: the place of the ended event from which the id was taken over last. Absent: it never was."""


def reuse_id(
    tenant: str, event_id: str, body_hash: str, here: Address, may_take: Callable[[Props], bool] = is_over
) -> Steps[FreshId | KnownId]:
    """Do what `register_id` does; if the id names an event that has ended, let it name `here` instead.

    may_take: returns True if the id may be taken over from an event with these properties. An event that has taken the id over may never
    be stored. Then the ended event before it is asked for once more, because its receipt is later than those of some requests.

    The id row is merged on the ETag under which it named the ended event, so that of several callers one gets the id.
    """

    def standing(named: Row) -> Steps[Row | None]:
        if not named.props.get(BEFORE):
            return None
        before = yield from find(parse_address(str(named.props[BEFORE])))
        return before if before is not None and not may_take(before.props) else None

    while True:
        known = yield from register_id(tenant, event_id, body_hash, here, standing)
        if isinstance(known, FreshId):
            return known
        named = yield from get(IDS, id_partition(tenant, event_id), id_row_key(event_id))
        if named is None:
            continue
        current = yield from find(parse_address(str(named.props["at"])))
        if current is None and (before := (yield from standing(named))) is not None:
            return KnownId(before, known.hash)
        if current is None:
            continue
        if not may_take(current.props):
            return KnownId(current, known.hash)
        change: Props = {"at": here.text, "hash": body_hash, BEFORE: Address(current.pk, current.rk).text}
        answer = yield from write(IDS, named.pk, Merge(named.rk, change, named.etag))
        if isinstance(answer, Applied):
            return FreshId()
