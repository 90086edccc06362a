"""Removes rows of ordering keys that nothing waits for any more: tickets and turns of ended events behind which no event came."""

from __future__ import annotations

import logging
from collections import Counter

from ...core.clock import Millis
from ...core.errors import StorageError
from ...engine.async_runner import AsyncRunner
from ...engine.effects import each_row
from ...storage.names import LIMITS
from ...storage.ports import Delete, Merge, Op, Row, RowQuery, Tables
from ...tenants.store import TenantDirectory
from ..keys import Address, parse_address, shard_tenant
from ..properties.overlap import ONE_BY_ONE, OVERLAP, has_line
from ..protocol.changing import find
from ..rules import FINAL
from .rules import PARTITIONS, line_of_event, parse_line, ticket_of, ticket_time

log = logging.getLogger(__name__)

OLD: Millis = 3_600_000
"""Age from which a row is looked at: long after an owner, or an event behind, would have removed it."""
SKIPS_KEPT: Millis = 400 * 86_400_000
"""Time without a change after which the figures of a schedule that skips are removed."""
PARTS = 4
"""Partitions of one run: with a run an hour, each is looked at every 16 hours."""


class KeyTidying:
    """One per process; runs with the retention."""

    def __init__(self, runner: AsyncRunner, tables: Tables, directory: TenantDirectory) -> None:
        self._runner, self._tables, self._directory = runner, tables, directory

    async def run_once(self, now: Millis) -> Counter[str]:
        """Look at the partitions whose turn it is; return counts by result."""
        counts: Counter[str] = Counter()
        first = now // OLD * PARTS
        for number in range(first, first + PARTS):
            async for row in each_row(self._tables, RowQuery(LIMITS, f"key:{number % PARTITIONS:02x}")):
                counts[await self._one(row, now)] += 1
        return counts

    async def _one(self, row: Row, now: Millis) -> str:
        """Remove a row, or turns of it, if the time has come."""
        name, _, ticket = row.rk.partition(":")
        if row.read_at - row.timestamp < OLD or (ticket and ticket_time(ticket) > now - OLD):
            return "kept"
        try:
            op: Op | None = None
            if ticket:
                if not await self._stands(name, ticket, parse_address(str(row.props["at"]))):
                    op = Delete(row.rk, row.etag)
            else:
                line = parse_line(row.props)
                turns = tuple([turn for turn in line.turns if await self._stands(name, turn.ticket, parse_address(turn.address))])
                if not turns and line.free <= now and not (line.skips and row.read_at - row.timestamp < SKIPS_KEPT):
                    op = Delete(row.rk, row.etag)
                elif turns != line.turns:
                    op = Merge(row.rk, line._replace(turns=turns).props(), row.etag)
            if op is None:
                return "kept"
            await self._tables.write(LIMITS, row.pk, (op,))
        except StorageError as error:
            log.debug("A row of an ordering key stays until a later run: %s", error, extra={"action": "key_row_kept"})
            return "failed"
        return "removed"

    async def _stands(self, name: str, ticket: str, place: Address) -> bool:
        """Return True if an event that has not ended waits with this ticket."""
        event = await self._runner.run(find(place))
        if event is None or event.props["state"] in FINAL or event.props["id"] != ticket.partition(":")[2]:
            return False
        tenant = shard_tenant(event.pk)
        if not has_line(event.props) or line_of_event(tenant, event.props).name != name:
            return False
        limits = ONE_BY_ONE
        if OVERLAP not in event.props:
            target = await self._directory.target(tenant, str(event.props["channel"]))
            if target is None or target.spec.per_key is None:
                return False
            limits = target.spec.per_key
        return event.props["state"] == "firing" or ticket_of(event.props, limits) == ticket
