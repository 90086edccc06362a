"""Storage transactions per event, from ingest to finished, counted at the adapters."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

from shared.core.clock import Millis
from shared.storage.azure.queues import AzureQueues
from shared.storage.azure.tables import AzureTables
from shared.storage.names import LEDGER
from shared.storage.ports import RowQuery
from shared.storage.several.tables import SpreadTables
from shared.whatif.twin.trigger import QueueTrigger, ticking

from ..report import Figure
from ..tools.stage import TENANT, Run, ShiftedClock, application, batch_text, chunks, emulator, flight, requests_of, spread

BATCH = 1000
NEAR: Millis = 10_000
MINUTE: Millis = 60_000


async def measure(run: Run) -> list[Figure]:
    """Measure both spreads, each on a storage of its own, and one over several accounts."""
    # Not fewer when quick: what dispatch costs a minute has to be shared by enough events.
    near = await _bulk(run, "due within 10 s", 10_000, 0.0, NEAR, 0.06)
    minute = await _bulk(run, "spread over the minute", 20_000, 12.0, MINUTE, 0.09)
    spread_out = await _bulk(run, "due within 10 s, three accounts", 10_000, 0.0, NEAR, None, 2)
    return [*near, *minute, *spread_out]


async def _bulk(run: Run, what: str, count: int, ahead: float, width: Millis, limit: float | None, further: int = 0) -> list[Figure]:
    """Ingest `count` events in batches, serve them to the end.

    `ahead`: seconds until the minute begins in which they are due; 0: they are due from now on. `further`: accounts besides the home
    account.
    """
    clock = ShiftedClock.before_minute(ahead or 55.0)
    with ExitStack() as stack:
        text, *others = [stack.enter_context(emulator()).connection_string for _ in range(1 + further)]
        trigger = AzureQueues.from_connection_string(text)
        watcher = AzureTables.from_connection_string(text)
        async with application(text, clock=clock, accounts=others) as (app, receiver):
            counters = (app.storage.tables, app.storage.queues)
            by_account = app.storage.tables.by_account if isinstance(app.storage.tables, SpreadTables) else []
            for counter in (*by_account, *(adapter.transactions for adapter in counters)):  # type: ignore[attr-defined]
                counter.clear()
            async with QueueTrigger(app.scheduler, trigger, clock) as pump, ticking(app):
                now = clock.now()
                dues = spread(count, now + 1000 if ahead == 0 else now - now % MINUTE + MINUTE, width)
                started = time.monotonic()
                batches = [batch_text(part) for part in chunks(dues, BATCH)]
                await flight([lambda body=body: _ingest(app, body) for body in batches], 4)  # type: ignore[misc]
                ingested = sum(requests_of(adapter.transactions) for adapter in counters)  # type: ignore[attr-defined]
                while len(receiver.received) < count or await _finished(watcher) < count:
                    run.report_progress(f"transactions, {what}", len(receiver.received), count)
                    if time.monotonic() - started > 60 + ahead + width / 1000 or pump.errors:
                        raise TimeoutError(f"{len(receiver.received)} of {count} events fired; {pump.errors[:1]}")
                    await asyncio.sleep(0.5)
                await pump.idle()
                shards = app.scheduler.counters["shards_taken"]
                made = {name: dict(adapter.transactions) for name, adapter in zip(("tables", "queues"), counters, strict=True)}  # type: ignore[attr-defined]
                total = sum(requests_of(adapter.transactions) for adapter in counters)  # type: ignore[attr-defined]
                polls = trigger.transactions
        await trigger.close()
        await watcher.close()
    table, queue = made["tables"], made["queues"]
    useful = requests_of(polls) - pump.empty_polls
    note = (
        f"{count:,} events in batches of {BATCH:,}, {shards} shards: {ingested} to ingest, {total - ingested} to fire; "
        f"tables {table.get('write', 0)} writes, {table.get('query', 0)} queries (dispatch: 16 a tick), {table.get('get', 0)} gets; "
        f"queues {queue.get('send', 0)} sends"
    )
    if by_account:
        note += "; tables by account " + ", ".join(f"{requests_of(counter):,}" for counter in by_account)
        made["accounts"] = {str(number): requests_of(counter) for number, counter in enumerate(by_account)}
    trigger_note = f"receives and deletes of {pump.served} messages; {pump.empty_polls} polls of empty queues besides"
    return [
        Figure(f"storage transactions per event, bulk, {what}", total / count, "", "<=" if limit is not None else "", limit, note, made),
        Figure("  the queue trigger's own", useful / count, "", note=trigger_note),
    ]


async def _ingest(app: object, body: bytes) -> None:
    results = await app.scheduler.ingest.batch(TENANT, body, lines=True)  # type: ignore[attr-defined]
    assert all(getattr(result, "new", False) for result in results), results[:1]


async def _finished(tables: AzureTables) -> int:
    page = await tables.query(RowQuery(LEDGER, TENANT, end="~", select=("accepted",)))
    return sum(int(row.props["accepted"]) for row in page.rows)
