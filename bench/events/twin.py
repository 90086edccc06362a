"""Measures the cost of the service's own code, on storage in memory.

Figures: CPU per event, memory with a million stored events, transactions with a backlog.

Memory and backlog run in processes of their own: `python -m bench.events.twin memory|backlog COUNT` prints JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shared.app.application import Application
from shared.core.clock import Millis, SettableClock, SystemClock
from shared.core.ids import SeededIds
from shared.delivery.channels.fake import FakeReceiver
from shared.scheduler.keys import event_row, index_key, index_partition, minute_text, shard_key
from shared.scheduler.shard.gate import Counts, Gate
from shared.storage import Storage, memory_storage
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Applied, Insert, Op, Props, WriteRefused
from shared.whatif.twin.trigger import QueueTrigger

from ..report import Figure
from ..tools import machine
from ..tools.stage import TENANT, Run, application, batch_text, child, chunks, flight, local_settings, requests_of, spread

NOWHERE = "UseDevelopmentStorage=true"
SHARD = 990
MINUTE: Millis = 60_000
HOUR: Millis = 3_600_000
DAY: Millis = 86_400_000


class TimedTables(MemoryTables):
    """The twin, with a record of its own CPU time."""

    spent = 0.0

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        started = time.perf_counter()
        answer = await super().write(table, pk, ops)
        self.spent += time.perf_counter() - started
        return answer


async def cpu(run: Run) -> list[Figure]:
    """Measure ingest by batches and then firing, in CPU time of this process."""
    rounds, count = run.pick(5, 2), 9_900
    ingest: list[float] = []
    fire: list[float] = []
    store: list[float] = []
    single: list[float] = []
    for turn in range(rounds):
        run.report_progress("CPU per event", turn, rounds)
        clock = SystemClock()
        tables = TimedTables(clock)
        storage = Storage(tables, memory_storage(clock).queues)
        await storage.ensure()
        async with application(NOWHERE, clock=clock, storage=storage) as (app, receiver):
            await app.scheduler.ingest.batch(TENANT, batch_text([clock.now() + DAY]), lines=True)
            gc.collect()
            tables.spent = 0.0
            bodies = [batch_text(part) for part in chunks(spread(count, clock.now() + DAY, MINUTE), 1000)]
            _, used = await flight([lambda body=body: app.scheduler.ingest.batch(TENANT, body, lines=True) for body in bodies], 4)  # type: ignore[misc]
            ingest.append(used / count * 1e6)
            store.append(tables.spent / count * 1e6)
            single.append(await _singles(app))
            fire.append(await _fire(app, receiver, count))
    return [
        Figure(
            "CPU per event, ingest, storage in memory",
            statistics.median(ingest),
            "us",
            "<=",
            60,
            f"batches of 1,000 as JSON lines, {rounds} rounds of {count:,}; of it {statistics.median(store):.0f} us in the twin",
            {"rounds": ingest},
        ),
        Figure("  the same, one by one", statistics.median(single), "us", note="Ingest.one, 64 at a time, without HTTP"),
        Figure(
            "CPU per event, fire, storage in memory",
            statistics.median(fire),
            "us",
            "<=",
            200,
            f"take, load, claim, deliver to a receiver in memory, settle, finish; due over 3 s, {rounds} rounds of {count:,}",
            {"rounds": fire},
        ),
    ]


async def _singles(app: Application) -> float:
    from shared.scheduler.ingest.admission import _EVENT

    due = app.clock.now() + 2 * DAY
    raws = batch_text([due] * 2000).split(b"\n")

    async def one(raw: bytes) -> None:
        await app.scheduler.ingest.one(TENANT, _EVENT.validate_json(raw), raw)

    _, used = await flight([lambda raw=raw: one(raw) for raw in raws], 64)  # type: ignore[misc]
    return used / len(raws) * 1e6


async def _fire(app: Application, receiver: FakeReceiver, count: int) -> float:
    due = app.clock.now() + 5_000
    due += max(0, due % MINUTE + 4_000 - MINUTE)
    bodies = [batch_text(part) for part in chunks(spread(count, due, 3_000), 1000)]
    for body in bodies:
        await app.scheduler.ingest.batch(TENANT, body, lines=True)
    gc.collect()
    used = time.process_time()
    async with QueueTrigger(app.scheduler, app.storage.queues, app.clock) as pump:
        ends_at = time.monotonic() + 90
        while len(receiver.received) < count or pump.busy or app.scheduler.counters["shards_taken"] == 0:
            if time.monotonic() > ends_at or pump.errors:
                raise TimeoutError(f"{len(receiver.received)} of {count} fired; {pump.errors[:1]}")
            await asyncio.sleep(0.2)
        return (time.process_time() - used) / count * 1e6


class DiscardingTables(MemoryTables):
    """Accepts every event and forgets it, so that the memory that remains is the service's own."""

    _number = 0

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        if table not in (EVENTS, SHARDS):
            return await super().write(table, pk, ops)
        self.transactions["write"] += 1
        self._number += len(ops)
        return Applied([f'W/"{self._number - number}"' for number in range(len(ops))])


