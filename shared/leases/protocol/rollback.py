"""After the storage service has lost acknowledged writes: raise epochs, so that none is given to two owners."""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.effects import Steps, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Merge
from .. import rules
from ..rows import partition_key
from .takeover import read_owners


def raise_epochs(key: str, known: Mapping[int, int]) -> Steps[list[int]]:
    """Raise the stored epochs of partitions to `known`, and return the partitions that are settled.

    known: epochs under which the caller acted before the rollback, by partition. A partition is settled if its row is missing or has that
    epoch or a higher one. While a living owner has a lower one, only that owner may write the row. The next claim then has a higher epoch
    than all that acted.
    """
    found, owners = yield from read_owners(key, sorted(known), set())
    settled = set(known)
    for partition, etag in found:
        if partition.epoch >= known[partition.number]:
            continue
        settled.discard(partition.number)
        if not partition.owner or rules.has_ended(partition.incarnation, owners.get(partition.owner)):
            answer = yield from write(FLEETS, key, Merge(partition_key(partition.number), {"epoch": known[partition.number]}, etag))
            if isinstance(answer, Applied):
                settled.add(partition.number)
    return sorted(settled)
