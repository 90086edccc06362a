"""Ids that are used again: an event with `collapse` takes the id of one that has ended."""

from __future__ import annotations

from ...engine.effects import Steps, get, write
from ...storage.names import IDS
from ...storage.ports import Applied, Merge
from ..keys import Address, id_partition, id_row_key, parse_address
from ..rules import is_over
from .changing import find
from .ingest import FreshId, KnownId, register_id


def reuse_id(tenant: str, event_id: str, body_hash: str, here: Address) -> Steps[FreshId | KnownId]:
    """Do what `register_id` does; if the id names an event that has ended, let it name `here` instead.

    The id row is merged on the ETag under which it named the ended event, so that of several callers one gets the id.
    """
    while True:
        known = yield from register_id(tenant, event_id, body_hash, here)
        if isinstance(known, FreshId):
            return known
        named = yield from get(IDS, id_partition(tenant, event_id), id_row_key(event_id))
        if named is None:
            continue
        current = yield from find(parse_address(str(named.props["at"])))
        if current is None:
            continue
        if not is_over(current.props):
            return KnownId(current, known.hash)
        answer = yield from write(IDS, named.pk, Merge(named.rk, {"at": here.text, "hash": body_hash}, named.etag))
        if isinstance(answer, Applied):
            return FreshId()