async def _memory(count: int) -> dict[str, Any]:
    """Measure resident memory after a warm-up, and after `count` more events, due over the next day."""
    clock = SystemClock()
    storage = Storage(DiscardingTables(clock), memory_storage(clock).queues)
    await storage.ensure()
    async with application(NOWHERE, clock=clock, storage=storage) as (app, _):
        first = clock.now() + HOUR
        for part in chunks(spread(10_000, first, DAY), 1000):
            await app.scheduler.ingest.batch(TENANT, batch_text(part), lines=True)
        gc.collect()
        before = machine.resident()
        started = time.monotonic()
        highest = before
        for turn in range(count // 1000):
            # By due time, as a day's events come: a batch covers some minutes of the day.
            window = DAY * turn // (count // 1000)
            results = await app.scheduler.ingest.batch(TENANT, batch_text(spread(1000, first + window, 10 * MINUTE, turn)), lines=True)
            assert all(getattr(result, "new", False) for result in results)
            if turn % 50 == 0:
                highest = max(highest, machine.resident())
        gc.collect()
        return {
            "before": before,
            "after": machine.resident(),
            "highest": highest,
            "seconds": time.monotonic() - started,
            "open_shards": app.scheduler.writer.open_shards(),
        }


async def _backlog(count: int) -> dict[str, Any]:
    """Serve the same due work on a clock that is moved by hand, with `count` future events in the store."""
    clock = SettableClock()
    storage = memory_storage(clock)
    await storage.ensure()
    receiver = FakeReceiver(clock)
    app = await Application.open(local_settings(NOWHERE), clock=clock, ids=SeededIds("bench"), storage=storage, senders={"http": receiver})
    await _fill(storage, clock.now() + HOUR, count)
    tables: Counter[str] = storage.tables.transactions  # type: ignore[attr-defined]
    queues: Counter[str] = storage.queues.transactions  # type: ignore[attr-defined]
    tables.clear()
    queues.clear()
    used = time.process_time()
    work = 3 * SHARD
    # An hour's work: a minute of it beyond the sweep's reach when it comes in, so that dispatch has to find it.
    start = clock.now() - clock.now() % MINUTE + 4 * MINUTE
    for part in chunks([start + number * 10 for number in range(work)], 1000):
        storing = asyncio.create_task(app.scheduler.ingest.batch(TENANT, batch_text(part), lines=True))
        while not storing.done():
            await clock.advance(0.01, settle=8)
    tasks: set[asyncio.Task[None]] = set()
    for second in range(400):
        if second % 15 == 0:
            await app.timers.run_once("scheduler_scan")
        for message in await storage.queues.receive(QUEUE_SHARDS):
            tasks.add(asyncio.create_task(_serve(app, storage, message)))
        await clock.advance(1.0, settle=8)
        if len(receiver.received) == work and all(task.done() for task in tasks):
            break
    assert len(receiver.received) == work, len(receiver.received)
    await app.close()
    return {"tables": dict(tables), "queues": dict(queues), "cpu": time.process_time() - used, "transactions": requests_of(tables + queues)}


async def _serve(app: Application, storage: Storage, message: Any) -> None:
    await app.scheduler.serve_message(message.text)
    await storage.queues.delete(QUEUE_SHARDS, message)


async def _fill(storage: Storage, first: Millis, count: int) -> None:
    """Shards of future events as ingest leaves them, written straight into the store."""
    common: Props = {"state": "scheduled", "created": first, "channel": "default", "size": 1000, "body": "x" * 500}
    for number in range(0, count, SHARD):
        size = min(SHARD, count - number)
        due = first + number // SHARD * MINUTE
        shard = shard_key(TENANT, f"{number // SHARD:016d}")
        key, bucket = index_key(shard, due), minute_text(due)
        await storage.tables.write(
            SHARDS, index_partition(shard), [Insert(key, {"state": "pending", "wake": due, "bucket": bucket, "tenant": TENANT})]
        )
        gate = Gate("open", "filler", bytes=size * 1000, index=key, bucket=bucket, counts=Counts(accepted=size))
        await storage.tables.write(EVENTS, shard, [Insert("gate", gate.props())])
        for at in range(0, size, 99):
            rows = [Insert(event_row(row), {**common, "due": due, "id": f"{number + row}"}) for row in range(at, min(at + 99, size))]
            await storage.tables.write(EVENTS, shard, rows)


async def _apart(what: str, count: int) -> dict[str, Any]:
    async with child("-m", "bench.events.twin", what, str(count)) as process:
        out, _ = await asyncio.wait_for(process.communicate(), 600)
    found: dict[str, Any] = json.loads(out)
    return found


async def memory(run: Run) -> list[Figure]:
    """Send a million events through ingest, into tables that forget them."""
    count = run.pick(1_000_000, 200_000)
    run.report_progress("memory", 0, 1)
    found = await _apart("memory", count)
    change = (found["after"] / found["before"] - 1) * 100
    mib = {name: found[name] / 2**20 for name in ("before", "after", "highest")}
    note = (
        f"{mib['before']:.0f} MiB after 10,000 events, {mib['after']:.0f} MiB after {count:,} more (highest {mib['highest']:.0f}), "
        f"due over a day, in {found['seconds']:.0f} s; a tables port takes the events and forgets them: only our memory counts"
    )
    return [Figure(f"memory with {count:,} future events: growth", change, "%", "<=", 10, note, found)]


async def backlog(run: Run) -> list[Figure]:
    """Measure the same due work over growing backlogs."""
    sizes = run.pick((0, 10_000, 100_000, 1_000_000), (0, 10_000, 100_000))
    found = []
    for number, size in enumerate(sizes):
        run.report_progress("backlog", number, len(sizes))
        found.append(await _apart("backlog", size))
    counts = [each["transactions"] for each in found]
    shown = ", ".join(f"{size:,}: {count}" for size, count in zip(sizes, counts, strict=True))
    name = "transactions of due work with a backlog: most - least"
    note = f"future events in the store: transactions for {3 * SHARD:,} due ones: {shown}"
    return [Figure(name, max(counts) - min(counts), "", "==", 0, note, {"all": found})]


def main() -> None:
    what, count = sys.argv[1], int(sys.argv[2])
    print(json.dumps(asyncio.run({"memory": _memory, "backlog": _backlog}[what](count))))


if __name__ == "__main__":
    main()
