"""Filing shards together: whatever storage answers, each of them has its index row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.keys import index_key, index_partition, shard_key
from shared.scheduler.protocol.ingest import ShardFiling, file_shard, file_shards
from shared.storage.memory import MemoryTables
from shared.storage.names import SHARDS
from tests.faults import Faults, Perform, Request

NOW = 1_800_000_000_000


def filings(count: int) -> Sequence[ShardFiling]:
    """Shards of one index partition."""
    found: list[ShardFiling] = []
    number = 0
    while len(found) < count:
        number += 1
        shard = shard_key("demo", f"0n{number:05d}")
        if not found or index_partition(shard) == index_partition(found[0].shard):
            found.append(ShardFiling(shard, NOW + len(found) * 60_000, len(found) % 2 == 0))
    return found


class Storage:
    """Tables that lose the answers of some writes, by number, after or before they take effect."""

    def __init__(self, lost: dict[int, bool]) -> None:
        self.clock = SettableClock(NOW)
        self.lost, self.writes = lost, 0
        self.tables = Faults(MemoryTables(self.clock), self._plan)
        self.runner = AsyncRunner(self.tables, self.clock)

    async def _plan(self, request: Request, perform: Perform) -> Any:
        if request.kind != "write":
            return await perform()
        self.writes += 1
        applied = self.lost.get(self.writes)
        if applied is None:
            return await perform()
        if applied:
            await perform()
        raise OutcomeUnknown("lost")

    async def run[T](self, steps: Any) -> T:
        from tests.unit.scheduler.harness import drive

        return await drive(self.clock, self.runner.run(steps))


def props(filing: ShardFiling) -> dict[str, Any]:
    return {"state": "sent" if filing.sent else "pending", "wake": filing.wake, "tenant": "demo"}


@pytest.mark.parametrize("lost", [{}, {1: True}, {1: False}, {1: True, 2: True}, {1: False, 2: False, 3: True}])
@pytest.mark.parametrize("there", [None, 0, 2])
async def test_every_shard_is_filed_whatever_storage_answers(lost: dict[int, bool], there: int | None) -> None:
    asked = filings(3)
    storage = Storage({})
    await storage.tables.ensure([SHARDS])
    if there is not None:
        await storage.run(file_shard(asked[there].shard, asked[there].wake, sent=asked[there].sent))
    storage.lost, storage.writes = lost, 0
    etags: list[str] = await storage.run(file_shards(asked))
    for filing, etag in zip(asked, etags, strict=True):
        row = await storage.tables.get(SHARDS, index_partition(filing.shard), index_key(filing.shard, filing.wake))
        assert row is not None and props(filing).items() <= row.props.items()
        # '' where nobody knows whose row it is.
        assert etag in (row.etag, "")
    if not lost and there is None:
        assert storage.writes == 1 and all(etags)
